"""The exponential of numbers, each by the same operations wherever it is in an array.

In: floats up to 0. Out: their exponentials. Holds: a result depends only on its number, bit for bit. Not covered:
accuracy in the last places.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LOG2_HIGH, _LOG2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
_FACTORIALS = [1 / math.factorial(n) for n in range(13, -1, -1)]


def exponential(x: Floats) -> Floats:
    """The exponential of numbers up to 0, to some units in the last place, by operations that IEEE 754 fixes to the last bit.

    A library's `exp` may use other instructions for the numbers at the end of an array than for those in its middle.

    >>> exponential(np.array([0.0, -np.inf])).tolist() == [1.0, exponential(np.array([-700.0]))[0]]
    True
    """
    x = np.maximum(x, -700.0)
    doublings = np.rint(x * (1 / math.log(2)))
    rest = (x - doublings * _LOG2_HIGH) - doublings * _LOG2_LOW
    result = np.full_like(x, _FACTORIALS[0])
    for factor in _FACTORIALS[1:]:
        np.multiply(result, rest, out=result)
        np.add(result, factor, out=result)
    return np.ldexp(result, doublings.astype(np.int32))
