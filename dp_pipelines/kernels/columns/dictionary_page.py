"""Tells from the page of a Parquet dictionary, without decoding it, whether all its texts are short.

In: a file, and its footer's description of a column chunk. Out: True if every entry is seen to be short; False if one
may be long or the page is of a kind that this module does not follow. The caller then decodes the dictionary, which
takes three times as long as the rows. Holds: True is proved entry by entry, whatever bytes the page holds. Not covered:
encrypted files, and codecs that pyarrow has under another name.
"""

from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet

LARGEST_PAGE = 2**26
"""Bytes of a page that is looked at here, packed or not."""

SHORT = 255
"""The most bytes of a short text: its length fits one of the four bytes before it."""

MOST_PIECES = 2**10
"""Runs of entries that are followed one by one."""

CODECS = frozenset({"SNAPPY", "GZIP", "BROTLI", "ZSTD"})

STRUCT, I32 = 12, 5
"""Types of a field in Thrift's compact protocol, in which headers of pages are written."""


def all_short(stream: BinaryIO, chunk: pyarrow.parquet.ColumnChunkMetaData) -> bool:
    """Return True if every text of the dictionary of a column chunk is known to have at most `SHORT` bytes.

    Args:
        stream: the file; its position afterwards is undefined.
        chunk: of a column of byte arrays that has a dictionary page.
    """
    begin, end = chunk.dictionary_page_offset, chunk.data_page_offset
    if begin is None or not 0 <= begin < end <= begin + LARGEST_PAGE:
        return False
    stream.seek(begin)
    texts = _unpacked(stream.read(end - begin), chunk.compression)
    return texts is not None and _all_short(np.frombuffer(texts, np.uint8))


def _unpacked(page: bytes, codec: str) -> pa.Buffer | None:
    """Return the content of a page after its header: each text after its length in four bytes. None if it cannot be read."""
    try:
        fields, header = _header(page)
    except IndexError:
        return None
    size, packed, texts = fields.get(2, -1), fields.get(3, -1), pa.py_buffer(page)[header:]
    if packed != texts.size or not 0 <= size <= LARGEST_PAGE:
        return None
    if codec == "UNCOMPRESSED":
        return texts
    try:
        return pa.decompress(texts, decompressed_size=size, codec=codec.lower()) if codec in CODECS else None
    except (pa.ArrowException, OSError, ValueError):
        return None


def _header(page: bytes) -> tuple[dict[int, int], int]:
    """Return the whole numbers of a page's header by their field, and where it ends.

    The format: https://parquet.apache.org/docs/file-format/data-pages/ and Thrift's compact protocol. A dictionary page has
    numbers, then one struct of numbers (and a flag, which takes no bytes of its own).
    """
    at, field, fields, depth = 0, 0, dict[int, int](), 0
    while True:
        mark, at = page[at], at + 1
        if not mark and not depth:
            return fields, at
        if not mark:
            depth -= 1
            continue
        step, kind = divmod(mark, 16)
        if not step:  # a field whose number is written out: no writer needs it here
            raise IndexError
        field = field + step if not depth else field
        if kind == STRUCT:
            depth += 1
        elif kind == I32:
            number, at = _varint(page, at)
            if not depth:
                fields[field] = (number >> 1) ^ -(number & 1)
        elif kind > 2:  # 1 and 2 are a flag, true and false
            raise IndexError


def _varint(page: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte, at = page[at], at + 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def _alike(texts: np.typing.NDArray[np.uint8]) -> bool:
    """Return True if all texts are short and as long as the first one, as identifiers often are. Needs no search."""
    step = 4 + int(texts[0])
    if texts.size % step:
        return False
    lengths = np.ndarray((texts.size // step,), "<u4", texts, 0, (step,))
    return bool((lengths == step - 4).all())


def _all_short(texts: np.typing.NDArray[np.uint8]) -> bool:
    """Return True if texts, each after its length in four little-endian bytes, fill the page and are all short."""
    if texts.size < 4:
        return texts.size == 0
    if _alike(texts):
        return True
    zero = texts == 0
    # Each place that can be the length of a short text; zeros inside a text add false places.
    places = np.flatnonzero(zero[1:-2] & zero[2:-1] & zero[3:])
    following = places + 4 + texts[places]
    breaks = np.flatnonzero(following[:-1] != places[1:])
    place = 0
    for _ in range(MOST_PIECES):
        at = int(np.searchsorted(places, place))
        if at == places.size or places[at] != place:
            return False
        # From here each place is the one that the text before it leads to, up to the next break.
        after = int(np.searchsorted(breaks, at))
        last = int(breaks[after]) if after < breaks.size else places.size - 1
        place = int(following[last])
        if place == texts.size:
            return True
    return False
