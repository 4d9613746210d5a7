"""Costs at noise levels lie on the side of a limit on which the rough estimate lies, whatever was exchanged before.

In: drawn mechanisms; limits far from their cost, at it, and a last bit away from it. Holds: running totals and sums in order
give the side of `estimate.rough`, which adds everything anew. Not covered: the plans that are chosen (test_expected_error).
"""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.accounting import level_costs
from dp_pipelines.accounting.estimate import Terms, rough
from dp_pipelines.accounting.level_costs import NOTHING, LevelCosts, LevelPart

losses = st.lists(st.tuples(st.integers(1, 40), st.floats(1e-6, 30)), max_size=2).map(tuple)
terms = st.builds(
    Terms,
    squares=st.just(0.0) | st.floats(1e-9, 1e3),
    losses=losses,
    log_not_failed=st.just(0.0) | st.floats(-1e-6, 0),
)
mechanisms = st.tuples(terms, st.booleans())
"""What they do at level 1, and whether their noise follows the level."""

WIDTH = 3


@given(
    first=st.lists(mechanisms, min_size=1, max_size=6),
    exchanged=st.lists(st.tuples(st.integers(0, 5), mechanisms | st.none(), st.booleans()), max_size=5),
    levels=st.lists(st.floats(0.01, 100), min_size=1, max_size=3),
    delta=st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 0.5]),
    runs=st.sampled_from([1, 30]),
    near=st.sampled_from([0.3, 1 - 2e-4, 1 - 5e-5, 1.0, 1 + 5e-5, 1 + 2e-4, 3.0]),
)
@settings(deadline=None, max_examples=150)
def test_a_cost_is_on_the_side_of_the_rough_estimate(
    first: list[tuple[Terms, bool]],
    exchanged: list[tuple[int, tuple[Terms, bool] | None, bool]],
    levels: list[float],
    delta: float,
    runs: int,
    near: float,
) -> None:
    def whole(now: list[tuple[Terms, bool] | None], level: float) -> float:
        parts = [of_one[0].at(level if of_one[1] else 1.0) for of_one in now if of_one is not None]
        return rough(parts, delta, runs=runs)

    def part(of_one: tuple[Terms, bool] | None) -> LevelPart:
        return NOTHING if of_one is None else LevelPart.of_terms(of_one[0], runs, scaled=of_one[1])

    now: list[tuple[Terms, bool] | None] = list(first)
    about = whole(now, levels[0]) * near
    limit = about if 0 < about < math.inf else 1.0
    for against in (limit, math.nextafter(limit, 0), math.nextafter(limit, math.inf)):
        now = list(first)
        costs = LevelCosts([part(of_one) for of_one in now], delta, against=against, width=WIDTH)
        assert _sides(costs.cost({}), levels, against) == [whole(now, level) <= against for level in levels]
        for number, of_one, for_good in exchanged:
            place = number % len(now)
            then = [*now[:place], of_one, *now[place + 1 :]]
            changed = {place: part(of_one)}
            found = _sides(costs.cost(changed), levels, against)
            assert found == [whole(then, level) <= against for level in levels]
            if for_good:
                costs.exchange(changed)
                now = then
                assert _sides(costs.cost({}), levels, against) == found


@pytest.mark.parametrize("epsilon", [0.02, 0.5, 3.0, 20.0, 99.0, 200.0])
def test_limits_within_the_width_of_the_search_are_decided_as_by_the_rough_estimate(epsilon: float) -> None:
    for number in range(60):
        square = epsilon**2 / (30 + number / 7)
        whole = rough([Terms(squares=square)], 1e-6)
        part = LevelPart.of_terms(Terms(squares=square), 1, scaled=True)
        for step in range(-30, 31, 3):
            against = whole * (1 + step * 1e-5)
            cost = LevelCosts([part], 1e-6, against=against, width=1).cost({})
            assert (cost(1.0) <= against) == (whole <= against)


@pytest.mark.parametrize("loss", [0.01, 0.03, 0.07])
def test_sums_of_losses_have_the_bits_of_a_loop(loss: float) -> None:
    for number in range(2, 40):
        terms = [Terms(losses=((1, loss * (1 + place / 7)),)) for place in range(number)]
        whole = math.fsum(each.losses[0][1] for each in terms)
        parts = [LevelPart.of_terms(each, 1, scaled=True) for each in terms]
        for against in (whole, math.nextafter(whole, 0), math.nextafter(whole, math.inf)):
            # Only their sum can meet so small a delta.
            cost = LevelCosts(parts, 0.0, against=against, width=1).cost({})
            assert (cost(1.0) <= against) == (rough(terms, 0.0) <= against)


def test_what_is_clear_takes_no_exact_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(*_: object, **__: object) -> float:
        raise AssertionError("a clear case was added up anew")

    square = 4.0
    whole = rough([Terms(squares=square)], 1e-6)
    monkeypatch.setattr(level_costs, "epsilon_of_sums", exact)
    part = LevelPart.of_terms(Terms(squares=square), 1, scaled=True)
    for further in (1.001, 1.3, 5.0):
        assert LevelCosts([part], 1e-6, against=whole * further, width=1).cost({})(1.0) == whole * further
        assert LevelCosts([part], 1e-6, against=whole / further, width=1).cost({})(1.0) == math.inf


def _sides(cost: Callable[[float], float], levels: list[float], against: float) -> list[bool]:
    return [cost(level) <= against for level in levels]
