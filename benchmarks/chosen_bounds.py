"""The benchmark of `bounds: auto`: errors beside those of the best bounds in hindsight, and how often ranges hold the truth.

In: the tables of benchmarks/ranges.py, and more groupings of the same rows. Out: docs/benchmarks/chosen_bounds.md; progress on
stderr; exit code 1 if ranges hold the truth in less than `GOAL` of their cells. Holds: stages, choice, noise, kept shares and
ranges are the library's own; which rows bounds keep is drawn once for each table, at random as a keyed hash does. Not covered:
selection of groups, the keyed hash itself (tests/kernels), and Laplace noise of chosen bounds, which a plan with open bounds on
partitions settles beforehand.

    python benchmarks/chosen_bounds.py [--runs 20] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import itertools
import math
import pathlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import ranges as fixed
from measure import REPOSITORY, say, versions

import dp_pipelines as dp
from dp_pipelines.auto_bounds import joint_bounds
from dp_pipelines.kernels import amounts
from dp_pipelines.noise.samplers import Sampler
from dp_pipelines.plan_stages import kept_counts
from dp_pipelines.plan_stages.kept_counts import KeptCounts
from dp_pipelines.planning import resolve
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.kept import BESIDE_AUTO
from dp_pipelines.query.query import PublicPartitions
from dp_pipelines.release import bounds_chosen

EPSILONS, DELTA, SALT = (0.3, 1.0, 3.0), 1e-6, 20260105
INIT = (8, 4)
"""The bounds that `init` wrote before: groups of a unit, and rows in each."""
GRID = joint_bounds.CANDIDATES, joint_bounds.ROW_CANDIDATES
METRICS = ("rows", "units", "total")
WORDS = {"rows": "counts", "units": "people", "total": "sums"}

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Pair = tuple[int, int | None]
"""Bounds on groups and on rows in each; None where no metric looks at rows."""


def _route(table: pa.Table) -> Any:
    return pc.binary_join_element_wise(table.column("origin"), table.column("dest"), " ")


def _day(table: pa.Table) -> Any:
    days = [pc.cast(table.column(name), pa.string()) for name in ("month", "day")]
    return pc.binary_join_element_wise(*days, " ")


def _weekday(table: pa.Table) -> Any:
    return pc.day_of_week(table.column("TRANSACTION_DT"))


def _year(table: pa.Table) -> Any:
    return pc.year(pc.cast(table.column("tid"), pa.timestamp("s")))


MORE = (
    fixed._case("ratings by year", "ratings.tsv", "user", _year, "score", 5),
    fixed._case("flights by route", "flights.csv", "tailnum", _route, "distance", 3000),
    fixed._case("flights by day", "flights.csv", "tailnum", _day, "air_time", 400),
    fixed._case("purchases by day", "ta_feng", "CUSTOMER_ID", fixed._column("TRANSACTION_DT"), "SALES_PRICE", 2000),
    fixed._case("purchases by weekday", "ta_feng", "CUSTOMER_ID", _weekday, "AMOUNT", 20),
    fixed._case("purchases by product", "ta_feng", "CUSTOMER_ID", fixed._column("PRODUCT_ID"), "SALES_PRICE", 2000),
)
"""Groupings that no rule was settled on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """The rows of listed groups, in the order in which bounds keep them.

    Args:
        unit, group: codes of each row.
        rank_of_pair: the place of its group among those of its unit; rank_in_pair: its place among its unit's rows there.
        amount: as a part of what a clamp allows.
        truth: by metric, of each group.
    """

    unit: Codes
    group: Codes
    rank_of_pair: Codes
    rank_in_pair: Codes
    amount: Floats
    truth: Mapping[str, Floats]

    @classmethod
    def of(cls, case: fixed.Case) -> "Table":
        """Return that of a case."""
        rows = case.rows()
        found = fixed.truths(rows)
        place = pc.index_in(rows.column("key"), found.column("key").combine_chunks())
        listed = pc.is_valid(place)
        rows, group = rows.filter(listed), place.filter(listed).to_numpy().astype(np.int64)
        unit = rows.column("unit").combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        random = np.random.default_rng(SALT)
        pairs, of_row = np.unique(unit * np.int64(len(found)) + group, return_inverse=True)
        amount = np.nan_to_num(rows.column("amount").to_numpy().astype(float)) / case.most
        named = (("rows", "count_all"), ("units", "unit_count_distinct"), ("total", "amount_sum"))
        truth = {name: np.asarray(found.column(column).cast(pa.float64())) for name, column in named}
        return cls(
            unit=unit,
            group=group,
            rank_of_pair=_ranks(pairs // len(found), random)[of_row],
            rank_in_pair=_ranks(of_row, random),
            amount=amount,
            truth=truth | {"total": truth["total"] / case.most},
        )

    def counted(self, pair: Pair) -> dict[str, Floats]:
        """Return what bounds leave of each group, by metric."""
        keep, size = self.kept(pair), len(self.truth["rows"])
        group = self.group[keep]
        return {
            "rows": np.bincount(group, minlength=size).astype(float),
            "units": np.bincount(group[self.rank_in_pair[keep] == 0], minlength=size).astype(float),
            "total": np.bincount(group, np.clip(self.amount[keep], 0, 1), size),
        }

    def kept(self, pair: Pair) -> npt.NDArray[np.bool_]:
        """Return which rows bounds keep."""
        in_groups = self.rank_of_pair < pair[0]
        return in_groups if pair[1] is None else in_groups & (self.rank_in_pair < pair[1])

    def sizes(self) -> tuple[Codes, Codes]:
        """Return the number of groups of each unit, and of its rows in the first of these."""
        first = self.rank_in_pair == 0
        of_first = self.rank_of_pair == 0
        size = int(self.unit.max()) + 1
        return np.bincount(self.unit[first], minlength=size), np.bincount(self.unit[of_first], minlength=size)

    def vector(self, pair: Pair, counts: KeptCounts) -> Floats:
        """Return the exact sum of the vectors of units (docs/proofs/kept.md) with some bounds."""
        keep, cells, size = self.kept(pair), counts.cells, int(self.unit.max()) + 1
        rows, of_kept = (np.bincount(self.unit[mask], minlength=size) for mask in (np.ones(len(keep), bool), keep))
        groups = self.sizes()[0]
        found = np.zeros(cells.width)
        found[:2] = (rows == of_kept).sum(), (rows != of_kept).sum()
        found[2 : cells.before_clamped] = _cells(rows, of_kept, cells.edges)
        found[cells.before_clamped + 1 : cells.before_pairs : 3] = size
        if cells.pairs:
            found[cells.before_pairs : cells.before_sums] = _cells(groups, np.minimum(groups, pair[0]), cells.pairs)
        if cells.sums:
            parts = amounts.of_values(self.amount, 1.0)
            whole = amounts.sums(self.unit, parts, size)
            left = amounts.sums(self.unit[keep], np.minimum(parts, amounts.PARTS_OF_END)[keep], size)
            found[cells.before_sums : cells.before_facts] = _cells(whole, np.minimum(left, whole), cells.amounts)
        found[cells.before_facts :: 2] = size
        return found


def _ranks(codes: Codes, random: np.random.Generator) -> Codes:
    """The place of each item among those of its code, at random."""
    mixed = random.permutation(len(codes))
    order = mixed[np.argsort(codes[mixed], kind="stable")]
    _, starts, sizes = np.unique(codes[order], return_index=True, return_counts=True)
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - np.repeat(starts, sizes)
    return ranks


def _cells(whole: Codes, left: Codes, edges: tuple[int, ...]) -> Floats:
    """Units by the cell of a number: their parts that are left, then those that are cut off."""
    cell = np.searchsorted(np.array(edges), whole, side="right") - 1
    part = np.where(whole > 0, np.floor(1024 * (left / np.maximum(whole, 1))) / 1024, 1.0)
    both = [np.bincount(cell, part, len(edges)), np.bincount(cell, 1 - part, len(edges))]
    return np.concatenate(both)


def query_of(bounds: dp.ContributionBounds, groups: int, names: Sequence[str]) -> dp.Query:
    """Return what a job asks over so many listed groups; amounts are parts of what the clamp allows."""
    metrics = {"rows": dp.Count(), "units": dp.PrivacyIdCount(), "total": dp.Sum("amount", min_value=0, max_value=1)}
    metrics = {name: metrics[name] for name in names}
    return dp.Query(
        privacy_unit="unit",
        partition_by="key",
        bounds=bounds,
        metrics=metrics,
        partitions=PublicPartitions(keys=[(f"g{number}",) for number in range(groups)]),
        kept=BESIDE_AUTO,
    )


AUTO = dp.ContributionBounds(max_partitions_contributed="auto", max_contributions_per_partition="auto")


@dataclasses.dataclass(frozen=True)
class Budget:
    """The plan of an epsilon, which is the same for all tables but for the list of groups, and noise with fixed bounds.

    Args:
        names: of the metrics of the stage.
        plan: with open bounds.
        gaussian, laplace: standard deviation, by metric, of the noise of a plan with bounds 1 and 1, all of the budget and no
            `kept`.
    """

    names: Sequence[str]
    plan: dp.Plan
    gaussian: Mapping[str, float]
    laplace: Mapping[str, float]

    @classmethod
    def of(cls, epsilon: float, names: Sequence[str]) -> "Budget":
        """Return that of an epsilon and of a stage with these metrics."""

        def noise(partitions: int, law: str) -> dict[str, float]:
            bounds = dp.ContributionBounds(max_partitions_contributed=partitions, max_contributions_per_partition=1)
            query = dataclasses.replace(query_of(bounds, 2, names), kept=None)
            stage = dp.Plan(epsilon=epsilon, delta=DELTA, stages={"s": query})["s"]
            found = {}
            for statistic, one in zip(stage.statistics, stage.noises, strict=True):
                if one is not None:
                    assert stage.choices.noises[statistic.name].law == law
                    metric = "total" if statistic.name.startswith("sum(") else statistic.name
                    found[metric] = one.stddev / (partitions if law == "laplace" else math.sqrt(partitions))
            return found

        plan = dp.Plan(epsilon=epsilon, delta=DELTA, stages={"s": query_of(AUTO, 2, names)})
        return cls(names=names, plan=plan, gaussian=noise(64, "gaussian"), laplace=noise(1, "laplace"))


def best(table: Table, budget: Budget) -> dict[str, float]:
    """Return the least median error of any bounds and either law, by metric, and `<metric> init` with the bounds of `init`."""
    random = np.random.default_rng(SALT)
    found: dict[str, list[float]] = {}
    for pair in itertools.product(*GRID):
        counted = table.counted(pair)
        for name in budget.names:
            truth, rows = table.truth[name], 1 if name == "units" else pair[1]
            gaussian = budget.gaussian[name] * math.sqrt(pair[0]) * rows * random.standard_normal((20, len(truth)))
            laplace = budget.laplace[name] * pair[0] * rows / math.sqrt(2) * random.laplace(size=(20, len(truth)))
            errors = [
                float(np.median(np.median(np.abs(counted[name] + noise - truth) / truth, axis=1)))
                for noise in (gaussian, laplace)
            ]
            found.setdefault(name, []).append(min(errors))
            if pair == INIT:
                found[f"{name} init"] = [min(errors)]
    return {name: min(errors) for name, errors in found.items()}


@dataclasses.dataclass
class Result:
    """What was seen of one table with one epsilon.

    Args:
        case, epsilon, alone: of which, and whether each metric was in a stage of its own.
        seen: of the ranges of each metric.
        errors: by metric, the median relative error of the estimates of each run, of counted numbers where there are none.
        best: as `best` returns them.
        chosen: the bounds of each run.
    """

    case: fixed.Case
    epsilon: float
    alone: bool
    seen: dict[str, fixed.Seen]
    errors: dict[str, list[float]]
    best: Mapping[str, float]
    chosen: list[Pair]


def run_all(case: fixed.Case, table: Table, epsilon: float, budget: Budget, runs: int) -> Result:
    """Return what so many runs of one table show."""
    groups = len(table.truth["rows"])
    names, alone = budget.names, len(budget.names) == 1
    result = Result(case, epsilon, alone, {n: fixed.Seen() for n in (*names, "mean")}, {}, best(table, budget), [])
    query = query_of(budget.plan["s"].query.bounds, groups, names)
    stage, shown = dataclasses.replace(budget.plan["s"], query=query), budget.plan["s.partitions"]
    partitions, rows = table.sizes()
    most = joint_bounds.most_rows(GRID[1])
    exact = {
        "units": np.histogram(np.minimum(partitions, GRID[0][-1]), joint_bounds.edges(GRID[0]))[0],
        "rows": np.histogram(np.minimum(rows, most), joint_bounds.row_edges(GRID[1]))[0],
    }
    known: dict[Pair, tuple[fixed.Exact, StagePlan, dp.Query]] = {}
    for _ in range(runs):
        pair = _chosen(stage, shown, exact)
        result.chosen.append(pair)
        if pair not in known:
            ready = resolve.with_partitions(stage, *pair)
            # The mean is computed from the sum and the count, which are then from 0 on.
            mean = {} if alone else {"mean": dp.Mean("amount", min_value=0, max_value=1)}
            metrics = {**query.metrics, **mean}
            as_run = kept_counts.as_it_runs(query, ready.query.bounds, metrics)
            units = table.vector(pair, KeptCounts.of(as_run))
            truth = {**table.truth, "mean": table.truth["total"] / table.truth["rows"]}
            known[pair] = fixed.Exact(truth=truth, counted=table.counted(pair), units=units), ready, as_run
        of_pair, ready, as_run = known[pair]
        before = {name: len(result.seen[name].errors) for name in names}
        fixed.run(of_pair, as_run, {"s": ready, "s.kept": budget.plan["s.kept"]}, result.seen)
        for name in names:
            seen = result.seen[name]
            better = seen.errors if len(seen.errors) > before[name] else seen.errors_counted
            result.errors.setdefault(name, []).append(better[-1])
    return result


def _chosen(stage: StagePlan, shown: StagePlan, exact: Mapping[str, Codes]) -> Pair:
    """The bounds that a run chooses from histograms with noise."""
    noisy = {}
    for name, counts in exact.items():
        if name not in shown.query.metrics:  # people alone: no bound on rows is chosen
            continue
        (statistic,) = shown.query.metrics[name].statistics(shown.basis(shown.query.metrics[name]))
        noise = shown.noises[shown.statistics.index(statistic)]
        assert noise is not None
        noisy[name] = [(counts + Sampler(noise.law).draw(len(counts)) * noise.unit).tolist()]
    partitions, rows = bounds_chosen.contributions(stage, shown, pa.table(noisy))
    assert partitions is not None
    return partitions, rows


HEAD = """\
# Bounds that runs choose

`benchmarks/chosen_bounds.py`, {runs} runs of each of {tables} tables with `bounds: auto`, delta 1e-6, over groups of at least
50 units, which are listed. {made_with}.

*Error* is the median relative error of estimates (of counted numbers where there is no estimate), over that of the best
of {pairs} pairs of bounds and both laws, found by looking at the truth, with all of the budget: the median over the tables
and the worst table; then over that of the bounds 8 and 4, the median over the tables. *Printed* says in how many tables
more than a fifth of the runs print a range, *inside* in which part of their cells it holds the truth: the mean over
tables and the worst one. *Width* is half of the median range over the error bar: median and worst table.
"""

SECTIONS = {True: "Counts or clamped sums alone in a stage", False: "All three in one stage"}

COLUMNS = """
| epsilon | of | error: median | worst | over 8, 4 | printed | inside | worst | width | worst |
|---|---|---|---|---|---|---|---|---|---|
"""

EACH = """
## Each table at epsilon 1

Each alone in a stage. *Bounds* are those that most runs chose: groups of a unit, and rows in each.

| table | bounds | of | error | best | over best | over 8, 4 | printed | inside | width |
|---|---|---|---|---|---|---|---|---|---|
"""


def page(found: list[Result], runs: int) -> str:
    """Return the page."""
    used = versions(pathlib.Path(sys.executable), ["numpy", "pyarrow"])
    made_with = ", ".join(f"{name} {version}" for name, version in used.items())
    tables = len({result.case.name for result in found if not result.case.breaks})
    pairs = len(GRID[0]) * len(GRID[1])
    lines = HEAD.format(runs=runs, tables=tables, made_with=made_with, pairs=pairs).splitlines()
    for alone, title in SECTIONS.items():
        lines += ["", f"## {title}", *COLUMNS.splitlines()]
        for epsilon in EPSILONS:
            chosen = [r for r in found if (r.epsilon, r.alone) == (epsilon, alone) and not r.case.breaks]
            for name in METRICS:
                of_metric = [result for result in chosen if name in result.errors]
                if of_metric:
                    lines.append(f"| {epsilon:g} | {WORDS[name]} | {_over_tables(of_metric, name, runs)} |")
    lines += EACH.splitlines()
    for result in (result for result in found if result.epsilon == 1.0 and result.alone):
        ((pair, _),) = Counter(result.chosen).most_common(1)
        most = ", ".join("-" if bound is None else str(bound) for bound in pair)
        lines += [
            f"| {result.case.name} | {most} | {WORDS[name]} | {_figures(result, name, runs)} |"
            for name in result.errors
        ]
    return "\n".join([*lines, ""])


def _ratio(result: Result, name: str, to: str = "") -> float:
    return float(np.median(result.errors[name])) / result.best[f"{name}{to}"]


def _over_tables(results: list[Result], name: str, runs: int) -> str:
    ratios = [_ratio(result, name) for result in results]
    init = float(np.median([_ratio(result, name, " init") for result in results]))
    printed = [result.seen[name] for result in results if result.seen[name].printed > runs / 5]
    said = f"{np.median(ratios):.2f} | {max(ratios):.2f} | {init:.2f} | {len(printed)} of {len(results)}"
    if not printed:
        return f"{said} | - | - | - | -"
    inside, widths = [s.inside / s.cells for s in printed], [float(np.median(s.widths)) for s in printed]
    return f"{said} | {np.mean(inside):.2f} | {min(inside):.2f} | {np.median(widths):.1f} | {max(widths):.1f}"


def _figures(result: Result, name: str, runs: int) -> str:
    seen, error = result.seen[name], float(np.median(result.errors[name]))
    said = (
        f"{error:.1%} | {result.best[name]:.1%} | {_ratio(result, name):.2f} | {_ratio(result, name, ' init'):.2f} | "
        f"{seen.printed / runs:.2f}"
    )
    if not seen.printed:
        return f"{said} | - | -"
    return f"{said} | {seen.inside / seen.cells:.2f} | {np.median(seen.widths):.1f}"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure bounds that runs choose.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks")
    options = parser.parse_args(arguments)
    fixed.refuse_missing_tables(parser)
    stages = [("rows",), ("total",), METRICS]
    budgets = {(epsilon, names): Budget.of(epsilon, names) for epsilon in EPSILONS for names in stages}
    found = []
    for case in (*fixed.CASES, *MORE, fixed.BROKEN):
        table = Table.of(case)
        for (epsilon, names), budget in budgets.items():
            found.append(run_all(case, table, epsilon, budget, options.runs))
            ratios = ", ".join(f"{WORDS[name]} {_ratio(found[-1], name):.2f}" for name in names)
            say(f"{case.name}, epsilon {epsilon:g}: the error over that of the best bounds: {ratios}")
    (options.out / "chosen_bounds.md").write_text(page(found, options.runs), encoding="utf-8")
    return fixed.status_of([result.seen[name] for result in found if not result.case.breaks for name in result.errors])


if __name__ == "__main__":
    sys.exit(main())
