"""The SHA-256 of JSON text that may contain long lists of public keys.

In: JSON values, with lists of keys among them. Out: the digest of their text, as `json.dumps` with sorted keys writes it.
Holds: it is that of the whole text, though a long list is written piece by piece, and mostly without a Python value for each
key. Not covered: the digested values (`describe`).
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.kernels.columns.listed_keys import AT_ONCE, ListedKeys, described

Keys = Sequence[Sequence[Any]]

_PLAIN_TEXT = r"^[ !#-&(-\[\]-~]*$"
"""ASCII without quotation marks, backslashes and control characters: what JSON and Python write as it is."""

_NULL = '"NoneType:None"'


@dataclasses.dataclass(frozen=True)
class LongList:
    """Public keys among JSON values, in place of the list that `keys_to_json` makes of them."""

    keys: Keys


def keys_to_json(keys: Keys) -> "list[list[str]] | LongList":
    """Return public keys as JSON values, with their types, so that 1 and "1" give different digests. Their order gives no other.

    >>> keys_to_json([("south", 1), ("north", 1)])
    [["str:'north'", 'int:1'], ["str:'south'", 'int:1']]
    """
    if len(keys) <= AT_ONCE:
        return sorted(map(described, keys))
    return LongList(keys.in_order if isinstance(keys, ListedKeys) else sorted(keys, key=described))


def sha256(content: Any) -> str:
    """Return the digest, in hexadecimal digits.

    Args:
        content: JSON values, which may contain long lists of keys.

    >>> sha256({"b": 1, "a": None}) == hashlib.sha256(b'{"a": null, "b": 1}').hexdigest()
    True
    """
    long_lists: dict[str, LongList] = {}

    def mark(value: Any) -> str:
        if not isinstance(value, LongList):
            raise TypeError(f"{type(value).__name__} is none of JSON's")
        # No name or value of a job holds this character together with a number that is not used yet.
        name = f"\0 list {len(long_lists)} \0"
        long_lists[name] = value
        return name

    rest = json.dumps(content, sort_keys=True, default=mark)
    digest = hashlib.sha256()
    for name, listed in long_lists.items():  # in the order of the text
        before, _, rest = rest.partition(json.dumps(name))
        digest.update(f"{before}[".encode())
        between = b""
        for piece in _pieces(listed.keys):
            digest.update(between + piece)
            between = b", "
        rest = f"]{rest}"
    digest.update(rest.encode())
    return digest.hexdigest()


def _pieces(keys: Keys) -> Iterator[bytes]:
    """Yield the text of a list without its brackets, in pieces that a comma joins."""
    for begin in range(0, len(keys), AT_ONCE):
        if isinstance(keys, ListedKeys):
            pieces = [_texts(column[begin : begin + AT_ONCE]) for column in keys.declared_arrays]
            texts = [column for column in pieces if column is not None]
            if len(texts) == len(pieces):
                of_keys = pc.binary_join_element_wise(*texts, ", ") if len(texts) > 1 else texts[0]
                yield ", ".join(f"[{text}]" for text in of_keys.to_pylist()).encode()
                continue
        yield json.dumps([*map(described, keys[begin : begin + AT_ONCE])])[1:-1].encode()


def _texts(column: pa.Array) -> pa.Array | None:
    """Return the JSON text of each described value of a column; None for types and texts that only Python writes."""
    if pa.types.is_integer(column.type):
        texts, before, after = column.cast(pa.string()), '"int:', '"'
    elif pa.types.is_string(column.type) and pc.all(pc.match_substring_regex(column, _PLAIN_TEXT)).as_py() is not False:
        texts, before, after = column, "\"str:'", "'\""
    else:
        return None
    return pc.fill_null(pc.binary_join_element_wise(before, texts, after, ""), _NULL)
