"""What the page of a dictionary tells without decoding it is true of what Arrow decodes."""

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.kernels.columns import dictionary_page

CODECS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")


def told(texts: Sequence[bytes | None], codec: str = "snappy", version: str = "2.6") -> bool:
    """What is told of a file with these texts."""
    file = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(texts, pa.binary())}), file, compression=codec, version=version)
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(0)
    return dictionary_page.all_short(file, chunk)


def page(texts: Sequence[bytes]) -> np.typing.NDArray[np.uint8]:
    """Texts as they stand in a page."""
    return np.frombuffer(b"".join(len(text).to_bytes(4, "little") + text for text in texts), np.uint8)


TEXTS = st.lists(
    st.one_of(
        st.binary(max_size=6),
        st.binary(max_size=300),
        st.text("\0a", max_size=8).map(str.encode),
        st.integers(250, 2**16).map(lambda size: b"x" * size),
        st.integers(250, 2**10).map(bytes),
    ),
    max_size=12,
)


@given(TEXTS, st.sampled_from(CODECS), st.sampled_from(("1.0", "2.6")))
def test_texts_that_are_told_to_be_short_are(texts: list[bytes], codec: str, version: str) -> None:
    if told(texts, codec, version):
        assert all(len(text) <= dictionary_page.SHORT for text in texts)


@given(TEXTS)
def test_a_page_is_short_where_all_of_its_texts_are(texts: list[bytes]) -> None:
    assert dictionary_page._all_short(page(texts)) == all(len(text) <= 255 for text in texts)


@given(st.binary(max_size=400))
def test_any_bytes_at_all_are_answered(raw: bytes) -> None:
    found = dictionary_page._all_short(np.frombuffer(raw, np.uint8))
    at = longest = 0
    while at + 4 <= len(raw):
        longest = max(longest, length := int.from_bytes(raw[at : at + 4], "little"))
        at += 4 + length
    assert not found or (at == len(raw) and longest <= 255)


@given(st.binary(max_size=60), st.sampled_from(("SNAPPY", "UNCOMPRESSED", "LZ4", "ZSTD")))
def test_a_damaged_page_is_not_followed_and_raises_nothing(raw: bytes, codec: str) -> None:
    dictionary_page._unpacked(raw, codec)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "lz4"])
def test_a_column_of_short_texts_is_seen_to_be_one(codec: str) -> None:
    names = [f"user-{number:07d}".encode() for number in range(20_000)]
    assert told([*names, None, b"", b"a\0\0\0\0b"], codec)
    assert not told([*names, b"x" * 256, *names], codec)
    assert not told([*names[:9_999], b"\0" * 70_000, *names], codec)


def test_many_texts_that_look_like_lengths_are_left_to_those_who_decode() -> None:
    texts = [number.to_bytes(2, "big") + b"\0" * (9 + number % 2) for number in range(5_000)]
    assert not dictionary_page._all_short(page(texts))


def test_texts_of_one_length_are_told_whatever_they_hold() -> None:
    texts = [number.to_bytes(2, "big") + b"\0" * 9 for number in range(5_000)]
    assert dictionary_page._all_short(page(texts))
    assert not dictionary_page._all_short(page([*texts[:-1], texts[-1] + b"\0" * 11]))
    # A long text whose length only begins as the others' does.
    assert not dictionary_page._all_short(page([b"a" * 11, b"b" * (11 + 256 * 15 + 4)]))
