"""Keyed 64-bit hashes of rows: they spread rows over shards and order them, and never decide which keys are the same.

In: plain columns (`kernels.keys`), a salt. Out: one word a row. Holds: the hash of a row is a function of its values and the
salt alone, whatever the batch, the offsets and the encoding; integers of all widths hash by their value. Not covered:
secrecy; anyone who knows the salt can find values with equal hashes, which the keys themselves then tell apart.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.kernels.columns import gather, long_text

Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)


def mix(words: Words) -> Words:
    """Return a bijection of 64-bit words whose output bits depend on all input bits (the finaliser of SplitMix64).

    >>> mix(np.array([1], np.uint64)).tolist()
    [6238072747940578789]
    """
    mixed = words >> np.uint64(30)
    mixed ^= words
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    shifted = mixed >> np.uint64(27)
    mixed ^= shifted
    mixed *= np.uint64(0x94D049BB133111EB)
    np.right_shift(mixed, np.uint64(31), out=shifted)  # fresh memory would cost more than the arithmetic
    mixed ^= shifted
    return mixed


def _with_word(hashes: Words, word: Words) -> Words:
    """Continue hashes with one more word of each row."""
    together = hashes ^ word
    together += _GOLDEN
    return mix(together)


def hash_columns(columns: Sequence[pa.Array], salt: int) -> Words:
    """Return keyed 64-bit hashes of rows of plain columns. A hash spreads and orders; it never decides identity.

    Args:
        columns: plain arrays of equal length.
        salt: the run's own 64-bit number.
    """
    return hash_onto(np.full(len(columns[0]), salt % 2**64, np.uint64), columns)


def hash_onto(hashes: Words, columns: Sequence[pa.Array]) -> Words:
    """Continue given hashes, one per row, with the values of columns."""
    for column in columns:
        hashes = _absorb(hashes, column)
    return hashes


def _absorb(hashes: Words, column: pa.Array) -> Words:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = gather.decoded(column)
        kind = column.type
    valid = None
    if column.null_count:
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
    if pa.types.is_null(kind):
        return mix(hashes ^ _NULL)
    mixed = _absorb_bytes(hashes, column) if long_text.is_text(kind) else hashes
    if mixed is hashes:
        for word in _fixed_words(column):
            mixed = _with_word(mixed, word)
    return mixed if valid is None else np.where(valid, mixed, mix(hashes ^ _NULL))


def _fixed_words(column: pa.Array) -> list[Words]:
    """Return the values of a fixed-width column as 64-bit words; the words of nulls are arbitrary."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        target = pa.uint64() if kind == pa.uint64() else pa.int64()
        if column.null_count:
            column = pc.fill_null(column, False if pa.types.is_boolean(kind) else 0)
        return [column.cast(target).to_numpy(zero_copy_only=False).view(np.uint64)]
    width = kind.byte_width
    padded = -(-width // 8) * 8
    data = column.buffers()[1]
    if data is None or len(column) == 0:
        return [np.zeros(len(column), np.uint64)] * (padded // 8)
    raw = np.frombuffer(data, np.uint8, len(column) * width, column.offset * width).reshape(len(column), width)
    if padded != width:
        raw = np.concatenate([raw, np.zeros((len(column), padded - width), np.uint8)], axis=1)
    words = np.ascontiguousarray(raw).view(np.uint64)
    return [np.ascontiguousarray(words[:, i]) for i in range(padded // 8)]


def _absorb_bytes(hashes: Words, column: pa.Array) -> Words:
    """Return hashes of text or bytes, eight bytes at a time over all rows at once."""
    if len(column) == 0:  # may lack its buffers
        return hashes.copy()
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    width = np.dtype(np.int64 if wide else np.int32)
    raw_offsets = np.frombuffer(column.buffers()[1], width, len(column) + 1, column.offset * width.itemsize)
    offsets = raw_offsets.astype(np.int64)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    size, data = int(offsets[-1] - offsets[0]), column.buffers()[2]
    # Eight bytes more, so that a word that begins at the last byte can be read.
    raw = np.empty(size + 8, np.uint8)
    raw[size:] = 0
    if size:
        raw[:size] = np.frombuffer(data, np.uint8, size, int(offsets[0]))
    # A view of the same bytes in which word i begins at byte i.
    at_byte = np.ndarray((len(raw) - 7,), np.uint64, raw, 0, (1,))
    mixed = _with_word(hashes, lengths.view(np.uint64))
    length = int(lengths[0])
    if lengths.min() == lengths.max():  # as identifiers often are: no row has to be looked up
        for done in range(0, length, 8):
            words = at_byte[done::length][: len(lengths)]
            mixed = _with_word(mixed, words & _mask(np.array(length - done)))
        return mixed
    rest = lengths
    rows: NDArray[np.int64] | None = None
    done = 0
    while len(rest) and rest.max() > 0:
        if rows is None and rest.min() > 0:
            words = at_byte[starts + done]
            mixed = _with_word(mixed, words & _mask(rest))
        else:
            more = np.flatnonzero(rest > 0)
            rows = more if rows is None else rows[more]
            words = at_byte[starts[rows] + done] & _mask(rest[more])
            mixed[rows] = _with_word(mixed[rows], words)
            rest = rest[more]
        rest = rest - 8
        done += 8
    return mixed


def _mask(rest: NDArray[np.int64]) -> Words:
    """Return a mask for the first `rest` bytes of a little-endian word, all eight if there are more."""
    bits = (np.minimum(rest, 8) * 8).astype(np.uint64)
    return np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - bits)
