"""Rows through extractors: what a row does costs that row, and nothing is heard of it."""

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pipeline_dp", reason="needs the extra pipeline-dp: Python 3.11 to 3.13")

from dp_pipelines.transforms.pipeline_dp import keys
from dp_pipelines.transforms.pipeline_dp.extract import RowReader, tables


def reader(**more: Any) -> RowReader:
    given: dict[str, Any] = {"unit": lambda row: row[0], "partition": lambda row: row[1], "value": lambda row: row[2]}
    return RowReader(**{**given, **more})


def raising(error: BaseException) -> Any:
    def function(row: Any) -> Any:
        if row[0] == "loud":
            raise error
        return row[1]

    return function


GOOD = [("ann", "north", 1), ("bob", "south", 2.5)]


def units(table: pa.Table) -> list[Any]:
    return [None if cell is None else keys.decoded(cell) for cell in table.column("privacy_id").to_pylist()]


@pytest.mark.parametrize("error", [ValueError("secret"), StopIteration("secret"), RecursionError("secret")])
def test_a_row_without_a_key_is_dropped_and_nothing_is_heard_of_it(error: Exception, caplog, capsys) -> None:
    rows = [GOOD[0], ("loud", "x", 3), GOOD[1]]
    table = reader(partition=raising(error)).table(rows)
    assert units(table) == ["ann", None, "bob"]
    assert table.column("value").to_pylist() == [1.0, 3.0, 2.5]
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


def test_a_row_whose_value_raises_has_none() -> None:
    table = reader(value=raising(KeyError("secret"))).table([("loud", "north", 1)])
    assert units(table) == ["loud"]
    assert np.isnan(table.column("value").to_numpy()).all()


@pytest.mark.parametrize(
    ("value", "number"),
    [(True, 1.0), (np.float32(0.5), 0.5), (decimal.Decimal("2.5"), 2.5), (10**400, np.inf), (-(10**400), -np.inf)],
)
def test_a_number_of_any_type_is_a_value(value: object, number: float) -> None:
    assert reader().table([("ann", "north", value)]).column("value").to_pylist() == [number]


@pytest.mark.parametrize("value", ["3", None, object(), [1.0], 1j, float("nan")])
def test_what_is_no_number_is_no_value_and_costs_no_other(value: object) -> None:
    found = reader().table([*GOOD, ("eve", "north", value)]).column("value").to_numpy()
    assert found[:2].tolist() == [1.0, 2.5]
    assert np.isnan(found[2])


def test_a_vector_of_another_shape_is_null_and_the_programs_array_stays_as_it_is() -> None:
    own = np.array([1, 2])
    rows = [
        ("ann", "north", own),
        ("bob", "north", [1.0, 2.0, 3.0]),
        ("eve", "north", ["a", "b"]),
        ("joe", "north", None),
    ]
    assert reader(size=2).table(rows).column("value").to_pylist() == [[1.0, 2.0], None, None, None]
    assert own.dtype.kind == "i"


def test_steps_change_rows_and_keep_the_id() -> None:
    steps = (("flat_map", lambda row: [(row[1], n) for n in range(row[2])]), ("map", lambda row: (0, *row)))
    table = reader(steps=steps).table([("ann", "north", 2), ("bob", "south", 0), ("eve", "west", 1)])
    assert units(table) == ["ann", "ann", "eve"]
    assert table.column("value").to_pylist() == [0.0, 1.0, 0.0]


def test_a_step_that_raises_drops_its_row_whole() -> None:
    def half(row: Any) -> Any:
        yield row
        if row[0] == "loud":
            raise ValueError("secret")

    steps = (("flat_map", half), ("map", lambda row: row if row[2] else 1 / 0))
    rows = [("ann", "north", 1), ("loud", "north", 1), ("bob", "north", 0), ("eve", "north", 2)]
    assert units(reader(steps=steps).table(rows)) == ["ann", "eve"]


def test_without_ids_every_row_is_a_unit_of_its_own_in_every_table() -> None:
    read = reader(unit=None)
    found = [cell for _ in range(3) for cell in read.table(GOOD * 10).column("privacy_id").to_pylist()]
    assert len(set(found)) == 60


def test_the_schema_is_the_same_with_rows_and_without() -> None:
    read = reader()
    assert {str(table.schema) for table in (read.table([]), read.table(GOOD), *tables(iter(GOOD), read))} == {
        str(read.table([]).schema)
    }
