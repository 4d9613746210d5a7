"""The benchmark of accounting: its limits hold, and a limit that is missed is said."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Load = Callable[[str], ModuleType]


def test_52_weekly_releases_get_at_most_0_42_of_the_noise_of_an_even_split(load: Load) -> None:
    weeks = load("accounting").noise(52)
    assert weeks.even == pytest.approx(52 * 2**0.5, rel=0.01)
    assert weeks.ratio <= 0.42


def test_a_year_of_daily_reports_costs_1_38(load: Load) -> None:
    accounting = load("accounting")
    year = accounting.costs([accounting.DAILY], [365])[0]
    assert year.pld == pytest.approx(1.38, abs=0.005)
    assert year.pld < year.renyi < year.advanced < year.naive


def test_each_way_to_add_up_is_no_better_than_the_next_for_a_report(load: Load) -> None:
    accounting = load("accounting")
    for cost in accounting.costs(accounting.report(), accounting.RUNS):
        assert cost.pld <= cost.renyi
        assert cost.pld <= cost.advanced <= cost.naive


def test_the_page_says_when_a_limit_is_missed(load: Load) -> None:
    accounting = load("accounting")
    costs = accounting.costs([accounting.DAILY], accounting.RUNS)
    noises = [accounting.noise(52)]
    plan = accounting.Planning(name="p", mechanisms=50, seconds=0.5, slack=1e-4)
    text, good = accounting.page(costs, costs, noises, [plan])
    assert good
    assert "MISSED" not in text
    for worse in ({"seconds": 3.1}, {"slack": 0.002}):
        text, good = accounting.page(costs, costs, noises, [dataclasses.replace(plan, **worse)])
        assert not good
        assert text.count("MISSED") == 1


def test_the_plot_is_a_picture(load: Load, tmp_path: Path) -> None:
    accounting = load("accounting")
    accounting.plot(tmp_path / "a.png", [accounting.DAILY])
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
