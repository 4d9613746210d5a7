"""One quantile of a column for each partition, among declared candidates.

In: a quantile and the candidates. Out: the metric `Quantile`. How: by choice, each candidate has the exact distance of its rank
from the quantile as its score, and permute-and-flip (as the exponential mechanism, and never worse) chooses one: no noise is
added, and the range between candidates costs nothing. By a tree: as `Quantiles`, then the nearest candidate. `auto` takes the
way whose expected error of rank is smaller, from public numbers.

Holds: a choice costs one decision for each partition of a unit (docs/proofs/exponential.md, 5). Not covered: a standard
deviation, since how far a choice is off depends on the data: it is published as null.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.cells import Around
from dp_pipelines.kernels.statistics import RankCounts, Statistic
from dp_pipelines.metrics.base import Basis, Metric, Noisy, ReleasedValues
from dp_pipelines.metrics.good_from import POINTS, GoodFrom, Level
from dp_pipelines.metrics.quantiles import BRANCHING, DEPTH, Quantiles

Method = Literal["auto", "tree", "exponential"]

MOST_CANDIDATES = 10_000

FINEST = 10**6
"""Quantiles are whole multiples of its inverse at the finest; others are rounded to the nearest fraction."""

NOMINAL = 1e-6
"""The delta with which `auto` compares; it decides nothing else."""


@dataclasses.dataclass(frozen=True)
class Quantile(Metric):
    """One quantile of a column's values that are not null: one of the declared candidates.

    Args:
        column: the column.
        quantile: from 0 to 1.
        candidates: rising numbers, which must not come from the data.
        method: `exponential` (a choice among the candidates), `tree` (noisy counts, then the nearest candidate), or `auto`.

    >>> Quantile("amount", quantile=0.5, candidates=[1, 2, 5, 10]).settled(partitions=1, rows=1).method
    'exponential'
    """

    kind, words = "quantile", "a quantile of a column, as one of some declared candidates"
    stddev_is_public = False
    has_stddev = False
    column: str  # type: ignore[misc]  # narrows the class variable of metrics without a column
    quantile: float = dataclasses.field(kw_only=True)
    candidates: Sequence[float] = dataclasses.field(kw_only=True)
    method: Method = dataclasses.field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.name(self.column, "column")
        quantile = checks.number(self.quantile, "quantile") + 0.0
        if not 0 <= quantile <= 1:
            hint = (
                f"a quantile is a fraction: write {quantile / 100:g} for {quantile:g}%"
                if 1 < quantile <= 100
                else "write 0.5"
            )
            raise RequestError(field="quantile", message="must be a number from 0 to 1", hint=hint)
        object.__setattr__(self, "quantile", quantile)
        if self.method not in get_args(Method):
            raise RequestError(field="method", message="must be one of " + ", ".join(get_args(Method)))
        object.__setattr__(self, "candidates", _rising(self.candidates))
        if self.method == "tree":
            self._tree()

    def settled(self, *, partitions: int, rows: int) -> "Quantile":
        """Return the same metric with the method that `auto` takes under these bounds of one unit.

        Args:
            partitions: of one unit, at most.
            rows: of one unit in one partition, at most.
        """
        if self.method != "auto":
            return self
        chosen, tree = expected_rank_errors(len(self.candidates), self.quantile, partitions, rows)
        method: Method = "tree"
        if chosen <= tree or not self._takes_a_tree():
            method = "exponential"
        return dataclasses.replace(self, method=method)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        if self.method == "tree":
            return self._tree().statistics(basis)
        at = Fraction(self.quantile).limit_denominator(FINEST)
        around = Around(candidates=tuple(self.candidates), part=at.numerator, whole=at.denominator)
        return (RankCounts(column=self.column, cells=around),)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        listed = np.array(self.candidates)
        if self.method == "tree":
            quantiles = self._tree().finish(noisy, basis)[0][:, 0]
            after = np.clip(np.searchsorted(listed, quantiles), 1, len(listed) - 1)
            places = np.where(quantiles - listed[after - 1] <= listed[after] - quantiles, after - 1, after)
        else:
            places = noisy[self.statistics(basis)[0]].values.astype(np.int64)
        return listed[places], np.full(len(places), math.nan)

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        if self.method == "tree":
            statements = self._tree().good_from(levels, basis)
            return tuple(
                dataclasses.replace(one, promise=f"{one.promise}, to the nearest candidate,") for one in statements
            )
        behind = levels[self.statistics(basis)[0]].behind
        if behind is None:
            return ()
        promise = f"p{100 * self.quantile:g} at most {100 * POINTS:g} points farther off than the best candidate"
        return (
            GoodFrom(promise=promise, least=behind / POINTS, of="values", noise_below=behind / 0.5, guessed_by="rows"),
        )

    def _tree(self) -> Quantiles:
        low, high = self.candidates[0], self.candidates[-1]
        if len(self.candidates) < 2:
            raise RequestError(
                field="candidates", message="must be at least two with method tree", hint="take exponential"
            )
        return Quantiles(self.column, quantiles=[self.quantile], min_value=low, max_value=high)

    def _takes_a_tree(self) -> bool:
        try:
            self._tree()
        except RequestError:
            return False
        return True


def expected_rank_errors(candidates: int, quantile: float, partitions: int, rows: int) -> tuple[float, float]:
    """Estimate how far the rank of the published number is off at epsilon 1: by choice, and by a tree. To compare with, no bound.

    A choice at epsilon e is off by spread / e times the logarithm of the number of candidates at most on average; a unit's
    partitions share epsilon. A rank in a tree adds up some nodes of each level (`quantiles.consistent`).

    Args:
        candidates: how many.
        quantile: from 0 to 1.
        partitions: of one unit, at most.
        rows: of one unit in one partition, at most.

    >>> [round(error) for error in expected_rank_errors(100, 0.5, 1, 1)]
    [5, 13]
    """
    delta = math.log(1 / NOMINAL)
    shared = min(partitions, math.sqrt(2 * delta * partitions))
    chosen = 2 * rows * max(quantile, 1 - quantile) * math.log(max(candidates, 2)) * shared
    # Noise of one level: Gaussian at epsilon 1, or Laplace.
    level = rows * min(4.2 * math.sqrt(partitions * DEPTH), math.sqrt(2) * partitions * DEPTH)
    of_rank = level * math.sqrt(DEPTH * (BRANCHING**2 - 1) / (6 * BRANCHING))
    return chosen, of_rank * math.sqrt(2 / math.pi)


def _rising(candidates: Any) -> tuple[float, ...]:
    if isinstance(candidates, (str, bytes)) or not isinstance(candidates, (list, tuple)):
        raise RequestError(field="candidates", message="must be a list of numbers")
    if not 1 <= len(candidates) <= MOST_CANDIDATES:
        raise RequestError(
            field="candidates", message=f"must be a list of 1 to {MOST_CANDIDATES}", hint="declare fewer"
        )
    rising: list[float] = []
    for index, candidate in enumerate(candidates):
        value = checks.number(candidate, f"candidates[{index}]", above=-1e300, below=1e300) + 0.0
        if rising and not value > rising[-1]:
            raise RequestError(
                field=f"candidates[{index}]", message="must be above the one before", hint="sort them, each once"
            )
        rising.append(value)
    return tuple(rising)
