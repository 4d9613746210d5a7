"""`order_by` of a stage: released columns, each rising or falling.

In: texts such as `orders desc`. Out: a column and a direction. Holds: rows without a number come last, whatever the direction;
one order has one text, since the id of a run is made of it. Not covered: whether a column is released.
"""

import dataclasses
from collections.abc import Sequence

from dp_pipelines.errors import RequestError


@dataclasses.dataclass(frozen=True, kw_only=True)
class SortColumn:
    """A released column by which rows are ordered.

    Args:
        column: its name.
        descending: whether the largest comes first.

    >>> SortColumn.read("orders DESC"), SortColumn.read("region asc").text
    (SortColumn(column='orders', descending=True), 'region')
    """

    column: str
    descending: bool = False

    @classmethod
    def read(cls, text: str) -> "SortColumn":
        """Parse a text such as `orders desc`.

        Args:
            text: a column's name; `asc` or `desc` may follow.

        Raises:
            RequestError: it names no column.
        """
        name, _, last = text.strip().rpartition(" ")
        if name.strip() and last.lower() in ("asc", "desc"):
            return cls(column=name.strip(), descending=last.lower() == "desc")
        if not text.strip():
            raise RequestError(field="", message="must name released columns", hint="write e.g. order_by: orders desc")
        return cls(column=text.strip())

    @property
    def text(self) -> str:
        """Return the text of this order, in its one canonical spelling."""
        if self.descending:
            return f"{self.column} desc"
        return self.column if SortColumn.read(self.column) == self else f"{self.column} asc"


def read_all(texts: Sequence[str]) -> list[SortColumn]:
    """Parse texts and return their columns, each once.

    Raises:
        RequestError: one names none, or names one again.
    """
    columns = [SortColumn.read(text) for text in texts]
    names = [one.column for one in columns]
    again = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if again is not None:
        raise RequestError(field="", message=f"names column {again!r} twice", hint="name each column once")
    return columns
