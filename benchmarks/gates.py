"""The figures that the aggregation must reach, judged on measured runs.

In: the runs of measure.py. Out: for each gate its figure, its limit and whether it holds. Holds: a figure is a ratio of
medians that were measured in one interleaved run, never of runs from different days. Pure; no clock, no files.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from measure import DUCKDB, LOCAL, OURS, PIPELINEDP, POLARS, QUANTILES, Case, Run, Runs, paired

Measured = Mapping[Case, Runs]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate:
    """One requirement and its figure.

    Args:
        name: what is compared.
        figure: the measured number.
        limit: what it is compared with.
        at_least: whether the figure must reach the limit, or stay within it.
        unit: after the numbers in tables.
    """

    name: str
    figure: float
    limit: float
    at_least: bool = False
    unit: str = "x"

    @property
    def holds(self) -> bool:
        """Whether the gate is passed; a figure that is no number fails."""
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit


def gates_table(gates: Sequence[Gate], digits: int = 2) -> str:
    """One line a gate, in Markdown, with so many digits behind the point."""
    lines = ["| gate | measured | limit | |", "|---|---|---|---|"]
    for gate in gates:
        sign, verdict = "≥" if gate.at_least else "≤", "pass" if gate.holds else "**FAIL**"
        measured, limit = f"{gate.figure:,.{digits}f}{gate.unit}", f"{gate.limit:,g}{gate.unit}"
        lines.append(f"| {gate.name} | {measured} | {sign} {limit} | {verdict} |")
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of rows in a benchmark.

    Args:
        small: beside PipelineDP.
        large: beside DuckDB and Polars, and for the skewed variants.
        scaling: for the cost per row; holds large.
        largest: for one that no memory holds, within `LARGEST_GIB`; None: none.
        threads: beside two.
    """

    small: int
    large: int
    scaling: Sequence[int]
    largest: int | None = None
    threads: Sequence[int] = (1,)


LARGEST_GIB = 4
LARGEST_ROUNDS = 3
FULL = Sizes(small=1_000_000, large=10_000_000, scaling=(1_000_000, 3_000_000, 10_000_000, 30_000_000))
QUICK = Sizes(small=100_000, large=1_000_000, scaling=(100_000, 300_000, 1_000_000, 3_000_000))


def growth(cost_per_row: Sequence[float]) -> float:
    """The largest factor by which the cost of a row grows from one size to any larger one; below 1 if it only falls.

    NaN if one is missing.

    >>> growth([3.0, 1.0, 1.5, 1.2])
    1.5
    """
    # numpy's maximum passes a NaN on, whatever its place; Python's forgets it.
    return float(np.max([later / earlier for earlier, later in itertools.combinations(cost_per_row, 2)]))


def whole(run: Run) -> float:
    """Seconds of the process."""
    return run.whole_seconds


def over_rows(run: Run) -> float:
    """Seconds of its steps over rows."""
    return run.data_seconds


def evaluate(measured: Measured, sizes: Sizes) -> list[Gate]:
    """All gates, in the order of the table."""

    def seconds(system: str, rows: int, kind: str = "even") -> float:
        runs = measured.get(Case(system, kind, rows))
        return math.nan if runs is None else runs.seconds

    def peak(*kinds: str) -> float:
        cases = [Case(LOCAL, kind, sizes.large) for kind in kinds]
        return float(np.max([measured[case].peak_mib / 1024 if case in measured else math.nan for case in cases]))

    at_large = Case(LOCAL, "even", sizes.large)
    ours = seconds(LOCAL, sizes.large)
    fastest = float(np.min([seconds(DUCKDB, sizes.large), seconds(POLARS, sizes.large)]))
    small, large = f"{sizes.small:,} rows", f"{sizes.large:,} rows"
    costs = [seconds(LOCAL, rows) / rows for rows in sizes.scaling]
    gates = [
        Gate(
            name=f"whole command relative to DuckDB's whole process without privacy, {large}",
            figure=paired(measured, at_large, Case(DUCKDB, "even", sizes.large), whole),
            limit=1.1,
        ),
        Gate(
            name=f"the query relative to the faster of DuckDB and Polars without privacy, {large}",
            figure=ours / fastest,
            limit=1,
        ),
        Gate(
            name=f"its steps over rows with one thread relative to two, {large}",
            figure=paired(measured, Case(LOCAL, "even", sizes.large, threads=1), at_large, over_rows),
            limit=1.7,
            at_least=True,
        ),
        Gate(name=f"peak memory, {large}", figure=peak("even"), limit=0.6, unit=" GiB"),
        Gate(name=f"peak memory, {large}, any kind", figure=peak("even", *KINDS), limit=2, unit=" GiB"),
        Gate(name="a user with half of all rows", figure=seconds(LOCAL, sizes.large, "hot_user") / ours, limit=1.3),
        Gate(name="a key with half of all rows", figure=seconds(LOCAL, sizes.large, "hot_key") / ours, limit=1.3),
        Gate(name="text instead of integers", figure=seconds(LOCAL, sizes.large, "strings") / ours, limit=1.5),
        Gate(
            name="five quantiles in addition to the four metrics",
            figure=seconds(QUANTILES, sizes.large) / ours,
            limit=2.0,
        ),
        Gate(
            name=f"on Beam: faster than PipelineDP, {small}",
            figure=seconds(PIPELINEDP, sizes.small) / seconds(OURS, sizes.small),
            limit=40,
            at_least=True,
        ),
    ]
    if sizes.largest is not None:
        ours_largest, theirs = (
            Case(system, "even", sizes.largest, memory_gib=LARGEST_GIB) for system in (LOCAL, DUCKDB)
        )
        largest = f"{sizes.largest:,} rows within {LARGEST_GIB} GiB"
        gates.insert(
            1,
            Gate(
                name=f"whole command relative to DuckDB's whole process without privacy, {largest}",
                figure=paired(measured, ours_largest, theirs, whole),
                limit=1.3,
            ),
        )
        costs.append(measured[ours_largest].seconds / sizes.largest if ours_largest in measured else math.nan)
    last = sizes.largest or sizes.scaling[-1]
    name = f"growth of the cost per row, {sizes.scaling[0]:,} to {last:,} rows"
    return [*gates, Gate(name=name, figure=growth(costs), limit=1.2)]


KINDS = ("hot_user", "hot_key", "strings")

CLOSE = 3
"""How many times as many rounds close comparisons get."""


def cases(sizes: Sizes, rounds: int, slow_rounds: int) -> dict[Case, int]:
    """What must be measured for the gates, and how often.

    PipelineDP and the largest size take long and get fewer rounds. Cases whose ratios come close to their gates get more.
    """
    wanted = {Case(PIPELINEDP, "even", sizes.small): slow_rounds}
    for system in (LOCAL, DUCKDB, POLARS):
        for threads in (2, *sizes.threads):
            wanted[Case(system, "even", sizes.large, threads=threads)] = rounds
    for close in (
        Case(LOCAL, "even", sizes.large),
        Case(LOCAL, "even", sizes.large, 1),
        Case(DUCKDB, "even", sizes.large),
    ):
        wanted[close] = CLOSE * rounds
    wanted[Case(QUANTILES, "even", sizes.large)] = rounds
    for kind in KINDS:
        wanted[Case(LOCAL, kind, sizes.large)] = rounds
    for rows in (sizes.small, sizes.large):
        wanted[Case(OURS, "even", rows)] = rounds
    for rows in sizes.scaling:
        wanted[Case(LOCAL, "even", rows)] = rounds
    if sizes.largest is not None:
        for system in (LOCAL, DUCKDB):
            wanted[Case(system, "even", sizes.largest, memory_gib=LARGEST_GIB)] = min(LARGEST_ROUNDS, rounds)
    return wanted
