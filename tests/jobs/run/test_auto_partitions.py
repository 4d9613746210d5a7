"""Runs whose bound on partitions is chosen privately: what is kept, what is published, what is refused."""

import json
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.run import pipelines, production
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.jobs.conftest import Said, Shop, stage

pytestmark = pytest.mark.usefixtures("rows_alone_pass_for_rows")

Call = Callable[..., Said]
CANDIDATES = [1, 2, 4, 8, 16]
BOUNDS = {
    "max_partitions_contributed": "auto",
    "partition_candidates": CANDIDATES,
    "max_contributions_per_partition": 1,
}
METRICS = {"orders": {"kind": "count"}, "buyers": {"kind": "privacy_id_count"}}
CHOICE = {"kind": "quantile", "column": "price", "quantile": 0.5, "candidates": [1, 2], "method": "exponential"}
AUTO = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000000]}


def fill(shop: Shop, customers: int, each: int, products: int = 20) -> None:
    """Give the shop two files: each customer once in each of so many different products, 10 in price, names text or numbers."""
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    customer = np.repeat(np.arange(customers), each)
    product = (customer * 7 + np.tile(np.arange(each), customers)) % products
    order = np.random.default_rng(1).permutation(len(customer))
    rows = pa.table(
        {
            "customer": customer[order],
            "product": [f"p{number}" for number in product[order]],
            "price": np.full(len(order), 10.0),
        }
    )
    for number, half in enumerate((rows.slice(0, len(order) // 2), rows.slice(len(order) // 2))):
        pa.parquet.write_table(half, shop.folder / "data" / f"part-{number}.parquet")


def job(shop: Shop, **changes: object) -> object:
    """The shop's job with a bound on partitions to choose."""
    return shop.write(stages={"weekly": stage(**{"bounds": BOUNDS, "metrics": METRICS, **changes})})


@pytest.mark.parametrize("each", [1, 4, 16])
def test_the_bound_on_partitions_is_chosen_published_and_used(shop: Shop, call: Call, each: int) -> None:
    fill(shop, 4000, each)
    out = shop.folder / "out"
    said = call("run", job(shop), "--output", out)
    assert (said.code, said.err) == (0, "")
    assert sorted(path.name for path in out.iterdir()) == [
        "bounds.json", "manifest.json", "report.html", "weekly.parquet",
    ]  # fmt: skip
    assert json.loads((out / "bounds.json").read_text()) == {"weekly": {"max_partitions_contributed": each}}
    table = pa.parquet.read_table(out / "weekly.parquet")
    assert table.num_rows == 20
    # All pairs of customer and product are kept: none is dropped by the bound.
    assert np.abs(np.array(table.column("buyers").to_pylist()) - 4000 * each / 20).max() < 60
    manifest = json.loads((out / "manifest.json").read_text())
    (described,) = manifest["stages"]
    assert described["max_partitions_contributed"] == each
    assert described["metrics"]["buyers"]["stddev"] == table.column("buyers_stddev").to_pylist()[0]
    assert described["selection"]["half_keep_users"] > 1
    assert {record["stage"] for record in manifest["mechanisms"]} == {"weekly", "weekly.partitions"}
    told = f"counts in at most {each} of these rows; the run chose this bound privately."
    assert told in (out / "report.html").read_text(encoding="utf-8")


def test_a_smaller_bound_has_less_noise_under_the_same_plan(shop: Shop, call: Call) -> None:
    spread = []
    for each in (1, 16):
        fill(shop, 4000, each)
        out = shop.folder / f"out-{each}"
        assert call("run", job(shop), "--output", out, "--ledger", "none").code == 0
        spread.append(pa.parquet.read_table(out / "weekly.parquet").column("buyers_stddev").to_pylist()[0])
    assert spread[1] / spread[0] == pytest.approx(4, rel=0.05) or spread[1] / spread[0] == pytest.approx(16, rel=0.05)


def test_the_histogram_of_units_is_drawn_once_whatever_fails(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = job(shop), shop.folder / "out"
    ran: list[str] = []
    used: list[int] = []
    real = pipelines.run_pipeline

    def failing(request, stages, *rest):  # type: ignore[no-untyped-def]
        ran.extend(stages)
        if "weekly" in stages:
            used.append(stages["weekly"].query.bounds.max_partitions_contributed)
            if len(used) == 1:
                raise pipelines.RunFailed("the pipeline failed")
        return real(request, stages, *rest)

    monkeypatch.setattr(production, "run_pipeline", failing)
    assert call("run", path, "--output", out).code == 1
    assert not out.exists()
    assert call("run", path, "--output", out).code == 0
    assert ran == ["weekly.partitions", "weekly", "weekly"]
    assert used[0] == used[1]
    kinds = [event.kind for event in Ledger.open(str(shop.folder / DEFAULT_NAME)).history]
    assert kinds.count("draw_frozen") == 1
    assert kinds.count("run_reserved") == 1


def test_bounds_of_values_and_of_partitions_are_chosen_together(shop: Shop, call: Call) -> None:
    fill(shop, 4000, 4)
    out = shop.folder / "out"
    assert call("run", job(shop, metrics={**METRICS, "revenue": AUTO}), "--output", out).code == 0
    chosen = json.loads((out / "bounds.json").read_text())["weekly"]
    assert chosen["max_partitions_contributed"] == 4
    assert 10 <= chosen["revenue"][1] <= 16
    manifest = json.loads((out / "manifest.json").read_text())
    assert {record["stage"] for record in manifest["mechanisms"]} == {"weekly", "weekly.partitions", "weekly.bounds"}
    table = pa.parquet.read_table(out / "weekly.parquet")
    assert np.abs(np.array(table.column("revenue").to_pylist()) - 8000).max() < 900


def test_only_listed_partitions_of_a_unit_count(shop: Shop, call: Call) -> None:
    """Each customer has 16 products, of which two at most are listed."""
    fill(shop, 4000, 16)
    listed = {"public": [["p0"], ["p1"]]}
    out = shop.folder / "out"
    assert call("run", job(shop, partitions=listed), "--output", out, "--ledger", "none").code == 0
    assert json.loads((out / "bounds.json").read_text())["weekly"]["max_partitions_contributed"] <= 2


def test_a_later_round_of_a_split_has_less_noise_for_the_same_bound(shop: Shop, call: Call) -> None:
    fill(shop, 4000, 4)
    budget = {"epsilon": 8.0, "delta": 1e-5, "runs": 2, "split": "linear"}
    path = shop.write(stages={"weekly": stage(bounds=BOUNDS, metrics=METRICS)}, budget=budget)
    spread = []
    for name in ("a", "b"):
        out = shop.folder / name
        assert call("run", path, "--output", out, "--run-id", name).code == 0
        assert json.loads((out / "bounds.json").read_text())["weekly"]["max_partitions_contributed"] == 4
        spread.append(pa.parquet.read_table(out / "weekly.parquet").column("buyers_stddev").to_pylist()[0])
    assert spread[0] / spread[1] == pytest.approx(2, rel=0.03)


def test_a_stage_that_releases_partitions_alone_may_leave_their_bound_open(shop: Shop, call: Call) -> None:
    fill(shop, 4000, 4)
    out = shop.folder / "out"
    assert call("run", job(shop, metrics={}), "--output", out, "--ledger", "none").code == 0
    assert json.loads((out / "bounds.json").read_text())["weekly"]["max_partitions_contributed"] in CANDIDATES
    assert pa.parquet.read_table(out / "weekly.parquet").num_rows == 20


def test_a_plan_tells_noise_as_a_multiple_and_no_threshold(shop: Shop, call: Call) -> None:
    metrics = {**METRICS, "revenue": AUTO, "price": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 9}}
    path = job(shop, metrics=metrics)
    said = call("plan", path, "--json")
    assert said.code == 0
    stages = {described["name"]: described for described in json.loads(said.out)["stages"]}
    assert list(stages) == ["weekly.bounds", "weekly.partitions", "weekly"]
    weekly = stages["weekly"]
    assert weekly["partition_candidates"] == CANDIDATES
    assert weekly["selection"]["threshold"] is None
    assert weekly["selection"]["half_keep_users"] is None
    grows = {"gaussian": "sqrt(max_partitions_contributed)", "laplace": "max_partitions_contributed"}
    for name in ("orders", "buyers", "revenue"):
        metric = weekly["metrics"][name]
        assert metric["stddev"] is None
        assert 0 < metric["stddev_multiple"] < 10
        assert metric["grows_with"] == grows[metric["noise"]]
        assert all(statistic["stddev"] is None for statistic in metric["statistics"].values())
    assert weekly["metrics"]["price"]["stddev_multiple"] is None
    text = call("plan", path)
    assert text.code == 0
    assert "partitions per customer: at most 1, 2, 4, 8, 16; each run chooses one" in text.out
    assert re.search(r"orders: ± [\d.]+ if the run chooses 4 partitions, ± [\d.]+ with 1\n", text.out)


@pytest.mark.parametrize(
    ("changes", "line", "message"),
    [
        ({"bounds": {**BOUNDS, "partition_candidates": None}}, "partition_candidates", "is required if"),
        ({"bounds": {**BOUNDS, "partition_candidates": [4]}}, "partition_candidates", "must be a list of 2 to 64"),
        ({"bounds": {**BOUNDS, "partition_candidates": [4, 2]}}, "partition_candidates", "must be larger than the previous one"),
        ({"bounds": {**BOUNDS, "partition_candidates": [0, 2]}}, "partition_candidates", "must be a whole number"),
        ({"bounds": {**BOUNDS, "max_partitions_contributed": 4}}, "partition_candidates", "is only for a bound that"),
        ({"bounds": {**BOUNDS, "max_partitions_contributed": "Auto"}}, "max_partitions", "must be a whole number"),
        ({"bounds": {**BOUNDS, "max_contributions": 4}}, "max_contributions", "cannot be combined with other bounds"),
        ({"partitions": {"private": {"strategy": "sips"}}}, "strategy", "is sips, which cannot be combined"),
        ({"partitions": {"private": {"strategy": "truncated_geometric"}}}, "strategy", "take auto, laplace"),
        ({"metrics": {"n": {"kind": "count", "stddev": 9.0}}}, "metrics.n.stddev", "write a weight instead"),
        ({"metrics": {"max_partitions_contributed": {"kind": "count"}}}, "metrics", "is the name of the bound"),
        (
            {"metrics": {"v": {"kind": "vector_sum", "column": "price", "size": 2, "max_norm": 1.0}}},
            "metrics.v",
            "put it into a separate stage",
        ),
        (
            {"metrics": {"q": CHOICE}},
            "metrics.q",
            "is a choice, or a norm",
        ),
        (
            {"metrics": {"n": {"kind": "count"}}, "best": {"k": 1, "by": "n"}, "partitions": {"public": [["a"], ["b"]]}},
            "best",
            "write max_partitions_contributed under bounds, as a number",
        ),
    ],
)  # fmt: skip
def test_what_public_facts_refuse(shop: Shop, call: Call, changes: dict[str, object], line: str, message: str) -> None:
    bounds = changes.get("bounds", {})
    assert isinstance(bounds, dict)
    changes = {**changes, "bounds": {key: value for key, value in (bounds or BOUNDS).items() if value is not None}}
    said = call("run", job(shop, **changes), "--output", shop.folder / "out")
    assert said.code == 2
    assert "job.yaml:" in said.err
    assert line in said.err
    assert message in said.err
    assert not (shop.folder / "out").exists()


def test_a_column_with_the_name_of_ours_may_not_be_read(shop: Shop, call: Call) -> None:
    asked = stage(bounds=BOUNDS, metrics=METRICS, partition_by=["_partitions"])
    said = call("plan", shop.write(stages={"weekly": asked}, columns={"_partitions": "product"}))
    assert said.code == 2
    assert "is auto, so no column may be called '_partitions'" in said.err


def test_bounds_are_chosen_for_a_source_without_rows(shop: Shop, call: Call) -> None:
    fill(shop, 0, 1)
    out = shop.folder / "out"
    assert call("run", job(shop), "--output", out, "--ledger", "none").code == 0
    assert json.loads((out / "bounds.json").read_text())["weekly"]["max_partitions_contributed"] in CANDIDATES
    assert pa.parquet.read_table(out / "weekly.parquet").num_rows == 0
