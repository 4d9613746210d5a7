"""The recipes of docs/recipes: their jobs, run on made-up rows, give the truth within their noise and their declared limits.

In: examples/recipes. Out: released numbers beside the truth by DuckDB. Holds: a number that no bound cuts off is within seven
standard deviations of its noise (one of some fifty numbers is beyond that less than once in 1e9 runs); of what bounds cut off, no
more is missing than is said here. Not covered: the words of the pages (`tests/docs` runs their commands).
"""

import importlib.util
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest

from tests.docs.worlds import RECIPES
from tests.helpers.source import ROOT

FOLDER = ROOT / "examples" / "recipes"
DEVIATIONS = 7
"""Of Gaussian noise: 2.6e-12 for one number."""


def loaded(name: str) -> types.ModuleType:
    """A module of the example, which is no package."""
    spec = importlib.util.spec_from_file_location(f"recipes_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


errors = loaded("errors")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the made-up rows."""
    folder = tmp_path_factory.mktemp("recipes")
    command = [sys.executable, FOLDER / "make_rows.py", "--output", folder]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_each_page_of_a_recipe_has_a_question_and_a_line_in_the_index() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "recipes").glob("*.md")} - {"index"}
    index = (ROOT / "docs" / "recipes" / "index.md").read_text()
    assert pages == set(errors.QUESTIONS) == set(RECIPES)
    assert all(f"]({page}.md)" in index for page in pages)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["funnel", "retention", "wrong_release"])
def test_numbers_that_no_bound_cuts_off_are_true_within_their_noise(rows: pathlib.Path, recipe: str) -> None:
    for each in errors.compared(recipe, rows):
        assert len(each.truth) >= 4
        assert each.truth.min() > 100
        assert np.all(np.abs(each.errors) <= DEVIATIONS * each.deviation), each.name


@pytest.mark.slow
def test_active_users_of_weeks_and_of_the_month_are_true_and_days_lose_what_the_bound_cuts_off(
    rows: pathlib.Path,
) -> None:
    daily, weekly, monthly = errors.compared("active_users", rows)
    assert (len(daily.truth), len(weekly.truth), len(monthly.truth)) == (28, 4, 1)
    for each in (weekly, monthly):
        assert np.all(np.abs(each.errors) <= DEVIATIONS * each.deviation)
    assert daily.errors.sum() <= DEVIATIONS * np.sqrt((daily.deviation**2).sum())
    assert daily.released.sum() >= 0.9 * daily.truth.sum()


@pytest.mark.slow
def test_the_dashboard_counts_no_more_visits_than_there_are_and_most_of_them(rows: pathlib.Path) -> None:
    (visits,) = errors.compared("dashboard", rows)
    assert len(visits.truth) == 28
    noise = DEVIATIONS * np.sqrt((visits.deviation**2).sum())
    assert 0.8 * visits.truth.sum() - noise <= visits.released.sum() <= visits.truth.sum() + noise


@pytest.mark.slow
def test_the_top_ten_are_ten_of_the_products_with_the_most_orders(rows: pathlib.Path) -> None:
    (top,) = errors.compared("top_products", rows)
    assert len(top.truth) == 10
    assert np.all(top.errors <= DEVIATIONS * top.deviation)
    assert top.truth.min() >= 60  # half of the products have fewer orders


@pytest.mark.slow
def test_the_weighted_mean_is_that_of_the_weights_and_not_the_plain_one(rows: pathlib.Path) -> None:
    weights, weighted = errors.compared("weighted_mean", rows)
    mean, truth = (
        6 + above / below
        for above, below in ((weighted.released[0], weights.released[0]), (weighted.truth[0], weights.truth[0]))
    )
    allowed = (DEVIATIONS * weighted.deviation[0] + abs(mean - 6) * DEVIATIONS * weights.deviation[0]) / weights.truth[
        0
    ]
    # Few weights are above 4, and few answers above 12.
    assert -0.02 * truth - allowed <= mean - truth <= allowed
    assert truth < 3.5 < 4.0


@pytest.mark.slow
def test_the_arms_of_the_test_are_true_within_their_noise_and_the_page_says_which_one_is_better(
    rows: pathlib.Path,
) -> None:
    users, buyers, revenue = errors.compared("ab_test", rows)
    for each in (users, buyers):
        assert len(each.truth) == 2
        assert np.all(np.abs(each.errors) <= DEVIATIONS * each.deviation), each.name
    assert np.all(revenue.errors <= DEVIATIONS * revenue.deviation)  # some spend more than 200
    assert np.all(revenue.errors >= -0.01 * revenue.truth - DEVIATIONS * revenue.deviation)
    page = (rows / "out" / "ab_test" / "report.html").read_text(encoding="utf-8")
    assert "buyers of B is higher than that of A" in page  # by more than seven deviations of noise and chance


def test_a_wrong_number_of_a_recipe_is_found() -> None:
    right = errors.Compared("users", np.array([100.0, 200.0]), np.array([101.0, 198.0]), np.array([5.0, 5.0]))
    wrong = right._replace(released=np.array([100.0, 300.0]))
    assert np.all(np.abs(right.errors) <= DEVIATIONS * right.deviation)
    assert not np.all(np.abs(wrong.errors) <= DEVIATIONS * wrong.deviation)
