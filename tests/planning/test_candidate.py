"""Candidates of a plan: the noise that a weight or a fixed level stands for, and what a budget says that records cost.

In: candidates of one statistic. Out: scales, records, costs. Holds: closed forms. Not covered: the choice among candidates, and
whole plans (test_plan, test_expected_error).
"""

import math
from fractions import Fraction

import pytest

from dp_pipelines import ContributionBounds, Count, PublicPartitions, Query
from dp_pipelines.accounting import accountant
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.planning.candidate import SCALE_GRID, Candidate, TotalBudget, ideal, selection_delta

SHAPE = Shape(unit=8, coordinates=4, per_coordinate=3, in_total=12)
BUDGET = TotalBudget(epsilon=2.0, delta=1e-6, runs=3)
QUERY = Query(
    privacy_unit="who",
    partition_by="k",
    metrics={"rows": Count()},
    partitions=PublicPartitions(keys=[("a",)]),
    bounds=ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=3),
)


def candidate(law: str, weight: float = 1.0, fixed: float | None = None) -> Candidate:
    return Candidate(
        strategy=None,
        laws=FrozenMapping({"rows": law}),
        weights=FrozenMapping({} if fixed else {"rows": weight}),
        of_weight=1.0,
        shapes=FrozenMapping({"rows": SHAPE}),
        centred=(),
        fixed=FrozenMapping({"rows": fixed} if fixed else {}),
    )


@pytest.mark.parametrize("weight", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("level", [0.25, 3.0])
def test_a_weight_is_a_part_of_epsilon_for_laplace_noise_and_of_the_inverse_variance_for_gaussian(
    weight: float, level: float
) -> None:
    laplace = candidate("laplace", weight).multiplier("rows", level, BUDGET)
    assert SHAPE.in_total / laplace == pytest.approx(weight / level)
    gaussian = candidate("gaussian", weight).multiplier("rows", level, BUDGET)
    whole = candidate("gaussian").multiplier("rows", 1.0, BUDGET)
    assert SHAPE.l2_squared / gaussian**2 == pytest.approx(SHAPE.l2_squared / whole**2 * weight / level**2)


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-4])
def test_gaussian_noise_starts_at_the_classic_multiple_of_the_norm(delta: float) -> None:
    # Dwork, Roth 2014, theorem 3.22: sigma = sqrt(2 log(1.25 / delta)) / epsilon times the L2 norm.
    budget = TotalBudget(epsilon=1.0, delta=delta, runs=1)
    found = candidate("gaussian").multiplier("rows", 1.0, budget)
    assert found == pytest.approx(math.sqrt(2 * math.log(1.25 / delta)) * math.sqrt(SHAPE.l2_squared))


@pytest.mark.parametrize("level", [0.1, 1.0, 50.0])
def test_noise_that_was_asked_for_has_its_deviation_at_every_level(level: float) -> None:
    assert candidate("gaussian", fixed=7.0).multiplier("rows", level, BUDGET) == 7.0
    # The variance of Laplace noise is twice the square of its scale.
    assert 2 * candidate("laplace", fixed=7.0).multiplier("rows", level, BUDGET) ** 2 == pytest.approx(7.0**2)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_an_ideal_record_has_the_noise_of_its_candidate_rounded_up_to_the_grid(law: str) -> None:
    of = candidate(law, 0.37)
    (record,) = ideal("weekly", QUERY, of, 1.3, BUDGET, stages=1)
    assert record.scale is not None
    # The scale per unit of change, of which there are `linf` or a norm in the record.
    steps = (
        Fraction(record.linf, SHAPE.per_coordinate)
        if law == "laplace"
        else math.isqrt(record.l2_squared // SHAPE.l2_squared)
    )
    wanted = of.multiplier("rows", 1.3, BUDGET) * float(steps)
    assert wanted <= record.scale < wanted + 1 / SCALE_GRID + 1e-9
    assert wanted > 1000 * SCALE_GRID, "the grid matters to nobody"
    assert (record.l0, record.l1 or SHAPE.in_total * steps) == (SHAPE.coordinates, SHAPE.in_total * steps)


def test_a_budget_without_delta_adds_up_epsilons_of_all_runs_and_allows_what_tables_add() -> None:
    budget = TotalBudget(epsilon=2.0, delta=0.0, runs=3)
    laplace = MechanismRecord(stage="s", name="n", kind="laplace", scale=Fraction(64), linf=16, l0=1, l1=16)
    assert 0.75 <= budget.cost([laplace]) <= 0.75 * (1 + 1e-12)
    assert 0.25 <= budget.cost([laplace], runs=1) <= 0.25 * (1 + 1e-12)
    assert budget.allowed_delta([laplace]) == accountant.tables_delta([laplace], runs=3, epsilon=2.0)
    gaussian = MechanismRecord(stage="s", name="n", kind="gaussian", scale=Fraction(64), l2_squared=1, l0=1)
    assert budget.cost([gaussian]) == math.inf
    assert BUDGET.cost([gaussian]) == pytest.approx(accountant.epsilon_of([gaussian], 1e-6, runs=3), rel=1e-3)
    assert BUDGET.allowed_delta([gaussian]) == 1e-6


def test_selections_of_all_stages_and_runs_fail_with_half_of_delta_together() -> None:
    assert 3 * 4 * selection_delta(BUDGET, 4) == pytest.approx(0.5e-6)
