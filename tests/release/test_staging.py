"""What a release is written as: rows in the order of their keys, columns without a word of where they came from.

In: tables as a stage might draw them. Out: the same sorted, or a Parquet file. Holds: neither the order of rows nor metadata
tells of the input. Not covered: attempts that were killed, and the rename (tests/transforms/test_private_aggregate.py).
"""

import base64
import errno
import itertools
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
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


@given(sizes=st.lists(st.integers(0, 25), min_size=1, max_size=6))
@settings(max_examples=30)
def test_the_layout_of_a_file_follows_from_its_number_of_rows_alone(sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "ROWS_OF_A_GROUP", 10)
        rows, path = sum(sizes), Path(folder) / "stage.parquet"
        begins = [*itertools.accumulate(sizes, initial=0)]
        tables = (
            pa.table({"key": pa.array(range(begin, end), pa.int64())}) for begin, end in itertools.pairwise(begins)
        )
        staging.write_in_order(tables, path)
        layout = pq.read_metadata(path)
        groups = [layout.row_group(number).num_rows for number in range(layout.num_row_groups)]
        assert groups == ([10] * (rows // 10) + [rows % 10] * (rows % 10 > 0) or [0])
        assert pq.read_table(path).column("key").to_pylist() == list(range(rows))
        assert [one.name for one in Path(folder).iterdir()] == ["stage.parquet"]


def test_the_first_draw_of_a_file_stays_and_a_later_one_is_never_seen(tmp_path: Path) -> None:
    path = tmp_path / "stage.parquet"
    for rows in (1, 2):
        staging.write_release(pa.table({"key": ["a"], "rows": [rows]}), path, ["key"])
        assert pq.read_table(path).to_pydict() == {"key": ["a"], "rows": [1]}
        assert [one.name for one in tmp_path.iterdir()] == ["stage.parquet"]


def test_what_an_attempt_has_left_unfinished_is_not_published(tmp_path: Path) -> None:
    with staging.staging_folder(tmp_path / "out") as staged:
        for folder in (staged, staged / "parts", staged / f".half{staging.UNFINISHED}"):
            folder.mkdir(exist_ok=True)
            (folder / "a.parquet").write_bytes(b"whole")
            (folder / f".b.parquet.7{staging.UNFINISHED}").write_bytes(b"a second draw")
        staging.note_seals(staged, {"a": "b"})
        staging.publish_folder(staged, tmp_path / "out")
    published = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert published == ["out", "out/a.parquet", "out/parts", "out/parts/a.parquet"]


def test_seals_come_back_as_they_were_noted_and_nothing_else_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "staged"
    for made in (elsewhere, folder):
        made.mkdir()
    monkeypatch.chdir(elsewhere)
    with pytest.raises(OSError, match=staging.SEALS):
        staging.noted_seals(folder)
    for seals in ({"weekly": "abc"}, {"weekly": "def", "d\u00e4ily": ""}):
        staging.note_seals(folder, seals)
        assert staging.noted_seals(folder) == seals
    assert [path.name for path in folder.iterdir()] == [staging.SEALS]
    assert not list(elsewhere.iterdir())


def test_a_staged_folder_is_destroyed_whole_and_a_disk_that_keeps_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "staged"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "a").write_bytes(b"x")
    assert (staging.destroy(folder), staging.destroy(folder), folder.exists()) == (True, False, False)
    folder.mkdir()
    assert (staging.why_left(folder), folder.exists()) == ("", False)

    def read_only(path: object, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(shutil, "rmtree", read_only)
    assert "read-only" in staging.why_left(folder).lower()


@pytest.mark.parametrize("kind", ["folder", "file", "link to nothing"])
def test_an_output_whose_place_is_taken_is_refused(tmp_path: Path, kind: str) -> None:
    output = tmp_path / "out"
    if kind == "folder":
        output.mkdir()
    elif kind == "file":
        output.write_text("x")
    else:
        output.symlink_to(tmp_path / "nothing")
    with pytest.raises(RequestError, match="already exists"), staging.staging_folder(output):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_report_of_made_up_rows_in_the_place_of_an_output_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / staging.MADE_UP_NOTICE).write_text("made up")
    with pytest.raises(RequestError, match="holds a report of made-up rows"):
        staging.refuse_existing(tmp_path / "out")
