"""One unit moves what a stage with a clamp for each partition adds noise to by no more than its records say.

In: rows of a few units, and one unit more with whatever values and keys; public tables, also such as a job would refuse. Out:
the way of the kernels on neighbouring tables, after the rows were scaled as jobs scale them. Holds: no test here looks at noise.
"""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.jobs.sources import lookup
from dp_pipelines.kernels.lattice import Floats, Integers, Lattice
from dp_pipelines.metrics.lookup_bound import LookupBound, PartitionScale
from dp_pipelines.metrics.sums import Mean, Sum, Variance
from dp_pipelines.steps.stage_rows import ScaleValues
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples

MOST, LEAST = LookupBound(lookup="most", default=5), LookupBound(lookup="least", default=-1)
QUERY = dp.Query(
    privacy_unit="u0",
    partition_by=["p0"],
    bounds=dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2),
    metrics={
        "revenue": Sum("n0", min_value=0, max_value=MOST),
        "price": Mean("n0", min_value=0, max_value=MOST),
        "net": Sum("n0", min_value=LEAST, max_value=MOST),
        "level": Mean("n0", min_value=LEAST, max_value=MOST),
        "spread": Variance("n0", min_value=LEAST, max_value=MOST),
    },
)
STAGE = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": QUERY})["s"]
KEYS = [None, "a", "b", "not listed"]
VALUES = [0.0, -0.0, 1.0, 4.9, -1e308, 1e308, 5e-324, math.inf, -math.inf, math.nan, None]
CLAMPS = st.floats(1e-99, 9e99)


@st.composite
def tables(draw: st.DrawFn, refused: bool) -> lookup.Lookup:
    """A public table; `refused`: also with what a job refuses."""
    number = st.floats() if refused else CLAMPS
    most, least = (draw(st.lists(number, min_size=2, max_size=2)) for _ in range(2))
    least = least if refused else [-number for number in least]
    listed = pa.table({"p0": ["a", "b"], "most": most, "least": least})
    return lookup.bind(listed, "p0", pa.schema([("p0", pa.string()), ("n0", pa.float64())]), unit=["u0"])


@st.composite
def rows(draw: st.DrawFn, units: list[int | None], least: int) -> pa.Table:
    number = draw(st.integers(least, 14))
    column = lambda values: draw(st.lists(st.sampled_from(values), min_size=number, max_size=number))  # noqa: E731
    return pa.table({
        "u0": pa.array(column(units), pa.int64()), "p0": pa.array(column(KEYS), pa.string()),
        "n0": pa.array(column(VALUES), pa.float64()),
    })  # fmt: skip


def scaled(table: pa.Table, public: lookup.Lookup) -> pa.Table:
    """As the pipeline of a job has them."""
    (found,) = ScaleValues(QUERY.scales).process(public.apply(table))
    return found


@st.composite
def pairs(draw: st.DrawFn, refused: bool) -> nb.Neighbours:
    public, smaller, extra = draw(tables(refused)), draw(rows([2, 3, None], 0)), draw(rows([1], 1))
    places = tuple(draw(st.lists(st.integers(0, smaller.num_rows), min_size=extra.num_rows, max_size=extra.num_rows)))
    return nb.Neighbours(
        smaller=scaled(smaller, public),
        extra=scaled(extra, public),
        places=places,
        layout=STAGE.layout,
        statistics=STAGE.statistics,
    )


@pytest.mark.parametrize("refused", [False, True])
@settings(max_examples=examples(60, 300))
@given(data=st.data())
def test_one_unit_moves_no_statistic_by_more_than_its_shape_whatever_the_table_says(
    refused: bool, data: st.DataObject
) -> None:
    pair = data.draw(pairs(refused))
    ways = data.draw(nb.ways(pair.smaller.num_rows)), data.draw(nb.ways(pair.larger.num_rows))
    assert nb.too_sensitive(pair, *ways) == []
    assert not nb.changed_for_others(pair)


def test_the_shapes_are_reached_in_every_partition_whatever_its_clamp() -> None:
    """A unit at the clamp of each of its partitions moves both by as much: a small clamp has the noise that it needs, no more."""
    listed = pa.table({"p0": ["a", "b"], "most": [0.001, 1e6], "least": [-1.0, -1.0]})
    public = lookup.bind(listed, "p0", pa.schema([("p0", pa.string()), ("n0", pa.float64())]), unit=["u0"])
    table = pa.table({"u0": [1] * 6, "p0": ["a"] * 3 + ["b"] * 3, "n0": [1e9] * 6})
    totals = nb.exact(nb.totals(scaled(table, public), STAGE.layout, STAGE.statistics))
    metric = QUERY.metrics["revenue"]
    revenue = STAGE.statistics.index(metric.statistics(STAGE.basis(metric))[0])
    shape = STAGE.statistics[revenue].shape(max_partitions=2, max_rows_per_partition=2, max_rows=None)
    assert {sums[revenue] for sums in totals.values()} == {shape.unit}


def clampless(scale: PartitionScale, rows: pa.Table) -> pa.Array:
    """Scaled as if the clamp were a unit alone."""
    return pc.divide(rows.column(scale.column), pa.array(scale.ends(rows)[1])).combine_chunks()


def test_a_scale_that_clamps_nothing_is_held_by_the_lattice_and_without_both_the_fault_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Lattice.integers

    def unclamped(lattice: Lattice, values: Floats) -> Integers:
        """Beyond the clamp, though not beyond what the sums assert of every value."""
        if lattice.square:
            return real(lattice, values)
        return np.rint(np.ldexp(np.clip(values, -1, 1.4) - lattice.centre, lattice.exponent)).astype(np.int64)

    listed = pa.table({"p0": ["a", "b"], "most": [1.0, 2.0], "least": [-1.0, -1.0]})
    public = lookup.bind(listed, "p0", pa.schema([("p0", pa.string()), ("n0", pa.float64())]), unit=["u0"])

    def broken() -> list[str]:
        more = scaled(pa.table({"u0": [1, 1], "p0": ["a", "a"], "n0": [100.0, 100.0]}), public)
        return nb.too_sensitive(
            nb.Neighbours(
                smaller=more.slice(0, 0), extra=more, places=(0, 0), layout=STAGE.layout, statistics=STAGE.statistics
            )
        )

    assert broken() == []
    monkeypatch.setattr(PartitionScale, "scaled", clampless)
    assert broken() == []
    monkeypatch.setattr(Lattice, "integers", unclamped)
    assert any(name.startswith("sum(n0 as a share of [0.0, 'most' or 5.0]") for name in broken())
