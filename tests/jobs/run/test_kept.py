"""Runs that say what their bounds cut off: the figures are those of the rows, and stand where readers look."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.outputs.published_schemas import published_schemas
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.query import Query
from dp_pipelines.transforms import KeptShares
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
KEPT = {"share": 0.5}
EXACT = {"epsilon": 39.0, "delta": 1e-5}
"""So large a budget that shares are right to a percent."""


def fill(shop: Shop, **columns: Any) -> None:
    """Give the shop one file of 6,000 rows: 1,000 customers with 1, 2, .., 11 rows in turn, half of them in shop a."""
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    sizes = np.arange(1000) % 11 + 1
    customer = np.repeat(np.arange(1000), sizes)
    rows = len(customer)
    table = {
        "customer": customer,
        "product": pa.array([f"p{row % 2}" for row in range(rows)]),
        "price": np.arange(rows) % 25.0,
        **columns,
    }
    pa.parquet.write_table(pa.table(table), shop.folder / "data" / "part-0.parquet")


def figures(shop: Shop, call: Call, out: str = "out", **changes: Any) -> dict[str, Any]:
    """What a run with these changes says."""
    said = call("run", shop.write(**{"budget": EXACT, **changes}), "--output", shop.folder / out, "--ledger", "none")
    assert (said.code, said.err) == (0, ""), said.err
    found: dict[str, Any] = json.loads((shop.folder / out / "kept.json").read_text())
    return found


def facts(kept: dict[str, Any]) -> dict[str, float]:
    return {fact["column"] or fact["fact"]: fact["share"] for fact in kept["facts"]}


def weekly(**changes: Any) -> dict[str, Any]:
    base = {
        "kept": KEPT,
        "bounds": {"max_partitions_contributed": 2, "max_contributions_per_partition": 3},
        "metrics": {"paid": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 19}},
    }
    return {"weekly": stage(**{**base, **changes})}


def test_the_figures_are_those_of_the_rows(shop: Shop, call: Call) -> None:
    fill(shop)
    kept = figures(shop, call, stages=weekly())["weekly"]
    sizes = np.arange(1000) % 11 + 1
    # Rows of a customer alternate between two products: six rows and no fewer have three in each.
    assert kept["whole"]["share"] == pytest.approx((sizes <= 6).mean(), abs=0.02)
    assert kept["rows"]["share"] == pytest.approx(np.minimum(sizes, 6).sum() / sizes.sum(), abs=0.03)
    assert kept["rows"]["at_most"] is False
    (price,) = kept["values"]
    assert (price["column"], price["low"], price["high"]) == ("price", 0.0, 19.0)
    assert price["above"]["share"] == pytest.approx(0.2, abs=0.06)  # one row of each of 1,000 customers
    assert price["below"]["share"] == pytest.approx(0, abs=0.02)
    assert facts(kept) == pytest.approx({"product": 1.0, "price": 1.0}, abs=0.02)
    assert 0 < kept["stddev"] < 10


def test_they_stand_in_manifest_summary_and_report_and_no_table_is_published(shop: Shop, call: Call) -> None:
    fill(shop)
    said = call("run", shop.write(budget=EXACT, stages=weekly()), "--output", shop.folder / "out", "--ledger", "none")
    out = shop.folder / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "kept.json",
        "manifest.json",
        "report.html",
        "weekly.parquet",
    ]
    manifest = json.loads((out / "manifest.json").read_text())
    (described,) = manifest["stages"]
    assert described["kept"] == json.loads((out / "kept.json").read_text())["weekly"]
    assert {record["stage"] for record in manifest["mechanisms"]} == {"weekly", "weekly.kept"}
    told = [
        "at most 3 rows of one customer are counted in each group by product",
        "at most 2 groups by product are counted of one customer",
        "price below 0 counts as 0, above 19 as 19",
        "fall wholly within the limits",
        "of one row of each",
    ]
    page = (out / "report.html").read_text(encoding="utf-8")
    for sentence in told:
        assert sentence in said.out.replace("\n", " ")
        assert sentence in page


def test_ranges_hold_the_truth_with_the_share_of_their_own_stage_and_metric(shop: Shop, call: Call) -> None:
    fill(shop)
    price = {"column": "price", "min_value": 0, "max_value": 19}
    metrics = {
        "orders": {"kind": "count"},
        "people": {"kind": "privacy_id_count"},
        "paid": {"kind": "sum", **price},
        "basket": {"kind": "mean", **price},
        "middle": {"kind": "median", **price},
    }
    kept = {"share": 0.5, "each_metric": True}
    bounds = {"max_partitions_contributed": 2, "max_contributions_per_partition": 4}
    stages = {
        **weekly(metrics=metrics, kept=kept, bounds=bounds),
        "tight": stage(metrics=metrics, kept=kept, bounds={"max_contributions": 6}),
    }
    said = call("run", shop.write(budget=EXACT, stages=stages), "--output", shop.folder / "out", "--ledger", "none")
    assert (said.code, said.err) == (0, "")
    rows = pa.parquet.read_table(shop.folder / "data" / "part-0.parquet").to_pandas().groupby("product")
    truth = {
        "orders": rows.size(), "people": rows.customer.nunique(), "paid": rows.price.sum(), "basket": rows.price.mean()
    }  # fmt: skip
    manifest = json.loads((shop.folder / "out" / "manifest.json").read_text())
    for described in manifest["stages"]:
        table = pa.parquet.read_table(shop.folder / "out" / f"{described['name']}.parquet")
        released = table.to_pandas().set_index("product")
        for name, true in truth.items():
            low, high, estimate = (released[f"{name}_{part}"] for part in ("low", "high", "estimate"))
            # Where nothing is cut off a range is little more than the 95% of the noise: 7 further standard deviations of it are
            # passed once in 10^11 numbers.
            beside = 7 * released[f"{name}_stddev"]
            assert ((low - beside < true) & (true < high + beside)).all(), (described["name"], name)
            assert (low < estimate).all()
            assert (estimate < high).all()
            assert (abs(estimate - true) < 0.12 * true).all()
        assert table.column("middle_low").null_count == table.column("middle_high").null_count == 2
        entries = {name: entry["kept"] for name, entry in described["metrics"].items()}
        figures = described["kept"]
        assert entries["orders"]["share"] == figures["rows"]["share"]
        assert entries["people"]["share"] == figures["groups"]["share"]
        assert entries["paid"]["share"] == entries["basket"]["share"] == figures["sums"][0]["share"]
        assert entries["basket"]["share_of_rows"] == figures["rows"]["share"]
        assert entries["middle"]["why"]
    wide, tight = (described["kept"] for described in manifest["stages"])
    assert tight["rows"]["share"] < wide["rows"]["share"] - 0.05
    page = (shop.folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "has a range for the true number: noise, and what the limits cut off, if no group loses" in page
    assert "what the limits cut off was not measured" not in page
    assert "likely" in said.out.partition("±")[0]


def test_limits_without_kept_are_said_not_to_be_measured(shop: Shop, call: Call) -> None:
    said = call("run", shop.write(), "--output", shop.folder / "out", "--ledger", "none")
    assert said.code == 0
    assert "what the limits cut off was not measured" in said.out.replace("\n", " ")
    assert "what the limits cut off was not measured" in (shop.folder / "out" / "report.html").read_text(
        encoding="utf-8"
    )


def test_columns_of_ranges_are_known_before_a_row_is_read() -> None:
    rows = pa.schema([("product", pa.string())])
    (columns,) = published_schemas({"s": query(kept=dp.Kept(share=0.1))}, {"s": rows}).values()
    assert columns.names == ["product", "orders", "orders_stddev", "orders_estimate", "orders_low", "orders_high"]


def test_a_column_that_a_wrong_declaration_makes_wholly_null_is_seen(shop: Shop, call: Call) -> None:
    rows = 2000
    text = "customer,product,price,sold\n" + "".join(
        f"{n % 500},p{n % 2},{n % 9},2026/01/{n % 9 + 1}\n" for n in range(rows)
    )
    (shop.folder / "rows.csv").write_text(text)
    types = {"customer": "int64", "product": "string", "price": "double", "sold": "timestamp"}
    stages = weekly(partition_by=["product", "day"])
    columns = {"day": "date_trunc('day', sold)"}
    changes = {"source": {"csv": "rows.csv", "types": types}, "columns": columns, "stages": stages}
    kept = figures(shop, call, **changes)["weekly"]
    assert facts(kept) == pytest.approx({"product": 1.0, "day": 0.0, "price": 1.0}, abs=0.05)
    assert "day looks wholly null: check its type and format" in (shop.folder / "out" / "report.html").read_text()


def test_rows_are_looked_at_before_where_and_the_lookup(shop: Shop, call: Call) -> None:
    fill(shop)
    listed = pa.table({"product": ["p0", "p9"], "family": ["f", None]})
    pa.parquet.write_table(listed, shop.folder / "families.parquet")
    stages = weekly(partition_by=["family"])
    lookup = {"parquet": "families.parquet", "on": "product"}
    kept = figures(shop, call, where="price >= 5", lookup=lookup, stages=stages)["weekly"]
    found = facts(kept)
    assert found["where"] == pytest.approx(0.8, abs=0.06)
    assert found["lookup"] == pytest.approx(0.5, abs=0.08)
    assert found["family"] == found["lookup"] or abs(found["family"] - found["lookup"]) < 0.02
    assert found["price"] == pytest.approx(1.0, abs=0.02)


def test_rows_without_a_unit_are_in_no_figure(shop: Shop, call: Call) -> None:
    sizes = np.arange(1000) % 11 + 1
    customer = np.repeat(np.arange(1000), sizes)
    fill(shop, customer=pa.array(customer, mask=customer % 2 == 0))
    kept = figures(shop, call, stages=weekly())["weekly"]
    assert sum(kept["counts"]["whole"]) == pytest.approx(500, abs=30)


@pytest.mark.parametrize(
    ("bounds", "whole"),
    [
        ({"max_contributions": 6}, 6),
        (
            {
                "max_partitions_contributed": "auto",
                "partition_candidates": [1, 2],
                "max_contributions_per_partition": 3,
            },
            6,
        ),
    ],
)
def test_all_kinds_of_bounds_have_figures(shop: Shop, call: Call, bounds: dict[str, Any], whole: int) -> None:
    fill(shop)
    kept = figures(shop, call, stages=weekly(bounds=bounds))["weekly"]
    assert kept["whole"]["share"] == pytest.approx((np.arange(1000) % 11 + 1 <= whole).mean(), abs=0.03)


def test_where_rows_are_not_bounded_all_rows_of_a_kept_partition_count(shop: Shop, call: Call) -> None:
    fill(shop)
    bounds, metrics = {"max_partitions_contributed": 1}, {"buyers": {"kind": "privacy_id_count"}}
    kept = figures(shop, call, stages=weekly(bounds=bounds, metrics=metrics))["weekly"]
    assert kept["whole"]["share"] == pytest.approx(1 / 11, abs=0.02)  # customers with one row are in one partition
    assert 0.4 < kept["rows"]["share"] < 0.6
    assert kept["values"] == []


@pytest.mark.usefixtures("rows_alone_pass_for_rows")
def test_bounds_that_the_run_chooses_are_those_that_are_compared(shop: Shop, call: Call) -> None:
    fill(shop)
    auto = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 10000]}
    kept = figures(shop, call, stages=weekly(metrics={"paid": auto}))["weekly"]
    chosen = json.loads((shop.folder / "out" / "bounds.json").read_text())["weekly"]["paid"]
    (price,) = kept["values"]
    assert [price["low"], price["high"]] == chosen
    assert price["high"] < 100


def test_partitions_that_are_listed_or_selected_in_rounds_have_figures(shop: Shop, call: Call) -> None:
    fill(shop)
    for name, partitions in (("listed", {"public": [["p0"]]}), ("rounds", {"private": {"strategy": "sips"}})):
        kept = figures(shop, call, name, stages=weekly(partitions=partitions))["weekly"]
        assert kept["whole"]["share"] is not None
        # Of a listed partition, rows elsewhere are no loss; in rounds, the limits hold before any partition is selected.
        expected = 0.9 if name == "listed" else 6 / 11
        assert kept["whole"]["share"] == pytest.approx(expected, abs=0.45 if name == "listed" else 0.02)
    alone = weekly(partitions={"private": {"strategy": "sips"}}, metrics={})
    assert figures(shop, call, "alone", stages=alone)["weekly"]["whole"]["share"] == pytest.approx(6 / 11, abs=0.02)


def test_nothing_at_all_gives_unknown_shares(shop: Shop, call: Call) -> None:
    fill(shop, customer=pa.nulls(int((np.arange(1000) % 11 + 1).sum()), pa.int64()))
    kept = figures(shop, call, stages=weekly())["weekly"]
    assert kept["whole"] == {"share": None, "stddev": None}
    assert set(facts(kept).values()) == {None}


def test_each_run_of_a_budget_has_its_own_figures_and_the_same_run_the_same(shop: Shop, call: Call) -> None:
    fill(shop)
    path = shop.write(budget={**EXACT, "runs": 2}, stages=weekly())
    for name in ("one", "two"):
        assert call("run", path, "--output", shop.folder / name, "--run-id", name).code == 0
    said = call("run", path, "--output", shop.folder / "one", "--run-id", "one")
    assert "its release is unchanged" in said.out
    first, second = (json.loads((shop.folder / name / "kept.json").read_text()) for name in ("one", "two"))
    assert first["weekly"]["counts"] != second["weekly"]["counts"]
    assert call("run", path, "--output", shop.folder / "three", "--run-id", "three").code == 3


def test_plan_prints_its_price_and_tells_no_other_stage_apart(shop: Shop, call: Call) -> None:
    said = call("plan", shop.write(stages=weekly()))
    assert "weekly.kept · share 50%" in said.out
    assert "what the limits of weekly cut off: shares of customers, within 5 percentage points from" in said.out
    described = json.loads(call("plan", shop.write(stages=weekly()), "--json").out)["stages"]
    assert [entry["name"] for entry in described] == ["weekly", "weekly.kept"]
    assert described[1]["kept"]["of"] == "weekly"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kept": {"share": 0}}, "stages.weekly.kept.share: must be a finite number above 0 and below 1"),
        ({"kept": {"share": 1}}, "stages.weekly.kept.share: must be a finite number above 0 and below 1"),
        ({"kept": {}}, "stages.weekly.kept.share: is missing"),
        ({"kept": {"share": 0.1, "up_to": 1}}, "stages.weekly.kept.up_to: must be a whole number from 2"),
        ({"kept": {"share": 0.1, "filters": ["where"]}}, "stages.weekly.kept.filters: unknown key"),
        ({"where": "price > 3"}, "stages.weekly.kept: cannot be combined with unit_columns"),
        ({"unit_columns": {"n": "count(*) OVER ()"}}, "stages.weekly.kept: cannot be combined with unit_columns"),
        (
            {"best": {"k": 1, "by": "paid"}, "partitions": {"public": [["p0"], ["p1"]]}},
            "stages.weekly.kept: is not for a stage that chooses the best partitions",
        ),
    ],
)
def test_what_cannot_be_told_is_refused_with_line_and_hint(shop: Shop, call: Call, changes: Any, told: str) -> None:
    said = call("plan", shop.write(stages=weekly(**changes)))
    assert said.code == 2
    assert told in said.err
    assert "job.yaml:" in said.err
    assert ";" in said.err.split(told, 1)[1]


def test_each_metric_is_true_or_false(shop: Shop, call: Call) -> None:
    said = call("plan", shop.write(stages=weekly(kept={"share": 0.1, "each_metric": 1})))
    assert said.code == 2
    assert "job.yaml:" in said.err
    assert "stages.weekly.kept.each_metric: must be true or false" in said.err
    with pytest.raises(RequestError, match="must be true or false; write each_metric: true"):
        dp.Kept(share=0.1, each_metric=1)


def test_it_is_refused_for_a_train_stage(shop: Shop, call: Call) -> None:
    train = {
        "kind": "train", "kept": KEPT, "label": {"kind": "number", "column": "price", "min_value": 0, "max_value": 20},
        "features": {"store": {"kind": "number", "min_value": 0, "max_value": 9}},
    }  # fmt: skip
    said = call("plan", shop.write(stages={"model": train}))
    assert said.code == 2
    assert "stages.model.kept: unknown key" in said.err


def query(**changes: Any) -> Query:
    fields: dict[str, Any] = {
        "privacy_unit": "customer",
        "partition_by": "product",
        "bounds": dp.ContributionBounds(max_contributions=4),
        "metrics": {"orders": dp.Count()},
    }
    return Query(**{**fields, **changes})


def test_a_plan_without_it_keeps_its_digest_and_one_with_it_has_another() -> None:
    plain, kept = (
        Plan(epsilon=1, delta=1e-6, stages={"s": asked}) for asked in (query(), query(kept=dp.Kept(share=0.1)))
    )
    assert plain.digest == Plan(epsilon=1, delta=1e-6, stages={"s": query(kept=None)}).digest != kept.digest
    assert list(kept.stages) == ["s", "s.kept"]
    said = dp.Kept(share=0.1, each_metric=False, clamped=None, summed=None)
    assert Plan(epsilon=1, delta=1e-6, stages={"s": query(kept=said)}).digest == kept.digest
    (record,) = kept["s.kept"].mechanisms
    assert (record.kind, record.l0) == ("gaussian", kept["s.kept"].statistics[0].width)


def test_another_stage_of_that_name_is_refused() -> None:
    with pytest.raises(RequestError, match="is what the kept rows of 's' are called"):
        Plan(epsilon=1, delta=1e-6, stages={"s": query(kept=dp.Kept(share=0.1)), "s.kept": query()})


def test_a_session_tells_it_too(shop: Shop, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shop)
    monkeypatch.chdir(tmp_path)
    shop.without_ledger()
    session = dp.Session(
        str(shop.folder / "data"), privacy_unit="customer", dataset="notebook", epsilon=39, delta=1e-5,
        ledger=None, releases=tmp_path / "releases",
    )  # fmt: skip
    release = session.query(query(kept=dp.Kept(share=0.5)), name="orders", epsilon=20, where="price >= 5", show=False)
    (described,) = release.manifest["stages"]
    assert facts(described["kept"])["where"] == pytest.approx(0.8, abs=0.08)
    assert "fall wholly within the limits" in repr(release)


def test_cells_stay_those_of_the_plan_if_a_smaller_bound_is_chosen(shop: Shop, call: Call) -> None:
    fill(shop, product=["p"] * 5995)
    bounds = {
        "max_partitions_contributed": "auto",
        "partition_candidates": [1, 64],
        "max_contributions_per_partition": 3,
    }
    kept = figures(shop, call, stages=weekly(bounds=bounds))["weekly"]
    sizes = np.arange(1000) % 11 + 1
    manifest = json.loads((shop.folder / "out" / "manifest.json").read_text())
    assert manifest["stages"][0]["max_partitions_contributed"] == 1
    assert kept["whole"]["share"] == pytest.approx((sizes <= 3).mean(), abs=0.02)
    assert kept["rows"]["share"] == pytest.approx(np.minimum(sizes, 3).sum() / sizes.sum(), abs=0.05)


def test_a_total_that_reads_no_column_has_figures(shop: Shop, call: Call) -> None:
    fill(shop)
    job = {"kind": "aggregate", "partition_by": [], "kept": KEPT, "metrics": {"orders": {"kind": "count"}}}
    kept = figures(shop, call, stages={"all": {**job, "bounds": {"max_contributions_per_partition": 4}}})["all"]
    sizes = np.arange(1000) % 11 + 1
    assert kept["whole"]["share"] == pytest.approx((sizes <= 4).mean(), abs=0.02)
    assert kept["facts"] == []


def test_the_stages_of_two_plans_are_told_apart() -> None:
    query = Query(
        privacy_unit="u",
        partition_by="k",
        kept=dp.Kept(share=0.1),
        metrics={"rows": dp.Count()},
        bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
    )
    one, other = (Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query}) for _ in range(2))
    KeptShares(one["weekly"], one["weekly.kept"])
    with pytest.raises(RequestError, match="must be the stage of the same plan"):
        KeptShares(other["weekly"], one["weekly.kept"])
