"""A published table as a grid: a row for each combination of all keys but the last, a column for each value of the last key.

In: the keys of the rows, in the order of the file. Out: which row of the table is in which cell. Holds: rows have the order in
which their combinations first appear, columns that of the values, null last; no two values have the same heading. Not covered:
the cells themselves (`csv_columns`).
"""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.jobs.outputs.text_tables import csv_texts_of
from dp_pipelines.kernels.columns import gather

CELLS = 2**20
"""Cells that are written at a time. It changes no byte."""

MIDNIGHT = r" 00:00:00(\.0+)?Z?$"
"""The time of day of a moment that begins a day, in UTC where its column has a zone."""

SEPARATOR = ": "
"""Stands between the name of a column and the value of the last key in a heading."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WideGrid:
    """Where the rows of a table are in a wide one.

    Args:
        first: for each row of the wide table, the first row of the table with its keys.
        across: for each row of the table, its row in the wide one.
        down: for each row of the table, the place of the value of its last key.
        headings: the values of the last key, as texts.
    """

    first: NDArray[np.int64]
    across: NDArray[np.int64]
    down: NDArray[np.int64]
    headings: tuple[str, ...]

    def parts(self, keys: Mapping[str, pa.Array], numbers: Mapping[str, pa.Array]) -> Iterator[list[pa.Array]]:
        """Yield the cells of the wide table, some rows at a time: a list of columns in the order of `names`.

        Args:
            keys: the cells of all keys but the last, by column.
            numbers: the cells of all other columns.
        """
        width = max(1, len(self.headings) * max(1, len(numbers)))
        size = max(1, CELLS // width)
        order = np.argsort(self.across, kind="stable")
        starts = np.searchsorted(self.across[order], np.arange(0, len(self.first) + size, size))
        for number, (start, stop) in enumerate(itertools.pairwise(starts.tolist())):
            rows, begin = order[start:stop], number * size
            groups = self.first[begin : begin + size]
            places = np.full((len(self.headings), len(groups)), -1, dtype=np.int64)
            places[self.down[rows], self.across[rows] - begin] = rows
            taken = [pa.array(place, mask=place < 0) for place in places]
            of_keys = [cells.take(pa.array(groups)) for cells in keys.values()]
            yield [*of_keys, *(cells.take(place).fill_null("") for cells in numbers.values() for place in taken)]

    def names(self, keys: Sequence[str], numbers: Sequence[str]) -> list[str]:
        """Return the columns of the wide table. Arguments as the keys of those of `parts`."""
        return [*keys, *(f"{name}{SEPARATOR}{heading}" for name in numbers for heading in self.headings)]


def grid_of(keys: Sequence[pa.ChunkedArray]) -> WideGrid:
    """Return where the rows of a table are in a wide one.

    Args:
        keys: the columns of the keys, at least two.

    >>> grid = grid_of([pa.chunked_array([["b", "b", "a"]]), pa.chunked_array([[2, 1, 2]])])
    >>> grid.headings, grid.first.tolist(), grid.across.tolist(), grid.down.tolist()
    (('1', '2'), [0, 2], [0, 0, 1], [1, 0, 1])
    """
    values, down = _in_order(keys[-1])
    codes = _codes(keys[:-1])
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return WideGrid(first=first[order], across=place[inverse.reshape(-1)], down=down, headings=headings_of(values))


def combinations(keys: Sequence[pa.ChunkedArray]) -> int:
    """Return how many combinations of values some columns have: the rows of a wide table.

    Args:
        keys: the columns, at least one.

    >>> combinations([pa.chunked_array([["b", "b", "a", None]]), pa.chunked_array([[2, 2, 2, 2]])])
    3
    """
    return len(np.unique(_codes(keys)))


def _codes(keys: Sequence[pa.ChunkedArray]) -> NDArray[np.int64]:
    """Return a number for each row: equal ones for equal keys."""
    codes = np.zeros(len(keys[0]), dtype=np.int64)
    for column in keys:
        of_column = gather.one_array(column).dictionary_encode(null_encoding="encode")
        both = codes * max(1, len(of_column.dictionary)) + np.asarray(of_column.indices, dtype=np.int64)
        codes = np.unique(both, return_inverse=True)[1].reshape(-1)  # so that products stay small
    return codes


def _in_order(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the distinct values of a column, null last, and for each row the place of its value."""
    coded = gather.one_array(column).dictionary_encode(null_encoding="encode")
    try:
        order = np.asarray(pc.array_sort_indices(coded.dictionary), dtype=np.int64)
    except (pa.ArrowException, TypeError):  # a type without an order: as they first appear
        order = np.arange(len(coded.dictionary))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    indices = np.asarray(coded.indices, dtype=np.int64)
    return coded.dictionary.take(pa.array(order)), place[indices]


def headings_of(values: pa.Array) -> tuple[str, ...]:
    """Return distinct values as distinct texts: null as `null`, and texts that could be taken for it as JSON.

    The time of day is left out where all moments begin a day.

    Args:
        values: distinct ones.

    >>> headings_of(pa.array(["a", "", "null", None]))
    ('a', '""', '"null"', 'null')
    """
    if pa.types.is_string(values.type):
        texts = values.to_pylist()
        return tuple(
            "null" if text is None else json.dumps(text) if text in ("", "null") or text[0] == '"' else text
            for text in texts
        )
    cells = [text.removeprefix('"').removesuffix('"') for text in csv_texts_of(pa.chunked_array([values])).to_pylist()]
    if pa.types.is_timestamp(values.type):
        bare = pc.replace_substring_regex(pa.array(cells, pa.string()), MIDNIGHT, "").to_pylist()
        cells = bare if all(" " not in text for text in bare) else cells
    return tuple(text or "null" for text in cells)
