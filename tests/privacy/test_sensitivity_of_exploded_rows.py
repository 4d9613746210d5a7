"""One unit moves the statistics of rows that a public table has made several of by no more than their records say.

In: rows of a few units, and one unit more; public tables with several rows for a key. Out: the way of the kernels on neighbouring
tables, after the rows were joined as jobs join them. Holds: no test here looks at noise; a unit's rows are bounded after that.
"""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.jobs.sources import lookup
from dp_pipelines.jobs.sources.lookups import Lookups
from dp_pipelines.kernels.unit_facts import TWIN
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples

QUERY = dp.Query(
    privacy_unit="u0",
    partition_by=["tag"],
    bounds=dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2),
    metrics={"n": dp.Count(), "units": dp.PrivacyIdCount(), "spent": dp.Sum("size", min_value=-1, max_value=4)},
    row_id=TWIN,
)
STAGE = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": QUERY})["s"]
ROWS = pa.schema([("u0", pa.int64()), ("k", pa.string())])
KEYS = [None, "a", "b", "not listed"]


@st.composite
def tables(draw: st.DrawFn) -> Lookups:
    """Tags by key, up to five for one; then more of them by tag."""
    rows = draw(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.floats(-9, 9)), max_size=5))
    listed = pa.table(
        [pa.array(column) for column in zip(*rows, strict=True)] or [[], [], []], names=["k", "tag", "size"]
    )
    kinds = [pa.string(), pa.string(), pa.float64()]
    listed = pa.table([c.cast(kind) for c, kind in zip(listed.columns, kinds, strict=True)], names=listed.column_names)
    first = lookup.bind(listed, "k", ROWS, unit=["u0"], most=5)
    more = pa.table({"tag": ["x", "x", "z"], "group": [1, 2, 3]})
    return Lookups((first, lookup.bind(more, "tag", pa.schema([*ROWS, *first.fields]), unit=["u0"], most=2)))


@st.composite
def pairs(draw: st.DrawFn) -> nb.Neighbours:
    def rows(units: list[int | None], least: int) -> pa.Table:
        number = draw(st.integers(least, 8))
        listed = [st.lists(st.sampled_from(values), min_size=number, max_size=number) for values in (units, KEYS)]
        return pa.Table.from_arrays(
            [pa.array(draw(values), f.type) for values, f in zip(listed, ROWS, strict=True)], schema=ROWS
        )

    public = draw(tables())
    smaller, extra = (pa.concat_tables(public.shaped(table)) for table in (rows([2, 3, None], 0), rows([1], 1)))
    places = tuple(draw(st.lists(st.integers(0, smaller.num_rows), min_size=extra.num_rows, max_size=extra.num_rows)))
    return nb.Neighbours(
        smaller=smaller, extra=extra, places=places, layout=STAGE.layout, statistics=STAGE.statistics
    )  # fmt: skip


@settings(max_examples=examples(40, 300), deadline=None)
@given(data=st.data())
def test_one_unit_moves_no_statistic_of_exploded_rows_by_more_than_its_shape(data: st.DataObject) -> None:
    pair = data.draw(pairs())
    ways = data.draw(nb.ways(pair.smaller.num_rows)), data.draw(nb.ways(pair.larger.num_rows))
    assert nb.too_sensitive(pair, *ways) == []
    assert not nb.changed_for_others(pair)
