"""Calls a function for each of many rows: what it raises costs that row alone.

In: a function, rows of any kind. Out: a result for each row. Holds: the function is called once for a row, since it may change
the row: else one row that raises would cost other rows their cells. Not covered: what the function prints or remembers.
"""

from collections.abc import Callable
from typing import Any

from dp_pipelines import interrupts


def of_each(function: Callable[[Any], Any], rows: list[Any], failed: Any = None) -> list[Any]:
    """Return what a function gives for each row.

    Args:
        function: of one row.
        rows: of any kind.
        failed: the result where it raises.

    >>> of_each(lambda row: 6 // row, [3, 0, 2])
    [2, None, 3]
    """
    results: list[Any] = []
    waiting = map(function, rows)
    while len(results) < len(rows):
        try:
            results.extend(waiting)  # keeps what comes before a row that raises; the next call goes on behind that row
        except BaseException:  # in words that may quote the row; `exit()` too
            interrupts.end_if_asked()
        if len(results) < len(rows):  # an interrupt may come behind the last row
            results.append(failed)  # where it raised; StopIteration ends `extend` without an error
    return results
