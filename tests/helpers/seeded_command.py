"""The command line with words from a seed in place of the operating system's: a script, and a context for this process.

In: a seed and the arguments of the command line. Out: the same release each time. Holds: both places that draw, `noise.entropy`
and `collect.coins`, get their bytes from one generator; models train in one thread, and commands need `--threads 1`, so that the
order of words is one. The product has no switch for this: modules are changed from outside. Tests only.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from dp_pipelines.collect import coins
from dp_pipelines.jobs.cli import main
from dp_pipelines.noise import entropy
from dp_pipelines.training import threads


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a generator with this seed."""
    system = SimpleNamespace(urandom=np.random.Generator(np.random.Philox(key=seed)).bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy, "os", system)
        patch.setattr(coins, "os", system)
        patch.setattr(threads, "MOST", 1)
        yield


if __name__ == "__main__":
    given, *sys.argv[1:] = sys.argv[1:]
    with seeded(int(given)):
        sys.exit(main.main())
