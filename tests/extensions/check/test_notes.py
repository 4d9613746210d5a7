"""Notes add up in any order, and are told from rows."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.extensions.check import notes
from dp_pipelines.extensions.check.notes import Notes

NAMES = st.sampled_from(["a", 'a"', "b", "[]", "ä\n", ""])
COUNTED = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=3), st.integers(-(10**6), 10**6)), max_size=20)


@given(st.lists(COUNTED, max_size=4))
def test_the_sums_of_parts_are_the_sums_of_the_whole(parts: list[list[tuple[list[str], int]]]) -> None:
    tables, whole = [], Notes("about")
    for part in parts:
        mine = Notes("about")
        for name, number in part:
            mine.add(*name, number)
            whole.add(*name, number)
        tables.append(mine.table())
    wanted = notes.read_notes([whole.table()])
    assert notes.read_notes(tables) == notes.read_notes([notes.merged(tables)]) == wanted
    assert notes.merged(tables).equals(notes.merged(tables[::-1]))


def test_notes_are_told_from_rows() -> None:
    assert notes.is_notes(notes.nothing())
    assert notes.is_notes(Notes("x").table())
    assert not notes.is_notes(pa.table({"customer": [1], "price": [2.0]}))
