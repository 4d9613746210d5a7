"""A parser of commands whose errors are one line, and which tells a misspelt name by the one that was meant.

In: arguments. Out: what `argparse` makes of them, or the end of the process with 2. Holds: an option that is nearly one of ours
is no option of Beam. Nothing slow is imported. Not covered: which commands there are (`main`).
"""

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from dp_pipelines.errors import nearest
from dp_pipelines.jobs.terminal import output

MakeParser = Callable[[str, str, str], argparse.ArgumentParser]
"""Adds a command: name, help text, epilog."""

NEAR = 0.85
"""How near an unknown option is to one of ours that was meant, from 0 to 1; no option of Beam is as near."""

WRONG = 2
"""The exit code of a request that is wrong by public facts."""


class CommandParser(argparse.ArgumentParser):
    """Reports an error in one line, and exits with 2. A misspelt name comes with the one that was meant."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.own: list[str] = []
        self.commands: Mapping[str, CommandParser] = {}
        super().__init__(*given, **named)

    def add_argument(self, *names: Any, **named: Any) -> argparse.Action:
        self.own += [name for name in names if name.startswith("--")]
        return super().add_argument(*names, **named)

    def add_subparsers(self, **named: Any) -> Any:
        made = super().add_subparsers(**named)
        self.commands = made.choices
        return made

    def described(self) -> list[tuple[str, str]]:
        """Return the names of commands, each with its line of help."""
        return [(name, str(parser.description).rstrip(".")) for name, parser in self.commands.items()]

    def refuse_misspelt(self, arguments: Sequence[str]) -> None:
        """End where a command or an option is not known and nearly one of ours: other options may be Beam's."""
        for place, text in enumerate(arguments):
            option = text.partition("=")[0]
            if text == "--":
                return
            if option.startswith("--"):
                meant = difflib.get_close_matches(option, self.own, n=1, cutoff=NEAR)
                if meant and option not in self.own:
                    self.error(f"unknown argument {option}; did you mean {meant[0]!r}?")
            elif self.commands and not text.startswith("-"):
                if text in self.commands:
                    self.commands[text].refuse_misspelt(arguments[place + 1 :])
                else:
                    self.error(f"unknown command {text!r}; {nearest(text, self.commands, 'commands')}")
                return

    def error(self, message: str) -> NoReturn:
        output.note(f"error: {message}; see `{self.prog} --help`")
        sys.exit(WRONG)
