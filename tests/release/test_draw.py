"""The one step that draws: a number is an exact total and a draw of its own, and what is kept is what the threshold keeps.

In: totals of a few partitions, draws and coins that the test knows. Out: released tables, taken apart again. Holds: nothing here
is statistical: each number is found again, each draw is used once. Not covered: the laws (tests/noise), and whether records are
true (tests/privacy).
"""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import (
    ContributionBounds,
    Count,
    GeometricMean,
    Histogram,
    Mean,
    Median,
    Plan,
    PrivacyIdCount,
    PrivatePartitions,
    PublicPartitions,
    Query,
    Sum,
    Variance,
)
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.metrics.base import Noisy
from dp_pipelines.noise.laws import Law
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import draw, gate, manifest
from dp_pipelines.release.draw import draw_release
from dp_pipelines.selection import truncated_geometric
from tests.helpers import neighbours, quiet

KEYS = [f"k{number}" for number in range(8)]


def rows() -> pa.Table:
    """Partition k{n} has n + 1 units with one row each; rows are neither in the order of keys nor of units."""
    pairs = sorted(
        ((unit, key) for n, key in enumerate(KEYS) for unit in range(n + 1)), key=lambda p: (p[0] * 5 % 8, p[1][::-1])
    )
    units, keys = zip(*reversed(pairs), strict=True)
    return pa.table({"who": units, "key": keys, "paid": [float(unit) for unit in units]})


def stage_of(**asked: Any) -> tuple[StagePlan, Totals]:
    base: dict[str, Any] = {
        "privacy_unit": "who",
        "partition_by": "key",
        "bounds": ContributionBounds(max_partitions_contributed=8, max_contributions_per_partition=1),
    }
    stage = Plan(epsilon=2.0, delta=1e-5, stages={"s": Query(**{**base, **asked})})["s"]
    (totals,) = neighbours.totals(rows(), stage.layout, stage.statistics)
    return stage, totals


class Numbered:
    """Draws that are all different, and written down by their law."""

    given: dict[Law, list[int]]
    last: int

    @classmethod
    def fresh(cls) -> type["Numbered"]:
        return type("Fresh", (cls,), {"given": {}, "last": 1000})

    def __init__(self, law: Law) -> None:
        self.law = law

    def draw(self, n: int) -> np.ndarray:
        kind = type(self)
        found = np.arange(kind.last, kind.last + 7 * n, 7)
        kind.last += 7 * n + 1
        kind.given.setdefault(self.law, []).extend(found.tolist())
        return found


def test_every_number_is_its_total_and_a_draw_of_its_own_from_the_law_that_is_accounted() -> None:
    stage, totals = stage_of(
        partitions=PublicPartitions(keys=[(key,) for key in reversed(KEYS)]),
        metrics={
            "rows": Count(),
            "users": PrivacyIdCount(),
            "total": Sum("paid", min_value=0, max_value=10),
            "sizes": Histogram("paid", edges=[0, 2, 4, 10]),
        },
    )
    samplers = Numbered.fresh()
    table = draw_release(totals, stage, samplers=samplers, words=quiet.all_ones)
    assert table.column("key").to_pylist() == KEYS
    order = np.argsort(totals.partitions[0].to_pylist())
    columns = {"rows": "rows", "units": "users", "sum": "total", "cells": "sizes"}
    found: dict[Law, list[int]] = {}
    for index, (statistic, noise) in enumerate(zip(stage.statistics, stage.noises, strict=True)):
        assert noise is not None
        published = np.array(table.column(columns[statistic.kind]).to_pylist(), np.float64)
        steps = published / noise.unit - float(noise.law.offset)
        how: dict[str, int] = {"shift": noise.fine_bits, "step": noise.step}
        if statistic.width is None:
            exact = totals.coarse(index, **how)
        else:
            exact = totals.coarse_lists(index, np.arange(len(KEYS)), **how)
        drawn = (steps - exact[order]).ravel()
        assert np.abs(drawn - np.rint(drawn)).max() < 1e-6
        found.setdefault(noise.law, []).extend(np.rint(drawn).astype(int).tolist())
    assert {law: sorted(draws) for law, draws in found.items()} == {
        law: sorted(draws) for law, draws in samplers.given.items()
    }
    of_records = {record.scale for record in stage.mechanisms}
    assert {law.scale for law in samplers.given} == of_records


RANGED = {
    "mean": Mean("paid", min_value=0, max_value=10),
    "variance": Variance("paid", min_value=0, max_value=10),
    "middle": Median("paid", min_value=0, max_value=10),
    "geometric": GeometricMean("paid", min_value=1, max_value=10),
}
"""Metrics whose values lie in a range, which is narrow beside the noise of one unit."""


def test_a_published_deviation_is_at_most_half_of_the_range_and_the_values_stay() -> None:
    keys = PublicPartitions(keys=[(key,) for key in KEYS])
    stage, totals = stage_of(partitions=keys, metrics={**RANGED, "total": Sum("paid", min_value=0, max_value=10)})
    table = draw_release(totals, stage, samplers=quiet.NoNoise, words=quiet.all_ones)
    exact = {
        statistic: Noisy(
            values=np.zeros(1) if statistic.width is None else np.zeros((1, statistic.width)), stddev=noise.stddev
        )
        for statistic, noise in zip(stage.statistics, stage.noises, strict=True)
        if noise is not None
    }
    for name, metric in RANGED.items():
        assert metric.value_range is not None
        low, high = metric.value_range
        assert max(table.column(f"{name}_stddev").to_pylist()) == (high - low) / 2
        assert all(low <= value <= high for value in table.column(name).to_pylist())
        # What computes with noise takes this, which no cap has touched.
        if name != "middle":
            assert metric.finish(exact, stage.basis(metric))[1].max() > (high - low) / 2
    assert min(table.column("total_stddev").to_pylist()) > 5  # a sum has no range
    (described,) = manifest.stages_to_json({"s": stage})
    assert described["metrics"]["mean"]["range"] == [0, 10]
    assert described["metrics"]["variance"]["range"] == [0, 25]
    assert "range" not in described["metrics"]["total"]
    law = described["metrics"]["mean"]["statistics"]
    assert min(statistic["stddev"] for statistic in law.values()) > 0


def at_the_threshold(stage: StagePlan, totals: Totals, above: Callable[[int], int]) -> type:
    """Draws with which what is compared is so many steps above the threshold in each partition."""
    selection = stage.selection
    assert selection is not None
    noise = selection.noise
    assert noise is not None
    exact = totals.coarse(selection.statistic, shift=noise.fine_bits, step=noise.step)
    steps = np.array([above(int(key[1:])) for key in totals.partitions[0].to_pylist()])

    class Near(quiet.NoNoise):
        def draw(self, n: int) -> np.ndarray:
            return selection.threshold - exact + steps if n == len(exact) else super().draw(n)

    return Near


@pytest.mark.parametrize("metrics", [{}, {"users": PrivacyIdCount()}], ids=["own noise", "released noise"])
@pytest.mark.parametrize("strategy", ["laplace", "gaussian"])
def test_a_partition_is_kept_from_the_threshold_on(strategy: Any, metrics: dict[str, Any]) -> None:
    stage, totals = stage_of(partitions=PrivatePartitions(strategy=strategy), metrics=metrics)
    even = at_the_threshold(stage, totals, lambda number: -(number % 2))
    table = draw_release(totals, stage, samplers=even, words=quiet.all_ones)
    assert table.column("key").to_pylist() == KEYS[::2]


def test_weights_are_compared_with_their_threshold() -> None:
    stage, totals = stage_of(partitions=PrivatePartitions(strategy="weighted_gaussian"), metrics={})
    odd = at_the_threshold(stage, totals, lambda number: number % 2 - 1)
    assert draw_release(totals, stage, samplers=odd, words=quiet.all_ones).column("key").to_pylist() == KEYS[1::2]


@pytest.mark.parametrize("strategy", ["laplace", "gaussian", "truncated_geometric"])
@pytest.mark.parametrize("least", [2, 5])
def test_below_min_users_nothing_is_kept_whatever_is_drawn(strategy: Any, least: int) -> None:
    stage, totals = stage_of(partitions=PrivatePartitions(strategy=strategy, min_users=least), metrics={})
    samplers: Any = quiet.NoNoise
    if strategy != "truncated_geometric":
        samplers = at_the_threshold(stage, totals, lambda _: 2**30)
    table = draw_release(totals, stage, samplers=samplers, words=lambda n: np.zeros(n, np.uint64))
    assert table.column("key").to_pylist() == KEYS[least - 1 :]


@pytest.mark.parametrize("least", [2**20, 2**32, 2**33 + 1])
def test_numbers_of_units_beyond_32_bits_are_compared_whole(least: int) -> None:
    stage, totals = stage_of(partitions=PrivatePartitions(strategy="truncated_geometric", min_users=least), metrics={})
    assert stage.selection is not None
    longest = len(truncated_geometric.keep_table(stage.selection.epsilon, stage.selection.delta))
    units = least - 1 + np.array([-least // 2, -1, 0, longest, longest + 1, 2**32, 2**34, 2**39])
    at = [statistic.name for statistic in stage.statistics].index("units")
    high, low = [*totals.high], [*totals.low]
    high[at], low[at] = units >> 32, units & 0xFFFFFFFF
    many = dataclasses.replace(totals, high=tuple(high), low=tuple(low))
    # No word is below an entry of the table, so that those beyond it alone are kept.
    table = draw_release(many, stage, samplers=quiet.NoNoise, words=quiet.all_ones)
    assert table.column("key").to_pylist() == sorted(totals.partitions[0].to_pylist()[3:])


@pytest.mark.parametrize("least", [1, 3])
def test_a_coin_keeps_exactly_the_words_below_its_entry(least: int) -> None:
    stage, totals = stage_of(partitions=PrivatePartitions(strategy="truncated_geometric", min_users=least), metrics={})
    assert stage.selection is not None
    assert Fraction(stage.selection.delta) * 8 <= Fraction(stage.choices.selection_delta) * (1 + Fraction(1, 10**4))
    table = truncated_geometric.keep_table(stage.selection.epsilon, stage.selection.delta)
    entries = [int(table[max(0, n + 1 - (least - 1))]) for n in range(len(KEYS))]
    places = [int(key[1:]) for key in totals.partitions[0].to_pylist()]
    for below, kept in ((1, KEYS[least - 1 :]), (0, [])):
        words = np.array([max(entries[place] - below, 0) for place in places], np.uint64)
        found = draw_release(totals, stage, samplers=quiet.NoNoise, words=lambda n, words=words: words)
        assert found.column("key").to_pylist() == kept


def test_the_chance_of_a_unit_in_all_its_partitions_is_within_the_delta_of_selection() -> None:
    for strategy in ("laplace", "gaussian"):
        stage, _ = stage_of(partitions=PrivatePartitions(strategy=strategy), metrics={})  # type: ignore[arg-type]
        selection = stage.selection
        assert selection is not None
        assert selection.noise is not None
        alone = ((1 << selection.noise.fine_bits) + selection.noise.step // 2) // selection.noise.step
        each = selection.noise.law.tail(selection.threshold - alone)
        assert -math.expm1(8 * math.log1p(-each)) <= stage.choices.selection_delta


def test_portions_of_rows_have_the_keys_and_the_noise_that_belong_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, totals = stage_of(
        partitions=PublicPartitions(keys=[(key,) for key in KEYS]), metrics={"rows": Count(), "users": PrivacyIdCount()}
    )
    names = pa.array([f"the key of {code}" for code in totals.partitions[0].to_pylist()])
    some, found = np.array([0, 1, 3, 4, 6, 7]), []
    for portion in (1, 2, 4, 100):
        monkeypatch.setattr(draw, "LARGEST_PORTION", portion)
        permits = gate.open_gate(stage, samplers=quiet.NoNoise).over(len(KEYS))
        steps = draw.noisy_numbers(totals, stage, permits)
        tables = draw.released_tables(totals, stage, steps, some, permits, [names.take(pa.array(some))])
        assert len(tables) == -(-len(some) // portion)
        found.append(pa.concat_tables(tables).combine_chunks())
    assert all(table.equals(found[0]) for table in found)
    assert found[0].column("key").to_pylist() == names.take(pa.array(some)).to_pylist()
    exact = [1.0 + KEYS.index(name.rpartition(" ")[2]) for name in found[0].column("key").to_pylist()]
    assert found[0].column("rows").to_pylist() == exact
