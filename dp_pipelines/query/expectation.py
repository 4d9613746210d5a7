"""A guess about a typical partition, as the owner of a job declares it from public knowledge.

In: numbers. Out: a frozen declaration. Holds: it decides no release: errors and powers that `plan` prints refer to it. Not
covered: whether it is true.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expectation:
    """A declared guess about a typical partition, from which relative errors are printed. It decides nothing else.

    Args:
        users: units in a typical partition.
        rows_per_partition: rows in it.
        partitions: how many of a large list have rows.
        totals: by metric, mean and standard deviation of what one unit adds to it: for the differences that `compare` finds.
        units: units in all rows: for the error bars of a model.
        arms: by arm of a stage that compares, its units; arms that it does not name have `users`.
        positives: the share of examples of a model whose label is true, above 0 and below 1.
    """

    users: float | None = None
    rows_per_partition: float | None = None
    partitions: float | None = None
    totals: Mapping[str, Sequence[float]] | None = None
    units: float | None = None
    arms: Mapping[str, float] | None = None
    positives: float | None = None

    def __post_init__(self) -> None:
        for name, pair in (self.totals or {}).items():
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                hint = "write [mean, standard deviation], e.g. [50, 120]"
                raise RequestError(field=f"expect.totals.{name}", message="must be two numbers", hint=hint)
            checks.number(pair[0], f"expect.totals.{name}", above=-1e50, below=1e50)
            checks.number(pair[1], f"expect.totals.{name}", above=0, below=1e50, also=(0,))
        for field in ("users", "rows_per_partition", "partitions", "units"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, checks.number(getattr(self, field), f"expect.{field}", above=0))
        if self.arms is not None:
            hint = "write e.g. arms: {A: 3000, B: 300}"
            if not isinstance(self.arms, Mapping) or not self.arms:
                raise RequestError(field="expect.arms", message="must map arms to their numbers of units", hint=hint)
            sizes = {}
            for arm, size in self.arms.items():
                sizes[str(arm)] = checks.number(size, f"expect.arms.{arm}", above=0, hint=hint)
            object.__setattr__(self, "arms", FrozenMapping(sizes))
        if self.positives is not None:
            hint = "write the share of examples that are true, e.g. positives: 0.05"
            positives = checks.number(self.positives, "expect.positives", above=0, below=1, hint=hint)
            object.__setattr__(self, "positives", positives)

    @property
    def typical_arm(self) -> float | None:
        """Return the units of a typical partition; if only arms have numbers, their mean."""
        if self.users is None and self.arms:
            return sum(self.arms.values()) / len(self.arms)
        return self.users

    def units_of(self, arm: str) -> float | None:
        """Return the units of an arm; None if nothing is declared.

        >>> expect = Expectation(users=500, arms={"B": 40})
        >>> expect.units_of("A"), expect.units_of("B"), Expectation().units_of("A")
        (500.0, 40.0, None)
        """
        return (self.arms or {}).get(arm, self.users)
