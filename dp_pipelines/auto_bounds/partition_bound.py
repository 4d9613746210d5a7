"""The bound on a unit's partitions, chosen from a noisy histogram, where the bounds say `auto`.

In: declared candidates; noisy numbers of units by how many partitions they have. Out: the edges of these bins; one of the
candidates. Holds: the choice is a function of released counts and public numbers (post-processing). Not covered: which share of
the budget the histogram has (`phases`), and the noise of what is released with the bound (`planning.reserve`).
"""

# What is minimised is the expected squared error of a typical partition, as where bounds of values are chosen (`bounds`, with the
# same guesses about the size of that partition; each unit counts in it once, so it has at most all of them): what is dropped from
# it, squared, and the variance of the noise, which grows with the bound (Laplace) or with its root (Gaussian). A smallest bound
# that most units keep, say 95 %, would do without guesses; but it looks at neither the noise nor the rows: a few units with very
# many partitions may hold most of them, and where noise is nothing beside what a partition holds, dropping a tenth of it is the
# larger error. Several statistics are weighed as where a plan compares strategies: by the logarithms of their errors, with the
# weights of their metrics. Dropping is judged over all rows, as if it took the same part of each partition, and each unit is
# taken to add as much as it may. Units with many partitions are few in each bin, may be many together, and hold much of the data:
# bins that do not stand out of the noise alone are counted with their neighbours (`value_bounds.seen`). What does not stand out
# at all counts as no units: then noise alone decides. docs/benchmarks/partition_bound.md has what the guesses cost.

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dp_pipelines import checks
from dp_pipelines.auto_bounds import value_bounds
from dp_pipelines.errors import RequestError
from dp_pipelines.metrics.base import Basis, Metric

COLUMN = "_partitions"
"""The column with the number of partitions of a unit, of which there is one row."""

HISTOGRAM = "units"
"""The one metric of the stage that releases the histogram."""

NAME = "max_partitions_contributed"
"""What the bound is called in `bounds.json`."""

MOST_CANDIDATES = 64

FALSE_ALARM = 0.001
"""The probability with which noise alone makes any run of so many empty bins look as if it held units. It is small, since units
with very many partitions that nobody is would outweigh all others."""

SINGLE = 8
"""Up to here each number of partitions has a bin of its own; then bins grow by factors of sqrt(2)."""


def checked(candidates: Any, largest: int, field: str = "partition_candidates") -> tuple[int, ...]:
    """What the bound may be.

    Args:
        candidates: at least two rising whole numbers from 1.
        largest: the largest that may be.
        field: that declares them.

    Raises:
        RequestError: they are something else.

    >>> checked([1, 4, 16], 2**24)
    (1, 4, 16)
    """
    hint = f"write e.g. {field}: [1, 2, 4, 8, 16, 32], from public knowledge"
    if candidates is None:
        message = "is required if max_partitions_contributed is auto"
        hint += "; or leave bounds out, which needs no list"
        raise RequestError(field=field, message=message, hint=hint)
    if isinstance(candidates, (str, bytes)) or not isinstance(candidates, (list, tuple)):
        raise RequestError(field=field, message="must be a list of whole numbers", hint=hint)
    if not 2 <= len(candidates) <= MOST_CANDIDATES:
        raise RequestError(field=field, message=f"must be a list of 2 to {MOST_CANDIDATES}", hint=hint)
    kept: list[int] = []
    for index, candidate in enumerate(candidates):
        kept.append(checks.whole(candidate, f"{field}[{index}]", low=1, high=largest))
        if kept[1:] and not kept[-2] < kept[-1]:
            raise RequestError(
                field=f"{field}[{index}]", message="must be larger than the previous one", hint="sort them"
            )
    return tuple(kept)


def refuse(
    strategy: str | None,
    best: object,
    columns: Iterable[str],
    metrics: Mapping[str, Metric],
    chosen: Mapping[str, str],
    reserved: Collection[str],
) -> None:
    """Refuse what cannot be accounted for before the bounds are known (docs/proofs/sensitivity.md, lemma 6b).

    Args:
        strategy: of the selection, None for public partitions.
        best: what chooses the best partitions, or None.
        columns: that the query reads.
        metrics: by name.
        chosen: the names of the bounds that the run chooses, with the columns that their histograms are of.
        reserved: the names of all bounds that `bounds.json` may have; no metric may have one of them.

    Raises:
        RequestError: the query cannot have such bounds.
    """
    first = next(iter(chosen))
    what = "a bound on partitions" if NAME in chosen else "a bound on rows"
    beside, fixed = f"cannot be combined with {what} that the run chooses", f"write {first} under bounds, as a number"
    for column in (value_bounds.COLUMN, *chosen.values()):
        if column in columns:
            message = f"is auto, so no column may be called {column!r}"
            raise RequestError(field=first, message=message, hint="rename that column")
    if best is not None:
        raise RequestError(field="best", message=beside, hint=fixed)
    # Coins have no noise: their number follows from the bound on partitions, and nothing from that on rows.
    if strategy == "sips" or (strategy == "truncated_geometric" and NAME in chosen):
        hint = f"take auto, laplace, gaussian or weighted_gaussian, or {fixed}"
        raise RequestError(field="strategy", message=f"is {strategy}, which {beside}", hint=hint)
    for name, metric in metrics.items():
        field = f"metrics.{name}"
        if metric.stddev is not None:
            raise RequestError(field=f"{field}.stddev", message=beside, hint=f"write a weight instead, or {fixed}")
        if name in reserved:
            bound = "the bound on partitions" if name == NAME else "a bound"
            raise RequestError(field=field, message=f"is the name of {bound} in bounds.json", hint="rename it")
        if not all(s.follows_partitions for s in metric.statistics(Basis(centred=False, nullable=True))):
            hint = f"{fixed}, or put it into a separate stage"
            raise RequestError(field=field, message=f"is a choice, or a norm, which {beside}", hint=hint)


def edges(candidates: Sequence[int]) -> tuple[float, ...]:
    """The rising edges of the bins: from 1, a new one after each candidate, the last one beyond the largest.

    >>> edges([1, 4, 16])
    (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 11.0, 16.0, 17.0)
    """
    most = candidates[-1]
    found = {1, most + 1, *(candidate + 1 for candidate in candidates), *range(1, SINGLE + 1)}
    found |= {math.floor(SINGLE * 2 ** (place / 2)) for place in range(2 * most.bit_length())}
    return tuple(float(edge) for edge in sorted(found) if edge <= most + 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effect:
    """What the bound does to one statistic.

    Args:
        weight: of its logarithm.
        multiple: standard deviation of the noise where the bound is 1, per unit of what one unit may add to one partition.
        power: with which power of the bound the noise grows; 0 for selection by weights, where instead the weight of a unit
            with d partitions is the root of d.
    """

    weight: float
    multiple: float
    power: float


def choose(
    counts: Sequence[float],
    *,
    candidates: Sequence[int],
    stddev: float,
    law: str,
    effects: Sequence[Effect],
    partitions: int | None = None,
) -> int:
    """The candidate with the least expected error.

    Args:
        counts: noisy numbers of units, one for each bin of `edges`; units with more than the largest candidate count as having so
            many.
        candidates: rising.
        stddev: of the noise of each count.
        law: of that noise, `laplace` or `gaussian`.
        effects: at least one.
        partitions: their public number; None where they are private.

    >>> effects = [Effect(weight=1.0, multiple=5.0, power=0.5)]
    >>> seen = [1e5, 1e4] + [0.0] * 8
    >>> [choose(seen, candidates=[1, 4, 16], stddev=10.0, law="laplace", effects=effects, partitions=n) for n in (10, 10**5)]
    [4, 1]
    """
    at = np.array(edges(candidates))
    sizes = np.sqrt(at[:-1] * (at[1:] - 1))  # the middle of the whole numbers in a bin
    kept = value_bounds.seen(np.asarray(counts, float), stddev, law, FALSE_ALARM)
    most = np.array(candidates, float)
    pairs = np.minimum(sizes[:, None], most)  # of a unit of each bin with each candidate
    total, units = float(kept @ sizes), float(kept.sum())
    score = np.zeros(len(most))
    for effect in effects:
        noise = effect.multiple * most**effect.power
        if partitions is not None:
            typical = total / partitions * value_bounds.SKEW
        else:
            typical = math.sqrt(units * max(math.sqrt(float(noise[0] * noise[-1])), 1.0))
        added = kept @ (pairs if effect.power else np.sqrt(pairs))
        lost = 1 - added / added[-1] if total > 0 else np.zeros(len(most))
        score += effect.weight * np.log((lost * min(typical, units)) ** 2 + noise**2)
    # Of candidates that are equally good the largest: it drops nothing.
    return int(most[np.flatnonzero(score <= score.min() + 1e-12)[-1]])
