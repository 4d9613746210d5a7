"""Contribution bounds of one privacy unit: the numbers from which every sensitivity follows.

In: numbers that the owner of the job declares. Out: a frozen description, validated at once. Holds: nothing here depends on data.
Not covered: how rows above the bounds are dropped (`dp_pipelines.kernels.bounding`), and the sensitivities
(`dp_pipelines.kernels.sensitivity`).
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Literal

from dp_pipelines import checks
from dp_pipelines.auto_bounds import joint_bounds, partition_bound
from dp_pipelines.errors import RequestError
from dp_pipelines.metrics.over_column import AUTO

LARGEST_BOUND = 2**24
"""The largest contribution bound: with lattice values of at most 2**30 a sensitivity stays below 2**62 (kernels.lattice)."""

ContributionBound = Annotated[int, checks.Whole(low=1, high=LARGEST_BOUND)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContributionBounds:
    """The most that one privacy unit may contribute. Rows above it are dropped by a keyed hash, not by order.

    Args:
        max_partitions_contributed: partitions of one unit that are kept (L0); `auto` has it chosen among `partition_candidates`
            from a noisy histogram of how many partitions units have, for a tenth of the stage's budget, by `dp-pipelines run`.
            Where `partition_by` is empty it is 1, and can be left out.
        max_contributions_per_partition: rows of one unit in one partition that are kept (Linf). Needed by every metric that
            looks at rows; not needed for `PrivacyIdCount` and for sums clipped per partition. `auto` has it chosen among
            `row_candidates` from a second histogram, together with the bound on partitions where that is `auto` too.
        max_contributions: rows of one unit in all, instead of the two above.
        partition_candidates: if `max_partitions_contributed` is `auto`, its possible values: rising whole numbers that do not
            come from the data. With `max_contributions_per_partition: auto` they are the powers of 2 up to 64 if left out.
        row_candidates: likewise, where `max_contributions_per_partition` is `auto`; the powers of 2 up to 512 if left out, or up
            to 64 where a metric has cells (medians, quantiles, histograms) and a unit may be in several partitions.

    >>> ContributionBounds(max_partitions_contributed=8, max_contributions_per_partition=3).max_partitions
    8
    >>> ContributionBounds(max_partitions_contributed="auto", partition_candidates=[1, 4, 16]).max_partitions
    16
    >>> ContributionBounds(max_contributions=20).max_partitions
    20
    """

    max_partitions_contributed: ContributionBound | Literal["auto"] | None = None
    max_contributions_per_partition: ContributionBound | Literal["auto"] | None = None
    max_contributions: ContributionBound | None = None
    partition_candidates: Sequence[int] | None = None
    row_candidates: Sequence[int] | None = None

    def __post_init__(self) -> None:
        checks.declared(self)
        if self.auto_rows:
            rows = joint_bounds.ROW_CANDIDATES if self.row_candidates is None else self.row_candidates
            object.__setattr__(self, "row_candidates", partition_bound.checked(rows, LARGEST_BOUND, "row_candidates"))
        elif self.row_candidates is not None:
            raise RequestError(
                field="row_candidates",
                message="is only for a bound that the run chooses",
                hint="drop it, or write max_contributions_per_partition: auto",
            )
        if self.auto_partitions:
            left_out = self.auto_rows and self.partition_candidates is None
            partitions = joint_bounds.CANDIDATES if left_out else self.partition_candidates
            object.__setattr__(self, "partition_candidates", partition_bound.checked(partitions, LARGEST_BOUND))
        elif self.partition_candidates is not None:
            raise RequestError(
                field="partition_candidates",
                message="is only for a bound that the run chooses",
                hint="drop it, or write max_partitions_contributed: auto",
            )
        others = (self.max_partitions_contributed, self.max_contributions_per_partition)
        if self.max_contributions is not None and others != (None, None):
            raise RequestError(
                field="max_contributions",
                message="bounds all rows of a unit and cannot be combined with other bounds",
                hint="drop it, or drop max_partitions_contributed and max_contributions_per_partition",
            )

    def check_partitions(self) -> None:
        """Refuse bounds without a number of partitions of one unit. Only a total needs none.

        Raises:
            RequestError: as said.
        """
        if self.max_contributions is None and self.max_partitions_contributed is None:
            raise RequestError(
                field="bounds",
                message="must say how much one privacy unit may contribute",
                hint="set max_partitions_contributed and max_contributions_per_partition, or max_contributions; "
                "or leave bounds out, and each run chooses both",
            )

    def over_everything(self) -> "ContributionBounds":
        """Return the same bounds for one partition that holds all rows.

        Raises:
            RequestError: a bound on partitions other than 1 was declared.

        >>> ContributionBounds(max_contributions=20).over_everything().max_rows_per_partition
        20
        """
        if self.max_partitions_contributed not in (None, 1) and not (self.auto_partitions and self.auto_rows):
            raise RequestError(
                field="max_partitions_contributed",
                message="must be 1 where partition_by is empty: everything is one partition",
                hint="leave it out, or name columns in partition_by",
            )
        rows = self.max_contributions or self.max_contributions_per_partition
        return ContributionBounds(
            max_partitions_contributed=1, max_contributions_per_partition=rows, row_candidates=self.row_candidates
        )

    def without_rows(self) -> "ContributionBounds":
        """Return the same bounds without a chosen bound on rows, if no metric looks at rows.

        >>> both = ContributionBounds(max_partitions_contributed="auto", max_contributions_per_partition="auto")
        >>> both.without_rows().auto_rows, both.without_rows().candidates
        (False, (1, 2, 4, 8, 16, 32, 64))
        """
        if not self.auto_rows:
            return self
        return dataclasses.replace(self, max_contributions_per_partition=None, row_candidates=None)

    def for_cells(self) -> "ContributionBounds":
        """Return the same bounds, whose default candidates of rows are so few that noise tables hold cells too.

        >>> both = ContributionBounds(max_partitions_contributed="auto", max_contributions_per_partition="auto")
        >>> both.row_candidates[-1], both.for_cells().row_candidates[-1]
        (512, 64)
        """
        if self.row_candidates != joint_bounds.ROW_CANDIDATES or self.max_partitions == 1:
            return self
        return dataclasses.replace(self, row_candidates=joint_bounds.CANDIDATES)

    @property
    def auto(self) -> bool:
        """Return True if a bound is chosen in a run."""
        return self.auto_partitions or self.auto_rows

    @property
    def auto_partitions(self) -> bool:
        """Return True if the bound on partitions is chosen in a run."""
        return self.max_partitions_contributed == AUTO

    @property
    def auto_rows(self) -> bool:
        """Return True if the bound on rows in a partition is chosen in a run."""
        return self.max_contributions_per_partition == AUTO

    @property
    def auto_field(self) -> str:
        """Return the name of a bound that is chosen in a run, for messages."""
        return partition_bound.NAME if self.auto_partitions else joint_bounds.NAME

    @property
    def candidates(self) -> tuple[int, ...]:
        """Return the possible bounds on partitions, rising; the one number if it is fixed."""
        return tuple(self.partition_candidates or (self.max_partitions,))

    @property
    def max_partitions(self) -> int:
        """Return the most partitions of one unit (L0); the largest candidate if it is not chosen yet."""
        if self.partition_candidates is not None:
            return self.partition_candidates[-1]
        self.check_partitions()
        bound = self.max_contributions if self.max_contributions is not None else self.max_partitions_contributed
        assert isinstance(bound, int)
        return bound

    def choosing(self, partitions: int | None = None, rows: int | None = None) -> "ContributionBounds":
        """Return the same bounds with the chosen numbers in place of `auto`.

        Args:
            partitions, rows: None for one that is fixed.

        Raises:
            AssertionError: one is none of the candidates.
        """
        chosen: dict[str, int | None] = {}
        for value, open_, candidates, name, others in (
            (partitions, self.auto_partitions, self.partition_candidates, partition_bound.NAME, "partition_candidates"),
            (rows, self.auto_rows, self.row_candidates, joint_bounds.NAME, "row_candidates"),
        ):
            if open_ != (value is not None) or (value is not None and value not in (candidates or ())):
                raise AssertionError(f"{name} is none of the candidates")
            if open_:
                chosen |= {name: value, others: None}
        return dataclasses.replace(self, **chosen)  # type: ignore[arg-type]  # names of fields

    @property
    def max_rows_per_partition(self) -> int:
        """Return the most rows of one unit in one partition (Linf); 1 if rows do not matter.

        If the bound is open, it is the largest candidate.
        """
        if self.row_candidates is not None:
            return self.row_candidates[-1]
        bound = self.max_contributions or self.max_contributions_per_partition or 1
        assert isinstance(bound, int)
        return bound

    @property
    def max_rows(self) -> int:
        """Return the most rows of one unit in all (L1)."""
        return self.max_contributions or self.max_partitions * self.max_rows_per_partition

    @property
    def bounds_rows(self) -> bool:
        """Return True if the number of rows is bounded on purpose, as every metric over rows needs."""
        return self.max_contributions is not None or self.max_contributions_per_partition is not None


AUTO_BOUNDS = ContributionBounds(max_partitions_contributed=AUTO, max_contributions_per_partition=AUTO)
"""Both bounds are chosen in a run: the bounds of a query that names none."""
