"""The sensitivity of every statistic, on integers: what docs/proofs/sensitivity.md proves, and the code that it is about.

Neighbouring data sets (all rows of one unit more) go through the whole way of the kernels up to the noise. No test here
looks at noise, so none can fail by chance.
"""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels import accumulate, bounding, contributions, keys, shard
from dp_pipelines.kernels.lattice import Lattice, SummandLattice, logarithms
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import WEIGHT_BITS
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.counts import Count, PrivacyIdCount
from dp_pipelines.metrics.geometric_mean import GeometricMean
from dp_pipelines.metrics.sums import Mean, Sum, Variance
from dp_pipelines.planning.stage import StagePlan, build_stage, released_statistics
from dp_pipelines.planning.stage_choices import Choice, StageChoices
from dp_pipelines.query.query import ContributionBounds, Query
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples

STRONG, LOW_BITS, HIGH_BITS, NO_BITS = 2**64 - 1, 3, 3 << 62, 0
WEAK = {"low": LOW_BITS, "high": HIGH_BITS, "none": NO_BITS}


@settings(max_examples=examples(100, 300))
@given(data=st.data())
def test_one_unit_moves_no_statistic_by_more_than_its_shape(data: st.DataObject) -> None:
    pair = data.draw(nb.neighbours(other=True))
    ways = data.draw(nb.ways(pair.smaller.num_rows)), data.draw(nb.ways(pair.larger.num_rows))
    assert nb.too_sensitive(pair, *ways) == []


@settings(max_examples=100)
@given(pair=nb.neighbours(other=True))
def test_the_kept_rows_of_others_are_byte_identical(pair: nb.Neighbours) -> None:
    assert not nb.changed_for_others(pair)


@pytest.mark.parametrize("bits", WEAK.values(), ids=WEAK)
@settings(max_examples=examples(30, 100))
@given(data=st.data())
def test_a_hash_without_strength_costs_fairness_and_no_privacy(bits: int, data: st.DataObject) -> None:
    pair = data.draw(nb.neighbours(other=True))
    ways = data.draw(nb.ways(pair.smaller.num_rows)), data.draw(nb.ways(pair.larger.num_rows))
    with pytest.MonkeyPatch.context() as patch:
        nb.weak_hashes(patch, bits)
        assert nb.too_sensitive(pair, *ways) == []
        assert not nb.changed_for_others(pair)


def _extreme(high: float) -> pa.Table:
    """One unit with more partitions, and more rows in each, than are allowed, all of them as large as can be."""
    return pa.table({"u0": [1] * 40, "p0": np.repeat(np.arange(8), 5), "n0": [high] * 40})


@pytest.mark.parametrize("max_rows", [None, 6])
@pytest.mark.parametrize("centred", [False, True])
def test_the_declared_shapes_are_reached(max_rows: int | None, centred: bool) -> None:
    values = tuple(("n0", make(-1.0, 5.0, centred=centred)) for make in (Lattice.for_values, Lattice.for_squares))
    values += (("n0", Lattice.for_values(0.5, 5.0, centred=centred, through=logarithms)),)
    layout = Layout(
        units=("u0",),
        partitions=("p0",),
        values=values,
        summands=() if max_rows else (("n0", SummandLattice.for_sums(-1.0, 5.0)),),
        max_partitions=max_rows or 3,
        max_rows_per_partition=max_rows or 2,
        max_rows=max_rows,
    )
    extra = _extreme(5.0)
    one_partition = extra
    if max_rows:
        extra, one_partition = (extra.set_column(1, "p0", pa.array(p)) for p in (range(40), [7] * 40))
    statistics = nb.statistics_of(layout)
    pair = nb.Neighbours(smaller=extra.slice(0, 0), extra=extra, places=(0,) * 40, layout=layout, statistics=statistics)
    sums, in_one = (nb.exact(nb.totals(table, layout, statistics)) for table in (extra, one_partition))
    for index, statistic in enumerate(statistics):
        if statistic.kind == "weights":
            norm = sum(of_partition[index] ** 2 for of_partition in sums.values())
            assert (1 - 1e-5) * 4**WEIGHT_BITS < norm <= 4**WEIGHT_BITS
            continue
        shape, unit = pair.shape(statistic), pair.shape(statistic).unit >> statistic.fine_bits
        assert sum(of_partition[index] for of_partition in sums.values()) == shape.in_total * unit
        assert statistic.kind == "units" or max(s[index] for s in in_one.values()) == shape.per_coordinate * unit
        assert max_rows is not None or sum(s[index] > 0 for s in sums.values()) == shape.coordinates


# What a plan declares: the mechanism records.


@dataclasses.dataclass
class Scales:
    """Noise scales that change no sensitivity."""

    gaussian_scale: Fraction = Fraction(4096)
    laplace_scale: Fraction = Fraction(4096)


@st.composite
def stages(draw: st.DrawFn, pair: nb.Neighbours) -> StagePlan:
    """A stage over the columns of a pair, with every metric and chosen steps and laws."""
    layout = pair.layout
    metrics: dict[str, Metric] = {"rows": Count(), "units": PrivacyIdCount()}
    for column, lattice in layout.values:
        if lattice.through is not None:
            ends = {"min_value": math.exp(lattice.low), "max_value": math.exp(lattice.high)}
            metrics[f"{column}_geometric_mean"] = GeometricMean(column, **ends, nullable=draw(st.booleans()))
            continue
        ends = {"min_value": lattice.low, "max_value": lattice.high}
        metrics[f"{column}_sum"] = Sum(column, **ends)
        nullable = draw(st.booleans())
        metrics[f"{column}_mean"] = Mean(column, **ends, nullable=nullable)
        metrics[f"{column}_variance"] = Variance(column, **ends, nullable=nullable)
    for column, summand in layout.summands:
        metrics[f"{column}_clipped"] = Sum(
            column, min_sum_per_partition=summand.low, max_sum_per_partition=summand.high
        )
    if layout.max_rows is not None:
        bounds = ContributionBounds(max_contributions=layout.max_rows)
    else:
        bounds = ContributionBounds(
            max_partitions_contributed=layout.max_partitions,
            max_contributions_per_partition=layout.max_rows_per_partition,
        )
    query = Query(
        privacy_unit=layout.units,
        partition_by=layout.read_partitions,
        bounds=bounds,
        metrics=metrics,
        partitions=nb.partitions_of(layout),
        row_id=layout.row_id,
    )
    families = sorted({metric.family for metric in metrics.values() if metric.family is not None})
    centred = tuple(family for family in families if draw(st.booleans()))
    choices = {
        name: Choice(law=draw(st.sampled_from(["gaussian", "laplace"])), steps=draw(st.integers(1, 5000)))
        for name in released_statistics(query, centred)
    }
    strategy = None
    if layout.public is None:
        strategy = "weighted_gaussian"
        choices["selection"] = Choice(law="gaussian", steps=draw(st.integers(1, 5000)))
    return build_stage(
        "stage",
        query,
        StageChoices(strategy=strategy, noises=FrozenMapping(choices), selection_delta=1e-6, centred=centred),
        Scales(),
    )


def _broken(record: MechanismRecord, moved: list[int]) -> bool:
    if record.kind == "gaussian":
        return sum(d * d for d in moved) > record.l2_squared or sum(d > 0 for d in moved) > record.l0
    return max(moved, default=0) > record.linf or sum(moved) > record.l1 or sum(d > 0 for d in moved) > record.l0


def beyond_records(pair: nb.Neighbours, stage: StagePlan, computed: nb.Computed = nb.totals) -> list[str]:
    """The mechanism records that one unit exceeds, on the integers that noise is added to."""
    of_name = {record.name: record for record in stage.mechanisms}
    without, with_unit = (computed(t, stage.layout, stage.statistics, nb.STRAIGHT) for t in (pair.smaller, pair.larger))
    noises = [*zip(stage.statistics, stage.noises, strict=True)]
    if stage.selection is not None and not stage.selection.released:
        noises.append((stage.statistics[stage.selection.statistic], stage.selection.noise))
    found = []
    for statistic, noise in noises:
        if noise is None:
            continue
        index = stage.statistics.index(statistic)
        name = "selection" if statistic.kind == "weights" else statistic.name
        moved = nb.distances(*(nb.coarse(of, index, noise.fine_bits, noise.step) for of in (without, with_unit)))
        if _broken(of_name[name], moved):
            found.append(name)
    return found


@settings(max_examples=80)
@given(data=st.data())
def test_the_records_of_a_stage_bound_what_one_unit_moves(data: st.DataObject) -> None:
    pair = data.draw(nb.neighbours(other=True))
    stage = data.draw(stages(pair))
    assert {record.name for record in stage.mechanisms} >= set(stage.choices.noises)
    assert beyond_records(pair, stage) == []


# Planted faults, each found by hypothesis among the same neighbours.

Patch = pytest.MonkeyPatch
Law = Callable[[nb.Neighbours], Any]


def _keeps_all(patch: Patch) -> None:
    first = bounding._first_of_each
    patch.setattr(
        bounding, "_first_of_each", lambda groups, most: (np.ones(len(groups), np.bool_), first(groups, most)[1])
    )


def _skips_the_row_bound(patch: Patch) -> None:
    bounded = contributions.bound_partitions
    patch.setattr(
        contributions, "bound_partitions", lambda *a, **k: bounded(*a, **{**k, "max_rows_per_partition": 10**6})
    )


def _skips_the_clip_of_values(patch: Patch) -> None:
    def integers(self: Lattice, values: np.ndarray) -> np.ndarray:
        values = np.nan_to_num(values)
        moved = np.clip((self.through(values) if self.through else values) - self.centre, -1e140, 1e140)
        moved = moved * moved - self.square_centre if self.square else moved
        # As far as the headroom of the sums allows.
        return np.clip(np.rint(np.ldexp(moved, self.exponent)), -(2.0**30), 2.0**30).astype(np.int64)

    patch.setattr(Lattice, "integers", integers)


def _skips_the_clip_of_sums(patch: Patch) -> None:
    def unclipped(self: Any, column: str, lattice: Any) -> np.ndarray:
        index = self.layout.summands.index((column, lattice))
        inside = self.bounded.pair_of_row >= 0
        sums = np.zeros(len(self.bounded.starts), np.int64)
        np.add.at(sums, self.bounded.pair_of_row[inside], self.wire.column(f"s{index}").to_numpy()[inside])
        return accumulate.sums_by_code(self._codes_of_pairs(), np.clip(sums, -(2**30), 2**30), self.size)

    patch.setattr(accumulate._Shard, "clipped_sums", unclipped)


def _clips_rows_instead_of_sums(patch: Patch) -> None:
    integers = SummandLattice.integers
    patch.setattr(SummandLattice, "integers", lambda self, values: np.clip(integers(self, values), *self.clip_bounds))
    _skips_the_clip_of_sums(patch)


def _counts_a_unit_per_row(patch: Patch) -> None:
    patch.setattr(accumulate._Shard, "units", lambda self: np.bincount(self.codes, minlength=self.size))


def _gives_whole_weights(patch: Patch) -> None:
    patch.setattr(accumulate, "unit_weights", lambda of_unit: np.full(len(of_unit), 1 << WEIGHT_BITS))


def _shards_by_row(patch: Patch) -> None:
    patch.setattr(shard, "_numbers", lambda hashes, shards: np.arange(len(hashes)).astype(np.uint16) % shards)


def _takes_the_salt_from_the_data(patch: Patch) -> None:
    bounded = contributions.bound
    patch.setattr(contributions, "bound", lambda wire, layout, salt: bounded(wire, layout, salt + wire.num_rows))


def _reads_only_the_first_rows(patch: Patch) -> None:
    wire = Layout.wire
    patch.setattr(Layout, "wire", lambda self, table: wire(self, table).slice(0, 6))


def _lets_hashes_decide_identity(patch: Patch) -> None:
    nb.weak_hashes(patch, LOW_BITS)

    def of_hashes(columns: Any) -> keys.Keys:
        found = dense(columns)
        hashes = found.hashes(nb.SALT)
        _, first, codes = np.unique(hashes, return_index=True, return_inverse=True)
        kept = pa.array(first)
        return keys.Keys(codes[found.codes], tuple(column.take(kept) for column in found.columns))

    dense = keys.dense
    patch.setattr(keys, "dense", of_hashes)


def too_sensitive(pair: nb.Neighbours) -> Any:
    return nb.too_sensitive(pair, nb.Way(shards=3), nb.Way(shards=3))


SENSITIVITY_FAULTS = [
    _keeps_all,
    _skips_the_row_bound,
    _skips_the_clip_of_values,
    _skips_the_clip_of_sums,
    _clips_rows_instead_of_sums,
    _counts_a_unit_per_row,
    _gives_whole_weights,
    _shards_by_row,
]
FAULTS_OF_OTHERS = [_takes_the_salt_from_the_data, _reads_only_the_first_rows, _lets_hashes_decide_identity]
FAULTS = [(fault, too_sensitive) for fault in SENSITIVITY_FAULTS] + [
    (fault, nb.changed_for_others) for fault in FAULTS_OF_OTHERS
]
SEARCH = settings(max_examples=400, phases=[hypothesis.Phase.generate], database=None, derandomize=True)


@pytest.mark.parametrize(("fault", "law"), FAULTS, ids=lambda part: part.__name__.strip("_"))
def test_a_planted_fault_is_found(fault: Callable[[Patch], None], law: Law, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    modes = nb.MODES[2:] if fault in (_skips_the_clip_of_sums, _clips_rows_instead_of_sums) else nb.MODES

    def broken(pair: nb.Neighbours) -> bool:
        try:
            return bool(law(pair))
        except RequestError:  # of a public list, two keys of which the fault takes for one
            return False

    found = hypothesis.find(nb.neighbours(modes=modes), broken, settings=SEARCH)
    monkeypatch.undo()
    assert not law(found), "without the fault the same pair keeps the law"


def test_a_record_that_is_one_too_small_is_found() -> None:
    def broken(data: tuple[nb.Neighbours, StagePlan]) -> bool:
        pair, stage = data
        smaller = [
            dataclasses.replace(r, l2_squared=r.l2_squared - 1) if (r.l2_squared or 0) > 1 else r
            for r in stage.mechanisms
        ]
        return bool(beyond_records(pair, dataclasses.replace(stage, mechanisms=tuple(smaller))))

    both = nb.neighbours(other=True).flatmap(lambda pair: st.tuples(st.just(pair), stages(pair)))
    pair, stage = hypothesis.find(both, broken, settings=SEARCH)
    assert not beyond_records(pair, stage)


def test_a_unit_of_nan_would_be_too_many_units() -> None:
    # NaN is not equal to itself: were it a unit, each of its rows would be one.
    rows = pa.table({"u0": [math.nan] * 5, "p0": [1] * 5})
    layout = Layout(units=("u0",), partitions=("p0",), max_partitions=1)
    assert nb.exact(nb.totals(rows, layout, nb.statistics_of(layout))) == {}
