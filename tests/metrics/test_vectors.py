"""The metrics `VectorSum` and `SecondMoment`: what they refuse, publish without noise and cost; jobs that ask for them."""

import math
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines import (
    BudgetError,
    ContributionBounds,
    Count,
    Plan,
    PrivatePartitions,
    PublicPartitions,
    Query,
    SecondMoment,
    VectorSum,
)
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request import request
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.metrics.base import Basis, Noisy
from dp_pipelines.release import draw
from dp_pipelines.release.draw import draw_release
from dp_pipelines.transforms import PrivateAggregate
from tests.helpers import graph, neighbours, quiet
from tests.helpers.pipelines import publish

BASIS = Basis(centred=False, nullable=True)
SUM: dict[str, Any] = {"size": 3, "max_norm": 1.0}
MOMENTS: dict[str, Any] = {"columns": ["a", "b"], "max_norm": 1.0}
RANGES: dict[str, Any] = {"columns": ["a", "b"], "bounds": {"a": [-1, 3], "b": [0.0, 2.0]}}


# What is refused.


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"size": 0}, "size", "from 1 to 4096"),
        ({"size": 4097}, "size", "from 1 to 4096"),
        ({"size": 2.0}, "size", "whole number"),
        ({"size": True}, "size", "whole number"),
        ({"norm": "l3"}, "norm", "one of l1, l2, linf"),
        ({"norm": None}, "norm", "one of l1, l2, linf"),
        ({"max_norm": 0.0}, "max_norm", "finite number above"),
        ({"max_norm": -1.0}, "max_norm", "finite number above"),
        ({"max_norm": math.nan}, "max_norm", "finite number above"),
        ({"max_norm": math.inf}, "max_norm", "finite number above"),
        ({"max_norm": 1e300}, "max_norm", "below"),
        ({"max_norm": 1e-300}, "max_norm", "above"),
        ({"max_norm": "1"}, "max_norm", "must be a number"),
        ({"stddev": 2.0}, "stddev", "is not for VectorSum"),
    ],
)
def test_a_sum_of_vectors_that_cannot_be_is_refused(changes: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        VectorSum("v", **{**SUM, **changes})
    assert error.value.field == field


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"columns": []}, "columns", "at least one"),
        ({"columns": ["a", "a"]}, "columns", "twice"),
        ({"columns": [f"c{i}" for i in range(65)]}, "columns", "at most 64"),
        ({"max_norm": None}, "bounds", "or max_norm must be given"),
        ({"bounds": {"a": (0, 1), "b": (0, 1)}}, "bounds", "one of the two"),
        ({"max_norm": math.nan}, "max_norm", "finite"),
        ({"max_norm": 1e151}, "max_norm", "below"),
        ({"max_norm": None, "bounds": {"a": (0, 1)}}, "bounds", "must map each of the columns"),
        ({"max_norm": None, "bounds": {"a": (0, 1), "b": (0, 1), "c": (0, 1)}}, "bounds", "and no other"),
        ({"max_norm": None, "bounds": [0, 1]}, "bounds", "must map"),
        ({"max_norm": None, "bounds": {"a": (0, 1), "b": (1, 0)}}, "bounds.b", "above the greatest"),
        ({"max_norm": None, "bounds": {"a": (0, 1), "b": (0, 0)}}, "bounds.b", "only the value 0"),
        ({"max_norm": None, "bounds": {"a": (0, 1), "b": 1}}, "bounds.b", "two numbers"),
        ({"max_norm": None, "bounds": {"a": (0, math.inf), "b": (0, 1)}}, "bounds.a", "finite"),
        ({"stddev": 2.0}, "stddev", "is not for SecondMoment"),
    ],
)
def test_second_moments_that_cannot_be_are_refused(changes: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        SecondMoment(**{**MOMENTS, **changes})
    assert error.value.field == field


def query(metrics: dict[str, Any], **changes: Any) -> Query:
    """A query over public partitions, so that without noise the release is known."""
    declared: dict[str, Any] = {
        "bounds": ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=1000),
        "partitions": PublicPartitions(keys=[("x",), ("y",), ("none",)]),
        **changes,
    }
    return Query(privacy_unit="unit", partition_by="key", metrics=metrics, **declared)


def test_a_sum_of_vectors_needs_no_bound_of_rows_but_no_bound_of_rows_in_all() -> None:
    asked = query({"v": VectorSum("v", **SUM)}, bounds=ContributionBounds(max_partitions_contributed=1))
    assert asked.value_columns == ("v",)
    with pytest.raises(RequestError, match="clips sums per partition, which max_contributions does not bound"):
        query({"v": VectorSum("v", **SUM)}, bounds=ContributionBounds(max_contributions=3))
    with pytest.raises(RequestError, match=r"is needed by metrics\.m, which looks at rows"):
        query({"m": SecondMoment(**MOMENTS)}, bounds=ContributionBounds(max_partitions_contributed=1))
    assert query({"m": SecondMoment(**MOMENTS)}, bounds=ContributionBounds(max_contributions=3)).value_columns == (
        "a",
        "b",
    )


# Without noise.


def rows_of(number: int = 4000, users: int = 150) -> pa.Table:
    """Rows with vectors of norms around 1, and features within and beyond their ranges."""
    made = np.random.default_rng(3)
    lists = made.standard_normal((number, 3)) / 8
    return pa.table({
        "unit": made.integers(0, users, number),
        "key": made.choice(["x", "y"], number),
        "v": pa.FixedSizeListArray.from_arrays(pa.array(lists.ravel()), 3),
        "a": made.normal(0, 2, number),
        "b": made.normal(1, 1, number),
    })  # fmt: skip


def without_noise(asked: Query, table: pa.Table) -> pa.Table:
    """The release of a query, with zeros for noise."""
    stage = Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})["s"]
    (totals,) = neighbours.totals(table, stage.layout, stage.statistics)
    return draw_release(totals, stage, samplers=quiet.NoNoise, words=quiet.all_ones)


def tolerance(asked: Query, table: pa.Table) -> float:
    """Of one release step, and of a lattice step for each row."""
    stage = Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})["s"]
    (noise,) = [n for s, n in zip(stage.statistics, stage.noises, strict=True) if n is not None and s.width]
    return noise.unit + table.num_rows * 2.0**-23


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_without_noise_a_sum_of_vectors_is_that_of_numpy(norm: Any) -> None:
    table, asked = rows_of(), query({"v": VectorSum("v", size=3, norm=norm, max_norm=1.0)})
    found = dict(zip(*(without_noise(asked, table).column(name).to_pylist() for name in ("key", "v")), strict=True))
    lists = np.array(table.column("v").to_pylist())
    units, keys = table.column("unit").to_numpy(), np.array(table.column("key").to_pylist())
    scaled = 0
    for key in ("x", "y"):
        total = np.zeros(3)
        for unit in np.unique(units[keys == key]):
            own = lists[(units == unit) & (keys == key)].sum(axis=0)
            size = np.linalg.norm(own, {"l1": 1, "l2": 2, "linf": np.inf}[norm])
            scaled += size > 1
            total += np.clip(own, -1, 1) if norm == "linf" else own / max(1.0, size)
        assert found[key] == pytest.approx(total.tolist(), abs=tolerance(asked, table))
    assert 20 < scaled < 280
    assert found["none"] == pytest.approx([0.0] * 3, abs=tolerance(asked, table))


@pytest.mark.parametrize("declared", [MOMENTS | {"max_norm": 2.0}, RANGES], ids=["norm", "ranges"])
def test_without_noise_second_moments_are_those_of_numpy(declared: dict[str, Any]) -> None:
    table, asked = rows_of(), query({"m": SecondMoment(**declared)})
    released = without_noise(asked, table)
    found = dict(zip(*(released.column(name).to_pylist() for name in ("key", "m")), strict=True))
    values = np.stack([table.column(name).to_numpy() for name in "ab"], axis=1)
    if "bounds" in declared:
        values = np.clip(values, [-1, 0], [3, 2])
    else:
        values = values * np.minimum(1, 2 / np.linalg.norm(values, axis=1))[:, None]
    keys = np.array(table.column("key").to_pylist())
    for key in ("x", "y"):
        mine = values[keys == key]
        matrix = mine.T @ mine
        stddev = released.column("m_stddev").to_pylist()[0]
        assert found[key] == pytest.approx([matrix[0, 0], matrix[0, 1], matrix[1, 1]], abs=0.01 * max(stddev) + 1)


def test_noise_is_drawn_for_partitions_that_are_kept_alone_and_a_portion_at_a_time(monkeypatch: Any) -> None:
    table = pa.concat_tables([rows_of(), rows_of(3).set_column(1, "key", pa.array(["few"] * 3))])
    asked = query({"v": VectorSum("v", **SUM)}, partitions=PrivatePartitions(strategy="laplace"))
    stage = Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})["s"]
    (totals,) = neighbours.totals(table, stage.layout, stage.statistics)
    drawn: list[int] = []

    class Counting(quiet.NoNoise):
        def draw(self, n: int) -> Any:
            drawn.append(n)
            return super().draw(n)

    whole = draw_release(totals, stage, samplers=Counting, words=quiet.all_ones)
    assert whole.column("key").to_pylist() == ["x", "y"]
    assert drawn == [3, 2 * 3]  # of all partitions a count that selects, of two the vectors
    monkeypatch.setattr(draw, "LARGEST_PORTION", 4)
    assert draw_release(totals, stage, samplers=Counting, words=quiet.all_ones).equals(whole)
    assert drawn[2:] == [3, 3, 3]


def test_the_noise_of_an_entry_follows_its_two_ranges() -> None:
    metric = SecondMoment(columns=["a", "b"], bounds={"b": (-10, 4), "a": (0, 1)})
    noisy = {metric.statistics(BASIS)[0]: Noisy(values=np.zeros((2, 3)), stddev=32767.0**2)}
    assert metric.finish(noisy, BASIS)[1].tolist() == [pytest.approx([1.0, 10.0, 100.0])] * 2


# What it costs.


def stddev_of(metric: VectorSum | SecondMoment, epsilon: float = 1.0) -> list[float]:
    plan = Plan(epsilon=epsilon, delta=1e-6, stages={"s": query({"v": metric})})
    (totals,) = neighbours.totals(rows_of(10), plan["s"].layout, plan["s"].statistics)
    stddevs: list[float] = draw_release(totals, plan["s"]).column("v_stddev").to_pylist()[0]
    return stddevs


def test_under_an_l2_norm_a_coordinate_costs_the_same_however_many_there_are() -> None:
    few = Plan(epsilon=1.0, delta=1e-6, stages={"s": query({"v": VectorSum("v", size=16, max_norm=1.0)})})
    many = Plan(epsilon=1.0, delta=1e-6, stages={"s": query({"v": VectorSum("v", size=1024, max_norm=1.0)})})
    stddevs = [p.to_json()["stages"][0]["metrics"]["v"]["stddev"] for p in (few, many)]
    assert stddevs[0] <= stddevs[1] <= 1.05 * stddevs[0]
    assert many["s"].choices.noises[many["s"].statistics[0].name].law == "gaussian"
    assert many.accounted["epsilon"] <= 1.0


def test_a_norm_for_the_row_costs_less_than_ranges_for_many_columns() -> None:
    columns = ["a", "b"]
    norm = stddev_of(SecondMoment(columns=columns, max_norm=1.0))
    ranges = stddev_of(SecondMoment(columns=columns, bounds=dict.fromkeys(columns, (-1, 1))))
    assert norm[0] < 0.7 * ranges[0]
    assert norm == [norm[0]] * 3


def test_noise_that_would_drown_a_long_vector_is_refused_with_what_to_do() -> None:
    with pytest.raises(BudgetError, match="long vectors, or .*, with noise .* fewer coordinates"):
        Plan(epsilon=0.001, delta=1e-6, stages={"s": query({"v": VectorSum("v", size=4096, max_norm=1.0)})})


def test_a_stored_plan_with_vectors_is_the_same_plan() -> None:
    asked = query({"v": VectorSum("v", **SUM), "m": SecondMoment(**RANGES), "n": Count()})
    plan = Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})
    shown = plan.to_json()["stages"][0]["metrics"]
    assert shown["v"]["stddev"] > 0
    assert shown["m"]["stddev"] is None
    assert plan["s"].query == asked
    assert hash(asked.metrics["m"]) == hash(SecondMoment(**RANGES))


# Pipelines and jobs.


def test_vectors_take_no_shuffle_of_their_own_and_are_never_pickled() -> None:
    asked = query({"v": VectorSum("v", **SUM), "m": SecondMoment(**MOMENTS), "n": Count()})
    pipeline = beam.Pipeline(runner=FnApiRunner())
    tables = pipeline | beam.Create([rows_of(10)], reshuffle=False).with_output_types(pa.Table)
    tables | PrivateAggregate(Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})["s"])
    names = ["PrivateAggregate/Barrier", "PrivateAggregate/ByPlace", "PrivateAggregate/ByShard"]
    assert graph.shuffles(pipeline) == names
    assert graph.pickled_collections(pipeline) == []


def test_a_pipeline_publishes_lists_whatever_the_batches_and_shards(tmp_path: Path, monkeypatch: Any) -> None:
    quiet.silence(monkeypatch)
    table = rows_of()
    asked = query({"v": VectorSum("v", **SUM), "m": SecondMoment(**RANGES)})
    released = []
    for place, (tables, shards) in enumerate((([table], 1), ([table.slice(1000), table.slice(0, 1000)], 5))):
        stage = Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})["s"]
        released.append(publish(stage, tables, tmp_path / str(place), shards=shards))
    assert released[0].equals(released[1])
    assert released[0].schema.field("v").type == pa.list_(pa.float64())
    assert [len(row) for row in released[0].column("m").to_pylist()] == [3, 3, 3]


@pytest.fixture
def job(tmp_path: Path) -> Any:
    """Write a job over a file of rows; its checked request."""
    pa.parquet.write_table(rows_of(100), tmp_path / "rows.parquet")

    def write(metrics: dict[str, Any]) -> Any:
        stage = {
            "kind": "aggregate",
            "partition_by": "key",
            "bounds": {"max_partitions_contributed": 2, "max_contributions_per_partition": 2},
            "metrics": metrics,
        }
        written = {
            "dataset": "d",
            "privacy_unit": "unit",
            "budget": {"epsilon": 1.0, "delta": 1e-6},
            "source": {"parquet": "rows.parquet"},
            "stages": {"s": stage},
        }
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(written))
        return request.check(job_file.load(str(tmp_path / "job.yaml")), [])

    return write


def test_a_job_asks_for_vectors_and_moments(job: Any) -> None:
    asked = job({
        "v": {"kind": "vector_sum", "column": "v", "size": 3, "max_norm": 2.0, "norm": "l1"},
        "m": {"kind": "second_moments", "columns": ["a", "b"], "bounds": {"a": [-1.0, 3.0], "b": [0.0, 2.0]}},
        "n": {"kind": "second_moments", "columns": ["a", "b"], "max_norm": 1.0},
    })  # fmt: skip
    metrics = asked.queries["s"].metrics
    assert metrics["v"] == VectorSum("v", size=3, max_norm=2.0, norm="l1")
    assert metrics["m"] == SecondMoment(**RANGES)
    assert metrics["n"] == SecondMoment(**MOMENTS)
    assert set(asked.columns) == {"unit", "key", "v", "a", "b"}


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (
            {"kind": "vector_sum", "column": "v", "size": 4, "max_norm": 1.0},
            r"metrics\.m\.column: column 'v' holds lists of 3 numbers, not of 4; declare size: 3",
        ),
        (
            {"kind": "vector_sum", "column": "a", "size": 3, "max_norm": 1.0},
            r"metrics\.m\.column: column 'a' has type double, which is no list of numbers",
        ),
        ({"kind": "vector_sum", "column": "v", "size": 9999, "max_norm": 1.0}, r"metrics\.m\.size: .*from 1 to 4096"),
        (
            {"kind": "second_moments", "columns": ["a", "key"], "max_norm": 1.0},
            r"metrics\.m\.columns: column 'key' has type string, which is no number",
        ),
        (
            {"kind": "second_moments", "columns": ["a", "c"], "max_norm": 1.0},
            r"metrics\.m\.columns: names column 'c', which does not exist",
        ),
        (
            {"kind": "second_moments", "columns": ["a"], "bounds": {"a": [2.0, 1.0]}},
            r"metrics\.m\.bounds\.a: must not have its least value above the greatest",
        ),
    ],
)
def test_a_job_that_does_not_fit_its_files_is_refused_by_public_facts(job: Any, metric: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        job({"m": metric})
