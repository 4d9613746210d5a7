"""Runs that compare the arms of a test: the figures are those of the rows, and stand where readers look."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.compare import number_columns
from tests.helpers import quiet
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]
EXACT = {"epsilon": 39.0, "delta": 1e-5}
"""So large a budget that intervals are those of the sampling of units."""

CUSTOMERS = 2000


def rows() -> pa.Table:
    """Of 2,000 customers half in each arm; in arm B each order is one dearer."""
    made = np.random.default_rng(3)
    orders = made.integers(1, 4, CUSTOMERS)
    customer = np.repeat(np.arange(CUSTOMERS), orders)
    arm = np.where(customer % 2, "B", "A")
    price = made.exponential(5.0, len(customer)) + (arm == "B")
    return pa.table({"customer": customer, "product": pa.array(arm), "price": price})


def fill(shop: Shop, table: pa.Table) -> None:
    """Give the shop one file."""
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    pa.parquet.write_table(table, shop.folder / "data" / "part-0.parquet")


def arms(**changes: Any) -> dict[str, Any]:
    """A stage that compares arms, with some keys changed."""
    stage: dict[str, Any] = {
        "kind": "aggregate",
        "partition_by": ["product"],
        "partitions": {"public": [["A"], ["B"]]},
        "bounds": {"max_partitions_contributed": 1, "max_contributions_per_partition": 3},
        "metrics": {
            "orders": {"kind": "count"},
            "users": {"kind": "privacy_id_count"},
            "paid": {"kind": "sum", "column": "price", "min_sum_per_partition": 0, "max_sum_per_partition": 100},
            "basket": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 50},
        },
        "compare": {"by": "product", "baseline": "A", "metrics": ["orders", "paid", "basket", "paid / orders"]},
    }
    return {"test": {**stage, **changes}}


def compared(shop: Shop, call: Call, out: str = "out", **changes: Any) -> dict[str, dict[str, Any]]:
    """The row of each metric of a run with these changes, by its name."""
    job = shop.write(**{"budget": EXACT, "stages": arms(), **changes})
    said = call("run", job, "--output", shop.folder / out, "--ledger", "none")
    assert (said.code, said.err) == (0, ""), said.err
    table = pa.parquet.read_table(shop.folder / out / "test.compare.parquet")
    return {f"{row['product']} {row['metric']}": row for row in table.to_pylist()}


def test_values_and_intervals_are_those_of_the_rows(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shop, table := rows())
    quiet.silence(monkeypatch)
    found = compared(shop, call)
    by_unit = table.group_by(["customer", "product"]).aggregate([("price", "sum"), ("price", "count")])
    in_arm = {arm: by_unit.filter(pa.compute.equal(by_unit["product"], arm)) for arm in "AB"}
    paid = {arm: part["price_sum"].to_numpy() for arm, part in in_arm.items()}
    count = {arm: part["price_count"].to_numpy() for arm, part in in_arm.items()}

    row = found["B paid"]
    assert row["value"] == pytest.approx(paid["B"].mean(), rel=1e-3)
    assert row["baseline_value"] == pytest.approx(paid["A"].mean(), rel=1e-3)
    assert row["difference"] == pytest.approx(row["value"] - row["baseline_value"])
    half = 1.96 * math.hypot(*(values.std() / math.sqrt(len(values)) for values in paid.values()))
    assert row["difference_high"] - row["difference"] == pytest.approx(half, rel=0.15)
    assert row["ratio_low"] < row["ratio"] < row["ratio_high"]

    each = found["B paid / orders"]
    assert each["value"] == pytest.approx(paid["B"].sum() / count["B"].sum(), rel=1e-3)
    quotient = {arm: paid[arm].sum() / count[arm].sum() for arm in "AB"}
    residuals = {arm: paid[arm] - quotient[arm] * count[arm] for arm in "AB"}
    parts = [math.sqrt((residuals[arm] ** 2).sum()) / count[arm].sum() for arm in "AB"]
    assert each["difference_high"] - each["difference"] == pytest.approx(1.96 * math.hypot(*parts), rel=0.15)
    assert found["B basket"]["value"] == pytest.approx(each["value"], rel=1e-3)
    assert found["B orders"]["value"] == pytest.approx(count["B"].mean(), rel=1e-3)


def test_summary_manifest_and_page_say_what_was_compared(shop: Shop, call: Call) -> None:
    fill(shop, rows())
    said = call("run", shop.write(budget=EXACT, stages=arms()), "--output", shop.folder / "out", "--ledger", "none")
    assert "paid of B against A: " in said.out
    assert "95% intervals of noise and of the sampling of units together" in said.out
    (stage,) = json.loads((shop.folder / "out" / "manifest.json").read_text())["stages"]
    assert stage["compare"]["baseline"] == "A"
    assert [row["metric"] for row in stage["compare"]["rows"]] == ["basket", "orders", "paid", "paid / orders"]
    page = (shop.folder / "out" / "report.html").read_text()
    assert "Arms against" in page
    assert "Ratios to A with 95% intervals" in page
    assert "test.compare</bdi></h2>" not in page  # it is no stage of its own


def test_intervals_of_the_noise_alone_are_named_so_and_pay_for_no_squares(shop: Shop, call: Call) -> None:
    fill(shop, rows())
    stages = arms(compare={"by": "product", "baseline": "A", "metrics": ["paid"], "intervals": "noise"})
    found = compared(shop, call, stages=stages)["B paid"]
    assert set(number_columns("noise")) < set(found)
    assert "difference_low" not in found
    wide = compared(shop, call, out="wide")["B paid"]
    assert found["difference_noise_high"] - found["difference"] < 0.3 * (wide["difference_high"] - wide["difference"])
    page = (shop.folder / "out" / "report.html").read_text()
    assert "95% intervals of the noise alone" in page
    manifest = json.loads((shop.folder / "out" / "manifest.json").read_text())
    assert not any("unit_products" in record["name"] for record in manifest["mechanisms"])


def test_an_arm_without_rows_is_a_dash(shop: Shop, call: Call) -> None:
    fill(shop, rows())
    found = compared(shop, call, stages=arms(partitions={"public": [["A"], ["B"], ["nobody"]]}))
    numbers = [found["nobody paid"][name] for name in number_columns("population") if name != "baseline_value"]
    assert numbers == [None] * len(numbers)
    assert found["B paid"]["ratio"] is not None


def test_a_baseline_without_rows_is_dashes_and_no_error(shop: Shop, call: Call) -> None:
    fill(shop, rows())
    stages = arms(
        partitions={"public": [["A"], ["B"], ["nobody"]]},
        compare={"by": "product", "baseline": "nobody", "metrics": ["paid", "paid / orders"]},
    )
    found = compared(shop, call, stages=stages)
    assert {row["difference"] for row in found.values()} == {None}


@pytest.mark.parametrize("budget", [{"epsilon": 0.01, "delta": 1e-9}, {"epsilon": 0.5, "delta": 0}])
@pytest.mark.parametrize("table", [rows().slice(0, 0), rows()], ids=["no rows", "rows"])
def test_no_rows_and_any_noise_end_no_run(shop: Shop, call: Call, table: pa.Table, budget: dict[str, float]) -> None:
    fill(shop, table)
    assert len(compared(shop, call, budget=budget)) == 4


def test_negative_totals_are_numbers_as_others(shop: Shop, call: Call) -> None:
    table = rows()
    fill(shop, table.set_column(2, "price", pa.compute.negate(table["price"])))
    paid = {"kind": "sum", "column": "price", "min_sum_per_partition": -100, "max_sum_per_partition": 0}
    stages = arms(metrics={"paid": paid}, compare={"by": "product", "baseline": "A", "metrics": ["paid"]})
    row = compared(shop, call, stages=stages)["B paid"]
    assert row["value"] < row["baseline_value"] < 0
    assert 1 < row["ratio_low"] < row["ratio"] < row["ratio_high"]


def test_a_unit_in_both_arms_counts_in_one(shop: Shop, call: Call) -> None:
    customer = np.repeat(np.arange(4000), 2)
    arm = pa.array(["A", "B"] * 4000)
    fill(shop, pa.table({"customer": customer, "product": arm, "price": np.ones(len(customer))}))
    stages = arms(
        bounds={"max_partitions_contributed": 2, "max_contributions_per_partition": 3},
        compare={"by": "product", "baseline": "A", "metrics": ["orders"]},
    )
    row = compared(shop, call, stages=stages)["B orders"]
    assert row["value"] == pytest.approx(1.0, abs=0.01)


def test_plan_says_which_differences_it_finds(shop: Shop, call: Call) -> None:
    expect = {"users": 1000, "rows_per_partition": 2000, "totals": {"paid": [10, 8]}}
    said = call("plan", shop.write(budget=EXACT, stages=arms(), expect=expect))
    assert "with 1,000 units in each arm, 80 of 100 tests find" in said.out
    told = json.loads(call("plan", shop.job, "--json").out)
    (stage,) = [stage for stage in told["stages"] if stage["name"] == "test.compare"]
    paid = stage["compare"]["metrics"]["paid"]
    assert paid["difference_without_noise"] == pytest.approx(2.8016 * math.sqrt(2 / 1000) * 8, rel=1e-4)
    assert paid["difference_without_noise"] < paid["difference"] < 1.2 * paid["difference_without_noise"]
    without = call("plan", shop.write(budget=EXACT, stages=arms()))
    assert "declare e.g. expect: {users: 10000" in without.out


COMPARE = {"by": "product", "baseline": "A", "metrics": ["paid"]}


@pytest.mark.parametrize(
    ("changes", "place", "rule"),
    [
        ({"compare": {**COMPARE, "by": "prduct"}}, "compare.by", "must name the column of partition_by"),
        ({"compare": {**COMPARE, "baseline": "C"}}, "compare.baseline", "is none of the public partitions"),
        ({"compare": {**COMPARE, "metrics": ["piad"]}}, "compare.metrics", "which this stage does not release"),
        ({"compare": {**COMPARE, "metrics": ["users"]}}, "compare.metrics", "no total or mean of what units add"),
        ({"compare": {**COMPARE, "metrics": ["paid / paid"]}}, "compare.metrics", "divide a number by itself"),
        ({"compare": {**COMPARE, "metrics": ["basket / orders"]}}, "compare.metrics", "which is a quotient already"),
        ({"compare": {**COMPARE, "metrics": ["paid / orders / orders"]}}, "compare.metrics", "divide more than once"),
        ({"compare": {**COMPARE, "metrics": ["paid", "paid"]}}, "compare.metrics", "different ones"),
        ({"compare": {**COMPARE, "metrics": []}}, "compare.metrics", "different ones"),
        ({"compare": {**COMPARE, "share": 1}}, "compare.share", "must be a finite number"),
        ({"compare": {**COMPARE, "intervals": "all"}}, "compare.intervals", "must be"),
        ({"compare": {**COMPARE, "base": "A"}}, "compare.base", "unknown key"),
        ({"partitions": {"private": {}}}, "compare", "needs public partitions"),
        ({"partitions": {"public": [["A"]]}}, "compare", "needs 2 to 100 public partitions"),
        ({"partition_by": ["product", "store"], "partitions": {"public": [["A", 1], ["B", 1]]}}, "compare.by", "whole arms"),
        ({"partition_by": []}, "compare.by", "must name the column of partition_by"),
        ({"kept": {"share": 0.5}}, "compare.share", "leave nothing of the stage's budget"),
        ({"top": {"k": 1, "by": "paid"}}, "top", "beside compare"),
        (
            {"metrics": {"paid": {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 9]}}},
            "compare.metrics",
            "whose bounds are no numbers",
        ),
        (
            {"metrics": {"paid": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 1e60}}},
            "compare.metrics",
            "may be above 1e100, or vanish",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused_with_its_place(
    shop: Shop, call: Call, changes: dict[str, Any], place: str, rule: str
) -> None:
    stages = arms(**{"compare": COMPARE, **changes})
    if changes.get("partition_by") == []:
        del stages["test"]["partitions"]
    said = call("plan", shop.write(stages=stages))
    assert said.code == 2
    assert "job.yaml:" in said.err
    assert f"stages.test.{place}" in said.err, said.err
    assert rule in said.err, said.err


@pytest.mark.parametrize(
    ("totals", "rule"),
    [({"paid": [1]}, "must be two numbers"), ({"paid": [1, -2]}, "must be a finite number")],
)
def test_a_wrong_guess_is_refused(shop: Shop, call: Call, totals: dict[str, Any], rule: str) -> None:
    said = call("plan", shop.write(stages=arms(), expect={"users": 10, "totals": totals}))
    assert said.code == 2
    assert "expect.totals.paid" in said.err
    assert rule in said.err


def test_a_stage_may_not_be_called_as_its_arms_are(shop: Shop, call: Call) -> None:
    stages = {**arms(), "test.compare": arms(compare=None)["test"]}
    del stages["test.compare"]["compare"]
    said = call("plan", shop.write(stages=stages))
    assert said.code == 2
    assert "is what the compared arms of 'test' are called" in said.err


def test_made_up_rows_are_compared_too(shop: Shop, call: Call) -> None:
    said = call("run", shop.write(stages=arms()), "--synthetic", "--output", shop.folder / "out")
    assert said.code == 0, said.err
    table = pa.parquet.read_table(shop.folder / "out" / "test.compare.parquet")
    assert table.schema.metadata[b"dp_pipelines"] == b"made-up rows"


@pytest.mark.usefixtures("rare_false_alarms")
def test_the_audit_of_a_comparison_finds_nothing(shop: Shop, call: Call) -> None:
    said = call("audit", shop.write(stages=arms()), "--replays", "20000")
    assert said.code == 0, said.out + said.err


def test_a_run_with_a_ledger_is_the_same_release_again(shop: Shop, call: Call) -> None:
    fill(shop, rows())
    job = shop.write(budget=EXACT, stages=arms())
    for again in (False, True):
        said = call("run", job, "--output", shop.folder / "out", "--run-id", "w1")
        assert said.code == 0, said.err
        assert ("unchanged" in said.out) == again


def test_plans_without_a_comparison_have_the_queries_that_they_had() -> None:
    base: dict[str, Any] = {
        "privacy_unit": "u", "partition_by": "arm", "partitions": dp.PublicPartitions(keys=[("A",), ("B",)]),
        "bounds": dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        "metrics": {"orders": dp.Count()},
    }  # fmt: skip
    compare = dp.Compare(by="arm", baseline="A", metrics=["orders"])
    plain, with_arms = (
        Plan(epsilon=1, delta=1e-6, stages={"s": dp.Query(**base, **more)}) for more in ({}, {"compare": compare})
    )
    assert list(plain) == ["s"]
    assert list(with_arms) == ["s", "s.compare"]
    assert plain.digest != with_arms.digest
    with pytest.raises(RequestError, match="compare: must be a Compare"):
        dp.Query(**base, compare={"by": "arm"})


def test_a_run_says_one_verdict_and_the_page_has_it_too(shop: Shop, call: Call) -> None:
    fill(shop, rows())
    job = shop.write(budget={"epsilon": 2.0, "delta": 1e-6}, stages=arms())
    said = call("run", job, "--output", shop.folder / "out", "--ledger", "none")
    words = " ".join(said.out.split())
    assert "of 4 comparisons show" in words
    assert "no difference was found; such a test finds one of about" in words
    page = " ".join((shop.folder / "out" / "report.html").read_text().split())
    assert "no difference was found; such a test finds one of about" in page
    assert "no clear difference; finds" in page


def test_a_plan_takes_the_units_of_each_arm(shop: Shop, call: Call) -> None:
    expect = {"arms": {"A": 300, "B": 4000}, "totals": {"paid": [10, 8]}}
    said = call("plan", shop.write(budget=EXACT, stages=arms(), expect=expect))
    assert "with 4,000 units in B and 300 in A, 80 of 100 tests find" in said.out
    told = json.loads(call("plan", shop.job, "--json").out)
    (stage,) = [stage["compare"] for stage in told["stages"] if stage["name"] == "test.compare"]
    (arm,) = stage["by_arm"]
    without = 2.8016 * math.sqrt(1 / 300 + 1 / 4000) * 8
    assert arm["metrics"]["paid"]["difference_without_noise"] == pytest.approx(without, rel=1e-4)


@pytest.mark.parametrize(
    ("expect", "place", "rule", "hint"),
    [
        ({"arms": {"A": 10, "b": 10}}, "expect.arms.b", "is no arm that a stage compares", "did you mean 'B'?"),
        ({"arms": {"A": 10}}, "expect.arms", "says nothing of arm 'B'", "add B: and its number of units"),
        ({"arms": {"A": -1, "B": 10}}, "expect.arms.A", "must be above 0", ""),
        ({"arms": {}}, "expect.arms", "", ""),
        ({"positives": 5}, "expect.positives", "must be below 1", ""),
    ],
)
def test_wrong_guesses_are_refused_where_they_stand(
    shop: Shop, call: Call, expect: dict[str, Any], place: str, rule: str, hint: str
) -> None:
    said = call("plan", shop.write(budget=EXACT, stages=arms(), expect=expect))
    assert said.code == 2
    for part in (place, rule, hint):
        assert part in said.err


def test_arms_that_yaml_reads_as_numbers_are_named_as_they_are(shop: Shop, call: Call) -> None:
    fill(shop, rows().set_column(1, "product", pa.array(rows().column("customer").to_numpy() % 2)))
    stages = arms(partitions={"public": [[0], [1]]}, compare={"by": "product", "baseline": 0, "metrics": ["orders"]})
    expect = {"arms": {"0": 300, "1": 4000}, "users": 5, "rows_per_partition": 10}
    said = call("plan", shop.write(budget=EXACT, stages=stages, expect=expect))
    assert "with 4,000 units in 1 and 300 in 0, 80 of 100 tests find" in said.out, said.err
