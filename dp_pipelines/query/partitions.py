"""Published partitions: a public list, those that other stages released, or those selected privately.

In: what a job declares. Out: frozen descriptions. Holds: nothing here depends on data. Not covered: lists larger than memory
(`query.large_list`) and how partitions are selected (`dp_pipelines.selection`).
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns.listed_keys import ListedKeys

if TYPE_CHECKING:
    from dp_pipelines.query.query import Query

OTHER = "_is_other"
"""Suffix of the column that distinguishes the partition of all other keys from a listed key of nulls."""

Strategy = Literal["auto", "truncated_geometric", "laplace", "gaussian", "weighted_gaussian", "sips"]
"""Names of the ways to select partitions: see `dp_pipelines.selection`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivatePartitions:
    """Partitions are taken from the data, each with a probability that one unit hardly changes.

    Args:
        strategy: `auto` takes the strategy that keeps the smallest partitions, computed from public numbers.
        min_users: a partition with fewer units is never kept; the strategy is applied to the units above `min_users - 1`.
        weight: share of the budget, relative to the metrics' weights.
    """

    strategy: Strategy = "auto"
    min_users: Annotated[int, checks.Whole(low=0, high=2**40)] = 0
    weight: Annotated[float, checks.Real(above=0, below=1e6)] = 1.0

    def __post_init__(self) -> None:
        if self.strategy not in get_args(Strategy):
            raise RequestError(field="strategy", message="must be one of " + ", ".join(get_args(Strategy)))
        checks.declared(self)
        if self.strategy in ("weighted_gaussian", "sips") and self.min_users > 1:
            raise RequestError(
                field="min_users",
                message=f"must be 0 or 1 with strategy {self.strategy}, whose statistic is not a number of users",
                hint="choose another strategy, or leave out min_users",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedPartitions:
    """The published partitions are those that other stages of the plan have released by then: see `plan_stages.phases`.

    Args:
        stages: names of these stages.
        known: whether they have been released, and the stage holds the list.
    """

    stages: tuple[str, ...]
    known: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicPartitions:
    """The published partitions are exactly this list, whatever the data hold. It must not come from the data.

    Args:
        keys: one tuple of plain values for each partition, in the order of `partition_by`; None is a null. The order of the
            tuples means nothing.
        other: whether rows with keys that are not listed are one more partition. Its key is null, and True in the column
            `<column>_is_other` that is published next to the columns of `partition_by`.

    >>> PublicPartitions(keys=[("north", 1), ("south", 1)]).keys
    (('north', 1), ('south', 1))
    >>> PublicPartitions(keys=[("north",), ("south",)], other=True).columns
    (('north', False), ('south', False), (None, True))
    """

    keys: Sequence[Sequence[Any]]
    other: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.keys, ListedKeys):
            self._check_tuples()
        if not self.keys:
            raise RequestError(field="public", message="must name at least one partition")
        if not isinstance(self.other, bool):
            raise RequestError(field="other", message="must be true or false")

    def _check_tuples(self) -> None:
        if isinstance(self.keys, (str, bytes)) or not isinstance(self.keys, Sequence):
            raise RequestError(field="public", message="must be a list with one list of values for each partition")
        for index, key in enumerate(self.keys):
            if isinstance(key, (str, bytes)) or not isinstance(key, (list, tuple)):
                raise RequestError(
                    field=f"public[{index}]", message="must be a list with one value for each partition column"
                )
            if any(isinstance(value, (list, tuple, dict, set)) for value in key):
                raise RequestError(field=f"public[{index}]", message="must hold plain values, not lists or mappings")
        object.__setattr__(self, "keys", ListedKeys.of_tuples(tuple(tuple(key) for key in self.keys)))

    @property
    def all_published(self) -> bool:
        """Return True if every partition of the list is published, whatever its numbers are."""
        return True

    @property
    def count(self) -> int:
        """Return the number of partitions."""
        return len(self.keys) + self.other

    @property
    def listed(self) -> ListedKeys:
        """Return the declared keys by column, in an order that does not depend on the declared order."""
        listed = self.keys if isinstance(self.keys, ListedKeys) else ListedKeys(tuple(zip(*self.keys, strict=True)))
        return listed.in_order

    @property
    def columns(self) -> ListedKeys:
        """Return all partitions by column, as layouts hold them: those of `listed`, and the one of other keys."""
        return self._with_other if self.other else self.listed

    @functools.cached_property
    def _with_other(self) -> ListedKeys:
        return self.listed.with_other

    def check(self, query: "Query") -> None:
        """Refuse keys that cannot be partitions of a query.

        Raises:
            RequestError: the number of values of a key differs from that of columns in `partition_by`.
        """
        listed, width = self.keys, len(query.partition_by)
        for index, key in enumerate(listed[:1] if isinstance(listed, ListedKeys) else listed):
            if len(key) != width:
                message = f"must have {width} values, one for each column of partition_by"
                raise RequestError(field=f"public[{index}]", message=message)

    def check_other(self, query: "Query") -> None:
        """Refuse options that cannot be combined with one partition of all other keys.

        Raises:
            RequestError: with field, message and hint.
        """
        for field, why in _NOT_WITH_OTHER.items():
            if getattr(query, field) is not None:
                message = f"cannot be combined with the partition of all other keys, {why}"
                raise RequestError(field=field, message=message, hint="drop it, or drop other: true")
        if query.scales:
            message = "makes one partition of keys whose rows have different bounds"
            raise RequestError(field="other", message=message, hint="write the bounds as numbers, or drop other: true")
        added = query.other_column or ""
        read = next((column for column in query.columns if column.casefold() == added.casefold()), None)
        if read is not None:
            message = f"adds a column {added!r}, and the stage reads {read!r}"
            raise RequestError(field="other", message=message, hint="rename that column, in a job file under columns:")


_NOT_WITH_OTHER = {
    "rollup": "which is in no group of a coarser level: of private partitions, the rest of a rollup has all others",
    "compare": "which is no arm",
    "best": "which is none to choose",
    "windows": "which would be another one in each window",
    "parties": "which each of them would find in rows of its own",
}
"""Fields of a query that cannot be combined with `other`, and why."""

UNSAID = PrivatePartitions()
"""The default partitions."""

EVERYTHING = PublicPartitions(keys=[()])
"""The one partition of a total: it has no key."""
