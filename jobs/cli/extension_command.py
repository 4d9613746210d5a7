"""The protocol of a command that an extension adds to the command line, and how these commands are found.

In: the table of extensions; arguments. Out: commands. Holds: the core's own names cannot be replaced; distributions of others
are looked at only for a name that is not known, and for help; an extension that cannot be used affects its own command alone.
Not covered: the core's own commands (`main`).
"""

import argparse
import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, runtime_checkable

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.cli.command_parser import MakeParser
from dp_pipelines.jobs.terminal import output

KIND = "command"
"""The kind of these features in the table of extensions."""

DONE = 0
"""The exit code of a command that did what it was asked for."""


@runtime_checkable
class Command(Protocol):
    """A command of the command line. Importing its module must be quick, since `--help` does so.

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


def asked_for(arguments: Sequence[str], core: Collection[str]) -> dict[str, Command]:
    """Return the commands of extensions that a command line may need, by name.

    That is the one that it names, or none for a command of the core. For help and for an unknown name these are all; a note
    names those that cannot be used.

    Args:
        arguments: of the command line.
        core: names of the core's own commands.

    Raises:
        RequestError: the extension of the named command is not installed, or cannot be loaded.
    """
    name = next((text for text in arguments if not text.startswith("-")), None)
    if name in core or (name is None and "--version" in arguments):
        return {}
    if name is not None:
        extensions.refuse_missing(KIND, name)
        if extensions.is_built_in(KIND, name):
            return {name: load(name)}
    others = [other for other in extensions.third_party(KIND) if other not in core]
    if name in others:
        return {name: load(name)}
    return all_of([*extensions.built_in(KIND), *others])


def all_of(names: Iterable[str]) -> dict[str, Command]:
    """Return commands by name, without those that cannot be used: a note names each."""
    usable = {}
    for name in names:
        try:
            usable[name] = load(name)
        except RequestError as error:
            output.note(f"note: left out: {error}")
    return usable


def load(name: str) -> Command:
    """Return the command of an extension.

    Raises:
        RequestError: its extension cannot be loaded, or does not offer what a command needs.
    """
    return extensions.load_checked(KIND, name, functools.partial(_command, name), "does not offer what a command needs")


def _command(name: str, command: object) -> Command | None:
    """Return an object that has what a command needs and adds one parser, of its own name; None for another."""
    names: list[str] = []

    def make(added: str, help_text: str, epilog: str) -> argparse.ArgumentParser:
        names.append(added)
        return argparse.ArgumentParser(added, description=help_text, epilog=epilog)

    if not isinstance(command, Command) or [type(text) for text in command.example] != [str, str]:
        return None
    command.add(make)
    return command if names == [name] else None
