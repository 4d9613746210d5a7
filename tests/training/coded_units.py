"""Coded units in memory, ordinary and adversarial, for the tests of models over codes.

In: a layout. Out: units, chunks of them, and the dense rows that they stand for. Holds: chunks hold copies, in the order of
the units given. Not covered: files.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import strategies as st

from dp_pipelines.training.examples.coded import CodedChunk, Multiply
from dp_pipelines.training.features.code_layout import CodeLayout

LAYOUT = CodeLayout(hot=(11, 11, 4, 300, 3), scaled=(False, True, False, False, True))
"""Pieces of a byte, a feature in two bytes, two scaled values."""

STEPS = 2**16


@dataclasses.dataclass(frozen=True, eq=False)
class Coded:
    """A unit: which column of each feature is 1 in each row, scaled values in steps, labels."""

    places: np.ndarray
    scaled: np.ndarray
    labels: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.labels)


def unit(made: np.random.Generator, rows: int, labels: Sequence[float], layout: CodeLayout = LAYOUT) -> Coded:
    """Any rows."""
    places = np.array([made.integers(0, hot, rows) for hot in layout.hot]).reshape(len(layout.hot), rows)
    scaled = made.integers(0, STEPS + 1, (rows, len(layout.scaled_columns)))
    return Coded(places, scaled.astype(np.int32), made.choice(np.array(labels), rows))


def dense(units: Sequence[Coded], layout: CodeLayout = LAYOUT) -> np.ndarray:
    """The rows as the encoder would write them."""
    found = np.zeros((sum(each.rows for each in units), layout.width))
    found[:, 0] = 1
    places = np.concatenate([each.places for each in units], axis=1)
    column = 1
    for feature, (hot, scaled) in enumerate(zip(layout.hot, layout.scaled, strict=True)):
        found[np.arange(len(found)), column + places[feature]] = 1
        column += hot + scaled
    found[:, layout.scaled_columns] = np.concatenate([each.scaled for each in units]) / STEPS
    return found


def chunk_of(units: Sequence[Coded], multiply: Multiply, layout: CodeLayout = LAYOUT) -> CodedChunk:
    """The units as a chunk, with the products of their rows."""
    none = Coded(
        np.zeros((len(layout.hot), 0), np.int64), np.zeros((0, len(layout.scaled_columns)), np.int32), np.zeros(0)
    )
    parts = [none, *units]
    places = np.concatenate([each.places for each in parts], axis=1)
    starts = np.cumsum([each.rows for each in parts])
    labels = np.concatenate([each.labels for each in parts])
    scaled = np.concatenate([each.scaled for each in parts])
    return CodedChunk.of(layout.coded(list(places), len(labels)), scaled, labels, starts, multiply)


@dataclasses.dataclass(frozen=True)
class FewCoded:
    """Units in memory with the interface of `training.examples.coded.CodedExamples`."""

    of: Sequence[Coded]
    multiply: Multiply
    layout: CodeLayout = LAYOUT

    @property
    def width(self) -> int:
        return self.layout.width

    @property
    def units(self) -> int:
        return len(self.of)

    def take(self, units: np.ndarray) -> CodedChunk:
        return chunk_of([self.of[place] for place in units], self.multiply, self.layout)

    def chunks(self, units_per_chunk: int) -> Iterator[CodedChunk]:
        for begin in range(0, self.units, units_per_chunk):
            yield self.take(np.arange(begin, min(begin + units_per_chunk, self.units)))


@st.composite
def adversarial(draw: st.DrawFn, labels: Sequence[float], most: int = 8) -> list[Coded]:
    """Units of one row and of many, with equal rows, rows that cancel, and extreme scaled values."""
    made = np.random.default_rng(draw(st.integers(0, 2**32)))
    result = []
    for _ in range(draw(st.integers(1, most))):
        rows = draw(st.sampled_from([1, 1, 2, 3, 8, 32, 33, 50]))
        one = unit(made, rows, labels)
        kind = draw(st.sampled_from(["any", "equal", "equal but labels", "extreme"]))
        places, scaled, own = one.places.copy(), one.scaled.copy(), one.labels.copy()
        if kind.startswith("equal"):
            places[:], scaled[:] = places[:, :1], scaled[:1]
        if kind == "equal":
            own[:] = own[0]
        if kind == "extreme":
            scaled[:] = made.choice([0, STEPS], scaled.shape)
        result.append(Coded(places, scaled, own))
    return result
