"""What a plan costs over many runs by four ways to add up losses, how much noise that saves, and how long planning takes.

In: nothing. Out: docs/benchmarks/accounting.md and accounting.png; progress on stderr; exit code 1 if a limit is missed.
Holds: all numbers but the times are exact functions of the code (no data, no chance); each way is a theorem, so each epsilon
is an upper bound. Takes some seconds.

    python benchmarks/accounting.py [--out docs/benchmarks]
"""

import argparse
import dataclasses
import pathlib
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction

import matplotlib as mpl
from measure import REPOSITORY, say

from dp_pipelines import (
    ContributionBounds,
    Count,
    Mean,
    Plan,
    PrivacyIdCount,
    PrivatePartitions,
    PublicPartitions,
    Query,
    Sum,
)
from dp_pipelines.accounting.accountant import epsilon_of
from dp_pipelines.accounting.comparison import Costs, compare
from dp_pipelines.accounting.mechanism_record import MechanismRecord

mpl.use("Agg")
from matplotlib import pyplot as plt

RUNS = (1, 12, 52, 365)
CURVE = (1, 2, 4, 7, 12, 20, 30, 52, 90, 150, 230, 365)
DELTA = 1e-6
WAYS = {"naive": "naive", "advanced": "advanced", "renyi": "RDP", "pld": "PLD"}
COLOURS = {"naive": "#8a8a8a", "advanced": "#c9a227", "renyi": "#d1603d", "pld": "#1f6f8b"}
DAILY = MechanismRecord(stage="daily", name="rows", kind="gaussian", scale=Fraction(60), l2_squared=1, l0=1)
NOISE_LIMIT, SLACK_LIMIT, SECONDS_LIMIT = 0.42, 1e-3, 3.0
ROUNDS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise of one count in each of several runs under (1, 1e-6).

    Args:
        runs: how many.
        ours: its standard deviation where all runs are calibrated together.
        even: where each run gets epsilon / runs and Laplace noise.
    """

    runs: int
    ours: float
    even: float

    @property
    def ratio(self) -> float:
        """Ours over that of the even split."""
        return self.ours / self.even


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planning:
    """How long planning took, and what it left of epsilon.

    Args:
        name: of the plan.
        mechanisms: how many records a run has.
        seconds: median of the rounds.
        slack: epsilon less what the plan costs.
    """

    name: str
    mechanisms: int
    seconds: float
    slack: float


def query(
    metrics: Mapping[str, object], partitions: PublicPartitions | PrivatePartitions, most: int, rows: int
) -> Query:
    """A query with bounds."""
    bounds = ContributionBounds(max_partitions_contributed=most, max_contributions_per_partition=rows)
    return Query(privacy_unit="u", partition_by="k", bounds=bounds, metrics=metrics, partitions=partitions)  # type: ignore[arg-type]


PUBLIC = PublicPartitions(keys=[("a",)])
COUNT = query({"rows": Count()}, PUBLIC, 1, 1)


def report() -> tuple[MechanismRecord, ...]:
    """The records of a report such as that of the example: counts, customers, a sum and private partitions, for 365 runs."""
    metrics = {
        "orders": Count(),
        "customers": PrivacyIdCount(),
        "revenue": Sum("price", min_value=0, max_value=200),
    }
    asked = query(metrics, PrivatePartitions(strategy="truncated_geometric"), 8, 2)
    return Plan(epsilon=1.0, delta=DELTA, stages={"daily": asked}, runs=365).mechanisms


def costs(records: Sequence[MechanismRecord], runs: Sequence[int]) -> list[Costs]:
    """What so many runs of some records cost."""
    return [compare([(records, n)], DELTA) for n in runs]


def noise(runs: int) -> Noise:
    """The noise of one count, once a run."""
    together = Plan(epsilon=1.0, delta=DELTA, stages={"weekly": COUNT}, runs=runs)
    even = Plan(epsilon=1.0 / runs, delta=0.0, stages={"weekly": COUNT})
    ours, theirs = (plan.stages["weekly"].noises[0] for plan in (together, even))
    assert ours is not None
    assert theirs is not None
    return Noise(runs=runs, ours=ours.stddev, even=theirs.stddev)


def large_plans() -> dict[str, dict[str, Query]]:
    """Plans with some 50 mechanisms."""
    sums = {f"s{n}": Sum(f"v{n}", min_value=0, max_value=1 + n, weight=1 + n % 5) for n in range(49)}
    means = {"mean": Mean("v", min_value=0, max_value=5), "users": PrivacyIdCount()}
    return {
        "one stage, public": {"a": query({"rows": Count(), **sums}, PUBLIC, 4, 2)},
        "one stage, private": {"a": query(sums, PrivatePartitions(), 4, 2)},
        "13 stages, private": {f"s{n}": query(means, PrivatePartitions(), 1 + n, 1 + n % 3) for n in range(13)},
    }


def planning(name: str, stages: Mapping[str, Query]) -> Planning:
    """Plan several times."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        plan = Plan(epsilon=1.0, delta=DELTA, stages=stages)
        times.append(time.perf_counter() - start)
    slack = 1.0 - epsilon_of(plan.mechanisms, DELTA, accuracy=1e-5)
    return Planning(name=name, mechanisms=len(plan.mechanisms), seconds=statistics.median(times), slack=slack)


def table(measured: Sequence[Costs]) -> str:
    """Epsilons by runs and ways."""
    lines = ["| runs | " + " | ".join(WAYS.values()) + " |", "|---:|" + "---:|" * len(WAYS)]
    for runs, cost in zip(RUNS, measured, strict=True):
        lines.append(f"| {runs} | " + " | ".join(f"{getattr(cost, way):.4g}" for way in WAYS) + " |")
    return "\n".join(lines)


def page(
    daily: Sequence[Costs], whole: Sequence[Costs], noises: Sequence[Noise], plans: Sequence[Planning]
) -> tuple[str, bool]:
    """The page, and whether every limit is kept."""
    weeks = next(one for one in noises if one.runs == 52)
    year = daily[RUNS.index(365)].pld
    limits = [
        (
            "noise of 52 weekly releases, as a share of an even split with Laplace noise",
            weeks.ratio,
            NOISE_LIMIT,
            "{:.3f}",
        ),
        ("epsilon of 365 daily Gaussian(60) reports", year, 1.385, "{:.3f}"),
        ("slack of a plan with about 50 mechanisms", max(plan.slack for plan in plans), SLACK_LIMIT, "{:.5f}"),
        ("seconds to plan it, without imports", max(plan.seconds for plan in plans), SECONDS_LIMIT, "{:.2f}"),
    ]
    good = all(value <= limit for _, value, limit, _ in limits)
    gates = "\n".join(
        f"| {what} | {form.format(value)} | ≤ {limit:g} | {'pass' if value <= limit else 'MISSED'} |"
        for what, value, limit, form in limits
    )
    alone = 365 * epsilon_of([DAILY], DELTA)
    noise_rows = "\n".join(f"| {n.runs} | {n.ours:.1f} | {n.even:.1f} | {n.ratio:.3f} |" for n in noises)
    plan_rows = "\n".join(f"| {p.name} | {p.mechanisms} | {p.seconds:.2f} | {p.slack:.5f} |" for p in plans)
    return (
        f"""# What many runs cost

Written by `make bench` (`benchmarks/accounting.py`); do not edit.

The epsilon of all runs together at delta {DELTA:g}, computed in four ways. Each way is a theorem, so each gives an upper bound on
the same privacy loss. Plans are charged the last one. *naive*: epsilons and deltas add up, with delta in equal parts. *advanced*:
Kairouz, Oh, Viswanath 2015, theorem 3.5, with the best share of delta. *RDP*: Renyi divergences, with the best order. *PLD*:
privacy loss distributions (`docs/proofs/accounting.md`). Apart from the times, nothing here depends on data, chance or the
machine.

## Limits

| | measured | limit | |
|---|---:|---:|---|
{gates}

## A daily report: one count with Gaussian noise of 60

{table(daily)}

Adding up the epsilons of 365 days, each at delta {DELTA:g}, gives {alone:.1f}, and the deltas then add up to
{365 * DELTA:.3g} as well. At delta {DELTA:g} for all days together, adding up gives {daily[RUNS.index(365)].naive:.1f}.

## A report: orders, customers, revenue, private partitions

Calibrated for 365 runs under (1, {DELTA:g}), with at most 8 partitions per customer and 2 rows in each, and truncated geometric
selection. Fewer runs with the same noise therefore cost less than 1.

{table(whole)}

## Noise of one count under (1, {DELTA:g})

All runs calibrated together, compared with an even split, which gives each run epsilon / runs and Laplace noise.

| runs | standard deviation | of an even split | ratio |
|---:|---:|---:|---:|
{noise_rows}

## Planning

Medians of {ROUNDS} rounds, without imports. Slack is what the plan leaves unused of epsilon 1.

| plan | mechanisms | seconds | slack |
|---|---:|---:|---:|
{plan_rows}

![epsilon and noise by the number of runs](accounting.png)

Not covered: subsampled mechanisms (training), and later plans over the same people, which the ledger adds up.
""",
        good,
    )


def plot(path: pathlib.Path, records: Sequence[MechanismRecord]) -> None:
    """Epsilon by runs for both reports, and the noise of one count."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    for axes, of, title in (
        (left, [DAILY], "daily count, Gaussian(60)"),
        (middle, records, "report with private partitions"),
    ):
        measured = costs(of, CURVE)
        for way, label in WAYS.items():
            axes.plot(CURVE, [getattr(cost, way) for cost in measured], color=COLOURS[way], label=label)
        axes.set(xscale="log", yscale="log", xlabel="runs", ylabel=f"epsilon at delta {DELTA:g}", title=title)
        axes.legend()
    noises = [noise(runs) for runs in CURVE]
    right.plot(CURVE, [one.even for one in noises], color=COLOURS["naive"], label="even split, Laplace")
    right.plot(CURVE, [one.ours for one in noises], color=COLOURS["pld"], label="calibrated together")
    right.set(
        xscale="log", yscale="log", xlabel="runs", ylabel="standard deviation", title=f"one count under (1, {DELTA:g})"
    )
    right.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="What many runs cost by four ways to add up losses.")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    options = parser.parse_args(arguments)
    records = report()
    noises = [noise(runs) for runs in RUNS]
    plans = [planning(name, stages) for name, stages in large_plans().items()]
    text, good = page(costs([DAILY], RUNS), costs(records, RUNS), noises, plans)
    options.out.mkdir(parents=True, exist_ok=True)
    plot(options.out / "accounting.png", records)
    (options.out / "accounting.md").write_text(text)
    say(f"written: {options.out / 'accounting.md'}; {'every limit is kept' if good else 'A LIMIT IS MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
