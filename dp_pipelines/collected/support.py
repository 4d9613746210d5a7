"""How many reports support each value: whole numbers that add up over parts of the reports.

In: int64 reports of shape (n, fields of the question). Out: an int64 vector. Holds: a report outside its alphabet counts
nowhere, not even among the reports; nothing raises by what a report says. Not covered: estimates (`estimates`).
"""

import abc
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.collect.d_ary import DAry
from dp_pipelines.collect.hadamard import HadamardResponse
from dp_pipelines.collect.local_hashing import LocalHashing
from dp_pipelines.collect.one_bit import OneBit
from dp_pipelines.collect.piecewise import Piecewise
from dp_pipelines.collect.question import Question
from dp_pipelines.collect.randomizer import Randomizer
from dp_pipelines.collect.unary import WORD, UnaryEncoding

Reports = NDArray[np.int64]
Counts = NDArray[np.int64]
R = TypeVar("R", bound=Randomizer)

BLOCK = 1 << 15
"""Reports at a time: what is computed for each of them stays in the cache."""


@dataclass(frozen=True)
class Support(abc.ABC, Generic[R]):
    """Counts of one question. The first number is how many reports were valid.

    >>> from dp_pipelines.collect.domain import Choices
    >>> support = support_of(Question("asked", Choices(("yes", "no")), epsilon=1))
    >>> support.count(np.array([[0], [1], [1], [7]]))
    array([3, 1, 2])
    """

    randomizer: R

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """How many sums there are beside the number of reports."""

    @abc.abstractmethod
    def is_valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Which reports a device can have sent, bool of shape (n,)."""

    def supported(self, reports: Reports) -> NDArray[np.bool_]:
        """Which values each valid report supports, bool of shape (n, size), for mechanisms whose reports do."""
        raise NotImplementedError

    @abc.abstractmethod
    def sums(self, reports: Reports) -> Counts:
        """The sums over valid reports, int64 of shape (width,)."""

    def count(self, reports: Reports) -> Counts:
        """The number of valid reports and their sums, int64 of shape (1 + width,). They add up over parts of the reports.

        Args:
            reports: int64 of shape (n, fields).
        """
        total = np.zeros(1 + self.width, dtype=np.int64)
        for start in range(0, len(reports), BLOCK):
            block = reports[start : start + BLOCK]
            valid = self.is_valid(block)
            block = block if valid.all() else block[valid]
            total[0] += len(block)
            if len(block):
                total[1:] += self.sums(block)
        return total


def _within(reports: Reports, ends: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which reports have each of their numbers from 0 to below its end."""
    found = np.ones(len(reports), dtype=np.bool_)
    for field, end in enumerate(ends):
        column = reports[:, field]
        found &= (column >= 0) & (column < end)
    return found


class DArySupport(Support[DAry]):
    """How often each value is named.

    >>> from decimal import Decimal
    >>> DArySupport(DAry(Decimal(1), 3)).count(np.array([[0], [2], [2], [3]])).tolist()
    [3, 1, 0, 2]
    """

    @property
    def width(self) -> int:
        return self.randomizer.size

    def is_valid(self, reports: Reports) -> NDArray[np.bool_]:
        return _within(reports, (self.randomizer.size,))

    def supported(self, reports: Reports) -> NDArray[np.bool_]:
        return np.equal(reports[:, :1], np.arange(self.width))

    def sums(self, reports: Reports) -> Counts:
        return np.bincount(reports[:, 0], minlength=self.width)


class UnarySupport(Support[UnaryEncoding]):
    """How many reports have the bit of each value.

    >>> from decimal import Decimal
    >>> UnarySupport(UnaryEncoding(Decimal(1), 3)).count(np.array([[0b101], [0b001], [0b1000]])).tolist()
    [2, 2, 0, 1]
    """

    @property
    def width(self) -> int:
        return self.randomizer.size

    def is_valid(self, reports: Reports) -> NDArray[np.bool_]:
        size, words = self.randomizer.size, len(self.randomizer.fields)
        return _within(reports, (*((1 << WORD,) * (words - 1)), 1 << (size - WORD * (words - 1))))

    def supported(self, reports: Reports) -> NDArray[np.bool_]:
        words = np.ascontiguousarray(reports.astype("<u4"))
        bits = np.unpackbits(words.view(np.uint8), axis=1, count=self.randomizer.size, bitorder="little")
        return bits.view(np.bool_)

    def sums(self, reports: Reports) -> Counts:
        found: Counts = self.supported(reports).sum(axis=0, dtype=np.int64)
        return found


class LocalHashingSupport(Support[LocalHashing]):
    """How many reports name the bucket of each value under their own hash.

    >>> from decimal import Decimal
    >>> LocalHashingSupport(LocalHashing(Decimal(1), 3)).count(np.array([[0, 0, 0], [1, 0, 1]])).tolist()
    [2, 1, 1, 1]
    """

    @property
    def width(self) -> int:
        return self.randomizer.size

    def is_valid(self, reports: Reports) -> NDArray[np.bool_]:
        end = 1 << self.randomizer.hash_bits
        return _within(reports, (end, end, self.randomizer.buckets))

    def supported(self, reports: Reports) -> NDArray[np.bool_]:
        a, b, bucket = reports.astype(np.uint32).T[:, :, None]
        shift = np.uint32(self.randomizer.hash_bits - self.randomizer.bucket_bits)
        found: NDArray[np.bool_] = (a * np.arange(self.width, dtype=np.uint32) + b) >> shift == bucket
        return found

    def sums(self, reports: Reports) -> Counts:
        # 32 bits wrap by themselves. From one value to the next the hash grows by a: no product is needed.
        a, hashed, bucket = (np.ascontiguousarray(column) for column in reports.astype(np.uint32).T)
        shift = np.uint32(self.randomizer.hash_bits - self.randomizer.bucket_bits)
        found = np.empty(self.width, dtype=np.int64)
        buckets, same = np.empty_like(a), np.empty(len(a), dtype=np.bool_)
        for value in range(self.width):
            np.right_shift(hashed, shift, out=buckets)
            np.equal(buckets, bucket, out=same)
            found[value] = np.count_nonzero(same)
            np.add(hashed, a, out=hashed)
        return found


class HadamardSupport(Support[HadamardResponse]):
    """How often each code is named: the estimate adds signs over codes, once.

    >>> from decimal import Decimal
    >>> HadamardSupport(HadamardResponse(Decimal(1), 3)).count(np.array([[0], [3], [4]])).tolist()
    [2, 1, 0, 0, 1]
    """

    @property
    def width(self) -> int:
        return self.randomizer.codes

    def is_valid(self, reports: Reports) -> NDArray[np.bool_]:
        return _within(reports, (self.randomizer.codes,))

    def sums(self, reports: Reports) -> Counts:
        return np.bincount(reports[:, 0], minlength=self.width)


class OneBitSupport(Support[OneBit]):
    """How many reports say 1.

    >>> from decimal import Decimal
    >>> OneBitSupport(OneBit(Decimal(1), 17)).count(np.array([[0], [1], [1], [2]])).tolist()
    [3, 2]
    """

    @property
    def width(self) -> int:
        return 1

    def is_valid(self, reports: Reports) -> NDArray[np.bool_]:
        return _within(reports, (2,))

    def sums(self, reports: Reports) -> Counts:
        return np.array([np.count_nonzero(reports)])


class PiecewiseSupport(Support[Piecewise]):
    """The sum of the points that reports name; of coarser points and their squares, which tell how far reports scatter.

    >>> from decimal import Decimal
    >>> PiecewiseSupport(Piecewise(Decimal(1), 17)).count(np.array([[0], [8], [-1]])).tolist()
    [2, 8, 8, 64]
    """

    @property
    def width(self) -> int:
        return 3

    @property
    def coarser(self) -> int:
        """Bits that are cut off points, so that the squares of 2^33 reports add up in 64 bits."""
        return max(0, self.randomizer.points.bit_length() - 15)

    def is_valid(self, reports: Reports) -> NDArray[np.bool_]:
        return _within(reports, (self.randomizer.points,))

    def sums(self, reports: Reports) -> Counts:
        point = reports[:, 0]
        coarse = point >> self.coarser
        return np.array([point.sum(), coarse.sum(), (coarse * coarse).sum()])


SUPPORTS: dict[type[Randomizer], type[Support]] = {  # type: ignore[type-arg]
    DAry: DArySupport,
    UnaryEncoding: UnarySupport,
    LocalHashing: LocalHashingSupport,
    HadamardResponse: HadamardSupport,
    OneBit: OneBitSupport,
    Piecewise: PiecewiseSupport,
}


def support_of(question: Question) -> "Support[Randomizer]":
    """What counts the reports of a question."""
    found: Support[Randomizer] = SUPPORTS[type(question.randomizer)](question.randomizer)
    return found
