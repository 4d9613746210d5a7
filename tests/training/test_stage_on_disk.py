"""Statistics over examples on disk: what they release is what a pipeline of Beam releases, but for where it runs."""

import random

import pyarrow as pa
import pytest

from dp_pipelines import (
    ContributionBounds,
    Count,
    Mean,
    PrivacyIdCount,
    PrivatePartitions,
    PublicPartitions,
    Query,
    Sum,
)
from dp_pipelines.auto_bounds import value_bounds
from dp_pipelines.kernels import shard
from dp_pipelines.metrics.histogram import Histogram
from dp_pipelines.metrics.quantiles import Quantiles
from dp_pipelines.query.query import Top
from dp_pipelines.training import stage_on_disk
from tests.helpers import quiet
from tests.helpers.pipelines import one_stage, publish
from tests.helpers.quiet import silence

SALT = 7

NUMBERS = {
    "rows": Count(),
    "users": PrivacyIdCount(),
    "visits": Quantiles("visits", quantiles=[0.25, 0.5], min_value=0, max_value=60),
    "cells": Histogram("visits", edges=[0, 1, 5, 60]),
    "mean": Mean("visits", min_value=0, max_value=60),
    "clipped": Sum("visits", min_sum_per_partition=0, max_sum_per_partition=50),
}


def over_all(metrics=NUMBERS, rows=2):
    return Query(
        privacy_unit="who",
        partition_by=value_bounds.COLUMN,
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=rows),
        metrics=metrics,
        partitions=PublicPartitions(keys=[(value_bounds.COLUMN,)]),
    )


def votes(**fields):
    return Query(
        privacy_unit="who",
        partition_by="age",
        bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1),
        metrics={"users": PrivacyIdCount()},
        partitions=PrivatePartitions(),
        **fields,
    )


def rows_of(rows=4000, users=500):
    numbers = random.Random(11)
    ages = ["A", "B", "C", None, "rare"]
    return pa.table(
        {
            "who": [f"user {numbers.randrange(users)}" for _ in range(rows)],
            "age": numbers.choices(ages, [30, 20, 10, 10, 0.01], k=rows),
            "visits": pa.array(
                numbers.choices([None, float("nan"), *range(70)], k=rows), pa.float64(), from_pandas=False
            ),
        }
    )


def by_unit(table, parts=5):
    """Tables of whole units."""
    return [part for _, part in shard.slices(table, ["who"], 3, parts)]


def without_noise(monkeypatch):
    silence(monkeypatch)
    monkeypatch.setattr(stage_on_disk, "draw_release", quiet.release)


def constant(table):
    return table.append_column(value_bounds.COLUMN, pa.array([value_bounds.COLUMN] * table.num_rows, pa.string()))


@pytest.mark.parametrize(
    ("query", "prepare"),
    [
        (over_all(), constant),
        (votes(), lambda table: table),
        (votes(top=Top(k=2, by="users")), lambda table: table),
        (votes(row_id="visits"), lambda table: table),
    ],
    ids=["numbers over all", "values of a category", "the most frequent", "row ids"],
)
@pytest.mark.parametrize("rows", [4000, 0])
def test_a_release_in_this_process_equals_that_of_a_pipeline(query, prepare, rows, tmp_path, monkeypatch):
    without_noise(monkeypatch)
    table = rows_of(rows)
    stage = one_stage(query, epsilon=30)
    there = publish(stage, [prepare(table)], tmp_path / "out", salt=SALT)
    here = stage_on_disk.release(stage, by_unit(table) or [table], SALT)
    assert here.equals(there)
    assert here.num_rows >= (rows > 0)


def test_tables_that_share_a_unit_are_what_the_comparison_would_find(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    table = rows_of()
    stage = one_stage(over_all(), epsilon=30)
    there = publish(stage, [constant(table)], tmp_path / "out", salt=SALT)
    assert not stage_on_disk.release(stage, [table.slice(0, 2000), table.slice(2000)], SALT).equals(there)


def test_the_order_of_tables_and_rows_changes_nothing(monkeypatch):
    without_noise(monkeypatch)
    stage, table = one_stage(over_all(), epsilon=30), rows_of()
    backwards = table.take(list(range(table.num_rows))[::-1])
    first = stage_on_disk.release(stage, by_unit(table), SALT)
    assert stage_on_disk.release(stage, by_unit(backwards, 9)[::-1], SALT).equals(first)


@pytest.mark.parametrize("tables", [[], [rows_of(0)], [rows_of(0)] * 3], ids=["none", "one", "three"])
def test_no_rows_release_noise_around_zero(tables):
    assert stage_on_disk.release(one_stage(over_all()), tables, SALT)[value_bounds.COLUMN].to_pylist() == [
        value_bounds.COLUMN
    ]
    assert stage_on_disk.release(one_stage(votes()), tables, SALT).num_rows == 0


def test_two_calls_are_two_draws():
    stage, tables = one_stage(over_all()), by_unit(rows_of(100))
    assert not stage_on_disk.release(stage, tables, SALT).equals(stage_on_disk.release(stage, tables, SALT))


def test_a_column_of_that_name_in_the_rows_decides_nothing(monkeypatch):
    without_noise(monkeypatch)
    stage, table = one_stage(over_all(), epsilon=30), rows_of()
    mixed = table.append_column(value_bounds.COLUMN, pa.array(["a", value_bounds.COLUMN] * (table.num_rows // 2)))
    wanted = stage_on_disk.release(stage, [table], SALT)
    assert stage_on_disk.release(stage, [mixed], SALT).equals(wanted)
