"""`dp-pipelines init`: writes a first job file, which `plan` takes as it stands.

In: names of files, a privacy unit. Out: a commented job file. Holds: it reads schemas, never a row; it opens no account; an
existing file is never replaced; what is written was checked as `plan` checks it. Not covered: a ledger (`ledger init`).
"""

import argparse
import contextlib
import os
import pathlib
import re
import shlex
from collections.abc import Iterator

from dp_pipelines import checks
from dp_pipelines.disk_errors import reason_of, told_of_disk
from dp_pipelines.engine import compressed
from dp_pipelines.errors import LedgerError, PublishError, RequestError
from dp_pipelines.jobs.init import data_files, first_job
from dp_pipelines.jobs.init.data_files import FirstSource
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import csv_arguments, job_file
from dp_pipelines.ledger import default_places, refusals, sources
from dp_pipelines.ledger.entries import Account
from dp_pipelines.query.row_unit import is_row_unit

GENERIC = {
    "data",
    "dataset",
    "datasets",
    "input",
    "inputs",
    "raw",
    "files",
    "parquet",
    "csv",
    "tsv",
    "txt",
    "json",
    "jsonl",
    "ndjson",
    "avro",
    "delta",
    "gz",
    "zst",
    "bz2",
    "tables",
    "part",
    "rows",
    "",
}
"""Names of folders and files that say nothing of what is in them, those of formats too: an account is one for all formats."""

PIECE = re.compile(r"[\W_]*\d[\d\W_]*(of[\d\W_]*)?\Z")
"""The end of the name of a file that is one of several pieces: part-0, part-00000-of-00004, data_2026."""


def init(given: argparse.Namespace) -> str:
    """Run the command and say what was written and what comes next.

    Args:
        given: the arguments, as `init_arguments` declares them.

    Raises:
        RequestError: the files, a column or the output is wrong; nothing was written.
        DiskError, PublishError: the file cannot be written.
    """
    output = pathlib.Path(given.output)
    if os.path.lexists(output):
        message = "exists, and init never replaces a file"
        raise RequestError(
            field=f"--output {given.output!r}", message=message, hint="choose another name, or remove it"
        )
    if not output.parent.is_dir():
        message = "is in a folder that does not exist"
        raise RequestError(field=f"--output {given.output!r}", message=message, hint="make the folder first")
    unit = [checks.name(name, "--unit") for name in given.unit or ()]
    for column in unit:
        if column in first_job.OF_RUNS:
            message = f"cannot be {column!r}: runs that choose bounds add a column of that name"
            raise RequestError(field="--unit", message=message, hint="rename that column")
    source = data_files.look(
        given.files,
        unit,
        given.types,
        csv_arguments.keys(given),
        output.parent,
        sample=given.like,
        header_is_public=given.header_is_public,
    )
    owner = _owner(source, output)
    if given.dataset is not None:
        dataset = checks.plain(given.dataset, "--dataset")
    else:
        dataset = _dataset(source, output) if owner is None else owner.name
    name = shlex.quote(given.output)
    text = first_job.text(source, unit, dataset, name)
    first = job_file.read(text, output, given.output)
    check(first, ())
    with told_of_disk(output.parent):
        try:
            with output.open("x", encoding="utf-8") as file, _whole_or_not(output):
                file.write(text)
                file.flush()
        except OSError as error:
            if reason_of(error):
                raise
            raise PublishError(f"--output {given.output!r}: cannot be written: {error.strerror}") from None
    charged = "" if owner is None else _of_owner(owner, first)
    return (
        f"wrote {given.output}: a first job, from names and types alone; read its comments, then:\n{charged}"
        f"  dp-pipelines plan {name}\n"
        f"  dp-pipelines run {name} --synthetic --output out/made-up"
    )


@contextlib.contextmanager
def _whole_or_not(path: pathlib.Path) -> Iterator[None]:
    """Remove a file of ours that could not be written to its end, or the same command would find it and refuse."""
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _of_owner(owner: Account, file: job_file.JobFile) -> str:
    """Return a line about the account to which the files of a new job belong: what it charges, or why no run will start.

    Args:
        owner: the account.
        file: the job.
    """
    if file.job.dataset != owner.name:
        why = f"these files belong to the account {owner.name!r} in the ledger beside it; write dataset: {owner.name}"
        return f"a run of it will be refused: {why}\n"
    charged = f"it charges the account {owner.name!r}, to which these files belong in the ledger beside it"
    if tuple(file.job.unit) == owner.unit:
        return f"{charged}\n"
    units = " ".join(f"--unit {shlex.quote(name)}" for name in owner.unit)
    again = "--one-row-per-person" if is_row_unit(owner.unit) else units
    return (
        f"{charged},\nbut a run of it will be refused: the account protects each {owner.words}; remove the file, and "
        f"call init with {again}\n"
    )


def _owner(source: FirstSource, output: pathlib.Path) -> Account | None:
    """Return the account to which these files belong in the ledger beside a job; None without one, or if it cannot be read."""
    from dp_pipelines.ledger.ledger import Ledger  # loads SQLAlchemy
    from dp_pipelines.ledger.patience import A_MOMENT, Patience

    place = default_places.beside(output)
    if not pathlib.Path(place).exists():
        return None
    pattern = sources.covering(sources.absolute(source.pattern, str(output.resolve().parent)), source.files)
    try:
        with contextlib.closing(Ledger.open(place, patience=Patience(locked=A_MOMENT))) as ledger:
            name = refusals.owner(ledger.state.owners, pattern, source.files)
            return None if name is None else ledger.state.accounts.get(name)
    except (RequestError, LedgerError):  # `plan` and `run` say what is wrong with it
        return None


def _dataset(source: FirstSource, output: pathlib.Path) -> str:
    """A name for the account from those of files and folders."""
    file = pathlib.PurePath(source.files[0])
    stem = file.stem if compressed.codec_of(file.name) is None else pathlib.PurePath(file.stem).stem
    names = [stem] if len(source.files) == 1 else []
    # Folders of the kind week=2026-01-05 hold a part of the rows.
    names += [
        next((parent.name for parent in file.parents if "=" not in parent.name), ""),
        output.resolve().parent.name,
    ]
    printable = (name for name in names if name.isprintable() and PIECE.sub("", name.lower()) not in GENERIC)
    return next(printable, "my-data")
