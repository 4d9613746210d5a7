"""Runs whose bounds on contributions nobody chose: what is picked, published, drawn once, and refused."""

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.auto_bounds import partition_bound
from dp_pipelines.jobs.run import build, pipelines, production
from dp_pipelines.jobs.run.row_facts import FactsOfRows
from dp_pipelines.jobs.spec import job_schemas
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.query.query import Query
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, stage

pytestmark = pytest.mark.usefixtures("rows_alone_pass_for_rows")

Call = Callable[..., Said]
METRICS = {
    "orders": {"kind": "count"},
    "buyers": {"kind": "privacy_id_count"},
    "paid": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 10},
}
GENEROUS = {"epsilon": 8.0, "delta": 1e-6}
LISTED = {"public": [[f"p{number}"] for number in range(20)]}
CHOICE = {"kind": "quantile", "column": "price", "quantile": 0.5, "candidates": [1, 2], "method": "exponential"}


def fill(shop: Shop, customers: int, partitions: int, rows: int) -> None:
    """Give the shop two files: each customer in so many of 20 products, with so many rows of price 10 in each."""
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    customer = np.repeat(np.arange(customers), partitions * rows)
    place = np.tile(np.repeat(np.arange(partitions), rows), customers)
    product = (customer * 7 + place) % 20
    order = np.random.default_rng(1).permutation(len(customer))
    table = pa.table(
        {
            "customer": customer[order],
            "product": [f"p{number}" for number in product[order]],
            "price": np.full(len(order), 10.0),
        }
    )
    for number, half in enumerate((table.slice(0, len(order) // 2), table.slice(len(order) // 2))):
        pa.parquet.write_table(half, shop.folder / "data" / f"part-{number}.parquet")


def job(shop: Shop, **changes: Any) -> object:
    """The shop's job with no bounds chosen."""
    budget = changes.pop("budget", GENEROUS)
    asked = stage(**{"bounds": "auto", "metrics": METRICS, "partitions": LISTED, **changes})
    return shop.write(stages={"weekly": asked}, budget=budget)


@pytest.mark.parametrize(("partitions", "rows"), [(1, 1), (4, 2), (2, 8)])
def test_both_bounds_are_chosen_published_and_used(shop: Shop, call: Call, partitions: int, rows: int) -> None:
    fill(shop, 3000, partitions, rows)
    out = shop.folder / "out"
    said = call("run", job(shop), "--output", out)
    assert (said.code, said.err) == (0, "")
    chosen = {"max_partitions_contributed": partitions, "max_contributions_per_partition": rows}
    assert json.loads((out / "bounds.json").read_text()) == {"weekly": chosen}
    table = pa.parquet.read_table(out / "weekly.parquet")
    true = 3000 * partitions * rows / 20
    # No row is dropped by the bounds, and the ranges hold the truth. Noise is within 15 deviations, at most 1e-9 beyond.
    for name, times in (("orders", 1), ("paid", 10)):
        off = np.abs(np.array(table.column(name).to_pylist()) - times * true)
        assert (off <= 15 * np.array(table.column(f"{name}_stddev").to_pylist())).all()
        assert table.column(f"{name}_estimate").null_count == 0
    manifest = json.loads((out / "manifest.json").read_text())
    (described,) = manifest["stages"]
    assert {name: described[name] for name in chosen} == chosen
    assert described["metrics"]["orders"]["stddev"] == table.column("orders_stddev").to_pylist()[0]
    assert {record["stage"] for record in manifest["mechanisms"]} == {"weekly", "weekly.partitions", "weekly.kept"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"counts in at most {partitions} of these rows; the run chose this bound privately." in page
    assert f"At most {rows} rows of each of" in page
    assert f"{rows} row{'' if rows == 1 else 's'} of each customer in a group count" in said.out


def test_what_is_cut_off_is_measured_with_the_chosen_bounds_and_not_with_the_largest(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, real = [], build.FactsOfRows

    def facts_of_rows(query: Query, *rest: Any) -> FactsOfRows:
        measured.append((query.bounds.max_partitions, query.bounds.max_rows_per_partition))
        return real(query, *rest)

    monkeypatch.setattr(build, "FactsOfRows", facts_of_rows)
    fill(shop, 3000, 2, 8)
    assert call("run", job(shop), "--output", shop.folder / "out", "--ledger", "none").code == 0
    assert measured == [(2, 8)]


def test_what_is_cut_off_is_measured_for_the_chosen_bounds_without_being_asked(shop: Shop, call: Call) -> None:
    """One customer in eleven has 40 rows in one group: bounds keep few of these, and the estimate makes up for it."""
    fill(shop, 4000, 1, 1)
    heavy = pa.table(
        {
            "customer": np.repeat(np.arange(10_000, 10_400), 40),
            "product": [f"p{n}" for n in np.repeat(np.arange(400) % 20, 40)],
            "price": np.full(16_000, 10.0),
        }
    )
    pa.parquet.write_table(heavy, shop.folder / "data" / "heavy.parquet")
    out = shop.folder / "out"
    assert call("run", job(shop), "--output", out, "--ledger", "none").code == 0
    bounds = json.loads((out / "bounds.json").read_text())["weekly"]
    share = json.loads((out / "kept.json").read_text())["weekly"]["rows"]["share"]
    rows = bounds["max_contributions_per_partition"]
    assert share == pytest.approx((4000 + 400 * min(rows, 40)) / 20_000, abs=0.05)
    manifest = json.loads((out / "manifest.json").read_text())
    assert [one["stage"] for one in manifest["mechanisms"] if one["stage"] == "weekly.kept"] == ["weekly.kept"]


def test_histograms_are_drawn_once_whatever_fails(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = job(shop), shop.folder / "out"
    ran: list[str] = []
    used: list[object] = []
    real = pipelines.run_pipeline

    def failing(request, stages, *rest):  # type: ignore[no-untyped-def]
        ran.extend(stages)
        if "weekly" in stages:
            used.append(stages["weekly"].query.bounds)
            if len(used) == 1:
                raise pipelines.RunFailed("the pipeline failed")
        return real(request, stages, *rest)

    monkeypatch.setattr(production, "run_pipeline", failing)
    assert call("run", path, "--output", out).code == 1
    assert not out.exists()
    assert call("run", path, "--output", out).code == 0
    assert ran == ["weekly.partitions", "weekly", "weekly.kept", "weekly", "weekly.kept"]
    assert used[0] == used[1]
    events = [event.kind for event in Ledger.open(str(shop.folder / DEFAULT_NAME)).history]
    assert (events.count("draw_frozen"), events.count("run_reserved")) == (1, 1)
    assert events.index("run_reserved") < events.index("draw_frozen")  # charged before the first draw


def test_bounds_come_from_what_was_released_and_from_no_row(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry over other rows, after the histograms were drawn, has the bounds of the first attempt."""
    fill(shop, 3000, 4, 2)
    path, out = job(shop), shop.folder / "out"
    real = pipelines.run_pipeline
    with monkeypatch.context() as patched:

        def failing(request, stages, *rest):  # type: ignore[no-untyped-def]
            if "weekly" in stages:
                raise pipelines.RunFailed("the pipeline failed")
            return real(request, stages, *rest)

        patched.setattr(production, "run_pipeline", failing)
        assert call("run", path, "--output", out).code == 1
    fill(shop, 3000, 1, 1)
    assert call("run", path, "--output", out).code == 0
    chosen = {"max_partitions_contributed": 4, "max_contributions_per_partition": 2}
    assert json.loads((out / "bounds.json").read_text()) == {"weekly": chosen}


def test_a_plan_reads_no_row_and_says_shares_and_from_how_many_units_on_something_is_seen(
    shop: Shop, call: Call
) -> None:
    path = job(shop, budget={"epsilon": 1.0, "delta": 1e-6})
    first = call("plan", path, "--json")
    fill(shop, 2000, 3, 3)
    assert call("plan", path, "--json").out == first.out
    stages = {described["name"]: described for described in json.loads(first.out)["stages"]}
    assert list(stages) == ["weekly.partitions", "weekly", "weekly.kept"]
    assert [round(each["share"], 4) for each in stages.values()] == [0.0552, 0.8648, 0.08]
    assert stages["weekly"]["partition_candidates"] == [1, 2, 4, 8, 16, 32, 64]
    assert stages["weekly"]["row_candidates"] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert 20 < stages["weekly.partitions"]["units_by_size"]["units_seen_from"] < 1000
    grows = stages["weekly"]["metrics"]["orders"]["grows_with"]
    assert grows == "sqrt(max_partitions_contributed) * max_contributions_per_partition"
    assert stages["weekly"]["metrics"]["buyers"]["grows_with"] == "sqrt(max_partitions_contributed)"
    text = call("plan", path).out
    assert (
        "rows per customer and partition: at most 1, 2, 4, 8, 16, 32, 64, 128, 256, 512; each run chooses one" in text
    )
    assert "on stand out of the noise" in text
    stddev = stages["weekly"]["metrics"]["orders"]["stddev_multiple"]
    usual, least = re.findall(
        r"orders: ± ([\d,.]+) if the run chooses 8 partitions and 32 rows in each, ± ([\d,.]+) with 1 and 1\n", text
    )[0]
    for said, times in ((usual, 8**0.5 * 32), (least, 1)):
        assert float(said.replace(",", "")) == pytest.approx(1.96 * stddev * times, rel=0.05)
    assert "times the" not in text
    assert "left out" not in text


def test_a_plan_says_of_no_histogram_that_its_groups_appear(shop: Shop, call: Call) -> None:
    for partitions, times in ((LISTED, 1), ({"private": {"strategy": "auto"}}, 0)):
        path = job(shop, metrics={**METRICS, "paid": CAPPED}, partitions=partitions)
        text = call("plan", path).out
        assert "weekly.bounds" in text
        assert "weekly.partitions" in text
        assert text.count("partitions: the public list") == times


def test_of_a_total_the_rows_of_a_unit_are_bounded(shop: Shop, call: Call) -> None:
    fill(shop, 3000, 4, 2)
    out = shop.folder / "out"
    asked = {"kind": "aggregate", "partition_by": [], "bounds": "auto", "metrics": {"orders": {"kind": "count"}}}
    path = shop.write(stages={"all": asked}, budget=GENEROUS)
    assert call("run", path, "--output", out, "--ledger", "none").code == 0
    assert json.loads((out / "bounds.json").read_text()) == {"all": {"max_contributions_per_partition": 8}}
    (number,) = pa.parquet.read_table(out / "all.parquet").column("orders").to_pylist()
    assert number == pytest.approx(24_000, abs=600)


def test_bounds_of_values_and_private_groups_stand_beside_it(shop: Shop, call: Call) -> None:
    fill(shop, 3000, 4, 2)
    paid = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000000]}
    out = shop.folder / "out"
    path = job(shop, metrics={**METRICS, "paid": paid}, partitions={"private": {"strategy": "auto"}})
    assert call("run", path, "--output", out, "--ledger", "none").code == 0
    chosen = json.loads((out / "bounds.json").read_text())["weekly"]
    assert (chosen["max_partitions_contributed"], chosen["max_contributions_per_partition"]) == (4, 2)
    assert 10 <= chosen["paid"][1] <= 16
    assert pa.parquet.read_table(out / "weekly.parquet").num_rows == 20


def test_with_nobody_in_the_rows_a_run_has_the_smallest_bounds_and_no_estimate(shop: Shop, call: Call) -> None:
    fill(shop, 3, 1, 1)
    out = shop.folder / "out"
    assert call("run", job(shop), "--output", out, "--ledger", "none").code == 0
    smallest = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
    assert json.loads((out / "bounds.json").read_text()) == {"weekly": smallest}
    assert pa.parquet.read_table(out / "weekly.parquet").column("orders_high").null_count == 20


CAPPED = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000000]}
ONE_OPEN = [
    ("max_contributions_per_partition", {"max_partitions_contributed": "auto", "partition_candidates": [1, 4, 16]}),
    ("max_partitions_contributed", {"max_contributions_per_partition": "auto"}),
]
"""The name of the bound that is fixed, and the open one."""


@pytest.mark.parametrize(("fixed", "bounds"), ONE_OPEN)
def test_no_metric_has_the_name_of_a_bound_where_any_is_open(
    shop: Shop, call: Call, fixed: str, bounds: dict[str, Any]
) -> None:
    for name in (fixed, next(iter(bounds))):
        path = job(shop, bounds={fixed: 4, **bounds}, metrics={name: CAPPED})
        said = call("run", path, "--output", shop.folder / "out", "--ledger", "none")
        assert said.code == 2
        assert f"metrics.{name}" in said.err
        assert "in bounds.json; rename it" in " ".join(said.err.split())


@pytest.mark.parametrize(("fixed", "bounds"), ONE_OPEN)
def test_a_release_loses_no_pair_whose_metric_has_the_name_of_a_fixed_bound(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, fixed: str, bounds: dict[str, Any]
) -> None:
    """Even if such a name were let through, what was charged is published with the bounds that were chosen."""
    monkeypatch.setattr(partition_bound, "refuse", lambda *_: None)
    fill(shop, 3000, 4, 2)
    out = shop.folder / "out"
    path = job(shop, bounds={fixed: 4, **bounds}, metrics={fixed: CAPPED})
    said = call("run", path, "--output", out, "--ledger", "none")
    assert (said.code, said.err) == (0, "")
    chosen = json.loads((out / "bounds.json").read_text())["weekly"]
    assert set(chosen) == {fixed, next(iter(bounds))}
    assert 10 <= chosen[fixed][1] <= 16


@pytest.mark.parametrize("over", [{"where": "price > 0"}, {"kept": {"share": 0.1}}])
def test_what_is_kept_is_measured_as_the_job_says_or_not_where_it_cannot_be(
    shop: Shop, call: Call, over: dict[str, object]
) -> None:
    said = call("plan", job(shop, **over), "--json")
    assert said.code == 0
    shares = {described["name"]: described["share"] for described in json.loads(said.out)["stages"]}
    assert shares.get("weekly.kept") == (0.1 if "kept" in over else None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bounds": "Auto"}, "bounds"),
        ({"bounds": {"max_contributions_per_partition": "auto"}}, "must say how much one privacy unit may contribute"),
        ({"bounds": {"max_partitions_contributed": 4, "max_contributions_per_partition": "auto", "row_candidates": [4]}},
         "row_candidates"),
        ({"bounds": {"max_partitions_contributed": 4, "max_contributions_per_partition": 2, "row_candidates": [1, 4]}},
         "is only for a bound that the run chooses"),
        ({"partitions": {"private": {"strategy": "sips"}}}, "is sips, which cannot be combined"),
        ({"partitions": {"private": {"strategy": "truncated_geometric"}}}, "take auto, laplace"),
        ({"metrics": {"n": {"kind": "count", "stddev": 9.0}}}, "write a weight instead"),
        ({"metrics": {"q": CHOICE, "n": {"kind": "count"}}}, "is a choice, or a norm"),
        ({"rollup": [[], ["product"]]}, "is chosen by the run, and cannot stand beside rollup; write it under bounds"),
    ],
)  # fmt: skip
def test_what_public_facts_refuse(shop: Shop, call: Call, changes: dict[str, Any], message: str) -> None:
    said = call("run", job(shop, **changes), "--output", shop.folder / "out")
    assert said.code == 2
    assert "job.yaml:" in said.err
    assert message in said.err
    assert not (shop.folder / "out").exists()


@pytest.mark.parametrize(
    "bounds",
    [None, "Auto", 5, {}, {"max_contributions_per_partition": "auto"}, {"max_partitions_contributed": "auto"}],
)
def test_wrong_bounds_are_refused_with_the_hint_to_leave_them_out(shop: Shop, call: Call, bounds: object) -> None:
    said = call("plan", shop.write(stages={"weekly": stage(bounds=bounds, metrics=METRICS)}))
    assert said.code == 2
    assert re.search("leave (it|bounds) out", said.err)


def without_bounds(**changes: Any) -> dict[str, Any]:
    """The shop's stage, without the key."""
    return {key: value for key, value in stage(**changes).items() if key != "bounds"}


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ({}, {"units", "rows"}),
        ({"metrics": {"buyers": {"kind": "privacy_id_count"}}}, {"units"}),
        ({"partition_by": [], "partitions": None}, {"rows"}),
        ({"partition_by": [], "partitions": None, "metrics": {"buyers": {"kind": "privacy_id_count"}}}, set()),
    ],
    ids=["groups", "people", "total", "people in all"],
)
def test_bounds_that_are_left_out_are_the_same_plan_as_the_word(
    shop: Shop, call: Call, changes: dict[str, Any], chosen: set[str]
) -> None:
    changes = {"metrics": METRICS, "partitions": LISTED, **changes}
    given = {key: value for key, value in changes.items() if value is not None}
    plans = []
    for asked in (without_bounds(**given), {**without_bounds(**given), "bounds": "auto"}):
        said = call("plan", shop.write(stages={"weekly": asked}, budget=GENEROUS), "--json")
        assert (said.code, said.err) == (0, "")
        plans.append(json.loads(said.out))
    assert plans[0] == plans[1]
    histograms = {stage["name"]: stage["metrics"] for stage in plans[0]["stages"]}.get("weekly.partitions", {})
    assert set(histograms) == chosen


@needs("sql_select")
def test_bounds_that_are_left_out_of_a_statement_are_chosen_too(shop: Shop, call: Call) -> None:
    fill(shop, 3000, 4, 2)
    select = "SELECT product, count(*) AS orders FROM source GROUP BY ALL"
    asked = {"kind": "aggregate", "select": select, "partitions": LISTED}
    out = shop.folder / "out"
    said = call("run", shop.write(stages={"weekly": asked}, budget=GENEROUS), "--output", out)
    assert (said.code, said.err) == (0, "")
    chosen = {"max_partitions_contributed": 4, "max_contributions_per_partition": 2}
    assert json.loads((out / "bounds.json").read_text()) == {"weekly": chosen}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"best": {"by": "orders", "k": 2}}, "is needed by best.by"),
        ({"partitions": {"private": {"strategy": "sips"}}}, "is sips, which cannot be combined"),
        ({"metrics": {"n": {"kind": "count", "stddev": 9.0}}}, "write a weight instead"),
        ({"metrics": {"q": CHOICE}}, "is a choice, or a norm"),
        ({"rollup": [[], ["product"]]}, "cannot stand beside rollup; write it under bounds"),
    ],
)  # fmt: skip
def test_stages_whose_bounds_no_run_can_choose_are_refused_without_bounds(
    shop: Shop, call: Call, changes: dict[str, Any], message: str
) -> None:
    given = {"metrics": {"orders": {"kind": "count"}}, "partitions": LISTED, **changes}
    said = call("plan", shop.write(stages={"weekly": without_bounds(**given)}))
    assert said.code == 2
    assert message in said.err
    assert "bound" in said.err


def test_the_schema_of_job_files_takes_the_word_alone() -> None:
    of_stage = job_schemas.schema()["$defs"]["Stage"]["properties"]["bounds"]
    assert {"const": "auto", "type": "string"} in of_stage["anyOf"]
