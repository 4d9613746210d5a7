"""The median with noise by smooth sensitivity: the law of smoothness, the constants, the exact law of what is released."""

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dp_pipelines.noise import interval_arithmetic, smooth_sensitivity

Law = NDArray[np.float64]


def numbers(values: list[int]) -> NDArray[np.int64]:
    return np.array(sorted(values), np.int64)


def as_fraction(values: list[int], highest: int, fall: Fraction) -> Fraction:
    """The smooth sensitivity that is used."""
    found = smooth_sensitivity.twice_sensitivity(
        numbers(values), highest, smooth_sensitivity.weights(fall, len(values))
    )
    return Fraction(found, 2 << smooth_sensitivity.WEIGHT_BITS)


def neighbours(values: tuple[int, ...], highest: int) -> Iterator[tuple[int, ...]]:
    for place, value in itertools.product(range(len(values)), range(highest + 1)):
        yield tuple(sorted((*values[:place], value, *values[place + 1 :])))


def median(values: tuple[int, ...]) -> Fraction:
    return Fraction(smooth_sensitivity.twice_median(numbers(list(values))), 2)


def local(values: tuple[int, ...], highest: int) -> Fraction:
    """By trying all neighbours."""
    return max(abs(median(values) - median(other)) for other in neighbours(values, highest))


# The sensitivity.

falls = st.fractions(min_value=Fraction(1, 100), max_value=Fraction(99, 100))


@settings(max_examples=300)
@given(data=st.data(), fall=falls)
def test_the_sensitivity_of_neighbours_differs_by_the_fall_at_most_and_covers_what_either_moves(
    data: st.DataObject, fall: Fraction
) -> None:
    values = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=12))
    other = [*values]
    other[data.draw(st.integers(0, len(values) - 1))] = data.draw(st.integers(0, 50))
    one, two = as_fraction(values, 50, fall), as_fraction(other, 50, fall)
    assert one * fall <= two
    assert two * fall <= one
    moved = abs(median(tuple(values)) - median(tuple(other)))
    assert moved <= min(one, two)


def test_the_local_sensitivity_in_its_place_would_be_found() -> None:
    values, other = (0, 0, 0, 50, 50), (0, 0, 50, 50, 50)
    assert local((0, 0, 0, 0, 50), 50) == 0
    assert local((0, 0, 0, 50, 50), 50) == 50
    assert not local(values, 50) * Fraction(1, 2) <= local((0, 0, 0, 0, 50), 50)
    assert local(other, 50) == 50


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_what_lies_some_neighbours_away_lies_one_more_away_from_a_neighbour(size: int) -> None:
    """A_k of one list is at most A_(k+1) of its neighbours, for each k alone, and from k = size on it is the whole range."""
    highest = 4

    def away(values: tuple[int, ...], k: int) -> int:
        """A_k for both middle places, added up."""
        return smooth_sensitivity.twice_sensitivity(numbers(list(values)), highest, [0] * k + [1])

    for values in itertools.combinations_with_replacement(range(highest + 1), size):
        assert away(values, size) == 2 * highest
        for other in neighbours(values, highest):
            assert 2 * abs(median(values) - median(other)) <= away(values, 0)
            assert all(away(values, k) <= away(other, k + 1) for k in range(size))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_by_brute_force_it_is_the_least_smooth_bound_for_odd_numbers_and_a_bound_for_even_ones(size: int) -> None:
    """The least smooth bound is the largest fall ** distance * local sensitivity over all data (definition 2.2 of the paper)."""
    highest, fall = 3, Fraction(1, 2)
    every = list(itertools.combinations_with_replacement(range(highest + 1), size))
    locals_ = {values: local(values, highest) for values in every}
    for values in every:
        least, reached, frontier = Fraction(0), {values}, {values}
        for distance in range(size + 1):
            least = max(least, fall**distance * max(locals_[one] for one in frontier))
            frontier = {near for one in frontier for near in neighbours(one, highest)} - reached
            reached |= frontier
            if not frontier:
                break
        used = as_fraction(list(values), highest, fall)
        assert used == least if size % 2 else least <= used <= 2 * least


def test_weights_never_fall_faster_than_they_may_and_never_reach_zero() -> None:
    for fall in (Fraction(1, 100), Fraction(1, 3), Fraction(2**48 - 1, 2**48)):
        found = smooth_sensitivity.weights(fall, 500)
        assert found[0] == 2**smooth_sensitivity.WEIGHT_BITS
        assert all(before * fall <= after <= before for before, after in itertools.pairwise(found))
        assert min(found) >= 1


@given(values=st.lists(st.integers(0, 1000), min_size=1, max_size=30))
def test_the_median_is_numpy_s(values: list[int]) -> None:
    assert smooth_sensitivity.twice_median(numbers(values)) == 2 * np.median(values)


# The constants.

# Of the last two beta is at its end.
BUDGETS = [(1.0, 1e-6), (0.1, 1e-8), (4.0, 1e-3), (20.0, 1e-3), (1.0, 0.05), (1.0, 0.2), (0.1, 0.05)]


def stick(epsilon: float, narrow: float, wide: float, moved: float) -> mpmath.mpf:
    """The hockey-stick divergence of wide noise at 0 from narrow noise at `moved`, by integration."""

    def over(z: mpmath.mpf) -> mpmath.mpf:
        p = mpmath.exp(-abs(z) / wide) / (2 * wide)
        q = mpmath.exp(-abs(z - moved) / narrow) / (2 * narrow)
        return max(p - mpmath.exp(epsilon) * q, mpmath.mpf(0))

    # Where the two cross, on either side.
    rise, loss = wide / narrow - 1, epsilon + math.log(wide / narrow)
    ends = [-(loss - moved / narrow) / rise * wide, (loss + moved / narrow) / rise * wide]
    left = mpmath.quad(over, [ends[0] - 80 * wide, ends[0] - 10 * wide, ends[0]])
    return left + mpmath.quad(over, [ends[1], ends[1] + 10 * wide, ends[1] + 80 * wide])


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_the_closed_form_is_the_divergence_of_the_worst_pair_and_nearly_all_of_delta(
    epsilon: float, delta: float
) -> None:
    found = smooth_sensitivity.smoothing(Fraction(epsilon), delta)
    with interval_arithmetic.precision():
        stated = float(smooth_sensitivity.worst_delta(Fraction(epsilon), found.alpha, found.fall).mid())
    scale = float(1 / found.alpha)
    exact = float(stick(epsilon, scale, scale / float(found.fall), 1.0))
    assert stated == pytest.approx(exact, rel=1e-6)
    beta_is_at_its_end = -math.log(found.fall) > epsilon / 2 - 1e-9
    assert beta_is_at_its_end or 0.999 * delta < stated <= delta


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_no_pair_within_the_bounds_is_worse(epsilon: float, delta: float) -> None:
    found = smooth_sensitivity.smoothing(Fraction(epsilon), delta)
    scale, beta = float(1 / found.alpha), -math.log(found.fall)
    for rise, moved in itertools.product(np.linspace(0.1, 1, 6) * beta, (0.0, 0.3, 0.9, 1.0)):
        assert stick(epsilon, scale, scale * math.exp(rise), moved) <= delta * (1 + 1e-9)
        # The other way the loss is bounded: at 0 by log(wide / narrow) and the move in the wider scale.
        assert rise + moved / (scale * math.exp(rise)) <= epsilon


def test_the_constants_of_the_paper_are_inside_for_small_epsilon_and_not_for_a_large_one() -> None:
    for epsilon, delta in [(1.0, 1e-6), (0.1, 1e-8), (2.0, 1e-3)]:
        theirs = epsilon / (2 * math.log(2 / delta))
        assert theirs < -math.log(smooth_sensitivity.smoothing(Fraction(epsilon), delta).fall) < 2.1 * theirs
    scale, theirs = 2 / 20.0, 20.0 / (2 * math.log(2 / 1e-3))
    assert stick(20.0, scale, scale * math.exp(theirs), 1.0) > 5e-3


# The law of what is released.


def law(values: tuple[int, ...], highest: int, scale: float) -> Law:
    """The exact law of the rounded and clamped release on a lattice of half steps."""
    centre = smooth_sensitivity.twice_median(numbers(list(values)))
    edges = np.arange(2 * highest) + 0.5 - centre
    below = np.where(edges < 0, np.exp(-np.abs(edges) / scale) / 2, 1 - np.exp(-np.abs(edges) / scale) / 2)
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


def worst(size: int, highest: int, epsilon: float, scale_of: Callable[[tuple[int, ...]], float]) -> float:
    """The largest delta at epsilon of all neighbours, either way."""
    every = itertools.combinations_with_replacement(range(highest + 1), size)
    laws = {values: law(values, highest, scale_of(values)) for values in every}
    return max(
        float(np.maximum(laws[one] - math.exp(epsilon) * laws[other], 0).sum())
        for one in laws
        for other in neighbours(one, highest)
    )


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (2.0, 0.01), (0.5, 1e-4)])
def test_all_neighbours_are_within_epsilon_and_delta_and_with_local_sensitivity_they_are_not(
    size: int, epsilon: float, delta: float
) -> None:
    highest = 6
    found = smooth_sensitivity.smoothing(Fraction(epsilon), delta)

    def smoothed(values: tuple[int, ...]) -> float:
        return float(
            smooth_sensitivity.NoisyMedian.of(numbers(list(values)), highest, found).scale / smooth_sensitivity.FINER
        )

    def planted(values: tuple[int, ...]) -> float:
        return max(float(2 * local(values, highest) / found.alpha), 1e-9)

    assert worst(size, highest, epsilon, smoothed) <= delta
    # Of two numbers the local sensitivity is smooth enough by itself on so short a range.
    assert size == 2 or worst(size, highest, epsilon, planted) > 10 * delta


def test_half_the_noise_would_be_found() -> None:
    found = smooth_sensitivity.smoothing(Fraction(2), 0.01)

    def halved(values: tuple[int, ...]) -> float:
        return (
            float(smooth_sensitivity.NoisyMedian.of(numbers(list(values)), 6, found).scale / smooth_sensitivity.FINER)
            / 2
        )

    assert worst(3, 6, 2.0, halved) > 0.01


def test_without_noise_the_median_itself_is_released() -> None:
    for values in ([3], [1, 2], [0, 4, 4, 9, 9, 9]):
        of = smooth_sensitivity.NoisyMedian.of(numbers(values), 9, smooth_sensitivity.smoothing(Fraction(1), 1e-6))
        ones = of.draw(words=lambda n: np.full(n, 2**64 - 1, np.uint64))  # -log of a number next to 1
        assert ones / (2 * smooth_sensitivity.FINER) == np.median(values)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(7, 2), Fraction(10**12, 7)])
def test_draws_have_the_law_of_rounded_laplace_noise(scale: Fraction) -> None:
    drawn = np.array([smooth_sensitivity.rounded_laplace(5, scale) for _ in range(20_000)], np.float64)
    at = 5 + np.array([-2.0, -1, -0.5, 0, 0.5, 1, 2]) * float(scale)
    away = np.floor(at) + 0.5 - 5
    expected = np.where(
        away < 0, np.exp(-np.abs(away) / float(scale)) / 2, 1 - np.exp(-np.abs(away) / float(scale)) / 2
    )
    # Hoeffding: off by more than 0.0245 with a probability of 2 exp(-2 * 20000 * 0.0245^2) = 8e-11, at seven places.
    assert np.abs((drawn[:, None] <= at).mean(axis=0) - expected).max() < 0.0245
    wrong = np.where(
        away < 0, np.exp(-np.abs(away) / 1.3 / float(scale)) / 2, 1 - np.exp(-np.abs(away) / 1.3 / float(scale)) / 2
    )
    assert scale < 1 or np.abs((drawn[:, None] <= at).mean(axis=0) - wrong).max() > 0.0245


def test_a_rounding_is_settled_by_further_words_however_near_it_comes_to_an_edge() -> None:
    """At u = exp(-1/2) noise is 1/2, and its rounding changes: two words do not tell on which side of it u lies."""
    asked = []

    def words(first: int, second: int, third: int) -> Callable[[int], NDArray[np.uint64]]:
        queue = [2**63, first, second, third]

        def take(n: int) -> NDArray[np.uint64]:
            asked.append(n)
            return np.array([queue.pop(0) for _ in range(n)], np.uint64)

        return take

    # -log(u) = 1/2 at u = exp(-1/2): its first 192 bits, then one unit above.
    with mpmath.workprec(400):
        edge = int(mpmath.floor(mpmath.exp(mpmath.mpf(-1) / 2) * mpmath.mpf(2) ** 192))
    parts = [edge >> 128, edge >> 64 & 2**64 - 1, edge & 2**64 - 1]
    asked.clear()
    assert smooth_sensitivity.rounded_laplace(0, Fraction(1), words=words(*parts[:2], parts[2] - 1)) == 1
    assert smooth_sensitivity.rounded_laplace(0, Fraction(1), words=words(*parts[:2], parts[2] + 1)) == 0
    assert asked == [1, 2, 1] * 2


@pytest.mark.parametrize(("epsilon", "delta"), [(Fraction(1, 2**60), 1e-6), (Fraction(1, 2**45), 1e-300)])
def test_an_epsilon_or_a_delta_that_no_falling_scale_can_meet_is_refused(epsilon: Fraction, delta: float) -> None:
    with pytest.raises(ArithmeticError, match="too small"):
        smooth_sensitivity.smoothing(epsilon, delta)


def test_a_step_of_the_release_is_a_float_exactly() -> None:
    assert Fraction(1 / (2 * smooth_sensitivity.FINER)) == Fraction(1, 2 * smooth_sensitivity.FINER)
