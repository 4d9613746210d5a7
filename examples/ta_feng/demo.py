"""Three weeks of Ta Feng as scheduled runs under one budget, and a fourth that the budget refuses.

In: data/ta_feng (fetch.py), scheduled.yaml. Out: one folder a week and a ledger under out/demo-weeks (or --output). Holds:
every command is shown before it is run, and could be typed; the folder is made anew each time, so that the demo can be
repeated. Not covered: schedulers themselves (docs/schedule.md).

    python examples/ta_feng/demo.py [--output DIR]
"""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

JOB = pathlib.Path(__file__).with_name("scheduled.yaml")
WEEKS = ("2000-11-06", "2000-11-13", "2000-11-20", "2000-11-27")
"""Mondays. The budget is for three of them."""

REFUSED = 3
"""How a run ends that the budget refuses."""


class DemoError(Exception):
    """Something went another way than this demo shows."""


def run(*arguments: object, expect: int = 0, show: bool = True) -> None:
    """Show a command and run it."""
    words = [short(argument) for argument in arguments]
    print(f"$ dp-pipelines {shlex.join(words)}", flush=True)
    command = [sys.executable, "-m", "dp_pipelines.jobs.cli.main", *map(str, arguments)]
    code = subprocess.run(command, check=False, stdout=None if show else subprocess.DEVNULL).returncode
    if code != expect:
        raise DemoError(f"the command above ended with {code}, not with {expect}")
    print(flush=True)


def short(argument: object) -> str:
    """A path as one would type it here."""
    below = isinstance(argument, pathlib.Path) and argument.absolute().is_relative_to(pathlib.Path.cwd())
    return os.path.relpath(str(argument)) if below else str(argument)


def say(text: str) -> None:
    """A line between commands."""
    print(f"# {text}", flush=True)


def week(day: str, output: pathlib.Path, folder: str = "", expect: int = 0, show: bool = False) -> None:
    """The scheduled run of a week."""
    command = ["run", JOB, "--ledger", output / "ledger.sqlite", "--run-id", day, "--param", f"week={day}"]
    run(*command, "--output", output / (folder or day), expect=expect, show=show)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("out/demo-weeks"))
    output = parser.parse_args().output
    ledger = ["--ledger", output / "ledger.sqlite"]
    if output.exists() and any(output.iterdir()) and not (output / "ledger.sqlite").exists():
        raise DemoError(f"{output} holds something else; name another folder with --output")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    say("An account for these customers: at most epsilon 3 and delta 1e-6 about each of them, ever.")
    say("--accept is for the demo, which throws away the ledger of the last time. Leave it out for your own.")
    words = ["--unit-words", "customer (all purchases of four months)", "--anchor", output / "anchor"]
    run("ledger", "init", JOB, *ledger, *words, "--accept")
    for number, day in enumerate(WEEKS[:3], 1):
        say(f"Week {number}: the scheduler's date is run id and parameter.")
        week(day, output, show=number == 1)
        run("ledger", "show", *ledger)
    say("Somebody deletes a report and runs its command again: the same bytes, and nothing is charged.")
    shutil.copytree(output / WEEKS[1], output / "kept")
    shutil.rmtree(output / WEEKS[1])
    week(WEEKS[1], output)
    if files(output / WEEKS[1]) != files(output / "kept"):
        raise DemoError("the release is another one")
    shutil.rmtree(output / "kept")
    say("Week 4: the budget was for three runs. No row is read.")
    week(WEEKS[3], output, expect=REFUSED)
    run("runs", *ledger)
    say(f"Reports: {output}/<week>/report.html")


def files(folder: pathlib.Path) -> dict[str, bytes]:
    """The content of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


if __name__ == "__main__":
    try:
        main()
    except DemoError as error:
        sys.exit(f"demo: {error}")
