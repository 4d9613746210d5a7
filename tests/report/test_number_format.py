"""Formats of numbers that a job asks for: bars and ranges never look shorter than they are, and cells of files stay numbers."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.report import numbers, range_text
from dp_pipelines.report.words import presented
from dp_pipelines.report.words.number_format import NumberFormat

FORMS = st.builds(NumberFormat, decimals=st.integers(0, 6), percent=st.booleans(), grouped=st.booleans())
VALUES = st.floats(-1e9, 1e9)
STDDEVS = st.floats(1e-9, 1e6)


def number(text: str) -> float:
    """The number that a text for people says."""
    value = float(text.removesuffix("%").replace(",", ""))
    return value / 100 if text.endswith("%") else value


@given(form=FORMS, value=VALUES, stddev=STDDEVS)
def test_an_error_bar_is_never_shorter_than_it_is_and_never_zero(
    form: NumberFormat, value: float, stddev: float
) -> None:
    parts = numbers.error_bar_parts(value, stddev, form=form)
    assert parts is not None
    step, bar = 10.0 ** -(form.decimals + (2 if form.percent else 0)), numbers.ERROR_BAR * stddev
    slack = 1e-9 * max(1.0, abs(value), bar)
    assert abs(number(parts[0]) - value) <= step / 2 + slack
    assert bar - slack <= number(parts[1]) <= bar + step + slack
    assert number(parts[1]) > 0
    assert all(text.endswith("%") == form.percent for text in parts)
    assert form.grouped or "," not in "".join(parts)


@given(form=FORMS, value=VALUES, stddev=STDDEVS)
def test_cells_of_a_file_are_plain_numbers_that_say_the_same(form: NumberFormat, value: float, stddev: float) -> None:
    cells = numbers.rounded_cells(value, stddev, form=form)
    parts = numbers.rounded_parts(value, stddev, form=form)
    assert parts is not None
    middle, deviation, low, high = cells
    decimals = form.decimals + (2 if form.percent else 0)
    for text in (middle, low, high):
        assert re.fullmatch(rf"-?\d+\.\d{{{decimals}}}" if decimals else r"-?\d+", text)
        assert not re.fullmatch(r"-0(\.0+)?", text)
    assert float(deviation) > 0
    for cell, text in ((middle, parts[0]), (low, parts[2]), (high, parts[3])):
        assert float(cell) == pytest.approx(number(text), rel=1e-9, abs=1e-12)


@given(form=FORMS, ends=st.tuples(VALUES, VALUES).map(sorted))
def test_ranges_are_rounded_outwards(form: NumberFormat, ends: list[float]) -> None:
    low, high = ends
    first, _, last = range_text.range_in_words(low, high, form=form).partition(" … ")
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    assert number(first) <= low + slack or low == high
    assert number(last or first) >= high - slack or low == high
    cells = range_text.range_cells((low + high) / 2, low, high, form=form)
    assert float(cells[1]) == pytest.approx(number(first), rel=1e-9, abs=1e-12)


def test_a_number_without_an_error_bar_and_none_at_all() -> None:
    form = NumberFormat(decimals=2, grouped=True)
    assert numbers.with_error_bar(1234.5, None, form=form) == "1,234.50"
    assert numbers.with_error_bar(1234.5, math.nan, form=form) == "1,234.50"
    assert numbers.with_error_bar(None, 1.0, form=form) == "-"
    assert numbers.rounded_cells(1234.5, None, form=form) == ("1234.50", "", "", "")
    assert numbers.rounded_cells(None, 1.0, form=form) == ("", "", "", "")
    assert numbers.error_bar_parts(5.0, 0.0, form=form) == ("5.00", "0.00")


@pytest.mark.parametrize("wrong", [None, 3, [], {}, "", ".9f", "{}", ",.0f<script>"])
def test_formats_of_a_damaged_manifest_are_none(wrong: object) -> None:
    content = {
        "presentation": {"format": wrong, "stages": {"a": {"format": wrong, "metrics": {"n": {"format": wrong}}}}}
    }
    assert presented.read_stage(content, "a").form_of("n") is None
