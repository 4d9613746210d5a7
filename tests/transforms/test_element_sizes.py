"""No element of a shuffle is larger than `ELEMENT_BYTES`, however the rows lie.

In: rows that could make one: all of one unit, all of one partition, wide statistics, a large table. Out: every table that is
written for another step, by size. Holds: what Arrow adds to a table's own bytes is allowed for.
"""

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import ContributionBounds, Count, Histogram, PublicPartitions, Query, Sum
from dp_pipelines.kernels import shard, sizes
from dp_pipelines.kernels.columns import long_text
from dp_pipelines.transforms.coder import ArrowTableCoder
from tests.helpers.pipelines import one_stage, publish

CAP = 64 * 2**10
"""The cap in these tests: with its own rows would have to be many."""

ROWS = 10_000


@pytest.fixture
def largest(monkeypatch):
    """The cap made small; and the largest element so far."""
    monkeypatch.setattr(shard.pieces, "__defaults__", (CAP,))
    monkeypatch.setattr(shard, "ELEMENT_BYTES", CAP)  # up to which a slice is taken as it is
    monkeypatch.setattr(long_text.with_texts, "__defaults__", (CAP,))
    found, encode = [0], ArrowTableCoder.encode

    def watched(self, value):
        made = encode(self, value)
        if "unit" not in value.column_names:  # what the test itself hands in
            found.append(max(found[-1], len(made)))
        return made

    monkeypatch.setattr(ArrowTableCoder, "encode", watched)
    return found


def stage(metrics, most=1, **fields):
    bounds = ContributionBounds(max_partitions_contributed=most, max_contributions_per_partition=1)
    return one_stage(Query(privacy_unit="unit", partition_by="key", bounds=bounds, metrics=metrics, **fields))


def rows(units, keys):
    return pa.table({"unit": units, "key": keys, "value": np.arange(ROWS) / ROWS})


HISTOGRAM = {"spread": Histogram("value", edges=[i / 500 for i in range(501)])}
SHAPES = {
    "one unit has all rows": (rows(np.zeros(ROWS, np.int64), np.arange(ROWS)), {"n": Count()}, {"most": ROWS}),
    "one partition has all rows": (rows(np.arange(ROWS), np.zeros(ROWS, np.int64)), {"n": Count()}, {}),
    "long texts": (rows(np.arange(ROWS), [f"{i:0200}" for i in range(ROWS)]), {"n": Count()}, {}),
    "a text for all": (rows(np.arange(ROWS), ["x" * 2_000] * ROWS), {"n": Count()}, {}),
    "many cells of each partition": (rows(np.arange(ROWS), np.arange(ROWS) % 200), HISTOGRAM, {}),
    "a public list with many cells": (
        rows(np.arange(ROWS), np.arange(ROWS) % 200),
        HISTOGRAM,
        {"partitions": PublicPartitions(keys=[(key,) for key in range(200)])},
    ),
    "many released partitions": (
        rows(np.arange(ROWS), np.arange(ROWS)),
        {"n": Count(), "sum": Sum("value", min_value=0, max_value=1)},
        {"partitions": PublicPartitions(keys=[(key,) for key in range(ROWS)])},
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_element_is_beyond_the_cap(shape, largest, tmp_path):
    table, metrics, fields = SHAPES[shape]
    publish(stage(metrics, **fields), [table], tmp_path / "out", shards=1)
    assert 0 < largest[-1] <= CAP + 4096


@pytest.mark.parametrize("shape", ["one unit has all rows", "many cells of each partition", "many released partitions"])
def test_without_the_cut_there_would_be_one(shape, largest, tmp_path, monkeypatch):
    table, metrics, fields = SHAPES[shape]
    monkeypatch.setattr(shard.pieces, "__defaults__", (2**40,))
    publish(stage(metrics, **fields), [table], tmp_path / "out", shards=1)
    assert largest[-1] > 2 * CAP


def test_pieces_put_together_are_the_table_and_a_row_is_never_cut():
    texts = pa.array([f"{i:0100}" for i in range(5000)]).dictionary_encode()
    table = pa.table({"a": range(5000), "t": texts, "l": [[i] * 3 for i in range(5000)]})
    found = list(shard.pieces(table, most=10_000))
    assert max(piece.nbytes for piece in found) <= 10_000
    assert pa.concat_tables(found).to_pylist() == table.to_pylist()
    assert [piece.num_rows for piece in shard.pieces(table.slice(0, 3), most=1)] == [1, 1, 1]


def test_the_cap_is_far_below_what_runners_take():
    assert sizes.ELEMENT_BYTES + 2**20 < 20 * 2**20
