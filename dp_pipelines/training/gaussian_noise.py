"""Gaussian noise for sums of vectors of floats, on a lattice so fine that rounding to it costs next to nothing.

In: a sum of clipped vectors in float64, how far it may be from the exact sum, and the noise multiplier that the plan
has accounted for. Out: the sum with noise, float64. Holds: the release is post-processing of the exact sum, rounded to
the lattice, plus independent continuous Gaussian noise of at least multiplier * (norm, slack and rounding included), up
to a total variation of 2**-100 for each coordinate, which the accountant counts as one draw (docs/proofs/training.md,
1). Not covered: whether the vectors were clipped and the slack is true (the kernels state that); anyone who can read
this process's memory.
"""

# How it works: the integer noise is k R + F, with R from the table of a discrete Gaussian and F from that of a rounded
# one; together they are, to 2**-112, a rounded Gaussian of scale 2**22. Each takes half a word, since the operating
# system's generator takes most of the time; if half a word does not settle a draw (at most one in 2**15), it takes
# three more. Nothing is kept between sums. Large sums are drawn in blocks by compiled loops, on all cores and before the
# sum is complete; small ones by NumPy, as are all where Numba is not installed. Of the same words both make the same
# block.
#
# INTERNAL, like `noise.samplers`: the source of words is for tests.

import dataclasses
import functools
import math
import os
from collections import deque
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.noise import entropy, interval_arithmetic
from dp_pipelines.noise.alias_tables import Words, WordSource
from dp_pipelines.noise.laws import DiscreteGaussian, Law, RoundedGaussian
from dp_pipelines.noise.samplers import CHUNK, TOTAL_VARIATION_BOUND, TableLayout, lay_out
from dp_pipelines.training import libraries, threads

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

COARSE = 4096
"""The scale of the discrete Gaussian, in coarse steps."""

FINE = 2048
"""The scale of the rounded Gaussian, in fine steps."""

RATIO = 1024
"""Fine steps of a coarse one."""

SCALE = COARSE * RATIO
"""The scale of the noise in fine steps; its true value is the root of SCALE**2 + FINE**2, larger by one part in
2**23."""

UNLIKE = Fraction(1, 2**112)
"""An upper bound on the total variation between the sum of both and one Gaussian: docs/proofs/training.md, lemma 2."""

HALF = 32
"""Bits of half a word."""

FURTHER = 3
"""How many further halves of words settle a draw that one half does not."""

LARGE = 2**13
"""The noise of sums of so many coordinates is drawn in blocks, of `samplers.CHUNK`, by several threads."""

MOST_SIZE = 2**30
LEAST_MULTIPLIER = Fraction(1, 64)

MOST_STEPS = 2.0**61
"""No sum of fewer than 2**31 clipped vectors has a coordinate beyond this; noise is below 2**28."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisySum:
    """The Gaussian mechanism for a sum of vectors, to which each privacy unit adds one.

    Args:
        size: the number of coordinates.
        norm: an upper bound on the L2 norm of one unit's vector.
        multiplier: the standard deviation of the noise over the sensitivity, as the plan accounts it, from 1/64.
        slack: how far the float sum may be from the exact one for any data, in L2 and relative to `norm`.
        words: where words come from; for tests.
        take: called before each sum gets its noise; raises if the record of the sums pays for no further one.

    Raises:
        RequestError: a number is out of its range, or rounding so many coordinates would be half of the sensitivity.

    >>> noise = NoisySum(size=3, norm=2.0, multiplier=Fraction(5), slack=0.0)
    >>> noise.release(np.zeros(3)).shape, 10 <= noise.stddev < 10.0001
    ((3,), True)
    """

    size: int
    norm: float
    multiplier: Fraction
    slack: float
    words: WordSource = dataclasses.field(default=entropy.words, repr=False)
    take: Callable[[], None] | None = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.whole(self.size, "size", low=1, high=MOST_SIZE)
        checks.number(self.norm, "norm", above=1e-200, below=1e200)
        if self.slack != 0:
            checks.number(self.slack, "slack", above=0, below=1)
        if isinstance(self.multiplier, bool) or not isinstance(self.multiplier, (int, Fraction)):
            raise RequestError(field="multiplier", message="must be a fractions.Fraction")
        if not LEAST_MULTIPLIER <= self.multiplier <= SCALE:
            raise RequestError(field="multiplier", message=f"must be from {LEAST_MULTIPLIER} to {SCALE}")
        if not self._sensitivity > 2 * _root_above(self.size):
            hint = "train a smaller model, or with a larger budget"
            raise RequestError(field="size", message="is too large for so much noise", hint=hint)

    @property
    def _sensitivity(self) -> Fraction:
        """How much a unit may change all coordinates together, in fine steps."""
        return Fraction(SCALE) / self.multiplier

    @functools.cached_property
    def steps(self) -> float:
        """Fine steps of 1: the largest float with norm * (1 + 2 slack) * steps + sqrt(size) <= sensitivity."""
        left = self._sensitivity - _root_above(self.size)
        exact = left / (Fraction(self.norm) * (1 + 2 * Fraction(self.slack)))
        near = float(exact)
        return near if Fraction(near) <= exact else math.nextafter(near, 0.0)

    @property
    def stddev(self) -> float:
        """The standard deviation of the noise of a coordinate."""
        return math.hypot(SCALE, FINE) / self.steps

    @property
    def total_variation_bound(self) -> Fraction:
        """An upper bound, below 2**-100, on how far one coordinate's noise is from the Gaussian law, with both tables."""
        return sum((part.tables.total_variation_bound for part in _parts(entropy.words)), UNLIKE)

    def begin(self) -> "Begun | None":
        """The noise of the next release, for threads that have nothing else to do while its sum is computed.

        Returns:
            what one call of `release` takes; None where that would gain nothing: of small sums, without Numba.
        """
        # Words that are not the operating system's are a test's, which wants them in order.
        if self.words is not entropy.words or not self._in_blocks:
            return None
        check()
        return Begun(self.size, self.words)

    def release(self, total: Floats, begun: "Begun | None" = None) -> Floats:
        """The sum with noise.

        Args:
            total: float64 (size,). Each call draws anew, so call it once per sum.
            begun: of `begin`, for this sum only.

        Raises:
            ValueError: the shape is wrong, or a number is not finite or far beyond any sum of clipped vectors.
        """
        return self.release_in_series(total, 0, begun)[0]

    def release_in_series(
        self, total: Floats, carried: Integers | int, begun: "Begun | None" = None
    ) -> tuple[Floats, Integers]:
        """The sum with noise from which a part of earlier noise is taken back.

        Args:
            total, begun: as for `release`.
            carried: int64 (size,), in fine steps: what earlier noise counts here (`correlated_noise.NoiseSeries`).

        Returns:
            the sum with noise; the noise in fine steps, which is private.
        """
        if total.shape != (self.size,):
            raise ValueError("a sum has as many coordinates as its noise")
        near = np.rint(total * self.steps)
        if not np.abs(near).max() <= MOST_STEPS:
            raise ValueError("a sum of clipped vectors is finite and not that large")
        check()
        if self.take is not None:
            self.take()
        noise = self._drawn() if begun is None else begun.whole(threads.processors())
        noise -= carried
        noisy = near.astype(np.int64)
        noisy += noise
        result: Floats = noisy.astype(np.float64)
        result /= self.steps
        return result, noise

    @property
    def _in_blocks(self) -> bool:
        return self.size >= LARGE and libraries.compiles() and _loop() is not None

    def _drawn(self) -> Integers:
        """The noise of all coordinates in fine steps."""
        if not self._in_blocks:
            return _noise_of(_parts(self.words), self.size, _Part.draw)
        return Begun(self.size, self.words).whole(threads.processors() if self.words is entropy.words else 1)


class Begun:
    """The noise of one large sum, block by block: each is drawn once, by whichever thread takes it.

    Args:
        size: the number of coordinates.
        words: where words come from.

    >>> begun = Begun(2**14, entropy.words)
    >>> begun.draw_a_block(), begun.whole(2).shape, begun.draw_a_block()
    (True, (16384,), False)
    """

    def __init__(self, size: int, words: WordSource) -> None:
        self._parts, self._process = _parts(words), os.getpid()
        self._noise = np.zeros(size, np.int64)
        self._left = deque(range(0, size, CHUNK))
        self._drawn = np.zeros(len(self._left), np.bool_)
        self._taken = deque([False])

    def draw_a_block(self) -> bool:
        """Draw a block that nobody has taken; false if there is none."""
        try:
            begin = self._left.popleft()
        except IndexError:
            return False
        block = self._noise[begin : begin + CHUNK]
        block[:] = _noise_of(self._parts, len(block), _Part.draw_compiled)
        self._drawn[begin // CHUNK] = True
        return True

    def whole(self, workers: int) -> Integers:
        """The noise in fine steps; once.

        Args:
            workers: threads that draw the rest.

        Raises:
            AssertionError: it was taken before, or another thread has not finished a block, or another process began it.
        """

        def rest() -> None:
            while self.draw_a_block():
                pass

        threads.together(rest, min(workers, len(self._left)))
        if os.getpid() != self._process:  # it has the same noise
            raise AssertionError("noise is taken in the process that has begun it")
        if not self._taken or not self._drawn.all():
            raise AssertionError("noise is taken once, when all of it is drawn")
        self._taken.pop()
        return self._noise


@dataclasses.dataclass(frozen=True)
class _Part:
    """One part of the noise: a law with its tables for halves of words, and where words come from."""

    law: Law
    words: WordSource
    tables: TableLayout
    entries: NDArray[np.uint32]

    @classmethod
    def of(cls, law: Law, words: WordSource) -> "_Part":
        """The part of a law; its tables are built once in a process."""
        # Build one at a time; otherwise all threads of a worker would build the same tables.
        with interval_arithmetic.building():
            return cls(law, words, _tables(law), _entries(law))

    def draw(self, n: int) -> Integers:
        """`n` independent draws."""
        return self.tables.draw(n, self._further)

    def draw_compiled(self, n: int) -> Integers:
        """What `draw` gives of the same words for up to `samplers.CHUNK` draws, by a loop without Python's lock."""
        ((_, table),), loop = self.tables.digits, _loop()
        assert loop is not None
        out, tied, halves = np.empty(n, np.int64), np.empty(n, np.int64), self._halves(n)
        ties = loop(halves, self.entries, len(self.entries) - 1, out, tied)
        if ties:
            where = tied[:ties]
            columns = halves[where] & np.uint32(len(self.entries) - 1)
            found = table.settle(columns.astype(np.uint64), self._further).view(np.int64)
            out[where] = np.where(halves[where] >> (HALF - 1), -found, found)
        return out

    def _halves(self, n: int) -> NDArray[np.uint32]:
        """`n` halves of words."""
        found = self.words(-(-n // 2)).view(np.uint32)[:n]
        if found.shape != (n,):  # a draw without a word would be what the memory holds
            raise AssertionError("a source gives as many words as it is asked for")
        return found

    def _further(self, n: int) -> Words:
        """`n` halves of words, each as a word of a table."""
        return self._halves(n).astype(np.uint64)


def _noise_of(parts: tuple[_Part, _Part], n: int, draw: Callable[[_Part, int], Integers]) -> Integers:
    """The noise of `n` coordinates in fine steps."""
    coarse, fine = parts
    noise = draw(coarse, n)
    noise *= RATIO
    noise += draw(fine, n)
    return noise


@functools.lru_cache(maxsize=4)
def _tables(law: Law) -> TableLayout:
    return lay_out(law, word_bits=HALF, further_words=FURTHER)


@functools.lru_cache(maxsize=4)
def _entries(law: Law) -> NDArray[np.uint32]:
    ((_, table),) = _tables(law).digits
    return table.entries.astype(np.uint32)


def _parts(words: WordSource) -> tuple[_Part, _Part]:
    """The coarse and the fine part."""
    return _Part.of(DiscreteGaussian(Fraction(COARSE)), words), _Part.of(RoundedGaussian(Fraction(FINE)), words)


@functools.cache
def _loop() -> Callable[..., int] | None:
    """The compiled loop, tried before a draw relies on it; None where it cannot be had: then NumPy draws."""
    try:
        from dp_pipelines.training.kernels import noise_loops

        single, whole = np.zeros(2, np.uint32), np.zeros(2, np.int64)
        noise_loops.draws(single, single, 1, whole, whole.copy())
    except Exception:  # a Numba that does not fit this NumPy, or cannot compile: not worth a charged run
        return None
    found: Callable[..., int] = noise_loops.draws
    return found


def _root_above(number: int) -> Fraction:
    """The square root of a whole number, rounded up by less than 2**-20."""
    return Fraction(math.isqrt((number << 40) - 1) + 1, 2**20)


@functools.cache
def check() -> None:
    """Check that the tables are as close to their laws as the accountant assumes.

    Raises:
        AssertionError: they are not, so nothing may be drawn.

    >>> check()
    """
    if not NoisySum(size=1, norm=1.0, multiplier=Fraction(1), slack=0.0).total_variation_bound <= TOTAL_VARIATION_BOUND:
        raise AssertionError("the tables of the noise are coarser than we promise")
