"""Formulas over released numbers: what is read, what is refused, and what comes out.

In: texts. Out: numbers and messages. Holds: hostile texts are refused with a sentence, quickly, and nothing of them is run. Not
covered: intervals (`test_intervals`).
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.report.derived import formula

COLUMNS = {"a": np.array([6.0, -2.0]), "b": np.array([3.0, 4.0]), "net c": np.array([0.5, 0.0])}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("a / b", [2.0, -0.5]),
        ("a - b - 1", [2.0, -7.0]),
        ("a - (b - 1)", [4.0, -5.0]),
        ("a / b / 2 * 4", [4.0, -1.0]),
        ("-a + 2*b", [0.0, 10.0]),
        ('1.5e1 * "net c" + .5', [8.0, 0.5]),
        ("a - -b", [9.0, 2.0]),
        ("2 * (a + b) * (1 - 4)", [-54.0, -12.0]),
    ],
)
def test_signs_bind_as_in_arithmetic(text: str, numbers: list[float]) -> None:
    assert formula.read(text).compute(COLUMNS).values.tolist() == numbers


def test_a_division_by_zero_is_no_number() -> None:
    found = formula.read('a / "net c"').compute(COLUMNS)
    assert formula.undivided(found).tolist() == [True, False]
    assert formula.undivided(formula.read('1 / (a / "net c")').compute(COLUMNS)).tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ends where a metric or a number is expected"),
        ("a /", "ends where a metric or a number is expected"),
        ("(a", "has a bracket that is not closed"),
        ("a)", r"has '\)' where nothing opens it"),
        ("a b", "has no sign before 'b'"),
        ("a ** b", r"has '\*' where a metric or a number is expected"),
        ("__import__('os').system('x')", "has a sign that formulas do not know"),
        ("a.b", "has a sign that formulas do not know"),
        ("a[0]", "has a sign that formulas do not know"),
        ("a; b", "has a sign that formulas do not know"),
        ("a\x00b", "has a sign that formulas do not know"),
        ("f(a)", r"has '\(' where nothing opens it"),
        ("2a", "has a sign that formulas do not know"),
        ("1e999 * a", "has a number that is too large"),
        ("a / 0", "divides by zero"),
        ("a / (2 - 2)", "divides by zero"),
        ("1 + 2", "names no metric"),
        ("(" * 400 + "a", "has more than 20 brackets or signs inside each other"),
        ("-" * 400 + "a", "has more than 20 brackets or signs inside each other"),
        ("a" * 501, "is a formula of more than 500 characters"),
        ("+".join(f"m{number}" for number in range(9)), "names more than 8 metrics"),
        ('"a', "has a sign that formulas do not know"),
    ],
)
def test_other_texts_are_refused_with_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        formula.read(text)


@given(st.text(alphabet="ab+-*/() 1.\"e'\\\n", max_size=60) | st.text(max_size=40))
def test_no_text_fails_in_another_way(text: str) -> None:
    try:
        read = formula.read(text)
    except RequestError:
        return
    columns = {name: np.array([2.0, 0.0, np.nan]) for name in read.names}
    assert read.compute(columns).values.shape == (3,)


@given(st.text(min_size=1, max_size=30))
def test_a_quoted_name_is_read_as_that_name(name: str) -> None:
    assert formula.read(f"{formula.quoted(name)} * 2").names == (name,)


def test_sums_and_quotients_of_sums_are_known_as_such() -> None:
    above, below = formula.read("(2 * a - b / 4 + 1) / (3 * b)").quotient() or (None, None)
    assert above is not None
    assert below is not None
    assert (above.constant, dict(above.factors), dict(below.factors)) == (1.0, {"a": 2.0, "b": -0.25}, {"b": 3.0})
    for text in ("a * b", "a / b / c", "a * b - 1", "1 / (b * a)"):
        assert formula.read(text).quotient() is None


def test_sums_of_quotients_and_numbers_are_quotients() -> None:
    columns = {"a": np.array([3.0]), "b": np.array([4.0])}
    for text in ("1 - a / b", "a / b * 2", "3 * (a / b) / 4", "1 / (b / a)", "a / b + b / b", "2 / b - a / b"):
        read = formula.read(text)
        above, below = read.quotient() or (None, None)
        assert above is not None
        assert below is not None
        assert above.compute(columns) / below.compute(columns) == pytest.approx(read.compute(columns).values), text


@pytest.mark.parametrize(
    "text", ["a * a", "(a - b) * (a - b)", "(a - b) * (a - b) / b", "a * (100 - a)", "a / b * (1 - a / b)"]
)
def test_a_formula_that_may_turn_is_refused(text: str) -> None:
    """By draws the interval of none of these would hold the truth where the formula turns: 0 of 1,000 releases."""
    with pytest.raises(RequestError, match="twice"):
        formula.read(text)
