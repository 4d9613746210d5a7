"""Different values: those that a unit brings into a partition, at most so many, and their union over units and shards.

In: a column; groups of rows with a hash each. Out: lists of values. Holds: equality is that of whole canonical keys
(`keys.plain`), never of hashes; of each group the values with the smallest keyed hashes stay, so that a value counts once
however often it is repeated, and the least of a union are the least of what the parts keep. Nulls and NaN are no value. Not
covered: columns of floats, whose equality is an accident of arithmetic.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather, hashing
from dp_pipelines.kernels.columns.hashing import Words
from dp_pipelines.kernels.columns.unique_codes import unique_codes
from dp_pipelines.kernels.keys import Codes


def check_values(kind: pa.DataType, column: str) -> None:
    """Refuse types whose different values cannot be counted.

    Raises:
        RequestError: for floats and for nested types.

    >>> check_values(pa.float64(), "price")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: column 'price': is a float (double), of which different values cannot be counted; cast it first, e.g. columns: {price_number: "CAST(price AS DECIMAL(18, 2))"}
    """
    plain = keys.plain_type(kind)
    if pa.types.is_floating(plain):
        raise RequestError(
            field=f"column {column!r}",
            message=f"is a float ({plain}), of which different values cannot be counted",
            hint=f'cast it first, e.g. columns: {{{column}_number: "CAST({column} AS DECIMAL(18, 2))"}}',
        )
    try:
        keys.check_key_type(kind, column, partition=True)
    except RequestError:
        raise RequestError(
            field=f"column {column!r}",
            message=f"has type {plain}, of which different values cannot be counted",
            hint="use a plain column",
        ) from None


def one_each(column: pa.Array | pa.ChunkedArray) -> pa.ListArray:
    """Return for each row the list of its one value, empty for a null.

    >>> one_each(pa.array(["a", None])).to_pylist()
    [['a'], []]
    """
    plain = keys.comparable(column)
    valid = pc.is_valid(plain).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(valid))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), plain.drop_null())


def flat(lists: pa.ListArray | pa.ChunkedArray) -> tuple[Codes, pa.Array]:
    """Return all values of some lists, and for each the place of its list.

    >>> rows, values = flat(pa.array([["a", "b"], [], ["a"]]))
    >>> rows.tolist(), values.to_pylist()
    ([0, 0, 2], ['a', 'b', 'a'])
    """
    chunks = lists.chunks if isinstance(lists, pa.ChunkedArray) else [lists]
    begins = np.cumsum([0, *(len(chunk) for chunk in chunks)])
    rows = [pc.list_parent_indices(c).to_numpy().astype(np.int64) + at for c, at in zip(chunks, begins, strict=False)]
    values = [chunk.flatten() for chunk in chunks]
    return (np.concatenate(rows), gather.joined(values)) if chunks else (np.zeros(0, np.int64), pa.nulls(0))


def listed(groups: Codes, values: pa.Array, size: int) -> pa.ListArray:
    """Return one list for each group below `size`; `groups` rise.

    >>> listed(np.array([0, 0, 2]), pa.array([7, 8, 9]), 3).to_pylist()
    [[7, 8], [], [9]]
    """
    offsets = np.searchsorted(groups, np.arange(size + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def each_once(groups: Codes, values: pa.Array) -> tuple[Codes, pa.Array]:
    """Return each value of a group once; groups rise.

    >>> groups, values = each_once(np.array([1, 0, 1]), pa.array(["a", "b", "a"]))
    >>> groups.tolist(), values.to_pylist()
    ([0, 1], ['b', 'a'])
    """
    different = keys.dense([values])
    # Groups and values are fewer than 2**31 each, so that the pairs stay below 2**62.
    number = np.int64(max(len(different), 1))
    pairs = unique_codes(groups * number + different.codes)
    return pairs // number, gather.take(different.columns[0], pairs % number)


def least(groups: Codes, hashes: Words, values: pa.Array, most: int) -> tuple[Codes, pa.Array]:
    """Return at most `most` different values of each group: those with the smallest hashes.

    Args:
        groups: of each value.
        hashes: of each group, a keyed hash.
        values: valid keys.
        most: how many stay in each group.

    Returns:
        rising groups, and the values that stay. Values of equal hashes are ordered by the values themselves.
    """
    groups, values = each_once(groups, values)
    by_hash = hashing.hash_onto(hashes[groups], [values])
    order = np.lexsort((by_hash, groups))
    tied = (groups[order][1:] == groups[order][:-1]) & (by_hash[order][1:] == by_hash[order][:-1])
    if tied.any():
        different = keys.dense([values])
        order = np.lexsort((different.ranks()[different.codes], by_hash, groups))
    begins = np.searchsorted(groups[order], groups[order], side="left")
    chosen = order[np.arange(len(order)) - begins < most]
    return groups[chosen], gather.take(values, chosen)
