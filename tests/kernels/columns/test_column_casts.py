"""Cells of any kind as columns: what does not fit is null, and nothing ends the process.

In: odd cells, among them scalars of Arrow. Out: columns. Not covered: rows of pipelines (tests/transforms/rows).
"""

import subprocess
import sys

import pyarrow as pa
import pytest

from dp_pipelines.kernels.columns import column_casts
from dp_pipelines.kernels.columns.type_names import declared_types

TEXTS = pa.dictionary(pa.int32(), pa.string())
NUMBERS = pa.dictionary(pa.int32(), pa.int64())

ODD = """
import datetime, pyarrow as pa
from dp_pipelines.kernels.columns import column_casts
texts, numbers = pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.int64())
cells = [pa.scalar("z"), pa.scalar(3), pa.scalar(datetime.datetime(2026, 1, 5)), pa.scalar([1]), pa.scalar(None)]
for cell in cells:
    print(column_casts.column([cell], texts).to_pylist() + column_casts.column([cell], numbers).to_pylist())
"""


def test_a_scalar_of_arrow_in_a_dictionary_column_is_its_value_or_null_and_does_not_end_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", ODD], capture_output=True, text=True)
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == ["['z', None]", "[None, 3]", *["[None, None]"] * 3]


def test_scalars_of_arrow_are_their_values_in_plain_columns() -> None:
    cells = [pa.scalar(3), "x", pa.scalar("y"), pa.scalar(None, pa.int64()), 4]
    assert column_casts.column(cells, pa.int64()).to_pylist() == [3, None, None, None, 4]
    assert column_casts.column(cells, pa.float64()).to_pylist() == [3.0, None, None, None, 4.0]
    assert column_casts.column(cells, pa.string()).to_pylist() == [None, "x", "y", None, None]


@pytest.mark.parametrize("count", [0, 1, 300])
def test_the_type_of_a_dictionary_column_does_not_depend_on_how_many_values_there_are(count: int) -> None:
    for kind in (pa.dictionary(pa.int8(), pa.string()), TEXTS):
        made = column_casts.column([str(number) for number in range(count)], kind)
        assert made.type == TEXTS
        assert made.to_pylist() == [str(number) for number in range(count)]
    ordered = pa.dictionary(pa.int64(), pa.int64(), ordered=True)
    assert column_casts.column([1, "x"], ordered).type == ordered
    assert column_casts.column([1, "x"], NUMBERS).to_pylist() == [1, None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.map_(pa.string(), pa.int64())),
        pa.struct([("a", pa.map_(pa.string(), pa.int64()))]),
        pa.list_(TEXTS),
        pa.dictionary(pa.int32(), pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_types_on_whose_cells_arrow_crashes_cannot_be_declared(kind: pa.DataType) -> None:
    with pytest.raises(
        ValueError, match=r"types\['m'\]: is the type .*, to which cells are not converted; declare a plain"
    ):
        declared_types({"m": kind})


def test_plain_lists_structs_and_dictionaries_can_be_declared() -> None:
    kinds = {"a": pa.list_(pa.float64()), "b": pa.struct([("x", pa.int64())]), "c": TEXTS, "d": pa.list_(pa.int64(), 2)}
    assert declared_types(kinds) == kinds
