"""Poisson samples of units: the exact law, independence, and ties that one word cannot settle."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dp_pipelines.errors import RequestError
from dp_pipelines.noise import alias_tables, entropy, poisson_samples
from dp_pipelines.noise.poisson_samples import PoissonSampler

ALPHA = 1e-9
RATES = [0.5, 0.1, 0.01, 0.0003]

rates = st.one_of(
    st.floats(1e-20, 1, exclude_max=True),
    st.sampled_from([0.5, 0.25, 2.0**-64, 1e-12, 1 - 2.0**-53, 0.01]),
)


@given(rates)
def test_the_table_holds_the_exact_distribution_function_cut_to_a_word(rate: float) -> None:
    table = poisson_samples._table(Fraction(rate)).tolist()
    assert 1 <= len(table) <= poisson_samples.LONGEST
    stays = 1 - Fraction(rate)
    for m in {1, 2, len(table) // 2, len(table)} - {0}:
        if m <= len(table):
            assert table[m - 1] == math.floor((1 - stays**m) * 2**64)
    assert table == sorted(table)


@pytest.mark.parametrize("rate", [0.3, 0.01])
def test_where_the_bounds_leave_a_digit_open_exact_fractions_decide(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = poisson_samples._table.__wrapped__(Fraction(rate)).tolist()
    monkeypatch.setattr(poisson_samples, "_BITS", 65)  # bounds that hardly ever agree
    assert poisson_samples._table.__wrapped__(Fraction(rate)).tolist() == exact


def words_of(digits: list[int]) -> Callable[[int], alias_tables.Words]:
    """Gives these words, and zeros after them."""
    left = list(digits)

    def words(n: int) -> alias_tables.Words:
        taken = [left.pop(0) if left else 0 for _ in range(n)]
        return np.array(taken, dtype=np.uint64)

    return words


@given(rate=rates, place=st.integers(0, 4095), digits=st.integers(0, 3), shift=st.sampled_from([-1, 0, 1]))
def test_a_gap_is_decided_by_as_many_words_as_it_takes(rate: float, place: int, digits: int, shift: int) -> None:
    """Words that agree with a value of the distribution function to many digits, and one step beside it."""
    table = poisson_samples._table(Fraction(rate))
    stays, place = 1 - Fraction(rate), place % len(table) % 200
    limit = math.floor((1 - stays ** (place + 1)) * 2 ** (64 * (digits + 1))) + shift
    limit = min(max(limit, 0), 2 ** (64 * (digits + 1)) - 1)
    drawn = [limit >> (64 * k) & (2**64 - 1) for k in reversed(range(digits + 1))]
    gap = int(PoissonSampler(rate, words_of(drawn))._gaps(1, table)[0])
    u = Fraction(limit, 2 ** (64 * (digits + 1)))
    reached = [u >= 1 - stays**m for m in (gap, gap + 1)]
    assert reached[0]
    assert gap == len(table) or not reached[1]


def test_samples_of_the_smallest_gaps_are_those_of_the_definition() -> None:
    # One half: the first word says for each unit by one bit whether it is in, from the highest.
    word = int("0010110000000000000000000000000000000000000000000000000000000001", 2)
    gaps = PoissonSampler(0.5, words_of([word, 2**63 - 1, 2**63, 2**64 - 1]))._gaps(
        4, poisson_samples._table(Fraction(0.5))
    )
    # u >= 1 - 2**-m for the gap to be at least m.
    assert gaps.tolist() == [0, 0, 1, len(poisson_samples._table(Fraction(0.5)))]


class ShuffledBatches:
    """A planted fault: every sample has the same size."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def draw(self, units: int) -> np.ndarray:
        order = np.argsort(entropy.words(units))
        return np.sort(order[: round(units * self.rate)])


class ForgottenGaps:
    """A planted fault: the unit after a gap that the table does not hold is taken as drawn."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def draw(self, units: int) -> np.ndarray:
        stays = 1 - (1 - self.rate) ** np.arange(1, 101)
        gaps = np.searchsorted(stays, entropy.words(math.ceil(2 * units * self.rate) + 100) / 2.0**64)
        places = np.cumsum(gaps + 1) - 1
        return places[places < units]


def sizes_p(sampler: PoissonSampler, units: int = 2000, times: int = 4000) -> float:
    """The p-value of the sizes of many samples, binomial."""
    sizes = np.array([len(sampler.draw(units)) for _ in range(times)])
    law = stats.binom(units, sampler.rate)
    edges = np.unique(law.ppf(np.arange(1, 20) / 20))
    below = np.concatenate([[0.0], law.cdf(edges), [1.0]])
    observed = np.histogram(sizes, np.concatenate([[-1], edges, [units]]) + 0.5)[0]
    expected = np.diff(below) * times
    keep = expected > 5
    statistic = float(((observed - expected)[keep] ** 2 / expected[keep]).sum())
    return float(stats.chi2.sf(statistic, max(1, keep.sum() - 1)))


@pytest.mark.parametrize("rate", RATES)
def test_sizes_are_binomial_and_batches_of_one_size_are_rejected(rate: float) -> None:
    assert sizes_p(PoissonSampler(rate)) > ALPHA
    assert sizes_p(ShuffledBatches(rate)) < ALPHA  # type: ignore[arg-type]


def places_p(sampler: PoissonSampler, units: int = 1000, wanted: int = 100_000) -> float:
    """The p-value of how often each place was drawn."""
    times = math.ceil(wanted / (units * sampler.rate))
    counts = np.zeros(units, np.int64)
    # Many samples side by side: the places of one long sample.
    drawn = sampler.draw(units * times)
    np.add.at(counts, drawn % units, 1)
    mean = times * sampler.rate
    return float(stats.chi2.sf(float(((counts - mean) ** 2).sum()) / (mean * (1 - sampler.rate)), units))


@pytest.mark.parametrize("rate", [0.5, 0.01])
def test_every_place_is_drawn_as_often_and_forgotten_gaps_are_seen(rate: float) -> None:
    assert places_p(PoissonSampler(rate)) > ALPHA
    if rate < 0.1:
        assert places_p(ForgottenGaps(rate)) < ALPHA  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [0.5, 0.05, 0.005])
def test_units_are_drawn_independently_of_those_before_them_and_a_dependence_is_seen(rate: float) -> None:
    units = math.ceil(300_000 / rate**0.5)
    inside = np.zeros(units, np.bool_)
    inside[PoissonSampler(rate).draw(units)] = True

    def score(inside: np.ndarray, lag: int) -> float:
        pairs = int(np.count_nonzero(inside[lag:] & inside[:-lag]))
        mean = (units - lag) * rate**2
        # Pairs overlap: their variance is below mean (1 + 2 rate).
        return abs(pairs - mean) / math.sqrt(mean * (1 + 2 * rate))

    # The number of pairs is normal enough for 8 deviations with a mean above 1,000, and for 12 with one of 100.
    assert max(score(inside, lag) for lag in (1, 2, 3, 7, 4096)) < (8 if rate > 0.01 else 12)
    inside[1:] |= inside[:-1] & (entropy.words(units - 1) < np.uint64(2**60))
    assert score(inside, 1) > 12


def test_gaps_that_the_table_does_not_hold_go_on() -> None:
    units = 50_000_000
    places = PoissonSampler(1e-5).draw(units)
    assert abs(len(places) - 500) < 8 * math.sqrt(500)
    assert (np.diff(places) > poisson_samples.LONGEST).sum() > 300  # of 480 or so: eight standard deviations
    assert stats.kstest(places / units, "uniform").pvalue > ALPHA


@pytest.mark.parametrize("rate", [0.5, 0.01, 2.0**-11, Fraction(7, 8)])
@pytest.mark.parametrize("at_once", [1, 2, 7, 64])
def test_gaps_drawn_in_blocks_follow_each_other_as_those_of_one_block(
    rate: float | Fraction, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of gaps that are drawn together, the sample is that of all gaps one after the other."""
    units, drawn = 3000, entropy.words(40_000)

    def sampled() -> list[int]:
        place = 0

        def words(n: int) -> alias_tables.Words:
            nonlocal place
            place += n
            return drawn[place - n : place]

        return PoissonSampler(rate, words).draw(units).tolist()

    table = poisson_samples._table(Fraction(rate))
    gaps = PoissonSampler(rate, lambda n: drawn[:n])._gaps(2 * units, table)
    by_hand, unit = [], 0
    for gap in gaps.tolist():
        unit += gap
        if gap < len(table):
            by_hand.append(unit)
            unit += 1
    wanted = [place for place in by_hand if place < units]
    assert sampled() == wanted
    monkeypatch.setattr(poisson_samples, "MOST_GAPS", at_once)
    assert sampled() == wanted


def test_with_small_words_every_unit_is_in_at_the_real_size_of_blocks() -> None:
    """A gap of none after each unit, for more units than one block has gaps."""
    units = 3 * poisson_samples.MOST_GAPS
    nothing_skipped = PoissonSampler(0.5, lambda n: np.zeros(n, np.uint64))
    assert np.array_equal(nothing_skipped.draw(units), np.arange(units))


def test_with_a_rate_of_one_all_are_in() -> None:
    assert PoissonSampler(1.0).draw(5).tolist() == [0, 1, 2, 3, 4]
    assert PoissonSampler(1 - 2.0**-53).draw(1000).tolist() == list(range(1000))


@pytest.mark.parametrize("rate", [1.0, 0.5, 1e-300])
def test_of_no_units_none_is_in(rate: float) -> None:
    places = PoissonSampler(rate).draw(0)
    assert places.tolist() == []
    assert places.dtype == np.int64


@given(rate=st.floats(1e-6, 1, exclude_max=True), units=st.integers(0, 5000))
def test_places_rise_and_are_places(rate: float, units: int) -> None:
    places = PoissonSampler(rate).draw(units)
    assert (np.diff(places) > 0).all()
    assert places.size == 0 or 0 <= places[0] <= places[-1] < units


@pytest.mark.parametrize("rate", [0, -0.1, 1.1, math.nan, True, "0.1", None])
def test_a_rate_that_is_no_probability_is_refused(rate: object) -> None:
    if rate is True:  # equals 1: all
        assert len(PoissonSampler(rate).draw(3)) == 3
        return
    with pytest.raises(RequestError, match="rate"):
        PoissonSampler(rate)  # type: ignore[arg-type]
