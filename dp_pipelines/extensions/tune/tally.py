"""Errors of many partitions as sums by size, which add up over places.

In: errors in each partition. Out: a table of sums with a row for each configuration, metric and size of partition; and
merged sums. Holds: adding tables of disjoint partitions gives the table of all of them. NOT private.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.extensions.tune.bounding_moments import KeptMoments, Pairs
from dp_pipelines.extensions.tune.configuration import Configuration
from dp_pipelines.extensions.tune.predicted_errors import PARTS, Error, errors
from dp_pipelines.extensions.tune.variables import ROWS, UNITS, Variable
from dp_pipelines.planning.selection_chances import Selected
from dp_pipelines.steps.unbounded_rows import size_of

Floats = NDArray[np.float64]

KEYS = ("configuration", "metric", "size")
"""The columns that say what a row of sums belongs to."""

OF_ALL = ("partitions", "rows", "kept", "kept_rows")
OF_METRIC = (
    "told", "square", "root", "comparable", "relative", "compared", "compared_rows", "loss", "row_loss",
    *(f"{part}_square" for part in PARTS), *(f"{part}_relative_square" for part in PARTS),
)  # fmt: skip
SUMS = (*OF_ALL, *OF_METRIC)
"""Sums over partitions. Unless stated otherwise, a partition kept with probability p counts p times:

`partitions`, `rows`: 1 and its rows, whether kept or not; `kept`, `kept_rows`: the same, if kept. Of a metric: `told`: 1
where its truth is a number; `square`, `root`: the expected squared error, and its root; `comparable`: 1 where the truth is
not zero either; `relative`: root over truth; `compared`, `compared_rows`: 1 and its rows where the truth is a number other
than zero, whether kept or not; `loss`, `row_loss`: the same, times the root over truth, at most 1, where it is kept, times 1
where it is not; `X_square`: the square of a part of the error; `X_relative_square`: the same over truth."""

MOST_CELLS = 2**24
"""Numbers that a table of moments may have, which bounds memory."""


def partitions_at_a_time(most_partitions: Sequence[int], most_rows: Sequence[int], variables: int) -> int:
    """How many partitions to process together."""
    return max(1, MOST_CELLS // ((len(most_partitions) + 1) * (len(most_rows) + 1) * max(4 * variables, 1)))


def candidates(configurations: Sequence[Configuration]) -> tuple[list[int], list[int]]:
    """The candidates of both bounds, ascending."""
    return (
        sorted({configuration.max_partitions for configuration in configurations}),
        sorted({configuration.max_rows for configuration in configurations}),
    )


def variables(configurations: Sequence[Configuration]) -> list[Variable]:
    """The variables that estimates use, each once."""
    found = [v for c in configurations for e in c.estimates for v in (e.total, e.count) if v is not None]
    return list(dict.fromkeys(found))


def tally(pairs: Pairs, configurations: Sequence[Configuration], times: float = 1.0) -> pa.Table:
    """The sums of some partitions.

    Args:
        pairs: of these partitions.
        configurations: all of them.
        times: how often each partition counts.
    """
    most_partitions, most_rows = candidates(configurations)
    kept = KeptMoments(pairs, most_partitions, most_rows)
    users, rows = kept.whole(UNITS), kept.whole(ROWS)
    buckets = size_of(users)
    by_size = np.argsort(buckets, kind="stable")
    sizes, begins = np.unique(buckets[by_size], return_index=True)
    found = []
    for configuration in configurations:
        places = (most_partitions.index(configuration.max_partitions), most_rows.index(configuration.max_rows))
        chosen, of_metrics = errors(kept, configuration, *places)
        common = {"partitions": np.ones(len(rows)), "rows": rows, "kept": chosen.keep, "kept_rows": chosen.keep * rows}
        for place, estimate in enumerate(configuration.estimates):
            sums = common | _of_metric(of_metrics[estimate.name], chosen, rows)
            summed = times * np.add.reduceat(np.stack([sums[name] for name in SUMS])[:, by_size], begins, axis=1)
            numbers = (configuration.number, place)
            keys = dict(zip(KEYS, (*map(np.asarray, numbers), sizes), strict=True))
            columns: dict[str, object] = {
                name: np.asarray(np.broadcast_to(key, sizes.shape), np.int32) for name, key in keys.items()
            }
            found.append(pa.table(columns | dict(zip(SUMS, summed, strict=True))))
    return pa.concat_tables(found) if found else nothing()


def _of_metric(error: Error, chosen: Selected, rows: Floats) -> dict[str, Floats]:
    with np.errstate(all="ignore"):
        told = np.isfinite(error.truth) & np.isfinite(error.square)
        comparable = told & (error.truth != 0)
        root = np.sqrt(np.maximum(error.square, 0))
        size = np.abs(error.truth)
        relative = root / size
        loss = chosen.keep * np.minimum(relative, 1.0) + (1 - chosen.keep)
        sums = {
            "told": (told, chosen.keep),
            "square": (told, chosen.keep * error.square),
            "root": (told, chosen.keep * root),
            "comparable": (comparable, chosen.keep),
            "relative": (comparable, chosen.keep * relative),
            "compared": (comparable, np.ones(len(rows))),
            "compared_rows": (comparable, rows),
            "loss": (comparable, loss),
            "row_loss": (comparable, loss * rows),
        }
        for part, values in error.parts.items():
            sums[f"{part}_square"] = (told, chosen.keep * values**2)
            sums[f"{part}_relative_square"] = (comparable, chosen.keep * (values / size) ** 2)
        return {name: np.where(where, values, 0.0) for name, (where, values) in sums.items()}


def nothing() -> pa.Table:
    """A table of no partitions."""
    keys = {name: pa.array([], pa.int32()) for name in KEYS}
    return pa.table(keys | {name: pa.array([], pa.float64()) for name in SUMS})


def merged(tables: Iterable[pa.Table]) -> pa.Table:
    """The sums of disjoint partitions together, sorted by configuration, metric and size."""
    summed = pa.concat_tables([nothing(), *tables]).group_by(list(KEYS)).aggregate([(name, "sum") for name in SUMS])
    named = summed.rename_columns([name.removesuffix("_sum") for name in summed.column_names])
    return named.select([*KEYS, *SUMS]).sort_by([(key, "ascending") for key in KEYS])


def partitions_of(sums: pa.Table) -> int:
    """How many partitions are summed up."""
    first = pc.and_(pc.equal(sums["configuration"], 0), pc.equal(sums["metric"], 0))
    return round(pc.sum(sums.filter(first)["partitions"]).as_py() or 0.0)


def empty_partitions(configurations: Sequence[Configuration], columns: Sequence[str], count: int) -> pa.Table:
    """The sums of public partitions without any row."""
    none = np.zeros(0, np.int64)
    values = {column: np.zeros(0) for column in columns}
    pairs = Pairs(partitions=none, size=1, of_unit=none, rows=none, values=values)
    return tally(pairs, configurations, float(count)) if count else nothing()
