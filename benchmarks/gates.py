"""The figures that the aggregation must reach, judged on measured runs.

In: the runs of measure.py. Out: for each gate its figure, its limit and whether it holds. Holds: a figure is a ratio of
medians that were measured in one interleaved run, never of runs from different days. Pure; no clock, no files.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from measure import DUCKDB, OURS, OURS_QUANTILES, PIPELINEDP, POLARS, Case, Runs

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
        scaling: for the cost per row; holds small and large.
    """

    small: int
    large: int
    scaling: Sequence[int]


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


def evaluate(measured: Measured, sizes: Sizes) -> list[Gate]:
    """All gates, in the order of the table."""

    def seconds(system: str, rows: int, kind: str = "even") -> float:
        runs = measured.get(Case(system, kind, rows))
        return math.nan if runs is None else runs.seconds

    ours = seconds(OURS, sizes.large)
    fastest = float(np.min([seconds(DUCKDB, sizes.large), seconds(POLARS, sizes.large)]))
    peak = max(runs.peak_mib for case, runs in measured.items() if case.system == OURS and case.rows == sizes.large)
    small, large = f"{sizes.small:,} rows", f"{sizes.large:,} rows"
    return [
        Gate(
            name=f"faster than PipelineDP on Beam, {small}",
            figure=seconds(PIPELINEDP, sizes.small) / seconds(OURS, sizes.small),
            limit=40,
            at_least=True,
        ),
        Gate(
            name=f"time relative to the faster of DuckDB and Polars without privacy, {large}",
            figure=ours / fastest,
            limit=1.5,
        ),
        Gate(name=f"peak memory, {large}, any kind", figure=peak / 1024, limit=4, unit=" GiB"),
        Gate(name="a user with half of all rows", figure=seconds(OURS, sizes.large, "hot_user") / ours, limit=1.3),
        Gate(name="a key with half of all rows", figure=seconds(OURS, sizes.large, "hot_key") / ours, limit=1.3),
        Gate(name="text instead of integers", figure=seconds(OURS, sizes.large, "strings") / ours, limit=1.5),
        Gate(
            name="five quantiles in addition to the four metrics",
            figure=seconds(OURS_QUANTILES, sizes.large) / ours,
            limit=2.0,
        ),
        Gate(
            name=f"growth of the cost per row, {sizes.scaling[0]:,} to {sizes.scaling[-1]:,} rows",
            figure=growth([seconds(OURS, rows) / rows for rows in sizes.scaling]),
            limit=1.25,
        ),
    ]


def cases(sizes: Sizes, rounds: int, slow_rounds: int) -> dict[Case, int]:
    """What must be measured for the gates, and how often; PipelineDP takes long and gets `slow_rounds`."""
    wanted = {Case(PIPELINEDP, "even", sizes.small): slow_rounds}
    for system in (OURS, DUCKDB, POLARS):
        wanted[Case(system, "even", sizes.large)] = rounds
    wanted[Case(OURS_QUANTILES, "even", sizes.large)] = rounds
    for kind in ("hot_user", "hot_key", "strings"):
        wanted[Case(OURS, kind, sizes.large)] = rounds
    for rows in sizes.scaling:
        wanted[Case(OURS, "even", rows)] = rounds
    return wanted
