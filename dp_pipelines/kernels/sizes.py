"""Limits on sizes: elements, the values of one key, the memory of a worker; and the numbers of shards that respect them.

In: sizes of the input (public: footers and names of files), the number of slots. Out: numbers of shards and places, bytes.
Holds: nothing here changes a result, and nothing of it is seen in one. Not covered: a single row that is larger than an
element may be; units or partitions whose hashes are unlucky, for which sizes are expectations. docs/scale.md has the formulas.
"""

import math

MIB, GIB = 2**20, 2**30

ELEMENT_BYTES = 8 * MIB
"""An element of a PCollection is cut above this: runners take some tens of megabytes (docs/scale.md)."""

GROUP_BYTES = 16 * MIB
"""The intended size of all values of one shard: Flink puts those of a key on a slot into one record of at most 64 MiB."""

BATCH_BYTES = 12 * MIB
"""About the size of a table that is read. Each is cut into one element per shard, whose overhead must be negligible."""

PIECE_BYTES = MIB
"""Below this many input bytes for each pair of shards, pieces of a batch get so small that their heads cost more."""

SHARDS_OF_A_SLOT = 4
"""Shards are dealt to slots by a hash: several for each slot even the load."""

MOST_SHARDS = 2**14

LEAST_PIECE = 128 * 2**10
"""The intended size of a piece of a batch for one shard; its header of some 700 bytes is then negligible."""

LEAST_COLUMN = 16 * 2**10
"""The intended size of each column of a piece, if there are many and they travel by files, column by column."""

MOST_GATHERED = 64 * MIB
"""Batches are put together before they are cut, where shards are many, up to this."""

MOST_WIDE = 40 * MIB
"""The same where columns are many: a thread then holds less than while it bounds a shard."""

WORKER_BYTES = 450 * MIB
"""A worker without rows: 250 MiB with its libraries, and two queues of 100 MB in which Beam keeps what is to be sent."""

AT_WORK, WAITING = 2, 1
"""Elements of a slot in memory: those that are computed, those that wait."""

COPIES_OF_A_BATCH = 4
"""The memory of a batch while it is cut, over its own size: wire form, hashes and orders, cut form."""

COPIES_OF_A_GROUP = 20
"""The memory of a shard while it is bounded, over its own size: codes, hashes and orders of eight bytes a row. Measured."""

LEAST_PLACES, MOST_PLACES = 8, 2**10

SHARDS_OF_A_PLACE = 8

KEYS_OF_A_PLACE = 2**20
"""Keys of a list on disk in one place, about: each may have rows, and those of a place are merged at once."""


def shards(input_bytes: int, slots: int = 1) -> int:
    """Return the number of shards of units into which an input is cut.

    Each batch is cut into a piece for every shard, so many shards mean many small pieces, and few shards mean large ones to hold
    in memory: a square root keeps both moderate, until a shard would be larger than `GROUP_BYTES`.

    Args:
        input_bytes: of the columns that are read, uncompressed.
        slots: that work at the same time.

    >>> shards(0), shards(100 * MIB), shards(2**30), shards(2**30, slots=5), shards(2**50)
    (1, 10, 64, 65, 16384)
    """
    ideal = max(math.sqrt(input_bytes / PIECE_BYTES), input_bytes / GROUP_BYTES)
    even = SHARDS_OF_A_SLOT * slots if slots > 1 else 1
    rounds = math.ceil(max(ideal, even, 1) / slots)  # slots that find no shard in the last round would be idle
    return min(rounds * slots, MOST_SHARDS)


def places(shards: int) -> int:
    """Return the number of places in which partitions are merged and released, given the number of shards of units.

    >>> places(1), places(100), places(MOST_SHARDS)
    (8, 13, 1024)
    """
    return min(max(math.ceil(shards / SHARDS_OF_A_PLACE), LEAST_PLACES), MOST_PLACES)


def key_places(keys: int) -> int:
    """Return the least number of places in which a list of so many keys that is sorted on disk is released.

    >>> key_places(4), key_places(125_000_000), key_places(2**32)
    (1, 120, 1024)
    """
    return min(max(math.ceil(keys / KEYS_OF_A_PLACE), 1), MOST_PLACES)


def gathered_bytes(shards: int) -> int:
    """Return how many bytes are put together before they are cut into so many pieces.

    >>> gathered_bytes(100), gathered_bytes(MOST_SHARDS)
    (13107200, 67108864)
    """
    return min(shards * LEAST_PIECE, MOST_GATHERED)


def gathered_columns_bytes(shards: int, columns: int) -> int:
    """Return `gathered_bytes` for rows with many columns, each of which costs something in every piece: up to `MOST_WIDE`.

    >>> gathered_columns_bytes(100, 20), gathered_columns_bytes(100, 5), gathered_columns_bytes(100, 50)
    (32768000, 13107200, 41943040)
    """
    return max(gathered_bytes(shards), min(shards * columns * LEAST_COLUMN, MOST_WIDE))


def worker_bytes(
    input_bytes: int, *, slots: int, group_bytes: float | None = None, parallelism: int | None = None
) -> int:
    """Estimate the most memory of a worker process: the larger of reading and bounding, for each of its slots.

    Args:
        input_bytes: as for `shards`.
        slots: that this process serves.
        group_bytes: of one shard as it is shuffled; left out: its part of the input.
        parallelism: slots in all; left out: those of this process.

    >>> worker_bytes(0, slots=1) // MIB, worker_bytes(2**40, slots=1) // MIB
    (594, 3074)
    """
    many = shards(input_bytes, parallelism or slots)
    group = input_bytes / many if group_bytes is None else group_bytes
    reading = (AT_WORK + WAITING) * COPIES_OF_A_BATCH * (BATCH_BYTES + _beyond_a_batch(many))
    bounding = (AT_WORK * COPIES_OF_A_GROUP + WAITING) * group
    return math.ceil(WORKER_BYTES + slots * max(reading, bounding))


def _beyond_a_batch(shards: int) -> int:
    """Return how many bytes are gathered in addition to a batch; 0 if a batch is enough."""
    enough = gathered_bytes(shards)
    return enough if enough > BATCH_BYTES else 0
