"""Rows in: what pipelines hold is read as it is, or refused when the pipeline is built, and never gives an empty release.

In: the same rows in every form that Beam users have them. Out: releases with noise that hardly counts, or refusals. Not covered:
other runners (`test_rows_on_other_runners`); windows (`test_windowed_rows`).
"""

import dataclasses
import gc
import typing
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
import pandas as pd
import pyarrow as pa
import pytest
from apache_beam.dataframe.convert import to_dataframe, to_pcollection
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.typehints.row_type import RowTypeConstraint

from dp_pipelines import ContributionBounds, Count, Kept, Plan, PublicPartitions, Query, RequestError, Sum
from dp_pipelines.transforms import (
    BoundContributions,
    FromRows,
    KeptShares,
    PrivateAggregate,
    PrivateCount,
    PrivateSum,
    check_row,
)
from dp_pipelines.transforms.rows.to_tables import ToTables


class Order(typing.NamedTuple):
    """A row with a schema."""

    who: int
    region: str
    paid: float


@dataclasses.dataclass
class Plain:
    """A row of a class of one's own."""

    who: int
    region: str
    paid: float


class Bare:
    """A row of a class without declared fields."""

    def __init__(self, who: int, region: str, paid: float) -> None:
        self.who, self.region, self.paid = who, region, paid


TYPES = {"who": "int64", "region": "string", "paid": "double"}
COUNT = 300
TUPLES = [(number, "ab"[number % 2], 1.0) for number in range(COUNT)]
DICTS = [dict(zip(TYPES, row, strict=True)) for row in TUPLES]
TABLE = pa.Table.from_pylist(DICTS)
EXPECTED = [("a", 150, 150), ("b", 150, 150)]
BOUNDS = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)


def query(**changes: Any) -> Query:
    """Orders and revenue by region."""
    asked = {
        "privacy_unit": "who",
        "partition_by": "region",
        "bounds": BOUNDS,
        "metrics": {"orders": Count(), "revenue": Sum("paid", min_value=0, max_value=1)},
        "partitions": PublicPartitions(keys=[["a"], ["b"]]),
    }
    return Query(**{**asked, **changes})


def stage(**changes: Any) -> Any:
    """A stage with noise below one half."""
    return Plan(epsilon=39.0, delta=1e-6, stages={"s": query(**changes)})["s"]


def numbers(table: pa.Table) -> list[tuple[str, int, int]]:
    """What is released, rounded."""
    return [
        (row["region"], round(row["orders"] / 10) * 10, round(row["revenue"] / 10) * 10) for row in table.to_pylist()
    ]


def unsaid(pipeline: beam.Pipeline, elements: list[Any], kind: Any = typing.Any) -> beam.PCollection[Any]:
    """Elements of which nobody knows more than what is said."""
    return pipeline | beam.Create([0]) | beam.FlatMap(lambda _: elements).with_output_types(kind)


def orders(pipeline: beam.Pipeline) -> beam.PCollection[Order]:
    """Rows with a schema."""
    return pipeline | beam.Create([Order(*row) for row in TUPLES])


def beam_rows(pipeline: beam.Pipeline) -> beam.PCollection[Any]:
    """Rows whose type Beam infers from the function."""
    found = pipeline | beam.Create(TUPLES)
    return found | beam.Map(lambda t: beam.Row(who=int(t[0]), region=str(t[1]), paid=float(t[2])))


def two_sources(pipeline: beam.Pipeline) -> beam.PCollection[pa.Table]:
    """Tables of two sources."""
    return (pipeline | "1" >> beam.Create([TABLE[:99]]), pipeline | "2" >> beam.Create([TABLE[99:]])) | beam.Flatten()


Form = tuple[Callable[[beam.Pipeline], Any], Mapping[str, str] | None]

FORMS: Mapping[str, Form] = {
    "named tuples": (orders, None),
    "beam rows": (beam_rows, None),
    "selected rows": (lambda p: orders(p) | beam.Select("who", "region", "paid"), TYPES),
    "dataclasses": (lambda p: unsaid(p, [Plain(*row) for row in TUPLES], Plain), None),
    "a deferred frame": (lambda p: to_pcollection(to_dataframe(orders(p))), None),
    "rows whose types are declared again": (orders, TYPES),
    "dicts": (lambda p: p | beam.Create(DICTS), TYPES),
    "dicts said to be so": (lambda p: unsaid(p, DICTS, dict[str, typing.Any]), TYPES),
    "dicts of unknown type": (lambda p: unsaid(p, DICTS), TYPES),
    "objects": (lambda p: unsaid(p, [Bare(*row) for row in TUPLES], Bare), TYPES),
    "tables": (lambda p: p | beam.Create([TABLE]), None),
    "tables of unknown type": (lambda p: unsaid(p, [TABLE]), TYPES),
    "tables with declared types": (lambda p: p | beam.Create([TABLE]), TYPES),
    "record batches": (lambda p: p | beam.Create(TABLE.to_batches(max_chunksize=100)), None),
    "batches of unknown type": (lambda p: unsaid(p, TABLE.to_batches()), TYPES),
    "pandas frames": (lambda p: p | beam.Create([TABLE.to_pandas()]), TYPES),
    "frames of unknown type": (lambda p: unsaid(p, [TABLE.to_pandas()]), TYPES),
    "batched elements": (lambda p: orders(p) | beam.BatchElements() | beam.Map(_as_table), None),
    "two sources": (two_sources, None),
}


def _as_table(batch: list[Order]) -> pa.Table:
    return pa.Table.from_pylist([row._asdict() for row in batch])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rows_gives_the_same_release(form: str) -> None:
    rows, types = FORMS[form]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        released = rows(pipeline) | PrivateAggregate(stage(), types=types, num_shards=1)
        assert_that(released | beam.FlatMap(numbers), equal_to(EXPECTED))


@pytest.mark.parametrize("form", ["named tuples", "dicts", "tables", "record batches", "pandas frames"])
def test_a_step_of_its_own_reads_the_same_forms(form: str) -> None:
    rows, types = FORMS[form]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = rows(pipeline) | FromRows(types)
        assert_that(tables | beam.Map(lambda table: table.num_rows) | beam.CombineGlobally(sum), equal_to([COUNT]))


def test_short_forms_and_stages_beside_a_release_read_rows() -> None:
    kept = Plan(epsilon=39.0, delta=1e-6, stages={"s": query(kept=Kept(share=0.1))})
    one = {"privacy_unit": "who", "partition_by": "region", "bounds": BOUNDS, "epsilon": 39.0, "delta": 1e-6}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        dicts, rows = pipeline | "Dicts" >> beam.Create(DICTS), orders(pipeline)
        counts = dicts | PrivateCount(**one, types=TYPES)
        sums = rows | PrivateSum(**one, column="paid", min_value=0, max_value=1)
        _ = rows | BoundContributions(stage(), num_shards=1)
        shares = dicts | KeptShares(kept["s"], kept["s.kept"], types=TYPES)
        assert_that(counts | "C" >> beam.Map(lambda t: t.column_names), equal_to([["region", "count", "count_stddev"]]))
        assert_that(sums | "S" >> beam.Map(lambda t: t.num_rows), equal_to([2]), label="sums")
        assert_that(shares | "K" >> beam.Map(type), equal_to([str]), label="shares")


def test_cells_of_frames_that_do_not_fit_are_null_and_cost_no_other_row() -> None:
    frame = pd.DataFrame({"who": [1, "y", None, "x"], "region": ["a", "a", "a", 7], "more": [0, 0, 0, 0]})
    types = {"who": pa.int64(), "region": pa.string()}
    assert ToTables(types, unsaid=False).whole(frame).to_pydict() == {
        "who": [1, None, None, None],
        "region": ["a", "a", "a", "7"],
    }
    whole = pd.DataFrame({"who": [1.0, None], "region": ["a", None]})
    assert ToTables(types, unsaid=False).whole(whole).to_pydict() == {"who": [1, None], "region": ["a", None]}


class Hostile(pd.DataFrame):
    """A frame of somebody's, whose columns raise."""

    @property
    def columns(self) -> Any:  # type: ignore[override]
        raise ValueError("secret")


def test_a_frame_whose_methods_raise_is_a_row_of_nulls() -> None:
    step = ToTables({"who": pa.int64()}, unsaid=False)
    frame = Hostile.__new__(Hostile)
    assert list(step.process(frame)) == []
    (table,) = step.tables([frame])
    assert table.to_pydict() == {"who": [None]}


Wrong = tuple[Callable[[beam.Pipeline], Any], Mapping[str, Any] | None, Mapping[str, Any], str]

REFUSED: Mapping[str, Wrong] = {
    "dicts without types": (
        lambda p: p | beam.Create(DICTS), None, {},
        'input: holds mappings, whose columns have no declared types; write types={"who": ..., "region": ..., "paid": ...}',
    ),
    "frames without types": (lambda p: p | beam.Create([TABLE.to_pandas()]), None, {}, "holds pandas frames, whose columns"),
    "objects without types": (lambda p: unsaid(p, [], Bare), None, {}, "holds Bare objects, whose columns"),
    "tuples": (
        lambda p: p | beam.Create(TUPLES), None, {},
        "elements of type Tuple.*have no column names; name them before, e.g. beam.Map.*beam.Row",
    ),
    "tuples with types": (lambda p: p | beam.Create(TUPLES), TYPES, {}, "have no column names"),
    "texts": (lambda p: p | beam.Create(["a"]), TYPES, {}, "elements of type str"),
    "a column that rows lack": (
        orders, None, {"partition_by": "regoin"}, "column 'regoin': is not in the rows of the input; did you mean 'region'?",
    ),
    "a column that types lack": (
        lambda p: p | beam.Create(DICTS), {**TYPES, "regions": "string"}, {"partition_by": "regio"},
        r"types\['regio'\]: is missing, and the stage reads this column; did you mean 'region'?",
    ),
    "a declared column that rows lack": (orders, {"payed": "double"}, {}, "column 'payed': is not in .* did you mean 'paid'?"),
    "ids of another type": (
        orders, {**TYPES, "who": "date"}, {},
        r"types\['who'\]: declares date32\[day\], and the rows have int64, so that every value would be null",
    ),
    "an unknown type": (orders, {"who": "integr"}, {}, r"types\['who'\]: unknown type 'integr'"),
    "no types": (orders, {}, {}, "types: must map column names to types"),
    "a partition of floats": (orders, None, {"partition_by": "paid"}, "column 'paid': is a float"),
    "a partition of declared floats": (
        lambda p: p | beam.Create(DICTS), TYPES, {"partition_by": "paid"}, "column 'paid': is a float",
    ),
    "a sum of texts": (
        orders, None, {"metrics": {"m": Sum("region", min_value=0, max_value=1)}, "partition_by": "who", "privacy_unit": "paid"},
        "column 'region': has type string, which is no number",
    ),
    "public keys of another type": (
        orders, None, {"partitions": PublicPartitions(keys=[[1], [2]])}, "public, column 'region': lists a value",
    ),
    "selected rows without types": (
        lambda p: orders(p) | beam.Select("who", "region", "paid"), None, {},
        "column 'who': has no type in the rows; write types={\"who\": ...}",
    ),
    "a column of columns": (
        lambda p: unsaid(p, [], row_of(who=int, region=dict[str, int], paid=float)), None, {},
        "column 'region': has the type .* in the rows, which cannot be read here",
    ),
}  # fmt: skip


def row_of(**fields: Any) -> Any:
    """A type of rows."""
    return RowTypeConstraint.from_fields(list(fields.items()))


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_be_read_is_refused_when_the_pipeline_is_built(wrong: str) -> None:
    rows, types, changes, said = REFUSED[wrong]
    with pytest.raises(RequestError, match=said):
        rows(beam.Pipeline(runner=FnApiRunner())) | PrivateAggregate(stage(**changes), types=types)


@pytest.mark.parametrize("types", [None, {"who": "int64"}], ids=["no types", "some types"])
@pytest.mark.parametrize("elements", [DICTS, [TABLE], [TABLE.to_pandas()]], ids=["dicts", "tables", "frames"])
def test_elements_without_hint_and_types_are_refused_when_the_pipeline_is_built(elements: Any, types: Any) -> None:
    rows = unsaid(beam.Pipeline(runner=FnApiRunner()), elements)
    message = "and no types are declared" if types is None else "and types lacks 'region', 'paid'"
    with pytest.raises(RequestError, match=f"input: holds elements without a type hint, {message}; write types="):
        rows | PrivateAggregate(stage(), types=types)
    with pytest.raises(RequestError, match="input: holds elements without a type hint, and no types are declared"):
        rows | FromRows()


class Hashless(type):
    """Its classes have no hash."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return cls is other


STRANGE: Any = Hashless("Strange", (), {"who": 7})
ODD: Mapping[str, Any] = {
    "text": "bad line", "bytes": b"x", "a number": 5, "a tuple": (1, "a", 1.0), "a list": [1], "None": None,
    "a class without a hash": STRANGE(), "a table of other columns": pa.table({"x": [1]}),
    "a table of a type that does not fit": pa.table({"who": [[1]], "region": [1.5], "paid": [1.0]}),
    "a batch of other columns": pa.record_batch({"x": [1]}), "a frame of other columns": pd.DataFrame({"x": [1]}),
    "a table with a column twice": pa.table([[1], [2]], names=["who", "who"]), "a dict of columns": TABLE.to_pydict(),
    "a dict with a column": {**DICTS[0], "region": pa.array(["a"])},
}  # fmt: skip


def _with_odd(_: Any) -> Any:
    """Return rows among odd elements, without one that Beam cannot encode: it encodes some, which it draws by chance."""
    return [*DICTS[:100], *(odd for odd in ODD.values() if not isinstance(odd, STRANGE)), *DICTS[100:]]


def _with_rows(_: Any) -> Any:
    return [odd for odd in ODD.values() if not isinstance(odd, (pa.Table, pa.RecordBatch, STRANGE))]


def test_elements_of_any_class_end_no_run_and_add_nothing() -> None:
    """A step may make one for some rows only, so that whether there is one is private."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | beam.Create([0]) | beam.FlatMap(_with_odd).with_output_types(typing.Any)
        released = rows | PrivateAggregate(stage(), types=TYPES, num_shards=1)
        assert_that(released | beam.FlatMap(numbers), equal_to(EXPECTED))


def test_elements_without_types_among_tables_are_dropped() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = pipeline | beam.Create([TABLE])
        rows = pipeline | "Rows" >> beam.Create([0]) | beam.FlatMap(_with_rows).with_output_types(typing.Any)
        released = (tables, rows) | beam.Flatten() | PrivateAggregate(stage(), num_shards=1)
        assert_that(released | beam.FlatMap(numbers), equal_to(EXPECTED))


@pytest.mark.parametrize("odd", ODD)
def test_an_element_of_any_class_costs_no_other_element_anything(odd: str) -> None:
    made = ToTables({name: pa.string() for name in TYPES}, unsaid=True)
    made.start_bundle()
    tables = [*made.process(DICTS[0]), *made.process(ODD[odd]), *made.process(DICTS[1])]
    rows = pa.concat_tables([*(last.value for last in made.finish_bundle()), *(one.select(TYPES) for one in tables)])
    assert {"0", "1"} <= set(rows["who"].to_pylist())


def test_a_table_without_a_hint_is_read_as_its_rows_are() -> None:
    table = pa.table({"who": [1, 2], "region": [7, 8], "paid": pa.array([1, None], pa.int8()), "more": ["x", "y"]})
    types = {"who": pa.string(), "region": pa.string(), "paid": pa.float64(), "absent": pa.date32()}
    (rows,) = ToTables(types, unsaid=True).tables(table.to_pylist())
    (made,) = ToTables(types, unsaid=True).process(table)
    assert made.select(list(types)).equals(rows)
    with pytest.raises(RequestError, match="column 'who': has type int64 in a table, and types declares string"):
        ToTables(types, unsaid=False).whole(table)
    with pytest.raises(RequestError, match="column 'absent': is not in the frames of the input"):
        ToTables(types, unsaid=False).whole(table.to_pandas())


@pytest.mark.parametrize("element", [*TUPLES[:1], "bad line"])
def test_check_row_refuses_elements_whose_values_have_no_names(element: Any) -> None:
    with pytest.raises(RequestError, match="whose values have no column names"):
        check_row(stage(), TYPES, element)


def test_a_released_step_takes_no_dead_letters_and_can_be_a_key() -> None:
    transform = PrivateAggregate(stage())
    with pytest.raises(RequestError, match="would hand rows on as they are, beside the release"):
        transform.with_exception_handling()
    assert len({transform, FromRows(TYPES), PrivateAggregate(stage())}) == 3


def test_a_pipeline_can_go_after_its_stages_were_noted() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    orders(pipeline) | PrivateAggregate(stage())
    seen = weakref.ref(pipeline)
    del pipeline
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("kind", [typing.Any, dict[str, typing.Any]], ids=str)
def test_a_mistyped_column_of_dicts_is_refused_when_the_pipeline_is_built_with_the_declared_name(kind: Any) -> None:
    mistyped = stage(metrics={"late": Sum("dep_dely", min_value=0, max_value=9)})
    rows = unsaid(beam.Pipeline(), [], kind)
    with pytest.raises(RequestError, match=r"types\['dep_dely'\]: is missing, .*; did you mean 'dep_delay'\?"):
        rows | PrivateAggregate(mistyped, types={"who": "int64", "region": "string", "dep_delay": "double"})


def test_types_of_some_columns_are_enough_where_elements_may_be_tables() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        some = {"region": "string", "elsewhere": "double"}
        tables = pipeline | beam.Create([TABLE]) | beam.Map(lambda table: table).with_output_types(typing.Any)
        found = tables | PrivateAggregate(stage(), types=some, num_shards=1)
        assert_that(found | beam.Map(lambda table: table.num_rows), equal_to([2]))
