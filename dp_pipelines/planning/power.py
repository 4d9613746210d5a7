"""How small a difference of arms a comparison finds: what `plan` says of it before a row is read.

In: the calibrated stage of a comparison, the query that compares, a guess about a typical arm. Out: JSON values. Holds: public
numbers alone: the noise of the plan, and what `expect` says. Not covered: totals of units that are unlike the guess; what
clamping cuts off.
"""

# An arm with N units has the quotient r = Y / X of the sums of two totals of a unit, with means m_y and m_x (1 for the number of
# units). Its variance is (s^2 + n / N) / (N m_x^2), with s^2 the variance of y - r x and n that of the noise of Y - r X
# (docs/proofs/comparisons.md, 6). Two arms of that size have a difference with twice that variance, which a test at 5% finds in
# 80 of 100 cases from (1.960 + 0.842) deviations on. Two totals of a unit are taken for uncorrelated.

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.statistics import RowCount, Statistic
from dp_pipelines.plan_stages.arm_moments import ArmMoments
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.compare import QUOTIENT, Compared
from dp_pipelines.query.expectation import Expectation
from dp_pipelines.query.query import PublicPartitions, Query

POWER = 0.8

REACH = 1.959963984540054 + 0.8416212335729143
"""From how many deviations on a difference is found with that power, by a test that calls 5% of equal arms different."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Typical:
    """What is guessed of a total of one unit.

    Args:
        mean, variance: over units.
        declared: whether the job says it; else values are taken to be spread evenly over their range.
    """

    mean: float
    variance: float
    declared: bool


def of_stage(stage: StagePlan, query: Query, expect: Expectation | None) -> dict[str, Any]:
    """What a comparison is good for.

    Args:
        stage: that releases the sums of arms.
        query: that compares.
        expect: about a typical arm.

    Returns:
        the arms, and for each metric the smallest difference that is found with 80% power, with and without noise, absolute and
        as a part of the metric's own value; null where `expect` does not say enough.
    """
    compare, partitions = query.compare, query.partitions
    assert compare is not None
    assert isinstance(partitions, PublicPartitions)
    moments = ArmMoments.of(query)
    declared = {} if expect is None else _declared(moments, query, expect.totals or {})
    return {
        "of": stage.reads.of,
        "baseline": None if compare.baseline is None else str(compare.baseline),
        "arms": len(partitions.keys),
        "intervals": compare.intervals,
        "power": POWER,
        "units": None if expect is None else expect.users,
        "metrics": {one.name: _found(one, stage, moments, declared, expect) for one in moments.compared},
    }


def _found(
    one: Compared,
    stage: StagePlan,
    moments: ArmMoments,
    declared: Mapping[Statistic, Typical],
    expect: Expectation | None,
) -> dict[str, Any] | None:
    if expect is None or expect.users is None:
        return None
    totals = [declared.get(total) or _guess(total, moments.rows, expect) for total in one.totals]
    above, below = totals[0], totals[1] if len(totals) == 2 else Typical(mean=1.0, variance=0.0, declared=True)
    if above is None or below is None or not below.mean:
        return None
    names = moments.names(one)
    quotient = above.mean / below.mean
    noise = _stddev(stage, names[0]) ** 2 + (quotient * _stddev(stage, names[1])) ** 2
    sampled = above.variance + quotient**2 * below.variance if moments.pairs else 0.0

    def smallest(variance: float) -> float:
        assert expect is not None
        assert expect.users is not None
        assert below is not None
        return REACH * math.sqrt(2 * variance / expect.users) / abs(below.mean)

    difference = smallest(sampled + noise / expect.users)
    return {
        "value": quotient,
        "difference": difference,
        "difference_without_noise": smallest(sampled),
        "relative": difference / abs(quotient) if quotient else None,
        "declared": above.declared and below.declared,
    }


def _stddev(stage: StagePlan, name: str) -> float:
    """The deviation of the noise of a sum."""
    (statistic,) = stage.query.metrics[name].statistics(stage.basis(stage.query.metrics[name]))
    noise = stage.noises[stage.statistics.index(statistic)]
    assert noise is not None
    return noise.stddev


def _declared(moments: ArmMoments, query: Query, said: Mapping[str, Sequence[float]]) -> dict[Statistic, Typical]:
    """What `expect` says, by total."""
    found = {}
    for one in moments.compared:
        for part in one.name.split(QUOTIENT):
            if part in said and part in query.metrics and len(query.metrics[part].totals) == 1:
                mean, stddev = said[part]
                found[query.metrics[part].totals[0]] = Typical(mean=mean, variance=stddev**2, declared=True)
    return found


def _guess(total: Statistic, rows: int, expect: Expectation) -> Typical | None:
    """A total of values that are spread evenly, over rows whose number has a geometric law."""
    lattice = total.lattice
    if isinstance(lattice, SummandLattice):
        width = lattice.high - lattice.low
        return Typical(mean=lattice.low / 2 + lattice.high / 2, variance=width * width / 12, declared=False)
    if expect.users is None or expect.rows_per_partition is None:
        return None
    mean = min(expect.rows_per_partition / expect.users, float(rows))
    variance = min(mean * max(mean - 1.0, 0.0), rows * rows / 4)
    if isinstance(total, RowCount):
        return Typical(mean=mean, variance=variance, declared=False)
    assert isinstance(lattice, Lattice)
    middle, width = lattice.low / 2 + lattice.high / 2, lattice.high - lattice.low
    return Typical(mean=mean * middle, variance=mean * width * width / 12 + middle * middle * variance, declared=False)


def in_words(found: Mapping[str, Any]) -> list[str]:
    """What `plan` prints, a sentence for each line.

    Args:
        found: as `of_stage` gives it.

    >>> metric = {"value": 50.0, "difference": 3.2, "difference_without_noise": 2.9, "relative": 0.064, "declared": True}
    >>> told = {"baseline": "A", "arms": 2, "intervals": "population", "units": 10000.0, "metrics": {"revenue": metric}}
    >>> for line in in_words(told):
    ...     print(line)
    1 arm against A; each unit counts in one arm; 95% intervals of noise and sampling of units together
    with 10,000 units in each arm, 80 of 100 tests find
      revenue: a difference of 3.2 or 6.4% (2.9 without noise)
    """
    others = found["arms"] - 1
    covers = {"population": "of noise and sampling of units together", "noise": "of the noise alone"}[
        found["intervals"]
    ]
    arms = f"{others} arm{'' if others == 1 else 's'}"
    lines = [f"{arms} against {found['baseline']}; each unit counts in one arm; 95% intervals {covers}"]
    known = {name: metric for name, metric in found["metrics"].items() if metric is not None}
    if not known:
        return [
            *lines,
            "declare e.g. expect: {users: 10000, totals: {revenue: [50, 120]}} to see which differences it finds",
        ]
    lines.append(f"with {found['units']:,.0f} units in each arm, 80 of 100 tests find")
    for name, metric in known.items():
        relative = f" or {metric['relative']:.1%}" if metric["relative"] is not None else ""
        words = f"a difference of {metric['difference']:.4g}{relative} ({metric['difference_without_noise']:.4g} without noise)"
        guessed = "" if metric["declared"] else ", with a guess of what expect does not say"
        lines.append(f"  {name}: {words}{guessed}")
    return lines
