"""What a check says that limits cut off of a metric is missing in its release; it is told beside the noise, with its remedy."""

import json
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.extensions.check.advice import advice
from dp_pipelines.extensions.check.losses import PER_GROUP
from tests.extensions.check.test_advice import bound, stage
from tests.extensions.check.test_counts import Call, profiled

PEOPLE, WEEKS, VISITED, ROWS = 3_000, 24, 6, 4
"""Each person has so many rows in each of so many of the weeks, and each row is worth 10."""

METRICS = {
    "orders": {"kind": "count"},
    "customers": {"kind": "privacy_id_count"},
    "paid": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 10},
    "spent": {"kind": "sum", "column": "price", "min_sum_per_partition": 0, "max_sum_per_partition": 30},
    "capped": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 2},
    "typical": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 10},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    made = tmp_path_factory.mktemp("rows")
    person = np.repeat(np.arange(PEOPLE), VISITED * ROWS)
    week = (person + np.tile(np.repeat(np.arange(VISITED), ROWS), PEOPLE)) % WEEKS
    table = pa.table({"customer": person, "week": week, "price": np.full(len(person), 10.0)})
    pa.parquet.write_table(table, made / "rows.parquet")
    return made


def job(folder: pathlib.Path, epsilon: float = 30.0, bounds: dict[str, int] | None = None, **keys: Any) -> pathlib.Path:
    """The file of a job over these rows, in which all weeks are published."""
    limits = bounds or {"max_partitions_contributed": 3, "max_contributions_per_partition": 2}
    listed = {"public": [[week] for week in range(WEEKS)]}
    written = {
        "dataset": "shop", "source": {"parquet": str(folder / "rows.parquet")}, "privacy_unit": "customer",
        "budget": {"epsilon": epsilon, "delta": 1e-6},
        "stages": {"weekly": {
            "kind": "aggregate", "partition_by": ["week"], "partitions": listed, "metrics": METRICS, "bounds": limits, **keys,
        }},
    }  # fmt: skip
    path = folder / f"job{len(list(folder.iterdir()))}.yaml"
    path.write_text(yaml.safe_dump(written, sort_keys=False))
    return path


def losses(call: Call, path: pathlib.Path) -> dict[str, dict[str, Any]]:
    found = profiled(call, path)["stages"][0]["losses"]
    return {loss["metric"]: loss for loss in found}


def test_what_is_said_to_be_missing_is_missing_in_the_release(folder: pathlib.Path, call: Call) -> None:
    path = job(folder)
    found = losses(call, path)
    released = path.parent / "released"
    assert call("run", path, "--output", released, "--ledger", "none").code == 0
    table = pa.parquet.read_table(released / "weekly.parquet")
    rows = PEOPLE * VISITED * ROWS / WEEKS
    true = {"orders": rows, "customers": rows / ROWS, "paid": 10 * rows, "spent": 10 * rows, "capped": 10 * rows}
    assert set(found) == set(true)
    for name, whole in true.items():
        # Each person visits as many weeks, so that what is missing over all weeks depends on no draw; the noise is small.
        released_mean = float(np.mean(table.column(name).to_numpy()))
        assert found[name]["each"] == pytest.approx(whole)
        assert whole - released_mean == pytest.approx(found[name]["missing"], rel=0.02), name
        assert found[name]["missing"] == pytest.approx(found[name]["share"] * whole)


def test_the_noise_beside_a_loss_is_what_95_of_100_numbers_stay_within(folder: pathlib.Path, call: Call) -> None:
    for epsilon, noise in ((1.0, "gaussian"), (1.0, "laplace")):
        bounds = {"max_partitions_contributed": 1 if noise == "laplace" else 24}
        path = job(folder, epsilon, bounds, metrics={"customers": METRICS["customers"]})
        said = json.loads(call("plan", path, "--json").out)["stages"][0]["metrics"]["customers"]
        assert noise in said["noise"]
        times = np.log(20) / 2**0.5 if noise == "laplace" else 1.96
        loss = losses(call, path)["customers"]
        assert loss["noise"] == pytest.approx(times * said["stddev"])
        assert loss["bars"] == pytest.approx(loss["missing"] / loss["noise"])


@pytest.mark.parametrize(
    ("bounds", "metric", "limit", "instead"),
    [
        ({"max_partitions_contributed": 3, "max_contributions_per_partition": 4}, "orders", "max_partitions_contributed", 6),
        ({"max_partitions_contributed": 3, "max_contributions_per_partition": 1}, "customers", "max_partitions_contributed", 6),
        ({"max_partitions_contributed": 6, "max_contributions_per_partition": 1}, "orders", PER_GROUP, 4),
        ({"max_contributions": 12}, "orders", "max_contributions", 24),
    ],
)  # fmt: skip
def test_the_limit_to_change_is_named_with_its_price(
    folder: pathlib.Path, call: Call, bounds: dict[str, int], metric: str, limit: str, instead: int
) -> None:
    metrics = {metric: METRICS[metric]}
    loss = losses(call, job(folder, 1.0, bounds, metrics=metrics))[metric]
    assert (loss["limit"], loss["value"], loss["instead"]) == (limit, bounds[limit], instead)
    assert loss["would_keep"] == pytest.approx(1.0)
    noise = []
    for each in (bounds, {**bounds, limit: instead}):
        said = json.loads(call("plan", job(folder, 1.0, each, metrics=metrics), "--json").out)
        noise.append(said["stages"][0]["metrics"][metric]["stddev"])
    # The noise of the plan with the larger limit: never more than was said, and no less unless the plan takes another law then.
    assert 0.9 * loss["noise_times"] <= noise[1] / noise[0] <= 1.001 * loss["noise_times"]


def test_a_clamp_that_cuts_off_most_is_the_limit_to_change(folder: pathlib.Path, call: Call) -> None:
    found = losses(call, job(folder))
    assert found["capped"]["limit"] == "clamp"
    assert found["capped"]["keeps"] == pytest.approx(0.2)
    assert found["paid"]["limit"] == found["spent"]["limit"] == "max_partitions_contributed"


def test_losses_that_noise_hides_are_not_told_and_the_others_by_how_much_of_a_bar_is_missing() -> None:
    def loss(metric: str, bars: float) -> dict[str, Any]:
        said = {"metric": metric, "share": 0.1, "each": 100.0, "missing": 10.0, "noise": 10.0 / bars, "bars": bars}
        return {
            **said,
            "limit": "max_contributions",
            "value": 8,
            "keeps": 0.9,
            "instead": 16,
            "would_keep": 0.99,
            "noise_times": 2.0,
        }

    def told(*found: dict[str, Any]) -> list[str]:
        stages = [stage(bounds=[bound(0.5, {16: 0.99})], losses=list(found))]
        return advice({"tables": [], "join": None, "stages": stages})

    assert told(loss("orders", 0.5)) == []
    first, second = told(loss("orders", 2.0), loss("paid", 5.0))
    assert first == (
        "weekly: the limits cut off 10% of paid, about 10 of 100 in a group of average size, and the noise there is ± 2: the bar "
        "misses the true number. max_contributions: 8 keeps 90% of the rows; 16 would keep 99%, with 2 times the noise."
    )
    assert second.startswith("weekly: the limits cut off 10% of orders")


def test_the_page_has_what_is_cut_off_beside_the_noise_and_no_sum_of_a_quantile(
    folder: pathlib.Path, call: Call
) -> None:
    metrics = {**METRICS, "half": {"kind": "median", "column": "price", "min_value": 0, "max_value": 2}}
    path = job(folder, metrics=metrics)
    checked = path.parent / "page"
    assert call("check", path, "--output", checked, "--ledger", "none").code == 0
    page = (checked / "PRIVATE-report.html").read_text()
    assert "halves of a bar" in page
    assert "times the noise" in page
    profile = json.loads((checked / "PRIVATE-check.json").read_text())
    clips = {clip["metric"]: clip for clip in profile["stages"][0]["clips"]}
    assert "sum_kept" in clips["typical"]
    assert "sum_kept" not in clips["half"]


def test_a_number_at_the_end_of_what_floats_hold_ends_no_check(tmp_path: pathlib.Path, call: Call) -> None:
    """One row must not decide how the command ends: JSON has no infinity."""
    metrics = {"paid": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 0.001}}
    for number, price in enumerate((5.0, 1.5e308)):
        table = pa.table({"customer": range(300), "week": [0] * 300, "price": [price] + [5.0] * 299})
        made = tmp_path / str(number)
        made.mkdir()
        pa.parquet.write_table(table, made / "rows.parquet")
        (loss,) = losses(call, job(made, metrics=metrics)).values()
        assert 0 < loss["bars"] < float("inf")
