"""The protocol of a command that an extension adds to the command line, and how these commands are found.

In: the table of extensions; arguments. Out: commands. Holds: the core's own names cannot be replaced; distributions of others
are looked at only for a name that is not known, and for help. Not covered: the core's own commands (`main`).
"""

import argparse
from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.cli.command_parser import MakeParser

KIND = "command"
"""The kind of these features in the table of extensions."""

DONE = 0
"""The exit code of a command that did what it was asked for."""


@runtime_checkable
class Command(Protocol):
    """A command of the command line. Importing its module must be quick, since every command and `--help` do so.

    Args:
        example: a call without the program's name, and what it does, for `dp-pipelines --help`.
        takes_runner: whether it takes the options of a runner, and passes on those of Beam.
        needs_arrow: whether it loads pyarrow.
        defers_collection: whether the process is so short that cyclic garbage is collected late.
    """

    example: tuple[str, str]
    takes_runner: bool
    needs_arrow: bool
    defers_collection: bool

    def add(self, make: MakeParser) -> None:
        """Add its parser.

        Args:
            make: adds a command: name, help text, epilog.
        """
        ...

    def run(self, given: argparse.Namespace, rest: list[str]) -> int:
        """Run the command and return its exit code.

        Args:
            given: the parsed arguments.
            rest: options of Beam, if it takes the options of a runner.

        Raises:
            DpError: it failed; the kind of the error settles the exit code.
        """
        ...


def built_in() -> dict[str, Command]:
    """Return the commands of the installed built-in extensions by name."""
    return {name: _load(name) for name in extensions.built_in(KIND)}


def asked_for(arguments: Sequence[str], core: Collection[str]) -> dict[str, Command]:
    """Return the commands of extensions that a command line may need, by name: those of others only if it names no other.

    Args:
        arguments: of the command line.
        core: names of the core's own commands.

    Raises:
        RequestError: the command's extension is not installed, or cannot be loaded.
    """
    commands = built_in()
    name = next((text for text in arguments if not text.startswith("-")), None)
    if name is not None:
        extensions.refuse_missing(KIND, name)
    if name in (*core, *commands) or "--version" in arguments:
        return commands
    return commands | {other: _load(other) for other in extensions.third_party(KIND) if other not in core}


def _load(name: str) -> Command:
    command = extensions.load(KIND, name)
    if not isinstance(command, Command):
        message = "its extension does not offer what a command needs"
        raise RequestError(field=f"{KIND} {name!r}", message=message, hint="update or uninstall its distribution")
    return command
