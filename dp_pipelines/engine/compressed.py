"""Compressed files of lines, by the end of their names: gzip, Zstandard and bzip2.

In: a name and a stream of its bytes. Out: a stream of what was compressed. Holds: files of several members are read to the last
one; no more than a block is in memory, however well a file is compressed. Not covered: archives, such as .zip and .tar.gz.
"""

import bz2
import io
import os
from collections.abc import Mapping
from typing import Any, BinaryIO, cast

import pyarrow as pa

CODECS: Mapping[str, str] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""How files are compressed, by the end of their names."""

DAMAGES = (pa.ArrowException, OSError, ValueError, EOFError)
"""What reading a damaged file raises."""

BLOCK = 2**16
"""Bytes that are read at once."""

USUAL_RATIO = 5
"""How many times its size a compressed file of lines usually has: a guess that only steers the sizes of batches."""


def codec_of(path: str) -> str | None:
    """Return how a file is compressed, or None.

    >>> codec_of("data/2026-01-05.CSV.gz"), codec_of("data/2026-01-05.csv")
    ('gzip', None)
    """
    return CODECS.get(os.path.splitext(path)[1].lower())


def ending_of(path: str) -> str:
    """Return the end of a file's name that tells its format, in small letters, without that of its compression.

    >>> ending_of("a.csv.gz"), ending_of("b.Parquet")
    ('.csv', '.parquet')
    """
    bare = os.path.splitext(path)[0] if codec_of(path) else path
    return os.path.splitext(bare)[1].lower()


def of_beam(path: str) -> str:
    """Return the `compression_type` with which Beam opens a file: the bytes as they are, where `plain` decompresses them.

    So each engine decompresses alike, and damage is one error everywhere.
    """
    return "auto" if codec_of(path) is None else "uncompressed"


def plain(path: str, stream: BinaryIO) -> BinaryIO:
    """Return what a file holds once it is decompressed.

    Args:
        path: the name of the file.
        stream: of its bytes.
    """
    codec = codec_of(path)
    if codec is None:
        return stream
    # Arrow's own bzip2 fails on a member without bytes, and that of Python takes a damaged member for bytes that do not matter.
    if codec == "bz2":
        return cast(BinaryIO, io.BufferedReader(_Bzip2(stream), BLOCK))
    return cast(BinaryIO, pa.CompressedInputStream(stream, codec))


class _Bzip2(io.RawIOBase):
    """What a bzip2 file of one or several members holds; anything else between or after them is damage."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._member = bz2.BZ2Decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer. Raises: EOFError, OSError: the file is damaged."""
        made = b""
        while not made:
            given = b""
            if self._member.eof:
                given = self._member.unused_data or self._stream.read(BLOCK)
                if not given:
                    return 0
                self._member = bz2.BZ2Decompressor()
            elif self._member.needs_input:
                given = self._stream.read(BLOCK)
                if not given:
                    raise EOFError("a member of bzip2 has no end")
            made = self._member.decompress(given, len(buffer))
        buffer[: len(made)] = made
        return len(made)
