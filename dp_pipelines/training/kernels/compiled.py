"""Compiles loops over numbers, without Python's lock, and keeps the compiled code for the next process.

In: a function of arrays and numbers. Out: the same, compiled at its first call. Holds: nothing is reassociated or
contracted, so an operation on a number gives the same bits wherever the number is in an array; a cache that cannot be
read or written stops nothing. Not covered: what the loops compute.
"""

# Why compile? NumPy does one operation at a time and takes Python's lock for each, so two threads wait for each other
# most of the time. Compiled loops hold no lock. The first call in a process compiles, which takes some seconds.

import contextlib
from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import FunctionCache


class Cache(FunctionCache):
    """Numba's cache, but treats one that cannot be read or written as missing: no training fails because of it."""

    def load_overload(self, *given: Any) -> Any:
        """The compiled code from before, if any."""
        try:
            return super().load_overload(*given)  # type: ignore[no-untyped-call]
        except Exception:  # half a file, another user's, of another kind
            with contextlib.suppress(Exception):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, *given: Any) -> None:
        """Keep compiled code if possible."""
        with contextlib.suppress(Exception):
            super().save_overload(*given)  # type: ignore[no-untyped-call]


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled at its first call; the compiled code is kept beside this file, or in another allowed place."""
    program: Any = numba.njit(nogil=True, error_model="numpy")(function)
    with contextlib.suppress(RuntimeError):  # no folder can be written to
        program._cache = Cache(function)  # type: ignore[no-untyped-call]  # as its `enable_caching` does
    return program
