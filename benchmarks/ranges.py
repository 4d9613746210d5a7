"""The benchmark of ranges: how often they hold the truth, on public tables whose truth is known, and how wide they are.

In: tables of examples/first_hour/fetch.py and examples/ta_feng/fetch.py, and one made to break the assumption. Out:
docs/benchmarks/ranges.md; progress on stderr; exit code 1 if all ranges together hold the truth in less than `GOAL` of their
cells. Holds: bounds are the same for all tables; groups are those of at least 50 units, published as a list; what
bounds keep is computed once by the library's own kernels, and noise is drawn by its samplers for each run, with the scales of its
plans. Not covered: selection of groups, and bounds that a run chooses.

    python benchmarks/ranges.py [--runs 40] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import functools
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from measure import REPOSITORY, say, versions

import dp_pipelines as dp
from dp_pipelines.kernels import contributions, keys
from dp_pipelines.metrics.error_bars import ERROR_BAR
from dp_pipelines.noise.samplers import Sampler
from dp_pipelines.plan_stages.kept_counts import KeptCounts
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query import kept
from dp_pipelines.release import kept_shares, ranges
from dp_pipelines.steps.unit_rows import CountedToShards, UnitsToPartials

GOAL = 0.92
LEAST_UNITS = 50
EPSILONS = (0.3, 1.0, 3.0)
SALT = 20260105
SHARE, DELTA = 0.02, 1e-6
BOUNDS = ((8, 4), (32, 32))
"""Groups of a unit, and rows in each: what `init` writes, and what somebody who knows that people do much may write."""
DATA = REPOSITORY / "data"

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One table of groups.

    Args:
        name: for readers.
        rows: gives a table with columns `unit`, `key` and `amount`.
        most: of an amount, by what anybody knows of it.
        breaks: whether it was made to break the assumption, so that it is in no total.
    """

    name: str
    rows: Callable[[], pa.Table]
    most: float
    breaks: bool = False


@functools.cache
def _source(name: str) -> pa.Table:
    if name == "ta_feng":
        return pa.concat_tables(pq.read_table(path) for path in sorted((DATA / name).glob("*.parquet")))
    options = pyarrow.csv.ParseOptions(delimiter="\t" if name.endswith("tsv") else ",")
    convert = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    return pyarrow.csv.read_csv(DATA / "first_hour" / name, parse_options=options, convert_options=convert)


def _case(name: str, source: str, unit: str, key: Callable[[pa.Table], Any], amount: str, most: float) -> Case:
    def rows() -> pa.Table:
        table = _source(source)
        columns = {"unit": table.column(unit), "key": pc.cast(key(table), pa.string())}
        made = pa.table({**columns, "amount": pc.cast(table.column(amount), pa.float64())})
        return made.filter(pc.and_(pc.is_valid(made.column("unit")), pc.is_valid(made.column("key"))))

    return Case(name=name, rows=rows, most=most)


def _column(name: str) -> Callable[[pa.Table], Any]:
    return lambda table: table.column(name)


def _broken() -> pa.Table:
    """40 groups of 300 units with a row or two each, and one of 300 units with 200 rows each."""
    random = np.random.default_rng(SALT)
    plain = np.repeat(np.arange(12_000), random.integers(1, 3, 12_000))
    heavy = np.repeat(np.arange(12_000, 12_300), 200)
    group = np.concatenate([plain % 40, np.full(len(heavy), 40)])
    return pa.table(
        {
            "unit": np.concatenate([plain, heavy]),
            "key": pa.array(group).cast(pa.string()),
            "amount": np.ones(len(group)),
        }
    )


def _week(table: pa.Table) -> Any:
    return pc.floor_temporal(table.column("TRANSACTION_DT"), unit="week")


def _month(table: pa.Table) -> Any:
    return pc.floor_temporal(pc.cast(table.column("tid"), pa.timestamp("s")), unit="month")


def _hour(table: pa.Table) -> Any:
    return table.column("hour")


CASES = (
    _case("ratings by score", "ratings.tsv", "user", _column("score"), "score", 5),
    _case("ratings by film", "ratings.tsv", "user", _column("movie"), "score", 5),
    _case("ratings by month", "ratings.tsv", "user", _month, "score", 5),
    _case("flights by carrier", "flights.csv", "tailnum", _column("carrier"), "distance", 3000),
    _case("flights by destination", "flights.csv", "tailnum", _column("dest"), "distance", 3000),
    _case("flights by month", "flights.csv", "tailnum", _column("month"), "distance", 3000),
    _case("flights by origin", "flights.csv", "tailnum", _column("origin"), "air_time", 400),
    _case("flights by hour", "flights.csv", "tailnum", _hour, "air_time", 400),
    _case("purchases by week", "ta_feng", "CUSTOMER_ID", _week, "SALES_PRICE", 2000),
    _case("purchases by subclass", "ta_feng", "CUSTOMER_ID", _column("PRODUCT_SUBCLASS"), "AMOUNT", 20),
    _case("purchases by age", "ta_feng", "CUSTOMER_ID", _column("AGE_GROUP"), "SALES_PRICE", 2000),
    _case("purchases by region", "ta_feng", "CUSTOMER_ID", _column("PIN_CODE"), "AMOUNT", 20),
)
BROKEN = Case(name="made to break the assumption", rows=_broken, most=1, breaks=True)

METRICS = ("rows", "units", "total", "mean")


def query_of(case: Case, groups: pa.ChunkedArray, bounds: tuple[int, int]) -> dp.Query:
    """Return what a job asks over these groups."""
    values: dict[str, Any] = {"min_value": 0, "max_value": case.most}
    metrics = {
        "rows": dp.Count(),
        "units": dp.PrivacyIdCount(),
        "total": dp.Sum("amount", **values),
        "mean": dp.Mean("amount", **values),
    }
    return dp.Query(
        privacy_unit="unit",
        partition_by="key",
        bounds=dp.ContributionBounds(max_partitions_contributed=bounds[0], max_contributions_per_partition=bounds[1]),
        metrics=metrics,
        partitions=dp.PublicPartitions(keys=[(key,) for key in groups.to_pylist()]),
        kept=dp.Kept(share=SHARE, up_to=4096, each_metric=True),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exact:
    """What is true, and what is counted, of each group; and what is known of the units.

    Args:
        truth, counted: by metric; a counted mean is not needed.
        units: the exact sum of the vectors of units.
    """

    truth: Mapping[str, Floats]
    counted: Mapping[str, Floats]
    units: Floats


def truths(rows: pa.Table) -> pa.Table:
    """Return what is true of each group of enough units, in the order of their keys."""
    amounts = rows.set_column(rows.schema.get_field_index("amount"), "amount", pc.max_element_wise(rows["amount"], 0.0))
    found = amounts.group_by("key").aggregate(
        [([], "count_all"), ("unit", "count_distinct"), ("amount", "sum"), ("amount", "mean")]
    )
    return found.filter(pc.greater_equal(found.column("unit_count_distinct"), LEAST_UNITS)).sort_by("key")


def exact(case: Case, rows: pa.Table, found: pa.Table, query: dp.Query, stage: StagePlan, of_kept: StagePlan) -> Exact:
    """Return truth and counted numbers of a table."""
    named = zip(METRICS, ("count_all", "unit_count_distinct", "amount_sum", "amount_mean"), strict=True)
    truth = {name: np.asarray(found.column(column).cast(pa.float64()).to_numpy()) for name, column in named}
    wire = stage.layout.wire(rows)
    bounded = contributions.bound(wire, stage.layout, SALT).bounded
    places = pc.index_in(
        pc.cast(keys.plain(keys.one_array(wire.column("p0"))), pa.string()), found.column("key").combine_chunks()
    )
    group = places.to_numpy(zero_copy_only=False).astype(np.int64)
    inside = pc.is_in(rows.column("key"), found.column("key")).to_numpy()
    amount = np.nan_to_num(rows.column("amount").to_numpy()[inside].astype(float))
    size, of_rows = len(found), group[bounded.rows]
    counted = {
        "rows": np.bincount(of_rows, minlength=size),
        "units": np.bincount(group[bounded.rows[bounded.starts]], minlength=size),
        "total": np.bincount(of_rows, np.clip(amount, 0, case.most)[bounded.rows], size),
    }
    counted_rows = [table for _, table in CountedToShards.of(query, 1, SALT).compute([rows])]
    vectors = UnitsToPartials(query, of_kept, SALT).rows(counted_rows)
    whole = [
        np.asarray(pc.list_flatten(made.column(kept.COLUMN)).to_numpy()).reshape(made.num_rows, -1) for made in vectors
    ]
    units = sum(matrix.sum(axis=0, dtype=np.float64) for matrix in whole)
    # Facts of rows are in no range: all rows have them here.
    facts = KeptCounts.of(query).cells.before_facts
    units[facts::2] = units[:2].sum()
    return Exact(truth=truth, counted={name: np.asarray(v, float) for name, v in counted.items()}, units=units)


def drawn(values: Floats, stage: StagePlan, name: str) -> tuple[Floats, float, str]:
    """Return values with noise, its deviation and the name of its law.

    Args:
        values: exact.
        stage: whose noise it is.
        name: how the name of its statistic begins.
    """
    ((place, statistic),) = [
        (place, s)
        for place, s in enumerate(stage.statistics)
        if s.name.startswith(name) and stage.noises[place] is not None
    ]
    noise = stage.noises[place]
    assert noise is not None
    made = values + Sampler(noise.law).draw(values.size).reshape(values.shape) * noise.unit
    return made, noise.stddev, stage.choices.noises[statistic.name].law


@dataclasses.dataclass
class Seen:
    """What was seen of one metric of one table, over all runs.

    Args:
        cells, inside, bars: cells with a range; those that hold the truth; cells whose error bar alone does.
        all_cells: cells of all runs.
        printed: runs with a range.
        widths: of ranges, in error bars.
        errors, errors_counted: relative errors of estimates and of counted numbers.
    """

    cells: int = 0
    inside: int = 0
    bars: int = 0
    all_cells: int = 0
    printed: int = 0
    widths: list[float] = dataclasses.field(default_factory=list)
    errors: list[float] = dataclasses.field(default_factory=list)
    errors_counted: list[float] = dataclasses.field(default_factory=list)

    def add(self, truth: Floats, counted: Floats, bars: Floats, made: Mapping[str, Floats]) -> None:
        """Count the cells of one run."""
        known = np.isfinite(made["high"])
        self.all_cells += len(truth)
        self.bars += int((np.abs(counted - truth) <= bars).sum())
        self.errors_counted.append(float(np.median(np.abs(counted - truth) / truth)))
        if not known.any():
            return
        self.printed += 1
        self.cells += int(known.sum())
        self.inside += int(((made["low"] <= truth) & (truth <= made["high"]) & known).sum())
        self.widths.append(float(np.median(((made["high"] - made["low"]) / 2 / bars)[known])))
        self.errors.append(float(np.median((np.abs(made["estimate"] - truth) / truth)[known])))


STATISTICS = {"rows": "rows", "units": "units", "total": "sum("}
"""How the name of each metric's statistic begins; the mean has none of its own."""


def run(known: Exact, query: dp.Query, plan: Mapping[str, StagePlan], seen: Mapping[str, Seen]) -> None:
    """Draw one release of the metrics of a query, and count what its ranges hold."""
    names = [name for name in METRICS if name in query.metrics]
    stage, of_kept = plan["s"], plan["s.kept"]
    assert not stage.choices.centred  # sums are counted from 0 here
    vector, stddev, law = drawn(known.units, of_kept, "vector_sum")
    figures = kept_shares.shares(vector, stddev, law, KeptCounts.of(query), query.metrics)
    values, stddevs, laws = {}, {}, {}
    for name in names:
        if name in STATISTICS:
            values[name], stddevs[name], laws[name] = drawn(known.counted[name], stage, STATISTICS[name])
    bars = {name: np.full(len(values[name]), stddevs[name]) for name in stddevs}
    if "mean" in names:
        rows = np.maximum(values["rows"], 1.0)
        values["mean"], laws["mean"] = values["total"] / rows, laws["total"]
        bars["mean"] = np.hypot(stddevs["total"], values["mean"] * stddevs["rows"]) / rows
    columns = {name: values[name] for name in names} | {f"{name}_stddev": bars[name] for name in names}
    described = {"kept": figures, "metrics": {name: {"noise": laws[name]} for name in names}}
    table = ranges.with_columns(pa.table(columns), query, ranges.of_stage(query, described))
    for name in names:
        made = {part: _floats(table.column(f"{name}_{part}")) for part in ("low", "estimate", "high")}
        seen[name].add(known.truth[name], values[name], ERROR_BAR * bars[name], made)


def _floats(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.to_numpy(), float)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What was seen of one table with some bounds and an epsilon, by metric."""

    case: Case
    bounds: tuple[int, int]
    epsilon: float
    seen: Mapping[str, Seen]


def results(cases: tuple[Case, ...], runs: int) -> Iterator[Result]:
    """Return what was seen, by table, bounds and epsilon."""
    for case in cases:
        rows = case.rows()
        found = truths(rows)
        for bounds in BOUNDS:
            query, known = query_of(case, found.column("key"), bounds), None
            for epsilon in EPSILONS:
                plan = dp.Plan(epsilon=epsilon, delta=DELTA, stages={"s": raw_sums(query)})
                known = known or exact(case, rows, found, query, plan["s"], plan["s.kept"])
                result = Result(case=case, bounds=bounds, epsilon=epsilon, seen={name: Seen() for name in METRICS})
                for _ in range(runs):
                    run(known, query, plan, result.seen)
                counts = result.seen["rows"]
                say(
                    f"{case.name}, {bounds}, epsilon {epsilon:g}: {counts.inside} of {counts.cells} cells of counts inside"
                )
                yield result


def raw_sums(query: dp.Query) -> dp.Query:
    """The same without its mean, which is computed from the sum and the count here: sums are then from 0 on."""
    metrics = {name: metric for name, metric in query.metrics.items() if name != "mean"}
    return dataclasses.replace(query, metrics=metrics)


WORDS = {"rows": "counts", "units": "people", "total": "sums", "mean": "means"}

HEAD = """\
# How often ranges hold the truth

`benchmarks/ranges.py`, {runs} runs of each of {tables} tables, with the same bounds for all: those that `init` writes (8
groups, 4 rows in each), and 32 groups with 32 rows in each; `kept: {{share: 0.02, up_to: 4096, each_metric: true}}`,
delta 1e-6, over groups of at least 50 units, which are listed. {made_with}. The rule is that of [ranges.md](../ranges.md).

*Bar* is the part of cells whose error bar alone holds the truth. *Printed* says in how many tables more than a fifth of
the runs print a range. *Inside* is the part of cells with a range that holds the truth.

| bounds | epsilon | of | bar | printed | inside: all cells | mean of these tables | worst table |
|---|---|---|---|---|---|---|---|
"""

EACH = """
## Each table at epsilon 1

*Printed* is the part of runs that print a range. *Width* is half of the median range, over the error bar. *Error* is the
median relative error.

| bounds | table | of | bar | printed | inside | width | error counted | error of estimates |
|---|---|---|---|---|---|---|---|---|
"""


def page(found: list[Result], runs: int) -> str:
    """Return the page."""
    used = versions(pathlib.Path(sys.executable), ["numpy", "pyarrow"])
    made_with = ", ".join(f"{name} {version}" for name, version in used.items())
    lines = HEAD.format(runs=runs, tables=len(CASES), made_with=made_with).splitlines()
    for bounds in BOUNDS:
        for epsilon in EPSILONS:
            chosen = [r for r in found if (r.bounds, r.epsilon) == (bounds, epsilon) and not r.case.breaks]
            for name in METRICS:
                figures = _over_tables([r.seen[name] for r in chosen], runs)
                lines.append(f"| {bounds[0]}, {bounds[1]} | {epsilon:g} | {WORDS[name]} | {figures} |")
    lines += EACH.splitlines()
    for bounds in BOUNDS:
        for result in (r for r in found if (r.bounds, r.epsilon) == (bounds, 1.0)):
            lines += [
                f"| {bounds[0]}, {bounds[1]} | {result.case.name} | {WORDS[name]} | {_figures(result.seen[name], runs)} |"
                for name in METRICS
            ]
    return "\n".join([*lines, ""])


def _over_tables(seen: list[Seen], runs: int) -> str:
    cells, inside = sum(s.cells for s in seen), sum(s.inside for s in seen)
    bars = sum(s.bars for s in seen) / sum(s.all_cells for s in seen)
    each = [s.inside / s.cells for s in seen if s.printed > runs / 5]
    said = f"{inside / cells:.2f} | {np.mean(each):.2f} | {min(each):.2f}" if each else "- | - | -"
    return f"{bars:.2f} | {len(each)} of {len(seen)} | {said}"


def _figures(seen: Seen, runs: int) -> str:
    bar, printed = f"{seen.bars / seen.all_cells:.2f}", f"{seen.printed / runs:.2f}"
    counted = f"{np.median(seen.errors_counted):.1%}"
    if not seen.printed:
        return f"{bar} | {printed} | - | - | {counted} | -"
    return (
        f"{bar} | {printed} | {seen.inside / seen.cells:.2f} | {np.median(seen.widths):.1f} | {counted} | "
        f"{np.median(seen.errors):.1%}"
    )


def refuse_missing_tables(parser: argparse.ArgumentParser) -> None:
    """End the program if the tables are not on this machine."""
    for name in ("first_hour", "ta_feng"):
        if not (DATA / name).is_dir():
            parser.error(f"the tables are not there; run first: python examples/{name}/fetch.py")


def status_of(seen: list[Seen]) -> int:
    """Say in which part of all their cells ranges hold the truth, and return the exit status."""
    held = sum(one.inside for one in seen) / sum(one.cells for one in seen)
    say(f"ranges hold the truth in {held:.1%} of their cells")
    return 0 if held >= GOAL else 1


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure how often ranges hold the truth.")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks")
    options = parser.parse_args(arguments)
    refuse_missing_tables(parser)
    found = list(results((*CASES, BROKEN), options.runs))
    (options.out / "ranges.md").write_text(page(found, options.runs), encoding="utf-8")
    return status_of([result.seen[name] for result in found if not result.case.breaks for name in METRICS])


if __name__ == "__main__":
    sys.exit(main())
