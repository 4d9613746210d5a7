"""The number of shards where the program does not say it, and arguments that only a template knows."""

from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.value_provider import RuntimeValueProvider, StaticValueProvider
from apache_beam.runners.portability.portable_runner import PortableRunner

from dp_pipelines import ContributionBounds, Count, Plan, Query
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import sizes
from dp_pipelines.transforms import (
    BoundContributions,
    FromRows,
    JoinByUnit,
    PrivateAggregate,
    PrivateCount,
    PrivateCountPerKey,
    PublishRelease,
    ReadCsv,
    ReadParquet,
    StageRelease,
    ToRows,
)
from dp_pipelines.transforms.examples import BoundedExamples
from dp_pipelines.transforms.model import DpModelHandler
from dp_pipelines.transforms.shard_counts import ELSEWHERE, IN_THIS_PROCESS, shards_of

BOUNDS = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
GIVEN = StaticValueProvider(str, "out")
LATER = RuntimeValueProvider("input", str, None)


def stage() -> Any:
    query = Query(privacy_unit="who", partition_by="region", bounds=BOUNDS, metrics={"n": Count()})
    return Plan(epsilon=1.0, delta=1e-6, stages={"s": query})["s"]


def chosen(pipeline: beam.Pipeline, **arguments: Any) -> set[int]:
    """The number of shards that the graph of a release has."""
    rows = pipeline | beam.Create([{"who": 1, "region": "a"}])
    types = {"who": "int64", "region": "string"}
    bound = rows | PrivateAggregate(stage(), types=types, **arguments)
    waiting, found = [bound], set()
    while waiting:
        applied = waiting.pop().producer
        if applied is None:  # where the pipeline begins
            continue
        step = getattr(getattr(applied.transform, "fn", None), "step", None)
        if type(step).__name__ == "ToShards":
            found.add(step._shards)
        waiting += applied.main_inputs.values()
    return found


def test_a_default_is_small_in_this_process_and_enough_for_100_gb_elsewhere() -> None:
    assert chosen(beam.Pipeline("FnApiRunner")) == {IN_THIS_PROCESS}
    assert chosen(beam.Pipeline(PortableRunner())) == {ELSEWHERE}
    shard = 100 * 10**9 / ELSEWHERE
    assert sizes.COPIES_OF_A_GROUP * shard < 2 * sizes.GIB


def test_an_estimate_of_the_rows_decides_on_every_runner() -> None:
    for runner in ("FnApiRunner", PortableRunner()):
        assert chosen(beam.Pipeline(runner), rows=1000) == {1}
        assert chosen(beam.Pipeline(runner), rows=10**11) == {sizes.MOST_SHARDS}
        assert chosen(beam.Pipeline(runner), num_shards=7) == {7}
    many = shards_of(beam.Pipeline("FnApiRunner"), None, 10**9, 30)
    assert 10**9 * 30 / many <= sizes.GROUP_BYTES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 0}, "rows: must be a whole number"),
        ({"num_shards": 0}, "num_shards: must be a whole number"),
        ({"rows": 10, "num_shards": 3}, "rows: cannot be combined with num_shards"),
    ],
)
@pytest.mark.parametrize("transform", [PrivateAggregate, BoundContributions])
def test_wrong_numbers_are_refused(transform: Any, arguments: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        transform(stage(), **arguments)


ARGUMENTS = {
    "output": lambda value: PublishRelease(value),
    "path": lambda value: StageRelease(value, ()),
    "files": lambda value: ReadParquet(value),
    "files of csv": lambda value: ReadCsv(value, types={"who": pa.int64()}),
    "several files": lambda value: ReadParquet(["a.parquet", value]),
    "num_shards": lambda value: PrivateAggregate(stage(), num_shards=value),
    "types": lambda value: FromRows(types={"who": value}),
    "epsilon": lambda value: PrivateCount(privacy_unit="who", partition_by="region", bounds=BOUNDS, epsilon=value),
    "epsilon per key": lambda value: PrivateCountPerKey(bounds=BOUNDS, epsilon=value),
    "max_rows_per_unit": lambda value: JoinByUnit(
        left={"who": "int64"}, right={"who": "int64"}, unit=("who", "who"), max_rows_per_unit=(value, 1)
    ),
    "times_as_text": lambda value: ToRows(times_as_text=value),
    "folder of examples": lambda value: BoundedExamples(None, folder=value, max_rows_per_unit=1),  # type: ignore[arg-type]
    "folder": lambda value: DpModelHandler(value),
}


@pytest.mark.parametrize("value", [GIVEN, LATER], ids=["static", "of a template"])
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_a_value_that_only_a_template_knows_is_refused_with_the_way_out(argument: str, value: Any) -> None:
    name = argument.split()[0].replace("several", "files")
    with pytest.raises(RequestError, match=rf"^{name}: is a ValueProvider, .*flex template") as error:
        ARGUMENTS[argument](value)
    assert error.value.hint
