"""The exact law of a local randomizer: every outcome of its coins, at a precision that allows to try all.

In: a randomizer with coins of few bits. Out: how often each report comes for each value, of how many. Holds: it calls the very
method that devices call. Not covered: coins of 52 bits, which differ in the number alone.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from dp_pipelines.collect.randomizer import Randomizer


class Replayed:
    """Coins that were thrown before."""

    def __init__(self, thrown: Sequence[int]) -> None:
        self.thrown = list(thrown)
        self.asked: list[int] = []

    def draw(self, bits: int) -> int:
        self.asked.append(bits)
        return self.thrown.pop(0)


class Asking:
    """Coins that always show 0 and remember their sizes."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def draw(self, bits: int) -> int:
        self.asked.append(bits)
        return 0


def all_coins(randomizer: Randomizer) -> Iterator[tuple[int, ...]]:
    """Every outcome of the coins that one report throws."""
    asking = Asking()
    randomizer.respond(0, asking)
    return itertools.product(*(range(2**bits) for bits in asking.asked))


def law(randomizer: Randomizer, index: int) -> dict[tuple[int, ...], Fraction]:
    """The chance of each report of a device whose value has `index`."""
    found: Counter[tuple[int, ...]] = Counter()
    for thrown in all_coins(randomizer):
        coins = Replayed(thrown)
        found[randomizer.respond(index, coins)] += 1
        assert not coins.thrown, "a report throws as many coins whatever the value and whatever they show"
    total = sum(found.values())
    return {report: Fraction(times, total) for report, times in found.items()}


def largest_ratio(randomizer: Randomizer) -> Fraction | None:
    """The largest ratio of the chances of one report under two values; None where a report is impossible under one of them."""
    laws = [law(randomizer, index) for index in range(randomizer.size)]
    reports = set().union(*laws)
    if any(report not in one for report in reports for one in laws):
        return None
    return max(max(one[report] for one in laws) / min(one[report] for one in laws) for report in reports)
