"""Permits: the right to draw for one frozen record, once for each partition.

In: what a frozen record allows, the sources of noise and coins. Out: noise and words, or a refusal. Holds: every draw names
what it draws (a law, or the epsilon, delta and spread of a decision), which must be what the record pays for; no partition gets
two draws for one record. Not covered: whether the record is true of the stage, which `release.gate` checks before it hands out
permits; code that takes words from the operating system itself (`tests/core/test_draws.py` lists the modules that may).
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.errors import GateError
from dp_pipelines.kernels.lattice import Integers
from dp_pipelines.noise.laws import Law

DrawWords = Callable[[int], NDArray[np.uint64]]
"""Draws so many independent uniform 64-bit words."""

TWO_DRAWS = "two draws for one partition"
NO_DRAW = "a released partition without its draw"
OTHER_LAW = "noise of another law than the record states"
OTHER_DECISION = "a decision that costs more than the record states"
NO_RECORD = "a draw without a record"
OTHER_SUM = "a noisy sum that the record does not pay for"
OTHER_SAMPLE = "a sample with another rate than the record states"


class Draw(Protocol):
    """Draws integers of one law."""

    def draw(self, n: int) -> Integers:
        """Return `n` independent integers."""
        ...


class Sources:
    """The sources of noise and coins. Mechanisms draw through a `Permit` and never see them.

    Args:
        samplers: makes the sampler of a law; each law has one for a whole release.
        words: independent uniform 64-bit words.
    """

    def __init__(self, samplers: Callable[[Law], Draw], words: DrawWords) -> None:
        self._samplers = samplers
        self._of_laws: dict[Law, Draw] = {}
        self.words = words

    def add_noise(self, exact: Integers, law: Law) -> Integers:
        """Add independent noise to integers of any shape."""
        if law not in self._of_laws:
            self._of_laws[law] = self._samplers(law)
        return exact + self._of_laws[law].draw(exact.size).reshape(exact.shape)

    def noise_within(self, n: int, law: Law, ends: tuple[int, int]) -> Integers:
        """Return `n` independent draws of noise, given that each lies between two numbers."""
        from dp_pipelines.noise.conditional_draws import SampledLaw

        return SampledLaw.of(law).draw(n, *ends, self.words) if n else np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Right:
    """The draws that one frozen record allows.

    Args:
        law: of the noise; None if the record pays for decisions.
        epsilon, delta: of one decision.
        spread: the length of an interval in which one unit moves the scores of a decision; 1 for coins and medians.
    """

    law: Law | None = None
    epsilon: Fraction = Fraction(0)
    delta: float = 0.0
    spread: int = 1


class Permit:
    """The right to draw for one record, once for each of some partitions.

    Args:
        stage, record: names.
        right: what the record allows; None for a replay, which checks nothing.
        sources: of noise and coins.
        partitions: how many.
    """

    def __init__(self, stage: str, record: str, right: Right | None, sources: Sources, partitions: int) -> None:
        self._names, self._right, self._sources = (stage, record), right, sources
        self._drawn, self._count = np.zeros(partitions, np.bool_), 0

    def add_noise(self, exact: Integers, law: Law, partitions: Integers) -> Integers:
        """Add independent noise to integers.

        Args:
            exact: one number, or a row of numbers, for each partition.
            law: of the noise.
            partitions: codes of these partitions.

        Raises:
            GateError: the record states another law, or one of the partitions has its draw already.
        """
        self._take_noise(law, partitions)
        return self._sources.add_noise(exact, law)

    def noise_within(self, law: Law, ends: tuple[int, int], partitions: Integers) -> Integers:
        """Return int64 draws of noise, one for each partition, given that each lies between two numbers.

        Errors as for `add_noise`.
        """
        self._take_noise(law, partitions)
        return self._sources.noise_within(len(partitions), law, ends)

    def words(self, *, epsilon: Fraction, delta: float, partitions: Integers, spread: int = 1) -> DrawWords:
        """Return the words for one decision in each of some partitions.

        Args:
            epsilon, delta: of one decision.
            partitions: codes of these partitions.
            spread: see `Right`.

        Raises:
            GateError: the record pays for less, or one of the partitions has its decision already.
        """
        right = self._right
        if right is not None and not (
            right.law is None and epsilon <= right.epsilon and delta <= right.delta and spread >= right.spread
        ):
            self._refuse(OTHER_DECISION)
        self._take(partitions)
        return self._sources.words

    def covers(self, partitions: Integers) -> bool:
        """Return True if all of these partitions have their draw."""
        return bool(self._drawn[partitions].all())

    def _take_noise(self, law: Law, partitions: Integers) -> None:
        if self._right is not None and law != self._right.law:
            self._refuse(OTHER_LAW)
        self._take(partitions)

    def _take(self, partitions: Integers) -> None:
        self._drawn[partitions] = True
        self._count += len(partitions)
        if np.count_nonzero(self._drawn) != self._count:
            self._refuse(TWO_DRAWS)

    def _refuse(self, rule: str) -> None:
        raise GateError(rule, *self._names)


class Permits:
    """The permits for all records of a stage, over the same partitions.

    Args:
        stage: its name.
        rights: by name of record; None for a replay, whose permits check nothing but that nothing is drawn twice.
        sources: of noise and coins.
    """

    def __init__(self, stage: str, rights: Mapping[str, Right] | None, sources: Sources) -> None:
        self._stage, self._rights, self._sources = stage, rights, sources
        self._partitions: int | None = None
        self._made: dict[str, Permit] = {}
        self._buckets = set[int]()

    def over(self, partitions: int) -> "Permits":
        """Set the number of partitions, once. A second call would allow a second draw for each.

        Raises:
            GateError: it was fixed before.
        """
        if self._partitions is not None:
            raise GateError(TWO_DRAWS, self._stage, "")
        self._partitions = partitions
        return self

    def of(self, record: str) -> Permit:
        """Return the permit of a record: the same one each time.

        Raises:
            GateError: there is no such record.
        """
        assert self._partitions is not None, "the number of partitions comes first"
        if record not in self._made:
            if self._rights is not None and record not in self._rights:
                raise GateError(NO_RECORD, self._stage, record)
            right = None if self._rights is None else self._rights[record]
            self._made[record] = Permit(self._stage, record, right, self._sources, self._partitions)
        return self._made[record]

    def check_drawn(self, partitions: Integers) -> None:
        """Check that every record that pays for a draw has one in all of these partitions.

        Args:
            partitions: codes of those that are released.

        Raises:
            GateError: a partition would be released without noise or a decision that a record states.
        """
        for record, right in (self._rights or {}).items():
            draws = right.law is not None or right.epsilon > 0
            if draws and not self.of(record).covers(partitions):
                raise GateError(NO_DRAW, self._stage, record)

    def words_of_bucket(self, bucket: int, laws: Mapping[str, Law]) -> DrawWords:
        """Return the words that decide which listed partitions without rows pass: each bucket of a list on disk, once.

        Args:
            bucket: its number.
            laws: of the noise that is compared, by name of record; noise within its ends follows (`for_bucket`).

        Raises:
            GateError: a record states another law, or the bucket was drawn before.
        """
        for record, law in laws.items():
            if self._rights is not None and (record not in self._rights or self._rights[record].law != law):
                raise GateError(OTHER_LAW, self._stage, record)
        if bucket in self._buckets:
            raise GateError(TWO_DRAWS, self._stage, "")
        self._buckets.add(bucket)
        return self._sources.words

    def for_bucket(self, partitions: int) -> "Permits":
        """Return the permits for the listed partitions without rows that passed in the last bucket."""
        return Permits(self._stage, self._rights, self._sources).over(partitions)


class SumsPermit:
    """The right to draw the noisy sums of a train stage.

    Args:
        stage, record: names.
        size: numbers in one sum.
        rate: of the samples of units.
        multipliers: the noise of each sum over the norm of a unit's vector, and how many sums have it.
    """

    def __init__(self, stage: str, record: str, size: int, rate: float, multipliers: Mapping[Fraction, int]) -> None:
        self._names, self._size, self._rate = (stage, record), size, rate
        self._left = Counter(multipliers)

    def for_sums(self, size: int, multiplier: Fraction) -> Callable[[], None]:
        """Return a function to call before each sum of this size and noise is drawn.

        Raises:
            GateError: the record pays for other sums; when called, that all of them are drawn.
        """
        if size != self._size or multiplier not in self._left:
            raise GateError(OTHER_SUM, *self._names)

        def take() -> None:
            if self._left[multiplier] < 1:
                raise GateError(OTHER_SUM, *self._names)
            self._left[multiplier] -= 1

        return take

    def check_rate(self, rate: float) -> None:
        """Refuse samples of units with a higher rate than the record states.

        Raises:
            GateError: the rate is higher.
        """
        if not rate <= self._rate:
            raise GateError(OTHER_SAMPLE, *self._names)
