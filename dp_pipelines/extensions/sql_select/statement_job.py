"""One statement and the options of the command `sql`, as the job that somebody would write by hand.

In: the arguments of the command. Out: a job file in memory, its YAML; a run of it. Holds: everything goes the way of a job file;
errors name options and places in the statement; a ledger is never made beside the rows. Not covered: what the statement means
(`from_statement`).
"""

import argparse
import contextlib
import hashlib
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.sql_select import from_statement, syntax
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run import renamed_jobs, run
from dp_pipelines.jobs.run.run import PublishedRun
from dp_pipelines.jobs.sources.source_files import refuse_compressed
from dp_pipelines.jobs.spec import csv_arguments, job_file
from dp_pipelines.jobs.spec.from_query import Arguments
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.terminal import output
from dp_pipelines.ledger.ledger import DEFAULT_NAME
from dp_pipelines.release import staging

RELEASES = "dp-releases"
"""The folder of releases whose folder nobody named."""

BOUNDS = ("max_partitions_contributed", "max_contributions_per_partition", "max_contributions")

_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_FILES = re.compile(r"[/*?\\]|://|\.(?:parquet|csv|tsv|txt|gz|zst|bz2)\Z", re.IGNORECASE)
"""What makes a name behind FROM one of files."""

_PARQUET = re.compile(r"\.parquet\Z", re.IGNORECASE)
_CSV = re.compile(r"\.(?:csv|tsv|txt)(?:\.(?:gz|zst|bz2))?\Z", re.IGNORECASE)


def job_of(given: argparse.Namespace) -> JobFile:
    """The job that the arguments stand for.

    Args:
        given: the arguments of the command.

    Raises:
        RequestError: what is wrong, by option or by the place in the statement.
    """
    text = _statement(given.statement)
    table = from_statement.table_of(text)
    stage: dict[str, Any] = {"kind": "aggregate", "select": text, "clips": _clips(given.clip)}
    bounds = {
        name: _number(f"--{_option(name)}", held) for name in BOUNDS if (held := getattr(given, name)) is not None
    }
    if bounds:
        stage["bounds"] = bounds
    if given.public_file is not None:
        stage["partitions"] = {"public_file": given.public_file, "other": given.other}
    elif given.other:
        raise RequestError(field="--other", message="needs a list of groups", hint="add --public-file FILE")
    budget = {
        name: _number(f"--{name}", held)
        for name in ("epsilon", "delta", "runs")
        if (held := getattr(given, name)) is not None
    }
    content = {
        "dataset": given.dataset,
        "source": _source(given, table),
        "stages": {given.name: stage},
        **({"privacy_unit": given.unit} if given.unit else {}),
        **({"budget": budget} if budget else {}),
        **({"outputs": {"files": list(given.format)}} if given.format else {}),
    }
    place = f"stages.{given.name}."
    options = {f"{place}bounds.{name}": f"--{_option(name)}" for name in BOUNDS}
    names = {
        **options, f"{place}bounds": "--max-partitions-contributed", f"{place}partitions.public_file": "--public-file",
        f"{place}partitions.other": "--other",
        f"{place}clips.": "--clip ", f"{place}select": "SQL", place: "", "budget.": "--", "budget": "--epsilon",
        "privacy_unit": "--unit", "dataset": "--dataset", "source.types": "--type", "outputs.files": "--format",
        **{f"source.{key}": csv_arguments.option(key) for key in csv_arguments.HELP}, "source": "FROM",
    }  # fmt: skip
    return job_file.checked(Arguments(data=content, names=names, tables=(table,)), pathlib.Path("sql"))


def as_yaml(file: JobFile) -> str:
    """The job file that somebody would write."""
    return yaml.safe_dump(file.document.data, sort_keys=False, allow_unicode=True, width=120)


def carry_out(
    file: JobFile, given: argparse.Namespace, rest: Sequence[str], makes: Callable[[pathlib.Path], None]
) -> PublishedRun:
    """Run the job; errors as for `run.run`.

    Args:
        file: the job.
        given: the arguments of the command.
        rest: options of Beam.
        makes: is told which folder will be made.
    """
    request = check(file, ())
    run.check_run_id(given.run_id, file)
    if given.output is not None:
        staging.local_path(given.output)  # or a URL would become the name of a folder
    target = pathlib.Path(given.output if given.output is not None else _default_output(request))
    makes(target)
    beside = pathlib.Path.cwd() / target.parent
    if given.ledger is None:
        _refuse_beside_rows(request, beside)
        output.note(f"note: the ledger is {beside / DEFAULT_NAME}; name another one with --ledger")
    return run.carry_out(
        request, str(target), run_id=given.run_id, arguments=rest, ledger=given.ledger, runner=given.runner,
        anchor=given.anchor, beside=beside, as_new=given.as_new, renamed=renamed_jobs.OF_STATEMENT,
    )  # fmt: skip


def _statement(written: str) -> str:
    """The text of the statement: itself, of a file, or of standard input."""
    if written == "-":
        return sys.stdin.read(syntax.LONGEST + 1)
    if not written.startswith("@"):
        return written
    path = pathlib.Path(written[1:])
    with contextlib.suppress(OSError, UnicodeDecodeError), path.open(encoding="utf-8-sig") as file:
        return file.read(syntax.LONGEST + 1)
    raise RequestError(
        field=written, message="cannot be read as UTF-8 text", hint="name a file with one SELECT statement"
    )


def _source(given: argparse.Namespace, table: str) -> dict[str, Any]:
    """The files that FROM or `--source` names."""
    pattern = given.source
    if pattern is None:
        if not _FILES.search(table):
            message = f"names no files: FROM {table}"
            raise RequestError(
                field="SQL", message=message, hint="write FROM 'data/*.parquet', or add --source 'data/*.parquet'"
            )
        pattern = table
    elif _FILES.search(table) and table != pattern:
        message = f"names other files than FROM: {pattern!r} and {table!r}"
        raise RequestError(field="--source", message=message, hint="drop it, or write a mere name behind FROM")
    refuse_compressed([pattern], packed=_CSV.search(pattern) is not None)
    types = dict(_pair("--type", text, "COLUMN=TYPE") for text in given.type)
    written = csv_arguments.keys(given)
    if _PARQUET.search(pattern) and (types or written):
        wrong = "--type" if types else csv_arguments.option(next(iter(written)))
        raise RequestError(field=wrong, message="is for CSV files only", hint="drop it: Parquet files have types")
    if (_CSV.search(pattern) or written) and not types:
        message = "is needed for each column of CSV files that is used: their types must not follow from the data"
        raise RequestError(
            field="--type", message=message, hint="write e.g. --type customer_id=string --type price=double"
        )
    return {"csv": pattern, "types": types, **written} if types else {"parquet": pattern}


def _clips(given: Sequence[str]) -> dict[str, Any]:
    """`COLUMN=LOW:HIGH` and `COLUMN=auto:LOW:HIGH` as `clips` says them."""
    found: dict[str, Any] = {}
    for text in given:
        name, held = _pair("--clip", text, "price=0:1000, or price=auto:0:100000")
        parts = held.split(":")
        if name in found:
            raise RequestError(field=f"--clip {name}", message="is given twice", hint="write it once")
        ends = parts[1:] if parts[0] == "auto" else parts
        if len(ends) != 2 or not all(_NUMBER.match(end) for end in ends):
            hint = "write e.g. --clip price=0:1000, or price=auto:0:100000"
            raise RequestError(field=f"--clip {name}", message="must be a range of two numbers", hint=hint)
        found[name] = [*parts[: len(parts) - 2], *(_number(f"--clip {name}", end) for end in ends)]
    return found


def _pair(option: str, text: str, example: str) -> tuple[str, str]:
    name, equals, held = text.partition("=")
    if not (name and equals and held):
        raise RequestError(field=option, message="must have a name, = and a value", hint=f"write {option} {example}")
    return name, held


def _number(option: str, text: str) -> int | float:
    """A number; a whole one stays one."""
    if not _NUMBER.match(text):
        raise RequestError(field=option, message="must be a number")
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _option(name: str) -> str:
    return name.replace("_", "-")


def _default_output(request: Request) -> str:
    """A folder of this very question, so that asking again finds its release."""
    job = request.file.job
    asked = hashlib.sha256(f"{request.asked}{request.content}".encode()).hexdigest()[:12]
    folder = re.sub(r"[^A-Za-z0-9_-]", "_", job.dataset)
    (name,) = job.stages
    return f"{RELEASES}/{folder}/{name}-{asked}"


def _refuse_beside_rows(request: Request, folder: pathlib.Path) -> None:
    """Refuse to make a ledger in a folder of rows, which others may replace as a whole.

    Raises:
        RequestError: the folder holds rows.
    """
    folders = {pathlib.Path(file).resolve().parent for file in request.source.files if "://" not in file}
    if folder.resolve() in folders and not (folder / DEFAULT_NAME).exists():
        message = "is not named, and would be made beside the rows"
        hint = (
            "choose an --output in another folder, or name a ledger that you have made with `dp-pipelines ledger init`"
        )
        raise RequestError(field="--ledger", message=message, hint=hint)
