"""Releases without noise, for tests that compare the data path with another engine. Lives in the tests alone.

The doors are below the public API: `draw_release` takes its samplers as an argument, which no public function passes on.
"""

import numpy as np

from dp_pipelines.release.draw import draw_release
from dp_pipelines.steps import draw_release as transform


class NoNoise:
    """Draws the middle of its law: zero, once the law's offset is taken back."""

    def __init__(self, law):
        self.law = law

    def draw(self, n):
        return np.zeros(n, np.int64)


def all_ones(n):
    """Coins that never keep what is not certain to be kept."""
    return np.full(n, 2**64 - 1, np.uint64)


def release(totals, stage, permits):
    """`draw_release` as steps call it, with no noise."""
    return draw_release(totals, stage, samplers=NoNoise, words=all_ones)


def silence(monkeypatch):
    """From here on, releases of this test have no noise."""
    monkeypatch.setattr(transform, "draw_release", release)
