"""A stage that is said as a statement is the stage written by hand, and its errors name the place in the file."""

import json
import pathlib
import re

import jsonschema
import pytest
import yaml

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.sql_select.select_stages import expanded
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.run.run import plan_of
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.jobs.spec.job_file import Job, JobFile
from tests.helpers.source import ROOT

DEMO = ROOT / "examples" / "ta_feng" / "customers.yaml"

HEAD = """dataset: shop
privacy_unit: customer
budget: {epsilon: 8, delta: 1.0e-5}
source: {parquet: "data/*.parquet"}
stages:
  weekly:
    kind: aggregate
    bounds: {max_partitions_contributed: 3, max_contributions_per_partition: 2}
    clips: {price: [0, 20]}
"""

SELECTED = {
    "weekly": {
        "kind": "aggregate",
        "share": 2,
        "select": "SELECT PRODUCT_SUBCLASS, week, count(*) AS orders, count(DISTINCT CUSTOMER_ID) AS customers, "
        "sum(SALES_PRICE) AS revenue, avg(SALES_PRICE) AS mean_price FROM source GROUP BY ALL",
        "bounds": {"max_partitions_contributed": 32, "max_contributions_per_partition": 2},
        "clips": {"SALES_PRICE": [0, 200]},
        "settings": {
            "orders": {"weight": 0.5},
            "customers": {"weight": 1},
            "revenue": {"weight": 2},
            "mean_price": {"nullable": False, "weight": 0.5},
        },
    },
    "subclasses": {
        "kind": "aggregate",
        "share": 0.4,
        "select": "SELECT PRODUCT_SUBCLASS, count(DISTINCT CUSTOMER_ID) AS customers, count(*) AS orders FROM source GROUP BY 1",
        "bounds": {"max_partitions_contributed": 32, "max_contributions_per_partition": 2},
        "top": {"k": 20, "by": "customers"},
    },
    "baskets": {
        "kind": "aggregate",
        "share": 1,
        "select": "SELECT month, count(*) AS baskets, count(DISTINCT CUSTOMER_ID) AS buyers, "
        "quantile_cont(basket, [0.1, 0.25, 0.5, 0.75, 0.9]) AS basket_value, avg(basket) AS mean_value, sum(items) AS items, "
        "histogram(items, [1, 2, 3, 5, 10, 20, 50]) AS sizes FROM source WHERE line = 1 GROUP BY month",
        "partitions": {"public": [["2000-11"], ["2000-12"], ["2001-01"], ["2001-02"]]},
        "bounds": {"max_partitions_contributed": 4, "max_contributions_per_partition": 4},
        "clips": {"basket_value": [0, 5000], "mean_value": [0, 2000], "items": [0, 40]},
        "settings": {"mean_value": {"nullable": False}},
    },
}


def demo() -> tuple[JobFile, JobFile]:
    """The demo's job as it stands, and with its reports as three statements."""
    by_hand = job_file.load(str(DEMO))
    data = json.loads(json.dumps(by_hand.document.data))
    for name, stage in SELECTED.items():
        windows = {key: data["stages"][name][key] for key in ("unit_columns",) if key in data["stages"][name]}
        data["stages"][name] = {**stage, **windows}
    return by_hand, job_file.read(yaml.safe_dump(data, sort_keys=False), DEMO, "customers.yaml")


def test_the_reports_of_the_demo_as_statements_are_the_same_job():
    by_hand, selected = demo()
    assert selected.job == by_hand.job
    assert list(selected.job.stages["baskets"].metrics) == list(by_hand.job.stages["baskets"].metrics)


@pytest.mark.slow
def test_the_reports_of_the_demo_as_statements_have_the_same_plan(tmp_path):
    from dp_pipelines.jobs.request.preview import preview

    plans = [plan_of(file, preview(file, [])[0]).digest for file in demo()]
    assert plans[0] == plans[1]


def read(stage: str, head: str = HEAD) -> JobFile:
    """The shop's job with these lines in its stage."""
    return job_file.read(head + stage, pathlib.Path("job.yaml"), "job.yaml")


def test_a_condition_is_that_of_the_job_where_the_statement_is_its_only_stage():
    head = HEAD.replace("    clips: {price: [0, 20]}\n", "")
    text = "    select: SELECT product, count(*) AS orders FROM source WHERE price > 1 GROUP BY ALL\n"
    assert read(text, head).job.where == "price > 1"
    second = "  all:\n    kind: aggregate\n    bounds: {max_contributions: 1}\n    select: SELECT count(*) AS n FROM source\n"
    both = read(text + second, head)
    assert both.job.where is None
    assert both.job.stages["weekly"].where == "price > 1"


def test_a_run_of_a_statement_means_what_the_run_of_the_stage_means(shop):
    by_hand = {"partition_by": ["day"], "metrics": {"n": {"kind": "count"}}, "kind": "aggregate"}
    bounds = {"max_partitions_contributed": 3, "max_contributions_per_partition": 2}
    shop.write(
        columns={"day": "CAST(paid_at AS DATE)"}, where="price > 1", stages={"weekly": {**by_hand, "bounds": bounds}}
    )
    one = check(job_file.load(str(shop.job)), [])
    text = "SELECT CAST(paid_at AS DATE) AS day, count(*) AS n FROM source WHERE price > 1 GROUP BY day"
    shop.write(stages={"weekly": {"kind": "aggregate", "select": text, "bounds": bounds}})
    other = check(job_file.load(str(shop.job)), [])
    assert (one.asked, one.content) == (other.asked, other.content)


def test_a_job_without_statements_is_left_alone():
    content = Content(data={"stages": {"a": {"kind": "aggregate"}, "b": {"kind": "train", "select": 3}}})
    assert expanded(content) is content


WRONG = {
    "in quotes": (
        '    select: "SELECT product, stddev_pop(price) AS p FROM source GROUP BY ALL"\n',
        "job.yaml:10:30: stages.weekly.select: has no differentially private form: stddev_pop; select var_pop, and take its root",
    ),
    "in a block": (
        "    select: |\n      SELECT product,\n        mode(price) AS p\n      FROM source\n",
        "job.yaml:12:9: stages.weekly.select: has no differentially private form: mode; ",
    ),
    "in a folded block": (
        "    select: >-\n      SELECT product,\n      mode(price) AS p\n      FROM source\n",
        "job.yaml:12:7: stages.weekly.select: has no differentially private form: mode; ",
    ),
    "over two lines": (
        "    select: 'SELECT ''x'' || product AS p,\n      mode(price) AS m FROM source'\n",
        "job.yaml:11:7: stages.weekly.select: has no differentially private form: mode; ",
    ),
    "another table": (
        "    select: SELECT avg(price) AS p FROM orders\n",
        "job.yaml:10:41: stages.weekly.select: names no table that is known here: 'orders'; write FROM source: ",
    ),
    "what the statement says": (
        "    select: SELECT avg(price) AS p FROM source\n    where: price > 1\n",
        "job.yaml:11: stages.weekly.where: stands beside a statement, which says it; write it in the statement, or drop select",
    ),
    "a key that is not known": (
        "    select: SELECT avg(price) AS p FROM source\n    bonds: 3\n",
        "job.yaml:11: stages.weekly.bonds: unknown key; did you mean 'bounds'?",
    ),
    "a setting that is not known": (
        "    select: SELECT avg(price) AS p FROM source\n    settings: {p: {weigt: 2}}\n",
        "job.yaml:11: stages.weekly.settings.p.weigt: unknown key; did you mean 'weight'?",
    ),
    "a range without a use": (
        "    select: SELECT count(*) AS n FROM source\n",
        "job.yaml:9: stages.weekly.clips.price: is the range of a column or metric that has no use for one here; drop it",
    ),
    "no text": ("    select: 3\n", "job.yaml:10: stages.weekly.select: must be text; put it in quotes"),
    "no mapping": (
        "    select: SELECT avg(price) AS p FROM source\n    settings: 3\n",
        "job.yaml:11: stages.weekly.settings: must be a mapping of names",
    ),
    "a budget that is another": (
        "    select: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=2) sum(price) AS p FROM source\n",
        "job.yaml:10:62: stages.weekly.select: is another value than what is said beside the statement: budget epsilon; say it",
    ),
    "a range upside down": (
        "    select: SELECT sum(price, contribution_bounds_per_group => (5, 1)) AS p FROM source\n",
        "job.yaml:9: stages.weekly.clips.price: is the range of",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_statement_is_told_by_its_place_in_the_file(case):
    text, said = WRONG[case]
    with pytest.raises(RequestError) as caught:
        read(text)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "SELECT prodcut, count(*) AS n FROM source GROUP BY ALL",
            "stages.weekly.select: partition_by: names column 'prodcut'",
        ),
        ("SELECT sum(prise) AS p FROM source", "stages.weekly.select: metrics.p.column: names column 'prise'"),
        (
            "SELECT upper(prodcut) AS p FROM source GROUP BY ALL",
            "stages.weekly.select: columns.p: names column 'prodcut'",
        ),
        (
            "SELECT random() AS p FROM source GROUP BY ALL",
            "stages.weekly.select: columns.p: uses 'random', but functions must be deterministic",
        ),
        (
            "SELECT count(*) AS n FROM source WHERE price > now()",
            "stages.weekly.select: where: uses now: the day of a run must not choose rows",
        ),
    ],
)
def test_what_the_rows_do_not_have_is_told_by_the_place_in_the_statement(text, said, shop):
    clips = {"clips": {"prise": [0, 1]}} if "prise" in text else {}
    bounds = {"max_partitions_contributed": 3, "max_contributions_per_partition": 2}
    shop.write(stages={"weekly": {"kind": "aggregate", "select": text, "bounds": bounds, **clips}})
    with pytest.raises(RequestError, match=re.escape(said)) as caught:
        check(job_file.load(str(shop.job)), [])
    assert re.match(rf"{re.escape(str(shop.job))}:[0-9]+:[0-9]+: ", caught.value.field)


def test_two_statements_may_not_define_one_column_in_two_ways():
    bounds = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
    texts = {"a": "upper(product) AS p", "b": "lower(product) AS p"}
    stages = {
        name: {
            "kind": "aggregate",
            "select": f"SELECT {text}, count(*) AS n FROM source GROUP BY ALL",
            "bounds": bounds,
        }
        for name, text in texts.items()
    }
    with pytest.raises(
        RequestError, match="SQL line 1, column 8: defines column 'p', which the job defines in another way"
    ):
        expanded(_Sql(data={"privacy_unit": "customer", "stages": stages}))


class _Sql(Content):
    def inside(self, path, field, offset, words):
        return f"SQL{words}"


def test_the_schema_knows_stages_that_are_statements():
    schema = job_file.schema()
    data = yaml.safe_load(HEAD + '    select: "SELECT avg(price) AS p FROM source"\n')
    jsonschema.validate(data, schema)
    jsonschema.validate(yaml.safe_load(DEMO.read_text()), schema)
    data["stages"]["weekly"]["metrics"] = {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema)
    assert set(schema["$defs"]["Stage"]["properties"]) == set(job_file.Stage.model_fields)
    assert isinstance(Job.model_json_schema(), dict)


def test_a_job_takes_the_example_of_the_schema() -> None:
    (stage,) = job_file.schema()["$defs"]["SelectStage"]["examples"]
    head = {"dataset": "shop", "privacy_unit": "CUSTOMER_ID", "budget": {"epsilon": 1.0, "delta": 1e-6}}
    job = {**head, "source": {"parquet": "data/*.parquet"}, "stages": {"weekly": stage}}
    made = job_file.checked(Content(data=job), pathlib.Path("job.yaml")).job.stages["weekly"]
    assert list(made.metrics) == ["orders", "price"]
