"""`having`, `order_by` and `limit`, checked when a job is read: what is refused, and the columns that there are.

In: job files. Out: errors, all before anything is read or spent. Holds: each error names line, key and rule, and has a hint.
"""

from collections.abc import Callable

import pytest

from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

METRICS = {
    "orders": {"kind": "count"},
    "price": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 20},
    "prices": {"kind": "quantiles", "column": "price", "quantiles": [0.25, 0.75], "min_value": 0, "max_value": 20},
}


def weekly(**changes: object) -> dict[str, object]:
    return stage(metrics=METRICS, partition_by=["product", "store"], **changes)


WRONG: dict[str, tuple[dict[str, object], list[str]]] = {
    "a column with a slip": (
        {"having": "ordrs > 50"},
        ["having", "'ordrs'", "does not release", "did you mean 'orders'?"],
    ),
    "a column of the source": (
        {"having": "paid_at IS NULL"},
        ["having", "'paid_at'", "does not release", "released columns: product, store, orders, orders_stddev"],
    ),
    "no condition": ({"having": "orders + 1"}, ["having", "must be true or false, not double", "write a comparison"]),
    "a list": ({"having": "prices IS NOT NULL"}, ["having", "'prices'", "holds a list", "leave it out"]),
    "an aggregate": ({"having": "count(*) > 50"}, ["having", "count_star", "did you mean the metric?"]),
    "a window": ({"having": "rank() OVER (ORDER BY orders) < 5"}, ["having", "a window function"]),
    "a query": ({"having": "orders > (SELECT 1)"}, ["having", "a subquery"]),
    "a parameter that is not declared": ({"having": "orders > {least}"}, ["having", "declare {least} in params:"]),
    "no SQL": ({"having": "orders >"}, ["having", "is not an SQL expression"]),
    "a text beside a number": ({"having": "orders > 'many'"}, ["having", "is invalid"]),
    "no text": ({"having": 50}, ["having", "must be text"]),
    "an order by no column": (
        {"order_by": "revenue desc"},
        ["order_by", "'revenue'", "does not release", "columns: product"],
    ),
    "an order by a list": ({"order_by": ["prices"]}, ["order_by", "'prices'", "holds a list in each row"]),
    "an order by a column twice": ({"order_by": ["orders", "orders desc"]}, ["order_by", "'orders' twice"]),
    "an empty order": ({"order_by": []}, ["order_by", "must not be empty"]),
    "an order by nothing": ({"order_by": " "}, ["order_by", "must name released columns", "order_by: orders desc"]),
    "a limit without an order": ({"limit": 5}, ["limit", "needs order_by", "add e.g. order_by: orders desc"]),
    "a limit of none": ({"limit": 0, "order_by": "orders"}, ["limit", "must be at least 1"]),
    "a limit of a part": ({"limit": 1.5, "order_by": "orders"}, ["limit", "must be a whole number"]),
    "a limit that is a truth": ({"limit": True, "order_by": "orders"}, ["limit", "must be a whole number"]),
}


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_with_its_line_its_key_and_a_hint(
    shop: Shop, call: Call, changes: dict[str, object], words: list[str]
) -> None:
    job = shop.write(stages={"weekly": weekly(**changes)})
    said = call("plan", job)
    assert said.code == 2, said.out
    assert "job.yaml:" in said.err
    assert "stages.weekly." in said.err
    for word in words:
        assert word in said.err, said.err
    before = shop.left()
    assert call("run", job, "--output", shop.folder / "out").code == 2
    assert shop.left() == before


def test_a_model_has_no_rows_to_choose(shop: Shop, call: Call) -> None:
    said = call("plan", shop.write(stages={"model": {"kind": "train", "having": "orders > 50"}}))
    assert said.code == 2
    assert "having is for aggregate" in said.err, said.err


def test_all_that_is_wrong_in_several_stages_is_told_at_once(shop: Shop, call: Call) -> None:
    stages = {"one": weekly(having="ordrs > 1", order_by=["pric"]), "two": weekly(order_by="stor desc")}
    said = call("plan", shop.write(stages=stages))
    assert said.code == 2
    for word in ("stages.one.having", "stages.one.order_by", "stages.two.order_by", "did you mean 'store'?"):
        assert word in said.err, said.err


def test_a_condition_may_name_every_released_column_and_parameters(shop: Shop) -> None:
    condition = "orders > {least} AND price / orders > 0 AND orders_stddev < 100 AND product <> 'x' AND store IN (1, 2)"
    path = shop.write(
        stages={"weekly": weekly(having=condition, order_by=["orders DESC", "product asc"], limit=5)},
        params={"least": {"type": "float"}},
    )
    file = job_file.load(str(path))
    shown = check(file, ["least=50"]).shown["weekly"]
    assert shown.reads == ("orders", "price", "orders_stddev", "product", "store")
    assert [one.text for one in shown.order_by] == ["orders desc", "product"]
    assert shown.limit == 5


def test_one_order_has_one_spelling(shop: Shop) -> None:
    spelled = []
    for order_by in ("orders", ["orders"], ["orders ASC"], " orders  asc "):
        path = shop.write(stages={"weekly": weekly(order_by=order_by)})
        spelled.append(check(job_file.load(str(path)), ()).content)
    assert len(set(spelled)) == 1
