"""Prints the processor time of the tests, by group, at the end of a run.

In: hooks of pytest, on each worker and on the process that they report to. Out: a table of minutes by folder of `tests/`, and the
seconds of the costliest files. Holds: the time of a process that a test started counts once the test, or a later one of the same
worker, has waited for its end; that of a command which another process has forked counts once its end is reported (`add`). Not
covered: collecting tests.
"""

import collections
import os
from collections.abc import Generator
from typing import Any

import pytest

PROPERTY = "processor seconds"

_BEGUN: dict[str, float] = {}
_SECONDS: collections.Counter[str] = collections.Counter()
_OF_FILES: collections.Counter[str] = collections.Counter()
COSTLIEST = 40
"""How many files are listed."""

_OF_OTHERS: list[float] = []


def add(seconds: float) -> None:
    """Count the time of a process that this one did not start itself."""
    _OF_OTHERS.append(seconds)


def processor_seconds() -> float:
    """Return the time that this process and the ended ones that it started, or had started, have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system + sum(_OF_OTHERS)


def group_of(test: str) -> str:
    """Return the group of a test: the folder in `tests/`, or for those of `jobs` and `transforms` the one below.

    Args:
        test: the path of its file, and its name.

    >>> group_of("tests/jobs/run/test_kills.py::test_it"), group_of("tests/test_house.py::test_it[a/b]")
    ('jobs/run', 'all code')
    """
    folders = test.partition("::")[0].split("/")[1:-1]
    return "/".join(folders[: 2 if folders[:1] in (["jobs"], ["transforms"]) else 1]) or "all code"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when a test begins."""
    _BEGUN[item.nodeid] = processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Generator[None, Any, Any]:
    """Add what a test has used to its last report."""
    if call.when == "teardown":
        item.user_properties.append((PROPERTY, processor_seconds() - _BEGUN.pop(item.nodeid)))
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add it up, where reports arrive."""
    if report.when == "teardown":
        used = sum(value for name, value in report.user_properties if name == PROPERTY)
        _SECONDS[group_of(report.nodeid)] += used
        _OF_FILES[report.nodeid.partition("::")[0]] += used


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print both tables."""
    whole = sum(_SECONDS.values())
    if whole < 60:
        return
    terminalreporter.section(f"processor time: {whole / 60:.1f} minutes")
    rows = [f"{seconds / 60:6.1f} {group}" for group, seconds in _SECONDS.most_common() if seconds >= 6]
    for first in range(0, len(rows), 4):
        terminalreporter.write_line("".join(f"{row:<30}" for row in rows[first : first + 4]))
    terminalreporter.section("processor seconds of the costliest files")
    for file, seconds in _OF_FILES.most_common(COSTLIEST):
        terminalreporter.write_line(f"{seconds:6.0f} {file}")
