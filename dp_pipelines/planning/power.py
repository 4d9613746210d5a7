"""The smallest difference of arms that a comparison finds, as `plan` prints it before a row is read.

In: the calibrated stage of a comparison, the query that compares, a guess about a typical arm. Out: JSON values. Holds: public
numbers alone: the noise of the plan, and what `expect` says. Not covered: totals of units that are unlike the guess; what
clamping cuts off.
"""

# An arm with N units has the quotient r = Y / X of the sums of two totals of a unit, with means m_y and m_x (1 for the number of
# units). Its variance is (s^2 + n / N) / (N m_x^2), with s^2 the variance of y - r x and n that of the noise of Y - r X
# (docs/proofs/comparisons.md, 6). The difference of two arms has the sum of their variances, and a test at 5% finds it in 80 of
# 100 cases from (1.960 + 0.842) deviations on. Two totals of a unit are taken for uncorrelated.

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.statistics import RowCount, Statistic
from dp_pipelines.metrics.error_bars import NORMAL_POINT
from dp_pipelines.plan_stages.arm_moments import ArmMoments
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.compare import QUOTIENT, Compare, Compared, arm_of
from dp_pipelines.query.expectation import Expectation
from dp_pipelines.query.query import PublicPartitions, Query

POWER = 0.8

NORMAL = NORMAL_POINT
"""Deviations to each side of a 95% interval."""

REACH = NORMAL + 0.8416212335729143
"""From how many deviations on a difference is found with that power, by a test that calls 5% of equal arms different."""


def smallest_of_interval(low: float, high: float) -> float:
    """Return the difference of arms that a test with this 95% interval finds with that power.

    Where the interval is wider than 1.960 deviations, since its variance is uncertain or the noise is Laplace's, this is a
    little too large.

    Args:
        low, high: the ends of the interval.

    >>> round(smallest_of_interval(-1.96, 1.96), 2)
    2.8
    """
    return (high / 2 - low / 2) * REACH / NORMAL


@dataclasses.dataclass(frozen=True, kw_only=True)
class Typical:
    """A guess about a total of one unit.

    Args:
        mean, variance: over units.
        declared: True if the job declares it; else values are assumed to be spread evenly over their range.
    """

    mean: float
    variance: float
    declared: bool


def of_stage(stage: StagePlan, query: Query, expect: Expectation | None) -> dict[str, Any]:
    """Describe the power of a comparison.

    Args:
        stage: that releases the sums of arms.
        query: that compares.
        expect: about a typical arm.

    Returns:
        the arms, and for each metric the smallest difference that is found with 80% power, with and without noise, absolute and
        as a part of the metric's own value; null where `expect` does not say enough. Where it has numbers of units by arm,
        `by_arm` says the same of each arm with its own number and that of the baseline.
    """
    compare, partitions = query.compare, query.partitions
    assert compare is not None
    assert isinstance(partitions, PublicPartitions)
    guess = _Guess(stage, query, expect)
    entry = {
        "of": stage.reads.of,
        "baseline": None if compare.baseline is None else str(compare.baseline),
        "arms": len(partitions.keys),
        "intervals": compare.intervals,
        "power": POWER,
        "units": None if expect is None else expect.users,
        "metrics": guess.smallest(*(None if expect is None else expect.users,) * 2),
    }
    if expect is None or expect.arms is None:
        return entry
    baseline, *others = _baseline_first(compare, partitions)
    return entry | {
        "baseline_units": expect.units_of(baseline),
        "by_arm": [
            {
                "arm": arm,
                "units": expect.units_of(arm),
                "metrics": guess.smallest(expect.units_of(arm), expect.units_of(baseline)),
            }
            for arm in others
        ],
    }


def check_arms(expect: Expectation | None, compared: Sequence[Query]) -> None:
    """Refuse expected numbers of units of arms that no stage compares, and stages that have them for some arms only.

    Args:
        expect: of a plan.
        compared: its queries that compare arms.

    Raises:
        RequestError: as said.
    """
    if expect is None or expect.arms is None:
        return
    if not compared:
        message, hint = "is for the arms of a stage with compare, and there is none", "leave it out, or write compare"
        raise RequestError(field="expect.arms", message=message, hint=hint)
    stages = [_baseline_first(query.compare, query.partitions) for query in compared]
    known = {arm: None for arms in stages for arm in arms}
    for arm in expect.arms:
        if arm not in known:
            hint = nearest(arm, known, "arms")
            raise RequestError(field=f"expect.arms.{arm}", message="is no arm that a stage compares", hint=hint)
    for arms in stages:
        missing = [arm for arm in arms if expect.units_of(arm) is None]
        if missing and len(missing) < len(arms):
            message = f"says nothing of arm {missing[0]!r}"
            hint = f"add {missing[0]}: and its number of units, or users: for all arms that are not named"
            raise RequestError(field="expect.arms", message=message, hint=hint)


def _baseline_first(compare: Compare | None, partitions: object) -> list[str]:
    """Return the names of all arms of a comparison, the baseline first."""
    assert compare is not None
    assert isinstance(partitions, PublicPartitions)
    arms = [key[0] for key in partitions.keys]
    baseline = arm_of(compare.baseline, arms)
    assert baseline is not None, "a query that compares lists its baseline"
    return [_name(arms[baseline]), *(_name(arm) for place, arm in enumerate(arms) if place != baseline)]


def _name(arm: object) -> str:
    """Return the name by which a job file names an arm in a mapping."""
    return "null" if arm is None else str(arm)


class _Guess:
    """The smallest differences that a comparison finds, by what `expect` says of a unit.

    Args:
        stage: that releases the sums of arms.
        query: that compares.
        expect: about a typical arm.
    """

    def __init__(self, stage: StagePlan, query: Query, expect: Expectation | None) -> None:
        self._stage, self._expect, self._moments = stage, expect, ArmMoments.of(query)
        self._declared = {} if expect is None else _declared(self._moments, query, expect.totals or {})

    def smallest(self, units: float | None, baseline: float | None) -> dict[str, dict[str, Any] | None]:
        """Return by metric the smallest difference of two arms that is found; None where the guess does not say enough.

        Args:
            units, baseline: how many units the arm and the baseline have.
        """
        if self._expect is None or units is None or baseline is None:
            return {one.name: None for one in self._moments.compared}
        return {one.name: self._of(one, self._expect, (units, baseline)) for one in self._moments.compared}

    def _of(self, one: Compared, expect: Expectation, units: tuple[float, float]) -> dict[str, Any] | None:
        totals = [self._declared.get(total) or _guess(total, self._moments.rows, expect) for total in one.totals]
        above, below = totals[0], totals[1] if len(totals) == 2 else Typical(mean=1.0, variance=0.0, declared=True)
        if above is None or below is None or not below.mean:
            return None
        names = self._moments.names(one)
        quotient = above.mean / below.mean
        noise = _stddev(self._stage, names[0]) ** 2 + (quotient * _stddev(self._stage, names[1])) ** 2
        sampled = above.variance + quotient**2 * below.variance if self._moments.pairs else 0.0

        def smallest(noise: float) -> float:
            return REACH * math.sqrt(sum((sampled + noise / size) / size for size in units)) / abs(below.mean)

        difference = smallest(noise)
        return {
            "value": quotient,
            "difference": difference,
            "difference_without_noise": smallest(0.0),
            "relative": difference / abs(quotient) if quotient else None,
            "declared": above.declared and below.declared,
        }


def _stddev(stage: StagePlan, name: str) -> float:
    """Return the deviation of the noise of a sum."""
    (statistic,) = stage.query.metrics[name].statistics(stage.basis(stage.query.metrics[name]))
    noise = stage.noises[stage.statistics.index(statistic)]
    assert noise is not None
    return noise.stddev


def _declared(moments: ArmMoments, query: Query, said: Mapping[str, Sequence[float]]) -> dict[Statistic, Typical]:
    """Return the guesses in `expect`, by total."""
    declared = {}
    for one in moments.compared:
        for part in one.name.split(QUOTIENT):
            if part in said and part in query.metrics and len(query.metrics[part].totals) == 1:
                mean, stddev = said[part]
                declared[query.metrics[part].totals[0]] = Typical(mean=mean, variance=stddev**2, declared=True)
    return declared


def _guess(total: Statistic, rows: int, expect: Expectation) -> Typical | None:
    """Return a guess about a total: values are spread evenly, over rows whose number has a geometric law."""
    lattice = total.lattice
    if isinstance(lattice, SummandLattice):
        width = lattice.high - lattice.low
        return Typical(mean=lattice.low / 2 + lattice.high / 2, variance=width * width / 12, declared=False)
    users = expect.typical_arm
    if users is None or expect.rows_per_partition is None:
        return None
    mean = min(expect.rows_per_partition / users, float(rows))
    variance = min(mean * max(mean - 1.0, 0.0), rows * rows / 4)
    if isinstance(total, RowCount):
        return Typical(mean=mean, variance=variance, declared=False)
    assert isinstance(lattice, Lattice)
    middle, width = lattice.low / 2 + lattice.high / 2, lattice.high - lattice.low
    return Typical(mean=mean * middle, variance=mean * width * width / 12 + middle * middle * variance, declared=False)


def in_words(found: Mapping[str, Any]) -> list[str]:
    """Return the lines that `plan` prints.

    Args:
        found: as `of_stage` returns it.

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
    by_arm = found.get("by_arm") or ()
    if not any(_known(one["metrics"]) for one in (found, *by_arm)):
        return [
            *lines,
            "declare e.g. expect: {users: 10000, totals: {revenue: [50, 120]}} to see which differences it finds",
        ]
    if not by_arm:
        lines.append(f"with {found['units']:,.0f} units in each arm, {_times()} tests find")
        return lines + [f"  {name}: {_difference(metric)}" for name, metric in _known(found["metrics"]).items()]
    for one in by_arm:
        sizes = f"{one['units']:,.0f} units in {one['arm']} and {found['baseline_units']:,.0f} in {found['baseline']}"
        lines.append(f"with {sizes}, {_times()} tests find")
        lines += [f"  {name}: {_difference(metric)}" for name, metric in _known(one["metrics"]).items()]
    return lines


def _known(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the metrics of which a smallest difference is known."""
    return {name: metric for name, metric in metrics.items() if metric is not None}


def _times() -> str:
    return f"{100 * POWER:.0f} of 100"


def _difference(metric: Mapping[str, Any]) -> str:
    """Return the smallest difference of a metric that is found, in words."""
    relative = f" or {metric['relative']:.1%}" if metric["relative"] is not None else ""
    words = (
        f"a difference of {metric['difference']:.4g}{relative} ({metric['difference_without_noise']:.4g} without noise)"
    )
    return words if metric["declared"] else f"{words}, with a guess of what expect does not say"
