"""Permute-and-flip and the exponential mechanism: their laws against enumeration, neighbours by the laws, words at every edge."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dp_pipelines.errors import RequestError
from dp_pipelines.selection import exact
from dp_pipelines.selection.exponential import CHOICES, MOST_CANDIDATES, exponential, permute_and_flip, top_k

FALSE_ALARM = 1e-9

Law = dict[tuple[int, ...], mpmath.mpf]
rates = st.fractions(Fraction(1, 50), 3, max_denominator=100)
few_scores = st.lists(st.integers(-6, 6), min_size=1, max_size=4)


def law_of_permute_and_flip(scores: Sequence[int], rate: Fraction) -> list[mpmath.mpf]:
    """From its definition: all orders, each coin in turn (McKenna, Sheldon 2020, algorithm 1)."""
    best = max(scores)
    heads = [mpmath.exp(mpmath.mpf(rate.numerator) / rate.denominator * (score - best)) for score in scores]
    law = [mpmath.mpf(0)] * len(scores)
    for order in itertools.permutations(range(len(scores))):
        reached = mpmath.mpf(1)
        for place in order:
            law[place] += reached * heads[place]
            reached *= 1 - heads[place]
    return [probability / math.factorial(len(scores)) for probability in law]


def law_of_exponential(scores: Sequence[int], rate: Fraction) -> list[mpmath.mpf]:
    """From its definition."""
    best = max(scores)
    weights = [mpmath.exp(mpmath.mpf(rate.numerator) / rate.denominator * (score - best)) for score in scores]
    return [weight / mpmath.fsum(weights) for weight in weights]


LAWS: dict[str, Callable[[Sequence[int], Fraction], list[mpmath.mpf]]] = {
    "permute_and_flip": law_of_permute_and_flip,
    "exponential": law_of_exponential,
}


def law_of_top_k(mechanism: str, scores: Sequence[int], k: int, rate: Fraction) -> Law:
    """The law of k choices in turn, by enumeration."""
    found: Law = {(): mpmath.mpf(1)}
    for _ in range(k):
        longer: Law = {}
        for chosen, probability in found.items():
            left = [place for place in range(len(scores)) if place not in chosen]
            for place, share in zip(left, LAWS[mechanism]([scores[p] for p in left], rate), strict=True):
                longer[(*chosen, place)] = probability * share
        found = longer
    return found


def suspicious(drawn: Counter[tuple[int, ...]], law: Law) -> bool:
    """Whether any outcome is drawn so often or so rarely as the law allows with FALSE_ALARM / outcomes at most."""
    total = sum(drawn.values())
    limit = FALSE_ALARM / len(law)
    return set(drawn) > set(law) or any(
        stats.binomtest(drawn[outcome], total, float(probability)).pvalue < limit
        for outcome, probability in law.items()
    )


@given(scores=few_scores, rate=rates)
def test_a_uniform_choice_among_all_heads_is_permute_and_flip(scores: list[int], rate: Fraction):
    best = max(scores)
    p = [mpmath.exp(mpmath.mpf(rate.numerator) / rate.denominator * (score - best)) for score in scores]
    law = [mpmath.mpf(0)] * len(scores)
    for heads in itertools.product([False, True], repeat=len(scores)):
        weight = mpmath.fprod(p[i] if head else 1 - p[i] for i, head in enumerate(heads))
        for i, head in enumerate(heads):
            if head:
                law[i] += weight / sum(heads)
    assert np.allclose([float(x) for x in law], [float(x) for x in law_of_permute_and_flip(scores, rate)], atol=1e-12)


@pytest.mark.parametrize("mechanism", CHOICES)
def test_draws_have_the_enumerated_law(mechanism: str):
    scores, spread, epsilon = [3, 0, 5, 5], 2, Fraction(3, 4)
    rows = np.tile(np.array([scores]), (20_000, 1))
    drawn = Counter((int(place),) for place in CHOICES[mechanism](rows, spread=spread, epsilon=epsilon))
    truth = {(i,): p for i, p in enumerate(LAWS[mechanism](scores, epsilon / spread))}
    assert not suspicious(drawn, truth)
    # Twins: the other mechanism, and the same at twice the epsilon.
    other = next(law for name, law in LAWS.items() if name != mechanism)
    assert suspicious(drawn, {(i,): p for i, p in enumerate(other(scores, epsilon / spread))})
    assert suspicious(drawn, {(i,): p for i, p in enumerate(LAWS[mechanism](scores, 2 * epsilon / spread))})


@pytest.mark.parametrize("mechanism", CHOICES)
def test_the_k_best_have_the_law_of_k_choices_in_turn(mechanism: str):
    scores, rate = np.array([1, 0, 2, -1]), Fraction(1)
    drawn: Counter[tuple[int, ...]] = Counter()
    for _ in range(4_000):
        chosen = top_k(scores, 2, spread=1, epsilon=rate, mechanism=mechanism)  # type: ignore[arg-type]
        drawn[tuple(chosen.tolist())] += 1
    assert not suspicious(drawn, law_of_top_k(mechanism, scores.tolist(), 2, rate))
    # A twin: two choices among all candidates, of which equal ones are thrown away.
    one = LAWS[mechanism](scores.tolist(), rate)
    pairs = {(i, j): one[i] * one[j] for i in range(4) for j in range(4) if i != j}
    total = mpmath.fsum(pairs.values())
    assert suspicious(drawn, {pair: p / total for pair, p in pairs.items()})


def test_gumbel_noise_and_one_sort_have_the_law_of_k_exponential_mechanisms():
    # Durfee, Rogers 2019, lemma 4.2: what "one-shot" means. The noise here is a float's and serves this comparison alone.
    scores, generator = np.array([1.0, 0.0, 2.0, -1.0]), np.random.default_rng(1)
    noisy = scores + generator.gumbel(size=(50_000, 4))
    drawn = Counter(tuple(row) for row in np.argsort(-noisy, axis=1)[:, :2].tolist())
    assert not suspicious(drawn, law_of_top_k("exponential", [1, 0, 2, -1], 2, Fraction(1)))
    assert suspicious(drawn, law_of_top_k("permute_and_flip", [1, 0, 2, -1], 2, Fraction(1)))


neighbours = st.integers(1, 4).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(-5, 5), min_size=size, max_size=size),
        st.integers(-4, 0).flatmap(
            lambda low: st.lists(st.integers(low, low + 4), min_size=size, max_size=size),
        ),
    )
)
"""Scores, and changes that lie in an interval of length 4."""


def losses(mechanism: str, scores: Sequence[int], changes: Sequence[int], rate: Fraction) -> list[mpmath.mpf]:
    """The logarithm of the ratio of probabilities of each candidate between neighbours."""
    after = [score + change for score, change in zip(scores, changes, strict=True)]
    law = LAWS[mechanism]
    return [mpmath.log(p / q) for p, q in zip(law(scores, rate), law(after, rate), strict=True)]


@settings(max_examples=300)
@given(pair=neighbours, epsilon=rates)
def test_neighbours_differ_by_epsilon_at_most_and_the_exponential_mechanism_within_a_range_of_epsilon(
    pair: tuple[list[int], list[int]], epsilon: Fraction
):
    limit = float(epsilon) * (1 + 1e-12)
    assert max(map(abs, losses("permute_and_flip", *pair, epsilon / 4))) <= limit
    ratios = losses("exponential", *pair, epsilon / 4)
    assert max(map(abs, ratios)) <= limit
    assert max(ratios) - min(ratios) <= limit


def test_a_spread_that_counts_one_direction_of_two_would_be_found():
    # One score falls by 4 and the other rises by 4: a spread of 8, not of 4.
    ratios = losses("exponential", [0, 0, 0], [-4, 4, 0], Fraction(1, 4))
    assert max(ratios) - min(ratios) > 1.5
    # Between neighbours that both are far from the best, permute-and-flip uses up twice the epsilon of one direction.
    assert max(map(abs, losses("permute_and_flip", [0, 20], [4, -4], Fraction(1, 4)))) > 1.5


class Script:
    """Words that were chosen; further ones continue with zeros, or with ones."""

    def __init__(self, *words: int, ones: bool = False) -> None:
        self.left, self.rest = list(words), (2**64 - 1) * ones

    def __call__(self, n: int) -> np.ndarray:
        taken, self.left = self.left[:n], self.left[n:]
        return np.array(taken + [self.rest] * (n - len(taken)), dtype=np.uint64)


def words_of(number: int, count: int) -> list[int]:
    return [number >> 64 * place & 2**64 - 1 for place in reversed(range(count))]


@given(gap=st.integers(1, 200), rate=rates, off=st.integers(-2, 2), words=st.integers(1, 5))
def test_a_coin_is_heads_exactly_below_its_probability_however_near_the_words_come(
    gap: int, rate: Fraction, off: int, words: int
):
    with mpmath.workprec(2000):
        true = mpmath.exp(-mpmath.mpf(rate.numerator) * gap / rate.denominator)
        at = min(max(int(mpmath.floor(true * mpmath.mpf(2) ** (64 * words))) + off, 0), 2 ** (64 * words) - 1)
        for ones in (False, True):
            u = mpmath.mpf(at + (1 if ones else 0)) / mpmath.mpf(2) ** (64 * words)
            if ones and u == 1:
                continue
            source = Script(*words_of(at, words), ones=ones)
            assert bool(exact.coins(np.array([gap]), rate, words=source)[0]) == (u < true or (ones and u <= true))


def test_a_coin_rounded_to_a_float_would_be_found():
    rate, gap = Fraction(1), 1
    at = int(math.exp(-1) * 2**64)
    with mpmath.workprec(300):
        true = int(mpmath.floor(mpmath.exp(-1) * mpmath.mpf(2) ** 64))
    assert at != true
    between = (at + true) // 2
    assert bool(exact.coins(np.array([gap]), rate, words=Script(between))[0]) == (between < true) != (between < at)


@settings(max_examples=200)
@given(
    gaps=st.lists(st.integers(1, 300), max_size=5, unique=True),
    counts=st.lists(st.integers(1, 5), min_size=6, max_size=6),
    rate=rates,
    boundary=st.integers(0, 5),
    off=st.integers(-2, 2),
    words=st.integers(2, 5),
)
def test_a_class_is_chosen_exactly_however_near_the_words_come_to_an_edge(
    gaps: list[int], counts: list[int], rate: Fraction, boundary: int, off: int, words: int
):
    classes = [0, *sorted(gaps)]
    with mpmath.workprec(3000):
        weights = [
            count * mpmath.exp(-mpmath.mpf(rate.numerator) * gap / rate.denominator)
            for gap, count in zip(classes, counts, strict=False)
        ]
        total = mpmath.fsum(weights)
        ends = [mpmath.fsum(weights[: i + 1]) / total for i in range(len(classes))]
        edge = ends[min(boundary, len(classes) - 1)]
        at = min(max(int(mpmath.floor(edge * mpmath.mpf(2) ** (64 * words))) + off, 0), 2 ** (64 * words) - 1)
        u = mpmath.mpf(at) / mpmath.mpf(2) ** (64 * words)
        wanted = next(i for i, end in enumerate(ends) if u < end)
    source = Script(*words_of(at, words))
    assert exact.weighted_class(classes, counts[: len(classes)], rate, words=source) == wanted


@pytest.mark.parametrize("size", [1, 2, 3, 2**40, 2**62 + 1])
def test_a_uniform_number_takes_only_words_that_are_equally_many_for_each(size: int):
    last = 2**64 // size * size - 1
    sizes = np.array([size])
    assert exact.uniform(sizes, words=Script(last)).tolist() == [size - 1]
    if last < 2**64 - 1:
        assert exact.uniform(sizes, words=Script(last + 1, 5)).tolist() == [5 % size]


@given(scores=st.lists(st.integers(-(2**61), 2**61), min_size=1, max_size=30), k=st.integers(1, 30))
def test_the_k_best_are_k_different_candidates_whatever_the_scores(scores: list[int], k: int):
    k = min(k, len(scores))
    for mechanism in CHOICES:
        chosen = top_k(np.array(scores), k, spread=1, epsilon=Fraction(1), mechanism=mechanism)  # type: ignore[arg-type]
        assert len(set(chosen.tolist())) == k
        assert set(chosen.tolist()) <= set(range(len(scores)))


@pytest.mark.parametrize("choice", [permute_and_flip, exponential])
def test_what_is_no_score_no_spread_and_no_epsilon_is_refused(choice: Callable[..., object]):
    good = np.zeros((1, 3), np.int64)
    for scores in (good.astype(float), good[0], np.zeros((1, 0), np.int64), good + 2**62):
        with pytest.raises(RequestError, match="scores"):
            choice(scores, spread=1, epsilon=Fraction(1))
    for spread in (0, -1, 1.5, True, 2**63):
        with pytest.raises(RequestError, match="spread"):
            choice(good, spread=spread, epsilon=Fraction(1))
    for epsilon in (0, -1, 0.5, True, math.inf, "1"):
        with pytest.raises(RequestError, match="epsilon"):
            choice(good, spread=1, epsilon=epsilon)


def test_more_choices_than_candidates_are_refused():
    for k in (0, 4, 1.5):
        with pytest.raises(RequestError, match="k: must be a whole number from 1 to 3"):
            top_k(np.zeros(3, np.int64), k, spread=1, epsilon=Fraction(1))  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="mechanism"):
        top_k(np.zeros(3, np.int64), 1, spread=1, epsilon=Fraction(1), mechanism="gumbel")  # type: ignore[arg-type]


@pytest.mark.parametrize("choice", [permute_and_flip, exponential])
@pytest.mark.parametrize("wrong", [2**61 + 1, -(2**61) - 1])
def test_one_score_beyond_the_largest_is_refused_beside_others_that_are_none(
    choice: Callable[..., object], wrong: int
) -> None:
    for scores in ([[0, wrong]], [[wrong, 0]], [[0, 0], [0, wrong]]):
        with pytest.raises(RequestError, match="2\\*\\*61"):
            choice(np.array(scores), spread=1, epsilon=Fraction(1))


@settings(max_examples=40, deadline=None)
@given(
    classes=st.lists(st.tuples(st.integers(2, 60), st.integers(1, 3)), min_size=1, max_size=3),
    first=st.integers(40, 64),
)
def test_a_class_that_is_settled_is_that_of_all_weights_within_their_errors(
    classes: list[tuple[int, int]], first: int
) -> None:
    bits, least = 6, Fraction(1, 10**9)
    weights, counts = [first, *(weight for weight, _ in classes)], [1, *(count for _, count in classes)]
    for drawn in range(1 << bits):
        place = exact._class_at(drawn, bits, weights, counts)
        for shifts in itertools.product((least - 1, 1 - least), repeat=len(classes)):
            true = [Fraction(first), *((weight + s) * n for (weight, n), s in zip(classes, shifts, strict=True))]
            ends = list(itertools.accumulate(true))
            for u in (Fraction(drawn, 1 << bits), Fraction(drawn + 1, 1 << bits) - least):
                assert place in (None, next(at for at, end in enumerate(ends) if end > u * ends[-1]))


@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("side", [-1, 1])
def test_a_class_is_decided_by_as_many_words_as_it_takes(digits: int, side: int) -> None:
    rate, counts = Fraction(1, 3), [2, 3]
    with mpmath.workdps(200):
        share = counts[0] / (counts[0] + counts[1] * mpmath.exp(-mpmath.mpf(1) / 3))
        drawn = int(mpmath.floor(share * mpmath.mpf(2) ** (64 * digits))) + side
    left = [drawn >> (64 * place) & (2**64 - 1) for place in reversed(range(digits))]

    def words(n: int) -> NDArray[np.uint64]:
        return np.array([left.pop(0) if left else 0 for _ in range(n)], np.uint64)

    assert exact.weighted_class([0, 1], counts, rate, words=words) == (side + 1) // 2


def test_a_whole_epsilon_is_taken_as_a_fraction_is_and_too_many_candidates_are_refused() -> None:
    assert exponential(np.zeros((1, 1), np.int64), spread=1, epsilon=1).tolist() == [0]
    with pytest.raises(RequestError, match="candidates"):
        exponential(np.zeros((1, MOST_CANDIDATES + 1), np.int64), spread=1, epsilon=1)
