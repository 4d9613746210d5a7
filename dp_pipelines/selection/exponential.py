"""The choice of the best among public candidates: exact permute-and-flip and exponential mechanisms over whole scores.

In: a whole score for each candidate, how differently one unit can move two of them (`spread`), epsilon as a fraction.
Out: the index of a candidate, or of k of them. Holds: given ideal words, each choice has exactly the law stated
(selection.exact). Not covered: where scores come from, and how good a choice is.
"""

# * Permute-and-flip is epsilon-DP: its record is `approximate_dp` with delta 0.
# * The exponential mechanism is epsilon-bounded-range, hence epsilon-DP: its record is `bounded_range`, which composes
#   better.
# * k choices, one after another and each among the remaining ones, are k such decisions (docs/proofs/exponential.md).
#
# **Spread.** When one unit is added, the changes of all scores lie in an interval of this length: Delta if a unit only
# raises scores, and none by more than Delta (counts); 2 Delta if it can move them by up to Delta in either direction.
#
# Permute-and-flip is never worse in expectation than the exponential mechanism at the same epsilon; the latter costs
# less when many choices are composed.
#
# Sources: McSherry, Talwar 2007; McKenna, Sheldon 2020 (permute-and-flip); Durfee, Rogers 2019 (top k: Gumbel noise and one sort
# have the law of k exponential mechanisms, lemma 4.2); Dong, Durfee, Rogers 2020 (bounded range).
#
# INTERNAL, like `noise.samplers`.

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.noise import entropy
from dp_pipelines.noise.alias_tables import WordSource
from dp_pipelines.selection import exact

Integers = npt.NDArray[np.int64]
Choosing = Literal["permute_and_flip", "exponential"]

LARGEST_SCORE = 2**61
"""The largest magnitude of a score: gaps then fit int64."""

MOST_CANDIDATES = 2**20


def permute_and_flip(
    scores: Integers, *, spread: int, epsilon: Fraction, words: WordSource = entropy.words
) -> Integers:
    """Choose one candidate for each row of scores, by permute-and-flip: epsilon-DP for a row.

    In random order each candidate flips a coin that is heads with probability exp(-epsilon * gap / spread), where gap
    is its distance from the best score. The first heads wins: a uniform choice among all candidates whose coins are
    heads.

    Returns:
        (rows,) indices of candidates.

    Args:
        scores: int64 of shape (rows, candidates).
        spread: see the comment at the top of this module.
        epsilon: of one choice.
        words: the source of words; for tests.

    Raises:
        RequestError: an argument is out of its range.

    >>> permute_and_flip(np.array([[0, 10**9, 5]]), spread=1, epsilon=Fraction(1)).tolist()
    [1]
    """
    checked, rate = _checked(scores, spread, epsilon)
    heads = exact.coins(checked.max(axis=1, keepdims=True) - checked, rate, words=words)
    return exact.chosen_head(heads, exact.uniform(heads.sum(axis=1), words=words))


def exponential(scores: Integers, *, spread: int, epsilon: Fraction, words: WordSource = entropy.words) -> Integers:
    """Choose one candidate for each row of scores, with probability proportional to exp(epsilon * score / spread).

    Arguments, result and errors as for `permute_and_flip`.

    >>> exponential(np.array([[0, 10**9, 5]]), spread=1, epsilon=Fraction(1)).tolist()
    [1]
    """
    checked, rate = _checked(scores, spread, epsilon)
    return np.array([_exponential_of(row, rate, words) for row in checked], dtype=np.int64)


def _exponential_of(scores: Integers, rate: Fraction, words: WordSource) -> int:
    gaps, counts = np.unique(scores.max() - scores, return_counts=True)
    place = exact.weighted_class(gaps.tolist(), counts.tolist(), rate, words=words)
    members = np.flatnonzero(scores == scores.max() - gaps[place])
    return int(members[exact.uniform(np.array([len(members)]), words=words)[0]])


CHOICES: dict[str, Callable[..., Integers]] = {"permute_and_flip": permute_and_flip, "exponential": exponential}
"""Functions that choose one candidate in each row, by name of mechanism."""


def top_k(
    scores: Integers,
    k: int,
    *,
    spread: int,
    epsilon: Fraction,
    mechanism: Choosing = "permute_and_flip",
    words: WordSource = entropy.words,
) -> Integers:
    """Choose k different candidates, one after the other, each among the rest and with its own epsilon.

    Args:
        scores: (candidates,).
        k: how many to choose, at most the number of candidates.
        spread, epsilon, words: as for `permute_and_flip`.
        mechanism: of each choice.

    Returns:
        (k,) indices of candidates, in the order in which they were chosen.

    Raises:
        RequestError: an argument is out of its range.

    >>> top_k(np.array([0, 10**9, 10**6]), 2, spread=1, epsilon=Fraction(1)).tolist()
    [1, 2]
    """
    if mechanism not in CHOICES:
        raise RequestError(field="mechanism", message="must be one of " + ", ".join(CHOICES))
    k = checks.whole(k, "k", low=1, high=len(scores))
    left, chosen = np.arange(len(scores)), np.empty(k, np.int64)
    for number in range(k):
        place = int(CHOICES[mechanism](scores[left][None, :], spread=spread, epsilon=epsilon, words=words)[0])
        chosen[number] = left[place]
        left = np.delete(left, place)
    return chosen


def _checked(scores: Any, spread: Any, epsilon: Any) -> tuple[Integers, Fraction]:
    """Return the scores as int64 and epsilon / spread, exactly; raise RequestError if an argument is out of its range."""
    array = np.asarray(scores)
    if array.dtype != np.int64 or array.ndim != 2 or not array.shape[1]:
        raise RequestError(
            field="scores", message="must be whole numbers (int64), one row of candidates for each choice"
        )
    checks.whole(array.shape[1], "candidates", low=1, high=MOST_CANDIDATES, hint="declare fewer")
    if array.size and not (array.min() >= -LARGEST_SCORE and array.max() <= LARGEST_SCORE):
        raise RequestError(field="scores", message="must be from -2**61 to 2**61")
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, Fraction)) or not epsilon > 0:
        raise RequestError(
            field="epsilon", message="must be a fractions.Fraction above 0", hint="write e.g. Fraction(1, 2)"
        )
    return array, Fraction(epsilon) / checks.whole(spread, "spread", low=1, high=2**62)
