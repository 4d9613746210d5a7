"""The last step of planning: choices in integers that meet the budget over all runs, on lattices that are fine, and no finer.

In: plans. Out: choices and scales. Holds: costs are those of the accountant, over all records of all runs. Not covered: how a
plan is chosen before (tests/planning/test_choose.py).
"""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines import BinaryLabel, BudgetError, Number, Steps, TrainModel
from dp_pipelines.planning.candidate import LARGEST_SCALE, TARGET_SCALE
from dp_pipelines.planning.noise_levels import integer_noise

PUBLIC = dp.PublicPartitions(keys=[("a",), ("b",)])


def query(partitions: int = 3, rows: int = 2, **changes: Any) -> dp.Query:
    fields: dict[str, Any] = {
        "privacy_unit": "u",
        "partition_by": "k",
        "bounds": dp.ContributionBounds(max_partitions_contributed=partitions, max_contributions_per_partition=rows),
        "metrics": {
            "rows": dp.Count(),
            "users": dp.PrivacyIdCount(weight=3),
            "paid": dp.Sum("v", min_value=0, max_value=9),
        },
        "partitions": PUBLIC,
    }
    return dp.Query(**{**fields, **changes})


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("split", ["constant", "linear", "exponential"])
@pytest.mark.parametrize("runs", [1, 4])
def test_all_runs_together_meet_the_budget_and_use_it(runs: int, split: Any, delta: float) -> None:
    plan = dp.Plan(epsilon=1.5, delta=delta, runs=runs, split=split, stages={"s": query(), "t": query(partitions=9)})
    assert 1.5 * (1 - 2e-3) <= plan.accounted["epsilon"] <= 1.5
    one = plan.accounted_one_run["epsilon"]
    assert one == pytest.approx(plan.accounted["epsilon"]) if runs == 1 else one < plan.accounted["epsilon"]


def multiplier(plan: dp.Plan, law: str) -> float:
    """The largest scale of a law per units of change that are rounded together."""
    scale = {"gaussian": plan.calibrated.gaussian_scale, "laplace": plan.calibrated.laplace_scale}[law]
    noises = [one for of_stage in plan.calibrated.choices.values() for one in of_stage.noises.values()]
    return max(float(scale) / one.steps for one in noises if one.law == law)


BINS = {f"of_{column}": dp.Histogram(column, edges=[0, 1, 2, 3]) for column in "abcdefghijkl"}
ASKED = {
    "few": query(),
    "wide": query(partitions=50),
    "many rows": query(rows=2000),
    # All rows of a unit may be in one bin: their change is rounded as a whole.
    "many rows in a bin": query(partitions=1, rows=300, metrics=BINS),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize(("law", "delta"), [("laplace", 0.0), ("gaussian", 1e-2)])
def test_a_lattice_is_as_fine_as_it_must_be_and_no_finer(asked: dp.Query, law: str, delta: float) -> None:
    plan = dp.Plan(epsilon=1.0, delta=delta, stages={"s": asked})
    assert {one.law for one in plan["s"].choices.noises.values()} == {law}
    scale = float({"gaussian": plan.calibrated.gaussian_scale, "laplace": plan.calibrated.laplace_scale}[law])
    needed = max(TARGET_SCALE, integer_noise.FINEST_STEPS * multiplier(plan, law))
    assert scale <= LARGEST_SCALE[law]
    assert 0.97 * TARGET_SCALE <= scale <= 1.05 * needed
    steps = [one.steps for one in plan["s"].choices.noises.values()]
    assert min(steps) >= 51


def test_vectors_of_training_have_a_norm_of_at_least_sixty_four_steps() -> None:
    features = {"x": Number(column="x", min_value=0, max_value=1)}
    task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features, steps=Steps(steps=400))
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"m": task})
    (choice,) = plan["m"].choices.noises.values()
    assert choice.steps >= 64
    assert plan.accounted["epsilon"] == pytest.approx(1.0, rel=2e-3)


def test_the_weights_of_metrics_decide_the_noise_of_each() -> None:
    """With the same noise of the sums of logarithms, noise is in inverse proportion to the root of a weight, by Gauss's law."""
    plan = dp.Plan(epsilon=1.0, delta=1e-2, stages={"s": query()})
    noises = {name: one.units / one.steps for name, one in plan["s"].choices.noises.items()}
    (paid,) = (noise for name, noise in noises.items() if name.startswith("sum("))
    rows, users = noises["rows"], noises["units"]
    assert rows / users == pytest.approx(math.sqrt(3), rel=0.03)
    assert paid / rows == pytest.approx(1, rel=0.03)


@given(st.sampled_from(["gaussian", "laplace"]), st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=4))
def test_the_fitting_scale_is_a_large_one_in_whose_steps_all_multipliers_are_met_about_as_well_as_in_any(
    law: str, multipliers: list[float]
) -> None:
    largest = float(LARGEST_SCALE[law])

    def misfit(scale: float) -> float:
        met = [round(scale / multiplier) * multiplier for multiplier in multipliers]
        return max(met) / min(met)

    found = integer_noise._fitting(law, multipliers)
    assert max(largest / 2, *multipliers) <= found <= largest
    tried = [largest * (1 - place / 512) for place in range(257)]
    assert misfit(found) <= min(map(misfit, tried)) * (1 + 1e-9)


def test_of_one_law_without_noise_the_largest_scale_fits() -> None:
    assert integer_noise._fitting("gaussian", []) == LARGEST_SCALE["gaussian"]
    assert integer_noise._fitting("gaussian", [9000.0]) == 9000.0


def test_what_would_drown_is_refused_with_what_helps() -> None:
    with pytest.raises(BudgetError, match="thousands of times the effect of one unit"):
        dp.Plan(epsilon=1e-4, delta=1e-9, stages={"s": query(partitions=400)})
    asked = query(metrics={"rows": dp.Count(stddev=3.0)})
    with pytest.raises(BudgetError):
        dp.Plan(epsilon=0.1, delta=1e-6, stages={"s": asked})
