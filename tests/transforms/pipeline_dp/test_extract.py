"""Rows through extractors: what a row does costs that row, and nothing is heard of it."""

import decimal
import numbers
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pipeline_dp", reason="needs the extra pipeline-dp: Python 3.11 to 3.13")

from dp_pipelines import interrupts
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


def table_of(read: RowReader, rows: list[Any]) -> pa.Table:
    """The one table of a few rows."""
    (table,) = read.tables(rows)
    return table


GOOD = [("ann", "north", 1), ("bob", "south", 2.5)]


def units(table: pa.Table) -> list[Any]:
    return [None if cell is None else keys.decoded(cell) for cell in table.column("privacy_id").to_pylist()]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        StopIteration("secret"),
        RecursionError("secret"),
        SystemExit("secret"),
        KeyboardInterrupt("secret"),
    ],
)
def test_a_row_without_a_key_is_dropped_and_nothing_is_heard_of_it(error: BaseException, caplog, capsys) -> None:
    rows = [GOOD[0], ("loud", "x", 3), GOOD[1]]
    with interrupts.watched():
        table = table_of(reader(partition=raising(error)), rows)
    assert units(table) == ["ann", None, "bob"]
    assert table.column("value").to_pylist() == [1.0, 3.0, 2.5]
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


def test_a_row_whose_value_raises_has_none() -> None:
    table = table_of(reader(value=raising(KeyError("secret"))), [("loud", "north", 1)])
    assert units(table) == ["loud"]
    assert np.isnan(table.column("value").to_numpy()).all()


@pytest.mark.parametrize(
    ("value", "number"),
    [(True, 1.0), (np.float32(0.5), 0.5), (decimal.Decimal("2.5"), 2.5), (10**400, np.inf), (-(10**400), -np.inf)],
)
def test_a_number_of_any_type_is_a_value(value: object, number: float) -> None:
    assert table_of(reader(), [("ann", "north", value)]).column("value").to_pylist() == [number]


@numbers.Real.register
class Unordered:
    """A number beyond all floats that cannot be compared."""

    def __float__(self) -> float:
        raise OverflowError("secret")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", ["3", None, object(), [1.0], 1j, np.complex64(1j), Unordered(), float("nan")])
def test_what_is_no_number_is_no_value_and_costs_no_other(value: object) -> None:
    found = table_of(reader(), [*GOOD, ("eve", "north", value)]).column("value").to_numpy()
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
    assert table_of(reader(size=2), rows).column("value").to_pylist() == [[1.0, 2.0], None, None, None]
    assert own.dtype.kind == "i"


def test_steps_change_rows_and_keep_the_id() -> None:
    steps = (("flat_map", lambda row: [(row[1], n) for n in range(row[2])]), ("map", lambda row: (0, *row)))
    table = table_of(reader(steps=steps), [("ann", "north", 2), ("bob", "south", 0), ("eve", "west", 1)])
    assert units(table) == ["ann", "ann", "eve"]
    assert table.column("value").to_pylist() == [0.0, 1.0, 0.0]


def test_a_step_that_raises_drops_its_row_whole() -> None:
    def half(row: Any) -> Any:
        yield row
        if row[0] == "loud":
            raise ValueError("secret")

    steps = (("flat_map", half), ("map", lambda row: row if row[2] else 1 / 0))
    rows = [("ann", "north", 1), ("loud", "north", 1), ("bob", "north", 0), ("eve", "north", 2)]
    assert units(table_of(reader(steps=steps), rows)) == ["ann", "eve"]


def test_without_ids_every_row_is_a_unit_of_its_own_in_every_table() -> None:
    read = reader(unit=None)
    found = [cell for _ in range(3) for cell in table_of(read, GOOD * 10).column("privacy_id").to_pylist()]
    assert len(set(found)) == 60


def test_the_schema_is_the_same_with_rows_and_without() -> None:
    read = reader()
    assert {str(table.schema) for table in (table_of(read, []), table_of(read, GOOD), *tables(iter(GOOD), read))} == {
        str(table_of(read, []).schema)
    }


def test_a_row_that_raises_costs_no_other_row_where_functions_change_their_rows() -> None:
    read = reader(
        unit=lambda row: row.pop("who"), partition=lambda row: row.pop("where"), value=lambda row: row.pop("what")
    )
    rows: list[Any] = [{"who": who, "where": "north", "what": 1} for who in ("ann", "bob")]
    table = table_of(read, [*rows, {"where": "north"}, {"who": "eve", "what": 1}, {"who": "joe", "where": "north"}])
    assert units(table) == ["ann", "bob", None, None, "joe"]
    assert table.column("value").to_pylist()[:2] == [1.0, 1.0]


def test_values_that_are_hidden_or_durations_are_null() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    rows = [("ann", "north", masked), ("bob", "north", [1, 2]), ("eve", "north", np.ma.array([1.0, 2.0]))]
    assert table_of(reader(size=2), rows).column("value").to_pylist() == [None, [1.0, 2.0], None]
    values = [
        np.timedelta64(5, "ns"),
        np.timedelta64(5),
        np.timedelta64(5, "D"),
        np.ma.masked,
        np.ma.array(5),
        np.array(5),
    ]
    table = table_of(reader(), [("ann", "north", value) for value in values])
    assert [number == 5.0 for number in table.column("value").to_pylist()] == [False] * 4 + [True] * 2


def test_numpy_warns_of_no_value() -> None:
    def logarithm(row: Any) -> Any:
        return np.log(np.array([row[2]]))

    beyond = np.longdouble("1e4000")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = table_of(
            reader(size=1, value=logarithm, steps=(("map", lambda row: (*row[:2], np.float64(row[2]) / 0)),)), GOOD
        )
        assert table.column("value").to_pylist() == [[np.inf], [np.inf]]
        vectors = table_of(reader(size=1), [("ann", "north", [beyond]), ("bob", "north", [0.0])]).column("value")
    assert vectors.to_pylist()[1] == [0.0]


def test_a_row_of_which_many_are_made_fills_several_tables() -> None:
    long = "x" * 2**6
    steps = (("flat_map", lambda row: range(row[2])), ("map", lambda number: (0, number, 0)))
    found = list(reader(steps=steps).tables([("ann", 0, 3), (long, 0, 2**18 + 5), ("bob", 0, 2)]))
    assert max(table.num_rows for table in found) <= 2**16
    assert sum(table.num_rows for table in found) == 2**18 + 10
    ids = [cell for table in found for cell in table.column("privacy_id").unique().to_pylist()]
    assert set(ids) == {keys.encode("ann"), keys.encode("bob"), *keys.encoded([long], units=True).to_pylist()}


def test_a_table_of_long_vectors_has_few_rows() -> None:
    rows = [("ann", "north", np.zeros(2**19)) for _ in range(5)]
    assert [table.num_rows for table in tables(iter(rows), reader(size=2**19))] == [0, 2, 2, 1]


def test_each_function_is_called_once_for_each_row_whatever_it_raises() -> None:
    called: list[int] = []

    def unit(row: int) -> int:
        called.append(row)
        if row % 7 == 3:
            raise StopIteration
        if row % 7 == 5:
            raise SystemExit("secret")
        return row

    numbers = list(range(2000))
    (table,) = RowReader(unit=unit, partition=lambda row: row % 2).tables(numbers)
    assert called == numbers
    kept = [row for row in numbers if row % 7 not in (3, 5)]
    units = table.column("privacy_id").to_pylist()
    assert [row for row, found in zip(numbers, units, strict=True) if found is not None] == kept


def test_tables_are_the_same_however_rows_are_gathered(monkeypatch) -> None:
    steps = (("flat_map", lambda row: [row] * (row[2] % 3)), ("map", lambda row: (*row[:2], row[2] + 1)))
    rows = [(f"p{who}", who % 5, who) for who in range(1500)]

    def found(chunk: int, most: int) -> list[dict[str, list]]:
        monkeypatch.setattr("dp_pipelines.transforms.pipeline_dp.extract.CHUNK_ROWS", chunk)
        monkeypatch.setattr("dp_pipelines.transforms.pipeline_dp.extract.BATCH_ROWS", most)
        made = list(reader(steps=steps).tables(rows))
        assert [table.num_rows for table in made[:-1]] == [most] * (len(made) - 1)
        return pa.concat_tables(made).to_pydict()

    assert found(512, 2**16) == found(7, 100) == found(1000, 3)
