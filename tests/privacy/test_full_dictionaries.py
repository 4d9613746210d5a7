"""Codes of every width, with as many values as they can name and with nulls, mean the same as the values in each row.

In: columns of codes of all index types of Arrow, in one piece and in several with values of their own; files of them. Out: what
functions near rows make of them. Holds: whether a column has a null, or one value more, ends no run and changes no result. Not
covered: plain values of every type (`tests/jobs/sources/test_all_arrow_types.py`).
"""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import lookup, lookups, tables
from dp_pipelines.jobs.sql import expressions, row_slices
from dp_pipelines.kernels import distinct, keys, shard
from dp_pipelines.kernels.columns import gather, hashing, ipc, long_text, matches
from dp_pipelines.kernels.columns.column_types import readable
from dp_pipelines.steps import step, whole_units
from dp_pipelines.steps.read_files import NO_ROWS, ReadRowGroups, batches_of, open_parquet, whole_table
from dp_pipelines.training.features import category_values

MOST = {
    pa.int8(): 2**7, pa.uint8(): 2**8, pa.int16(): 2**15, pa.uint16(): 2**16,
    pa.int32(): 260, pa.uint32(): 260, pa.int64(): 260, pa.uint64(): 260,
}  # fmt: skip
"""For each type of index the values of a dictionary: all that it can name, where that is not too many."""


def full(index: pa.DataType, first: int = 0, null: bool = True) -> pa.DictionaryArray:
    """Codes that name every value of as large a dictionary as they can, each once, and a null in the middle."""
    numbers: list[int | None] = list(range(MOST[index]))
    if null:
        numbers.insert(MOST[index] // 2, None)
    return pa.DictionaryArray.from_arrays(pa.array(numbers, index), texts(first, MOST[index]))


def texts(first: int, count: int) -> pa.Array:
    return pa.array([f"v{number}" for number in range(first, first + count)])


def columns(index: pa.DataType) -> dict[str, pa.ChunkedArray]:
    most = MOST[index]
    return {
        "full": pa.chunked_array([full(index)]),
        "without null": pa.chunked_array([full(index, null=False)]),
        "slice": pa.chunked_array([full(index).slice(most // 2 - 1)]),
        "pieces": pa.chunked_array([full(index), full(index, most // 2), full(index, most, null=False)]),
    }


LISTED = pa.table({"a": ["v1", "v127", "v200", None], "city": ["Oslo", "Bonn", "Rome", "Bern"]})
STORES = lookup.bind(LISTED.slice(0, 3), "a", pa.schema([("a", pa.string())]), unit=[])


def by_first_row(codes: Any) -> list[int]:
    """Codes of rows as the first row with the same code, since their numbers mean nothing."""
    _, first, inverse = np.unique(np.asarray(codes), return_index=True, return_inverse=True)
    return first[inverse].tolist()


def computed(column: pa.ChunkedArray) -> Any:
    bound = expressions.bind(
        "a IS NULL OR a <> 'v2'", {"upper": "upper(a)", "known": "coalesce(a, 'none')"},
        pa.schema([("a", pa.string())]), unit=[], values={},
    )  # fmt: skip
    # Each value in several rows, so that expressions are evaluated over the entries of dictionaries.
    repeated = pa.table({"a": pa.chunked_array([*column.chunks] * 3, column.type)})
    return [row for table in bound.tables(repeated) for row in table.to_pylist()]


USES: dict[str, Callable[[pa.ChunkedArray], Any]] = {
    "gather.one_array": lambda column: gather.one_array(column).to_pylist(),
    "gather.take": lambda column: gather.take(column, np.array([len(column) - 1, 0, 1])).to_pylist(),
    "gather.take_rows": lambda column: gather.take_rows(pa.table({"a": column}), np.array([len(column) - 1, 0]))
    .column("a").to_pylist(),
    "gather.whole": lambda column: gather.whole(column).to_pylist(),
    "gather.filtered": lambda column: gather.filtered(column, np.arange(len(column)) % 2 == 0).to_pylist(),
    "keys.plain": lambda column: keys.plain(column).to_pylist(),
    "keys.comparable": lambda column: keys.comparable(column).to_pylist(),
    "keys.plain_unit": lambda column: keys.plain_unit(column).to_pylist(),
    "keys.encoded": lambda column: keys.encoded(column).to_pylist(),
    "keys.dense": lambda column: by_first_row(keys.dense([keys.one_array(column)]).codes),
    "keys.dense of pairs": lambda column: by_first_row(keys.dense([keys.one_array(column)] * 2).codes),
    "keys.with_values": lambda column: keys.with_values(column, lambda values: values).to_pylist(),
    "hashing": lambda column: hashing.hash_columns([keys.comparable(column)], 5).tolist(),
    "distinct": lambda column: distinct.one_each(column).to_pylist(),
    "matches": lambda column: [
        part.tolist() for pair in matches.matches([keys.plain(column)], [LISTED["a"].chunk(0)]).pairs(10) for part in pair
    ],
    "long_text": lambda column: long_text.restored(column, {}).to_pylist(),
    "shard.joined": lambda column: shard.joined([pa.table({"u0": column})] * 2).column("u0").to_pylist(),
    "shard.compact": lambda column: shard.compact(pa.table({"a": column}), 4).column("a").to_pylist(),
    "ipc": lambda column: ipc.from_buffer(ipc.to_buffer(pa.table({"a": column}))).column("a").to_pylist(),
    "whole_units": lambda column: whole_units.canonical(pa.table({"a": column}), ["a"], []).column("a").to_pylist(),
    "step.plain_bytes": lambda column: step.plain_bytes(pa.table({"a": column})) > 0,
    "category_values.told": category_values.told,
    "category_values.places": lambda column: category_values.places(keys.one_array(column), ["v200", "v1"]).tolist(),
    "row_slices": lambda column: np.concatenate([row_slices.text_bytes(c) for c in column.chunks]).tolist(),
    "expressions": computed,
    "lookup": lambda column: STORES.apply(pa.table({"a": column})).column("city").to_pylist(),
    "lookups": lambda column: lookups._coded(keys.one_array(column), np.array([0, len(column) - 1])).to_pylist(),
    "tables": lambda column: [value for chunk in column.chunks for value in tables.without_views(chunk).to_pylist()],
}  # fmt: skip
"""What takes columns of rows as they come from files, engines or callers."""


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("index", MOST, ids=str)
def test_full_codes_mean_their_values(index: pa.DataType, use: str) -> None:
    for layout, column in columns(index).items():
        if layout != "full" and MOST[index] > 260:  # long, and no other than the narrower ones
            continue
        plain = pa.chunked_array([gather.plain(chunk) for chunk in column.chunks])
        assert USES[use](column) == USES[use](plain), layout


def of_several_parts(index: pa.DataType, wrap: Callable[[pa.Array], pa.Array]) -> pa.Table:
    """A table whose parts each keep to their codes, and which together have more values than there are codes."""
    parts = [wrap(full(index)), wrap(full(index, MOST[index]))]
    return pa.table({"x": pa.chunked_array(parts), "n": np.arange(sum(map(len, parts)))})


FORMS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "column": lambda values: values,
    "large": lambda values: values.cast(pa.dictionary(values.type.index_type, pa.large_string())),
    "list": lambda values: pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values),
    "struct": lambda values: pa.StructArray.from_arrays([values, pa.array(range(len(values)))], ["s", "t"]),
    "extension": lambda values: pa.ExtensionArray.from_storage(pa.opaque(values.type, "kind", "vendor"), values),
}


CASES = [(index, form) for index in MOST for form in FORMS if form == "column" or MOST[index] <= 260]


@pytest.mark.parametrize(("index", "form"), CASES, ids=str)
def test_a_file_may_have_more_values_than_its_stored_type_has_codes(
    tmp_path: pathlib.Path, index: pa.DataType, form: str
) -> None:
    """Each part of a table has few enough values for its codes, and Parquet keeps one dictionary for all."""
    table = of_several_parts(index, FORMS[form])
    path = str(tmp_path / "rows.parquet")
    pq.write_table(table, path)
    wanted = table.to_pydict()
    assert whole_table(path).to_pydict() == wanted
    assert whole_table(path, ["x"]).to_pydict() == {"x": wanted["x"]}
    for names in (None, ["n", "x"]):
        empty, *others = ReadRowGroups(names).process(((path, NO_ROWS), table.num_rows))
        assert keys.plain_type(empty.schema.field("x").type) == keys.plain_type(others[0].schema.field("x").type)
        assert [value for part in others for value in part.column("x").to_pylist()] == wanted["x"]
    with open_parquet(path) as file:
        read = [readable(pa.Table.from_batches([batch])) for batch in batches_of(path, file, ["x"], 1000)]
    assert [value for table in read for value in table.column("x").to_pylist()] == wanted["x"]


@pytest.mark.parametrize("inner", [pa.int64(), pa.dictionary(pa.int16(), pa.string())], ids=str)
@pytest.mark.parametrize("has_null", [False, True])
def test_lists_of_a_fixed_size_inside_others_are_refused_by_their_type(
    tmp_path: pathlib.Path, inner: pa.DataType, has_null: bool
) -> None:
    """Arrow reads them until one row has a null there: that row would decide."""
    value = 7 if inner == pa.int64() else "a"
    kind = pa.list_(pa.struct({"a": pa.list_(inner, 1)}))
    rows = [[{"a": [value]}]] * 3 + ([[None]] if has_null else [])
    path = str(tmp_path / "rows.parquet")
    pq.write_table(pa.table({"n": list(range(len(rows))), "x": pa.array(rows, kind)}), path)
    with pytest.raises(RequestError, match="column 'x': has lists of a fixed size inside it"):
        whole_table(path)
    assert whole_table(path, ["n"]).num_rows == len(rows)


def test_codes_of_nothing_below_a_null_are_null() -> None:
    empty = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int16()), pa.array([], pa.string()), safe=False)
    assert gather.decoded(empty).to_pylist() == [None, None]
