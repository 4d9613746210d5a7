"""Hands all tests with engines to one worker, first; the others file by file.

In: hooks of pytest and of pytest-xdist. Out: an order of tests, and who runs them. Holds: one Flink and one Spark are started
in a run, not one for each worker, and the other workers have tests left while these wait. Not covered: `-n` without
`--dist loadfile`.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ENGINES = "tests/engines/"


def group_of(test: str) -> str:
    """Return what one worker runs in one piece: the folder of the engines, or a file.

    >>> group_of("tests/engines/test_flink.py::test_it"), group_of("tests/noise/test_noise.py::test_it[a::b]")
    ('tests/engines/', 'tests/noise/test_noise.py')
    """
    return ENGINES if test.startswith(ENGINES) else test.partition("::")[0]


class EnginesTogether(LoadScopeScheduling):
    """Files of tests as `--dist loadfile` hands them out, with those of the engines as one."""

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
