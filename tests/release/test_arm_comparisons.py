"""Comparisons of arms: each number is that of a plain program over the released sums, whatever the order of the arms.

In: made-up sums of three arms, stages with noise of each law. Out: rows, and what the manifest says of them. Holds: every
comparison is exact, or true to rounding. Not covered: the formulas (test_arm_estimates.py); whole runs.
"""

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import Compare, ContributionBounds, Count, Plan, PublicPartitions, Query, Sum
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.compare import Intervals
from dp_pipelines.release import arm_comparisons
from dp_pipelines.release.arm_estimates import ArmSum, Contrast, Sampling, differences, quotients, ratios

METRICS = ["paid", "orders", "paid / orders"]
SUMS: dict[str, list[float]] = {
    "arm": ["C", "A", "B"],  # type: ignore[list-item]
    "units": [4000.0, 5000.0, 2500.0],
    "paid": [61_000.0, 70_000.0, 40_000.0],
    "orders": [9000.0, 11_000.0, 4500.0],
    "paid x paid": [1_400_000.0, 1_500_000.0, 900_000.0],
    "orders x orders": [23_000.0, 26_000.0, 9000.0],
    "orders x paid": [160_000.0, 170_000.0, 80_000.0],
}
"""What is known of each arm, by names for readers: totals over units, of squares, of products."""

NAMES = {
    "total_0": "paid",
    "total_1": "orders",
    "product_0_0": "paid x paid",
    "product_1_1": "orders x orders",
    "product_1_0": "orders x paid",
    "units": "units",
}
"""What the released columns of these totals are called."""

PARTS: dict[str, tuple[str, str, tuple[str, str, str]]] = {
    "paid": ("paid", "units", ("paid x paid", "paid", "units")),
    "orders": ("orders", "units", ("orders x orders", "orders", "units")),
    "paid / orders": ("paid", "orders", ("paid x paid", "orders x paid", "orders x orders")),
}
"""Of each metric: what is divided, by what, and the sums of squares and products behind its sampling."""


def query(intervals: Intervals = "population", baseline: Any = "A", **changes: Any) -> Query:
    """A query that compares three arms."""
    declared: dict[str, Any] = {
        "privacy_unit": "customer",
        "partition_by": "arm",
        "partitions": PublicPartitions(keys=[("A",), ("B",), ("C",)]),
        "bounds": ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=4),
        "metrics": {"orders": Count(), "paid": Sum("price", min_sum_per_partition=0, max_sum_per_partition=200)},
        "compare": Compare(by="arm", baseline=baseline, metrics=METRICS, intervals=intervals),
    }
    return Query(**declared | changes)


def stage_of(asked: Query, delta: float = 1e-6) -> StagePlan:
    """The stage of the sums."""
    return Plan(epsilon=1.0, delta=delta, stages={"test": asked})["test.compare"]


def released(
    stage: StagePlan, order: tuple[int, ...] = (0, 1, 2), sums: dict[str, list[Any]] | None = None
) -> pa.Table:
    """The released sums of the arms, in an order."""
    known = SUMS if sums is None else sums
    columns = {name: known[NAMES[name]] for name in stage.query.metrics}
    table = pa.table({"arm": known["arm"], **columns})
    return table.take(pa.array(order))


def compared(asked: Query, delta: float = 1e-6, **given: Any) -> pa.Table:
    """What is said of these arms."""
    stage = stage_of(asked, delta)
    return arm_comparisons.table_of(released(stage, **given), stage, asked)


def noise_of(stage: StagePlan, name: str) -> dict[str, float]:
    """Deviation and excess kurtosis of the noise of a released column."""
    (statistic,) = stage.query.metrics[name].statistics(stage.basis(stage.query.metrics[name]))
    (found,) = (noise for own, noise in zip(stage.statistics, stage.noises, strict=True) if own == statistic)
    assert found is not None
    # Kurtosis is 3 of a normal law and 6 of Laplace's.
    return {"stddev": found.stddev, "excess": 3.0 if stage.choices.noises[statistic.name].law == "laplace" else 0.0}


def plainly(stage: StagePlan, arm: str, base: str, metric: str, *, sampled: bool) -> list[float]:
    """The numbers of one row: both values, difference and ratio with their ends."""
    columns = {words: name for name, words in NAMES.items()}

    def total(words: str, of: str) -> ArmSum:
        value = SUMS[words][SUMS["arm"].index(of)]  # type: ignore[arg-type]
        return ArmSum(values=np.array([value]), **noise_of(stage, columns[words]))

    def estimate(of: str) -> Any:
        above, below, products = PARTS[metric]
        sampling = None
        if sampled:
            units = total("units", of)
            first, mixed, second = (units if words == "units" else total(words, of) for words in products)
            sampling = Sampling(above=first, mixed=mixed, below=second, units=units)
        return quotients(total(above, of), total(below, of), sampling)

    def numbers(contrast: Contrast) -> list[float]:
        return [float(ends[0]) for ends in (contrast.values, contrast.low, contrast.high)]

    own, other = estimate(arm), estimate(base)
    return [
        float(own.values[0]), float(other.values[0]),
        *numbers(differences(own, other)), *numbers(ratios(own, other)),
    ]  # fmt: skip


@pytest.mark.parametrize("baseline", ["A", "B", "C"])
@pytest.mark.parametrize("intervals", ["population", "noise"])
@pytest.mark.parametrize(("law", "delta"), [("laplace", 0.0), ("gaussian", 1e-2)])
def test_each_row_has_the_numbers_of_a_plain_program(
    baseline: str, intervals: Intervals, law: str, delta: float
) -> None:
    asked = query(intervals, baseline)
    stage = stage_of(asked, delta)
    assert {choice.law for choice in stage.choices.noises.values()} == {law}
    found = arm_comparisons.table_of(released(stage), stage, asked).to_pylist()
    others = [arm for arm in ("C", "A", "B") if arm != baseline]
    assert [(row["arm"], row["metric"]) for row in found] == list(itertools.product(others, sorted_metrics(asked)))
    for row in found:
        wanted = plainly(stage, row["arm"], baseline, row["metric"], sampled=intervals == "population")
        assert list(row.values())[2:] == pytest.approx(wanted, rel=1e-12)


def sorted_metrics(asked: Query) -> list[str]:
    """What is compared, in the order of the job."""
    assert asked.compare is not None
    return list(asked.compare.metrics)


def test_the_columns_say_what_intervals_cover() -> None:
    values, ends = ["value", "baseline_value"], ["difference{}", "difference{}_low", "difference{}_high"]
    ends += [name.replace("difference", "ratio") for name in ends]
    for intervals, mark in (("population", ""), ("noise", "_noise")):
        named = [name.format(mark) if name.endswith(("low", "high")) else name.format("") for name in ends]
        assert compared(query(intervals)).column_names == ["arm", "metric", *values, *named]  # type: ignore[arg-type]


def test_the_order_of_the_arms_changes_that_of_the_rows_alone() -> None:
    asked = query()
    wanted = sorted(map(repr, compared(asked).to_pylist()))
    for order in itertools.permutations(range(3)):
        found = compared(asked, order=order)
        assert sorted(map(repr, found.to_pylist())) == wanted
        arms = [["C", "A", "B"][place] for place in order]
        assert list(dict.fromkeys(found.column("arm").to_pylist())) == [arm for arm in arms if arm != "A"]


def test_arm_and_baseline_that_change_places_turn_differences_around_and_invert_ratios() -> None:
    def row(arm: str, baseline: str) -> dict[str, Any]:
        rows = compared(query(baseline=baseline)).to_pylist()
        return next(row for row in rows if (row["arm"], row["metric"]) == (arm, "paid"))

    there, back = row("B", "A"), row("A", "B")
    assert there["value"] == back["baseline_value"]
    for end, other in (("", ""), ("_low", "_high"), ("_high", "_low")):
        assert there[f"difference{end}"] == pytest.approx(-back[f"difference{other}"])
    assert there["ratio"] == pytest.approx(1 / back["ratio"])
    assert there["difference_low"] < there["difference"] < there["difference_high"]
    assert there["ratio_low"] < there["ratio"] < there["ratio_high"]


def test_what_divides_by_next_to_nothing_is_null_and_the_rest_is_known() -> None:
    few = {**SUMS, "orders": [9000.0, 11_000.0, 0.0]}  # of arm B
    rows = {(row["arm"], row["metric"]): row for row in compared(query(), sums=few).to_pylist()}
    numbers = {name: value for name, value in rows["B", "paid / orders"].items() if name not in ("arm", "metric")}
    assert {name for name, value in numbers.items() if value is not None} == {"baseline_value"}
    assert all(value is not None and math.isfinite(value) for value in list(rows["C", "paid / orders"].values())[2:])
    assert None not in rows["B", "paid"].values()


def test_the_manifest_has_the_rows_with_short_keys_and_arms_as_texts() -> None:
    asked = query("noise")
    table = compared(asked)
    said = arm_comparisons.to_json(table, asked)
    assert {key: said[key] for key in ("by", "baseline", "intervals")} == {
        "by": "arm",
        "baseline": "A",
        "intervals": "noise",
    }
    short = ["value", "baseline", "difference", "low", "high", "ratio", "ratio_low", "ratio_high"]
    assert said["rows"] == [
        {"arm": row["arm"], "metric": row["metric"], **dict(zip(short, list(row.values())[2:], strict=True))}
        for row in table.to_pylist()
    ]
    # Arms may be numbers or null, and what a manifest says of an arm is a text, or null.
    lists = PublicPartitions(keys=[(7,), (8,), (None,)])
    asked = query(baseline=7, partitions=lists)
    said = arm_comparisons.to_json(compared(asked, sums={**SUMS, "arm": [None, 7, 8]}), asked)
    assert said["baseline"] == "7"
    assert [row["arm"] for row in said["rows"]] == [None] * 3 + ["8"] * 3
