"""The benchmark of default settings, on made-up results and rows: its goals can fail, and its baseline has our encoding."""

import pathlib
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines.jobs.request.request import check
from tests.examples.test_tax_units import job_of_made_up_rows, tax_units


@pytest.fixture
def defaults(load: Callable[[str], ModuleType]) -> ModuleType:
    pytest.importorskip("sklearn")
    return load("training_defaults")


def measured(defaults: ModuleType, auc_by_epsilon: dict[float, float]) -> object:
    """Two releases at each epsilon around an AUC, beside one of .9 without privacy."""

    def results(auc: float) -> list[object]:
        return [defaults.Result(auc=auc + off, accuracy=0.8) for off in (-0.001, 0.001)]

    return defaults.Measured(
        private={epsilon: results(auc) for epsilon, auc in auc_by_epsilon.items()},
        logistic=results(0.9),
        trees=results(0.91),
        taken={each: [{"clip_norm": 7.5, "learning_rate": 4.0, "averaged": 20}] * 2 for each in auc_by_epsilon},
        kept={each: [(50, defaults.Result(auc=0.895, accuracy=0.8))] for each in auc_by_epsilon},
        units=1000,
        earn=0.25,
    )


def test_goals_compare_means_with_the_model_without_privacy(defaults: ModuleType) -> None:
    gates = defaults.judge(measured(defaults, {0.1: 0.891, 0.3: 0.5, 1.0: 0.8981}))
    assert [gate.figure for gate in gates] == pytest.approx([0.0019, 0.009])
    assert all(gate.holds for gate in gates)


@pytest.mark.parametrize("aucs", [{0.1: 0.889, 1.0: 0.9}, {0.1: 0.9, 1.0: 0.8979}, {0.1: float("nan"), 1.0: 0.9}])
def test_each_goal_can_fail(defaults: ModuleType, aucs: dict[float, float]) -> None:
    assert [gate.holds for gate in defaults.judge(measured(defaults, aucs))].count(False) == 1


def test_the_page_shows_every_epsilon_and_what_was_missed(defaults: ModuleType, tmp_path: pathlib.Path) -> None:
    request = check(job_of_made_up_rows(tmp_path), [])
    page = defaults.page(measured(defaults, {0.1: 0.88, 1.0: 0.9}), request, 1, 2)
    assert "| AUC lost at epsilon 0.1 | 0.0200 | ≤ 0.01 | **FAIL** |" in page
    assert "| epsilon 1 over everything | 0.9000 |" in page
    assert "| 0.1 | 7.5 | 4 | 20 | 50 | 0.8950 |" in page


def test_the_baseline_cuts_bins_where_a_release_without_noise_would(
    defaults: ModuleType, tmp_path: pathlib.Path
) -> None:
    request = check(job_of_made_up_rows(tmp_path), [])
    plan, task = defaults.planned(request, 1.0, defaults.STAGE)
    rows = tax_units(4000)
    # Nine in ten have no interest: a bin of its own, and nine for the rest.
    interest = np.where(np.arange(4000) % 10 < 9, 0, np.arange(4000))
    rows = rows.set_column(rows.column_names.index("e00300"), "e00300", pa.array(interest))
    encoder = defaults.exact_encoder(plan, task, rows, frozenset({"age_head"}))
    assert list(encoder.edges["interest"]) == sorted(set(encoder.edges["interest"]))
    assert 0 < encoder.edges["interest"][0] < 20
    np.testing.assert_allclose(encoder.edges["age"], np.arange(10, 100, 10) - 0.5, atol=2)
