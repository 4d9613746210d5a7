"""The private store of coded examples: a few bytes a row, their labels, and the products of each unit's whitened rows.

In: tables with whole units, an encoder. Out: `CodedChunk`s of whole units, by fixed positions or as a sorted selection.
Holds: files are private (0600) and written completely or not at all; however many rows there are, about
`store.RESIDENT` bytes of them are in memory at a time; codes and products of a unit depend only on its rows, bit for
bit, wherever they are. Not covered: as for `examples.store`.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.training import threads
from dp_pipelines.training.examples import store
from dp_pipelines.training.examples.store import Labels, Mapped, Places, Writing
from dp_pipelines.training.features.code_layout import CodeLayout, Codes, Steps

Singles = NDArray[np.float32]

MOST_KEPT = 32
"""The most rows of a unit whose products with each other are kept; of longer units the length is computed each time. Lemma 10 of
docs/proofs/training_coded.md needs no more than these."""

UNITS = 2**12
"""Units of a chunk whose products are computed at a time. It changes no result."""


class WritesCodes(Protocol):
    """Turns rows into codes; see `encoder.Encoder`."""

    @property
    def layout(self) -> CodeLayout:
        """What codes stand for."""
        ...

    def codes(self, table: pa.Table) -> tuple[Codes, Steps]:
        """The codes and scaled values of each row, which depend only on that row."""
        ...

    def labels(self, table: pa.Table) -> Labels:
        """A label for each row; NaN for none."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class CodedChunk:
    """Some whole units. The arrays may be views of files, so never write to them.

    Args:
        codes: (rows, bytes).
        scaled: (rows, scaled values), in steps of 2**-16.
        labels: (rows,).
        starts: (units + 1,): the rows of unit i are `starts[i]:starts[i + 1]`; each unit has at least one.
        products: of the whitened rows of a unit with each other, up to the diagonal, off it doubled; nothing for units
            with more than `MOST_KEPT` rows.
        product_starts: (units + 1,).
        bounds: (units,), at least the length of each of a unit's whitened rows.
    """

    codes: Codes
    scaled: Steps
    labels: Labels
    starts: Places
    products: Singles
    product_starts: Places
    bounds: Singles

    @property
    def units(self) -> int:
        """How many units."""
        return len(self.starts) - 1

    @classmethod
    def of(cls, codes: Codes, scaled: Steps, labels: Labels, starts: Places, multiply: "Multiply") -> "CodedChunk":
        """A chunk in memory, with the products of its rows."""
        none = np.zeros(0, np.float32)
        bare = cls(codes, scaled, labels, starts, none, product_starts(starts), none)
        products, bounds = multiply(bare)
        return dataclasses.replace(bare, products=products, bounds=bounds)


Multiply = Callable[[CodedChunk], tuple[Singles, Singles]]
"""The `products` and `bounds` of a chunk."""


def product_starts(starts: Places) -> Places:
    """Where the products of each unit begin.

    >>> product_starts(np.array([0, 2, 3, 103])).tolist()
    [0, 3, 4, 4]
    """
    rows = np.diff(starts)
    sizes = np.where(rows <= MOST_KEPT, rows * (rows + 1) // 2, 0)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


class CodedExamples:
    """Coded examples of many units on disk. Made by `write`, then `with_products`.

    >>> import tempfile
    >>> class Coder:
    ...     layout = CodeLayout(hot=(3,), scaled=(False,))
    ...     def codes(self, table):
    ...         return self.layout.coded([table["a"].to_numpy()], len(table)), np.zeros((len(table), 0), np.int32)
    ...     def labels(self, table):
    ...         return table["b"].to_numpy()
    >>> tables = [pa.table({"who": [7, 7, 8], "a": [2, 1, 1], "b": [1.0, 0.0, float("nan")]})]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     examples = CodedExamples.write(folder, "training", tables, Coder(), ["who"])
    ...     examples.units, examples.rows, examples.take(np.array([0])).codes.tolist()
    (1, 2, [[2], [1]])
    """

    layout: CodeLayout

    def __init__(self, layout: CodeLayout, starts: Places, codes: Mapped, scaled: Mapped, labels: Mapped) -> None:
        self.layout = layout
        self._starts, self._codes, self._scaled, self._labels = starts, codes, scaled, labels
        # Before they are computed, no unit has products.
        self._product_starts = np.zeros(len(starts), np.int64)
        self._products: Mapped | None = None
        self._bounds = np.zeros(len(starts) - 1, np.float32)
        self._touched = 0

    @property
    def units(self) -> int:
        """The number of units with an example."""
        return len(self._starts) - 1

    @property
    def rows(self) -> int:
        """The number of examples."""
        return int(self._starts[-1])

    @property
    def width(self) -> int:
        """The number of columns that the codes stand for."""
        return self.layout.width

    @classmethod
    def write(
        cls,
        folder: str | os.PathLike[str],
        name: str,
        tables: Iterable[pa.Table],
        encoder: WritesCodes,
        unit: Sequence[str],
    ) -> "CodedExamples":
        """Encode tables into new files of a private folder. Arguments as for `Examples.write`."""
        layout = encoder.layout
        paths = [pathlib.Path(folder) / f"{name}.{kind}" for kind in ("codes", "scaled", "labels")]

        def of(table: pa.Table) -> tuple[Codes, Steps, Labels, Places]:
            labels = encoder.labels(table)
            kept, counts = store.by_unit(table, unit, ~np.isnan(labels))
            codes, scaled = encoder.codes(table)
            return codes[kept], scaled[kept], labels[kept].astype(np.float64), counts

        sizes: list[Places] = [np.zeros(1, np.int64)]
        with Writing(paths[0]) as codes_file, Writing(paths[1]) as scaled_file, Writing(paths[2]) as labels_file:
            for codes, scaled, labels, counts in threads.in_order(of, iter(tables)):
                codes_file.write(codes, layout.bytes)
                scaled_file.write(scaled, len(layout.scaled_columns))
                labels_file.write(labels)
                sizes.append(counts)
        starts = np.cumsum(np.concatenate(sizes))
        rows = int(starts[-1])
        return cls(
            layout,
            starts,
            Mapped(paths[0], np.uint8, (rows, layout.bytes)),
            Mapped(paths[1], np.int32, (rows, len(layout.scaled_columns))),
            Mapped(paths[2], np.float64, (rows,)),
        )

    def with_products(self, folder: str | os.PathLike[str], name: str, multiply: Multiply) -> "CodedExamples":
        """The same examples with the products of whitened rows, in a new file.

        Args:
            folder, name: as for `write`.
            multiply: called in several threads.
        """
        path, bounds = pathlib.Path(folder) / f"{name}.products", [np.zeros(0, np.float32)]
        with Writing(path) as file:
            for products, own in threads.in_order(multiply, self.chunks(UNITS)):
                file.write(products)
                bounds.append(own)
        found = type(self)(self.layout, self._starts, self._codes, self._scaled, self._labels)
        found._product_starts = product_starts(self._starts)
        found._products = Mapped(path, np.float32, (int(found._product_starts[-1]),))
        found._bounds = np.concatenate(bounds)
        return found

    def chunks(self, units_per_chunk: int) -> Iterator[CodedChunk]:
        """All units, this many at a time; the last chunk has the rest. Unit i is always at the same chunk and place."""
        for first in range(0, self.units, units_per_chunk):
            last = min(first + units_per_chunk, self.units)
            begin, end = int(self._starts[first]), int(self._starts[last])
            low, high = int(self._product_starts[first]), int(self._product_starts[last])
            self._touch(
                (end - begin) * (self.layout.bytes + 4 * len(self.layout.scaled_columns) + 8) + 4 * (high - low)
            )
            yield CodedChunk(
                self._codes.array[begin:end],
                self._scaled.array[begin:end],
                self._labels.array[begin:end],
                self._starts[first : last + 1] - begin,
                np.zeros(0, np.float32) if self._products is None else self._products.array[low:high],
                self._product_starts[first : last + 1] - low,
                self._bounds[first:last],
            )

    def take(self, units: Places) -> CodedChunk:
        """Some units.

        Args:
            units: different numbers from 0 to `units` - 1, ascending.
        """
        begins, starts = _ranges(self._starts, units)
        lows, products_at = _ranges(self._product_starts, units)
        return CodedChunk(
            self._codes.take(begins, starts),
            self._scaled.take(begins, starts),
            self._labels.take(begins, starts),
            starts,
            np.zeros(0, np.float32) if self._products is None else self._products.take(lows, products_at),
            products_at,
            self._bounds[units],
        )

    def _touch(self, size: int) -> None:
        """As `Examples._touch`."""
        self._touched += size
        if self._touched > store.RESIDENT:
            for file in (self._codes, self._scaled, self._labels, self._products):
                if file is not None:
                    file.let_go()
            self._touched = 0


def _ranges(starts: Places, units: Places) -> tuple[Places, Places]:
    """Where some units begin, and where they do once they stand one after another."""
    begins = starts[units]
    return begins, np.concatenate([np.zeros(1, np.int64), np.cumsum(starts[units + 1] - begins)])
