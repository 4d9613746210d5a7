"""`plan` says from how many units on a quantile or a mean is good where one row of each of them counts in a group.

In: jobs over one table. Out: notes. Holds: the sizes are those of the plan with the smaller bound.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

TYPICAL = {
    "half": {"kind": "median", "column": "price", "min_value": 0, "max_value": 50},
    "mean_price": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 50},
    "spread": {"kind": "variance", "column": "price", "min_value": 0, "max_value": 50},
}
COUNTED = {
    "orders": {"kind": "count"},
    "buyers": {"kind": "privacy_id_count"},
    "paid": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 50},
}


def bounds(rows: int) -> dict[str, int]:
    return {"max_partitions_contributed": 3, "max_contributions_per_partition": rows}


def notes(said: Said) -> list[str]:
    assert said.code == 0, said.err
    return [line for line in said.out.splitlines() if "one row of each customer in a group" in line]


def good_from(said: Said) -> dict[str, dict[str, Any]]:
    assert said.code == 0, said.err
    return {name: one["good_from"][0] for name, one in json.loads(said.out)["stages"][0]["metrics"].items()}


@pytest.mark.parametrize("rows", [2, 16])
def test_the_sizes_are_those_of_the_plan_with_one_row(shop: Shop, call: Call, rows: int) -> None:
    little = {"epsilon": 0.3, "delta": 1e-6}
    shop.write(budget=little, stages={"weekly": stage(metrics=TYPICAL, bounds=bounds(rows))})
    (note,) = notes(call("plan", shop.job))
    assert "That is another question, of a typical customer and not of a typical row" in note
    many = good_from(call("plan", shop.job, "--json"))
    shop.write(budget=little, stages={"weekly": stage(metrics=TYPICAL, bounds=bounds(1))})
    one = good_from(call("plan", shop.job, "--json"))
    for name in TYPICAL:
        told = re.search(rf"{name} [^;]* is good from ([0-9,]+) customers on, not from ([0-9,]+) values", note)
        assert told is not None, name
        units, values = (float(text.replace(",", "")) for text in told.groups())
        assert units == pytest.approx(one[name]["least"], rel=0.1)  # two digits are shown, rounded up
        assert values == pytest.approx(many[name]["least"], rel=0.1)
        assert one[name]["least"] == pytest.approx(many[name]["least"] / rows, rel=0.02)


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics": TYPICAL, "bounds": bounds(1)},
        {"metrics": COUNTED, "bounds": bounds(16)},
        {"metrics": TYPICAL, "bounds": {"max_contributions": 16}},
        {"metrics": TYPICAL, "bounds": {"max_partitions_contributed": 3, "max_contributions_per_partition": "auto"}},
    ],
    ids=["one row already", "numbers that are counted", "no bound of a group", "a bound that the run chooses"],
)
def test_nothing_is_said_where_it_would_save_nothing(shop: Shop, call: Call, changes: dict[str, Any]) -> None:
    shop.write(stages={"weekly": stage(**changes)})
    assert notes(call("plan", shop.job)) == []


def test_nothing_is_said_where_small_groups_will_do(shop: Shop, call: Call) -> None:
    metrics = {"mean_price": TYPICAL["mean_price"]}
    shop.write(budget={"epsilon": 30.0, "delta": 1e-6}, stages={"weekly": stage(metrics=metrics, bounds=bounds(2))})
    assert notes(call("plan", shop.job)) == []
