"""The writer of SVG: where numbers stand, what is escaped, which numbers are round."""

import dataclasses
import itertools
import math
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from dp_pipelines.report.axes import round_places
from dp_pipelines.report.charts import bar_chart, histogram, quantile_ranges
from dp_pipelines.report.marks import Boxes, Dots, Lines, Text
from dp_pipelines.report.svg import MARK, QUIET, ChartFrame, element
from tests.report.test_report import UGLY


def test_numbers_stand_where_the_axes_say() -> None:
    frame = ChartFrame(height=70, left=10, right=10, top=5, bottom=15, across=(0, 10), up=(-1, 1))
    assert (frame.x(0), frame.x(10), frame.y(-1), frame.y(1)) == (0, 100, 55, 5)
    turned = dataclasses.replace(frame, up=(2, 0))
    assert (turned.y(2), turned.y(0)) == (55, 5)


@pytest.mark.parametrize(("low", "high"), [(0.0, 5e-324), (0.0, 3e-323), (-9e307, 9e307), (1.0, 1.0), (0.0, 1e-310)])
def test_ends_between_which_no_step_is_a_float_give_one_number(low: float, high: float) -> None:
    assert round_places(low, high) == [low]


def test_axes_without_a_width_and_charts_of_nothing_are_drawn() -> None:
    frame = ChartFrame(height=10, left=1, right=1, top=1, bottom=1, across=(0, 0), up=(3, 3))
    assert (frame.x(0), frame.y(3), frame.x(7)) == (0, 9, 0)
    nothing = np.array([])
    assert "<svg" in escape(bar_chart([], nothing, nothing, [], "none"))
    assert "<svg" in escape(histogram(nothing, nothing, ["0"], "none", whole=True))
    assert "<svg" in escape(quantile_ranges([], np.zeros((0, 3)), np.zeros((0, 3)), [], "none", (0.0, 1.0)))


def test_nothing_is_drawn_where_there_is_nothing() -> None:
    marks = (Lines(ends=[], colour=MARK, width=1), Boxes(corners=[], colour=MARK), Dots(points=[], size=2))
    assert [mark.written(ChartFrame(height=10)) for mark in marks] == ["", "", ""]


@pytest.mark.parametrize("text", [*UGLY, "</text><script>alert(1)</script>", '" onload="x', "&amp;", "$x^2$"])
def test_a_text_is_one_text_whatever_stands_in_it(text: str) -> None:
    frame = ChartFrame(height=10)
    mark = Text(words=text, x=1, y=2, side="start", level="middle", colour=QUIET, upright=True).written(frame)
    assert mark.count("<") == 2
    assert "<script" not in element(frame, text, [], [mark])
    if text.isprintable():
        (read,) = ElementTree.fromstring(element(frame, "one", [], [mark]))
        assert read.text == text


@given(low=st.floats(-1e30, 1e30), span=st.floats(1e-30, 1e30))
def test_round_numbers_lie_between_the_ends_and_are_few(low: float, span: float) -> None:
    high = low + span
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        return
    found = round_places(low, high)
    assert 1 <= len(found) <= 7
    assert all(low - 1e-6 * span <= tick <= high + 1e-6 * span for tick in found)
    assert found == sorted(set(found))
    steps = [b - a for a, b in itertools.pairwise(found)]
    for step in steps:
        leading = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert min(abs(leading - digit) for digit in (1, 2, 2.5, 5, 10)) < 1e-3 + 1e-6 * abs(low) / span
