"""Noise given that it lies in a range: chances and draws are those of the sampler itself."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dp_pipelines.noise import FlooredLaplace, Law, RoundedGaussian, samplers
from dp_pipelines.noise.conditional_draws import SampledLaw, Weighted
from tests.helpers.seeded import words
from tests.noise.test_samplers import SMALL, draws_over_all_words

ALPHA = 1e-9
LAWS: list[Law] = [
    RoundedGaussian(Fraction(3, 2)),
    RoundedGaussian(Fraction(700)),
    FlooredLaplace(Fraction(5)),
    FlooredLaplace(Fraction(2**20)),  # two digits
]
ENDS = [(2.0, None), (None, -1.5), (-0.5, 1.0), (0.0, 0.0), (None, None), (3.0, 3.2), (0.0, None), (None, -0.01)]


@pytest.mark.parametrize("layout", SMALL.values(), ids=SMALL)
def test_the_chance_of_a_draw_is_the_share_of_all_words_that_give_it(layout: samplers.TableLayout) -> None:
    drawn, count = np.unique(draws_over_all_words(layout), return_counts=True)
    law, whole = SampledLaw(layout), int(count.sum())
    found = {value: law.chance(value, value) for value in range(int(drawn[0]) - 2, int(drawn[-1]) + 3)}
    assert {value: chance for value, chance in found.items() if chance} == {
        int(value): Fraction(int(n), whole) for value, n in zip(drawn, count, strict=True)
    }
    for first in range(int(drawn[0]) - 1, 3, 2):
        for last in range(first, int(drawn[-1]) + 2):
            assert law.chance(first, last) == sum(found.get(value, 0) for value in range(first, last + 1))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_ranges_that_make_up_all_numbers_have_chances_that_add_up_to_one(law: Law) -> None:
    sampled, scale = SampledLaw.of(law), int(law.scale)
    cuts = [-2 * scale, -1, 0, 1, scale, 2 * scale + 1]
    ranges = zip([None, *cuts], [*(cut - 1 for cut in cuts), None], strict=True)
    chances = [sampled.chance(*ends) for ends in ranges]
    assert sum(chances) == 1
    assert float(chances[-1]) == pytest.approx(law.tail(cuts[-1]), rel=1e-12)
    assert sampled.chance(10**9, None) == 0
    for chance in chances:
        assert chance.denominator.bit_count() == 1


def bins_p(law: Law, ends: tuple[int | None, int | None], drawn: np.ndarray) -> float:
    """How well draws fit the law given that they lie between two ends: in twelve bins of about equal chance."""
    sampled = SampledLaw.of(law)
    whole = sampled.chance(*ends)
    edges = sorted({int(edge) for edge in np.quantile(drawn, np.linspace(0, 1, 13)[1:-1])})
    ranges = list(zip([ends[0], *edges], [*(edge - 1 for edge in edges), ends[1]], strict=True))
    chances = [sampled.chance(*r) if None in r or r[0] <= r[1] else Fraction(0) for r in ranges]  # type: ignore[operator]
    counts = np.histogram(drawn, [-(2**62), *edges, 2**62])[0]
    assert all(count == 0 for count, chance in zip(counts, chances, strict=True) if not chance)
    expected = np.array([float(chance / whole) for chance in chances])
    counts, expected = counts[expected > 0], expected[expected > 0]
    return float(stats.chisquare(counts, expected / expected.sum() * len(drawn)).pvalue) if len(counts) > 1 else 1.0


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_draws_of_a_range_have_the_law_of_those_draws_of_the_sampler_that_lie_in_it(
    law: Law, ends: tuple[float | None, float | None]
) -> None:
    whole = tuple(None if end is None else round(end * float(law.scale)) for end in ends)
    drawn = SampledLaw.of(law).draw(50_000, *whole, words(7))
    assert whole[0] is None or drawn.min() >= whole[0]
    assert whole[1] is None or drawn.max() <= whole[1]
    assert bins_p(law, whole, drawn) > ALPHA / 64


@pytest.mark.parametrize("law", LAWS[1:], ids=str)
def test_draws_of_another_range_are_seen(law: Law) -> None:
    first, scale = round(2 * law.scale), round(law.scale)
    drawn = SampledLaw.of(law).draw(50_000, first, first + scale, words(7))
    assert bins_p(law, (first, None), drawn) < ALPHA


def test_a_word_that_leaves_open_which_weight_is_drawn_is_settled_by_further_words() -> None:
    # The sums are an eighth, a quarter and a half of what two words can be; the first lies a little above its head.
    weights = [2**70 + 1, 2**70 - 1, 2**71]
    eighth = 1 << 61
    spare = 128 - sum(weights).bit_length()

    def drawn(further: int) -> int:
        # Ten candidates come at once, and each of them needs one more word.
        return int(Weighted(weights).draw(1, lambda n: np.full(n, eighth if n > 1 else further, np.uint64))[0])

    edge = ((2**70 + 1) << spare) - (eighth << 64)
    assert drawn(edge - 1) == 0
    assert drawn(edge) == 1


def test_a_weight_of_zero_is_never_drawn() -> None:
    assert set(Weighted([0, 5, 0, 1, 0]).draw(5000, words(3)).tolist()) == {1, 3}


def test_weights_are_drawn_in_proportion_and_a_shifted_one_is_seen() -> None:
    weights = [3**50, 2 * 3**50, 5, 3**51]

    def p(drawn: np.ndarray) -> float:
        counts = np.bincount(drawn, minlength=4)
        assert counts[2] == 0, "its chance is 1e-23"
        return float(stats.chisquare(counts[[0, 1, 3]], np.array([1, 2, 3]) / 6 * len(drawn)).pvalue)

    drawn = Weighted(weights).draw(60_000, words(11))
    assert p(drawn) > ALPHA
    assert p(np.where(drawn == 1, 3, drawn)) < ALPHA
