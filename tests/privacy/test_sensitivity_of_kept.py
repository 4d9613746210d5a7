"""What bounds cut off, released: how far all rows of one unit move all figures together, on integers (docs/proofs/kept.md).

In: neighbouring tables through every step up to the noise, in batches and shards at will. Out: the L2 distance of the totals in
steps of the release, compared with the one record of the stage. Holds: no noise, nothing that fails by chance; planted faults
show that each law can fail.
"""

import dataclasses
import resource

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.kernels import contributions, unit_facts
from dp_pipelines.kernels import vectors as kernel
from dp_pipelines.plan_stages import kept_counts
from dp_pipelines.plan_stages.kept_counts import KeptCounts
from dp_pipelines.query.query import Query
from tests.helpers import kept
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples

RANGES = [(0.0, 1.0), (-2.0, 0.0), (-1.0, 5.0), (-1e150, 1e150)]


def metrics_of(pair: nb.Neighbours, low: float, high: float) -> dict[str, dp.Metric]:
    """Metrics over all columns of numbers, each with a clamp, where rows are bounded; else the sums of units."""
    numbers = [name for name in pair.smaller.column_names if name.startswith("n")]
    if pair.layout.summands:
        sums = {f"s{n}": dp.Sum(n, min_sum_per_partition=low, max_sum_per_partition=high) for n in numbers}
        return {"users": dp.PrivacyIdCount(), **sums}
    return {
        "rows": dp.Count(),
        "users": dp.PrivacyIdCount(),
        **{f"s{n}": dp.Sum(n, min_value=low, max_value=high) for n in numbers},
    }


def outside_its_record(pair: nb.Neighbours, query: Query, way: nb.Way, other: nb.Way, steps: int = 1000) -> bool:
    """Whether one unit moves the figures by more than their record says."""
    stage = kept.stage_of(query, steps)
    (record,) = stage.mechanisms
    assert record.l2_squared is not None
    without, within = (
        kept.released(table, query, stage, way_of) for table, way_of in ((pair.smaller, way), (pair.larger, other))
    )
    moved = without.astype(object) - within.astype(object)
    return int((moved * moved).sum()) > record.l2_squared


@st.composite
def cases(draw: st.DrawFn) -> tuple[nb.Neighbours, Query, nb.Way, nb.Way]:
    """Neighbouring tables, a query over them, a way for each."""
    pair = draw(nb.neighbours(other=True))
    metrics, up_to = metrics_of(pair, *draw(st.sampled_from(RANGES))), draw(st.sampled_from([None, 2, 5, 1000]))
    query = kept.query_of(pair, metrics, up_to, each_metric=draw(st.booleans()))
    return pair, query, draw(nb.ways(pair.smaller.num_rows)), draw(nb.ways(pair.larger.num_rows))


def figures_stay_within_their_record(
    case: tuple[nb.Neighbours, Query, nb.Way, nb.Way], frequent: int, steps: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contributions, "FREQUENT", frequent)
        pair, query, way, other = case
        assert not outside_its_record(pair, query, way, other, steps)


AT_WILL = {"case": cases(), "frequent": st.sampled_from([0, 1, 3, 64]), "steps": st.sampled_from([1, 7, 1000, 100_000])}


@settings(max_examples=examples(150, 600), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**AT_WILL)
def test_all_rows_of_one_unit_move_all_figures_together_within_their_record(case, frequent, steps) -> None:
    figures_stay_within_their_record(case, frequent, steps)


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**AT_WILL)
def test_on_ten_thousand_pairs_one_unit_moves_all_figures_within_their_record(case, frequent, steps) -> None:
    figures_stay_within_their_record(case, frequent, steps)


def broken_groups(query: Query, rows: pa.Table) -> list[int]:
    """Units that have more than one in a group of coordinates, before anything is clipped."""
    cells = KeptCounts.of(query).cells
    groups = [2 * len(cells.pairs)] if cells.pairs else []
    groups += [2 * len(cells.amounts)] * cells.sums
    sizes = [2, 2 * len(cells.edges), *[3] * cells.clamped, *groups, *[2] * cells.facts]
    begins = np.cumsum([0, *sizes])[:-1]
    found = kept.vectors_of(rows, query.unit_columns)
    return [
        i for i, vector in enumerate(found.values()) if (np.add.reduceat(vector, begins) > 1).any() or vector.min() < 0
    ]


@settings(max_examples=examples(60, 300), deadline=None)
@given(case=cases())
def test_a_unit_has_at_most_one_in_each_group_so_that_nothing_is_clipped(case) -> None:
    pair, query, _, way = case
    assert broken_groups(query, kept.made_rows(pair.larger, query, way)) == []


UNIT = pa.table({"u": [1] * 40, "p": ["a"] * 40, "x": np.linspace(0.0, 20.0, 40)})
OTHERS = pa.table({"u": range(2, 30), "p": ["a"] * 28, "x": [1.0] * 28})
ASKED = Query(
    privacy_unit="u",
    partition_by="p",
    bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=2),
    metrics={"paid": dp.Sum("x", min_value=0, max_value=3)},
    kept=dp.Kept(share=0.1),
)
LAYOUT = kept_counts.layout_of(ASKED, ASKED.metrics)
PAIR = nb.Neighbours(smaller=OTHERS, extra=UNIT, places=(0,) * 40, layout=LAYOUT, statistics=())


def test_the_facts_of_every_row_of_a_unit_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not outside_its_record(PAIR, ASKED, nb.STRAIGHT, nb.STRAIGHT)
    monkeypatch.setattr(unit_facts, "first_rows", lambda travelling: travelling)
    assert broken_groups(ASKED, kept.made_rows(PAIR.larger, ASKED)) == [0]
    # What a unit sums up to is clipped all the same: the record holds whatever is counted.
    assert not outside_its_record(PAIR, ASKED, nb.STRAIGHT, nb.STRAIGHT)
    monkeypatch.setattr(kernel, "clipped", lambda sums, norm, bound, out=None: sums.astype(float))
    assert outside_its_record(PAIR, ASKED, nb.STRAIGHT, nb.STRAIGHT)


def test_a_record_of_a_smaller_norm_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = kept.stage_of(ASKED)
    (record,) = stage.mechanisms
    assert record.l2_squared is not None
    smaller = dataclasses.replace(record, l2_squared=record.l2_squared * 9 // 10)
    monkeypatch.setattr(kept, "stage_of", lambda query, steps: dataclasses.replace(stage, mechanisms=(smaller,)))
    assert outside_its_record(PAIR, ASKED, nb.STRAIGHT, nb.STRAIGHT)


def test_the_norm_is_the_root_of_two_and_the_clamped_columns_and_the_facts() -> None:
    (metric,) = kept_counts.query_of(ASKED).metrics.values()
    assert metric.max_norm == pytest.approx((2 + 1 + 2) ** 0.5, rel=2e-7)
    assert metric.max_norm >= (2 + 1 + 2) ** 0.5


def test_the_norm_has_one_more_for_people_and_for_each_sum() -> None:
    price = {"min_value": 0, "max_value": 3}
    metrics = {"paid": dp.Sum("x", **price), "mean": dp.Mean("x", **price), "people": dp.PrivacyIdCount()}
    asked = dataclasses.replace(ASKED, metrics=metrics, kept=dp.Kept(share=0.1, each_metric=True))
    (metric,) = kept_counts.query_of(asked).metrics.values()
    assert metric.max_norm == pytest.approx((2 + 1 + 2 + 1 + 1) ** 0.5, rel=2e-7)


@pytest.mark.slow
def test_a_unit_of_ten_million_rows_costs_no_memory_and_gives_the_same_figures_whatever_the_batches() -> None:
    """In batches of 2**16 and of 2**20 rows; the figures stay within their record, and little of the unit is kept in memory."""
    many = 10_000_000
    values = np.arange(many, dtype=np.int64)
    unit = pa.table({"u": np.ones(many, np.int64), "p": pa.array(values % 5).cast(pa.string()), "x": values % 1000})
    others = OTHERS.set_column(2, "x", pa.array([1] * 28, pa.int64()))
    larger = pa.concat_tables([others, unit])
    stage, found, before = kept.stage_of(ASKED), [], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for size in (2**16, 2**20):
        way = nb.Way(cuts=tuple(range(size, many, size)), shards=2)
        rows = kept.made_rows(larger, ASKED, way)
        assert rows.num_rows == 2 * 29  # of each unit one row with what is kept, and one with facts
        found.append(kept.released(larger, ASKED, stage, way).tolist())
    assert found[0] == found[1]
    assert not outside_its_record(
        nb.Neighbours(smaller=others, extra=unit, places=(0,) * many, layout=LAYOUT, statistics=()),
        ASKED, nb.STRAIGHT, nb.Way(cuts=tuple(range(2**18, many, 2**18))),
    )  # fmt: skip
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    assert grown < 2500, f"{grown:.0f} MiB more"
