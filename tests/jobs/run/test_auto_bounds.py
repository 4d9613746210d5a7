"""Runs whose bounds are chosen privately: what is kept, what is published, what is refused."""

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
AUTO = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000000]}
MEAN = {"kind": "mean", "column": "price", "min_value": "auto", "max_value": "auto", "within": [-1000, 1000000]}
SPREAD = {**MEAN, "kind": "variance"}
METRICS = {"orders": {"kind": "count"}, "revenue": AUTO, "price": MEAN, "spread": SPREAD}


def fill(shop: Shop, prices: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> None:
    """Give the shop one file with these prices: four rows of each customer, five products."""
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    place = np.arange(len(prices))
    rows = pa.table({"customer": place // 4, "product": [f"p{i}" for i in place % 5], "price": prices})
    pa.parquet.write_table(rows, shop.folder / "data" / "part.parquet")


def test_bounds_are_chosen_published_and_used(shop: Shop, call: Call) -> None:
    prices = np.random.default_rng(1).random(20_000) * 20
    fill(shop, prices)
    out = shop.folder / "out"
    said = call("run", shop.write(stages={"weekly": stage(metrics=METRICS)}), "--output", out)
    assert (said.code, said.err) == (0, "")
    assert sorted(path.name for path in out.iterdir()) == [
        "bounds.json", "manifest.json", "report.html", "weekly.parquet",
    ]  # fmt: skip
    bounds = json.loads((out / "bounds.json").read_text())["weekly"]
    assert bounds["revenue"][0] == 0
    assert 10 < bounds["revenue"][1] <= 32
    assert bounds["price"] == bounds["spread"]
    assert -32 <= bounds["price"][0] < 2
    table = pa.parquet.read_table(out / "weekly.parquet")
    assert table.column_names[:3] == ["product", "orders", "orders_stddev"]
    # Noise is that of the bounds that were chosen: of the whole range it would be some 30,000 times as large.
    assert max(table.column("revenue_stddev").to_pylist()) < 1000
    assert np.abs(np.array(table.column("price").to_pylist()) - 10).max() < 1.5
    manifest = json.loads((out / "manifest.json").read_text())
    assert [described["name"] for described in manifest["stages"]] == ["weekly"]
    shown = manifest["stages"][0]["metrics"]
    assert {name: shown[name]["bounds"] for name in bounds} == bounds
    assert shown["revenue"]["stddev"] == table.column("revenue_stddev").to_pylist()[0]
    assert shown["revenue"]["within"] != shown["revenue"]["bounds"]
    assert not {"bounds", "within"} & set(shown["orders"])
    assert {record["stage"] for record in manifest["mechanisms"]} == {"weekly", "weekly.bounds"}
    told = f"each value clamped to 0 … {bounds['revenue'][1]:.4g} (bounds chosen privately in this run)"
    assert told in (out / "report.html").read_text(encoding="utf-8")


def test_the_histogram_of_a_run_is_drawn_once_whatever_fails(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, out = shop.write(stages={"weekly": stage(metrics={"revenue": AUTO})}), shop.folder / "out"
    ran: list[str] = []
    used: list[object] = []
    real = pipelines.run_pipeline

    def failing(request, stages, *rest):  # type: ignore[no-untyped-def]
        ran.extend(stages)
        if "weekly" in stages:
            used.append(stages["weekly"].query.metrics["revenue"])
            if len(used) == 1:
                raise pipelines.RunFailed("the pipeline failed")
        return real(request, stages, *rest)

    monkeypatch.setattr(production, "run_pipeline", failing)
    assert call("run", job, "--output", out).code == 1
    assert not out.exists()
    assert call("run", job, "--output", out).code == 0
    assert ran == ["weekly.bounds", "weekly", "weekly"]
    assert used[0] == used[1]
    kinds = [event.kind for event in Ledger.open(str(shop.folder / DEFAULT_NAME)).history]
    assert kinds.count("draw_frozen") == 1
    assert kinds.count("run_reserved") == 1


def test_bounds_and_rounds_of_a_selection_go_together(shop: Shop, call: Call) -> None:
    sips = {"private": {"strategy": "sips"}}
    job = shop.write(stages={"weekly": stage(metrics={"revenue": AUTO}, partitions=sips)})
    out = shop.folder / "out"
    assert call("run", job, "--output", out, "--ledger", "none").code == 0
    assert pa.parquet.read_table(out / "weekly.parquet").num_rows == 5
    assert 0 < json.loads((out / "bounds.json").read_text())["weekly"]["revenue"][1] <= 1000000


def test_a_later_round_of_a_split_has_less_noise_for_the_same_bounds(shop: Shop, call: Call) -> None:
    fill(shop, np.full(20_000, 15.0))
    budget = {"epsilon": 8.0, "delta": 1e-5, "runs": 2, "split": "linear"}
    job = shop.write(stages={"weekly": stage(metrics={"revenue": AUTO})}, budget=budget)
    spread = []
    for name in ("a", "b"):
        out = shop.folder / name
        assert call("run", job, "--output", out, "--run-id", name).code == 0
        bound = json.loads((out / "bounds.json").read_text())["weekly"]["revenue"][1]
        spread.append(pa.parquet.read_table(out / "weekly.parquet").column("revenue_stddev").to_pylist()[0] / bound)
    assert spread[0] / spread[1] == pytest.approx(2, rel=0.01)


def test_a_column_of_the_source_with_our_name_plays_no_part(shop: Shop, call: Call) -> None:
    rows = pa.table({"customer": range(4000), "product": ["p"] * 4000, "price": [3.0] * 4000, "_all": range(4000)})
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    pa.parquet.write_table(rows, shop.folder / "data" / "part.parquet")
    fine = {
        "auto": stage(metrics={"revenue": AUTO}),
        "own": stage(partition_by="_all", metrics={"n": {"kind": "count"}}),
    }
    out = shop.folder / "out"
    assert call("run", shop.write(stages=fine), "--output", out, "--ledger", "none").code == 0
    assert json.loads((out / "bounds.json").read_text())["auto"]["revenue"][1] <= 6
    said = call("plan", shop.write(stages={"auto": stage(partition_by="_all", metrics={"revenue": AUTO})}))
    assert said.code == 2
    assert "no column may be called '_all'" in said.err


def test_a_plan_tells_noise_as_a_multiple_of_the_bound(shop: Shop, call: Call) -> None:
    job = shop.write(stages={"weekly": stage(metrics=METRICS)}, expect={"rows_per_partition": 100})
    said = call("plan", job, "--json")
    assert said.code == 0
    stages = {described["name"]: described for described in json.loads(said.out)["stages"]}
    assert list(stages) == ["weekly.bounds", "weekly"]
    revenue = stages["weekly"]["metrics"]["revenue"]
    assert revenue["stddev"] is None
    assert 0 < revenue["stddev_multiple"] < 10
    assert stages["weekly"]["metrics"]["price"]["stddev_multiple"] is None
    text = call("plan", job)
    assert text.code == 0
    assert re.search(r"revenue: ± [\d,]+ if the run chooses [\d,]+ as the largest value, ± [\d,.]+ with ", text.out)


@pytest.mark.parametrize(
    ("metric", "line", "message"),
    [
        ({**AUTO, "within": None}, "within", "is needed where a bound is auto"),
        ({**AUTO, "within": [0]}, "within", "must be two numbers"),
        ({**AUTO, "within": [5, 5]}, "within", "must rise"),
        ({**AUTO, "within": [0, float("inf")]}, "within", "must be a finite number"),
        ({**AUTO, "within": [float("nan"), 1]}, "within", "must be a finite number"),
        ({**AUTO, "min_value": -1}, "within", "must hold the bound that is given"),
        ({**AUTO, "max_value": 10}, "within", "is for bounds that are chosen"),
        ({**AUTO, "stddev": 3.0}, "stddev", "stands beside bounds that are chosen"),
        ({**AUTO, "max_value": "Auto"}, "max_value", "must be a number"),
        ({**AUTO, "kind": "median"}, "within", "unknown key"),
    ],
)
def test_what_public_facts_refuse(shop: Shop, call: Call, metric: dict[str, object], line: str, message: str) -> None:
    metric = {key: value for key, value in metric.items() if value is not None}
    said = call(
        "run", shop.write(stages={"weekly": stage(metrics={"revenue": metric})}), "--output", shop.folder / "out"
    )
    assert said.code == 2
    assert "job.yaml:" in said.err
    assert line in said.err
    assert message in said.err
    assert not (shop.folder / "out").exists()


def test_the_best_by_a_sum_without_bounds_is_refused(shop: Shop, call: Call) -> None:
    best = stage(metrics={"revenue": AUTO}, best={"k": 1, "by": "revenue"}, partitions={"public": [["p0"], ["p1"]]})
    said = call("plan", shop.write(stages={"weekly": best}))
    assert said.code == 2
    assert "has bounds that the run chooses" in said.err


def test_two_ways_to_declare_one_range_are_refused(shop: Shop, call: Call) -> None:
    fixed = {"kind": "mean", "column": "price", "min_value": 0, "max_value": 1000000}
    said = call("plan", shop.write(stages={"weekly": stage(metrics={"revenue": AUTO, "price": fixed})}))
    assert said.code == 2
    assert "declares the range of 'price' on the same column differently" in said.err
