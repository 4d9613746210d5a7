"""Exact sums over frames, with numbers as integers of several 32-bit digits: independent of order and neighbours.

In: an array of numbers, frames. Out: 128-bit sums, as decimals or as the nearest float. Holds: integers and decimals are
added as they are; a float counts as the nearest multiple of 2**-64, and as null where it is infinite or beyond 2**63 in size.
Sums of digits fit into 64 bits for any table that fits into memory, so the difference of two running totals is exact and has
no trace of the rows before the frame. Not covered: which rows are in a frame (`frames`).
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.jobs.sql.windows.frames import Flags, Places, Words, limbs, valid_of

FRACTION_BITS = 64
"""A float is added as a multiple of 2**-64, which is about 5e-20: floats above 0.0005 in size lose nothing."""

LARGEST_FLOAT = 2.0**63
"""The largest float that is added, about 9e18."""

_DIGIT, _MASK = np.int64(2**32 - 1), np.uint64(2**32 - 1)
_32, _ONE = np.uint64(32), np.uint64(1)
_MOST = 10**38


def digits_of(array: pa.Array) -> tuple[list[NDArray[np.int64]], Flags]:
    """Numbers as sums of digit[i] * 2**(32 i), digits of any sign below 2**32 in size; and which of them count.

    >>> [digits.tolist() for digits in digits_of(pa.array([-1, 2**40]))[0]]
    [[4294967295, 0], [-1, 256]]
    """
    kind, counts = array.type, valid_of(array)
    if pa.types.is_floating(kind):
        values = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        counts &= np.abs(values) <= LARGEST_FLOAT
        # Scaling by a power of two, rounding and cutting digits off are exact.
        rest = np.rint(np.abs(np.where(counts, values, 0.0)) * 2.0**FRACTION_BITS)
        sign = np.where(values < 0, np.int64(-1), np.int64(1))
        digits = []
        for power in (2.0**96, 2.0**64, 2.0**32, 1.0):
            digit = np.floor(rest / power)
            rest -= digit * power
            digits.append(digit.astype(np.int64) * sign)
        return digits[::-1], counts
    if pa.types.is_decimal(kind):
        low, high = (np.where(counts, word, np.int64(0)) for word in limbs(array))
        middle = low.view(np.uint64) >> np.uint64(32)
        return [low & _DIGIT, middle.view(np.int64), high & _DIGIT, high >> np.int64(32)], counts
    numbers = pc.fill_null(array.cast(pa.int8()) if pa.types.is_boolean(kind) else array, 0)
    if kind == pa.uint64():
        unsigned = numbers.to_numpy(zero_copy_only=False)
        return [(unsigned & np.uint64(_DIGIT)).view(np.int64), (unsigned >> np.uint64(32)).view(np.int64)], counts
    signed = numbers.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return [signed & _DIGIT, signed >> np.int64(32)], counts


def running(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Running totals: of all values before each place, and of all values."""
    totals = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=totals[1:])
    return totals


class Sums:
    """The exact sum of each frame.

    Args:
        digits: at most four digits of the number at each place; zero where no number counts.
        low, high: the frames.
    """

    def __init__(self, digits: list[NDArray[np.int64]], low: Places, high: Places) -> None:
        carry = np.zeros(len(low), np.int64)
        parts = []
        for place in range(4):
            if place < len(digits) and digits[place].any():
                totals = running(digits[place])
                carry = carry + (totals[high] - totals[low])
            if place < 3:
                parts.append((carry & _DIGIT).view(np.uint64))
                carry = carry >> np.int64(32)
        # The sum is low + third * 2**64 + rest * 2**96, of which only the last may be negative.
        self._low, self._third, self._rest = parts[0] | (parts[1] << _32), parts[2], carry
        self.negative = carry < 0

    def _size(self) -> tuple[Words, Words, Words]:
        """The size of each sum in the same three parts."""
        low = np.where(self.negative, ~self._low + _ONE, self._low)
        carried = (self._low == 0).astype(np.uint64)
        third = np.where(self.negative, (~self._third & _MASK) + carried, self._third)
        rest = self._rest.view(np.uint64)
        return low, third & _MASK, np.where(self.negative, ~rest + (third >> _32), rest)

    def decimals(self, kind: pa.Decimal128Type, counts: Flags) -> pa.Array:
        """The sums as decimals; null if no number counts or the sum needs more than 38 digits."""
        low, third, rest = self._size()
        high = third | (rest << _32)
        most_low, most_high = np.uint64(_MOST % 2**64), np.uint64(_MOST >> 64)
        fits = (rest < _ONE << _32) & ((high < most_high) | ((high == most_high) & (low < most_low)))
        words = np.empty((len(low), 2), np.uint64)
        words[:, 0], words[:, 1] = self._low, self._third | (self._rest.view(np.uint64) << _32)
        valid = counts & fits
        words[~valid] = 0
        return pa.Array.from_buffers(kind, len(low), [pa.array(valid).buffers()[1], pa.py_buffer(words)])

    def floats(self) -> NDArray[np.float64]:
        """The float nearest to each sum."""
        low, third, rest = self._size()
        # 128 bits, of which the last says whether more followed: the whole, or all but the last 32 bits of it.
        long = rest >> _32 != 0
        high = np.where(long, rest, (rest << _32) | third)
        low = np.where(long, (third << _32) | (low >> _32) | (low & _MASK != 0).astype(np.uint64), low)
        # Their leading 64 bits, and again whether more followed: enough to round as the whole would be rounded.
        bits = np.minimum(np.frexp(high.astype(np.float64))[1], 64).astype(np.uint64)
        bits -= ((bits > 0) & (high >> (np.maximum(bits, _ONE) - _ONE) == 0)).astype(np.uint64)
        rounded = bits > 0
        back = np.uint64(64) - np.maximum(bits, _ONE)
        kept = np.where(bits == 64, np.uint64(0), low >> np.minimum(bits, np.uint64(63)))
        lost = (rounded & (low << back != 0)).astype(np.uint64)
        window = np.where(rounded, (high << back) | kept, low) | lost
        size = np.ldexp(window.astype(np.float64), bits.astype(np.int64) + np.where(long, 32, 0))
        sums: NDArray[np.float64] = np.where(self.negative, -size, size)
        return sums


def divisor_of(kind: pa.DataType) -> float:
    """How many units of the lowest digit make 1.

    >>> divisor_of(pa.decimal128(9, 2))
    100.0
    """
    if pa.types.is_floating(kind):
        return 2.0**FRACTION_BITS
    return float(10**kind.scale) if pa.types.is_decimal(kind) else 1.0
