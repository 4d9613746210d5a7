"""All rows that one privacy unit may put into one number are rounded together: lemma 6c of docs/proofs/sensitivity.md."""

import itertools
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.kernels.sensitivity import Shape
from tests.helpers.examples import examples


def splits(rows: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """All ways to spread at most so many rows over partitions, falling."""
    yield ()
    for first in range(1, min(rows, largest or rows) + 1):
        for others in splits(rows - first, first):
            yield (first, *others)


def shape(unit: int, rows: int) -> Shape:
    return Shape(unit=unit, coordinates=rows, per_coordinate=rows, in_total=rows)


@settings(max_examples=examples(60, 600))
@given(unit=st.integers(1, 60), rows=st.integers(2, 9), step=st.integers(1, 90))
def test_no_way_to_spread_the_rows_of_a_unit_moves_the_rounded_numbers_further(unit: int, rows: int, step: int) -> None:
    declared = shape(unit, rows).steps(step, joined=True)
    # The furthest that rounding can take a change of r rows: some total before it is just below a half.
    moves = {r: max((t + r * unit) // step - t // step for t in range(step)) for r in range(1, rows + 1)}
    for split in splits(rows):
        moved = [moves[r] for r in split]
        assert len(moved) <= declared.l0
        assert max(moved, default=0) <= declared.linf
        assert sum(moved) <= declared.l1
        assert sum(m * m for m in moved) <= declared.l2_squared


def test_rounding_rows_together_is_what_the_bound_needs() -> None:
    """The twin: with the steps of one row alone, times the rows, it would be said to move less than it does."""
    unit, rows, step = 10, 5, 15
    together = shape(unit, rows).steps(step, joined=True)
    spread = max(1, (7 + unit) // step - 7 // step)  # one row in each of five partitions
    assert rows * spread**2 <= together.l2_squared
    too_small = (rows * unit // step) ** 2
    concentrated = (14 + rows * unit) // step - 14 // step
    assert too_small < concentrated**2 <= together.l2_squared


@settings(max_examples=examples(60, 600))
@given(unit=st.integers(1, 2**40), rows=st.integers(2, 500), step=st.integers(1, 2**40))
def test_it_is_never_more_than_each_row_rounded_alone(unit: int, rows: int, step: int) -> None:
    joined, alone = shape(unit, rows).steps(step, joined=True), shape(unit, rows).steps(step)
    assert (joined.l0, joined.l1) == (alone.l0, alone.l1)
    assert joined.linf <= alone.linf
    assert joined.l2_squared <= alone.l2_squared


@settings(max_examples=examples(100, 1000))
@given(unit=st.integers(1, 2**40), rows=st.integers(2, 500), steps=st.integers(1, 2000))
def test_what_a_plan_says_of_bounds_that_are_not_chosen_holds_on_every_lattice(
    unit: int, rows: int, steps: int
) -> None:
    planned = shape(1, rows).ideally(steps, rows)
    made = shape(unit, rows).steps(-(-unit * rows // steps), joined=True)
    for field in ("l0", "linf", "l1", "l2_squared"):
        assert getattr(made, field) <= getattr(planned, field)


def test_shapes_that_cannot_put_everything_into_one_number_join_nothing() -> None:
    for coordinates, each, total in itertools.product((1, 4), (1, 2), (4, 8)):
        one = Shape(unit=9, coordinates=coordinates, per_coordinate=each, in_total=total)
        assert not one.joins
        assert one.steps(4, joined=True) == one.steps(4)
