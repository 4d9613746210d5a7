"""The moments of arms that a comparison is made of: which sums a stage `<name>.compare` releases of each arm.

In: a query that has `compare`. Out: the query of that stage: units, the sum of each total of a unit, of its squares and, for
quotients, of the products of two; and where in it each is found. Holds: a unit counts in one arm, its first by keyed hash, with
at most as many rows as the stage keeps of it in one partition (docs/proofs/comparisons.md). Not covered: what is computed from
the noisy sums (`release.arm_comparisons`).
"""

import dataclasses

from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.metrics.base import UNITS, Metric
from dp_pipelines.metrics.unit_moments import UnitMoment
from dp_pipelines.query.compare import Compared
from dp_pipelines.query.query import ContributionBounds, Query

UNIT_COUNT = "units"
"""What the stage calls the number of units of an arm."""

WEIGHTS = (1.0, 4.0, 2.0)
"""Of the number of units, of the sum of a total, and of a sum of products: their parts of what the comparison may cost. A
difference of means has the noise of the sums; that of the others is divided by the number of units once more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmMoments:
    """The sums that a comparison takes.

    Args:
        compared: what is compared.
        totals: each total of a unit once; its sum is called `total_0` and so on.
        pairs: of which two of them the products are summed, `product_0_1` and so on; none where intervals are of the noise alone.
        rows: of one unit in one arm, at most.
    """

    compared: tuple[Compared, ...]
    totals: tuple[Statistic, ...]
    pairs: tuple[tuple[int, int], ...]
    rows: int

    @classmethod
    def of(cls, query: Query) -> "ArmMoments":
        """Those of a query that has `compare`.

        >>> from dp_pipelines import Compare, ContributionBounds, Count, PublicPartitions, Sum
        >>> query = Query(privacy_unit="customer", partition_by="arm", partitions=PublicPartitions(keys=[("A",), ("B",)]),
        ...               bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=4),
        ...               metrics={"orders": Count(), "paid": Sum("amount", min_value=0, max_value=9)},
        ...               compare=Compare(by="arm", baseline="A", metrics=["orders", "paid / orders"]))
        >>> moments = ArmMoments.of(query)
        >>> [total.name for total in moments.totals], moments.pairs
        (['rows', 'sum(amount in [0.0, 9.0], values)'], ((0, 0), (1, 1), (1, 0)))
        """
        assert query.compare is not None
        compared = query.compare.compared(query.metrics)
        totals = tuple(dict.fromkeys(total for one in compared for total in one.totals))
        pairs: dict[tuple[int, int], None] = {}
        if query.compare.intervals == "population":
            for one in compared:
                places = [totals.index(total) for total in one.totals]
                pairs |= dict.fromkeys((place, place) for place in places)
                if len(places) == 2:
                    pairs[_ordered(*places)] = None
        return cls(compared=compared, totals=totals, pairs=tuple(pairs), rows=query.bounds.max_rows_per_partition)

    @property
    def metrics(self) -> dict[str, Metric]:
        """All sums, as metrics by name."""
        units, total, product = WEIGHTS
        made: dict[str, Metric] = {UNIT_COUNT: UnitMoment(factors=(UNITS,), rows=self.rows, weight=units)}
        for place, of_unit in enumerate(self.totals):
            made[total_of(place)] = UnitMoment(factors=(of_unit,), rows=self.rows, weight=total)
        for first, second in self.pairs:
            factors = (self.totals[first], self.totals[second])
            made[product_of(first, second)] = UnitMoment(factors=factors, rows=self.rows, weight=product)
        return made

    def names(self, one: Compared) -> tuple[str, str, tuple[str, str, str] | None]:
        """How the sums of one comparison are called: what is divided, by what, and the products of both, if there are any.

        The products are those of the total above with itself, of both, and of the total below with itself.
        """
        above = self.totals.index(one.above)
        if one.below is None:
            divides, mixed, squares = (
                UNIT_COUNT,
                total_of(above),
                UNIT_COUNT,
            )  # a unit counts once, and so does its square
        else:
            below = self.totals.index(one.below)
            divides, mixed, squares = total_of(below), product_of(*_ordered(above, below)), product_of(below, below)
        return total_of(above), divides, (product_of(above, above), mixed, squares) if self.pairs else None


def total_of(place: int) -> str:
    """What the sum of a total is called."""
    return f"total_{place}"


def product_of(first: int, second: int) -> str:
    """What the sum of products of two totals is called."""
    return f"product_{first}_{second}"


def _ordered(first: int, second: int) -> tuple[int, int]:
    return max(first, second), min(first, second)


def query_of(query: Query) -> Query:
    """The query that releases the sums: each unit in one arm."""
    moments = ArmMoments.of(query)
    return Query(
        privacy_unit=query.privacy_unit,
        partition_by=query.partition_by,
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=moments.rows),
        metrics=moments.metrics,
        partitions=query.partitions,
        row_id=query.row_id,
    )
