"""Public lists that need not fit into memory. Only partitions that pass conditions are published.

In: a list sorted by hash (`KeyFile`), conditions on metrics. Out: a frozen description. Holds: all partitions of the list are
released, those without rows too, and the ones that pass are published; a condition compares one metric that has noise of its own
with numbers, so that how often noise alone passes is known (docs/proofs/large_lists.md). Not covered: drawing them
(`release.large_lists`); lists that fit into memory, for which every condition is possible (`release.shown_rows`).
"""

import dataclasses
import math
from typing import TYPE_CHECKING

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.metrics.base import RAW
from dp_pipelines.query.query import PublicPartitions

if TYPE_CHECKING:
    from dp_pipelines.query.query import Query

HINT = "use partitions: {public_file: ...}, whose list fits into memory, or drop it"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
    """A range for the released value of a metric. Only partitions within it are published.

    Args:
        metric: its name; with a rollup, the name of its number before levels are made to add up, e.g. `views_raw`.
        low, high: the ends; an infinite one is none.
        with_low, with_high: True if the end belongs to the range.

    >>> Condition(metric="views", low=90).text
    'views >= 90'
    """

    metric: str
    low: float = -math.inf
    high: float = math.inf
    with_low: bool = True
    with_high: bool = True

    @property
    def text(self) -> str:
        """Return the condition as SQL."""
        lower = f"{self.metric} {'>=' if self.with_low else '>'} {_number(self.low)}"
        upper = f"{self.metric} {'<=' if self.with_high else '<'} {_number(self.high)}"
        return " AND ".join(text for text, end in ((lower, self.low), (upper, self.high)) if math.isfinite(end))

    def passes(self, value: float) -> bool:
        """Return True if a released value passes."""
        above = value >= self.low if self.with_low else value > self.low
        return above and (value <= self.high if self.with_high else value < self.high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LargeList(PublicPartitions):
    """The partitions of a list that may be larger than memory, of which those are published that pass all conditions.

    Args:
        keys: the list.
        conditions: at least one.
    """

    keys: KeyFile  # type: ignore[assignment]  # no sequence: nobody goes through it key by key
    conditions: tuple[Condition, ...]

    def __post_init__(self) -> None:
        if not self.conditions:
            message = "is missing: of a list that does not fit into memory the partitions that pass it are published"
            raise RequestError(field="having", message=message, hint='write e.g. having: "views >= 90"')

    @property
    def all_published(self) -> bool:
        """Return False: only partitions that pass are published."""
        return False

    @property
    def columns(self) -> KeyFile:  # type: ignore[override]
        """Return the list, as layouts hold it."""
        return self.keys

    def check(self, query: "Query") -> None:
        """Refuse options that need all partitions at once, and conditions on numbers without noise of their own.

        Raises:
            RequestError: with field, message and hint.
        """
        if self.keys.width != len(query.partition_columns):
            raise RequestError(field="public", message="must have one column for each column of partition_by")
        if query.bounds.auto:
            message = "must be a number beside a list sorted on disk"
            raise RequestError(
                field=query.bounds.auto_field, message=message, hint="write it under bounds, as a number"
            )
        for field in ("top", "best", "compare", "kept", "windows"):
            if getattr(query, field) is not None:
                raise RequestError(field=field, message="cannot stand beside a list sorted on disk", hint=HINT)
        for name, metric in query.metrics.items():
            if metric.pools or metric.auto or metric.scale is not None:
                message = "has bounds of each partition or of the run, or is shrunk, which a list sorted on disk does not allow"
                raise RequestError(
                    field=f"metrics.{name}", message=message, hint="write its bounds as numbers, without shrink"
                )
        for condition in self.conditions:
            its_name = compared_metric(query, condition)
            compared = query.metrics.get(its_name) if its_name is not None else None
            if its_name is None and condition.metric in query.metrics:
                message = f"compares {condition.metric!r}, which is made to fit the groups above it once noise is drawn"
                hint = f"compare {condition.metric}{RAW}, the number as noise left it"
                raise RequestError(field="having", message=message, hint=hint)
            if compared is not None and (compared.judged != "zero" or compared.many):
                raise own_noise(condition.metric, "is derived from other numbers")

    def __hash__(self) -> int:
        return hash((self.keys, self.conditions))


def compared_metric(query: "Query", condition: Condition) -> str | None:
    """Return the metric whose number before post-processing a condition compares; None if there is none.

    Args:
        query: over a large list, perhaps another one than that of the condition, as an audit's is.
        condition: one of the list.
    """
    name = condition.metric if query.rollup is None else condition.metric.removesuffix(RAW)
    is_raw = query.rollup is None or condition.metric.endswith(RAW)
    return name if is_raw and name in query.metrics else None


def own_noise(metric: str, why: str) -> RequestError:
    """Return the refusal of a condition on a metric that has no noise of its own.

    Args:
        metric: its name.
        why: the metric has none, in words.
    """
    return RequestError(
        field="having",
        message=f"compares {metric!r}, which {why}: beside a list sorted on disk it has no noise of its own",
        hint="compare a count or a sum, or give the sum a stage without means of its column",
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) < 1e15 and value == int(value) else repr(value)
