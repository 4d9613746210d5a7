"""The kinds of mechanism records: one object for each kind, with everything that the accountant needs.

In: a record of the kind. Out: its noise draws, dominating pairs, Renyi divergence, losses as a few numbers, and a
description. Holds: nothing else asks for a record's kind to price it, so a new kind is one class here and an entry in
`KINDS`. Not covered: whether a record is true of what runs; how prices add up (accounting.accountant, renyi, comparison
and estimate).
"""

import abc
import dataclasses
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dp_pipelines.accounting import divergences
from dp_pipelines.accounting.divergences import UP
from dp_pipelines.accounting.estimate import Terms
from dp_pipelines.accounting.shown_costs import spent_number
from dp_pipelines.noise.laws import FlooredLaplace, Law, RoundedGaussian

if TYPE_CHECKING:
    # A record asks its kind for its fields when it is made, so this module must not import the module of records when
    # it loads.
    from dp_pipelines.accounting.dominating_pairs import Pair
    from dp_pipelines.accounting.mechanism_record import MechanismRecord

SHIFT_UP = 1 + 2.0**-50
"""Outweighs what one division rounds down, for shifts of dominating pairs."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss:
    """The most by which one run of a record distinguishes two neighbours, if nothing fails. Both parts apply.

    Args:
        square: the square of the shift of Gaussian noise, in standard deviations. Squares add up over records and runs.
        pairs: dominating pairs, and how often each occurs.
    """

    square: float = 0.0
    pairs: tuple[tuple["Pair", int], ...] = ()


class RecordKind(abc.ABC):
    """A kind of mechanism record; `mechanism_record.MechanismRecord` says what its records mean.

    Methods get a finished record, so it has the fields of its kind, each in its range.
    """

    name: ClassVar[str]
    """Its name in records, plans and ledgers. It never changes."""

    fields: ClassVar[tuple[str, ...]]
    """The fields of its records, in plan order, besides stage, name, kind and group. They never change."""

    def draws(self, record: "MechanismRecord") -> int:
        """Return how many draws from the samplers' tables depend on one unit."""
        return 0

    def pure_epsilon(self, record: "MechanismRecord") -> Fraction | None:
        """Return the exact epsilon at delta 0 with ideal noise; None if there is none."""
        return None

    def failures(self, record: "MechanismRecord") -> tuple[float, int]:
        """Return the probability that one failure reveals a unit outright, and how many independent failures there may be."""
        return 0.0, 0

    def noise(self, record: "MechanismRecord") -> Law | None:
        """Return the law of the noise that each released number gets once; None if there is none or it is drawn repeatedly."""
        return None

    def changes_of_group(self, record: "MechanismRecord", units: int) -> dict[str, Any] | None:
        """Return the fields that describe the effect of so many units together; None if no record of the kind does."""
        return None

    @abc.abstractmethod
    def loss(self, record: "MechanismRecord") -> Loss:
        """Return the loss that `accountant` composes, besides failures."""

    @abc.abstractmethod
    def divergence(self, record: "MechanismRecord", order: float) -> float:
        """Return the divergence of an order above 1 if nothing fails; `renyi` adds it up. Times `UP` it is never too small."""

    @abc.abstractmethod
    def terms(self, record: "MechanismRecord") -> Terms:
        """Return the terms that `comparison` adds up by composition theorems, and `estimate` roughly."""

    @abc.abstractmethod
    def words(self, record: "MechanismRecord") -> str:
        """Describe the effect of one unit on one run, for `plan --explain`."""


class GaussianKind(RecordKind):
    """Gaussian noise: N(0, 1) against N(mu, 1) with mu^2 = l2_squared / scale^2. These squares add up."""

    name = "gaussian"
    fields = ("scale", "l2_squared", "l0")

    def changes_of_group(self, record: "MechanismRecord", units: int) -> dict[str, Any]:
        """See `RecordKind`: norms add up at most."""
        return {"l2_squared": given(record.l2_squared) * units**2, "l0": given(record.l0) * units}

    def noise(self, record: "MechanismRecord") -> Law | None:
        """See `RecordKind`."""
        return RoundedGaussian(given(record.scale))

    def draws(self, record: "MechanismRecord") -> int:
        """See `RecordKind`."""
        return given(record.l0)

    def loss(self, record: "MechanismRecord") -> Loss:
        """See `RecordKind`."""
        return Loss(square=_square(record))

    def divergence(self, record: "MechanismRecord", order: float) -> float:
        """See `RecordKind`."""
        return divergences.gaussian(_square(record), order)

    def terms(self, record: "MechanismRecord") -> Terms:
        """See `RecordKind`."""
        return Terms(squares=_square(record))

    def words(self, record: "MechanismRecord") -> str:
        """See `RecordKind`."""
        return f"{math.sqrt(given(record.l2_squared)):.6g} steps in the L2 norm, {record.l0} partitions"


class SampledGaussianKind(RecordKind):
    """Gaussian sums over samples: `times` pairs of `subsampled_gaussian.Removed`, whose mirrors are the other direction."""

    name = "sampled_gaussian"
    fields = ("scale", "l2_squared", "l0", "rate", "times")

    def draws(self, record: "MechanismRecord") -> int:
        """See `RecordKind`."""
        return given(record.l0) * given(record.times)

    def loss(self, record: "MechanismRecord") -> Loss:
        """See `RecordKind`."""
        from dp_pipelines.accounting.subsampled_gaussian import Removed

        pair = Removed(given(record.rate), math.sqrt(_square(record)) * SHIFT_UP)
        return Loss(pairs=((pair, given(record.times)),))

    def divergence(self, record: "MechanismRecord", order: float) -> float:
        """See `RecordKind`: Mironov, Talwar, Zhang 2019."""
        from dp_pipelines.accounting import subsampled_gaussian

        mu = math.sqrt(_square(record)) * UP
        moment = subsampled_gaussian.log_moment(given(record.rate), mu, order - 1)
        return given(record.times) * moment / (order - 1)

    def terms(self, record: "MechanismRecord") -> Terms:
        """See `RecordKind`."""
        return Terms(sampled=((given(record.times), given(record.rate), _square(record)),))

    def words(self, record: "MechanismRecord") -> str:
        """See `RecordKind`."""
        norm, rate = math.sqrt(given(record.l2_squared)), given(record.rate)
        return f"{record.times} sums over samples of {rate:.4g} of the units, {norm:.6g} steps in the L2 norm each"


class LaplaceKind(RecordKind):
    """Laplace noise: at most `l0` integers change, each by at most `linf`, by `l1` in all; see `worst_shifts`."""

    name = "laplace"
    fields = ("scale", "linf", "l0", "l1")

    def changes_of_group(self, record: "MechanismRecord", units: int) -> dict[str, Any]:
        """See `RecordKind`: all units may change the same integers, or each its own."""
        linf, l0 = given(record.linf), given(record.l0)
        return {"linf": linf * units, "l0": l0 * units, "l1": min(given(record.l1), l0 * linf) * units}

    def noise(self, record: "MechanismRecord") -> Law | None:
        """See `RecordKind`."""
        return FlooredLaplace(given(record.scale))

    def draws(self, record: "MechanismRecord") -> int:
        """See `RecordKind`."""
        return given(record.l0)

    def pure_epsilon(self, record: "MechanismRecord") -> Fraction:
        """See `RecordKind`."""
        return Fraction(min(given(record.l1), given(record.l0) * given(record.linf))) / given(record.scale)

    def loss(self, record: "MechanismRecord") -> Loss:
        """See `RecordKind`."""
        from dp_pipelines.accounting.dominating_pairs import Laplace

        return Loss(pairs=tuple((Laplace(float(shift) * SHIFT_UP), times) for shift, times in worst_shifts(record)))

    def divergence(self, record: "MechanismRecord", order: float) -> float:
        """See `RecordKind`."""
        shifts = worst_shifts(record)
        return math.fsum(times * divergences.laplace(float(shift) * UP, order) for shift, times in shifts)

    def terms(self, record: "MechanismRecord") -> Terms:
        """See `RecordKind`."""
        return Terms(losses=tuple((times, float(shift)) for shift, times in worst_shifts(record)))

    def words(self, record: "MechanismRecord") -> str:
        """See `RecordKind`."""
        return f"{record.linf} steps in each of {record.l0} partitions, {record.l1} in all"


class ApproximateDpKind(RecordKind):
    """Decisions: `l0` randomized responses at epsilon, each of which fails with probability delta."""

    name = "approximate_dp"
    fields = ("epsilon", "delta", "l0")

    def pure_epsilon(self, record: "MechanismRecord") -> Fraction | None:
        """See `RecordKind`."""
        return Fraction(given(record.epsilon)) * given(record.l0) if record.delta == 0 else None

    def failures(self, record: "MechanismRecord") -> tuple[float, int]:
        """See `RecordKind`."""
        return given(record.delta), given(record.l0)

    def loss(self, record: "MechanismRecord") -> Loss:
        """See `RecordKind`."""
        from dp_pipelines.accounting.dominating_pairs import Response

        return Loss(pairs=((Response(record.epsilon), given(record.l0)),) if record.epsilon else ())

    def divergence(self, record: "MechanismRecord", order: float) -> float:
        """See `RecordKind`."""
        return given(record.l0) * divergences.response(given(record.epsilon), order)

    def terms(self, record: "MechanismRecord") -> Terms:
        """See `RecordKind`."""
        l0 = given(record.l0)
        return Terms(losses=((l0, given(record.epsilon)),), log_not_failed=l0 * math.log1p(-given(record.delta)))

    def words(self, record: "MechanismRecord") -> str:
        """See `RecordKind`."""
        return f"{record.l0} decisions of epsilon {spent_number(record.epsilon)}, delta {spent_number(record.delta)}"


class BoundedRangeKind(RecordKind):
    """Choices: `l0` times the pair of `dominating_pairs.BoundedRange`."""

    name = "bounded_range"
    fields = ("epsilon", "l0")

    def pure_epsilon(self, record: "MechanismRecord") -> Fraction:
        """See `RecordKind`."""
        return Fraction(given(record.epsilon)) * given(record.l0)

    def loss(self, record: "MechanismRecord") -> Loss:
        """See `RecordKind`."""
        from dp_pipelines.accounting.dominating_pairs import BoundedRange

        return Loss(pairs=((BoundedRange(record.epsilon), given(record.l0)),) if record.epsilon else ())

    def divergence(self, record: "MechanismRecord", order: float) -> float:
        """See `RecordKind`."""
        return given(record.l0) * divergences.bounded_range(given(record.epsilon), order)

    def terms(self, record: "MechanismRecord") -> Terms:
        """See `RecordKind`."""
        return Terms(losses=((given(record.l0), given(record.epsilon)),))

    def words(self, record: "MechanismRecord") -> str:
        """See `RecordKind`."""
        return f"{record.l0} bounded-range selections, epsilon {spent_number(record.epsilon)}"


class DeltaKind(RecordKind):
    """A failure with probability delta, and nothing else."""

    name = "delta"
    fields = ("delta",)

    def failures(self, record: "MechanismRecord") -> tuple[float, int]:
        """See `RecordKind`."""
        return given(record.delta), 1

    def loss(self, record: "MechanismRecord") -> Loss:
        """See `RecordKind`."""
        return Loss()

    def divergence(self, record: "MechanismRecord", order: float) -> float:
        """See `RecordKind`: zero as long as it does not fail."""
        return 0.0

    def terms(self, record: "MechanismRecord") -> Terms:
        """See `RecordKind`."""
        return Terms(log_not_failed=math.log1p(-given(record.delta)))

    def words(self, record: "MechanismRecord") -> str:
        """See `RecordKind`."""
        return f"fails with probability {spent_number(record.delta)}"


_ALL = (GaussianKind(), SampledGaussianKind(), LaplaceKind(), ApproximateDpKind(), BoundedRangeKind(), DeltaKind())

KINDS: dict[str, RecordKind] = {kind.name: kind for kind in _ALL}
"""Every kind of record by its name."""


def kind_of(record: "MechanismRecord") -> RecordKind:
    """Return the kind of a record.

    >>> from dp_pipelines.accounting.mechanism_record import MechanismRecord
    >>> kind_of(MechanismRecord(stage="s", name="threshold", kind="delta", delta=1e-9)).fields
    ('delta',)
    """
    return KINDS[record.kind]


def given(value: T | None) -> T:
    """Return a field that every record of the kind has: no `MechanismRecord` can be made without it."""
    assert value is not None
    return value


def worst_shifts(record: "MechanismRecord") -> list[tuple[Fraction, int]]:
    """Return the worst way to spread the change of a Laplace record: shifts, in scales, and how many integers have each.

    >>> from dp_pipelines.accounting.mechanism_record import MechanismRecord
    >>> worst_shifts(MechanismRecord(stage="s", name="n", kind="laplace", scale=Fraction(4), linf=4, l0=8, l1=11))
    [(Fraction(1, 1), 2), (Fraction(3, 4), 1)]
    """
    linf, l0, l1 = given(record.linf), given(record.l0), given(record.l1)
    # A change in a few large pieces costs more than one in many small pieces (docs/proofs/accounting.md, lemma 3).
    whole, rest = divmod(min(l1, l0 * linf), linf)
    return [(shift / given(record.scale), times) for shift, times in ((linf, whole), (rest, 1)) if shift and times]


def _square(record: "MechanismRecord") -> float:
    """Return the square of the shift of Gaussian noise, in standard deviations."""
    return float(given(record.l2_squared) / given(record.scale) ** 2)
