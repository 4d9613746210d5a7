"""The benchmark of compared arms: how often intervals of tests of equal arms hold 0 and 1, and how often a difference is found.

In: nothing; the units of arms are made here, as exact sums. Out: docs/benchmarks/arms.md; the table on stdout; exit code 1
if a gate fails. Holds: noise is drawn by the release step itself, at the noise of real plans; the units are made anew for each
repetition; each noise level sees the same units. Three minutes on two cores.

    python benchmarks/compare.py [--repetitions 8000] [--units 50000] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import functools
import math
import pathlib
import sys
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from gates import Gate, gates_table

import dp_pipelines as dp
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.plan_stages.arm_moments import ArmMoments, product_of, total_of
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.compare import Intervals
from dp_pipelines.release import arm_comparisons
from dp_pipelines.release.arm_estimates import differences, ratios
from dp_pipelines.release.draw import draw_release

Floats = npt.NDArray[np.float64]
Release = Callable[[Totals, StagePlan], pa.Table]

LARGEST, ROWS = 1000.0, 6
"""The clamp of a unit's revenue, and of its rows."""

LEVELS = (0.1, 0.3, 1.0, 3.0, 10.0)
DELTA = 1e-6
COVERED = (0.94, 0.96)
FOUND = (0.77, 0.83)
MISLED = 0.5
"""Intervals of the noise alone, at epsilon 1, call more equal arms different than that."""

COMPARED = ("revenue", "orders", "revenue / orders")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sums:
    """Exact sums over the units of each arm: a row for each repetition, a column for each of two arms.

    Args:
        units: of an arm.
        sums: by name: revenue, orders, their squares and their product.
    """

    units: int
    sums: Mapping[str, Floats]

    def shifted(self, by: float) -> "Sums":
        """With so much more revenue of each unit of the second arm."""
        own = {name: values.copy() for name, values in self.sums.items()}
        own["yy"][:, 1] += 2 * by * own["y"][:, 1] + by * by * self.units
        own["yx"][:, 1] += by * own["x"][:, 1]
        own["y"][:, 1] += by * self.units
        return Sums(units=self.units, sums=own)

    @property
    def expected(self) -> tuple[float, float]:
        """Mean and standard deviation of a unit's revenue."""
        mean = float(self.sums["y"].mean()) / self.units
        return mean, math.sqrt(float(self.sums["yy"].mean()) / self.units - mean * mean)


def made(rng: np.random.Generator, repetitions: int, units: int) -> Sums:
    """Equal arms: orders of a unit are 1 more than Poisson's, revenue is log-normal an order, and a few units spend very much."""
    found: dict[str, Floats] = {name: np.zeros((repetitions, 2)) for name in ("y", "x", "yy", "yx", "xx")}
    for repetition in range(repetitions):
        for arm in range(2):
            orders = np.minimum(1.0 + rng.poisson(1.0, units), ROWS)
            revenue = np.minimum(np.exp(rng.normal(3.0, 1.2, units)) * orders, LARGEST)
            pairs = {"y": revenue, "x": orders, "yy": revenue**2, "yx": revenue * orders, "xx": orders**2}
            for name, values in pairs.items():
                found[name][repetition, arm] = values.sum()
    return Sums(units=units, sums=found)


def planned(epsilon: float, intervals: Intervals = "population", expect: dp.Expectation | None = None) -> dp.Plan:
    """The plan of a stage that compares."""
    query = dp.Query(
        privacy_unit="customer",
        partition_by="arm",
        partitions=dp.PublicPartitions(keys=[("A",), ("B",)]),
        bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=ROWS),
        metrics={
            "orders": dp.Count(),
            "revenue": dp.Sum("amount", min_sum_per_partition=0, max_sum_per_partition=LARGEST),
        },
        compare=dp.Compare(by="arm", baseline="A", metrics=list(COMPARED), intervals=intervals),
    )
    return dp.Plan(epsilon=epsilon, delta=DELTA, stages={"test": query}, expect=expect)


def released(plan: dp.Plan, sums: Sums, release: Release) -> list[arm_comparisons.ComparedArms]:
    """The estimates of all arms of all repetitions, released at once: the arms of a repetition stand side by side."""
    stage, moments = plan["test.compare"], ArmMoments.of(plan.queries["test"])
    parts = ["y" if total.column else "x" for total in moments.totals]
    values = {"units": np.full(sums.sums["y"].size, float(sums.units))}
    values |= {total_of(place): sums.sums[part].ravel() for place, part in enumerate(parts)}
    for first, second in moments.pairs:
        of_pair = "".join(sorted(parts[first] + parts[second], reverse=True))
        values[product_of(first, second)] = sums.sums[of_pair].ravel()
    columns = []
    for statistic in stage.statistics:
        (name,) = [key for key, metric in stage.query.metrics.items() if metric.statistic == statistic]
        columns.append(np.rint(values[name] / (statistic.fine_step * 2.0**statistic.fine_bits)).astype(np.int64))
    totals = Totals(
        partitions=(pa.array(np.arange(sums.sums["y"].size)),),
        high=tuple(column >> np.int64(32) for column in columns),
        low=tuple(column & np.int64(2**32 - 1) for column in columns),
    )
    return arm_comparisons.compared(release(totals, stage), stage, plan.queries["test"], 0)


def contrasts(one: arm_comparisons.ComparedArms) -> tuple[Floats, Floats]:
    """Of each repetition whether the interval of the difference has 0, and that of the ratio 1; NaN where there is none."""
    base, arms = (one.estimates.of(slice(begin, None, 2)) for begin in range(2))
    found = []
    for contrast, equal in ((differences(arms, base), 0.0), (ratios(arms, base), 1.0)):
        held = (contrast.low <= equal) & (equal <= contrast.high)
        found.append(np.where(np.isfinite(contrast.low), held, np.nan))
    return found[0], found[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Level:
    """What was found at one noise level.

    Args:
        epsilon: of the stage.
        covered: by metric, the share of intervals of differences with 0, and of ratios with 1.
        misled: by metric, the share of tests of equal arms that intervals of the noise alone call different.
        stated: the smallest difference of revenue that `plan` says is found with 80% power, and without noise.
        found: the share of tests that find it.
    """

    epsilon: float
    covered: Mapping[str, tuple[float, float]]
    misled: Mapping[str, float]
    stated: tuple[float, float]
    found: float


def level(epsilon: float, sums: Sums, release: Release) -> Level:
    """All figures of one noise level."""
    expect = dp.Expectation(users=sums.units, totals={"revenue": sums.expected})
    plan = planned(epsilon, expect=expect)
    shares = {one.name: contrasts(one) for one in released(plan, sums, release)}
    alone = {one.name: contrasts(one)[0] for one in released(planned(epsilon, "noise"), sums, release)}
    (said,) = [stage["compare"] for stage in plan.to_json()["stages"] if "compare" in stage]
    stated = said["metrics"]["revenue"]
    moved = released(plan, sums.shifted(stated["difference"]), release)
    return Level(
        epsilon=epsilon,
        covered={name: (float(np.nanmean(both[0])), float(np.nanmean(both[1]))) for name, both in shares.items()},
        misled={name: 1 - float(np.nanmean(found)) for name, found in alone.items()},
        stated=(stated["difference"], stated["difference_without_noise"]),
        found=1 - float(np.nanmean(contrasts(moved[0])[0])),
    )


def judged(levels: list[Level]) -> list[Gate]:
    """The gates."""
    gates = []
    for one in levels:
        every = [share for both in one.covered.values() for share in both]
        for what, figure, limits in (("coverage", every, COVERED), ("power", [one.found], FOUND)):
            name = f"epsilon {one.epsilon:g}: {what}"
            gates.append(Gate(name=f"{name}, least", figure=min(figure), limit=limits[0], at_least=True, unit=""))
            gates.append(Gate(name=f"{name}, largest", figure=max(figure), limit=limits[1], unit=""))
    (usual,) = [one for one in levels if one.epsilon == 1.0]
    name, misled = "noise alone, epsilon 1: equal arms called different", usual.misled["revenue"]
    gates.append(Gate(name=name, figure=misled, limit=MISLED, at_least=True, unit=""))
    return gates


def page(levels: list[Level], gates: list[Gate], repetitions: int, units: int) -> str:
    """The page."""
    lines = [
        "# How often compared arms are called different", "", "Written by `python benchmarks/compare.py`; do not edit.", "",
        f"{repetitions:,} tests of two equal arms of {units:,} units, delta {DELTA:g}. Orders of a unit are 1 more than "
        f"Poisson's; revenue is log-normal an order, clamped at {LARGEST:g} a unit. Half of a stage's budget goes to the "
        "comparison of revenue, orders and revenue / orders.", "",
        "Coverage is the share of 95% intervals that hold the truth: 0 of differences, 1 of ratios.", "",
        "| epsilon | " + " | ".join(f"{name}: difference, ratio" for name in COMPARED)
        + " | noise alone calls different: revenue | smallest difference of revenue (without noise) | found |",
        "|---|" + "---|" * (len(COMPARED) + 3),
    ]  # fmt: skip
    for one in levels:
        shares = " | ".join(f"{one.covered[n][0]:.1%}, {one.covered[n][1]:.1%}" for n in COMPARED)
        stated = f"{one.stated[0]:.3g} ({one.stated[1]:.3g})"
        lines.append(f"| {one.epsilon:g} | {shares} | {one.misled['revenue']:.0%} | {stated} | {one.found:.1%} |")
    told = "The smallest difference is the one that `plan` prints for 80% power, from `expect:` alone; `found` is how often a "
    lines += ["", f"{told}difference of that size was found.", "", gates_table(gates, 3), ""]
    return "\n".join(lines)


def main() -> int:
    """Run everything; 1 if a gate fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=8000)
    parser.add_argument("--units", type=int, default=50_000)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"))
    given = parser.parse_args()
    sums = made(np.random.default_rng(20260), given.repetitions, given.units)
    levels = list(map(functools.partial(level, sums=sums, release=draw_release), LEVELS))
    gates = judged(levels)
    text = page(levels, gates, given.repetitions, given.units)
    (given.out / "arms.md").write_text(text, encoding="utf-8")
    print(text)
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
