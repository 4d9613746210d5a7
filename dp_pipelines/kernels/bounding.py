"""Contribution bounding: which rows of a privacy unit are kept.

A unit keeps the partitions (and, within one, the rows) with the smallest keyed hashes. In: dense codes of units and
partitions, their hashes, a way to hash rows. Out: positions of kept rows, grouped by unit and partition. Holds: the choice
for a unit looks at that unit's rows alone, so removing another unit never changes it; keeping the smallest k of a union is
keeping the smallest k of what each part keeps, so bounding a batch first is exact, and order, batches and shards change
nothing. Equal hashes are settled by whole keys. Rows that agree in all columns that are read are the same row twice: either
may be kept.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.kernels.columns.hashing import Words, mix
from dp_pipelines.kernels.keys import Codes, Keys

Positions = NDArray[np.int64]
Flags = NDArray[np.bool_]

MARKS = 32
"""Bytes for each kept pair that may be spent on marks."""

FEWEST_HASH_BITS = 20
"""The packed sort is used while at least so many bits of the hash fit into a word with unit and position."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOrder:
    """An order of the rows of one unit, for the case that not all of them can stay.

    Args:
        hashes: returns the 64-bit hashes of the content of the rows at given positions.
        ranks: returns the places of these rows in an order of their whole content; called only if hashes are equal.
        alike: returns True if the row at each position has the whole content of the one at another position. It costs much
            less than `ranks`, and may return False if it cannot decide. None: no such function is known.
    """

    hashes: Callable[[Positions], Words]
    ranks: Callable[[Positions], Codes]
    alike: Callable[[Positions, Positions], Flags] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounded:
    """Rows that are kept, grouped by (unit, partition).

    Args:
        rows: positions of kept rows.
        starts: where in `rows` each kept (unit, partition) begins.
        first_of_unit: for each kept (unit, partition), whether it is the first of its unit.
        pair_of_row: the kept (unit, partition) of EVERY row of the input that lies in one, else -1; None unless asked for.
    """

    rows: Positions
    starts: Positions
    first_of_unit: Flags
    pair_of_row: Positions | None = None

    def partitions_of_unit(self) -> Codes:
        """Return for each kept (unit, partition) how many partitions its unit keeps."""
        unit = np.cumsum(self.first_of_unit) - 1
        return np.bincount(unit, minlength=0)[unit] if len(unit) else unit


def bound_partitions(
    units: Codes,
    number_of_units: int,
    partitions: Keys,
    pair_hashes: Words,
    rows: RowOrder,
    *,
    max_partitions: int,
    max_rows_per_partition: int,
    assign_all_rows: bool = False,
) -> Bounded:
    """Keep at most `max_partitions` partitions of each unit, and at most `max_rows_per_partition` rows in each.

    Args:
        units: dense codes, below `number_of_units`, one per row.
        partitions: dense codes of the partitions, one per row.
        pair_hashes: one keyed hash per row, a function of its unit and partition.
        rows: distinguishes the rows of one unit and partition.
        assign_all_rows: also say for each row to which kept pair it belongs, kept itself or not.
    """
    order, sorted_units = _sorted_by_pair(units, number_of_units, partitions, pair_hashes)
    sorted_partitions = partitions.codes[order]
    size = len(order)
    new_pair = np.ones(size, np.bool_)
    np.not_equal(sorted_units[1:], sorted_units[:-1], out=new_pair[1:])
    new_pair[1:] |= sorted_partitions[1:] != sorted_partitions[:-1]
    starts = np.flatnonzero(new_pair)
    pair_units = sorted_units[starts]
    kept_pairs, first_of_unit = _first_of_each(pair_units, max_partitions)
    sizes = np.diff(np.append(starts, size))
    kept_starts, kept_sizes = starts[kept_pairs], sizes[kept_pairs]
    too_many = kept_sizes > max_rows_per_partition
    if too_many.any():
        _order_rows(order, kept_starts[too_many], kept_sizes[too_many], rows)
    taken = np.minimum(kept_sizes, max_rows_per_partition)
    pair_of_row = None
    if assign_all_rows:
        pair_of_row = np.empty(size, np.int64)
        pair_of_row[order] = np.repeat(np.where(kept_pairs, np.cumsum(kept_pairs) - 1, -1), sizes)
    return Bounded(
        rows=order[_ranges(kept_starts, taken)],
        starts=np.cumsum(taken) - taken,
        first_of_unit=first_of_unit[kept_pairs],
        pair_of_row=pair_of_row,
    )


def bound_rows(units: Codes, number_of_units: int, partitions: Keys, rows: RowOrder, *, max_rows: int) -> Bounded:
    """Keep at most `max_rows` rows of each unit, in any partitions.

    Args:
        units, partitions: dense codes, one per row.
        rows: distinguishes the rows of one unit; their hashes must depend on the partition too.
    """
    everything = np.arange(len(units))
    hashes = rows.hashes(everything)
    order = _sorted_by_hash(units, number_of_units, hashes)
    _settle_ties(order, units, hashes, rows, everything)
    order = order[_first_of_each(units[order], max_rows)[0]]
    if len(partitions) > 1:
        # Group what is kept by partition; within one unit the order of partitions no longer matters.
        order = order[np.lexsort((partitions.codes[order], units[order]))]
    sorted_units, sorted_partitions = units[order], partitions.codes[order]
    new_unit = np.ones(len(order), np.bool_)
    new_unit[1:] = sorted_units[1:] != sorted_units[:-1]
    new_pair = new_unit.copy()
    new_pair[1:] |= sorted_partitions[1:] != sorted_partitions[:-1]
    starts = np.flatnonzero(new_pair)
    return Bounded(rows=order, starts=starts, first_of_unit=new_unit[starts])


def hash_pairs(unit_hashes: Words, partition_hashes: Words) -> Words:
    """Return the keyed hash of (unit, partition) out of the keyed hashes of both."""
    together = partition_hashes << np.uint64(1)
    together |= partition_hashes >> np.uint64(63)
    together ^= unit_hashes
    return mix(together)


def _sorted_by_pair(
    units: Codes, number_of_units: int, partitions: Keys, hashes: Words
) -> tuple[Positions, Codes | Words]:
    """Return positions sorted by unit, then hash of the pair, then partition; and their units.

    Unit, leading bits of the hash and position are packed into one word, since sorting words is several times faster than
    sorting by several keys. Where different partitions of a unit agree in those bits, the unit is sorted again in full.
    """
    size = len(units)
    position_bits, unit_bits = max(size - 1, 0).bit_length(), max(number_of_units - 1, 1).bit_length()
    hash_bits = 64 - position_bits - unit_bits
    if hash_bits < FEWEST_HASH_BITS:
        order = _sorted_in_full(np.arange(size), units, partitions, hashes)
        return order, units[order]
    packed = hashes >> np.uint64(64 - hash_bits)
    packed <<= np.uint64(position_bits)
    packed |= units.view(np.uint64) << np.uint64(64 - unit_bits)
    packed |= np.arange(size, dtype=np.uint64)
    packed.sort()
    order = (packed & np.uint64((1 << position_bits) - 1)).view(np.int64)
    sorted_units = packed >> np.uint64(64 - unit_bits)
    packed >>= np.uint64(position_bits)
    same = np.flatnonzero(packed[1:] == packed[:-1])
    collided = same[partitions.codes[order[same + 1]] != partitions.codes[order[same]]]
    if len(collided):
        of_collided = np.zeros(number_of_units, np.bool_)
        of_collided[units[order[collided]]] = True
        again = np.flatnonzero(of_collided[units[order]])
        order[again] = _sorted_in_full(order[again], units, partitions, hashes)
    return order, sorted_units


def _sorted_in_full(positions: Positions, units: Codes, partitions: Keys, hashes: Words) -> Positions:
    """Return the given positions sorted by unit, whole hash of the pair and, where two hashes are equal, the keys themselves."""
    by_unit, by_hash, by_code = units[positions], hashes[positions], partitions.codes[positions]
    order = np.lexsort((by_code, by_hash, by_unit))
    if _tied(by_unit[order], by_hash[order], different=by_code[order]).any():
        order = np.lexsort((partitions.ranks()[by_code], by_hash, by_unit))
    return positions[order]


def _sorted_by_hash(groups: Codes, number_of_groups: int, hashes: Words) -> Positions:
    """Return positions sorted by group, then by hash; those of one hash in their order.

    As in `_sorted_by_pair`, words are sorted that hold group, leading bits of the hash and position; where different hashes of
    a group agree in those bits, all are sorted in full.
    """
    size = len(groups)
    position_bits, group_bits = max(size - 1, 0).bit_length(), max(number_of_groups - 1, 1).bit_length()
    hash_bits = 64 - position_bits - group_bits
    if hash_bits >= FEWEST_HASH_BITS:
        packed = hashes >> np.uint64(64 - hash_bits)
        packed <<= np.uint64(position_bits)
        packed |= groups.view(np.uint64) << np.uint64(64 - group_bits)
        packed |= np.arange(size, dtype=np.uint64)
        packed.sort()
        order: Positions = (packed & np.uint64((1 << position_bits) - 1)).view(np.int64)
        packed >>= np.uint64(position_bits)
        same = np.flatnonzero(packed[1:] == packed[:-1])
        if not (hashes[order[same + 1]] != hashes[order[same]]).any():
            return order
    return np.lexsort((hashes, groups))


def _order_rows(order: Positions, starts: Positions, sizes: Positions, rows: RowOrder) -> None:
    """Sort, in place, the rows of some (unit, partition) pairs by the hash of their content."""
    slots = _ranges(starts, sizes)
    pair = np.repeat(np.arange(len(sizes)), sizes)
    positions = order[slots]
    hashes = rows.hashes(positions)
    by_hash = _sorted_by_hash(pair, len(sizes), hashes)
    _settle_ties(by_hash, pair, hashes, rows, positions)
    order[slots] = positions[by_hash]


def _settle_ties(order: Positions, groups: Codes, hashes: Words, rows: RowOrder, positions: Positions) -> None:
    """Sort, in place, items of one group whose hashes are equal by the content of the rows at `positions`.

    Most often they are equal because the rows are, as copies that a join makes of a row: then there is nothing to sort.
    """
    tied = np.flatnonzero(_tied(groups[order], hashes[order]))
    if len(tied) and rows.alike is not None:
        tied = tied[_unlike(order[tied], groups, hashes, positions, rows.alike)]
    if len(tied):
        items = order[tied]
        order[tied] = items[np.lexsort((rows.ranks(positions[items]), hashes[items], groups[items]))]


def _unlike(
    items: Positions,
    groups: Codes,
    hashes: Words,
    positions: Positions,
    alike: Callable[[Positions, Positions], Flags],
) -> Positions:
    """Return the places of tied items that are tied with a row of other content. Items tied with each other are adjacent."""
    follows = (groups[items[1:]] == groups[items[:-1]]) & (hashes[items[1:]] == hashes[items[:-1]])
    places = positions[items]
    differs = follows & ~alike(places[1:], places[:-1])
    if not differs.any():
        return np.zeros(0, np.int64)
    run = np.concatenate(([0], np.cumsum(~follows)))
    mixed = np.zeros(int(run[-1]) + 1, np.bool_)
    mixed[run[1:][differs]] = True
    return np.flatnonzero(mixed[run])


def _tied(groups: Codes, hashes: Words, different: Codes | None = None) -> Flags:
    """Return True for sorted items that share group and hash with a neighbour (that differs in `different`)."""
    same = (groups[1:] == groups[:-1]) & (hashes[1:] == hashes[:-1])
    if different is not None:
        same &= different[1:] != different[:-1]
    tied = np.zeros(len(groups), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    return tied


def _first_of_each(groups: Codes | Words, most: int) -> tuple[Flags, Flags]:
    """Return for sorted group codes which items are among the first `most` of their group, and which begin one."""
    first, begins = np.ones(len(groups), np.bool_), np.ones(len(groups), np.bool_)
    np.not_equal(groups[most:], groups[:-most], out=first[most:])
    np.not_equal(groups[1:], groups[:-1], out=begins[1:])
    return first, begins


def _ranges(starts: Positions, sizes: Positions) -> Positions:
    """Return the concatenation of range(start, start + size) over all starts."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - sizes), sizes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptPairs:
    """The kept (unit, partition) pairs of a shard, those of a unit together.

    Args:
        rows: for each pair, the row of its partition in the partial aggregates.
        first_of_unit: whether a pair is the first of its unit.
    """

    rows: Codes
    first_of_unit: Flags

    def among(self, stay: Flags) -> "KeptPairs":
        """Return the pairs in those partial aggregates that stay.

        >>> pairs = KeptPairs(rows=np.array([0, 1, 0, 2]), first_of_unit=np.array([True, False, False, True]))
        >>> left = pairs.among(np.array([False, True, True]))
        >>> left.rows.tolist(), left.first_of_unit.tolist()
        ([0, 1], [True, True])
        """
        left = stay[self.rows]
        unit = np.cumsum(self.first_of_unit)[left]
        return KeptPairs(rows=(np.cumsum(stay) - 1)[self.rows[left]], first_of_unit=np.diff(unit, prepend=0) > 0)

    def units_of(self, groups: Codes, size: int) -> Positions:
        """Count the different units of each group; int64 of shape (size,).

        Args:
            groups: of each row of the partial aggregates.
            size: how many groups there are.
        """
        if size == 1:
            return np.array([np.count_nonzero(self.first_of_unit)])
        unit, of_pairs = np.cumsum(self.first_of_unit) - 1, groups[self.rows]
        units = int(unit[-1]) + 1 if len(unit) else 0
        both = unit * np.int64(size) + of_pairs
        if units * size <= MARKS * len(both):  # a mark for each unit and group is less work than an order of them
            marked = np.zeros(units * size, np.bool_)
            marked[both] = True
            different = np.flatnonzero(marked)
        else:
            both.sort()
            different = both[np.diff(both, prepend=-1) > 0]
        return np.bincount(different % max(size, 1), minlength=size)
