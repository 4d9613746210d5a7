"""What a row is assumed to take as it is shuffled, beside what rows do take."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines.kernels.cells import Bins
from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.vectors import VectorLattice
from dp_pipelines.steps import row_bytes

ROWS = 10_000


def events() -> pa.Table:
    made = np.random.default_rng(1)
    numbers = made.integers(2**40, 2**41, ROWS)
    return pa.table(
        {
            "who": numbers,
            "name": [f"{number:036}" for number in numbers],
            "day": pa.array([datetime.date(2025, 1, 1 + n % 28) for n in range(ROWS)]),
            "city": [f"{n:036}" for n in range(ROWS)],
            "paid": pa.array(made.random(ROWS), mask=made.random(ROWS) < 0.1),
            "bill": pa.array([decimal.Decimal(int(n)) for n in numbers]),
            "place": pa.FixedSizeListArray.from_arrays(pa.array(made.random(ROWS * 16)), 16),
        }
    )


LAYOUTS = {
    "a count": Layout(units=("who",), partitions=("day",), max_partitions=1),
    "everything": Layout(units=("who",), partitions=(), max_partitions=1),
    "names of units and partitions": Layout(units=("name",), partitions=("city", "day"), max_partitions=1),
    "forty clamps": Layout(
        units=("who",),
        partitions=("day",),
        values=tuple(("paid", Lattice.for_values(0, high)) for high in range(1, 41)),
        max_partitions=1,
    ),
    "summands": Layout(
        units=("who",),
        partitions=("day",),
        row_id="bill",
        summands=tuple(("paid", SummandLattice.for_sums(0, high)) for high in range(1, 9)),
        max_partitions=1,
    ),
    "cells, different values and a vector": Layout(
        units=("who",),
        partitions=("day",),
        cells=(("paid", Bins(edges=(0.0, 0.5, 1.0))),),
        distinct=(("who", None),),
        vectors=(("place", VectorLattice(size=16, norm="l2", max_norm=1.0)),),
        max_partitions=1,
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_row_takes_about_what_is_assumed_of_it(name: str) -> None:
    table = events()
    wire = LAYOUTS[name].wire(table)
    assumed = row_bytes.of_wire(LAYOUTS[name], table.schema)
    assert wire.nbytes / ROWS / 2 <= assumed <= 2 * wire.nbytes / ROWS


def test_what_is_assumed_of_columns_is_what_numbers_take() -> None:
    table = events()
    numbers = ["who", "day", "paid", "bill", "place"]
    assert row_bytes.of_columns(table.schema, numbers) == pytest.approx(table.select(numbers).nbytes / ROWS, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (pa.null(), row_bytes.OTHER_BYTES),
        (pa.dictionary(pa.int32(), pa.large_string()), row_bytes.TEXT_BYTES),
        (pa.binary(16), 16),
        (pa.list_(pa.int16()), 20),
        (pa.struct({"a": pa.int8(), "b": pa.timestamp("us")}), 9),
        (pa.map_(pa.int8(), pa.int8()), row_bytes.OTHER_BYTES),
    ],
    ids=str,
)
def test_every_type_has_a_size(kind: pa.DataType, size: int) -> None:
    assert row_bytes.of_type(kind) == size


def test_a_column_of_unknown_type_is_taken_for_a_number() -> None:
    assert row_bytes.of_columns({}, ["made later"]) == row_bytes.OTHER_BYTES + 1
