"""What is reserved for bounds that a run chooses: enough for each candidate, and no step more than that.

In: candidates, shapes of whole units. Out: records' norms. Holds: docs/proofs/sensitivity.md, lemma 6b. Not covered: stages
(tests/auto_bounds).
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines import Histogram
from dp_pipelines.kernels.sensitivity import Shape
from dp_pipelines.metrics.base import ROWS, UNITS, Basis
from dp_pipelines.planning.reserve import NoiseGrowth, at_middle, growth, moved_by_rows, reserved, steps_at

bounds = st.lists(st.integers(1, 60), min_size=1, max_size=4, unique=True).map(sorted)


@given(candidates=bounds, rows=bounds, steps=st.integers(1, 500), law=st.sampled_from(["gaussian", "laplace"]))
def test_the_reserved_record_holds_for_each_candidate_with_as_many_steps_as_can_be(
    candidates: list[int], rows: list[int], steps: int, law: str
) -> None:
    def shape(partitions: int, of_partition: int) -> Shape:
        return Shape(unit=8 * of_partition, coordinates=partitions, per_coordinate=1, in_total=partitions)

    whole = reserved(shape(candidates[-1], rows[-1]), candidates)
    paid = whole.ideally(steps)
    for partitions in candidates:
        of_candidate = shape(partitions, rows[0])
        exact = steps_at(whole, law, steps, of_candidate)
        norms, more = of_candidate.ideally(exact), of_candidate.ideally(exact + 1)
        assert norms.l0 <= paid.l0
        if law == "gaussian":
            assert norms.l2_squared <= paid.l2_squared < more.l2_squared
        else:
            assert norms.l1 <= paid.l1 < more.l1
            assert norms.linf <= paid.linf
    assert steps_at(whole, law, steps, shape(candidates[-1], rows[-1])) == steps


@pytest.mark.parametrize(("law", "power"), [("gaussian", 0.5), ("laplace", 1.0)])
def test_noise_grows_with_the_bounds_that_are_open_and_with_no_other(law: str, power: float) -> None:
    for partitions in (False, True):
        for rows in (False, True):
            kinds = {"partitions": partitions, "rows": rows}
            assert growth(ROWS, law, **kinds) == NoiseGrowth(power=power * partitions, rows=rows)
            assert growth(UNITS, law, **kinds) == NoiseGrowth(power=power * partitions, rows=False)
    assert NoiseGrowth(power=power, rows=True).at(9, 5) == pytest.approx(5 * 9**power)
    assert NoiseGrowth(power=0.0, rows=False).at(9, 5) == 1.0
    assert NoiseGrowth(power=0.0, rows=False).words == ""


def test_rows_of_one_partition_add_up_where_rows_are_counted_and_units_count_once() -> None:
    assert [moved_by_rows(ROWS, rows) / moved_by_rows(ROWS, 1) for rows in (2, 7)] == [2, 7]
    (cells,) = Histogram("paid", edges=[0, 1, 2]).statistics(Basis(centred=False, nullable=True))
    assert moved_by_rows(cells, 7) == 7 * moved_by_rows(cells, 1)  # each row may fall into a cell of its own
    assert moved_by_rows(UNITS, 7) == moved_by_rows(UNITS, 1) > 0


@given(candidates=bounds, law=st.sampled_from(["gaussian", "laplace"]))
def test_the_middling_noise_is_that_of_the_geometric_mean_of_the_ends(candidates: list[int], law: str) -> None:
    power = {"gaussian": 0.5, "laplace": 1.0}[law]
    middle = math.sqrt(candidates[0] * candidates[-1])
    assert at_middle(candidates, law) == pytest.approx((middle / candidates[-1]) ** power)
    assert at_middle([4, 64], law) == pytest.approx(0.25**power)
