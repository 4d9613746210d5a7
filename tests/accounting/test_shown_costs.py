"""Costs as people read them: never less than what is spent, never more than what is left, by one function everywhere."""

import ast
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.accounting.shown_costs import left_number, number, spent_number
from dp_pipelines.report.numbers import cost_number, left_cost_number
from tests.helpers.source import modules

COSTS = st.floats(1e-30, 1e6)

PARAMETERS_AND_TEXTS_OF_PEOPLE = {
    "dp_pipelines.jobs.cli.audit_command": "a grid of whole epsilons, and deltas beside what replays found",
    "dp_pipelines.ledger.rules": "a number that a person wrote",
}
"""Modules that write an epsilon or a delta with a format of their own, each with the reason."""


@given(COSTS)
def test_what_is_spent_is_not_shown_as_less_and_what_is_left_not_as_more(value: float) -> None:
    slack = 1e-11 * value  # the last digits of what was computed decide nothing
    assert float(spent_number(value)) >= value - slack
    assert float(left_number(value)) <= value + slack
    assert float(spent_number(value)) <= value * 1.0011
    assert float(left_number(value)) >= value / 1.0011


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.99994, "0.9999"), (9.996, "9.996"), (43.91, "43.91"), (999.94, "999.9"), (1234.4, "1234")),
        *((9999.7, "10000"), (12345.0, "12345"), (99999.5, "100000"), (-43.91, "-43.91"), (1.5e-7, "1.5e-07")),
    ],
)
def test_four_digits_are_shown_and_of_large_numbers_all_before_the_point(value: float, text: str) -> None:
    assert number(value) == text


@given(COSTS)
def test_pages_and_the_terminal_show_the_same_cost(value: float) -> None:
    assert float(cost_number(value)) == float(spent_number(value))
    assert float(left_cost_number(value)) == float(left_number(value))


def test_the_nearest_number_would_promise_too_much() -> None:
    assert float(number(0.93342)) < 0.93342 <= float(spent_number(0.93342))


@pytest.mark.parametrize("value", [None, "1", float("nan"), float("inf"), True, [1]])
def test_what_is_no_cost_is_a_dash_on_a_page(value: object) -> None:
    assert cost_number(value) == left_cost_number(value) == "-"


def formatted_costs(source: str) -> Iterator[str]:
    """Epsilons and deltas that an f-string writes with a format of its own."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            written = ast.unparse(node.value)
            if any(written.rpartition(".")[2].strip("'\"])").endswith(word) for word in ("epsilon", "delta")):
                yield written


def test_no_module_rounds_a_cost_in_its_own_way() -> None:
    found = {name: costs for name, path in modules().items() if (costs := [*formatted_costs(path.read_text())])}
    assert set(found) == set(PARAMETERS_AND_TEXTS_OF_PEOPLE), found


def test_a_cost_that_is_rounded_in_its_own_way_is_found() -> None:
    source = """f"{plan.accounted['epsilon']:.4g} {cap.delta:g} {spent_number(epsilon)} {share:.0%}" """
    assert [*formatted_costs(source)] == ["plan.accounted['epsilon']", "cap.delta"]
