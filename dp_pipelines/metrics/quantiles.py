"""Quantiles of a column for each partition, from a tree of noisy counts over a declared range.

In: a range and the quantiles. Out: the metrics `Quantiles`, `Median`, `Min` and `Max`. How: each row counts in one node of
each level of a tree (4 children a node, 6 levels: 4,096 leaves); every count gets noise. The counts are made consistent, so
that each node is the sum of its children (least squares: Hay, Rastogi, Miklau, Suciu 2010, section 4). A quantile is found
from the root down: in each node the child in which its rank lies, where counts below zero are zero, and a straight line
inside a leaf. So what noise makes of empty parts of the range adds up over a few nodes of each level, not over all leaves.
Several quantiles cost no more than one. The least and the greatest value (quantiles 0 and 1) would be found in the noise of
empty parts: for them counts that do not clearly exceed their noise are zero.
"""

# Holds: all of it is post-processing of the noisy counts. Not covered: values outside the range count as its ends; answers are
# no finer than a leaf, a 4,096th of the range, and straight lines inside it.

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.cells import TreeLevel
from dp_pipelines.kernels.lattice import Floats
from dp_pipelines.kernels.statistics import CellCounts, Statistic
from dp_pipelines.metrics.base import Basis, Metric, Noisy, ReleasedValues, Shown
from dp_pipelines.metrics.error_bars import ERROR_BAR
from dp_pipelines.metrics.good_from import POINTS, REACH, GoodFrom, Level

BRANCHING, DEPTH = 4, 6
"""Nearly the best tree with 4,096 leaves on prices and on smooth data (docs/benchmarks/quantiles.md): a rank adds up about
branching / 4 nodes of each level, whose noise grows with the root of their number, and what noise makes of empty nodes adds
up over branching nodes of each level. 2 children and 12 levels are as good, with twice the noise to draw."""

LEAVES = BRANCHING**DEPTH
"""The number of leaves. Values in the same leaf, this part of the range, are not distinguished."""

STANDS_OUT = 3.0
"""In the search for the least or greatest value, counts up to this many standard deviations of their noise are zero."""

LEAF_BAR = 0.6
"""The least published standard deviation, in widths of a leaf: values inside a leaf are not distinguished."""

MOST_QUANTILES = 100

MOST_SAID = 3
"""The most quantiles that a statement names."""

WORST_RANK = math.sqrt(1 / ((BRANCHING**2 - 1) / (6 * BRANCHING)))
"""Factor by which noise moves the worst rank, after half of the children of each node, farther than an average rank."""


POSITIVE = 1 / math.sqrt(2 * math.pi)
"""The mean of the positive part of normal noise, in standard deviations: the count that an empty node seems to have, since
counts below zero are set to zero. If all values lie at one end, all of it is on one side of them, in each level. Laplace noise
has less."""


def between(quantile: float) -> str:
    """Return in words the promise for a quantile.

    >>> between(0.9), between(0.025)
    ('p90 between p85 and p95', 'p2.5 between p0 and p7.5')
    """
    low, high = max(quantile - POINTS, 0.0), min(quantile + POINTS, 1.0)
    return f"p{100 * quantile:g} between p{100 * low:.6g} and p{100 * high:.6g}"


@dataclasses.dataclass(frozen=True)
class Quantiles(Metric):
    """Quantiles of a column's values that are not null.

    Args:
        column: the column.
        quantiles: from 0 (the least) to 1 (the greatest), rising.
        min_value, max_value: the range; values outside count as its ends.

    Published as a list, in the order of `quantiles`, and for each the standard deviation that noise of its rank gives it, with
    the width of a leaf: a function of the released counts. The quantiles 0 and 1 are the ends of the counts that exceed
    the noise: a few rows alone in the tails are not seen, and their error bars reach as far as noise could hide some.

    >>> Quantiles("amount", quantiles=[0.25, 0.5], min_value=0, max_value=200).quantiles
    (0.25, 0.5)
    """

    kind, words = "quantiles", "quantiles of a column: 10% means that a tenth of the values lie below"
    declared = ("quantiles",)
    shown_as: ClassVar[Shown] = "quantiles"
    has_cells: ClassVar[bool] = True
    judged, stddev_is_public = "range", False
    many = True
    column: str  # type: ignore[misc]  # narrows the class variable of metrics without a column
    quantiles: Sequence[float] = dataclasses.field(kw_only=True)
    min_value: float = dataclasses.field(kw_only=True)
    max_value: float = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.name(self.column, "column")
        for field in ("min_value", "max_value"):
            hint = "declare what a value can be, from public knowledge: what lies outside counts as the end"
            bound = checks.number(getattr(self, field), field, above=-1e300, below=1e300, hint=hint)
            object.__setattr__(self, field, bound + 0.0)
        if not self.min_value < self.max_value:
            raise RequestError(field="min_value", message="must be below max_value", hint="widen the range")
        leaf = self._leaf
        if not self.min_value < self.min_value + leaf < self.max_value - leaf < self.max_value:
            message = f"must be far enough below max_value for {LEAVES} different numbers between them"
            raise RequestError(field="min_value", message=message, hint="widen the range")
        if isinstance(self.quantiles, (str, bytes)) or not isinstance(self.quantiles, (list, tuple)):
            raise RequestError(field="quantiles", message="must be a list of numbers from 0 to 1")
        if not 1 <= len(self.quantiles) <= MOST_QUANTILES:
            raise RequestError(field="quantiles", message=f"must be a list of 1 to {MOST_QUANTILES}")
        last = -1.0
        for index, quantile in enumerate(self.quantiles):
            value = checks.number(quantile, f"quantiles[{index}]") + 0.0
            if value > 1:
                hint = (
                    f"quantiles are fractions: write {value / 100:g} for {value:g}%"
                    if value <= 100
                    else "write e.g. 0.5"
                )
                message = "must be a number from 0 to 1 and above the one before"
                raise RequestError(field=f"quantiles[{index}]", message=message, hint=hint)
            if not value >= 0 or not value > last:
                raise RequestError(
                    field=f"quantiles[{index}]",
                    message="must be a number from 0 to 1 and above the one before",
                    hint="sort them",
                )
            last = value
        object.__setattr__(self, "quantiles", tuple(float(quantile) + 0.0 for quantile in self.quantiles))

    @property
    def value_range(self) -> tuple[float, float]:
        """Return the bounds of the values."""
        return self.min_value, self.max_value

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return tuple(
            CellCounts(
                column=self.column,
                cells=TreeLevel(low=self.min_value, high=self.max_value, branching=BRANCHING, depth=DEPTH, level=level),
            )
            for level in range(1, DEPTH + 1)
        )

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        levels = [noisy[statistic] for statistic in self.statistics(basis)]
        tree, spreads, spread = consistent([level.values for level in levels], [level.stddev for level in levels])
        ends = [
            np.where(counts > STANDS_OUT * of_node, counts, 0.0) for counts, of_node in zip(tree, spreads, strict=True)
        ]
        total = tree[0].sum(axis=1)
        moved = ERROR_BAR * spread / np.maximum(total, spread)
        nothing = total < STANDS_OUT * spread
        ranks = np.array(self.quantiles)
        low, middle, high = (
            self._value(descend(tree, ranks + move[:, None])) for move in (-moved, np.zeros(len(moved)), moved)
        )
        for place, quantile in enumerate(self.quantiles):
            if quantile in (0.0, 1.0):
                middle[:, place] = self._value(descend(ends, np.full((len(moved), 1), quantile)))[:, 0]
        # If there may be no row at all, a quantile may be anywhere.
        low[nothing], high[nothing] = self.min_value, self.max_value
        values, stddevs = middle, np.maximum(high - middle, middle - low) / ERROR_BAR
        # The ends are found on their own, and must not lie inside of what is found between them.
        if self.quantiles[0] == 0:
            values[:, 0] = values.min(axis=1)
        if self.quantiles[-1] == 1:
            values[:, -1] = values.max(axis=1)
        return values, np.hypot(stddevs, LEAF_BAR * self._leaf)

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        inner = [quantile for quantile in self.quantiles if 0 < quantile < 1]
        if not inner:  # at the ends, the counts that exceed the noise depend on the values there
            return ()
        of_levels = [levels[statistic] for statistic in self.statistics(basis)]
        nothing = [np.zeros((1, BRANCHING**level)) for level in range(1, DEPTH + 1)]
        _, of_nodes, of_rank = consistent(nothing, [level.stddev for level in of_levels])
        far = WORST_RANK * of_rank * max(REACH[level.law] for level in of_levels)
        far += (BRANCHING - 1) * POSITIVE * math.fsum(of_nodes)
        promise = ", ".join(between(quantile) for quantile in inner[:MOST_SAID])
        promise += ", and so on," if len(inner) > MOST_SAID else ""
        return (GoodFrom(promise=promise, least=far / POINTS, of="values", noise_below=far / 0.5, guessed_by="rows"),)

    @property
    def _leaf(self) -> float:
        """Return the width of a leaf."""
        return (self.max_value - self.min_value) / float(LEAVES)

    def _value(self, place: Floats) -> Floats:
        """Return the value at a part of the range."""
        value: Floats = self.min_value + (self.max_value - self.min_value) * place
        return np.minimum(value, self.max_value)


@dataclasses.dataclass(frozen=True)
class Median(Quantiles):
    """The median of a column's values that are not null: one number. Arguments as for `Quantiles`, without quantiles.

    >>> Median("amount", min_value=0, max_value=200).quantiles
    (0.5,)
    """

    kind, words = "median", "the median of a column"
    shown_as = "number"
    many = False
    quantiles: Sequence[float] = dataclasses.field(default=(0.5,), init=False)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        values, stddevs = super().finish(noisy, basis)
        return values[:, 0], stddevs[:, 0]


@dataclasses.dataclass(frozen=True)
class Min(Median):
    """About the least of a column's values that are not null: the lower end of the counts that exceed the noise.

    Arguments as for `Median`.

    >>> Min("amount", min_value=0, max_value=200).quantiles
    (0.0,)
    """

    kind, words = "min", "about the least value of a column"
    quantiles: Sequence[float] = dataclasses.field(default=(0.0,), init=False)


@dataclasses.dataclass(frozen=True)
class Max(Median):
    """About the greatest of a column's values that are not null: the upper end of the counts that exceed the noise.

    Arguments as for `Median`.

    >>> Max("amount", min_value=0, max_value=200).quantiles
    (1.0,)
    """

    kind, words = "max", "about the greatest value of a column"
    quantiles: Sequence[float] = dataclasses.field(default=(1.0,), init=False)


def consistent(levels: Sequence[Floats], stddevs: Sequence[float]) -> tuple[list[Floats], list[float], float]:
    """Compute the tree of least squares, in which each node is the sum of its children, and about how far noise moves a rank.

    Args:
        levels: noisy counts of each level, from the one below the root to the leaves: (partitions, nodes).
        stddevs: of the noise of each level.

    Returns:
        the levels, for each at most the standard deviation of a node, and about that of a rank.

    >>> tree, _, _ = consistent([np.array([[4.0, 2.0]]), np.array([[1.0, 1.0, 1.0, 1.0]])], [1e-9, 1.0])
    >>> np.round(tree[1], 6).tolist()
    [[2.0, 2.0, 1.0, 1.0]]
    """
    up, variances = [levels[-1]], [stddevs[-1] ** 2]
    for counts, stddev in zip(levels[-2::-1], stddevs[-2::-1], strict=True):
        branching = up[0].shape[1] // counts.shape[1]
        sums = up[0].reshape(len(counts), counts.shape[1], branching).sum(axis=2)
        own, below = 1 / stddev**2, 1 / (branching * variances[0])
        up.insert(0, (counts * own + sums * below) / (own + below))
        variances.insert(0, 1 / (own + below))
    down, of_rank = [up[0]], variances[0] * _of_some(up[0].shape[1])
    for counts, variance in zip(up[1:], variances[1:], strict=True):
        above = down[-1]
        branching = counts.shape[1] // above.shape[1]
        grouped = counts.reshape(len(counts), above.shape[1], branching)
        moved = grouped + ((above - grouped.sum(axis=2)) / branching)[:, :, None]
        down.append(moved.reshape(counts.shape))
        of_rank += variance * _of_some(branching)
    return down, [math.sqrt(variance) for variance in variances], math.sqrt(of_rank)


def _of_some(children: int) -> float:
    """Return the variance of the sum of the first few of some children whose total is known: the mean over how few.

    In units of one child's variance: k (children - k) / children for k of them.
    """
    return (children * children - 1) / (6 * children)


def descend(tree: Sequence[Floats], ranks: Floats) -> Floats:
    """Return the places of ranks in the range.

    Args:
        tree: counts of each level: (partitions, nodes).
        ranks: (partitions, ranks) the parts of all rows of a partition that lie below.

    Returns:
        parts of the range, from 0 to 1, shaped as `ranks`. A node without any count is halved.

    >>> descend([np.array([[3.0, 1.0]])], np.array([[0.75, 1.0]])).tolist()
    [[0.5, 1.0]]
    """
    rows = np.repeat(np.arange(len(ranks)), ranks.shape[1])
    node, part = np.zeros(len(rows), np.int64), np.clip(ranks.ravel(), 0.0, 1.0)
    stopped = np.zeros(len(rows), np.bool_)
    nodes, every = 1, np.arange(len(rows))
    begin, width = np.zeros(len(rows)), np.ones(len(rows))
    for counts in tree:
        branching = counts.shape[1] // nodes
        nodes = counts.shape[1]
        children = np.maximum(counts.reshape(len(ranks), nodes // branching, branching)[rows, node], 0.0)
        sums = np.cumsum(children, axis=1)
        targets = part * sums[:, -1]
        child = np.minimum((sums < targets[:, None]).sum(axis=1), branching - 1)
        # The least rank lies in the first child that has any rows, not in an empty one before it.
        inside = children[every, child]
        child = np.where((inside > 0) | (sums[:, -1] <= 0), child, np.argmax(children > 0, axis=1))
        inside = children[every, child]
        stopped |= sums[:, -1] <= 0
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = np.clip((targets - (sums[every, child] - inside)) / inside, 0.0, 1.0)
        begin = np.where(stopped, begin, begin + child * width / branching)
        width = np.where(stopped, width, width / branching)
        part = np.where(stopped, 0.5, moved)
        node = node * branching + child
    places: Floats = begin + part * width
    return places.reshape(ranks.shape)
