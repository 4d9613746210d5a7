"""The benchmark of chosen bounds counts and measures what the library's kernels do, and draws what its samplers do."""

import numpy as np

import dp_pipelines as dp
from dp_pipelines.plan_stages.kept_counts import KeptCounts


def test_what_bounds_leave_is_what_the_kernels_leave(load) -> None:
    """On a table where it does not matter which rows are kept: each unit is in one group, with equal amounts."""
    chosen = load("chosen_bounds")
    ranges, broken = chosen.fixed, chosen.fixed.BROKEN
    rows, table = broken.rows(), chosen.Table.of(broken)
    found = ranges.truths(rows)
    for pair in ((8, 4), (1, 1), (64, 64)):
        query = ranges.query_of(broken, found.column("key"), pair)
        plan = dp.Plan(epsilon=30, delta=1e-6, stages={"s": ranges.raw_sums(query)})
        known = ranges.exact(broken, rows, found, query, plan["s"], plan["s.kept"])
        counted = table.counted(pair)
        assert all((counted[name] == known.counted[name]).all() for name in chosen.METRICS)
        assert all((table.truth[name] == known.truth[name]).all() for name in chosen.METRICS)
        assert np.array_equal(table.vector(pair, KeptCounts.of(query)), known.units)


def test_sizes_of_units_are_those_of_a_plain_program(load) -> None:
    chosen = load("chosen_bounds")
    table = chosen.Table.of(chosen.fixed.BROKEN)
    groups, rows = table.sizes()
    assert set(groups.tolist()) == {1}
    assert sorted(set(rows.tolist())) == [1, 2, 200]
    assert rows.sum() == len(table.unit)
