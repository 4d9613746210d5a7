"""Examples in memory and adversarial units, for the tests of training.

In: rows by unit. Out: an object with the interface of `training.examples.store.Examples`. Holds: chunks and choices hold
copies, in the order of the units given. Not covered: files.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import strategies as st

from dp_pipelines.training.examples.store import Chunk

Unit = tuple[np.ndarray, np.ndarray]
"""The rows of a unit and their labels."""


class Few:
    """Units in memory."""

    def __init__(self, units: Sequence[Unit], width: int) -> None:
        self._units, self.width = list(units), width

    @property
    def units(self) -> int:
        return len(self._units)

    def take(self, units: np.ndarray) -> Chunk:
        chosen = [self._units[place] for place in units]
        features = np.concatenate([np.zeros((0, self.width), np.float32), *(rows for rows, _ in chosen)])
        labels = np.concatenate([np.zeros(0), *(labels for _, labels in chosen)])
        sizes = [len(labels) for _, labels in chosen]
        return Chunk(features.astype(np.float32), labels, np.cumsum([0, *sizes]))

    def chunks(self, units_per_chunk: int) -> Iterator[Chunk]:
        for begin in range(0, self.units, units_per_chunk):
            yield self.take(np.arange(begin, min(begin + units_per_chunk, self.units)))

    def without(self, place: int) -> "Few":
        """The same less one unit: all later ones stand one place earlier."""
        return Few([unit for nth, unit in enumerate(self._units) if nth != place], self.width)


def ordinary(units: int, width: int, made: np.random.Generator, rows: int = 6, labels: int = 2) -> list[Unit]:
    """Units of 1 to `rows` rows whose label depends on the features."""
    slope = made.normal(size=width)
    result = []
    for _ in range(units):
        features = made.normal(size=(int(made.integers(1, rows + 1)), width)).astype(np.float32) / np.float32(
            width**0.5
        )
        features[:, 0] = 1
        if labels == 2:
            drawn = made.random(len(features)) < 1 / (1 + np.exp(-3 * features @ slope))
        else:
            drawn = made.integers(0, labels, len(features))
        result.append((features, drawn.astype(np.float64)))
    return result


strange = st.sampled_from(
    [0.0, 1.0, -1.0, 1e-44, 3e-39, 1e-20, 2.0**-60, 1e6, 1e19, -1e20, 3e38, np.inf, -np.inf, np.nan]
)


@st.composite
def adversarial(draw: st.DrawFn, width: int, labels: Sequence[float], most: int = 12) -> list[Unit]:
    """Units with numbers of all sizes, those that are none among them, and some far longer than others."""
    made = np.random.default_rng(draw(st.integers(0, 2**32)))
    result = []
    for _ in range(draw(st.integers(1, most))):
        size = draw(st.sampled_from([1, 1, 2, 3, 8, 40]))
        rows = made.normal(size=(size, width)) * 10.0 ** draw(st.sampled_from([0, 0, 0, 6, -6, -30, 12]))
        for _ in range(draw(st.sampled_from([0, 0, 1, 5]))):
            rows[draw(st.integers(0, size - 1)), draw(st.integers(0, width - 1))] = draw(strange)
        if size > 1 and draw(st.booleans()):
            rows[1] = -rows[0]  # cancels
        with np.errstate(over="ignore"):
            result.append((rows.astype(np.float32), made.choice(labels, size)))
    return result
