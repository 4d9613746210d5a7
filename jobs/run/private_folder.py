"""The private folder of a command that computes from raw rows: its place, and how it gets its name.

In: what `--output` says; a complete folder. Out: a folder of mode 0700, whose files only their owner can read. Holds: it is there
whole or not at all; it is no release and lies in none. Not covered: keeping it private afterwards.
"""

import os
import pathlib

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.runners import runner_rules
from dp_pipelines.release import manifest, staging

PRIVATE = "PRIVATE-"
"""The prefix of all file names whose content was computed from raw rows."""


def target(output: str) -> pathlib.Path:
    """The folder to be made, which does not exist and lies in no release.

    Raises:
        RequestError: it does.
    """
    found = staging.local_path(output)
    staging.refuse_existing(found)
    real = pathlib.Path(os.path.realpath(found))  # a link on the way may lead into a release
    inside = next((parent for parent in real.parents if manifest.read_manifest(parent) is not None), None)
    if inside is not None:
        message = f"is inside a release, {str(inside)!r}, but the output is private"
        raise RequestError(field=f"output {str(found)!r}", message=message, hint="choose a folder outside it")
    return found


def refuse_elsewhere(runner: str, hint: str) -> None:
    """Refuse a runner whose workers cannot write to this machine.

    Args:
        runner: its name.
        hint: what to do instead.

    Raises:
        RequestError: it is such a runner, or none.
    """
    if runner_rules.is_elsewhere(runner):
        raise RequestError(field=f"--runner {runner}", message="cannot keep private output on your machine", hint=hint)


def notice(*, noted: bool) -> str:
    """Return what is printed of a private folder.

    Args:
        noted: whether a ledger records that the rows were looked at.
    """
    said = "The look is recorded in the ledger" if noted else "No ledger records the look"
    return f"PRIVATE: computed from the raw rows without privacy. Do not publish this folder. {said}."


def give_name(folder: pathlib.Path, name: pathlib.Path) -> None:
    """Give a complete folder its name; nobody but its owner can read it.

    Raises:
        PublishError: something stands in the way.
    """
    for path in folder.iterdir():
        path.chmod(0o600)
    staging.give_name(folder, name)
