"""Notes: what steps count of the rows that pass them, as small tables that add up.

In: names of facts, each with a number. Out: tables of two columns, and their sums. Holds: notes of disjoint rows add up to the
notes of all rows, in any order; a table of notes is told from rows by the names of its columns. NOT private: every number depends
on rows. Not covered: which facts there are (`findings`).
"""

import json
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

FACT, NUMBER = "__dp_fact", "__dp_number"
"""The columns of a table of notes; no column that a job defines begins with two underscores."""

Fact = tuple[str, ...]


class Notes:
    """Numbers by the names of their facts, which begin alike.

    Args:
        about: how all these names begin.

    >>> notes = Notes("rows", "orders")
    >>> notes.add("read", 3)
    >>> notes.add("read", 4)
    >>> read_notes([notes.table()])
    {('rows', 'orders', 'read'): 7.0}
    """

    def __init__(self, *about: str) -> None:
        self._about, self._numbers = about, dict[Fact, float]()

    def add(self, *fact_and_number: str | float) -> None:
        """Add a number to a fact.

        Args:
            fact_and_number: the rest of the fact's name, then the number.
        """
        *named, number = fact_and_number
        fact = (*self._about, *map(str, named))
        self._numbers[fact] = self._numbers.get(fact, 0.0) + float(number)

    def table(self) -> pa.Table:
        """All of them, on their way."""
        return _table(self._numbers)


def is_notes(table: pa.Table) -> bool:
    """Whether a table holds notes, and no rows."""
    return bool(table.column_names == [FACT, NUMBER])


def nothing() -> pa.Table:
    """No notes."""
    return _table({})


def merged(tables: Iterable[pa.Table]) -> pa.Table:
    """The sums of notes of disjoint rows, by name.

    Args:
        tables: of notes.
    """
    return _table(dict(sorted(read_notes(tables).items())))


def read_notes(tables: Iterable[pa.Table]) -> dict[Fact, float]:
    """The sums by the names of facts.

    Args:
        tables: of notes.
    """
    found: dict[Fact, float] = {}
    for table in tables:
        for name, number in zip(table.column(FACT).to_pylist(), table.column(NUMBER).to_pylist(), strict=True):
            fact = tuple(json.loads(name))
            found[fact] = found.get(fact, 0.0) + number
    return found


def _table(numbers: dict[Fact, float]) -> pa.Table:
    names = pa.array([json.dumps(fact) for fact in numbers], pa.string())
    return pa.table({FACT: names, NUMBER: pa.array(np.array(list(numbers.values()), np.float64))})
