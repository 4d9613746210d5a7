"""What converters of cells share: the cell as it is, or an error that says why it does not fit.

In: a cell. Out: a value for Arrow. Holds: the text of an error has no value of a cell. Not covered: which classes become what
(`cell_values`, `time_cells`).
"""

from collections.abc import Callable
from typing import Any

Convert = Callable[[Any], Any]
"""Takes a cell of one class and returns a value that Arrow takes for the type; raises where the cell does not fit."""


class NoFitError(ValueError):
    """A cell does not fit its column. Its text says why, without the cell's value; only `check_row` shows it."""


def same(cell: Any) -> Any:
    """Return the cell as it is: Arrow converts it without loss."""
    return cell
