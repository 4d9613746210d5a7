"""Real numbers with a rigorous error bound (balls), and the way from them to integers and floats.

In: balls of python-flint (`arb`: midpoint and radius; every operation encloses the true result; Johansson,
"Arb: efficient arbitrary-precision midpoint-radius interval arithmetic", IEEE Trans. Comput. 2017). Out:
integers that are off by less than one, floats that are above or nearest. Holds: a ball that is too wide to
answer raises; nothing is guessed. Not covered: the correctness of the Arb library itself, on which the tables
and tails rest.
"""

# python-flint keeps ONE precision for the whole process, all threads included. So whoever computes with balls
# does it inside `precision(...)`, which holds a lock; and where foreign code lowers the precision meanwhile, the
# balls become wide and `units` raises. python-flint costs 0.1 s to import and is imported on first use.

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
    # A fork while another thread holds the lock would leave it held forever in the child.
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def building() -> contextlib.AbstractContextManager[object]:
    """The lock alone, for whoever builds something out of balls that should be built once."""
    return _lock


@contextlib.contextmanager
def precision(bits: int = WORKING_BITS) -> Iterator[None]:
    """Computes with balls of `bits` bits; one thread at a time, and the same thread again and again."""
    with _lock:
        from flint import ctx

        with ctx.workprec(bits):
            yield


def ball(value: Fraction) -> "arb":
    """A ball around a rational number."""
    from flint import arb

    return arb(value.numerator) / arb(value.denominator)


def units(values: "Iterable[arb]", bits: int) -> list[int]:
    """For each ball an integer within less than one of `value * 2**bits`: at most 1/2 by rounding and 1/4 by the ball.

    Raises:
        ArithmeticError: a ball is too wide to say.

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
    """A float above every number in the ball, and as near as floats allow.

    >>> from flint import arb
    >>> float_above(arb(0)) > 0
    True
    """
    return math.nextafter(float(value.upper()), math.inf)
