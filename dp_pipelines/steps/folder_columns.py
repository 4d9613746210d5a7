"""Columns that a file does not hold itself: what names of folders say (`week=2026-01-05/`), what it may lack, numbers of rows.

In: tables of a file, its path, declared types. Out: the same tables with these columns. Holds: a value follows from the name of
the file alone, which is public; `__HIVE_DEFAULT_PARTITION__` is null, and so is a column that a file lacks. The number of a row
follows from its file and its place there: who reads the file again gets the same. Not covered: whether names fit their types,
which is checked before a run (`jobs.sources.source_files`).
"""

import dataclasses
import hashlib
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels.columns.csv_format import DEFAULT
from dp_pipelines.kernels.columns.csv_values import text_values
from dp_pipelines.steps.step import Step

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and others write in place of null."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderColumns:
    """Columns that files do not hold themselves.

    Args:
        folders: types of the columns that names of folders say.
        optional: types of the columns that a file may lack.
        number: the column with a number for each row, 64 bits without a sign, of which no two are alike but by a chance of
            2**-64 for each pair; empty: there is none.
    """

    folders: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)
    optional: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)
    number: str = ""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.folders or self.optional or self.number)

    def around(self, step: Step, columns: Sequence[str]) -> Step:
        """Return a step that reads files, with these columns added to its tables.

        Args:
            step: gets paths, or parts of files as `RowGroups` gives them.
            columns: all that are wanted, in their order.
        """
        if not self:
            return step
        made = FilledParts(step, self, tuple(columns)) if step.alone else FilledTables(step, self, tuple(columns))
        return made

    def of_files(self, columns: Sequence[str]) -> list[str]:
        """Return those columns that are read from the files."""
        return [name for name in columns if name not in self.folders and name != self.number]


NONE = FolderColumns()


def said_in(path: str) -> dict[str, str]:
    """Return the values that folders of a path say, by name.

    >>> said_in("/data/shop=k%20b/week=2026-01-05/part-0.parquet")
    {'shop': 'k b', 'week': '2026-01-05'}
    """
    parts = (part.partition("=") for part in path.split("/")[:-1])
    return {urllib.parse.unquote(name): urllib.parse.unquote(text) for name, equals, text in parts if equals and name}


def value_of(text: str, name: str, kind: pa.DataType) -> pa.Array:
    """Return the value that a folder's name says, as an array of one element: null where it says so or fits no value.

    >>> value_of("2026-01-05", "week", pa.date32()).to_pylist(), value_of("x", "week", pa.date32()).to_pylist()
    ([datetime.date(2026, 1, 5)], [None])
    """
    if text == NO_VALUE:
        return pa.nulls(1, kind)
    return text_values(pa.array([text], pa.string()), name, kind, DEFAULT)


class FilledTables(Step):
    """The tables of a file with columns that it does not hold.

    Args:
        step: gives its tables.
        added: the columns.
        columns: all that are wanted, in their order.
    """

    def __init__(self, step: Step, added: FolderColumns, columns: tuple[str, ...]) -> None:
        self._step, self._added, self._columns = step, added, columns

    def process(self, element: Any) -> Iterator[pa.Table]:
        """Tables, the first one without rows."""
        path, first = (element, 0) if isinstance(element, str) else element[0]
        said = said_in(path) if self._added.folders else {}
        values = {name: value_of(said[name], name, kind) for name, kind in self._added.folders.items()}
        begin = _begin(path, first) if self._added.number in self._columns else np.zeros(1, np.uint64)
        for table in self._step.process(element):
            own = dict(zip(table.column_names, table.columns, strict=True))
            for name in self._columns:
                if name in values:
                    own[name] = pa.repeat(values[name][0], table.num_rows)
                elif name == self._added.number:
                    own[name] = pa.array(begin + np.arange(table.num_rows, dtype=np.uint64))
                    begin = begin + np.uint64(table.num_rows)
                elif name not in own and name in self._added.optional:
                    own[name] = pa.nulls(table.num_rows, self._added.optional[name])
            yield pa.table({name: own[name] for name in self._columns})


def _begin(path: str, first: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the number of the first row of a part of a file, as an array of one, in which adding wraps around."""
    digest = hashlib.blake2b(f"{first} {path}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.frombuffer(digest, np.uint64)


class FilledParts(FilledTables):
    """The same for parts of files, each of which is worth a task of its own."""

    alone = True
