"""The rows of a rollup's table for plots and verdicts: the finest partitions, without the rests of their groups.

In: a published table and its stage's entry in the manifest. Out: some of its rows. Holds: a table without levels stays as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.kernels.columns import gather
from dp_pipelines.query.rollup import LEVEL, REST

ENTRY = "rollup"
"""The key of the manifest's list of levels of a stage."""


def is_rollup(stage: Mapping[str, Any]) -> bool:
    """Return True if a stage has levels, by its entry in the manifest."""
    return isinstance(stage.get(ENTRY), Mapping)


def of(table: pa.Table, stage: Mapping[str, Any]) -> pa.Table:
    """Return the rows of the finest level, without the columns that distinguish levels.

    >>> table = pa.table({"level": [0, 1, 1], "k": [None, "a", None], "rest": [False, False, True], "n": [3.0, 2.0, 1.0]})
    >>> of(table, {"rollup": {}}).to_pydict()
    {'k': ['a'], 'n': [2.0]}
    """
    if (
        not is_rollup(stage)
        or LEVEL not in table.column_names
        or not pa.types.is_integer(table.schema.field(LEVEL).type)
    ):
        return table
    return _published_groups(table, pc.max(table.column(LEVEL)))


def of_level(table: pa.Table, stage: Mapping[str, Any], keys: Sequence[str]) -> pa.Table | None:
    """Return the rows of the level with exactly these keys, without the columns that distinguish levels; None if there is none.

    >>> table = pa.table({"level": [0, 1, 1], "k": [None, "a", None], "rest": [False, False, True], "n": [3.0, 2.0, 1.0]})
    >>> of_level(table, {"rollup": {"levels": [[], ["k"]]}}, []).to_pydict()
    {'k': [None], 'n': [3.0]}
    >>> of_level(table, {"rollup": {"levels": [[], ["k"]]}}, ["other"])
    """
    levels = stage[ENTRY].get("levels") if is_rollup(stage) else None
    if not isinstance(levels, Sequence) or of(table, stage) is table:
        return None
    number = next((at for at, level in enumerate(levels) if level == list(keys)), None)
    return None if number is None else _published_groups(table, pa.scalar(number))


def _published_groups(table: pa.Table, level: pa.Scalar) -> pa.Table:
    keep = pc.equal(table.column(LEVEL), level)
    if REST in table.column_names and pa.types.is_boolean(table.schema.field(REST).type):
        keep = pc.and_(keep, pc.invert(table.column(REST)))
    return gather.filter_rows(table, keep).drop_columns([name for name in (LEVEL, REST) if name in table.column_names])
