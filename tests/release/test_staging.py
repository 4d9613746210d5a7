"""What a release is written as: rows in the order of their keys, columns without a word of where they came from.

In: tables as a stage might draw them. Out: the same sorted, or a Parquet file. Holds: neither the order of rows nor metadata
tells of the input. Not covered: attempts that were killed, and the rename (tests/transforms/test_private_aggregate.py).
"""

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.release import staging

Key = tuple[str | None, int | None]

KEYS = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "é", None]), st.sampled_from([-1, 0, 7, None])), unique=True, max_size=9
)


@settings(max_examples=40)
@given(keys=KEYS, cut=st.integers(0, 9))
def test_rows_come_out_in_the_order_of_their_keys_in_whatever_order_they_were_found(keys: list[Key], cut: int) -> None:
    kinds = pa.schema([("a", pa.string()), ("b", pa.int64()), ("rows", pa.int64())])
    rows = [{"a": a, "b": b, "rows": place} for place, (a, b) in enumerate(keys)]
    table = pa.concat_tables([pa.Table.from_pylist(part, kinds) for part in (rows[:cut], rows[cut:])])
    in_order = sorted(rows, key=lambda row: [(value is None, value or type(value)()) for value in (row["a"], row["b"])])
    assert staging.sorted_by_key(table, ["a", "b"]).to_pylist() == in_order


def test_neither_metadata_of_a_table_nor_of_its_columns_are_written(tmp_path: Path) -> None:
    secret = b"the-only-customer-in-the-village"
    fields = [pa.field("key", pa.string(), metadata={b"note": secret}), pa.field("rows", pa.int64())]
    table = pa.table([["b", "a"], [1, 2]], schema=pa.schema(fields, metadata={b"pandas": secret}))
    path = tmp_path / "stage.parquet"
    staging.write_release(table, path, ["key"])
    # Arrow keeps a schema of its own in the file, encoded.
    hidden = base64.b64decode((pq.read_metadata(path).metadata or {}).get(b"ARROW:schema", b""))
    assert secret not in path.read_bytes() + hidden
    assert pq.read_schema(path).metadata is None
    assert pq.read_table(path).to_pydict() == {"key": ["a", "b"], "rows": [2, 1]}


def test_a_file_of_made_up_rows_says_so_in_its_metadata_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "stage.parquet"
    staging.write_release(pa.table({"key": ["b", "a"], "rows": [1, 2]}), path, ["key"])
    staging.mark_made_up(path)
    assert pq.read_schema(path).metadata == {b"dp_pipelines": b"made-up rows"}
    assert pq.read_table(path).to_pydict() == {"key": ["a", "b"], "rows": [2, 1]}
    assert [one.name for one in tmp_path.iterdir()] == ["stage.parquet"]
