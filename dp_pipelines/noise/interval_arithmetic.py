"""Real numbers with a rigorous error bound (balls), and their conversion to integers and floats.

In: balls of python-flint (`arb`: midpoint and radius; every operation encloses the true result; Johansson,
"Arb: efficient arbitrary-precision midpoint-radius interval arithmetic", IEEE Trans. Comput. 2017). Out:
integers that are off by less than one, floats that are above or nearest. Holds: if a ball is too wide for an answer,
it raises an error; nothing is guessed. Not covered: the correctness of the Arb library itself, on which the tables
and tails depend.
"""

# python-flint keeps ONE precision for the whole process, all threads included. So compute with balls only inside
# `precision(...)`, which holds a lock. If other code lowers the precision meanwhile, the balls become wide and `units`
# raises. python-flint takes 0.1 s to import, so it is imported on first use.

import contextlib
import math
import os
import threading
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flint import arb

WORKING_BITS = 256
"""Bits of every midpoint: 96 more than the finest table needs."""

_lock = threading.RLock()


def _renew_lock() -> None:
    # If the process forked while another thread held the lock, the child would wait for it forever.
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def building() -> contextlib.AbstractContextManager[object]:
    """Return the lock alone, for building something out of balls exactly once."""
    return _lock


@contextlib.contextmanager
def precision(bits: int = WORKING_BITS) -> Iterator[None]:
    """Compute with balls of `bits` bits. Only one thread may at a time; the same thread may enter repeatedly."""
    with _lock:
        from flint import ctx

        with ctx.workprec(bits):
            yield


def ball(value: Fraction) -> "arb":
    """Return a ball around a rational number."""
    from flint import arb

    return arb(value.numerator) / arb(value.denominator)


def units(values: "Iterable[arb]", bits: int) -> list[int]:
    """Return for each ball an integer less than one from `value * 2**bits`: rounding adds at most 1/2, the ball 1/4.

    Raises:
        ArithmeticError: a ball is too wide to tell.

    >>> from flint import arb
    >>> with precision():
    ...     units([arb(2).sqrt(), arb(1) / 3], 10)
    [1448, 341]
    """
    from flint import arb

    one, half, quarter = arb(2) ** bits, arb(1) / 2, arb(1) / 4
    result = []
    for value in values:
        scaled = value * one + half
        nearest = scaled.mid().floor().unique_fmpz()
        if nearest is None or not scaled.rad() < quarter:
            raise ArithmeticError("a ball is too wide for an integer: the working precision was too low")
        result.append(int(nearest))
    return result


def float_above(value: "arb") -> float:
    """Return a float above every number in the ball, and as near as floats allow.

    >>> from flint import arb
    >>> float_above(arb(0)) > 0
    True
    """
    return math.nextafter(float(value.upper()), math.inf)
