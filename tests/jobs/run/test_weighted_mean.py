"""A weighted mean is the quotient of two clamped sums: right numbers, right sensitivities, right intervals, on all ways in.

In: jobs, statements and queries over rows with odd values and weights. Out: tables, records, messages. Holds: exact numbers are
those of plain Python; coverage is that of 2,000 releases drawn with a seed and of 5,000 groups of a real run, each with a twin.
Not covered: quotients in general (tests/report/derived).
"""

import fractions
import json
import math
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.metrics import weighted_mean
from dp_pipelines.metrics.base import Basis
from dp_pipelines.planning import describe
from dp_pipelines.report.derived import formula, intervals
from dp_pipelines.report.derived.part_noise import PartNoise
from tests.helpers import quiet
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]

LOW, HIGH, MOST = -2.0, 10.0, 3.0
MEAN = {"kind": "mean", "column": "v", "min_value": LOW, "max_value": HIGH, "weight_column": "w", "max_weight": MOST}
ODD = [0.0, -0.0, 1.0, 2.5, -1.0, 9.0, 30.0, -30.0, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, None]
"""Values and weights: usual ones, some beyond their clamps, and some that are no numbers."""


def rows_of(values: Sequence[float | None], weights: Sequence[float | None]) -> pa.Table:
    """One row of each person."""
    columns = {"v": pa.array(values, pa.float64()), "w": pa.array(weights, pa.float64())}
    return pa.table({"customer": np.arange(len(values)), **columns})


def every_pair() -> tuple[list[float | None], list[float | None]]:
    """Each odd value with each odd weight."""
    pairs = [(value, weight) for value in ODD for weight in ODD]
    return [value for value, _ in pairs], [weight for _, weight in pairs]


def in_plain_python(values: Sequence[float | None], weights: Sequence[float | None]) -> tuple[float, float]:
    """The sum of weights, and that of weight times distance from the middle, of rows that have both."""
    of_weights, of_distances = 0.0, 0.0
    for value, weight in zip(values, weights, strict=True):
        if value is None or weight is None or math.isnan(value) or math.isnan(weight):
            continue
        clamped = min(max(weight, 0.0), MOST)
        of_weights += clamped
        of_distances += clamped * (min(max(value, LOW), HIGH) - (LOW + HIGH) / 2)
    return of_weights, of_distances


def job(shop: Shop, rows: pa.Table, mean: dict[str, Any] | None = None, **changes: Any) -> pathlib.Path:
    """A job of one total over rows."""
    pa.parquet.write_table(rows, shop.folder / "rows.parquet")
    stage = {
        "kind": "aggregate", "partition_by": [], "bounds": {"max_contributions_per_partition": 1},
        "metrics": {"mean": MEAN if mean is None else mean}, **changes,
    }  # fmt: skip
    return shop.write(source={"parquet": "rows.parquet"}, stages={"weekly": stage})


def published(shop: Shop, call: Call, name: str = "out") -> dict[str, float]:
    """What a run of the job publishes."""
    said = call("run", shop.job, "--output", shop.folder / name, "--ledger", "none")
    assert said.code == 0, said.err
    (row,) = pa.parquet.read_table(shop.folder / name / "weekly.parquet").to_pylist()
    return dict(row)


def test_sums_and_mean_are_those_of_plain_python_whatever_values_and_weights_are(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet.silence(monkeypatch)
    values, weights = every_pair()
    job(shop, rows_of(values, weights))
    found, (of_weights, of_distances) = published(shop, call), in_plain_python(values, weights)
    step = 2.0**-15  # a lattice has about 2**18 steps; there are 225 rows
    assert found["mean_weights"] == pytest.approx(of_weights, abs=225 * MOST * step)
    assert found["mean_weighted"] == pytest.approx(of_distances, abs=225 * MOST * HIGH * step)
    assert found["mean"] == pytest.approx((LOW + HIGH) / 2 + found["mean_weighted"] / found["mean_weights"])


def test_whatever_one_person_has_moves_the_sums_by_no_more_than_the_records_say(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(shop, rows_of([1.0], [1.0]))
    said = call("plan", shop.job, "--json")
    plan, reach = json.loads(said.out), {}
    for name, metric in plan["stages"][0]["metrics"].items():
        (statistic,) = metric["statistics"]
        record = next(one for one in plan["mechanisms"] if one["name"] == statistic)
        assert record["kind"] == "laplace"  # its deviation is the root of two times its scale
        reach[name] = record["l1"] / float(fractions.Fraction(record["scale"])) * metric["stddev"] / math.sqrt(2)
    assert reach == pytest.approx({"mean_weights": MOST, "mean_weighted": MOST * (HIGH - LOW) / 2}, rel=0.02)
    quiet.silence(monkeypatch)
    usual = [1.0, 3.0, -1.0], [1.0, 2.0, 0.5]
    job(shop, rows_of(*usual))
    without = published(shop, call, "without")
    moved = dict.fromkeys(reach, 0.0)
    for number, (value, weight) in enumerate(
        [(HIGH, MOST), (LOW, MOST), (1e308, 1e308), (-math.inf, math.inf), (5.0, -9.0)]
    ):
        job(shop, rows_of([*usual[0], value], [*usual[1], weight]))
        found = published(shop, call, f"with{number}")
        for name in reach:
            moved[name] = max(moved[name], abs(found[name] - without[name]))
    assert moved == pytest.approx(reach)  # it is reached, and not passed


def test_the_two_sums_go_through_plan_audit_and_manifest_as_any_sums(
    shop: Shop, call: Call, rare_false_alarms: None
) -> None:
    job(shop, rows_of([1.0, 2.0], [1.0, 1.0]), MEAN | {"label": "Mean of v", "measure": "h"})
    assert "mean_weighted" in call("plan", shop.job).out
    said = call("audit", shop.job)
    assert said.code == 0, said.err
    published(shop, call)
    content = json.loads((shop.folder / "out" / "manifest.json").read_text())
    assert {*content["stages"][0]["metrics"]} == {"mean_weights", "mean_weighted"}
    assert content["stages"][0]["derived"]["mean"]["formula"] == "4.0 + mean_weighted / mean_weights"
    page = (shop.folder / "out" / "report.html").read_text(encoding="utf-8")
    for words in ("Mean of v", "Mean of v: weights", "Mean of v: weight times distance from 4"):
        assert words in page


def test_a_mean_of_weights_of_its_own_is_the_job_that_one_would_write_by_hand(shop: Shop) -> None:
    written = check(job_file.load(str(job(shop, rows_of([1.0], [1.0])))), ())
    value, weight = '"v"', '"w"'
    mean = dp.Mean("v", min_value=LOW, max_value=HIGH, weight_column="w", max_weight=MOST)
    parts = {
        "weights": weighted_mean.weights(mean, value, weight),
        "weighted": weighted_mean.weighted(mean, value, weight),
    }
    metrics: dict[str, Any] = {
        f"mean_{name}": {
            "kind": "sum", "column": part.column, "min_value": part.low, "max_value": part.high, "weight": 0.5,
        }
        for name, part in parts.items()
    }  # fmt: skip
    columns = {part.column: part.expression for part in parts.values()}
    job(shop, rows_of([1.0], [1.0]), metrics=metrics)
    said = yaml.safe_load(shop.job.read_text())
    by_hand = check(job_file.load(str(shop.write(**{k: said[k] for k in ("source", "stages")}, columns=columns))), ())
    assert (written.content, written.queries) == (by_hand.content, by_hand.queries)


def test_columns_that_the_job_defines_may_be_values_and_weights(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet.silence(monkeypatch)
    job(shop, rows_of([1.0, 5.0] * 200, [1.0, 1.0] * 200), MEAN | {"column": "twice", "weight_column": "half"})
    said = yaml.safe_load(shop.job.read_text())
    shop.write(**said | {"columns": {"twice": "2 * v -- of v", "half": "w / 2"}})
    assert published(shop, call)["mean"] == pytest.approx((2 + 10) / 2, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weight_column": "x"}, "metrics.mean: names column 'x', which the source does not have"),
        ({"max_weight": 0}, "mean.max_weight: must be a finite number above 0"),
        ({"max_weight": None}, "mean.max_weight: is missing"),
        ({"weight_column": None}, "mean.max_weight: needs weight_column"),
        ({"max_value": "auto", "within": [-9, 9]}, "mean.max_value: must be a number beside weight_column"),
        ({"min_value": {"lookup": "low", "default": 0}}, "mean.min_value: must be a number beside weight_column"),
        ({"shrink": True}, "mean.shrink: is not for weighted means"),
        ({"nullable": False}, "mean.nullable: is not for weighted means"),
        ({"max_weight": 1e99, "max_value": 1e299}, "span a range that is empty, or whose size"),
        ({"column": "note"}, "metrics.mean: "),
    ],
)
def test_what_a_weighted_mean_cannot_have_is_refused_with_its_line(
    shop: Shop, call: Call, changes: dict[str, Any], words: str
) -> None:
    rows = rows_of([1.0], [1.0]).append_column("note", pa.array(["a"]))
    said = call(
        "plan", job(shop, rows, {k: v for k, v in (MEAN | changes).items() if v is not None or k == "max_weight"})
    )
    assert said.code == 2
    assert "job.yaml:" in said.err
    assert said.err.count(words) == 1


@pytest.mark.parametrize("name", ["mean_weights", "mean_weighted"])
def test_a_name_that_its_sums_need_is_refused_where_it_is_taken(shop: Shop, call: Call, name: str) -> None:
    said = call("plan", job(shop, rows_of([1.0], [1.0]), metrics={"mean": MEAN, name: {"kind": "count"}}))
    assert (said.code, f"metrics.mean: publishes the sum '{name}'" in said.err) == (2, True)


def test_a_statement_and_a_session_ask_for_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    quiet.silence(monkeypatch)
    monkeypatch.chdir(tmp_path)
    values, weights = every_pair()
    session = dp.Session(rows_of(values, weights), privacy_unit="customer", dataset="survey", epsilon=9, delta=1e-5)
    mean = dp.Mean("v", min_value=LOW, max_value=HIGH, weight_column="w", max_weight=MOST)
    bounds = dp.ContributionBounds(max_contributions_per_partition=1)
    asked = session.query(name="a", epsilon=1, partition_by=[], bounds=bounds, metrics={"mean": mean}, show=False)
    stated = session.sql(
        "SELECT avg(v) AS mean FROM source", name="b", epsilon=1, bounds=bounds, clips={"v": [LOW, HIGH]},
        settings={"mean": {"weight_column": "w", "max_weight": MOST}}, show=False,
    )  # fmt: skip
    expected = in_plain_python(values, weights)
    for release in (asked, stated):
        (row,) = release.to_arrow().to_pylist()
        assert row["mean"] == pytest.approx(4 + expected[1] / expected[0], abs=0.01)
        assert row["mean_noise_low"] < row["mean"] < row["mean_noise_high"]


def test_a_pipeline_without_a_published_table_refuses_it_before_a_row_is_read() -> None:
    mean = dp.Mean("v", min_value=LOW, max_value=HIGH, weight_column="w", max_weight=MOST)
    with pytest.raises(RequestError, match="makes a weighted mean, which is computed from a released table"):
        mean.statistics(Basis(centred=False, nullable=True))


RELEASES, BAND = 2_000, (0.93, 0.97)


def covered(law: str, read: str, *, louder: float = 1.0) -> float:
    """The share of 2,000 releases whose interval holds the true weighted mean 7 of weights that add up to 900.

    Args:
        law: of the noise.
        read: the formula.
        louder: how much more noise there is than is said.
    """
    random = np.random.default_rng(43)
    unit = random.normal(size=(2, RELEASES)) if law == "gaussian" else random.laplace(size=(2, RELEASES)) / math.sqrt(2)
    stddevs = {"mean_weighted": np.full(RELEASES, 180.0), "mean_weights": np.full(RELEASES, 30.0)}
    truth = {"mean_weighted": 3.0 * 900, "mean_weights": 900.0}
    values = {name: truth[name] + louder * unit[n] * stddevs[name] for n, name in enumerate(stddevs)}
    made = formula.read(read)
    noise = PartNoise(laws=(law, law), shares=np.eye(2))
    _, (low, high) = intervals.interval_of(
        made, {n: values[n] for n in made.names}, {n: stddevs[n] for n in made.names}, noise
    )
    assert np.isfinite(low).mean() > 0.99
    return float(np.mean((low <= 7.0) & (high >= 7.0)))


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_its_interval_holds_the_truth_in_95_of_100_releases_and_twins_are_found(law: str) -> None:
    mean = dp.Mean("v", min_value=LOW, max_value=HIGH, weight_column="w", max_weight=MOST)
    read = weighted_mean.formula(mean, "mean_weighted", "mean_weights")
    assert BAND[0] <= covered(law, read) <= BAND[1]
    assert covered(law, read, louder=1.5) < BAND[0]
    assert covered(law, "mean_weighted / mean_weights") < BAND[0]  # without the middle


GROUPS, SIZE = 5_000, 40


def test_intervals_of_weighted_means_of_a_real_release_hold_the_truth_in_95_of_100_groups(
    shop: Shop, call: Call
) -> None:
    """The share of 5,000 independent groups is between 93 and 97%: a false alarm once in 10**10 runs."""
    made = np.random.default_rng(43)
    group, weight = np.repeat(np.arange(GROUPS), SIZE), made.choice([0.5, 1.0, 3.0], GROUPS * SIZE)
    value = made.integers(2, 11, GROUPS * SIZE) - 4.0 * (weight == 3.0)
    rows = pa.table({"customer": np.arange(GROUPS * SIZE), "group": group, "v": value, "w": weight})
    pa.parquet.write_table(pa.table({"group": np.arange(GROUPS)}), shop.folder / "groups.parquet")
    bounds = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
    job(shop, rows, partition_by=["group"], partitions={"public_file": "groups.parquet"}, bounds=bounds)
    assert call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none").code == 0
    found = pa.parquet.read_table(shop.folder / "out" / "weekly.parquet").sort_by("group")
    sums = [(weight * of).reshape(GROUPS, SIZE).sum(axis=1) for of in (value, np.ones_like(value))]
    low, high = (np.asarray(found.column(f"mean_noise_{end}"), np.float64) for end in ("low", "high"))
    truth, known = sums[0] / sums[1], np.isfinite(low)
    assert known.mean() > 0.9
    assert BAND[0] <= float(np.mean(((low <= truth) & (truth <= high))[known])) <= BAND[1]
    plain = value.reshape(GROUPS, SIZE).mean(axis=1)
    assert float(np.mean(((low <= plain) & (plain <= high))[known])) < BAND[0]


def test_a_mean_without_weights_has_the_digest_that_it_had_before_there_were_weights() -> None:
    said = describe._metric_to_json(dp.Mean("v", min_value=0, max_value=1))
    assert {*said} == {"kind", "column", "min_value", "max_value", "nullable", "weight", "stddev"}


def test_a_release_is_not_shown_with_the_range_columns_or_weights_of_another_job(shop: Shop, call: Call) -> None:
    rows = rows_of([1.0, 2.0, 3.0] * 500, [1.0, 1.0, 2.0] * 500)
    job(shop, rows)
    published(shop, call)
    again = ("report", shop.folder / "out", "--job", shop.job, "--output", shop.folder / "page.html")
    for changed in (
        {"min_value": LOW + 20, "max_value": HIGH + 20},
        {"max_value": HIGH + 20},
        {"max_weight": MOST + 1},
        {"column": MEAN["weight_column"], "weight_column": MEAN["column"]},
    ):
        job(shop, rows, MEAN | changed)
        said = call(*again)
        assert (said.code, "another column, range or largest weight" in said.err) == (2, True), changed
        assert not (shop.folder / "page.html").exists()
    job(shop, rows, MEAN | {"label": "Mean of v", "format": ".3f"})
    assert call(*again).code == 0
    assert re.search(r"\d\.\d{3}", (shop.folder / "page.html").read_text())


def test_a_weight_whose_name_ends_that_of_the_released_one_is_another_weight(shop: Shop, call: Call) -> None:
    rows = rows_of([1.0, 2.0], [1.0, 1.0])
    rows = rows.append_column("new " + MEAN["weight_column"], rows.column(MEAN["weight_column"]))
    job(shop, rows, MEAN | {"weight_column": "new " + MEAN["weight_column"]})
    published(shop, call)
    job(shop, rows, MEAN)
    said = call("report", shop.folder / "out", "--job", shop.job, "--output", shop.folder / "page.html")
    assert (said.code, "another column, range or largest weight" in said.err) == (2, True)


def test_another_range_is_another_plan_and_another_name_is_not(shop: Shop, call: Call) -> None:
    def digest(mean: dict[str, Any], name: str = "mean") -> str:
        job(shop, rows_of([1.0], [1.0]), metrics={name: mean})
        return str(json.loads(call("plan", shop.job, "--json").out)["stages"])

    assert digest(MEAN) != digest(MEAN | {"min_value": LOW + 20, "max_value": HIGH + 20})
    rows = rows_of([1.0, 2.0], [1.0, 1.0])
    job(shop, rows)
    assert call("run", shop.job, "--output", shop.folder / "first").code == 0
    job(shop, rows, metrics={"renamed": MEAN})
    said = call("run", shop.job, "--output", shop.folder / "second")
    assert said.code == 2
    assert "--as-new" in said.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kept": {"share": 0.02}}, "drop kept:"),
        ({"bounds": "auto"}, "write bounds:"),
        ({"bounds": {"max_contributions_per_partition": "auto"}}, "write bounds:"),
    ],
)
def test_what_its_own_clamps_cut_off_is_never_said_to_be_measured(
    shop: Shop, call: Call, changes: dict[str, Any], words: str
) -> None:
    job(shop, rows_of([1.0], [1.0]), **changes)
    said = call("plan", shop.job)
    assert said.code == 2
    assert "cannot be measured" in said.err
    assert words in said.err


def test_limits_name_both_clamps(shop: Shop, call: Call) -> None:
    job(shop, rows_of([1.0], [1.0]))
    published(shop, call)
    limits = json.loads((shop.folder / "out" / "manifest.json").read_text())["stages"][0]["limits"]
    weight, value = f"{MEAN['weight_column']} (0 to {MOST:g})", f"{MEAN['column']} ({LOW:g} to {HIGH:g})"
    assert any(weight in words and value in words for words in limits), limits


def in_two_groups(shop: Shop, call: Call, number: int) -> pathlib.Path:
    """A run over two groups whose mean is the middle of its range, so that a sum of distances is noise alone."""
    rows = rows_of([1.0, 7.0] * 1_000, [2.0, 2.0] * 1_000).append_column("group", pa.array(["a", "a", "b", "b"] * 500))
    public = {"public": [["a"], ["b"]]}
    bounds = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
    job(shop, rows, MEAN | {"label": "Hours"}, partition_by=["group"], partitions=public, bounds=bounds)
    folder = shop.folder / f"run{number}"
    said = call("run", shop.job, "--output", folder, "--ledger", "none", "--run-id", f"r{number}")
    assert said.code == 0, said.err
    assert "fewer partitions" not in said.out
    assert "mean  2 of 2 error bars are shorter than a quarter of the range -2 … 10" in said.out
    return folder


def test_a_mean_in_the_middle_of_its_range_brings_no_advice_against_noise_and_stands_alone_in_headlines_and_trends(
    shop: Shop, call: Call
) -> None:
    folders = [in_two_groups(shop, call, number) for number in range(2)]
    page = (folders[0] / "report.html").read_text(encoding="utf-8")
    assert "fewer partitions" not in page
    assert "differ from zero" not in page
    plots = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
    assert plots
    assert not any("weight" in plot for plot in plots)
    assert call("report", *folders, "--output", shop.folder / "trends.html").code == 0
    trends = (shop.folder / "trends.html").read_text(encoding="utf-8")
    assert "Hours" in trends
    for words in ("Hours: weight", "mean_weight"):
        assert words not in trends
    job(shop, rows_of([1.0, 7.0] * 1_000, [2.0, 2.0] * 1_000), MEAN | {"label": "Hours"})
    published(shop, call)
    page = (shop.folder / "out" / "report.html").read_text(encoding="utf-8")
    headlines = page.partition("How to read the numbers")[0]
    assert "Hours" in headlines
    assert "Hours: weight" not in headlines


def test_a_sum_near_zero_that_is_no_part_of_a_mean_still_brings_advice(shop: Shop, call: Call) -> None:
    total = {"kind": "sum", "column": "v", "min_value": LOW, "max_value": HIGH}
    job(shop, rows_of([0.0] * 50, [1.0] * 50), metrics={"mean_weighted": total, "mean_weights": {"kind": "count"}})
    said = call("run", shop.job, "--output", shop.folder / "out", "--ledger", "none")
    assert "ask for a wider window or more budget" in said.out


def test_a_plan_says_from_which_sum_of_weights_on_the_mean_is_good(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4,000 releases of the smallest such sum and the worst mean, between 95% and all are as near as promised."""
    job(shop, rows_of([1.0], [1.0]))
    plan = json.loads(call("plan", shop.job, "--json").out)["stages"][0]
    (good,) = plan["weighted_means"]["mean"]["good_from"]
    noise = {name: plan["metrics"][name]["stddev"] / math.sqrt(2) for name in plan["weighted_means"]["mean"]["of"]}
    assert not any(plan["metrics"][name]["good_from"] for name in noise)
    random, size = np.random.default_rng(43), 40_000
    weighted = good["least"] * 6.0 + random.laplace(scale=noise["mean_weighted"], size=size)
    weights = good["least"] + random.laplace(scale=noise["mean_weights"], size=size)
    for least, share in ((good["least"], 0.95), (good["least"] / 3, 0.80)):
        near = np.abs((weighted - (good["least"] - least) * 6.0) / (weights - good["least"] + least) - 6.0) <= 1.2
        assert (near.mean() >= share) == (share == 0.95)
    text = call("plan", shop.job).out
    assert "mean: within 1.2, 10% of its range, from" in text
    assert "this stage cannot measure it" in text
    assert "mean_weights: within" not in text
