"""The options that say what carries out a job.

In: the parser of a command. Out: the same with these options; what of them the runner gets. Holds: nothing slow is imported. Not
covered: options of Beam, which are passed on as they are.
"""

import argparse

from dp_pipelines.jobs.runners.runner_rules import DEFAULT, NAMES, OF_CORE

OF_LOCAL = ("threads", "memory", "spill_folder")
"""Options of the local runner."""


def add(parser: argparse.ArgumentParser, *, here: bool = False) -> None:
    """Add the options.

    Args:
        parser: of a command that runs jobs.
        here: whether the command has only runners whose workers see this machine.
    """
    names = [f"{name} (default)" if name == DEFAULT else name for name in (OF_CORE if here else NAMES)]
    group = parser.add_argument_group("runner", "docs/runners.md says which one to choose")
    group.add_argument("--runner", metavar="NAME", default=DEFAULT, help=f"{', '.join(names[:-1])} or {names[-1]}")
    group.add_argument("--threads", metavar="N", help="of the local runner (default: one for each core)")
    group.add_argument(
        "--memory", metavar="SIZE", help="that the local runner may take, e.g. 4GiB (default: half of what is free)"
    )
    group.add_argument(
        "--spill-folder",
        metavar="DIR",
        help="private disk space for rows that do not fit into --memory (default: beside the output)",
    )


def passed_on(given: argparse.Namespace) -> list[str]:
    """The options of the local runner as it takes them."""
    found = {name: getattr(given, name, None) for name in OF_LOCAL}
    return [f"--{name.replace('_', '-')}={value}" for name, value in found.items() if value is not None]
