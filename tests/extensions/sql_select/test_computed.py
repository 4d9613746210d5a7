"""`sum(price) / count(*)` in a statement is the ratio of a job file, and costs nothing beside its parts."""

import json
import pathlib

import numpy as np
import pyarrow.parquet
import pytest

from dp_pipelines.extensions.sql_select.from_statement import read
from dp_pipelines.extensions.sql_select.syntax import StatementError
from tests.extensions.sql_select.test_sql_command import ASKED, here  # noqa: F401 - a fixture
from tests.jobs.session.test_session import BOUNDS, PRODUCTS, session

PARTS = "sum(price) AS revenue, count(*) AS orders"
CLIPS = {"price": [0, 20]}


def computed(item: str) -> dict[str, object]:
    """What a statement's last item becomes."""
    found = read(f"SELECT {PARTS}, {item} AS x FROM t", unit=["customer"], clips=CLIPS).stage["metrics"]
    return dict(found["x"])


@pytest.mark.parametrize(
    ("item", "formula"),
    [
        ("(sum(price) - 2.5) / count(*)", "(revenue - 2.5) / orders"),
        ("100 * sum(price) / count(*)", "(100 * revenue) / orders"),
        ("sum(price) / (count(*) - 1) - 3", "(revenue / (orders - 1)) - 3"),
        ("-sum(price) + 1", "(-revenue) + 1"),
        ("0.1 * count(*)", "0.1 * orders"),
        ("1 - sum(price) / nullif(count(*), 0)", "1 - (revenue / orders)"),
    ],
)
def test_signs_between_selected_aggregates_are_a_formula_over_their_columns(item: str, formula: str) -> None:
    assert computed(item) == {"kind": "expression", "of": formula}


@pytest.mark.parametrize(
    "item", ["sum(price) / count(*)", "(SUM(price)) / COUNT(*)", "sum(price) / nullif(count(*), 0)"]
)
def test_one_aggregate_over_another_is_a_ratio(item: str) -> None:
    assert computed(item) == {"kind": "ratio", "of": "revenue", "to": "orders"}


@pytest.mark.parametrize(
    ("item", "metric"),
    [
        ("count(*) / sum(count(*)) OVER ()", {"kind": "ratio", "of": "orders", "to": {"total": "orders"}}),
        (
            "sum(price) / nullif(SUM(sum(price)) over (), 0)",
            {"kind": "ratio", "of": "revenue", "to": {"total": "revenue"}},
        ),
        ("100.0 * count(*) / sum(count(*)) OVER ()", {"kind": "expression", "of": "(100 * orders) / total(orders)"}),
        ("sum(count(*)) OVER ()", {"kind": "expression", "of": "total(orders)"}),
    ],
)
def test_a_sum_over_all_groups_is_a_total(item: str, metric: dict[str, object]) -> None:
    assert computed(item) == metric


@pytest.mark.parametrize(
    ("item", "rule"),
    [
        ("count(*) / sum(count(*)) OVER (PARTITION BY city)", "adds up some groups, or in an order"),
        ("count(*) / sum(count(*)) OVER (ORDER BY count(*))", "adds up some groups, or in an order"),
        (
            "count(*) / sum(count(*)) OVER (ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
            "adds up some groups, or in an order",
        ),
        ("count(*) / sum(DISTINCT count(*)) OVER ()", "adds up some groups, or in an order"),
        ("count(*) / sum(count(*)) FILTER (count(*) > 3) OVER ()", "adds up some groups, or in an order"),
        ("count(*) / max(count(*)) OVER ()", "is a window function over released numbers: max(count(*)) OVER ()"),
        ("rank() OVER (ORDER BY count(*))", "uses a window function"),
        ("count(*) / sum(price) OVER ()", "adds up something else than a selected aggregate"),
        ("count(*) / sum(sum(cost)) OVER ()", "is not selected by itself: sum(cost)"),
    ],
)
def test_a_window_that_is_no_total_of_a_selected_aggregate_is_refused(item: str, rule: str) -> None:
    with pytest.raises(StatementError) as caught:
        computed(item)
    assert rule in caught.value.message
    assert caught.value.hint
    assert caught.value.offset is not None


def test_a_share_of_the_total_is_published_by_the_command_and_a_session(
    here: pathlib.Path,  # noqa: F811 - the fixture
    call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = f"{PARTS}, count(*) / sum(count(*)) OVER () AS share"
    said = call("sql", f"SELECT product, {items} FROM 'data/*.parquet' GROUP BY ALL", *ASKED, "--output", "out")
    assert said.code == 0, said.err
    (path,) = (here / "out").glob("*.parquet")
    table = pyarrow.parquet.read_table(path)
    orders, shares = (np.asarray(table.column(name)) for name in ("orders", "share"))
    assert shares == pytest.approx(orders / orders.sum())
    assert (np.asarray(table.column("share_noise_low")) < shares).all()
    limited = f"SELECT product, {items} FROM 'data/*.parquet' GROUP BY ALL ORDER BY orders DESC LIMIT 2"
    refused = call("sql", limited, *ASKED, "--plan")
    assert (refused.code, "limit: chooses rows by their numbers" in refused.err) == (2, True)
    (here / "session").mkdir()
    monkeypatch.chdir(here / "session")
    text = f"SELECT product, {items} FROM shop GROUP BY ALL"
    found = session().sql(text, name="shares", epsilon=1, bounds=BOUNDS, partitions=PRODUCTS, clips=CLIPS)
    assert "share_noise_high" in found.to_arrow().column_names


def test_a_column_that_is_no_word_stands_in_quotes() -> None:
    text = 'SELECT count(*) AS "all orders", 2 * count(*) AS twice FROM t'
    assert read(text, unit=["customer"]).stage["metrics"]["twice"]["of"] == '2 * "all orders"'


@pytest.mark.parametrize(
    ("text", "column", "rule", "hint"),
    [
        ("SELECT sum(price) / count(*) AS x FROM t", 8, "is not selected by itself: sum(price)", "add it to SELECT"),
        (f"SELECT {PARTS}, sum(price) / count(*) FROM t", 51, "has no name", "AS basket"),
        (f"SELECT {PARTS}, 1e400 * count(*) AS x FROM t", 51, "is a number that is too large", ""),
        (
            f"SELECT {PARTS}, sqrt(sum(price)) AS x FROM t",
            51,
            "is more than released numbers can be computed with",
            "+",
        ),
        (f"SELECT {PARTS}, sum(price) // count(*) AS x FROM t", 51, "is more than released numbers", "+"),
        (f"SELECT {PARTS}, sum(price) / price AS x FROM t", 64, "is more than released numbers", "numbers"),
        (f"SELECT {PARTS}, sum(price) / nullif(count(*), 1) AS x FROM t", 81, "must be 0 here", "nullif(..., 0)"),
        (
            f"SELECT {PARTS}, sum(price) / count(*) AS x FROM t ORDER BY 3",
            94,
            "is computed from released numbers",
            "order",
        ),
        (
            f"SELECT {PARTS}, sum(price) / count(*) AS x FROM t ORDER BY x",
            94,
            "is computed from released numbers",
            "name",
        ),
        (f"SELECT {PARTS}, sum(price) / count(*) AS orders FROM t", 51, "has the name of another column", "AS"),
    ],
)
def test_what_cannot_be_computed_is_refused_where_it_stands(text: str, column: int, rule: str, hint: str) -> None:
    with pytest.raises(StatementError) as caught:
        read(text, unit=["customer"], clips=CLIPS)
    assert rule in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.field == f"SQL line 1, column {column}"


def test_a_computed_number_costs_nothing_in_the_command(here: pathlib.Path, call) -> None:  # noqa: F811 - the fixture
    text = "SELECT product, {} FROM 'data/*.parquet' GROUP BY ALL"
    plans = [
        json.loads(call("sql", text.format(items), *ASKED, "--plan", "--json").out)
        for items in (PARTS, f"{PARTS}, sum(price) / count(*) AS basket")
    ]
    assert plans[0] == plans[1]
    said = call("sql", text.format(f"{PARTS}, sum(price) / count(*) AS basket"), *ASKED, "--output", "out")
    assert said.code == 0
    assert "basket: revenue / orders, computed from the released numbers" in said.out
    (path,) = (here / "out").glob("*.parquet")
    assert "basket_noise_low" in pyarrow.parquet.read_schema(path).names
    mean = text.format("avg(price) AS mean, count(*) AS orders, avg(price) * count(*) AS x")
    refused = call("sql", mean, *ASKED, "--plan")
    assert (refused.code, "names 'mean', which is no count and no sum" in refused.err) == (2, True)


def test_a_session_shows_what_a_statement_computes(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"SELECT product, {PARTS}, sum(price) / count(*) AS basket FROM shop GROUP BY ALL"
    found = session().sql(text, name="orders", epsilon=1, bounds=BOUNDS, partitions=PRODUCTS, clips=CLIPS)
    assert found.to_arrow().column_names[-3:] == ["basket", "basket_noise_low", "basket_noise_high"]
    assert "basket" in repr(found)
