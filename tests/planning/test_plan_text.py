"""A plan in a notebook: its budget, and a line with the noise of each number."""

import pytest

from dp_pipelines.planning.plan_text import HEADS, plan_text

NOISE = {"rows": {"noise": "laplace", "stddev": 12345.6}, "the mean of a basket": {"noise": "gaussian", "stddev": None}}


@pytest.mark.parametrize(
    ("runs", "words"), [(1, ""), (2, " for all 2 runs together"), (52, " for all 52 runs together")]
)
def test_the_budget_is_that_of_all_runs_and_never_less_than_it_is(runs: int, words: str) -> None:
    plan = {"epsilon": 0.43911, "delta": 1e-6, "runs": runs, "stages": []}
    assert plan_text(plan) == f"epsilon 0.4392, delta 1e-06{words}\n" + "  ".join(HEADS)


def test_each_number_has_a_line_in_columns_and_a_stage_without_metrics_has_one_too() -> None:
    stages = [{"name": "weekly", "metrics": NOISE}, {"name": "keys", "metrics": {}}, {"name": "a model of returns"}]
    plan = {"epsilon": 1.0, "delta": 0.0, "runs": 1, "stages": stages}
    assert plan_text(plan).splitlines() == [
        "epsilon 1, delta 0",
        "stage               metric                noise     standard deviation",
        "weekly              rows                  laplace   12346",
        "weekly              the mean of a basket  gaussian  depends on group size",
        "keys                -                     -         -",
        "a model of returns  -                     -         -",
    ]
