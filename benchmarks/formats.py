"""How long a job takes over each format, beside Parquet: copies of one table, whole commands, in turns.

In: nothing; the rows are made here. Out: docs/benchmarks/formats.md; progress on stderr, the gates on stdout; exit code 1 if a
gate of a full run fails. Holds: figures are processor seconds of whole processes; a ratio is the median of those of one round.
Needs 4 GB of disk and 8 GiB of memory, to write the copies. Not covered: whether all copies give the same integers, which
tests/engines/test_formats.py compares.

    python benchmarks/formats.py [--quick] [--rounds 3] [--out docs/benchmarks]
"""

import argparse
import functools
import multiprocessing
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import yaml
from gates import Gate, gates_table
from measure import REPOSITORY, cores, read_options, say, versions
from whole_processes import Runs, busy_note, in_turns, middle, ratio, run_of

BINARY, TEXT = 1.1, 3.0
"""At most so many times what Parquet takes."""

MANY = 56
"""Files of the Delta copy: each of two commits writes one for each of 28 days."""

FEW = 1_000

PARQUET, FILES, CSV, JSONL = "Parquet", f"Parquet in {MANY} files", "CSV", "JSON lines"
AVRO, SNAPPY, PLAIN = "Avro, deflate", "Avro, snappy", "Avro, not compressed"
DELTA, ICEBERG = "Delta", "Iceberg"
NOTHING = f"Parquet, {FEW:,} rows"

LIMITS = {CSV: TEXT, JSONL: TEXT, AVRO: BINARY, DELTA: BINARY, ICEBERG: BINARY}

BEST_OF_AVRO = "Avro (deflate), Polars"

LIBRARIES = {
    "Parquet, Arrow": "import pyarrow.parquet as p; p.read_table('parquet', use_threads=False)",
    "CSV, Arrow": "import pyarrow.csv as p; p.read_csv('csv/a.csv', p.ReadOptions(use_threads=False))",
    "JSON lines, Arrow": "import pyarrow.json as p; p.read_json('jsonl/a.jsonl', p.ReadOptions(use_threads=False))",
    "JSON lines, DuckDB": "import duckdb; duckdb.sql('SET threads = 1'); "
    "duckdb.sql('''FROM read_json('jsonl/a.jsonl', format = 'newline_delimited')''').to_arrow_table()",
    BEST_OF_AVRO: "import polars; polars.read_avro('avro/a.avro')",
    "Avro (deflate), its blocks unpacked and not decoded": "import fastavro; "
    "[len(block.bytes_.getvalue()) for block in fastavro.block_reader(open('avro/a.avro', 'rb'))]",
}
"""Programs that only read, in one thread, in the folder of the copies, with what each library does by default besides."""

INTRODUCTION = """\
# Formats

Written by `python benchmarks/formats.py` (`make bench`); do not edit.

The same {rows:,} rows, five columns of which a job reads four, in each [format](../sources/index.md). The job counts and sums
over 12 products and 28 days; a unit counts in at most 4 partitions with at most 2 rows in each. The Delta copy has {many} files
in 28 partitions and a deletion vector; the Iceberg copy has rows to delete by place and by value. Parquet's pages are packed by
snappy.

Figures are processor seconds (user and system) of whole processes: Python, the check of the job, the plan, the report. Formats
take turns, and a gate is the median of the ratios within one round. That all copies give the same integers before the noise is
what `tests/engines/test_formats.py` holds.
"""

READING = """\
## What reading alone takes

Programs that read the same files with a library into memory and do nothing with the rows, in one thread, as whole processes.
"""


def job(source: Mapping[str, Any]) -> str:
    """A job over a copy, that reads all of its columns but one."""
    metrics = {
        "orders": {"kind": "count"},
        "revenue": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
    }
    bounds = {"max_partitions_contributed": 4, "max_contributions_per_partition": 2}
    stage = {"kind": "aggregate", "partition_by": ["product", "day"], "bounds": bounds, "metrics": metrics}
    budget = {"epsilon": 1.0, "delta": 1e-5}
    said = {"dataset": "shop", "privacy_unit": "customer", "budget": budget, "source": source, "stages": {"s": stage}}
    return yaml.safe_dump(said)


def many_files(table: pa.Table, folder: pathlib.Path) -> dict[str, object]:
    """Parquet in as many files as the Delta copy has: opening a file costs about two milliseconds, whatever it holds."""
    folder.mkdir()
    rows = -(-table.num_rows // MANY)
    for number in range(MANY):
        pa.parquet.write_table(table.slice(number * rows, rows), folder / f"{number:02}.parquet")
    return {"parquet": str(folder / "*.parquet")}


def make(folder: pathlib.Path, rows: int) -> None:
    """Write the copies and their job files."""
    sys.path.insert(0, str(REPOSITORY))
    from tests.helpers import copies

    table, few = copies.purchases(rows), copies.purchases(FEW)
    write: dict[str, Callable[[pathlib.Path], Mapping[str, Any]]] = {
        "parquet": functools.partial(copies.parquet, table),
        "files": functools.partial(many_files, table),
        "csv": functools.partial(copies.csv, table),
        "jsonl": functools.partial(copies.jsonl, table),
        "avro": functools.partial(copies.avro, table),
        "snappy": functools.partial(copies.avro, table, codec="snappy"),
        "plain": functools.partial(copies.avro, table, codec="null"),
        "delta": functools.partial(copies.delta, table),
        "iceberg": functools.partial(copies.iceberg, table),
        "nothing": functools.partial(copies.parquet, few),
    }
    for name, copy in write.items():
        (folder / f"{name}.yaml").write_text(job(copy(folder / name)))
        say(f"written: {name}")


JOBS = {
    PARQUET: "parquet", FILES: "files", CSV: "csv", JSONL: "jsonl", AVRO: "avro", SNAPPY: "snappy", PLAIN: "plain",
    DELTA: "delta", ICEBERG: "iceberg", NOTHING: "nothing",
}  # fmt: skip


def judged(runs: Runs) -> list[Gate]:
    """The limits of the formats."""
    return [
        Gate(name=f"{name} relative to Parquet", figure=ratio(runs, name, PARQUET), limit=limit)
        for name, limit in LIMITS.items()
    ]


def runs_table(runs: Runs) -> str:
    """One line a format."""
    start = middle(runs[NOTHING])
    lines = [
        "| | CPU s: median (range) | peak GiB | times Parquet | without the start, times Parquet |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, used in runs.items():
        cpu = [one.cpu for one in used]
        times = "" if name == NOTHING else f"{ratio(runs, name, PARQUET):.2f}"
        rows = "" if name == NOTHING else f"{(middle(used) - start) / (middle(runs[PARQUET]) - start):.2f}"
        memory = max(one.mib for one in used) / 1024
        lines.append(
            f"| {name} | {middle(used):.2f} ({min(cpu):.2f} to {max(cpu):.2f}) | {memory:.2f} | {times} | {rows} |"
        )
    return "\n".join(lines)


def reading_table(runs: Runs) -> str:
    """One line a library."""
    lines = ["| | CPU s: median |", "|---|---:|"]
    return "\n".join(lines + [f"| {name} | {middle(used):.2f} |" for name, used in runs.items()])


def avro_note(runs: Runs, reading: Runs) -> str:
    """Why Avro is above its limit, as far as that is so."""
    whole, alone = middle(runs[PARQUET]), middle(reading[BEST_OF_AVRO])
    if alone <= BINARY * whole:
        return ""
    return (
        "**Avro's limit is out of reach of any decoder that we know:** Polars, the fastest, takes "
        f"{alone:.2f} CPU s\nto read the file and do nothing, {alone / whole:.2f} times the whole command over Parquet.\n"
    )


def page(rows: int, runs: Runs, reading: Runs, gates: list[Gate]) -> str:
    """The whole page."""
    here = versions(pathlib.Path(sys.executable), ["pyarrow", "duckdb", "polars", "fastavro", "numpy"])
    return (
        "\n".join(
            [
                INTRODUCTION.format(rows=rows, many=MANY),
                "## Gates\n",
                gates_table(gates) + "\n",
                busy_note(runs[PARQUET]),
                "## All runs\n",
                f"The start is what the same job takes over {FEW:,} rows. The last column leaves it out: what rows cost.\n",
                runs_table(runs) + "\n",
                READING,
                reading_table(reading) + "\n",
                avro_note(runs, reading),
                f"Machine: {cores()} cores. " + ", ".join(f"{name} {version}" for name, version in here.items()) + ".",
            ]
        )
        + "\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    options = read_options(argparse.ArgumentParser(description="Processor time of each format."), arguments, rounds=3)
    rows = 1_000_000 if options.quick else 10_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # In a process of its own: a child's peak memory begins with what its parent holds.
        maker = multiprocessing.get_context("spawn").Process(target=make, args=(folder, rows))
        maker.start()
        maker.join()
        if maker.exitcode:
            raise SystemExit("the copies could not be written")
        runs = in_turns({form: run_of(f"{job}.yaml") for form, job in JOBS.items()}, folder, options.rounds, "formats")
        alone = {what: [sys.executable, "-c", program] for what, program in LIBRARIES.items()}
        reading = in_turns(alone, folder, options.rounds, "reading alone")
    gates = judged(runs)
    (options.out / "formats.md").write_text(page(rows, runs, reading, gates))
    print(gates_table(gates))
    return options.verdict("formats.md", all(gate.holds for gate in gates))


if __name__ == "__main__":
    sys.exit(main())
