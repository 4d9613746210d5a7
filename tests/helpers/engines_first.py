"""Hands the tests with engines to two workers, first; the others file by file.

In: hooks of pytest and of pytest-xdist. Out: an order of tests, and who runs them. Holds: one Flink and one Spark that tests
share are started in a run, not one for each worker; tests that kill parts of clusters of their own run beside them; and the other
workers have tests left while these wait. Not covered: `-n` without
`--dist loadfile`.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ENGINES = "tests/engines/"

KILLING = tuple(f"{ENGINES}test_{name}.py" for name in ("faults", "waits"))
"""Files of tests with clusters of their own."""


def group_of(test: str) -> str:
    """Return what one worker runs in one piece: the tests that share engines, those that kill parts of some, or a file.

    >>> group_of("tests/engines/test_flink.py::test_it"), group_of("tests/noise/test_noise.py::test_it[a::b]")
    ('tests/engines/', 'tests/noise/test_noise.py')
    >>> {group_of(f"{file}::test_it") for file in KILLING}
    {'tests/engines/test_faults.py'}
    """
    if test.startswith(KILLING):
        return KILLING[0]
    return ENGINES if test.startswith(ENGINES) else test.partition("::")[0]


class EnginesTogether(LoadScopeScheduling):
    """Files of tests as `--dist loadfile` hands them out, with those of the engines as two."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the group of a test, by its path and name."""
        return group_of(nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests with engines before all others."""
    items.sort(key=lambda item: not item.nodeid.startswith(ENGINES))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> EnginesTogether | None:
    """Return the scheduler where files are asked for."""
    return EnginesTogether(config, log) if config.getoption("dist") == "loadfile" else None
