"""A plan in a notebook: its budget, and a line with the noise of each number."""

import pytest

from dp_pipelines import ContributionBounds, Count, Plan, Query
from dp_pipelines.planning.plan_text import HEADS, plan_html, plan_text

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


def test_a_notebook_shows_a_table_of_a_plan_with_the_cells_of_the_text() -> None:
    bounds = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    query = Query(privacy_unit="who", partition_by="region", metrics={"<n>": Count()}, bounds=bounds)
    plan = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query}, runs=2)
    page = plan._repr_html_()
    assert page == plan_html(plan.to_json())
    assert page.startswith("<table><caption>epsilon 1, delta 1e-06 for all 2 runs together</caption>")
    assert page.count("<tr>") == 2
    assert "<td>&lt;n&gt;</td>" in page
    assert "<n>" not in page
    line = str(plan).splitlines()[-1]
    assert all(
        cell.split("</td>")[0].replace("&lt;", "<").replace("&gt;", ">") in line for cell in page.split("<td>")[1:]
    )
