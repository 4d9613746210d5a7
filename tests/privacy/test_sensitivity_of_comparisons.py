"""The sensitivity of what a comparison of arms takes, on integers: what docs/proofs/comparisons.md proves, and its code.

Neighbouring data sets (all rows of one unit more) go through the whole way of the kernels up to the noise, and ten thousand
adversarial units through the records of a plan. No test here looks at noise, so none can fail by chance.
"""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import accumulate
from dp_pipelines.kernels.lattice import SummandLattice, coarse_words
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import ClippedUnitSum, NotNullCount, RowCount, Statistic, UnitCount, ValueSum
from dp_pipelines.metrics.unit_moments import UnitProducts
from dp_pipelines.plan_stages.arm_moments import ArmMoments
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples

UNITS = 10_000


def products_of(layout: Layout) -> tuple[Statistic, ...]:
    """The products of every two totals that a layout allows, and their lattices."""
    rows = layout.max_rows or layout.max_rows_per_partition
    totals: list[Statistic] = [RowCount(), *(NotNullCount(column=column) for column in dict(layout.values))]
    totals += [ValueSum(column=c, lattice=x) for c, x in layout.values if not x.square and not x.centre_used]
    totals += [ClippedUnitSum(column=column, lattice=lattice) for column, lattice in layout.summands]
    made: list[Statistic] = []
    for first, second in itertools.combinations_with_replacement(totals, 2):
        try:
            made.append(UnitProducts(factors=(first, second), rows=rows))
        except RequestError:  # their ranges are beyond what squares of float64 hold
            continue
    return (UnitCount(), *made)


@settings(max_examples=examples(60, 400))
@given(data=st.data())
def test_one_unit_moves_sums_of_products_by_no_more_than_is_declared(data: st.DataObject) -> None:
    pair = data.draw(nb.neighbours())
    pair = dataclasses.replace(pair, statistics=products_of(pair.layout))
    rows = pair.larger.num_rows
    assert nb.too_sensitive(pair, data.draw(nb.ways(rows)), data.draw(nb.ways(rows))) == []


@settings(max_examples=examples(60, 400))
@given(data=st.data())
def test_order_batches_and_shards_change_no_sum_of_products(data: st.DataObject) -> None:
    pair = data.draw(nb.neighbours())
    statistics = products_of(pair.layout)
    way = data.draw(nb.ways(pair.larger.num_rows))
    straight = nb.exact(nb.totals(pair.larger, pair.layout, statistics))
    assert nb.exact(nb.totals(pair.larger, pair.layout, statistics, way)) == straight


def test_products_are_those_of_plain_python() -> None:
    layout = Layout(
        units=("u",), partitions=("p",), max_partitions=1, max_rows_per_partition=3,
        summands=(("x", SummandLattice.for_sums(-2.0, 10.0)),),
    )  # fmt: skip
    table = pa.table({"u": [1, 1, 1, 2, 2, 3], "p": ["a"] * 6, "x": [4.0, 3.0, 1.5, -1.0, -7.0, 100.0]})
    (lattice,) = (lattice for _, lattice in layout.summands)
    paid: Statistic = ClippedUnitSum(column="x", lattice=lattice)
    squares = UnitProducts(factors=(paid, paid), rows=3)
    mixed = UnitProducts(factors=(paid, RowCount()), rows=3)
    (found,) = nb.exact(nb.totals(table, layout, (UnitCount(), squares, mixed))).values()
    # The clipped sums are 8.5, -2 and 10, of 3, 2 and 1 rows.
    assert found[1] * squares.fine_step == 8.5**2 + 2**2 + 10**2
    assert math.isclose(found[2] * mixed.fine_step, 8.5 * 3 - 2 * 2 + 10, rel_tol=1e-6)


def plan(**changes: Any) -> Plan:
    """A plan that compares two sums, a count and two quotients."""
    given = {
        "privacy_unit": "u",
        "partition_by": "arm",
        "partitions": dp.PublicPartitions(keys=[("A",), ("B",)]),
        "bounds": dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=4),
        "metrics": {
            "orders": dp.Count(),
            "paid": dp.Sum("x", min_sum_per_partition=-3, max_sum_per_partition=500),
            "points": dp.Sum("y", min_value=-1, max_value=7),
        },
        "compare": dp.Compare(by="arm", baseline="A", metrics=["orders", "paid", "points", "paid / orders"]),
    }
    return Plan(epsilon=1.0, delta=1e-6, stages={"t": dp.Query(**{**given, **changes})})


def units(rng: np.random.Generator, rows: int) -> pa.Table:
    """Adversarial units, each in an arm of its own, so that the sums of an arm are what one unit adds."""
    unit = np.repeat(np.arange(UNITS), rng.integers(1, rows + 1, UNITS))
    odd = np.array([0.0, -0.0, 1e308, -1e308, 5e-324, 7.0, 500.0, -3.0, 499.999, math.inf, -math.inf, math.nan, 125.1])
    values = {
        name: np.where(rng.random(len(unit)) < 0.5, rng.choice(odd, len(unit)), rng.normal(100, 300, len(unit)))
        for name in ("x", "y")
    }
    return pa.table({"u": unit, "arm": pa.array([str(one) for one in unit]), **values})


def distance(stage: StagePlan, table: pa.Table, layout: Layout, base: int) -> Any:
    """For each unit the squared distance of all that it moves, in scales of the noise, beside a total that is there already."""
    salt = nb.SALT
    found = accumulate.partials(layout.wire(table), layout, stage.statistics, salt)
    squares = np.zeros(found.num_rows)
    for place, noise in enumerate(stage.noises):
        if noise is None:
            continue
        own = found.column(f"a{place}").to_numpy()

        def steps(totals: Any, noise: Any = noise) -> Any:
            words = totals >> np.int64(32), totals & np.int64(2**32 - 1)
            return coarse_words(*words, shift=noise.fine_bits, step=noise.step)

        before = (
            np.full(len(own), base * noise.step // 7, np.int64) if noise.fine_bits == 0 else np.full(len(own), base)
        )
        squares += ((steps(before + own) - steps(before)) / float(noise.law.scale)) ** 2
    return squares


def declared(stage: StagePlan) -> float:
    """The same as the records of the stage have it."""
    assert {record.kind for record in stage.mechanisms} == {"gaussian"}
    return sum(float(record.l2_squared or 0) / float(record.scale or 1) ** 2 for record in stage.mechanisms)


def wide(stage: StagePlan) -> Layout:
    """The layout of a stage without its list of arms."""
    return dataclasses.replace(stage.layout, public=None)


def test_all_records_of_a_comparison_bound_what_ten_thousand_units_move_together() -> None:
    stage = plan()["t.compare"]
    table = units(np.random.default_rng(7), 9)
    for base in (0, 5, 1000):
        assert distance(stage, table, wide(stage), base).max() <= declared(stage)


def test_units_with_more_rows_than_the_record_says_are_found() -> None:
    stage = plan()["t.compare"]
    loose = dataclasses.replace(wide(stage), max_rows_per_partition=9)
    assert distance(stage, units(np.random.default_rng(7), 9), loose, 5).max() > declared(stage)


def test_each_unit_counts_in_one_arm_the_same_for_every_sum() -> None:
    stage = plan()["t.compare"]
    table = pa.table({"u": [1, 1, 1, 1], "arm": ["A", "B", "B", "A"], "x": [1.0, 2.0, 4.0, 8.0], "y": [1.0] * 4})
    found = accumulate.partials(stage.layout.wire(table), stage.layout, stage.statistics, nb.SALT)
    assert found.num_rows == 1
    sums = [found.column(f"a{i}").to_pylist()[0] for i in range(len(stage.statistics))]
    by_name = {s.name: total for s, total in zip(stage.statistics, sums, strict=True)}
    assert (by_name["units"], by_name["rows"]) == (1, 2)


def test_a_comparison_pays_for_the_sums_that_it_takes_and_no_others() -> None:
    asked = plan().queries["t"]
    moments = ArmMoments.of(asked)
    assert list(moments.metrics) == [
        "units", "total_0", "total_1", "total_2", "product_0_0", "product_1_1", "product_2_2", "product_1_0",
    ]  # fmt: skip
    assert asked.compare is not None
    noise = dataclasses.replace(asked.compare, intervals="noise")
    alone = ArmMoments.of(dataclasses.replace(asked, compare=noise))
    assert list(alone.metrics) == ["units", "total_0", "total_1", "total_2"]
