"""Parties of a joint report: several organisations, each with rows of its own, and what they promise about their people.

In: names that a job declares. Out: a frozen description, and refusals of queries that parties cannot release. Holds: each
organisation releases a noisy table of its own rows, of which only the sum is opened (docs/proofs/parties.md). Not covered: how
tables are added (`extensions.two_organisations`); that the promise about people is kept.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp_pipelines import checks
from dp_pipelines.errors import RequestError

if TYPE_CHECKING:
    from dp_pipelines.query.query import Query

KINDS = ("count", "sum", "privacy_id_count", "mean")
"""The metrics that parties can release together."""

ALONE = ("top", "best", "kept", "compare", "rollup", "windows")
"""Fields of a query that cannot be combined with parties."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parties:
    """The organisations that publish a report together.

    Args:
        holders: the names of those who have rows, at least two.
        helpers: the names of those who only compute.
        disjoint: whether it is promised that no privacy unit has rows at two of them.

    Raises:
        RequestError: at once, with field, message and hint.

    >>> both = Parties(holders=("north", "south"), helpers=("notary",), disjoint=True)
    >>> both.draws, both.times
    (2, 1)
    """

    holders: Sequence[str]
    helpers: Sequence[str] = ()
    disjoint: bool = False

    def __post_init__(self) -> None:
        for field in ("holders", "helpers"):
            names = [checks.name(name, f"parties.{field}") for name in getattr(self, field)]
            object.__setattr__(self, field, tuple(sorted(names)))
        if len(self.holders) < 2:
            message = "needs at least two organisations that have rows"
            raise RequestError(field="parties", message=message, hint="drop it, or name another one")
        if len(set(self.names)) < len(self.names):
            raise RequestError(field="parties", message="names a party twice", hint="give each its own name")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all parties."""
        return (*self.holders, *self.helpers)

    @property
    def draws(self) -> int:
        """Return how many draws of noise are in each published number: one of every organisation that has rows."""
        return len(self.holders)

    @property
    def times(self) -> int:
        """Return in how many of the tables one privacy unit may have rows."""
        return 1 if self.disjoint else len(self.holders)

    @property
    def price(self) -> float:
        """Return the standard deviation of a published number over that of one table's."""
        return math.sqrt(self.draws)

    @property
    def words(self) -> tuple[str, ...]:
        """Return what readers of a plan, a manifest and a report must know, one sentence each."""
        owners = " and ".join(self.holders)
        others = f"; {' and '.join(self.helpers)} only computes" if self.helpers else ""
        if self.disjoint:
            people = (
                f"promised, and verified by nobody: nobody has rows at two of {owners}; who has gets a weaker guarantee"
            )
        else:
            people = f"one person may have rows at each of {owners}: the noise is for that"
        opened = "any two of the parties together can open the noisy table of each organisation, one alone cannot"
        if len(self.holders) == 2:  # the sum less one of two is the other
            opened = (
                f"each of {owners} can take its own table from the published sum, and so knows the noisy table of the other; "
                "so do any two of the parties together; who only computes learns the sum alone"
            )
        return (
            f"rows of {owners}, added under secret sharing{others}",
            people,
            f"each of {owners} adds a whole draw of noise to its own table before it is shared: no coalition of the others "
            f"opens that table without it; the price is {self.draws} times the variance",
            f"{opened}; all are taken to follow the protocol",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the parties as JSON values, for plans and manifests."""
        description: Mapping[str, Any] = {
            "rows_of": list(self.holders),
            "computing_only": list(self.helpers),
            "people": "disjoint" if self.disjoint else "any",
            "variance_times": self.draws,
            "words": list(self.words),
        }
        return dict(description)

    def check(self, query: "Query") -> None:
        """Refuse a query that parties cannot release together.

        Raises:
            RequestError: as said.
        """
        from dp_pipelines.query.large_list import LargeList
        from dp_pipelines.query.query import PublicPartitions

        hint = "put it into a job without parties"
        for field in ALONE:
            if getattr(query, field) is not None:
                raise RequestError(field=field, message="cannot stand beside parties", hint="drop it")
        if not isinstance(query.partitions, PublicPartitions) or isinstance(query.partitions, LargeList):
            message = "must be a public list, the same at all parties"
            raise RequestError(field="partitions", message=message, hint="write public: or public_file:")
        if query.bounds.auto:
            message = "is chosen by the run, and cannot stand beside parties"
            raise RequestError(
                field=query.bounds.auto_field, message=message, hint="write it under bounds, as a number"
            )
        for name, metric in query.metrics.items():
            field = f"metrics.{name}"
            if metric.kind not in KINDS:
                message = f"is not one of {', '.join(KINDS)}, which parties can release together"
                raise RequestError(field=field, message=message, hint=hint)
            if metric.auto or metric.scale is not None:
                message = "needs bounds that are numbers beside parties"
                raise RequestError(field=field, message=message, hint="write min_value and max_value")
            if metric.stddev is not None:
                message = "cannot stand beside parties, each of whom adds noise of its own"
                raise RequestError(field=f"{field}.stddev", message=message, hint="drop it")
            if metric.pools:
                raise RequestError(field=f"{field}.shrink", message="cannot stand beside parties", hint="drop it")
