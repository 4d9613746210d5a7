"""Two tables of rows joined on a unit, by the steps that jobs use, in this process.

In: tables of a few columns. Out: joined rows. Holds: cutting, capping and joining are those of `steps.unit_join`. Tests only.
"""

from collections.abc import Sequence

import pyarrow as pa

from dp_pipelines.kernels.unit_facts import TWIN
from dp_pipelines.steps.unit_join import JoinRows, JoinSide, SideToShards, UnitJoin

SALT = 0x5EED_0000_0000_0001

UNIT, DAY = pa.int64(), pa.float64()

LEFT = pa.schema([("u0", pa.int32()), ("day", DAY), ("store", pa.string()), ("n0", pa.float64())])
RIGHT = pa.schema([("who", pa.int64()), ("visited", DAY), ("page", pa.string())])

JOINED = pa.schema(
    [("u0", UNIT), ("day", DAY), ("store", pa.string()), ("n0", pa.float64()), ("visited", DAY), ("page", pa.string())]
)
"""The columns of joined rows, but for the hash of both."""


def join_of(*, keeps_unmatched: bool, on_day: bool, caps: tuple[int, int]) -> UnitJoin:
    """A join of tables with the columns above.

    Args:
        keeps_unmatched: as for `UnitJoin`.
        on_day: whether the days are compared too.
        caps: rows of a unit in the left and in the right table.
    """
    left = JoinSide(
        tag="l.",
        unit=("u0",),
        on=("day",) if on_day else (),
        reads=tuple(LEFT.names),
        key_types={"u0": UNIT, "day": DAY},
        most=caps[0],
        needs_match=not keeps_unmatched,
    )
    right = JoinSide(
        tag="r.",
        unit=("who",),
        on=("visited",) if on_day else (),
        reads=tuple(RIGHT.names),
        key_types={"who": UNIT, "visited": DAY},
        most=caps[1],
        needs_match=True,
    )
    columns = pa.schema([*JOINED, (TWIN, pa.uint64())])
    return UnitJoin(left=left, right=right, columns=columns, pair_hash=TWIN, keeps_unmatched=keeps_unmatched)


def joined_rows(
    join: UnitJoin,
    left: Sequence[pa.Table],
    right: Sequence[pa.Table],
    *,
    shards: int = 3,
    backwards: bool = False,
    salt: int = SALT,
) -> pa.Table:
    """What the steps make of batches of rows.

    Args:
        join: how they are joined.
        left, right: batches.
        shards: into how many groups of units they are cut.
        backwards: whether shards meet their slices in the opposite order.
        salt: of the hashes.
    """
    of_shard: dict[int, list[pa.Table]] = {}
    for side, tables in ((join.left, left), (join.right, right)):
        for table in tables:
            for number, piece in SideToShards(side, shards, salt).compute(table):
                of_shard.setdefault(number, []).append(piece)
    found = [join.columns.empty_table()]
    for number, tables in of_shard.items():
        found += JoinRows(join, salt).process((number, tables[::-1] if backwards else tables))
    return pa.concat_tables(found)


def multiset(table: pa.Table) -> list[str]:
    """The rows of a table, whatever their order."""
    return sorted(map(repr, table.to_pylist()))
