"""Warnings about clamps: said where released shares stand out, or where the choice says little; never of odd entries."""

import pytest

from dp_pipelines.report import clamp_warnings

NONE = {"share": 0.01, "stddev": 0.01}
HALF = {"share": 0.5, "stddev": 0.02}


def stage(**entry: object) -> dict[str, object]:
    """A stage with one clamped column."""
    return {"kept": {"values": [{"column": "delay", "low": 0.0, "high": 15.0, "below": NONE, "above": NONE, **entry}]}}


def test_many_values_beyond_a_clamp_are_said_with_a_bound_to_try() -> None:
    (above,) = clamp_warnings.lines(stage(above=HALF))
    assert above == "warning: 50% (± 5%) of values of delay lie above 15 and count as 15. Try max_value: 60"
    (below,) = clamp_warnings.lines(stage(below=HALF))
    assert below.endswith("lie below 0 and count as 0. If that matters, try min_value: -15")
    assert len(clamp_warnings.lines(stage(above=HALF, below=HALF))) == 2


@pytest.mark.parametrize("share", [NONE, {"share": 0.25, "stddev": 0.05}, {"share": None, "stddev": None}, None, 3])
def test_shares_that_are_small_or_may_be_are_not(share: object) -> None:
    assert clamp_warnings.lines(stage(above=share, below=share)) == []


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ([0.0, 1e6], "total: the run took the whole range as its bounds"),
        ([0.0, 1e6 / 2**32], "warning: the run took nearly 0 (0.0002328) as the largest value of total"),
    ],
)
def test_a_choice_at_an_end_of_what_may_be_chosen_is_said(bounds: list[float], words: str) -> None:
    (line,) = clamp_warnings.lines({"metrics": {"total": {"bounds": bounds, "within": [0.0, 1e6]}}})
    assert line.startswith(words)
    assert "write max_value" in line


@pytest.mark.parametrize(
    "metrics",
    [
        {"total": {"bounds": [0.0, 50.0], "within": [0.0, 1e6]}},
        {"total": {"bounds": [0.0, 1e6]}},
        {"total": {}},
        3,
        None,
    ],
)
def test_other_choices_and_odd_entries_are_not(metrics: object) -> None:
    assert clamp_warnings.lines({"metrics": metrics, "kept": {"values": [None, {}, 3]}}) == []
    assert clamp_warnings.lines({"kept": {"values": "odd"}, "metrics": metrics}) == []
