"""Which values have a say in bounds that are chosen: not those that no bound clamps, nor those that every bound clamps alike.

In: made-up columns. Out: the bounds. Not covered: how good the bounds are for other columns (`test_value_bounds`).
"""

from collections.abc import Callable

import numpy as np
import pytest

from dp_pipelines.auto_bounds import value_bounds
from dp_pipelines.auto_bounds.value_bounds import Floats


def counts_of(values: Floats, within: tuple[float, float]) -> list[float]:
    """How many values lie in each bin."""
    return [float(count) for count in np.histogram(values, value_bounds.bins(*within))[0]]


SKEWED: dict[str, Callable[[np.random.Generator], Floats]] = {
    "half negative": lambda random: (
        np.where(random.random(40_000) < 0.5, -1.0, 1.0) * random.lognormal(2.0, 1.0, 40_000)
    ),
    "mostly zero": lambda random: np.where(random.random(40_000) < 0.8, 0.0, random.lognormal(4.0, 1.0, 40_000)),
    "heavy tail beside negative ones": lambda random: np.where(
        random.random(40_000) < 0.6, -5.0, 5 * random.pareto(1.5, 40_000)
    ),
}


@pytest.mark.parametrize("stddev", [20.0, 100.0, 300.0])
@pytest.mark.parametrize("values", SKEWED.values(), ids=SKEWED)
def test_values_at_or_below_a_given_bound_do_not_narrow_the_other_one(
    values: Callable[[np.random.Generator], Floats], stddev: float
) -> None:
    """The bound clamps at most a third of the positive values, also where no single bin of them stands out of the noise."""
    random = np.random.default_rng(21)
    drawn = values(random)
    counts, positive = np.array(counts_of(drawn, (0.0, 1e6))), drawn[drawn > 0]
    for _ in range(10):
        low, high = value_bounds.choose(
            (counts + random.normal(0, stddev, len(counts))).tolist(), within=(0.0, 1e6), stddev=stddev, law="gaussian",
            multiple=10.0, centred=False, partitions=50, low=0.0,
        )  # fmt: skip
        assert low == 0.0
        assert (positive > high).mean() <= 1 / 3
        assert high <= 1e3 * np.median(positive)


@pytest.mark.parametrize("values", [[0.0] * 50_000, [-3.0] * 50_000, [0.0, -1.0] * 25_000])
def test_where_only_values_that_say_nothing_stand_out_the_whole_range_is_taken(values: list[float]) -> None:
    """Positive values may hide in the noise: the narrowest bound would drop them, with error bars that look exact."""
    assert value_bounds.choose(
        counts_of(np.array(values), (0.0, 1e6)), within=(0.0, 1e6), stddev=50.0, law="laplace", multiple=10.0,
        centred=False, low=0.0,
    ) == (0.0, 1e6)  # fmt: skip
