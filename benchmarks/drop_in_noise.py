"""The noise of PipelineDP's programs, there and here: the same aggregations with and without the changed import.

In: nothing. Out: docs/benchmarks/pipeline_dp_noise.md; the gate on stdout; exit code 1 if it fails. Needs pipeline-dp beside this
library (`make .venv/installed` sets it up). Takes a minute.

    python benchmarks/drop_in_noise.py [--out docs/benchmarks]
"""

import argparse
import contextlib
import io
import itertools
import logging
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from gates import Gate, gates_table

LIMIT = 1.03
METRICS = ("COUNT", "SUM", "PRIVACY_ID_COUNT")
SUBSETS = [names for size in (1, 2, 3) for names in itertools.combinations(METRICS, size)]
INTRODUCTION = """# How much noise PipelineDP's programs get here

Written by `make bench` (`benchmarks/drop_in_noise.py`); do not edit.

Standard deviations as both libraries report them (`output_noise_stddev`), here divided by there: two partitions of a unit, one
row in each, (1, 1e-6), truncated geometric selection where partitions are private. The largest of a program's metrics.
"""
UNPAID = """PipelineDP's accountant by privacy loss distributions leaves truncated geometric selections out of the account, so two
private aggregations there spend more than they say; here their selections are paid for. These ratios have no gate.
"""


class Program(NamedTuple):
    """One program: the metrics of each aggregation, the kind of noise, whether partitions are public, the accountant."""

    aggregations: tuple[tuple[str, ...], ...]
    noise: str
    public: bool
    accountant: str = "PLD"

    @property
    def pays(self) -> bool:
        """Whether PipelineDP accounts for all of it."""
        return self.public or len(self.aggregations) == 1 or self.accountant == "Naive"


def programs() -> Iterator[Program]:
    """All that are compared."""
    for accountant, metrics, noise, public in itertools.product(
        ("PLD", "Naive"), SUBSETS, ("GAUSSIAN", "LAPLACE"), (True, False)
    ):
        yield Program((metrics,), noise, public, accountant)
    for first, second, public in itertools.product(SUBSETS[:3], (SUBSETS[0], SUBSETS[3], SUBSETS[6]), (True, False)):
        yield Program((first, second), "GAUSSIAN", public)


def deviations(library: Any, program: Program) -> dict[tuple[int, str], float]:
    """The noise of each metric of each aggregation."""
    accountant = getattr(library, f"{program.accountant}BudgetAccountant")(total_epsilon=1, total_delta=1e-6)
    engine = library.DPEngine(accountant, library.LocalBackend())
    rows = [(unit, key, 1.0) for unit in range(400) for key in ("a", "b")]
    extractors = library.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )
    released = []
    for names in program.aggregations:
        params = library.AggregateParams(
            metrics=[getattr(library.Metrics, name) for name in names],
            noise_kind=getattr(library.NoiseKind, program.noise),
            max_partitions_contributed=2,
            max_contributions_per_partition=1,
            min_value=0,
            max_value=5,
            output_noise_stddev=True,
        )
        public = ["a", "b"] if program.public else None
        released.append(engine.aggregate(rows, params, extractors, public_partitions=public))
    accountant.compute_budgets()
    return {
        (place, field): value
        for place, of_stage in enumerate(released)
        for _, metrics in of_stage
        for field, value in metrics._asdict().items()
        if field.endswith("_noise_stddev")
    }


def ratio(program: Program) -> float:
    """The largest ratio of a program's metrics."""
    import pipeline_dp as theirs

    from dp_pipelines.transforms import pipeline_dp as ours

    with contextlib.redirect_stderr(io.StringIO()):
        here, there = deviations(ours, program), deviations(theirs, program)
    assert here
    assert here.keys() == there.keys()
    return max(here[metric] / there[metric] for metric in here)


def row(program: Program, found: float) -> str:
    """A line of the table."""
    named = " and ".join(", ".join(names) for names in program.aggregations)
    kind = "public" if program.public else "private"
    return f"| {named} | {program.noise.lower()} | {kind} | {program.accountant} | {found:.3f} |"


def table(found: dict[Program, float]) -> str:
    """All ratios."""
    head = ["| aggregations | noise asked for | partitions | accountant | here / there |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(row(program, value) for program, value in found.items())])


def main() -> int:
    """Measure, write the page, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"))
    out = parser.parse_args().out
    logging.disable(logging.WARNING)
    found = {program: ratio(program) for program in programs()}
    paid = {program: value for program, value in found.items() if program.pays}
    unpaid = {program: value for program, value in found.items() if not program.pays}
    gate = Gate(
        name=f"noise beside PipelineDP's, the largest of {len(paid)} programs", figure=max(paid.values()), limit=LIMIT
    )
    parts = [INTRODUCTION, "## Gate\n", gates_table([gate]) + "\n", "## All programs\n", table(paid) + "\n"]
    parts += ["## Programs whose selections PipelineDP does not account for\n", UNPAID, table(unpaid)]
    (out / "pipeline_dp_noise.md").write_text("\n".join(parts) + "\n")
    print(gates_table([gate]))
    return 0 if gate.holds else 1


if __name__ == "__main__":
    sys.exit(main())
