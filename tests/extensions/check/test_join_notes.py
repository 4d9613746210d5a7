"""What is noted of a join is what plain Python counts of the same rows, however they are cut; the rows stay those of a run."""

import collections
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.extensions.check.join_notes import CountMatches
from dp_pipelines.extensions.check.notes import is_notes, read_notes
from dp_pipelines.steps.unit_join import JoinRows, SideToShards, UnitJoin
from tests.helpers import joined

UNIT, DAY = st.none() | st.integers(0, 3), st.none() | st.sampled_from([0.0, 1.0, float("nan")])
LEFT = st.lists(st.tuples(UNIT, DAY), max_size=25)
RIGHT = st.lists(st.tuples(UNIT, DAY), max_size=25)


def tables(left: list[Any], right: list[Any]) -> tuple[pa.Table, pa.Table]:
    ours = {
        "u0": [u for u, _ in left],
        "day": [d for _, d in left],
        "store": ["s"] * len(left),
        "n0": [1.0] * len(left),
    }
    theirs = {"who": [u for u, _ in right], "visited": [d for _, d in right], "page": ["p"] * len(right)}
    return pa.table(ours, schema=joined.LEFT), pa.table(theirs, schema=joined.RIGHT)


def shards(join: UnitJoin, left: pa.Table, right: pa.Table, number: int) -> dict[int, list[pa.Table]]:
    found: dict[int, list[pa.Table]] = collections.defaultdict(list)
    for side, table in ((join.left, left), (join.right, right)):
        for place, piece in SideToShards(side, number, joined.SALT).compute(table):
            found[place].append(piece)
    return found


def known(day: float | None) -> bool:
    return day is not None and day == day


@given(LEFT, RIGHT, st.booleans(), st.booleans(), st.integers(1, 4))
def test_pairs_rows_and_units_that_meet(
    left: list[Any], right: list[Any], alone: bool, on_day: bool, number: int
) -> None:
    join = joined.join_of(keeps_unmatched=alone, on_day=on_day, caps=(100, 100))
    notes, rows, plain = [], 0, 0
    for place, pieces in shards(join, *tables(left, right), number).items():
        for made in CountMatches(join, joined.SALT).process((place, pieces)):
            notes += [made] if is_notes(made) else []
            rows += 0 if is_notes(made) else made.num_rows
        plain += sum(made.num_rows for made in JoinRows(join, joined.SALT).process((place, pieces)))
    facts = {fact[1:]: count for fact, count in read_notes(notes).items()}

    ours = [(u, d) for u, d in left if u is not None and (alone or not on_day or known(d))]
    theirs = [(u, d) for u, d in right if u is not None and (not on_day or known(d))]

    def meet(one: Any, other: Any) -> bool:
        return one[0] == other[0] and (not on_day or (known(one[1]) and one[1] == other[1]))

    pairs = sum(meet(one, other) for one in ours for other in theirs)
    matched = sum(any(meet(one, other) for other in theirs) for one in ours)
    wanted = {
        ("pairs",): pairs,
        ("left", "capped"): len(ours),
        ("right", "capped"): len(theirs),
        ("left", "matched"): matched,
        ("right", "matched"): sum(any(meet(one, other) for one in ours) for other in theirs),
        ("left", "units"): len({u for u, _ in ours}),
        ("right", "units"): len({u for u, _ in theirs}),
        ("units_of_both",): len({u for u, _ in ours} & {u for u, _ in theirs}),
    }
    assert {fact: facts.get(fact, 0.0) for fact in wanted} == wanted
    assert rows == plain == pairs + (len(ours) - matched if alone else 0)
