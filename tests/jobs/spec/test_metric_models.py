"""Histograms, quantiles, different values and the largest partitions in job files: what they become, and whole runs of them."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pydantic import TypeAdapter

import dp_pipelines as dp
from dp_pipelines import DistinctCount, Histogram, Max, Median, Metric, Min, Quantiles, Top
from dp_pipelines.jobs.request.queries import queries
from dp_pipelines.jobs.spec import job_file, metric_models
from dp_pipelines.metrics import registry
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

RANGE = {"min_value": 0, "max_value": 20}
KINDS: list[tuple[dict[str, Any], Metric]] = [
    ({"kind": "histogram", "column": "price", "edges": [0, 2.5, 20]}, Histogram("price", edges=[0, 2.5, 20])),
    (
        {"kind": "histogram", "column": "product", "categories": ["p0", "p1"]},
        Histogram("product", categories=["p0", "p1"]),
    ),
    ({"kind": "median", "column": "price", **RANGE}, Median("price", **RANGE)),
    ({"kind": "min", "column": "price", **RANGE}, Min("price", **RANGE)),
    ({"kind": "max", "column": "price", "weight": 2, **RANGE}, Max("price", weight=2, **RANGE)),
    (
        {"kind": "quantiles", "column": "price", "quantiles": [0, 0.5], **RANGE},
        Quantiles("price", quantiles=[0, 0.5], **RANGE),
    ),
    ({"kind": "distinct_count", "column": "note"}, DistinctCount("note")),
    (
        {"kind": "distinct_count", "column": "note", "max_values_per_partition": 3, "stddev": 9},
        DistinctCount("note", max_values_per_partition=3, stddev=9),
    ),
]


def named() -> dict[str, Any]:
    """All kinds as metrics of one stage."""
    return {f"m{number}": model for number, (model, _) in enumerate(KINDS)}


def test_each_kind_becomes_its_metric(shop: Shop) -> None:
    path = shop.write(stages={"weekly": stage(metrics=named())})
    found = queries(job_file.load(str(path)))["weekly"].metrics
    assert dict(found) == {f"m{number}": metric for number, (_, metric) in enumerate(KINDS)}


def test_the_largest_partitions_are_part_of_the_query(shop: Shop) -> None:
    path = shop.write(stages={"weekly": stage(top={"k": 2, "by": "orders"})})
    assert queries(job_file.load(str(path)))["weekly"].top == Top(k=2, by="orders")


def test_a_run_publishes_lists_numbers_and_their_error_bars(shop: Shop, call: Call) -> None:
    weekly = stage(metrics={**stage()["metrics"], **named()}, top={"k": 2, "by": "orders"})  # type: ignore[dict-item]
    said = call("run", shop.write(stages={"weekly": weekly}), "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    table = pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet")
    assert table.num_rows == 2
    for name, (_, metric) in ((f"m{number}", kind) for number, kind in enumerate(KINDS)):
        for column in (name, f"{name}_stddev"):
            assert pa.types.is_list(table.schema.field(column).type) == metric.many
            assert table[column].null_count == 0
    assert {len(bins) for bins in table["m0"].to_pylist()} == {2}
    assert all(0 <= value <= 20 for row in table["m5"].to_pylist() for value in row)
    assert (shop.folder / "out" / "report.html").stat().st_size > 1000


def test_more_partitions_than_pass_is_all_that_pass(shop: Shop, call: Call) -> None:
    weekly = stage(top={"k": 1000, "by": "revenue"})
    assert call("run", shop.write(stages={"weekly": weekly}), "--output", shop.folder / "out").code == 0
    assert pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet").num_rows == 5


def test_a_plan_tells_the_noise_of_a_bin_and_none_for_a_quantile(shop: Shop, call: Call) -> None:
    said = call("plan", shop.write(stages={"weekly": stage(metrics=named())}), "--json")
    assert said.code == 0
    metrics = json.loads(said.out)["stages"][0]["metrics"]
    assert [metrics[f"m{number}"]["stddev"] is None for number in range(len(KINDS))] == [
        not metric.stddev_is_public for _, metric in KINDS
    ]
    assert metrics["m7"]["stddev"] == pytest.approx(9, rel=1e-3)
    guessed = shop.write(
        stages={"weekly": stage(metrics=named(), top={"k": 2, "by": "m2"})},
        expect={"users": 100, "rows_per_partition": 200},
    )
    said = call("plan", guessed)
    assert (said.code, said.err) == (0, "")
    assert all(name in said.out for name in named())


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ({"kind": "histogram", "column": "note", "edges": [0, 1]}, "has type string, which is no number"),
        ({"kind": "histogram", "column": "store", "categories": ["x"]}, "has categories: lists a value that is not"),
        ({"kind": "histogram", "column": "price", "categories": [1]}, "which has no categories"),
        ({"kind": "quantiles", "column": "note", "quantiles": [0.5], **RANGE}, "which is no number"),
        ({"kind": "distinct_count", "column": "price"}, "of which different values cannot be counted"),
        ({"kind": "median", "column": "nowhere", **RANGE}, "nowhere"),
    ],
    ids=str,
)
def test_a_column_that_does_not_fit_is_refused_with_its_line_before_a_row_is_read(
    shop: Shop, call: Call, metric: dict[str, Any], words: str
) -> None:
    path = shop.write(stages={"weekly": stage(metrics={"wrong": metric})})
    line = next(i for i, text in enumerate(path.read_text().splitlines(), start=1) if "column:" in text)
    said = call("run", path, "--output", shop.folder / "out")
    assert said.code == 2
    assert words in said.err
    assert f"{pathlib.Path(path).name}:{line}:" in said.err
    assert shop.left() == []


def test_different_values_do_not_stand_beside_a_bound_on_rows_in_all(shop: Shop, call: Call) -> None:
    weekly = stage(metrics={"n": {"kind": "distinct_count", "column": "note"}}, bounds={"max_contributions": 3})
    said = call("run", shop.write(stages={"weekly": weekly}), "--output", shop.folder / "out")
    assert said.code == 2
    assert "metrics.n: counts different values per partition, which max_contributions does not bound" in said.err


def test_editors_are_told_of_every_kind(call: Call) -> None:
    shown = call("schema").out
    for kind in ("histogram", "median", "min", "max", "quantiles", "distinct_count"):
        assert f'"{kind}"' in shown


ALL = [
    dp.Count(weight=2),
    dp.Count(stddev=4.0),
    dp.PrivacyIdCount(),
    dp.Sum("x", min_value=0, max_value=2),
    dp.Sum("x", min_value=0, max_value="auto", within=[0, 100]),
    dp.Sum("x", min_sum_per_partition=0, max_sum_per_partition=9),
    dp.Mean("x", min_value=-1, max_value=1, nullable=False),
    dp.Variance("x", min_value=-1, max_value=1),
    dp.Histogram("x", edges=[0, 1, 5]),
    dp.Histogram("x", categories=["a", "b"]),
    dp.Median("x", min_value=0, max_value=9),
    dp.Min("x", min_value=0, max_value=9),
    dp.Max("x", min_value=0, max_value=9),
    dp.DistinctCount("x", max_values_per_partition=3),
    dp.Quantile("x", quantile=0.5, candidates=[1.0, 2.0]),
    dp.Quantiles("x", quantiles=[0.1, 0.9], min_value=0, max_value=9),
    dp.VectorSum("x", size=3, max_norm=2.0),
    dp.SecondMoment(columns=["x", "y"], max_norm=2.0),
]


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: type(metric).__name__)
def test_a_metric_of_the_library_and_what_a_job_file_says_of_it_are_the_same(metric):
    said = json.loads(json.dumps(metric_models.described("m", metric)))
    assert TypeAdapter(metric_models.AnyMetric).validate_python(said).build() == metric


def test_every_kind_of_metric_is_described():
    assert {kind: model.library for kind, model in metric_models.MODELS.items()} == registry.metrics()


def test_a_metric_of_ones_own_is_no_job_file():
    class Own(dp.Count):
        pass

    with pytest.raises(dp.RequestError, match="metrics.m: is a Own, which job files do not know"):
        metric_models.described("m", Own())
