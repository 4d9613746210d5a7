"""Run ids and output folders that hold parameters: `--run-id 'day-{day}' --output 'out/{day}'`.

In: texts of the command line, values of parameters, a ledger. Out: the same texts with the values; the newest run of such a
pattern, if it has no release yet. Holds: no clock fills anything in, so that a retry has the same name on every day. Not covered:
what the run does.
"""

import pathlib
import re
from collections.abc import Mapping

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.ledger.entries import Run

OPEN = ("reserved", "started", "staged")
"""States of runs that have been admitted and have no release yet."""


def values_of(file: JobFile, given: list[str]) -> dict[str, Value]:
    """Return the values of a job's parameters. Raises: RequestError.

    Args:
        file: the job.
        given: `NAME=VALUE` for each parameter.
    """
    return job_parameters.take({name: declared.type for name, declared in file.job.params.items()}, given)


def filled(text: str, values: Mapping[str, Value | str], field: str) -> str:
    """Return a text with the values of its parameters.

    Args:
        text: with `{NAME}` for each.
        values: of the parameters.
        field: what messages call the text.

    Raises:
        RequestError: one is not declared, or its value cannot be part of a name.

    >>> filled("day-{day}", {"day": "2026-01-05"}, "--run-id")
    'day-2026-01-05'
    """
    try:
        return job_parameters.into_path(text, values, field)
    except RequestError as error:
        if error.field == field and re.search(r"\{(today|now|date)\}", text):
            hint = (
                "no clock fills it in, since a retry must have the same name: use {day} with --param day=$(date -u -I)"
            )
            raise RequestError(field=field, message=error.message, hint=hint) from None
        raise


def unfinished(file: JobFile, pattern: str, run_id: str, ledger: str | None, anchor: str | None) -> Run | None:
    """Return the newest run of a pattern if it has no release; None if it has one, or is the run that is asked for.

    Args:
        file: the job.
        pattern: of run ids, with parameters.
        run_id: of the run that is asked for.
        ledger, anchor: see `jobs.run.run.run`.

    Raises:
        LedgerError, RequestError: the ledger cannot be used.
    """
    from dp_pipelines.ledger import default_places
    from dp_pipelines.ledger.ledger import Ledger  # loads SQLAlchemy
    from dp_pipelines.ledger.patience import A_MINUTE, Patience

    place = default_places.beside(file.path) if ledger is None else ledger
    patience = Patience(A_MINUTE)
    if not Ledger.exists(place, patience=patience):
        return None
    book = Ledger.open(place, anchor=anchor, patience=patience)
    try:
        newest = None
        for run in book.state.runs_of(file.job.dataset):
            if run.state != "abandoned" and _is_named(run, pattern) and _is_of(run, file.path):
                newest = run
    finally:
        book.close()
    return newest if newest is not None and newest.state in OPEN and newest.run_id != run_id else None


def _is_named(run: Run, pattern: str) -> bool:
    """Return True if a run has the name that a pattern gives with the run's own parameters."""
    try:
        return filled(pattern, run.params, "--run-id") == run.run_id
    except RequestError:
        return False


def _is_of(run: Run, path: pathlib.Path) -> bool:
    """Return True if a run is of a job file, as far as the ledger says."""
    return run.job in ("", str(path.resolve()))
