"""Weighted means of a release as numbers to plot: each in place of the two sums from which it is computed.

In: a published table with the columns of the means; the pairs of sums. Out: the table with other numbers, and the entries of a
manifest that go with them. Holds: post-processing of published numbers. Not covered: the cells of a table, which have the sums
too, and the columns themselves (`derived_columns`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines.metrics.error_bars import ERROR_BAR
from dp_pipelines.metrics.sums import Mean
from dp_pipelines.metrics.weighted_mean import SumPair, released_pairs
from dp_pipelines.report.derived import derived_columns
from dp_pipelines.report.pages import mapping
from dp_pipelines.report.released_table import Numbers, Published


def pairs_of(stage: Mapping[str, Any], table: pa.Table, renamed: Mapping[str, str]) -> list[SumPair]:
    """Return the weighted means of a stage whose columns a table has.

    Args:
        stage: its entry in the manifest, with the names of the release.
        table: the published one.
        renamed: the names that the page gives its columns.
    """
    found = []
    for pair in released_pairs(mapping(stage.get("metrics"))):
        name, weighted, weights = (renamed.get(one, one) for one in (pair.name, pair.weighted, pair.weights))
        if {*derived_columns.column_names(name, ranged=False), weighted, weights} <= {*table.column_names}:
            found.append(dataclasses.replace(pair, name=name, weighted=weighted, weights=weights))
    return found


def in_place_of_sums(published: Published, pairs: Sequence[SumPair]) -> Published:
    """Return a table whose numbers have weighted means in place of their sums; the columns stay as they are.

    Args:
        published: the table.
        pairs: its weighted means, under the names of its columns.
    """
    sums = {name for pair in pairs for name in (pair.weighted, pair.weights)}
    means = tuple(_numbers(published.table, pair.name) for pair in pairs)
    others = tuple(metric for metric in published.metrics if metric.name not in sums)
    return dataclasses.replace(published, metrics=(*means, *others))


def entries_of(pairs: Sequence[SumPair]) -> dict[str, Any]:
    """Return what a manifest would say of weighted means if they were metrics."""
    return {pair.name: {"kind": Mean.kind, "range": [pair.low, pair.high]} for pair in pairs}


def _numbers(table: pa.Table, name: str) -> Numbers:
    """Return a weighted mean with error bars as long as its intervals."""
    value, low, high = (
        np.asarray(table.column(column).to_numpy(), np.float64)
        for column in derived_columns.column_names(name, ranged=False)
    )
    return Numbers(name=name, values=value, stddevs=(high - low) / 2 / ERROR_BAR, deviations=ERROR_BAR)
