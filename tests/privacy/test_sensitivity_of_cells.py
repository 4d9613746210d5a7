"""The sensitivity of counts over cells and of numbers of different values, on integers (docs/proofs/sensitivity.md, 3).

As in test_sensitivity: neighbouring data sets through the whole way of the kernels, no noise, nothing that fails by chance.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels import bounding, contributions, distinct
from dp_pipelines.kernels.cells import Bins, TreeLevel
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import CellCounts, DistinctValues
from dp_pipelines.metrics.counts import DistinctCount
from dp_pipelines.metrics.histogram import Histogram
from dp_pipelines.planning.stage import build_stage
from dp_pipelines.planning.stage_choices import Choice, StageChoices
from dp_pipelines.query.query import ContributionBounds, PublicPartitions, Query
from tests.helpers import cells as wide
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples
from tests.privacy.test_sensitivity import Scales

BOUND = [mode for mode in nb.MODES if mode != "rows in all"]


def broken(pair: nb.Neighbours, way: nb.Way = nb.STRAIGHT, other_way: nb.Way = nb.STRAIGHT) -> list[str]:
    """All statistics that one unit moves too far."""
    plain = tuple(statistic for statistic in pair.statistics if statistic.cells is None)
    numbers = dataclasses.replace(pair, statistics=plain)
    return wide.too_sensitive(pair, way, other_way) + nb.too_sensitive(numbers, way, other_way)


@settings(max_examples=examples(75, 300))
@given(data=st.data())
def test_one_unit_moves_no_cell_and_no_number_of_values_by_more_than_its_shape(data: st.DataObject) -> None:
    pair = data.draw(wide.with_cells())
    ways = data.draw(nb.ways(pair.smaller.num_rows)), data.draw(nb.ways(pair.larger.num_rows))
    assert broken(pair, *ways) == []


@pytest.mark.parametrize("bits", [3, 3 << 62, 0], ids=["low", "high", "none"])
@settings(max_examples=examples(25, 80))
@given(data=st.data())
def test_a_hash_without_strength_costs_no_privacy(bits: int, data: st.DataObject) -> None:
    pair = data.draw(wide.with_cells())
    way = data.draw(nb.ways(pair.larger.num_rows))
    with pytest.MonkeyPatch.context() as patch:
        nb.weak_hashes(patch, bits)
        assert broken(pair, nb.STRAIGHT, way) == []


@settings(max_examples=60)
@given(pair=wide.with_cells())
def test_the_kept_rows_of_others_are_byte_identical(pair: nb.Neighbours) -> None:
    assert not nb.changed_for_others(pair)


@pytest.mark.parametrize("max_rows", [None, 6])
def test_the_declared_shapes_are_reached(max_rows: int | None) -> None:
    bins, leaf = Bins(edges=(0.0, 1.0, 10.0)), TreeLevel(low=0.0, high=9.0, branching=3, depth=2, level=2)
    statistics = [CellCounts(column="n0", cells=cells) for cells in (bins, leaf)]
    statistics += [] if max_rows else [DistinctValues(column="k0", most=most) for most in (None, 4)]
    layout = Layout(
        units=("u0",),
        partitions=("p0",),
        cells=(("n0", bins), ("n0", leaf)),
        distinct=() if max_rows else (("k0", None), ("k0", 4)),
        max_partitions=max_rows or 3,
        max_rows_per_partition=max_rows or 2,
        max_rows=max_rows,
    )
    rows = {"u0": [1] * 40, "p0": np.repeat(np.arange(8), 5), "n0": [5.0] * 40, "k0": list(range(40))}
    spread_out = pa.table({**rows, "n0": np.arange(40) % 9 + 0.5})
    one_cell = pa.table({**rows, "p0": [0] * 40}) if max_rows else pa.table(rows)
    for index, statistic in enumerate(statistics):
        shape = statistic.shape(
            max_partitions=layout.max_partitions,
            max_rows_per_partition=layout.max_rows_per_partition,
            max_rows=max_rows,
        )
        unit = shape.unit >> statistic.fine_bits
        merged = nb.totals(one_cell, layout, statistics)
        if statistic.cells is None:
            sums = [of_key[index] for of_key in nb.exact(merged).values()]
            assert sum(sums) == shape.in_total * unit
            assert max(sums) == shape.per_coordinate * unit
            continue
        found = wide.counts(merged, index)
        assert sum(found.values()) == shape.in_total * unit
        assert max(found.values()) == shape.per_coordinate * unit
        if isinstance(statistic.cells, TreeLevel) and max_rows is None:
            # Rows of one partition in different cells: as many cells move as rows are kept, where contents differ.
            assert len(wide.counts(nb.totals(spread_out, layout, statistics), index)) == shape.coordinates


@settings(max_examples=60)
@given(data=st.data())
def test_the_records_of_a_stage_bound_what_one_unit_moves(data: st.DataObject) -> None:
    pair = data.draw(wide.with_cells(modes=["partitions and rows"]))
    layout = pair.layout
    tops = [statistic for statistic in pair.statistics if isinstance(statistic.cells, Bins)]
    metrics = {f"h{i}": Histogram(s.column, edges=s.cells.edges) for i, s in enumerate(tops)}  # type: ignore[union-attr, arg-type]
    metrics["different"] = DistinctCount("k0", max_values_per_partition=data.draw(st.sampled_from([None, 2])))
    keys = {tuple(key) for key in zip(*(pair.larger.column(p).to_pylist() for p in layout.partitions), strict=True)}
    query = Query(
        privacy_unit=layout.units,
        partition_by=layout.partitions,
        bounds=ContributionBounds(
            max_partitions_contributed=layout.max_partitions,
            max_contributions_per_partition=layout.max_rows_per_partition,
        ),
        metrics=metrics,
        partitions=PublicPartitions(keys=sorted(keys, key=repr)),
        row_id=layout.row_id,
    )
    names = {s.name: s for metric in metrics.values() for s in metric.statistics(None)}  # type: ignore[arg-type]
    laws = {n: data.draw(st.sampled_from(["gaussian", "laplace"])) for n in names}
    choices = {n: Choice(law=laws[n], steps=data.draw(st.integers(1, 5000))) for n in names}
    stage = build_stage("stage", query, StageChoices(strategy=None, noises=FrozenMapping(choices)), Scales())
    of_name = {record.name: record for record in stage.mechanisms}
    both = [nb.totals(table, stage.layout, stage.statistics) for table in (pair.smaller, pair.larger)]
    for index, (statistic, noise) in enumerate(zip(stage.statistics, stage.noises, strict=True)):
        if noise is None:
            continue
        how = nb.coarse if statistic.cells is None else wide.coarse
        moved = nb.distances(*(how(of, index, noise.fine_bits, noise.step) for of in both))  # type: ignore[operator]
        record = of_name[statistic.name]
        assert sum(d > 0 for d in moved) <= record.l0  # type: ignore[operator]
        if record.kind == "gaussian":
            assert sum(d * d for d in moved) <= record.l2_squared  # type: ignore[operator]
        else:
            assert max(moved, default=0) <= record.linf  # type: ignore[operator]
            assert sum(moved) <= record.l1  # type: ignore[operator]


# Planted faults, each found by hypothesis among the same neighbours.

Patch = pytest.MonkeyPatch


def _keeps_all_values(patch: Patch) -> None:
    least = distinct.least
    patch.setattr(distinct, "least", lambda groups, hashes, values, most: least(groups, hashes, values, 10**6))


def _bounds_values_of_a_batch_alone(patch: Patch) -> None:
    # Forgets that a unit's values of several batches meet again: all that arrive count.
    different = contributions.different_values

    def whole(wire: Any, layout: Any, kept: Any, index: int) -> Any:
        wider = dataclasses.replace(layout, distinct=tuple((c, 10**6) for c, _ in layout.distinct))
        return different(wire, wider, kept, index)

    patch.setattr(contributions, "different_values", whole)


def _skips_the_row_bound(patch: Patch) -> None:
    bounded = contributions.bound_partitions
    patch.setattr(
        contributions, "bound_partitions", lambda *a, **k: bounded(*a, **{**k, "max_rows_per_partition": 10**6})
    )


def _keeps_all_partitions(patch: Patch) -> None:
    first = bounding._first_of_each
    patch.setattr(
        bounding, "_first_of_each", lambda groups, most: (np.ones(len(groups), np.bool_), first(groups, most)[1])
    )


def _puts_rows_into_two_cells(patch: Patch) -> None:
    from dp_pipelines.kernels import accumulate

    cells = accumulate._Shard.cells

    def twice(self: Any, column: str, declared: Any) -> Any:
        codes, found = cells(self, column, declared)
        return np.concatenate([codes, codes]), np.concatenate([found, found])

    patch.setattr(accumulate._Shard, "cells", twice)


FAULTS = [
    _keeps_all_values,
    _bounds_values_of_a_batch_alone,
    _skips_the_row_bound,
    _keeps_all_partitions,
    _puts_rows_into_two_cells,
]
SEARCH = settings(max_examples=400, phases=[hypothesis.Phase.generate], database=None, derandomize=True)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
def test_a_planted_fault_is_found(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    fault(monkeypatch)
    found = hypothesis.find(wide.with_cells(modes=BOUND), lambda pair: bool(broken(pair)), settings=SEARCH)
    monkeypatch.undo()
    assert not broken(found), "without the fault the same pair keeps the law"
