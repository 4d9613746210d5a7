"""`Best`: the choice of the public partitions with the largest value of a statistic, without publishing the values.

In: how many, by which statistic, how. Out: a validated, frozen description. Holds: a statistic is a whole number per partition;
only the choice depends on it, nothing of it is published. Not covered: partitions that are not public (a `Top` of released values
serves there); what it costs (`dp_pipelines.mechanisms.best_choice`).
"""

import dataclasses
from typing import Annotated, get_args

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.metrics.base import Basis, Metric
from dp_pipelines.metrics.counts import Count, PrivacyIdCount
from dp_pipelines.selection.exponential import MOST_CANDIDATES, Choosing

RANK = "rank"
"""The published column with the order of choice: 1 for the partition that was chosen first."""

MOST_CHOICES = 1000

SHORT: dict[str, Metric] = {"users": PrivacyIdCount(), "rows": Count()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Best:
    """The k public partitions with the largest value of one statistic are published, in order, without the values.

    Against a `Top` of noisy values it costs as much however many partitions there are, and noise grows with k instead; it
    publishes less.

    Args:
        k: how many.
        by: what is compared: `users`, `rows`, or a metric that is one sum or count, as `Sum("amount", ...)`. A partition that
            the data do not name counts as 0.
        mechanism: `permute_and_flip`, the more accurate one for few choices, or `exponential`, whose costs add up more slowly.

    >>> Best(k=3, by="users").by
    PrivacyIdCount(weight=1.0, stddev=None)
    """

    k: Annotated[int, checks.Whole(low=1, high=MOST_CHOICES)] = 1
    by: Metric | str = "users"
    mechanism: Choosing = "permute_and_flip"

    def __post_init__(self) -> None:
        checks.declared(self, "best.")
        if self.mechanism not in get_args(Choosing):
            raise RequestError(field="best.mechanism", message="must be one of " + ", ".join(get_args(Choosing)))
        by = SHORT.get(self.by) if isinstance(self.by, str) else self.by
        if not isinstance(by, Metric):
            raise RequestError(field="best.by", message="must be users, rows or a metric", hint='write e.g. by="users"')
        object.__setattr__(self, "by", by)
        if by.many or len(_statistics(by)) != 1 or _statistics(by)[0].width is not None:
            raise RequestError(
                field="best.by",
                message="must be a single count or sum",
                hint="use a count, a sum, or a count of users",
            )
        if by.auto:
            raise RequestError(
                field="best.by", message="has bounds that the run chooses", hint="write its bounds as numbers"
            )
        if by.scale is not None:
            message = "has a bound that differs by partition, so that its values in two partitions cannot be compared"
            raise RequestError(field="best.by", message=message, hint="write its bounds as numbers")
        if by.stddev is not None:
            raise RequestError(field="best.by", message="gets no noise, so it takes no stddev", hint="drop it")

    @property
    def metric(self) -> Metric:
        """Return the metric that is compared."""
        assert isinstance(self.by, Metric)
        return self.by

    @property
    def statistic(self) -> Statistic:
        """Return the statistic that is compared."""
        return _statistics(self.metric)[0]

    def check(self, candidates: int) -> None:
        """Refuse a number of candidates from which the best cannot be chosen.

        Raises:
            RequestError: there are fewer than k, or more than a million.
        """
        if candidates < self.k:
            raise RequestError(field="best.k", message="must be at most the number of partitions", hint="lower it")
        if candidates > MOST_CANDIDATES:
            raise RequestError(
                field="best", message=f"can choose among at most {MOST_CANDIDATES} partitions", hint="list fewer"
            )


def _statistics(metric: Metric) -> tuple[Statistic, ...]:
    return metric.statistics(Basis(centred=False, nullable=True))
