"""What the tests of parties share: the process that is forked for each party ends with them."""

from collections.abc import Iterator

import pytest

from tests.helpers import forks


@pytest.fixture(scope="module", autouse=True)
def forking() -> Iterator[None]:
    """Whatever process was started to be forked ends with the tests of a file."""
    yield
    forks.end()
