"""`Session.sql` answers a statement as the query that it stands for."""

import pytest

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from tests.jobs.session.test_session import BOUNDS, PRODUCTS, notebook, session  # noqa: F401 - a fixture

TEXT = "SELECT product, count(*) AS orders FROM shop WHERE price > 1 GROUP BY ALL ORDER BY orders DESC LIMIT 2"


def test_a_statement_is_the_query_that_it_stands_for_under_one_name(capsys):
    here = session()
    first = here.sql(TEXT, name="orders", epsilon=1, bounds=BOUNDS, partitions=PRODUCTS)
    assert "orders: not charged yet" in capsys.readouterr().out
    assert sorted(first.to_arrow().column("product").to_pylist()) == ["p1", "p2"]
    again = here.query(
        name="orders", epsilon=1, partition_by="product", bounds=BOUNDS, partitions=PRODUCTS, where="price > 1",
        metrics={"orders": dp.Count()}, order_by="orders desc", limit=2, show=False,
    )  # fmt: skip
    assert again.again
    assert again.to_arrow() == first.to_arrow()
    assert again.left == first.left


def test_a_statement_with_another_alias_alone_is_refused():
    here = session()
    here.sql("SELECT product, count(*) AS n1 FROM shop GROUP BY ALL", name="one", epsilon=1, bounds=BOUNDS)
    spent, other = here.spent, "SELECT product, count(*) AS n2 FROM shop GROUP BY ALL"
    with pytest.raises(RequestError, match=r"metrics.n1 -> stages.two.metrics.n2"):
        here.sql(other, name="two", epsilon=1, bounds=BOUNDS)
    assert here.spent == spent
    here.sql(other, name="two", epsilon=1, bounds=BOUNDS, as_new=True)
    assert here.spent.epsilon > spent.epsilon


WRONG = {
    "another table": ({"statement": TEXT.replace("shop", "orders")}, "SQL line 1, column 41: names no table", "FROM shop"),
    "a column": ({"statement": TEXT.replace("product", "prodcut")}, "SQL line 1, column 8: partition_by: names", "product"),
    "no range": ({"statement": "SELECT sum(price) FROM source"}, "SQL line 1, column 8: needs bounds", "price: [0, 1000]"),
    "no text": ({"statement": 3}, "statement: must be text", "SELECT"),
    "no groups": ({"bounds": dp.ContributionBounds(max_contributions_per_partition=2)}, "bounds: must say how much", "leave"),
    "no epsilon": ({"epsilon": None}, "epsilon: is missing", "epsilon=0.5"),
    "a range of nothing": ({"clips": {"store": [0, 1]}}, "clips.store: is the range", "drop it"),
    "another epsilon": (
        {"statement": TEXT.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=2)")},
        "SQL line 1, column 50: is another value", "budget epsilon",
    ),
}  # fmt: skip


@pytest.fixture
def asked():
    """A session, and the arguments of a statement that is right."""
    return session(), {"statement": TEXT, "name": "orders", "epsilon": 1, "bounds": BOUNDS}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_statement_is_told_by_argument_or_place(case, asked):
    changes, said, hint = WRONG[case]
    here, given = asked
    with pytest.raises(RequestError) as caught:
        here.sql(**{**given, **changes})
    assert str(caught.value).startswith(said)
    assert hint in str(caught.value)
    assert here.remaining == here.cap
