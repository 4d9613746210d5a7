"""One unit moves the statistics of joined rows by no more than their records say, and changes no joined row of others.

In: rows of a few units in two tables, and one unit more, in one table or in both. Out: the way of the kernels on neighbouring
tables, after the rows were capped and joined as jobs join them. Holds: no test here looks at noise. The twin of the tests is a
join of which a cap or a pair looks at other units: `tests/mutants` plants it.
"""

import math
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.kernels.unit_facts import TWIN
from dp_pipelines.steps import unit_join
from tests.helpers import joined as jt
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples

QUERY = dp.Query(
    privacy_unit="u0",
    partition_by=["store", "page"],
    bounds=dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2),
    metrics={"n": dp.Count(), "units": dp.PrivacyIdCount(), "spent": dp.Sum("n0", min_value=-1, max_value=4)},
    row_id=TWIN,
)
STAGE = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": QUERY})["s"]

DAYS = [None, math.nan, 0.0, -0.0, 1.0, math.inf]
STORES, PAGES = [None, "", "north"], [None, "home", "cart"]
NUMBERS = [None, math.nan, 0.5, 1e308, -3.0]


def rows_of(pick: "random.Random", schema: pa.Schema, units: list[int | None], count: int) -> pa.Table:
    """Rows of some units, with few different values."""
    values = {"day": DAYS, "visited": DAYS, "store": STORES, "page": PAGES, "n0": NUMBERS}
    columns = [[pick.choice(values.get(f.name, units)) for _ in range(count)] for f in schema]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def batches(pick: "random.Random", table: pa.Table) -> list[pa.Table]:
    """The rows in any order, cut anywhere, and a batch without rows."""
    order = list(range(table.num_rows))
    pick.shuffle(order)
    cut = pick.randint(0, table.num_rows)
    shuffled = table.take(pa.array(order, pa.int64()))
    return [table.slice(0, 0), shuffled.slice(0, cut), shuffled.slice(cut)]


def broken(pick: "random.Random", most_rows: int) -> list[str]:
    """The laws that a random pair of neighbours breaks: none.

    Args:
        pick: where the pair comes from.
        most_rows: of a unit in a table.
    """
    join = jt.join_of(
        keeps_unmatched=pick.random() < 0.5, on_day=pick.random() < 0.6, caps=(pick.randint(1, 4), pick.randint(1, 4))
    )
    tables = []
    for schema in (jt.LEFT, jt.RIGHT):
        others = rows_of(pick, schema, [2, 3, None], pick.randint(0, 8))
        mine = rows_of(pick, schema, [1], pick.choice([0, pick.randint(0, most_rows)]))
        tables.append((others, mine))

    def run(which: int | None) -> pa.Table:
        """Joined rows: of the others, of the one unit more, or of all."""
        sides = [t[which] if which is not None else pa.concat_tables(t) for t in tables]
        return jt.joined_rows(
            join, batches(pick, sides[0]), batches(pick, sides[1]), shards=pick.choice([1, 2, 7]),
            backwards=pick.random() < 0.5,
        )  # fmt: skip

    smaller, extra, larger = run(0), run(1), run(None)
    found = []
    if jt.multiset(larger.filter(pc.not_equal(larger["u0"], 1))) != jt.multiset(smaller):
        found.append("joined rows of others changed")
    if jt.multiset(larger.filter(pc.equal(larger["u0"], 1))) != jt.multiset(extra):
        found.append("joined rows of a unit depend on others")
    pair = nb.Neighbours(
        smaller=smaller, extra=extra, places=(0,) * extra.num_rows, layout=STAGE.layout, statistics=STAGE.statistics
    )
    return found + [str(law) for law in nb.too_sensitive(pair, nb.STRAIGHT, nb.STRAIGHT)]


@settings(max_examples=examples(60, 300), deadline=None)
@given(pick=st.randoms(use_true_random=False))
def test_one_unit_moves_no_statistic_of_joined_rows_by_more_than_its_shape(pick: random.Random) -> None:
    assert broken(pick, most_rows=8) == []


@pytest.mark.long
def test_ten_thousand_adversarial_pairs_break_no_law() -> None:
    assert [law for number in range(10_000) for law in broken(random.Random(number), most_rows=20)] == []


def test_a_thousand_by_a_thousand_rows_of_one_unit_move_what_two_rows_move(monkeypatch: pytest.MonkeyPatch) -> None:
    join = jt.join_of(keeps_unmatched=False, on_day=False, caps=(1000, 1000))
    pick = random.Random(5)
    others = [rows_of(pick, schema, [2, 3, None], 8) for schema in (jt.LEFT, jt.RIGHT)]
    mine = [rows_of(pick, schema, [1], 1000) for schema in (jt.LEFT, jt.RIGHT)]
    smaller, extra = (jt.joined_rows(join, [left], [right]) for left, right in (others, mine))
    assert extra.num_rows == 10**6
    pair = nb.Neighbours(
        smaller=smaller, extra=extra, places=(0,) * extra.num_rows, layout=STAGE.layout, statistics=STAGE.statistics
    )
    assert nb.too_sensitive(pair, nb.STRAIGHT, nb.STRAIGHT) == []
    monkeypatch.setattr(unit_join, "MOST_PAIRS", 1013)
    assert jt.joined_rows(join, [mine[0].slice(0, 90)], [mine[1].slice(0, 90)]).num_rows == 8100


def test_rows_of_nobody_meet_nothing_and_a_left_row_without_a_match_has_nulls() -> None:
    left = pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip([[1, 1, None], [0.0, None, 1.0], ["a", "b", "c"], [1.0] * 3], jt.LEFT, strict=True)],
        schema=jt.LEFT,
    )  # fmt: skip
    right = pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip([[1, 1, None], [-0.0, None, 1.0], ["x", "y", "z"]], jt.RIGHT, strict=True)],
        schema=jt.RIGHT,
    )  # fmt: skip
    for keeps, expected in ((False, [("a", "x")]), (True, [("a", "x"), ("b", None)])):
        join = jt.join_of(keeps_unmatched=keeps, on_day=True, caps=(9, 9))
        found = jt.joined_rows(join, [left], [right])
        assert sorted(zip(found["store"].to_pylist(), found["page"].to_pylist(), strict=True)) == expected
