"""Groups by size: how many partitions have how many units, and how many of them are likely to be published.

In: groups of all shards of one place. Out: notes by level and size. Holds: each group is counted once; the chance that it is
published is that of `planning.selection_chances`, by the selection's own law. NOT private. Not covered: which groups these are:
no key leaves.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.extensions.check.bound_shares import ProfiledStage
from dp_pipelines.extensions.check.notes import Notes
from dp_pipelines.kernels import keys, shard
from dp_pipelines.planning.selection_chances import selected
from dp_pipelines.steps.unbounded_rows import size_of

NUMBERS = ("units", "rows", "mean", "variance")


def note_sizes(tables: Sequence[pa.Table], number: int, of: ProfiledStage, notes: Notes) -> None:
    """Count the groups of a place.

    Args:
        tables: their parts, one from each shard; at least one.
        number: of the level.
        of: what is counted.
        notes: takes the numbers.
    """
    table = shard.joined(tables)
    codes = keys.dense([keys.plain(table.column(name)) for name in table.column_names if name.startswith("p")]).codes
    size = int(codes.max(initial=-1)) + 1
    summed = {
        name: np.bincount(codes, weights=keys.one_array(table.column(name)).to_numpy(), minlength=size).astype(
            np.float64
        )
        for name in NUMBERS
    }
    selects = of.levels[number].selects
    published = np.ones(size)
    if selects is not None and size:
        published = selected(selects, summed["mean"], summed["variance"]).keep
    buckets = size_of(summed["units"])
    for bucket in np.unique(buckets).tolist():
        mine = buckets == bucket
        about = ("level", number, "size", bucket)
        notes.add(*about, "groups", int(mine.sum()))
        notes.add(*about, "rows", float(summed["rows"][mine].sum()))
        notes.add(*about, "units", float(summed["units"][mine].sum()))
        notes.add(*about, "published", float(published[mine].sum()))
        notes.add(*about, "published_rows", float((published * summed["rows"])[mine].sum()))
