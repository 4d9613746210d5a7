"""The benchmark of ranges compares with the truth, and its table that breaks the assumption does so."""

import numpy as np

import dp_pipelines as dp


def test_a_group_that_loses_far_more_than_the_average_is_outside_of_its_range(load) -> None:
    """41 groups: of the last, 300 units have 200 rows each, and of the others one or two."""
    ranges = load("ranges")
    rows = ranges.BROKEN.rows()
    found = ranges.truths(rows)
    query = ranges.query_of(ranges.BROKEN, found.column("key"), (8, 4))
    plan = dp.Plan(epsilon=30, delta=1e-6, stages={"s": ranges.raw_sums(query)})
    known = ranges.exact(ranges.BROKEN, rows, found, query, plan["s"], plan["s.kept"])
    heavy = found.column("key").to_pylist().index("40")
    assert (known.truth["rows"][heavy], known.counted["rows"][heavy], known.counted["total"][heavy]) == (
        60_000,
        1200,
        1200,
    )
    others = np.arange(41) != heavy
    for name in ("rows", "units", "total"):
        assert (known.truth[name][others] == known.counted[name][others]).all()
    assert known.units[:2].tolist() == [12_000, 300]  # units that the bounds leave whole, and others
    seen = {name: ranges.Seen() for name in ranges.METRICS}
    ranges.run(known, query, plan, seen)
    # All units are seen with so little noise: the share that is kept is so small that no range is printed.
    assert (seen["rows"].cells, seen["units"].cells) == (0, 41)
