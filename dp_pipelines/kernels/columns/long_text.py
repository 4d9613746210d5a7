"""Long text and bytes as keys: a 256-bit digest travels with the rows, the text itself once for each key.

In: text or bytes of a unit, a partition, a row id or a value to be counted. Out: the same column with each value of more than
`SHORT` bytes replaced by a digest of `STAND_IN` bytes; the replaced texts, as separate tables. Holds: equal digests are equal
texts (BLAKE2b with 256 bits, no salt: one text has one digest in every run, table and runner); no short text looks like a digest,
since it has fewer bytes. Not covered: partition keys of more than `LONGEST_KEY` bytes, which are null.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.sizes import ELEMENT_BYTES

SHORT = 64
"""Bytes of a text that travels as it is; a longer one travels as its digest."""

STAND_IN = SHORT + 1
"""Bytes of '#' and the digest in hexadecimal digits. No text that stays has this length."""

LONGEST_KEY = 2**14
"""The most bytes of a partition key; a longer one counts as null."""

AT_ONCE = 2**28
"""Bytes of long texts that are processed together."""

KEY, TEXT = "long_key", "long_text"
"""The columns of a table of texts. Such a table travels with tables of rows; its columns distinguish it from them."""

Texts = dict[bytes, bytes]
"""The replaced text by its digest."""


def is_text(kind: pa.DataType) -> bool:
    """Return True if values of a type are text or bytes of any length.

    >>> is_text(pa.large_binary()), is_text(pa.int64())
    (True, False)
    """
    views = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return bool(views or large or pa.types.is_string(kind) or pa.types.is_binary(kind))


def stand_in(text: bytes) -> bytes:
    """Return the digest that replaces a long text, with a leading '#'.

    >>> len(stand_in(b"a" * 65))
    65
    """
    return b"#" + hashlib.blake2b(text, digest_size=32).hexdigest().encode()


def shortened(values: pa.Array, *, texts: Texts | None = None, longest: int | None = None) -> pa.Array:
    """Replace each text of more than `SHORT` bytes by its digest.

    Args:
        values: a plain array, not a dictionary.
        texts: the replaced texts are added to it.
        longest: a value of more bytes becomes null; None: no value does.

    >>> shortened(pa.array(["a", "b" * 65])).to_pylist()[1][:9]
    '#d886b37f'
    """
    sizes = pc.binary_length(values)
    if (pc.max(sizes).as_py() or 0) <= SHORT:
        return values
    lengths = pc.fill_null(sizes, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    too_long = np.zeros(len(lengths), np.bool_) if longest is None else lengths > longest
    places = np.flatnonzero((lengths > SHORT) & ~too_long)
    pieces = [
        _stand_ins(gather.take(values, places[begin:end]), texts)
        for begin, end in gather.byte_slices(lengths[places], AT_ONCE)
    ]
    mask = np.zeros(len(lengths), np.bool_)
    mask[places] = True
    if pieces:
        replacement = gather.joined(pieces)
        values = gather.replaced(values, mask, replacement.cast(values.type))
    return gather.replaced(values, too_long, None) if too_long.any() else values


def _stand_ins(long: pa.Array, texts: Texts | None) -> pa.Array:
    """Return the digest of each long text; one that repeats is digested once."""
    codes = long.dictionary_encode()
    dictionary = [value.as_buffer().to_pybytes() for value in codes.dictionary]
    digests = [stand_in(text) for text in dictionary]
    if texts is not None:
        texts.update(zip(digests, dictionary, strict=True))
    return gather.take(pa.array(digests, pa.binary()), codes.indices)


def with_texts(
    cut: Iterable[tuple[int, pa.Table]], names: Sequence[str], texts: Mapping[bytes, bytes], most: int = ELEMENT_BYTES
) -> Iterator[tuple[int, pa.Table]]:
    """Yield tables of rows with their destinations, and for each destination the texts of its long keys, each once.

    Args:
        cut: (destination, rows).
        names: the key columns.
        texts: of all digests that the rows hold.
        most: bytes of a table of texts, unless one text is larger.
    """
    sent: dict[int, set[bytes]] = {}
    for destination, rows in cut:
        yield destination, rows
        if texts:
            new = _stand_ins_of(rows, names) - sent.setdefault(destination, set())
            sent[destination] |= new
            yield from ((destination, table) for table in _tables(sorted(new), texts, most))


def apart(tables: Iterable[pa.Table]) -> tuple[list[pa.Table], Texts]:
    """Separate tables of rows from tables of texts, and return both.

    >>> apart([pa.table({"p0": [1]})])[1]
    {}
    """
    rows, texts = [], Texts()
    for table in tables:
        if table.column_names == [KEY, TEXT]:
            texts.update(zip(table.column(KEY).to_pylist(), table.column(TEXT).to_pylist(), strict=True))
        else:
            rows.append(table)
    return rows, texts


def restored(column: pa.Array | pa.ChunkedArray, texts: Mapping[bytes, bytes]) -> pa.ChunkedArray:
    """Replace each digest in a key column by its text.

    Args:
        column: plain, or of codes.
        texts: of all digests that it holds.
    """
    column = gather.one_array(column)
    if pa.types.is_dictionary(column.type):
        return pa.chunked_array([pa.DictionaryArray.from_arrays(column.indices, _restored(column.dictionary, texts))])
    return gather.as_type(_restored(column, texts), column.type) if is_text(column.type) else pa.chunked_array([column])


def _restored(values: pa.Array, texts: Mapping[bytes, bytes]) -> pa.Array:
    if not is_text(values.type):
        return values
    mask = pc.equal(pc.fill_null(pc.binary_length(values), 0), STAND_IN).to_numpy(zero_copy_only=False)
    if not mask.any():
        return values
    long = gather.filtered(values, mask).cast(pa.binary()).to_pylist()
    assert all(key in texts for key in long), "a digest arrived without its text"
    # Texts of 16 KiB each may be more than 32-bit offsets address.
    restored = pa.array([texts[key] for key in long], pa.large_binary())
    return gather.replaced(values, mask, restored)


def are_stand_ins(values: pa.Array) -> NDArray[np.bool_]:
    """Return True for digests of long texts in a plain array, by their length; False for all values of other types.

    >>> are_stand_ins(pa.array([stand_in(b"a").decode(), "a", None])).tolist()
    [True, False, False]
    """
    if not is_text(values.type):
        return np.zeros(len(values), np.bool_)
    flags: NDArray[np.bool_] = pc.fill_null(pc.equal(pc.binary_length(values), STAND_IN), False).to_numpy(
        zero_copy_only=False
    )
    return flags


def holds_stand_in(values: pa.Array) -> bool:
    """Return True if a plain array has a digest of a long text.

    >>> holds_stand_in(pa.array([stand_in(b"a").decode()])), holds_stand_in(pa.array(["a"])), holds_stand_in(pa.array([1]))
    (True, False, False)
    """
    return bool(are_stand_ins(values).any())


def _stand_ins_of(rows: pa.Table, names: Sequence[str]) -> set[bytes]:
    """Return the digests of long texts in some rows."""
    stand_ins: set[bytes] = set()
    for name in names:
        for chunk in rows.column(name).chunks:
            values = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
            if is_text(values.type):
                long = pc.equal(pc.binary_length(values), STAND_IN)
                if pc.any(long).as_py():
                    stand_ins.update(gather.filtered(values, long).cast(pa.binary()).to_pylist())
    return stand_ins


def _tables(stand_ins: Sequence[bytes], texts: Mapping[bytes, bytes], most: int) -> Iterator[pa.Table]:
    lengths = np.array([len(texts[key]) + STAND_IN for key in stand_ins], np.int64)
    for begin, end in gather.byte_slices(lengths, most):
        part = stand_ins[begin:end]
        columns = [pa.array(part, pa.binary()), pa.array([texts[key] for key in part], pa.binary())]
        yield pa.table(columns, names=[KEY, TEXT])
