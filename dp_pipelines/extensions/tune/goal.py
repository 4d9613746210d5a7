"""The goal of a tuning, and the configuration that comes closest to it.

In: words such as `relative_error(orders) <= 0.1` or `minimize loss`; sums of errors (`tally`). Out: a goal; a
number for each configuration; the recommended one. Holds: a goal is read before any row. Not covered: whether anybody
may see the recommendation, which was found by looking at the rows. NOT private.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.tune.configuration import Configuration
from dp_pipelines.extensions.tune.tally import SUMS

OF_METRICS = {
    "error": "root mean square error over released partitions, in units of the metric",
    "relative_error": "mean over released partitions of the root mean square error divided by the true value",
    "loss": "relative error, at most 1, averaged over all partitions and weighted by their rows; a lost partition counts as 1",
    "partition_loss": "the same, with every partition weighted equally",
}
OF_ALL = {"lost": "share of partitions that are not released", "lost_rows": "share of rows in them"}
MEASURES = OF_METRICS | OF_ALL
"""The measures that a goal can name, in words."""

DEFAULT = "minimize loss"
EXAMPLE = 'write e.g. --goal "relative_error(orders) <= 0.1" or --goal "minimize loss"'

_WORDS = re.compile(
    r"(?P<minimize>minimi[sz]e\s+)?(?P<measure>\w+)\s*(?:\((?P<metric>[^()]*)\))?\s*(?:<=\s*(?P<most>\S+))?\Z"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wish:
    """A measure of one metric, or of all metrics on average, with a limit or to be minimized."""

    measure: str
    metric: str | None = None
    most: float | None = None

    @property
    def words(self) -> str:
        """As it is written."""
        of = self.measure if self.metric is None else f"{self.measure}({self.metric})"
        return f"minimize {of}" if self.most is None else f"{of} <= {self.most:g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goal:
    """Limits, and what is minimized within them."""

    limits: tuple[Wish, ...]
    minimized: Wish

    @property
    def words(self) -> str:
        """As it is written."""
        return ", ".join(wish.words for wish in (*self.limits, self.minimized))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recommendation:
    """A configuration.

    Args:
        number: its place in the grid.
        reached: whether it keeps all limits.
    """

    number: int
    reached: bool


def read(given: Sequence[str], metrics: Sequence[str]) -> Goal:
    """A goal.

    Args:
        given: wishes; limits, and at most one that is minimized.
        metrics: names of the metrics whose errors are predicted.

    Raises:
        RequestError: it is no goal.

    >>> read(["relative_error(orders) <= 0.1"], ["orders"]).words
    'relative_error(orders) <= 0.1, minimize loss'
    """
    wishes = [_wish(text.strip(), metrics) for text in given]
    minimized = [wish for wish in wishes if wish.most is None]
    if len(minimized) > 1:
        raise RequestError(
            field="--goal", message="minimizes two things", hint="minimize one, and set limits for the others"
        )
    limits = tuple(wish for wish in wishes if wish.most is not None)
    return Goal(limits=limits, minimized=minimized[0] if minimized else _wish(DEFAULT, metrics))


def _wish(text: str, metrics: Sequence[str]) -> Wish:
    field, found = f"--goal {text!r}", _WORDS.match(text)
    if found is None or (found["minimize"] is not None) == (found["most"] is not None):
        raise RequestError(field=field, message="is not a goal", hint=EXAMPLE)
    if found["measure"] not in MEASURES:
        raise RequestError(field=field, message="does not name a measure", hint="measures: " + ", ".join(MEASURES))
    metric = found["metric"].strip() if found["metric"] is not None else None
    if metric is not None and (metric not in metrics or found["measure"] in OF_ALL):
        hint = "metrics: " + ", ".join(metrics) if found["measure"] in OF_METRICS else f"write {found['measure']} alone"
        raise RequestError(field=field, message="does not name a metric whose errors are predicted", hint=hint)
    if metric is None and found["measure"] == "error" and len(metrics) > 1:
        hint = "write e.g. error(" + metrics[0] + "), or relative_error"
        raise RequestError(field=field, message="adds up errors in different units", hint=hint)
    most = None
    if found["most"] is not None:
        try:
            most = float(found["most"])
        except ValueError:
            most = math.nan
        if not 0 < most < math.inf:
            raise RequestError(field=field, message="must have a limit above 0", hint=EXAMPLE)
    return Wish(measure=found["measure"], metric=metric, most=most)


class Results:
    """The results for each configuration.

    Args:
        sums: `tally.merged` of all partitions.
        configurations: all of them, in the order of their numbers.
    """

    def __init__(self, sums: pa.Table, configurations: Sequence[Configuration]) -> None:
        self.sums, self.configurations = sums, configurations
        self.metrics = [estimate.name for estimate in configurations[0].estimates]
        shape = (len(configurations), len(self.metrics))
        cell = sums["configuration"].to_numpy().astype(np.int64) * shape[1] + sums["metric"].to_numpy()
        self._of = {name: _added(cell, sums[name].to_numpy(), shape) for name in SUMS}

    def measure(self, wish: Wish) -> NDArray[np.float64]:
        """A number for each configuration; NaN if there is none."""
        found = self.of_metrics(wish.measure)
        if wish.metric is not None:
            return np.asarray(found[:, self.metrics.index(wish.metric)])
        # A metric whose truth is zero or missing everywhere cannot distinguish configurations.
        told = ~np.isnan(found).all(axis=0)
        return np.asarray((found[:, told] if told.any() else found).mean(axis=1))

    def of_metrics(self, measure: str) -> NDArray[np.float64]:
        """By configuration and metric."""
        return of_sums(self._of, measure)

    def parts(self, number: int, metric: int, relative: bool) -> dict[str, float]:
        """The parts of an error: root mean squares over released partitions."""
        return parts({name: values[number, metric] for name, values in self._of.items()}, relative)

    def sizes(self, number: int, metric: int) -> pa.Table:
        """The sums of a configuration and metric by size of partition."""
        mine = pc.and_(pc.equal(self.sums["configuration"], number), pc.equal(self.sums["metric"], metric))
        return self.sums.filter(mine)


def _added(cell: NDArray[np.int64], values: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.float64]:
    return np.bincount(cell, values, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)


def of_sums(sums: Mapping[str, Any], measure: str) -> NDArray[np.float64]:
    """A measure from sums over partitions."""
    with np.errstate(all="ignore"):
        if measure == "error":
            return np.asarray(np.sqrt(sums["square"] / sums["told"]))
        if measure == "relative_error":
            return np.asarray(sums["relative"] / sums["comparable"])
        if measure == "loss":
            return np.asarray(sums["row_loss"] / sums["compared_rows"])
        if measure == "partition_loss":
            return np.asarray(sums["loss"] / sums["compared"])
        if measure == "lost":
            return np.asarray(1 - sums["kept"] / sums["partitions"])
        return np.asarray(1 - sums["kept_rows"] / sums["rows"])


def parts(sums: Mapping[str, float], relative: bool) -> dict[str, float]:
    """The parts of an error from sums over partitions: root mean squares over those that are released."""
    ending, whole = ("_relative_square", "comparable") if relative else ("_square", "told")
    names = [
        name.removesuffix(ending) for name in SUMS if name.endswith(ending) and (relative or "relative" not in name)
    ]
    return {name: math.sqrt(sums[name + ending] / sums[whole]) if sums[whole] > 0 else math.nan for name in names}


def recommend(results: Results, goal: Goal, epsilons: Sequence[float], own: float) -> Recommendation:
    """The configuration that comes nearest to a goal.

    With limits: among the configurations that meet all of them, those with the smallest epsilon, and among these the
    one with the smallest measure; if none meets them, the one that exceeds them least. Without limits more epsilon
    would always win, so only those with the job's own epsilon are compared, or with the smallest if the grid does not
    have that.

    Args:
        results: the results for each configuration.
        goal: what is wanted.
        epsilons: of each configuration.
        own: the job's.
    """
    measured = np.nan_to_num(results.measure(goal.minimized), nan=np.inf)
    budgets = np.asarray(epsilons, np.float64)
    if not goal.limits:
        wanted = own if own in epsilons else float(budgets.min())
        order = np.lexsort((measured, budgets != wanted))
        return Recommendation(number=int(order[0]), reached=True)
    ratios = [np.nan_to_num(results.measure(wish), nan=np.inf) / (wish.most or 1.0) for wish in goal.limits]
    worst = np.max(ratios, axis=0)
    reached = worst <= 1
    if reached.any():
        order = np.lexsort((measured, budgets, ~reached))
    else:
        order = np.lexsort((measured, worst))
    return Recommendation(number=int(order[0]), reached=bool(reached.any()))
