"""Releases whose noise and coins repeat, for tests that compare many of them with a prediction. Lives in the tests alone.

In: a seed. Out: a source of words, and a release that draws with it. Holds: the samplers, tables and coins are those of a run;
their words alone come from a generator with a seed. The door is the one of `quiet`, below the public API.
"""

import functools
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dp_pipelines.noise.samplers import Sampler
from dp_pipelines.release.draw import draw_release


def words(seed: int) -> Callable[[int], np.ndarray]:
    """The same words in each run of the tests, on every machine."""
    return np.random.Philox(key=seed).random_raw


def release(seed: int) -> Callable[..., pa.Table]:
    """`draw_release` whose calls, one after the other, draw from one sequence of words."""
    source = words(seed)
    return functools.partial(draw_release, samplers=lambda law: Sampler(law, source), words=source)
