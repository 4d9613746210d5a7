"""The benchmark of `dp-pipelines tune`: its cost beside a plain run, and its predictions beside real releases of Ta Feng.

In: made-up rows (data.py), the data and the job of examples/ta_feng. Out: docs/benchmarks/tune.md; progress on stderr; exit code
1 if 200 configurations cost more than 5 plain runs, if a predicted root mean square error is off by more than 10% from all that
the releases leave possible, or if the recommended bounds do not beat the job's, which were settled by hand, and those of the
example in `run --help`. Holds: commands are whole processes, interleaved round by round;
each release does its own bounding, selection and noise, by the kernels of a run without Beam around them; the truth is
examples/ta_feng/truth.py's, which uses neither.

    python benchmarks/tune.py [--rounds 3] [--rows 10000000] [--runs 100] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import data
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from errors import Floats, Interval, mean_interval
from measure import REPOSITORY, BenchmarkError, say, versions

from dp_pipelines.extensions.tune import goal, pairs, plans, tally, tune_grid
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run.run import plan_of
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.kernels import accumulate
from dp_pipelines.release.draw import draw_release
from dp_pipelines.steps import unbounded_rows

EXAMPLE = REPOSITORY / "examples" / "ta_feng"
sys.path.insert(0, str(EXAMPLE))
import truth  # noqa: E402  # needs the path above

MOST_RUNS, MOST_OFF = 5.0, 0.10
FALSE_ALARM = 8e-11
"""How often chance may fail the gate of a right prediction: of 12, 1e-9 (Student; longer tails have the 10% beside)."""
BENCH_GRID = [
    "bounds.max_partitions_contributed=1,2,4,8,16",
    "bounds.max_contributions_per_partition=1,2,4,8",
    "metrics.sum.max_value,metrics.mean.max_value=50,100,200,400,800",
    "budget.epsilon=0.5,1",
]
JOB, HELP, BEST = "the job as it stands", "the bounds in `run --help`", "recommended"
TA_FENG_GRID = [
    "bounds.max_partitions_contributed=4,8,16,24,32,48,64,96",
    "bounds.max_contributions_per_partition=1,2,3,5",
    "metrics.revenue.max_value,metrics.mean_price.max_value=50,100,200,400,800,1600",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one process: seconds, seconds of all its threads, MiB at most."""

    wall: float
    cpu: float
    peak: float


def timed(*arguments: str) -> Cost:
    """Run a command of ours as a process of its own."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "dp_pipelines.jobs.cli.main", *arguments]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            said.seek(0)
            raise BenchmarkError(f"{arguments[0]} failed:\n{said.read()[-2000:]}")
    return Cost(wall=time.perf_counter() - begin, cpu=used.ru_utime + used.ru_stime, peak=used.ru_maxrss / 1024)


def costs(rows: int, rounds: int) -> dict[str, list[Cost]]:
    """A plain run, and 200 configurations, in turn."""
    found: dict[str, list[Cost]] = {"run": [], "tune": []}
    grid = [part for text in BENCH_GRID for part in ("--grid", text)]
    with tempfile.TemporaryDirectory() as parent:
        job = pathlib.Path(parent, "job.yaml")
        job.write_text(yaml.safe_dump(data.job(data.dataset("even", rows))))
        for number in range(rounds):
            for name, more in (("run", []), ("tune", grid)):
                out = str(pathlib.Path(parent, f"{name}-{number}"))
                found[name].append(timed(name, str(job), "--output", out, "--ledger", "none", *more))
                say(f"{name}, round {number + 1}: {found[name][-1]}")
    return found


class TaFeng:
    """The rows of Ta Feng, and the truth about them."""

    def __init__(self) -> None:
        file = job_file.load(str(EXAMPLE / "weekly.yaml"))
        self.request: Request = check(file, [])
        columns = list(self.request.columns)
        files = self.request.source.files
        self.rows = self.request.rows.apply(pa.concat_tables([pq.read_table(path, columns=columns) for path in files]))
        exact = truth.exact(pathlib.Path(files[0]).parent)
        self.places = {key: place for place, key in enumerate(truth.keys(exact))}
        self.truth = {name: exact[name].astype(np.float64) for name in truth.METRICS}

    def predicted(self, options: list[tune_grid.Option]) -> goal.Results:
        """What is told of all configurations."""
        configurations, stage = plans.configurations(self.request, "weekly", options, say)
        columns = list(self.request.queries["weekly"].value_columns)
        most = tally.partitions_at_a_time(*tally.candidates(configurations), len(tally.variables(configurations)))
        of_units = pairs.of_units(
            unbounded_rows.wire_rows(self.rows, stage.layout, columns), stage.layout, len(columns)
        )
        some = pairs.of_partitions([of_units], stage.layout, columns, most)
        return goal.Results(tally.merged(tally.tally(each, configurations) for each in some), configurations)

    def released(
        self, option: tune_grid.Option, runs: int, draw: Callable[..., pa.Table] = draw_release
    ) -> dict[str, Floats]:
        """By metric what so many releases publish: (runs, partitions), NaN where nothing is. A test draws with a seed."""
        stage = plan_of(option.file, {"weekly": option.query})["weekly"]
        wire = stage.layout.wire(self.rows)
        found = {name: np.full((runs, len(self.places)), np.nan) for name in truth.METRICS}
        for run in range(runs):
            part = accumulate.partials(wire, stage.layout, stage.statistics, salt=104_729 * run + 17)
            table = draw(accumulate.merge([part], stage.layout.partition_names, stage.statistics), stage)
            columns = {"subclass": table["PRODUCT_SUBCLASS"].to_numpy(), "week": table["week"].to_numpy()}
            at = np.array([self.places[key] for key in truth.keys(columns)], np.int64)
            for name in truth.METRICS:
                found[name][run, at] = table[name].to_numpy()
            say(f"{option.words}: release {run + 1}: {len(at)} partitions")
        return found

    def measured(self, released: dict[str, Floats], metric: str, outside: float = 0.05) -> tuple[float, Interval]:
        """The root mean square error over all releases, and an interval over runs that misses the true one as rarely as said."""
        off = (released[metric] - self.truth[metric]) ** 2
        sums, counts = np.nansum(off, axis=1), np.isfinite(off).sum(axis=1)
        whole = float(np.sqrt(sums.sum() / counts.sum()))
        spread = mean_interval((sums - whole**2 * counts) / counts.mean() / (2 * whole), outside)
        return whole, Interval(whole, whole + spread.low, whole + spread.high)

    def loss(self, released: dict[str, Floats]) -> float:
        """`goal.MEASURES['loss']`, from releases: the mean over the metrics."""
        rows, losses = self.truth["orders"], []
        for metric in truth.METRICS:
            off = (released[metric] - self.truth[metric]) ** 2
            keep = np.isfinite(off).mean(axis=0)
            with np.errstate(all="ignore"):
                root = np.sqrt(np.nansum(off, axis=0) / np.isfinite(off).sum(axis=0)) / np.abs(self.truth[metric])
            lost = keep * np.minimum(np.nan_to_num(root), 1) + 1 - keep
            losses.append(float((lost * rows).sum() / rows.sum()))
        return statistics.fmean(losses)


def page_of_costs(found: dict[str, list[Cost]], rows: int) -> tuple[list[str], bool]:
    """A table of costs, and whether the gate holds."""
    medians = {
        name: {field: statistics.median(getattr(cost, field) for cost in of) for field in ("wall", "cpu", "peak")}
        for name, of in found.items()
    }
    ratio = {field: medians["tune"][field] / medians["run"][field] for field in ("wall", "cpu", "peak")}
    words = {"run": "`run`, one configuration", "tune": "`tune`, 200 configurations"}
    lines = [
        f"Whole processes over {rows:,} rows, including imports and plans; medians of interleaved rounds ({len(found['run'])}):",
        "",
        "| | seconds | CPU seconds | peak memory, MiB |",
        "|---|---|---|---|",
        *(f"| {words[n]} | {m['wall']:.1f} | {m['cpu']:.1f} | {m['peak']:,.0f} |" for n, m in medians.items()),
        f"| ratio | {ratio['wall']:.2f} | {ratio['cpu']:.2f} | {ratio['peak']:.2f} |",
        "",
        f"Gate: at most {MOST_RUNS:g} plain runs in CPU seconds, which other work on the machine affects least: "
        f"{'held' if ratio['cpu'] <= MOST_RUNS else 'NOT HELD'}.",
    ]
    return lines, ratio["cpu"] <= MOST_RUNS


def page_of_predictions(shop: TaFeng, runs: int) -> tuple[list[str], bool]:
    """A table of predicted and measured errors, and whether the gates hold."""
    grid = tune_grid.read(TA_FENG_GRID)
    options = tune_grid.options(shop.request, "weekly", grid)
    results = shop.predicted(options)
    wanted = goal.read([], list(truth.METRICS))
    found = goal.recommend(results, wanted, [1.0] * len(options), 1.0)
    own = next(o.number for o in options if o.query == shop.request.queries["weekly"])
    told = results.measure(wanted.minimized)
    lines = [
        "| configuration | metric | predicted | measured, with 95% interval | predicted / measured |",
        "|---|---|---|---|---|",
    ]
    holds, losses = True, {}
    guess = (("bounds.max_partitions_contributed", 8), ("bounds.max_contributions_per_partition", 2))
    clip = (("metrics.revenue.max_value", 100), ("metrics.mean_price.max_value", 100))
    help_bounds = next(o.number for o in options if o.setting == (*guess, *clip))
    compared = {JOB: own, HELP: help_bounds, BEST: found.number}
    for words, number in compared.items():
        released = shop.released(options[number], runs)
        losses[words] = shop.loss(released)
        for place, metric in enumerate(truth.METRICS):
            error = results.of_metrics("error")[number, results.metrics.index(metric)]
            whole, interval = shop.measured(released, metric)
            _, possible = shop.measured(released, metric, FALSE_ALARM)
            holds &= possible.low * (1 - MOST_OFF) <= error <= possible.high * (1 + MOST_OFF)
            first = f"{words}: {options[number].words}" if place == 0 else ""
            lines.append(f"| {first} | {metric} | {error:,.2f} | {interval} | {error / whole:.3f} |")
    beaten = found.number not in (own, help_bounds) and losses[BEST] < min(losses[JOB], losses[HELP])
    lines += [
        "",
        f"Gate: each prediction within {MOST_OFF:.0%} of what the releases leave possible: {'held' if holds else 'NOT HELD'}.",
        "",
        "| | loss as predicted | loss as measured |",
        "|---|---|---|",
        *(f"| {words} | {told[number]:.4f} | {losses[words]:.4f} |" for words, number in compared.items()),
        "",
        "The loss is what `tune` minimizes by default: the relative error weighted by rows, averaged over the metrics, where a "
        f"lost partition counts as 1. {BEST.capitalize()}: the best of {len(options)}.",
        "",
        f"Gate: the recommended bounds beat both others: {'held' if beaten else 'NOT HELD'}.",
    ]
    return lines, holds and beaten


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Cost and predictions of `dp-pipelines tune`.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks")
    given = parser.parse_args()
    subprocess.run([sys.executable, str(EXAMPLE / "fetch.py")], check=True, stdout=sys.stderr)
    of_costs, cheap = page_of_costs(costs(given.rows, given.rounds), given.rows)
    of_predictions, right = page_of_predictions(TaFeng(), given.runs)
    found = versions(pathlib.Path(sys.executable), ["numpy", "pyarrow", "apache-beam"])
    page = [
        "# Tuning: cost and predictions", "",
        "Written by `python benchmarks/tune.py`, part of `make bench`. [tune.md](../tune.md) explains the predictions.", "",
        "## Cost", "", *of_costs, "",
        "## Predictions for Ta Feng", "",
        "Root mean square errors over released partitions: predicted in one pass, and measured by the kernels of a run on "
        f"{given.runs} releases, each with its own salt, selection and noise. The truth comes from `examples/ta_feng/truth.py`.",
        "",
        *of_predictions, "",
        "Versions: " + ", ".join(f"{name} {number}" for name, number in found.items()) + ".", "",
    ]  # fmt: skip
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "tune.md").write_text("\n".join(page))
    return 0 if cheap and right else 1


if __name__ == "__main__":
    sys.exit(main())
