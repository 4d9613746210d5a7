"""Statements with BigQuery's clause for differential privacy run where they mean the same, and are refused in words where not.

The statements are those forms that BigQuery's pages on the clause and its aggregates show, over the shop's own rows.
"""

import pathlib

import pytest
import yaml

from dp_pipelines.extensions.sql_select.bigquery import said_in, without_clause
from dp_pipelines.extensions.sql_select.from_statement import StatementParts, read
from dp_pipelines.extensions.sql_select.syntax import StatementError
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.spec.from_query import Arguments
from tests.jobs.conftest import Shop

CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=10, delta=.01, max_groups_contributed=2, privacy_unit_column=customer)"
UNIT_COUNT = "COUNT(DISTINCT customer)"


def parts(text: str) -> StatementParts:
    """What a statement says that names its own unit."""
    return read(text, unit=[])


RUN = {
    "a sum with bounds": (
        "product, SUM(price, contribution_bounds_per_group => (0, 100)) AS total FROM shop GROUP BY product",
        {"total": {"kind": "sum", "column": "price", "min_sum_per_partition": 0, "max_sum_per_partition": 100}},
    ),
    "a sum below zero": (
        "product, SUM(price, contribution_bounds_per_group => (-10, 10)) AS total FROM shop GROUP BY product",
        {"total": {"kind": "sum", "column": "price", "min_sum_per_partition": -10, "max_sum_per_partition": 10}},
    ),
    "a count of rows with bounds": (
        "product, COUNT(*, contribution_bounds_per_group => (0, 5)) AS times FROM shop GROUP BY product",
        {"times": {"kind": "count"}},
    ),
    "a count of values with bounds": (
        "product, COUNT(note, contribution_bounds_per_group => (0, 5)) AS notes FROM shop GROUP BY product",
        {"notes": {"kind": "sum", "column": "notes", "min_sum_per_partition": 0, "max_sum_per_partition": 5}},
    ),
    "people": (f"product, {UNIT_COUNT} AS buyers FROM shop GROUP BY product", {"buyers": {"kind": "privacy_id_count"}}),
    "everybody": (f"{UNIT_COUNT} AS buyers FROM `my-project.shop.orders`", {"buyers": {"kind": "privacy_id_count"}}),
    "the groups alone": ("product FROM shop GROUP BY product", {}),
    "a percentile": (
        "product, PERCENTILE_CONT(price, 0.5, contribution_bounds_per_row => (0, 100)) AS middle, "
        "COUNT(*, contribution_bounds_per_group => (0, 2)) AS n FROM shop GROUP BY product",
        {"middle": {"kind": "median", "column": "price", "min_value": 0, "max_value": 100}, "n": {"kind": "count"}},
    ),
    "an order of released numbers": (
        f"product, {UNIT_COUNT} AS buyers FROM shop WHERE price > 1 GROUP BY product HAVING buyers > 20 ORDER BY buyers DESC",
        {"buyers": {"kind": "privacy_id_count"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RUN)
def test_a_statement_that_means_the_same_is_a_job(case, shop: Shop, monkeypatch: pytest.MonkeyPatch):
    text, metrics = RUN[case]
    assert parts(f"{CLAUSE} {text}").stage["metrics"] == metrics
    monkeypatch.chdir(shop.folder)
    content = {
        "dataset": "shop",
        "source": {"parquet": "data/*.parquet"},
        "stages": {"result": {"kind": "aggregate", "select": f"{CLAUSE} {text}", "bounds": {}}},
    }
    tables = ("shop", "my-project.shop.orders")
    file = job_file.checked(Arguments(data=content, names={}, tables=tables), pathlib.Path("sql"))
    request = check(file, ())
    assert (file.job.budget.epsilon, file.job.budget.delta, file.job.privacy_unit) == (10, 0.01, ["customer"])
    stage = file.job.stages["result"]
    assert stage.bounds.max_partitions_contributed == 2 or not stage.partition_by
    assert list(request.queries) == ["result"]


def test_options_say_what_the_job_says():
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(EPSILON = 1, group_selection_strategy = LAPLACE_THRESHOLD, "
    text += "min_privacy_units_per_group = 50) product, COUNT(DISTINCT id) AS n FROM shop GROUP BY product"
    assert said_in(text) == {
        ("budget", "epsilon"): 1,
        ("stage", "partitions", "private", "strategy"): "laplace",
        ("stage", "partitions", "private", "min_users"): 50,
    }


def test_counts_with_one_range_bound_the_rows_of_a_unit_in_a_group():
    said = parts(f"{CLAUSE} COUNT(*, contribution_bounds_per_group => (0, 5)) AS n FROM shop").said
    assert said["stage", "bounds", "max_contributions_per_partition"] == 5


def test_without_the_clause_every_letter_keeps_its_place():
    text = "-- people\nSELECT WITH differential_privacy\n OPTIONS(epsilon=1, -- (\n delta=2e-3) a,\n b FROM t"
    plain, clause = without_clause(text)
    assert clause is not None
    assert (len(plain), plain.index("a,"), plain.index("b FROM")) == (len(text), text.index("a,"), text.index("b FROM"))
    assert plain.count("\n") == text.count("\n")
    assert without_clause("SELECT a FROM t") == ("SELECT a FROM t", None)


REFUSED = {
    "an average of averages": (
        f"{CLAUSE} product, AVG(price, contribution_bounds_per_group => (0, 100)) AS p FROM shop GROUP BY product",
        "BigQuery's average of per-person averages",
        ("write AVG without the clause", "SUM and COUNT(DISTINCT ...)"),
    ),
    "a sum without bounds": (f"{CLAUSE} SUM(price) AS p FROM shop", "needs bounds of the values of 'price'", ("auto",)),
    "a percentile without bounds": (
        f"{CLAUSE} PERCENTILE_CONT(price, 0.5) AS p FROM shop", "needs bounds of the values of 'price'", ("--clip",),
    ),
    "a count that starts above one": (
        f"{CLAUSE} COUNT(*, contribution_bounds_per_group => (3, 5)) AS n FROM shop", "must start at 0", ("lower end",),
    ),
    "two counts of rows": (
        f"{CLAUSE} COUNT(*, contribution_bounds_per_group => (0, 5)) AS n, "
        "COUNT(*, contribution_bounds_per_group => (0, 6)) AS m FROM shop",
        "counts with another range", ("write the same range",),
    ),
    "no limit of groups": (
        CLAUSE.replace("contributed=2", "contributed=NULL") + " COUNT(*) AS n FROM shop",
        "must be a whole number: max_groups_contributed", ("without a limit",),
    ),
    "another option": (
        CLAUSE.replace("delta", "k_threshold") + " COUNT(*) AS n FROM shop", "is an option that is not known here: k_threshold",
        ("known: epsilon",),
    ),
    "an option twice": (CLAUSE.replace("delta", "epsilon") + " COUNT(*) AS n FROM shop", "is said twice: epsilon", ()),
    "another strategy": (
        CLAUSE.replace("delta=.01", "group_selection_strategy=ALL_GROUPS") + " COUNT(*) AS n FROM shop",
        "is no strategy that is known here", ("LAPLACE_THRESHOLD",),
    ),
    "an older clause": (
        "SELECT WITH ANONYMIZATION OPTIONS(epsilon=1) COUNT(*) AS n FROM shop", "has a clause that is not known here",
        ("DIFFERENTIAL_PRIVACY",),
    ),
    "a clause without brackets": (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS COUNT(*) AS n FROM shop", "needs its options in brackets", ("OPTIONS(",),
    ),
    "levels": (
        f"{CLAUSE} product, COUNT(*) AS n FROM shop GROUP BY ROLLUP (product)", "groups by several sets beside WITH",
        ("write budget and bounds beside",),
    ),
    "a subquery": (f"{CLAUSE} COUNT(*) AS n FROM (SELECT * FROM shop)", "reads from a subquery", ("one SELECT",)),
    "a public table that is joined": (
        f"{CLAUSE} COUNT(*) AS n FROM shop RIGHT OUTER JOIN products USING (product)", "joins tables", ("lookup",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_statement_that_means_something_else_is_refused_in_words(case):
    text, message, hints = REFUSED[case]
    with pytest.raises(StatementError) as caught:
        parts(text)
    assert message in caught.value.message
    assert all(hint in caught.value.hint for hint in hints)
    assert caught.value.offset is not None


def test_public_groups_need_their_list(shop: Shop):
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=PUBLIC_GROUPS, max_groups_contributed=1) "
    text += "product, COUNT(DISTINCT customer) AS n FROM source GROUP BY product"
    job = {
        "dataset": "shop",
        "privacy_unit": "customer",
        "budget": {"epsilon": 1, "delta": 0},
        "source": {"parquet": "x"},
    }
    stage = {"kind": "aggregate", "select": text, "bounds": {}}

    def load(**more: object) -> job_file.JobFile:
        return job_file.read(yaml.safe_dump({**job, "stages": {"a": {**stage, **more}}}), shop.job, "job.yaml")

    assert load(partitions={"public": [["p1"]]}).job.stages["a"].partitions.public == [["p1"]]
    with pytest.raises(Exception, match="needs the list of public groups; list them under partitions"):
        load()
