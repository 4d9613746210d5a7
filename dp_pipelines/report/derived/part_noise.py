"""The noise of released counts and sums by the statistics that it comes from, so that shared noise is known as shared.

In: the entries of metrics in a manifest. Out: `PartNoise`: the laws of independent noises, and how much of each is in each
metric. Holds: public facts alone; what the entry says of a metric's deviation is checked against its statistics. Not covered:
metrics that are no sum of statistics, such as means; groups of a rollup that were moved to zero.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dp_pipelines.kernels.lattice import Floats
from dp_pipelines.metrics import registry
from dp_pipelines.report.pages import mapping, text

LAWS = ("gaussian", "laplace")
"""The laws that noise may have, as manifests name them."""

MOST_OF_ONE_LAW = 2
"""Of two groups the other one has a noise of the same law."""

CLOSE = 1e-6
"""A deviation may differ by this part of itself from what the statistics give."""

UNKNOWN = "the release does not say what noise is in {name}"

_SUM = re.compile(r"sum\(.* in \[([^\[\],]+), ([^\[\],]+)\], values( from the middle)?\)\Z", re.DOTALL)
"""The name of a sum (`kernels.statistics`): its bounds, and whether values are counted from the middle of these."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartNoise:
    """The noise of some metrics in units of their standard deviations.

    Args:
        laws: of independent noises of deviation 1.
        shares: of each metric one row: how much of each noise it has. The squares of a row add up to 1.
    """

    laws: tuple[str, ...]
    shares: Floats

    @property
    def gaussian(self) -> bool:
        """Return True if all noise is Gaussian."""
        return all(law == LAWS[0] for law in self.laws)


def is_sum(kind: object) -> bool:
    """Return True if the numbers of a kind of metric are sums of statistics, so that their noise does not depend on them.

    >>> is_sum("count"), is_sum("sum"), is_sum("mean"), is_sum("quantiles")
    (True, True, False, False)
    """
    known = registry.of_kind(kind)
    return known is not None and known.takes_stddev and known.stddev_is_public and not known.many


def noise_of(names: Sequence[str], entries: Mapping[str, Any]) -> PartNoise | str:
    """Return the noise of some metrics, or why it is not known.

    Args:
        names: of the metrics.
        entries: of all metrics in the manifest.

    >>> rows = {"noise": "gaussian", "stddev": 3.0}
    >>> both = {"sum(x in [0.0, 8.0], values from the middle)": {"noise": "gaussian", "stddev": 5.0}, "rows": rows}
    >>> entries = {"n": {"kind": "count", "stddev": 3.0, "statistics": {"rows": rows}},
    ...            "total": {"kind": "sum", "stddev": 13.0, "statistics": both}}
    >>> noise_of(["total", "n"], entries).shares.round(4).tolist()
    [[0.3846, 0.9231], [0.0, 1.0]]
    """
    parts: dict[str, dict[str, float]] = {}
    laws: dict[str, str] = {}
    for name in names:
        weights = _weights(mapping(entries.get(name)))
        if weights is None:
            return UNKNOWN.format(name=name)
        parts[name] = weights
        for statistic, said in mapping(mapping(entries[name]).get("statistics")).items():
            laws[statistic] = text(mapping(said).get("noise"))
    shares = np.array([[parts[name].get(statistic, 0.0) for statistic in laws] for name in names])
    return PartNoise(laws=tuple(laws.values()), shares=shares / np.linalg.norm(shares, axis=1, keepdims=True))


def with_totals(noise: PartNoise, metrics: Sequence[str], totals: Sequence[str], groups: int) -> PartNoise:
    """Return the noise of metrics and of the totals of some of them, which hold the noise of their row too.

    All groups have independent noise of one law and deviation. The total of k groups has the noise of the row, 1 / sqrt(k) of
    its own deviation, and that of all others, whose sum is taken for normal where it is of several.

    Args:
        noise: of the metrics in a row.
        metrics: their names.
        totals: those whose totals follow them.
        groups: how many rows the table has, at least one.

    >>> one = PartNoise(laws=("gaussian",), shares=np.ones((1, 1)))
    >>> with_totals(one, ["n"], ["n"], 4).shares.round(3).tolist()
    [[1.0, 0.0], [0.5, 0.866]]
    """
    others = tuple(law if groups == MOST_OF_ONE_LAW else LAWS[0] for law in noise.laws)
    of_row = np.hstack([noise.shares, np.zeros_like(noise.shares)])
    own, rest = math.sqrt(1 / groups), math.sqrt(1 - 1 / groups)
    chosen = noise.shares[[list(metrics).index(name) for name in totals]]
    return PartNoise(laws=noise.laws + others, shares=np.vstack([of_row, np.hstack([own * chosen, rest * chosen])]))


def _weights(entry: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the deviation that each statistic gives a metric, with its sign; None where the entry does not tell."""
    statistics = mapping(entry.get("statistics"))
    stddevs = {name: _above_zero(mapping(said).get("stddev")) for name, said in statistics.items()}
    laws = {text(mapping(said).get("noise")) for said in statistics.values()}
    if not is_sum(entry.get("kind")) or not statistics or None in stddevs.values() or not laws <= {*LAWS}:
        return None
    centres = {name: centre for name in statistics if (centre := _centre(name)) is not None}
    # A sum of distances from the middle has the middle times a noisy count beside it (`metrics.sums`).
    if len(statistics) != (2 if centres else 1) or len(centres) > 1:
        return None
    factors = {name: 1.0 if name in centres or not centres else next(iter(centres.values())) for name in statistics}
    weights = {name: factors[name] * stddev for name, stddev in stddevs.items() if stddev is not None}
    whole = _above_zero(entry.get("stddev"))
    if entry.get("stddev") is not None and (whole is None or abs(math.hypot(*weights.values()) / whole - 1) > CLOSE):
        return None
    return weights


def _centre(statistic: str) -> float | None:
    """Return the middle from which a sum counts values; None where it counts them from 0.

    >>> _centre("sum(x in [0.0, 8.0], values from the middle)"), _centre("sum(x in [0.0, 8.0], values)"), _centre("rows")
    (4.0, None, None)
    """
    bounds, found = _bounds(statistic), _SUM.match(statistic)
    return None if bounds is None or found is None or found[3] is None else bounds[0] / 2 + bounds[1] / 2


def sum_bounds(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the bounds of the values of a sum, by its entry in the manifest; None where it has none.

    >>> sum_bounds({"statistics": {"sum(x in [0.0, 8.0], values)": {}}}), sum_bounds({"statistics": {"rows": {}}})
    ((0.0, 8.0), None)
    """
    return next((found for name in mapping(entry.get("statistics")) if (found := _bounds(name)) is not None), None)


def _bounds(statistic: str) -> tuple[float, float] | None:
    """Return the bounds in the name of a sum; None of anything else."""
    found = _SUM.match(statistic)
    try:
        return None if found is None else (float(found[1]), float(found[2]))
    except ValueError:
        return None


def _above_zero(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    return float(value) if known and isinstance(value, int | float) else None
