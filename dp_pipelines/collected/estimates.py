"""Unbiased estimates from counts of reports, with the standard deviations that the devices' chance causes.

In: a question and its counts (`support`). Out: for each value the estimated number of people, or the mean. Holds:
docs/proofs/local.md, sections 1 to 6; the deviations are those for these people, whose answers are what they are. Not covered:
that these people stand for others.
"""

import abc
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.collect.d_ary import DAry
from dp_pipelines.collect.domain import NumberGrid
from dp_pipelines.collect.hadamard import HadamardResponse
from dp_pipelines.collect.local_hashing import LocalHashing
from dp_pipelines.collect.one_bit import OneBit
from dp_pipelines.collect.piecewise import Piecewise
from dp_pipelines.collect.question import Question
from dp_pipelines.collect.randomizer import Randomizer
from dp_pipelines.collect.unary import UnaryEncoding
from dp_pipelines.collected.support import Counts, PiecewiseSupport, R

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PeopleEstimates:
    """What reports say of the people who sent them.

    Attributes:
        reports: how many reports were valid.
        values: for choices and bins the number of people with each value, float64 of shape (size,), which may be negative; for
            a grid the mean, of shape (1,).
        deviations: their standard deviations, of the same shape.

    >>> PeopleEstimates(reports=2, values=np.array([2.0, 0.0]), deviations=np.array([1.0, 1.0])).reports
    2
    """

    reports: int
    values: Floats
    deviations: Floats


class Estimator(abc.ABC, Generic[R]):
    """How one mechanism's counts become estimates.

    >>> from dp_pipelines.collect.domain import Choices
    >>> found = estimator_of(Question("asked", Choices(("yes", "no")), epsilon=1)).estimates(np.array([1000, 600, 400]))
    >>> found.reports, found.values.round().tolist(), found.deviations.round().tolist()
    (1000, [716.0, 284.0], [30.0, 30.0])
    """

    def __init__(self, question: Question, randomizer: R) -> None:
        self.question = question
        self.randomizer = randomizer

    @abc.abstractmethod
    def estimates(self, counts: Counts) -> PeopleEstimates:
        """PeopleEstimates from counts, int64 of shape (1 + width,)."""

    @abc.abstractmethod
    def expected_deviation(self, reports: int, frequency: float) -> float:
        """The standard deviation of one value's number of people, or of a mean, before a report is collected.

        Args:
            reports: how many there will be.
            frequency: the true share of people with the value; for a grid the place of the mean in its range, 0 to 1.
        """


class ByChance(Estimator[R]):
    """Mechanisms that are told by two numbers: the chance that a report supports its own value, and any other value.

    >>> from dp_pipelines.collect.domain import Choices
    >>> estimator = estimator_of(Question("asked", Choices(("yes", "no")), epsilon=1))
    >>> isinstance(estimator, ByChance), [round(float(chance), 4) for chance in estimator.chances]
    (True, [0.7311, 0.2689])
    """

    @property
    @abc.abstractmethod
    def chances(self) -> tuple[Fraction, Fraction]:
        """P and q: the chances that a report supports the true value, and a value that is not."""

    def estimates(self, counts: Counts) -> PeopleEstimates:
        n, p, q = int(counts[0]), *map(float, self.chances)
        values = (counts[1:] - n * q) / (p - q)
        share = np.clip(values / n, 0, 1) if n else np.zeros_like(values)
        return PeopleEstimates(n, values.astype(np.float64), np.sqrt(n * self._variance(share)))

    def expected_deviation(self, reports: int, frequency: float) -> float:
        return float(np.sqrt(reports * self._variance(np.array([frequency])))[0])

    def _variance(self, share: Floats) -> Floats:
        """Of one report's estimate: a yes or no for each person, by chance p or q."""
        p, q = map(float, self.chances)
        found: Floats = (q * (1 - q) + share * (p - q) * (1 - p - q)) / (p - q) ** 2
        return found


class OfDAry(ByChance[DAry]):
    """A report supports the value that it names.

    >>> from dp_pipelines.collect.domain import Choices
    >>> estimator = estimator_of(Question("asked", Choices(("yes", "no", "maybe")), epsilon=1, mechanism="d_ary"))
    >>> type(estimator).__name__, round(estimator.expected_deviation(1_000_000, 0.1))
    ('OfDAry', 1148)
    """

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        q = Fraction(self.randomizer.other, self.randomizer.coins)
        return q + Fraction(self.randomizer.chances_left(), self.randomizer.coins), q


class OfUnary(ByChance[UnaryEncoding]):
    """A report supports the values whose bits are one.

    >>> from dp_pipelines.collect.domain import Choices
    >>> estimator = estimator_of(Question("asked", Choices(("yes", "no", "maybe")), epsilon=1, mechanism="unary"))
    >>> type(estimator).__name__, round(estimator.expected_deviation(1_000_000, 0.1))
    ('OfUnary', 1945)
    """

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        return Fraction(1, 2), Fraction(self.randomizer.one, self.randomizer.coins)


class OfLocalHashing(ByChance[LocalHashing]):
    """A report supports the values in the bucket that it names.

    >>> from dp_pipelines.collect.domain import Choices
    >>> estimator = estimator_of(Question("asked", Choices(("yes", "no", "maybe")), epsilon=1, mechanism="local_hashing"))
    >>> type(estimator).__name__, round(estimator.expected_deviation(1_000_000, 0.1))
    ('OfLocalHashing', 1953)
    """

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        response = self.randomizer.response
        p = Fraction(response.other + response.chances_left(), response.coins)
        return p, Fraction(1, self.randomizer.buckets)


class OfHadamard(Estimator[HadamardResponse]):
    """A report in a value's block adds the sign of the value's row at its code.

    >>> from dp_pipelines.collect.domain import Choices
    >>> estimator = estimator_of(Question("asked", Choices(("yes", "no", "maybe")), epsilon=1, mechanism="hadamard"))
    >>> type(estimator).__name__, round(estimator.expected_deviation(1_000_000, 0.1))
    ('OfHadamard', 2162)
    """

    @property
    def _signal(self) -> float:
        """The mean of the sum of signs, for each person with the value."""
        half = self.randomizer.block_size // 2
        return half * self.randomizer.own_code / self.randomizer.coins

    def estimates(self, counts: Counts) -> PeopleEstimates:
        n, blocks = int(counts[0]), counts[1:].reshape(self.randomizer.blocks, self.randomizer.block_size)
        values = (signed_sums(blocks)[:, 1:].ravel()[: self.randomizer.size]) / self._signal
        rows = self.randomizer.block_size - 1
        in_block = np.repeat(blocks.sum(axis=1), rows)[: self.randomizer.size]
        people = np.clip(values, 0, n)
        variance = in_block / self._signal**2 - (people**2 / n if n else 0)
        return PeopleEstimates(n, values, np.sqrt(np.maximum(variance, 0)))

    def expected_deviation(self, reports: int, frequency: float) -> float:
        # The other people are spread over the blocks evenly.
        own = frequency + (1 - frequency) / self.randomizer.blocks
        block = self.randomizer.block_size * self.randomizer.any_code / self.randomizer.coins + own * self._signal
        return float(np.sqrt(reports * (block - (frequency * self._signal) ** 2)) / self._signal)


class OfOneBit(Estimator[OneBit]):
    """The share of ones, on the line between the chances at both ends.

    >>> from dp_pipelines.collect.domain import NumberGrid
    >>> estimator = estimator_of(Question("hours", NumberGrid(0, 24), epsilon=1, mechanism="one_bit"))
    >>> type(estimator).__name__, round(estimator.expected_deviation(1_000_000, 0.5), 4)
    ('OfOneBit', 0.026)
    """

    def estimates(self, counts: Counts) -> PeopleEstimates:
        n, ones = int(counts[0]), int(counts[1])
        share = ones / n if n else 0.5
        return PeopleEstimates(n, np.array([self._place(share)]), np.array([self._deviation(n, share)]))

    def expected_deviation(self, reports: int, frequency: float) -> float:
        lowest = self.randomizer.lowest / self.randomizer.coins
        return self._deviation(reports, lowest + frequency * (1 - 2 * lowest))

    def _deviation(self, n: int, share: float) -> float:
        # People's own chances differ; their variances add up to at most that of their mean chance (Jensen).
        slope = 1 - 2 * self.randomizer.lowest / self.randomizer.coins
        return _width(self.question) * float(np.sqrt(share * (1 - share) / max(n, 1))) / slope

    def _place(self, share: float) -> float:
        lowest = self.randomizer.lowest / self.randomizer.coins
        return _low(self.question) + _width(self.question) * (share - lowest) / (1 - 2 * lowest)


class OfPiecewise(Estimator[Piecewise]):
    """The mean of the reported points, which grows evenly with the true number.

    >>> from dp_pipelines.collect.domain import NumberGrid
    >>> estimator = estimator_of(Question("hours", NumberGrid(0, 24), epsilon=1, mechanism="piecewise"))
    >>> type(estimator).__name__, round(estimator.expected_deviation(1_000_000, 0.5), 4)
    ('OfPiecewise', 0.023)
    """

    def estimates(self, counts: Counts) -> PeopleEstimates:
        n, total, coarse, squares = map(int, counts)
        if not n:
            return PeopleEstimates(
                0, np.array([_low(self.question) + _width(self.question) / 2]), np.array([self._scale(0.5)])
            )
        unit = 1 << PiecewiseSupport(self.randomizer).coarser
        # Squares of coarse points, moved to the middle of what each stands for.
        second = unit**2 * (squares / n + (1 - 1 / unit) * coarse / n + (1 - 1 / unit) ** 2 / 4)
        place = (total / n - self._mean(0)) / (self._mean(1) - self._mean(0))
        value = _low(self.question) + _width(self.question) * place
        deviation = self._scale(float(np.sqrt(self._variance(min(max(place, 0), 1), second)))) / float(np.sqrt(n))
        return PeopleEstimates(n, np.array([value]), np.array([deviation]))

    def expected_deviation(self, reports: int, frequency: float) -> float:
        shared, own = self._parts
        middle = self._middle(frequency)
        second = shared * self._shared_square + own * (middle**2 + self._own_square)
        return self._scale(float(np.sqrt(self._variance(frequency, second)))) / float(np.sqrt(reports))

    @property
    def _parts(self) -> tuple[float, float]:
        """The chances of a point whatever the value, and of a point of the window."""
        r = self.randomizer
        return r.points * r.any_point / r.coins, r.window * r.near_point / r.coins

    @property
    def _shared_square(self) -> float:
        return (self.randomizer.points - 1) * (2 * self.randomizer.points - 1) / 6

    @property
    def _own_square(self) -> float:
        return float(self.randomizer.window**2 - 1) / 12

    def _middle(self, place: float) -> float:
        """The middle of the window for a place of the range, 0 to 1."""
        return self.randomizer.shift * place * (self.randomizer.size - 1) + (self.randomizer.window - 1) / 2

    def _mean(self, place: float) -> float:
        """The mean of a report for a person at a place of the range, 0 to 1."""
        shared, own = self._parts
        return shared * (self.randomizer.points - 1) / 2 + own * self._middle(place)

    def _variance(self, place: float, second: float) -> float:
        """Of one report given its person's number, on average over people. How far these differ, the second moment tells.

        Args:
            place: the mean place of people in the range, 0 to 1.
            second: the mean square of a report over people and chance.
        """
        shared, own = self._parts
        low, high, mean = self._middle(0), self._middle(1), self._middle(place)
        squares = (second - shared * self._shared_square) / own - self._own_square
        # What numbers in the range can have, given their mean.
        squares = min(max(squares, mean**2), (low + high) * mean - low * high)
        base = shared * (self.randomizer.points - 1) / 2
        second = shared * self._shared_square + own * (squares + self._own_square)
        return second - (base**2 + 2 * base * own * mean + own**2 * squares)

    def _scale(self, points: float) -> float:
        """Points of a report in units of the answer."""
        return points * _width(self.question) / (self._mean(1) - self._mean(0))


def signed_sums(blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row of the Hadamard matrix the sum of counts under its signs: the fast Walsh-Hadamard transform of each block.

    Args:
        blocks: int64 of shape (blocks, a power of two).

    >>> signed_sums(np.array([[3, 1, 0, 2]])).tolist()
    [[6, 0, 2, 4]]
    """
    found = blocks.astype(np.int64)
    count, size = found.shape
    half = 1
    while half < size:
        pairs = found.reshape(count, size // (2 * half), 2, half)
        found = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2).reshape(
            count, size
        )
        half *= 2
    return found


def _grid(question: Question) -> NumberGrid:
    assert isinstance(question.domain, NumberGrid)
    return question.domain


def _low(question: Question) -> float:
    return float(_grid(question).low)


def _width(question: Question) -> float:
    return float(_grid(question).high - _grid(question).low)


ESTIMATORS: dict[type[Randomizer], type[Estimator]] = {  # type: ignore[type-arg]
    DAry: OfDAry,
    UnaryEncoding: OfUnary,
    LocalHashing: OfLocalHashing,
    HadamardResponse: OfHadamard,
    OneBit: OfOneBit,
    Piecewise: OfPiecewise,
}


def estimator_of(question: Question) -> "Estimator[Randomizer]":
    """What estimates from the counts of a question's reports.

    >>> from dp_pipelines.collect.domain import Choices
    >>> question = Question("asked", Choices(tuple(range(1024))), epsilon=1, mechanism="unary")
    >>> round(estimator_of(question).expected_deviation(1_000_000, frequency=0))
    1919
    """
    found: Estimator[Randomizer] = ESTIMATORS[type(question.randomizer)](question, question.randomizer)
    return found
