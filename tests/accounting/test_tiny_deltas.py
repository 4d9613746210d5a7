"""An epsilon of sampled mechanisms at a tiny delta is nearly the smallest that their delta proves."""

from fractions import Fraction

import pytest

from dp_pipelines.accounting.accountant import delta_of, epsilon_of
from dp_pipelines.accounting.mechanism_record import MechanismRecord


def steps(rate: float, multiplier: int, times: int) -> MechanismRecord:
    scale = Fraction(1024 * multiplier)
    return MechanismRecord(
        stage="m", name="steps", kind="sampled_gaussian", scale=scale, l2_squared=1024**2, l0=1, rate=rate, times=times
    )


@pytest.mark.parametrize("delta", [1e-12, 1.1e-18])
def test_the_epsilon_of_many_thin_samples_is_nearly_the_least_one_whose_delta_is_small_enough(delta: float) -> None:
    """Ten thousand steps that take one unit in ten thousand: the epsilon was seven times what the delta proves."""
    record = steps(1e-4, 1, 10_000)
    epsilon = epsilon_of([record], delta)
    assert delta_of([record], epsilon) <= delta
    assert delta_of([record], 0.95 * epsilon) > delta
    assert epsilon < 0.9
