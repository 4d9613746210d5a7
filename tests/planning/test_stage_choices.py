"""What calibration decided, in integers: release steps that are wide enough and no wider, and JSON as ledgers have it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.planning.stage_choices import Choice, StageChoices


@given(unit=st.integers(1, 10**9), steps=st.integers(1, 10**6), units=st.integers(1, 1000))
def test_a_release_step_is_the_narrowest_of_which_so_many_hold_the_units_of_change(
    unit: int, steps: int, units: int
) -> None:
    step = Choice(law="laplace", steps=steps, units=units).step(unit)
    assert (step - 1) * steps < unit * units <= step * steps


@pytest.mark.parametrize(("units", "fields"), [(1, {"law", "steps"}), (2, {"law", "steps", "units"})])
def test_a_choice_is_stored_as_the_first_ledgers_had_it_and_comes_back(units: int, fields: set[str]) -> None:
    choice = Choice(law="gaussian", steps=700, units=units)
    stored = choice.to_json()
    assert set(stored) == fields
    assert Choice(**stored) == choice  # type: ignore[arg-type]


def test_what_nothing_is_said_of_selects_nothing() -> None:
    choices = StageChoices(strategy=None, noises=FrozenMapping({}))
    assert (choices.selection_delta, choices.selection_epsilon, choices.centred) == (0.0, 0.0, ())


def test_choices_in_another_order_are_the_same_choices() -> None:
    noises = {name: Choice(law="laplace", steps=n) for n, name in enumerate("abc", start=1)}
    families = [("paid", 0.0, 1.0), ("age", 0.0, 90.0)]
    every = [
        StageChoices(strategy=None, noises=FrozenMapping(dict(items)), centred=tuple(centred))
        for items in itertools.permutations(noises.items())
        for centred in itertools.permutations(families)
    ]
    assert len({repr(choices) for choices in every}) == 1
    assert all(choices == every[0] for choices in every)
