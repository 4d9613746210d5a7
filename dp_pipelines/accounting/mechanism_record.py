"""Mechanism records: how one privacy unit affects one run of a plan, in integers, and nothing about the price.

In: a law of noise or of failure, with exact scale and sensitivity. Out: frozen, hashable records, which manifests and
ledgers store and `accounting.accountant` prices. Holds: a record bounds the whole effect of one unit on what it
describes; it has exactly the fields of its kind; `from_json(to_json())` is the same record, digit for digit. Not
covered: whether the sensitivities are true of the kernels (docs/proofs/sensitivity.md proves it, and the privacy tests
check it).
"""

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dp_pipelines import checks
from dp_pipelines.accounting.record_kinds import KINDS
from dp_pipelines.errors import RequestError

MOST = 2**160
"""The largest value of a field: an L2 norm over 2**24 partitions with 2**62 steps each stays below it."""

MOST_TIMES = 10**9
"""The most adaptive steps that one record stands for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismRecord:
    """One mechanism of a plan, and the most that all rows of one privacy unit can change in its input.

    The kinds, and what must be given for each:

    * `gaussian`: `scale`, `l2_squared`, `l0`. Adds rounded Gaussian noise of standard deviation `scale` to integers.
    * `sampled_gaussian`: `scale`, `l2_squared`, `l0`, `rate`, `times`. That many vector sums, one after another; each
      may depend on earlier ones. Each is over a Poisson sample of the units: every unit is in it with probability
      `rate`, independently of everything else, and nobody learns which units were. Each sum gets the noise of
      `gaussian`.
    * `laplace`: `scale`, `linf`, `l0`, `l1`. Adds floored Laplace noise of scale `scale` to integers.
    * `approximate_dp`: `epsilon`, `delta`, `l0`. Up to `l0` decisions, each (epsilon, delta)-DP (the coins of selection).
    * `bounded_range`: `epsilon`, `l0`. Up to `l0` choices whose privacy losses each lie in an interval of length epsilon
      (exponential mechanisms, docs/proofs/exponential.md).
    * `delta`: `delta`. Something that must hide a unit reveals it with at most this probability (a threshold).

    Args:
        stage: the stage it belongs to.
        name: what it releases, unique in its stage.
        kind: see above.
        scale: of the noise, in steps of the release lattice; the denominator is a power of two.
        l2_squared: the square of the L2 norm of the change of all integers together, in steps. If there are many sums,
            of one.
        linf: the largest change of one integer, in steps.
        l0: how many integers (or decisions) can change; each draws its own noise. If there are many sums, of one.
        l1: the sum of all changes, in steps. A value above `l0 * linf` adds no information.
        epsilon: of one decision, from 0.
        delta: of one decision, or of the failure as a whole, from 0 to below 1.
        rate: the probability that a unit is in a sample, above 0 and below 1.
        times: how many sums.
        group: the name of the units that it reads, if it does not read all of them. Groups of a plan are disjoint, and
            a unit's group depends on that unit alone. Any kind may have one.

    Raises:
        RequestError: a field is missing, not allowed or out of its range.

    >>> record = MechanismRecord(stage="weekly", name="orders", kind="laplace", scale=Fraction(4096), linf=512, l0=8, l1=4096)
    >>> MechanismRecord.from_json(record.to_json()) == record
    True
    """

    stage: str
    name: str
    kind: str
    scale: Fraction | None = None
    l2_squared: int | None = None
    linf: int | None = None
    l0: int | None = None
    l1: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    rate: float | None = None
    times: int | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        for field in ("stage", "name"):
            if not isinstance(getattr(self, field), str) or not getattr(self, field):
                raise RequestError(field=f"mechanism.{field}", message="must be text that is not empty")
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise RequestError(field="mechanism.kind", message="must be one of " + ", ".join(KINDS))
        if self.group is not None and (not isinstance(self.group, str) or not self.group):
            raise RequestError(field="mechanism.group", message="must be text that is not empty, or left out")
        given = {field for field in _FIELDS if getattr(self, field) is not None}
        required = {"stage", "name", "kind", *KINDS[self.kind].fields}
        if given != required:
            raise RequestError(
                field=f"mechanism.{min(given ^ required)}",
                message=f"kind {self.kind} has exactly the fields " + ", ".join(KINDS[self.kind].fields),
            )
        for field in ("l2_squared", "linf", "l0", "l1"):
            if getattr(self, field) is not None:
                value = checks.whole(getattr(self, field), f"mechanism.{field}", low=1, high=MOST)
                object.__setattr__(self, field, value)
        if self.times is not None:
            object.__setattr__(self, "times", checks.whole(self.times, "mechanism.times", low=1, high=MOST_TIMES))
        if self.scale is not None:
            object.__setattr__(self, "scale", _scale(self.scale))
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", _from_zero(self.epsilon, "mechanism.epsilon", math.inf))
        if self.delta is not None:
            object.__setattr__(self, "delta", _from_zero(self.delta, "mechanism.delta", 1.0))
        if self.rate is not None:
            object.__setattr__(self, "rate", checks.number(self.rate, "mechanism.rate", above=0, below=1))

    @property
    def draws(self) -> int:
        """Return how many draws of noise depend on one unit: the error of the samplers' tables counts once for each.

        The coins of selection are exact, and the noise that thresholds compare is counted by its own record.
        """
        return KINDS[self.kind].draws(self)

    @property
    def pure_epsilon(self) -> Fraction | None:
        """Return the exact epsilon at delta 0 with ideal noise; None if there is none. These add up over records and runs."""
        return KINDS[self.kind].pure_epsilon(self)

    def to_json(self) -> dict[str, Any]:
        """Return the record as exact JSON values: fractions as text, floats unchanged (their shortest text is exact)."""
        fields = {"stage": self.stage, "name": self.name, "kind": self.kind}
        fields |= {field: getattr(self, field) for field in KINDS[self.kind].fields}
        if self.scale is not None:
            fields["scale"] = f"{self.scale.numerator}/{self.scale.denominator}"
        if self.group is not None:
            fields["group"] = self.group
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "MechanismRecord":
        """Return the record that `to_json` wrote.

        Raises:
            RequestError: these are not the fields of a record.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        if not isinstance(fields, Mapping) or not {"stage", "name", "kind"} <= set(fields) <= known:
            raise RequestError(
                field="mechanism", message="must be an object with stage, name, kind and the fields of its kind"
            )
        values = dict(fields)
        if "scale" in values:
            values["scale"] = _parsed(values["scale"])
        return cls(**values)


_FIELDS = tuple(field.name for field in dataclasses.fields(MechanismRecord) if field.name != "group")


def _scale(scale: Any) -> Fraction:
    """Return a positive rational number of steps whose denominator is a power of two, or raise RequestError."""
    field = "mechanism.scale"
    if isinstance(scale, bool) or not isinstance(scale, (int, Fraction)):
        raise RequestError(field=field, message=f"must be a fractions.Fraction, not {type(scale).__name__}")
    if not 0 < scale <= MOST:
        raise RequestError(field=field, message="must be above 0")
    if not scale.denominator & (scale.denominator - 1) == 0:
        raise RequestError(
            field=field, message="must have a power of two as denominator", hint="round it up to a 64th step"
        )
    return Fraction(scale)


def _parsed(text: Any) -> Fraction:
    numerator, slash, denominator = text.partition("/") if isinstance(text, str) else ("", "", "")
    # Digits only: int() alone would accept spaces, underscores and signs, and two spellings of one record would have
    # different digests.
    if not (slash and all(part.isascii() and part.isdigit() for part in (numerator, denominator)) and int(denominator)):
        raise RequestError(field="mechanism.scale", message='must be written as "numerator/denominator"')
    return Fraction(int(numerator), int(denominator))


def _from_zero(value: Any, field: str, below: float) -> float:
    """Return a number from 0 to below a limit, or raise RequestError."""
    if value == 0 and not isinstance(value, bool):
        return 0.0
    return checks.number(value, field, above=0, below=below)
