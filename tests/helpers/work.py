"""How much work a call is, without a clock: the calls of functions that it makes, and the memory that it holds at most.

In: a function without arguments. Out: whole numbers that hardly depend on the machine, on what else it does or on the time.
Holds: work that grows faster than the input shows as more calls or as more memory. Not covered: time within one call of C, such
as that of numpy on a long array; scripts in benchmarks/ measure times side by side.
"""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any


def calls_of(function: Callable[[], object]) -> int:
    """Return how many functions of Python and C are called in a call of this function."""
    counted = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    collecting, before = gc.isenabled(), sys.getprofile()
    gc.disable()  # what hooks of a collection call is no work of this function
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
    return counted


def most_memory_of(function: Callable[[], object]) -> int:
    """Return how many bytes a call of this function has allocated at once, at most, as Python and numpy tell."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
