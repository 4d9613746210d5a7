"""A session answers as a job does, from one account, and always says what is left of it."""

import json
import pathlib
import re
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import dp_pipelines as dp
from dp_pipelines.jobs.session import plotting
from dp_pipelines.jobs.session.result import Release
from dp_pipelines.jobs.session.session import Session
from dp_pipelines.ledger import rules
from dp_pipelines.ledger.entries import Account, Window
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.query.query import ReleasedPartitions
from tests.helpers import quiet
from tests.helpers.source import ROOT
from tests.jobs.conftest import purchases, stage

BOUNDS = dp.ContributionBounds(max_partitions_contributed=5, max_contributions_per_partition=20)
PRODUCTS = dp.PublicPartitions(keys=[("p1",), ("p2",)])
ORDERS = {"partition_by": "product", "bounds": BOUNDS, "metrics": {"orders": dp.Count()}}


@pytest.fixture(autouse=True)
def notebook(tmp_path, monkeypatch):
    """Each test works in a folder of its own, as a notebook does."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def session(data=None, **changes):
    """A session over the shop's rows."""
    given = {"privacy_unit": "customer", "dataset": "shop", "epsilon": 3, "delta": 1e-6, **changes}
    return Session(purchases(0) if data is None else data, **given)


def in_a_folder(table):
    """The rows as two Parquet files."""
    folder = pathlib.Path("events")
    folder.mkdir(exist_ok=True)
    pa.parquet.write_table(table[:1000], folder / "a.parquet")
    pa.parquet.write_table(table[1000:], folder / "b.parquet")
    return folder


KINDS = {
    "a folder": in_a_folder,
    "a pattern": lambda table: f"{in_a_folder(table)}/*.parquet",
    "an Arrow table": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "pandas with Arrow's types": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas with categories": lambda table: table.to_pandas().astype({"product": "category"}),
    "Polars": lambda table: pl.DataFrame(table),
    "Polars with categories": lambda table: pl.DataFrame(table).with_columns(pl.col("product").cast(pl.Categorical)),
    "a record batch": lambda table: table.combine_chunks().to_batches()[0],
}


FIRST = ("a folder", "an Arrow table", "pandas", "Polars")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in FIRST else [pytest.mark.slow]) for kind in KINDS]
)
def test_the_same_rows_give_the_same_statistics_whatever_holds_them(kind, monkeypatch):
    quiet.silence(monkeypatch)
    rows = purchases(0)
    metrics = {"orders": dp.Count(), "revenue": dp.Sum("price", min_value=0, max_value=20)}
    asked = {**ORDERS, "metrics": metrics, "columns": {"week": "CAST(date_trunc('week', paid_at) AS DATE)"}}
    asked["partition_by"] = ["product", "week"]
    asked["where"] = "product != 'p0'"
    asked["bounds"] = dp.ContributionBounds(max_partitions_contributed=20, max_contributions_per_partition=5)
    released = session(KINDS[kind](rows), epsilon=39).query(name="weekly", epsilon=39, **asked).to_arrow()
    true = (
        pl.DataFrame(rows)
        .filter(pl.col("product") != "p0")
        .group_by("product", pl.col("paid_at").dt.truncate("1w").cast(pl.Date).alias("week"))
        .agg(pl.len().cast(pl.Float64).alias("orders"), pl.col("price").sum().alias("revenue"))
        .sort("product", "week")
    )
    got = pl.DataFrame(released.select(["product", "week", "orders", "revenue"])).sort("product", "week")
    assert got.select("product", "week").equals(true.select("product", "week"))
    np.testing.assert_allclose(got["orders"], true["orders"], atol=0.5)  # half a step of its lattice
    np.testing.assert_allclose(got["revenue"], true["revenue"], atol=1)


def test_what_is_left_is_what_the_ledger_says_and_stands_in_every_repr(capsys):
    shop = session()
    assert (shop.remaining.epsilon, shop.remaining.delta) == (3.0, 1e-6)
    release = shop.query(name="orders", epsilon=0.5, **ORDERS)
    cost = release.cost
    assert 0.49 < cost.epsilon <= 0.5
    assert shop.remaining.epsilon == pytest.approx(3 - cost.epsilon, abs=1e-9)
    assert shop.spent.epsilon == pytest.approx(cost.epsilon, abs=1e-9)
    assert shop.remaining.delta == pytest.approx(1e-6 - cost.delta, rel=1e-6)
    ledger = Ledger.open(DEFAULT_NAME)
    assert ledger.account("shop").left("").epsilon * 1e-12 == pytest.approx(shop.remaining.epsilon, abs=1e-9)
    ledger.close()
    for shown in (repr(shop), shop._repr_html_(), repr(release), release._repr_html_(), capsys.readouterr().out):
        assert "left: epsilon 2.5 of 3, delta 8.333e-07 of 1e-06" in shown


def test_shares_of_the_cap_add_up_to_it_and_not_one_query_more():
    shop = session(delta=1e-6)
    for number in range(3):
        shop.query(name=f"q{number}", epsilon=1, show=False, **ORDERS)
    assert shop.remaining.epsilon < 0.01
    with pytest.raises(dp.BudgetError, match="this needs epsilon"):
        shop.query(name="q3", epsilon=1, show=False, **ORDERS)


def test_under_the_rule_filter_more_queries_fit():
    shop = session(rule="filter")
    for number in range(4):
        shop.query(name=f"q{number}", epsilon=1, show=False, **ORDERS)
    assert 0 < shop.remaining.epsilon < 3
    assert "rule filter" in repr(shop)


def test_as_many_questions_fit_as_the_page_says():
    page = (ROOT / "docs" / "session.md").read_text()
    listed = re.findall(r"^\| ([0-9.]+) \| (\d+) \| (\d+) \|$", page, flags=re.MULTILINE)
    assert len(listed) == 4
    bounds = dp.ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=2)
    metrics = {"orders": dp.Count(), "revenue": dp.Sum("price", min_value=0, max_value=20)}
    query = dp.Query(privacy_unit="customer", partition_by="product", bounds=bounds, metrics=metrics)
    for epsilon, *said in listed:
        plan = dp.Plan(epsilon=float(epsilon), delta=5e-9, stages={"q": query})
        for rule, fit in zip(("reserved", "filter"), said, strict=True):
            cap, order = rules.cap_of(rule, 3.0, 1e-6)
            account = Account(
                name="a", unit=("c",), words="c", epsilon=3.0, delta=1e-6, cap=cap, rule=rule, order=order
            )
            cost = rules.run_cost(account, plan.mechanisms) + rules.plan_cost(account, **_accounted(plan))
            assert min(cap.epsilon // cost.epsilon, cap.delta // cost.delta) == int(fit), (epsilon, rule)


def _accounted(plan):
    return {f"accounted_{name}": value for name, value in plan.accounted.items()}


def test_a_query_beyond_the_budget_is_refused_and_nothing_is_spent_or_published(notebook):
    shop = session()
    shop.query(name="orders", epsilon=1, **ORDERS)
    left = shop.remaining
    priced = shop.price(name="more", epsilon=2.5, **ORDERS)
    assert not priced.fits
    assert "does not fit" in repr(priced)
    with pytest.raises(dp.BudgetError, match="account 'shop'") as refused:
        shop.query(name="more", epsilon=2.5, **ORDERS)
    assert "what would fit" in refused.value.hint
    assert shop.remaining == left
    assert sorted(p.name for p in (notebook / "dp-releases" / "shop").iterdir()) == ["orders"]


def test_a_price_reads_no_row_and_spends_nothing():
    shop = session(in_a_folder(purchases(0)))
    for file in pathlib.Path("events").iterdir():
        whole = file.read_bytes()
        file.write_bytes(whole[:4] + b"\0" * 2000 + whole[2004:])  # the footer stays
    priced = shop.price(name="orders", epsilon=0.5, **ORDERS)
    assert shop.remaining == shop.cap
    assert priced.fits
    assert priced.epsilon == pytest.approx(0.5, abs=0.01)
    assert priced.after["left"].epsilon == pytest.approx(3 - priced.epsilon)
    assert "standard deviation" in repr(priced)
    assert not pathlib.Path("dp-releases").exists()


def test_a_cell_that_is_run_again_gives_its_stored_release_and_costs_nothing():
    first = session().query(name="orders", epsilon=0.5, **ORDERS)
    again = session(purchases(5)).query(name="orders", epsilon=0.5, **ORDERS)  # a new kernel, and other rows
    assert (first.again, again.again) == (False, True)
    assert again.to_arrow().equals(first.to_arrow())
    assert session().remaining == first.left
    assert "nothing charged now" in repr(again)


def test_a_release_whose_folder_is_gone_comes_back_from_the_ledger():
    shop = session()
    first = shop.query(name="orders", epsilon=0.5, **ORDERS)
    for path in first.folder.iterdir():
        path.unlink()
    first.folder.rmdir()
    assert shop.query(name="orders", epsilon=0.5, **ORDERS).to_arrow().equals(first.to_arrow())


def test_a_name_stands_for_one_release():
    shop = session()
    shop.query(name="orders", epsilon=0.5, **ORDERS)
    left = shop.remaining
    changes = (
        {"epsilon": 0.6},
        {"delta": 1e-8},
        {"metrics": {"orders": dp.Count(), "users": dp.PrivacyIdCount()}},
        {"where": "price > 1"},
        {"columns": {"other": "price + 1"}},
    )
    for change in changes:
        with pytest.raises(dp.RequestError, match="name 'orders': stands for") as refused:
            shop.query(**{"name": "orders", "epsilon": 0.5, **ORDERS, **change})
        assert "a name of its own" in refused.value.hint
    assert shop.remaining == left


def test_other_names_of_metrics_alone_are_refused_and_another_name_of_the_query_is_a_new_draw(capsys):
    shop = session()
    shop.query("one", epsilon=0.5, **ORDERS, show=False)
    spent = shop.spent
    renamed = {**ORDERS, "metrics": {"many": dp.Count()}}
    with pytest.raises(dp.RequestError, match="only other names than that of run 'one'") as caught:
        shop.query("two", epsilon=0.5, **renamed)
    assert "stages.one.metrics.orders -> stages.two.metrics.many" in caught.value.message
    assert "by its own name, which is free" in caught.value.hint
    assert "as_new=True" in caught.value.hint
    assert capsys.readouterr().out == ""
    assert shop.spent == spent
    assert not shop.price("two", epsilon=0.5, **renamed).released
    first = shop.query("two", epsilon=0.5, as_new=True, **renamed)
    assert shop.spent.epsilon == pytest.approx(2 * spent.epsilon)
    assert shop.query("two", epsilon=0.5, **renamed).to_arrow() == first.to_arrow()
    shop.query("three", epsilon=0.5, **renamed)  # a new draw of what was released
    shop.query("four", epsilon=0.5, **ORDERS)
    assert shop.spent.epsilon == pytest.approx(4 * spent.epsilon)


def test_a_question_that_a_job_has_asked_needs_another_name_or_budget(shop, call, monkeypatch):
    """The plan's one round is used: its release is that job's run."""
    monkeypatch.chdir(shop.folder)
    weekly = stage(metrics={"orders": {"kind": "count"}})
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5}, stages={"weekly": weekly})
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    over = Session("data", privacy_unit="customer", dataset="shop")
    bounds = dp.ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=2)
    asked = {"epsilon": 8.0, "delta": 1e-5, "partition_by": "product", "bounds": bounds, "metrics": ORDERS["metrics"]}
    assert not over.price(name="weekly", **asked).fits
    with pytest.raises(dp.BudgetError, match="is one too many"):
        over.query(name="weekly", **asked)
    assert over.price(name="other", **asked).fits


def test_jobs_and_sessions_share_one_account(shop, call, monkeypatch):
    monkeypatch.chdir(shop.folder)
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5})
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    over = Session("data", privacy_unit="customer", dataset="shop")
    assert over.cap.epsilon == 1000
    assert 991.9 < over.remaining.epsilon < 992.1
    release = over.query(name="orders", epsilon=5, **ORDERS)
    assert release.to_arrow().num_rows == 5
    assert 986.9 < over.remaining.epsilon < 987.2
    assert call("runs", shop.job).code == 0


def test_a_library_query_and_its_arguments_are_the_same_question():
    shop = session()
    first = shop.query(name="orders", epsilon=0.5, **ORDERS)
    query = dp.Query(privacy_unit="customer", **ORDERS)
    assert shop.query(query, name="orders", epsilon=0.5).again
    assert first.manifest["plan"] == shop.price(query, name="orders", epsilon=0.5).plan["digest"]


def test_a_session_releases_what_a_job_file_would(shop, call, monkeypatch):
    quiet.silence(monkeypatch)
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5}, stages={"weekly": stage()})
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    bounds = dp.ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=2)
    metrics = {"orders": dp.Count(), "revenue": dp.Sum("price", min_value=0, max_value=20)}
    over = session(dataset="elsewhere", epsilon=8, delta=1e-5)
    released = over.query(
        name="weekly", epsilon=8.0, delta=1e-5, partition_by="product", bounds=bounds, metrics=metrics
    )
    by_job = json.loads((shop.folder / "out" / "manifest.json").read_text())
    assert released.manifest["mechanisms"] == by_job["mechanisms"]
    assert released.manifest["plan"] == by_job["plan"]


def test_what_failed_is_tried_again_for_the_same_charge_and_quotes_no_row():
    folder = in_a_folder(purchases(0))
    whole = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(whole[:4] + b"\0" * 2000 + whole[2004:])
    shop = session(folder)
    with pytest.raises(dp.DamagedInputError, match="it is damaged"):
        shop.query(name="orders", epsilon=0.5, **ORDERS)
    charged = shop.remaining
    assert charged.epsilon < 2.6
    priced = shop.price(name="orders", epsilon=0.5, **ORDERS)
    assert (priced.charged, priced.released) == (True, False)
    assert "trying again costs nothing more; left: epsilon 2.5 of 3" in repr(priced)
    assert priced.after == priced.before
    (folder / "a.parquet").write_bytes(whole)
    assert not shop.query(name="orders", epsilon=0.5, **ORDERS).again
    assert shop.remaining == charged


def test_nothing_but_releases_depends_on_rows(capsys):
    shown = []
    for number, rows in enumerate((purchases(0), purchases(1)[:7], purchases(0)[:0])):
        shop = session(rows, dataset=f"shop{number}")
        price = shop.price(name="orders", epsilon=0.5, **ORDERS)
        shop.query(name="orders", epsilon=0.5, **ORDERS)
        said = capsys.readouterr()
        shown.append([repr(shop), repr(price), price._repr_html_(), said.out, said.err])
        shown[-1] = [text.replace(f"shop{number}", "shop") for text in shown[-1]]
    assert shown[0] == shown[1] == shown[2]


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Release:
    """A release over products and weeks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        return session(epsilon=30).query(
            name="weekly",
            epsilon=30,
            partition_by=["product", "week"],
            columns={"week": "CAST(date_trunc('week', paid_at) AS DATE)"},
            bounds=dp.ContributionBounds(max_partitions_contributed=8, max_contributions_per_partition=3),
            metrics={"orders": dp.Count(), "users": dp.PrivacyIdCount()},
        )


def test_a_release_is_the_published_table_in_every_library(release):
    table = release.to_arrow()
    assert table.column_names == ["product", "week", "orders", "orders_stddev", "users", "users_stddev"]
    assert table.equals(pa.parquet.read_table(release.folder / "weekly.parquet"))
    assert pa.table(release).equals(table)
    assert release.to_polars().to_arrow().to_pylist() == table.to_pylist()
    assert release.to_pandas()["orders"].tolist() == table["orders"].to_pylist()


def test_error_bars_cover_95_of_100_draws_of_the_noise(release):
    row = release.to_arrow(bars=True).to_pylist()[0]
    half = 1.959964 * row["orders_stddev"]
    assert row["orders_to"] - row["orders"] == pytest.approx(half, rel=1e-3)
    assert row["orders"] - row["orders_from"] == pytest.approx(half, rel=1e-3)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named(release, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(dp.RequestError, match=f"{library}: is not installed here; pip install {library}"):
        getattr(release, f"to_{library}")()


def test_a_plot_over_time_has_a_line_with_error_bars_for_each_group(release):
    figure = release.plot("users")
    (axes,) = figure.axes
    assert len(axes.containers) == 5
    drawn = {text.get_text() for text in axes.get_legend().get_texts()}
    assert drawn == {f"p{number}" for number in range(5)}
    table = release.to_pandas()
    for container in axes.containers:
        line, _, (bars,) = container
        half = np.ptp(bars.get_segments()[0][:, 1]) / 2
        assert half == pytest.approx(1.96 * table["users_stddev"][0], rel=1e-3)
        assert set(line.get_ydata()) <= set(table["users"])
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_plot_without_time_has_bars_and_reads_no_mathematics():
    rows = purchases(0).to_pandas()
    rows["product"] = rows["product"].map({f"p{n}": f"_$x_{n}$" for n in range(5)})
    released = session(rows, epsilon=30).query(name="orders", epsilon=30, **ORDERS)
    (axes,) = released.plot().axes
    released.plot()._repr_png_()
    assert {label.get_text() for label in axes.get_yticklabels()} == {f"_$x_{n}$" for n in range(5)}
    with pytest.raises(dp.RequestError, match=r"metric: is no metric of this release; did you mean 'orders'"):
        released.plot("order")


def test_a_plot_without_matplotlib_is_refused_with_the_name_of_the_extra(release, monkeypatch):
    plotting._figure.cache_clear()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(dp.RequestError, match="matplotlib") as refused:
        release.plot("users")
    assert refused.value.hint == "install the extra: pip install 'dp-pipelines[plot]'"


def test_lists_and_totals_are_plotted(tmp_path):
    metrics = {
        "orders": dp.Count(),
        "sizes": dp.Histogram("price", edges=[0, 5, 20]),
        "typical": dp.Quantiles("price", quantiles=[0.25, 0.5, 0.75], min_value=0, max_value=20),
    }
    shop = session(epsilon=30)
    released = shop.query("lists", epsilon=10, **{**ORDERS, "metrics": metrics})
    for metric, labels in (("sizes", ["0 to 5", "5 to 20"]), ("typical", ["25%", "50%", "75%"])):
        (axes,) = released.plot(metric).axes
        assert [label.get_text() for label in axes.get_xticklabels()] == labels
        assert {text.get_text() for text in axes.get_legend().get_texts()} == {f"p{number}" for number in range(5)}
        table = released.to_pandas()
        assert {tuple(container[0].get_ydata()) for container in axes.containers} == {tuple(v) for v in table[metric]}
    everything = {"partition_by": [], "bounds": dp.ContributionBounds(max_contributions_per_partition=9)}
    total = shop.query("total", epsilon=10, metrics=metrics, **everything)
    (axes,) = total.plot().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["all"]
    assert total.plot("sizes")._repr_png_().startswith(b"\x89PNG")


def test_a_name_stands_first_and_a_price_needs_none(capsys):
    shop = session()
    query = dp.Query(privacy_unit="customer", **ORDERS)
    assert shop.price(epsilon=0.5, **ORDERS).fits
    assert shop.price(query, epsilon=0.5).epsilon == shop.price("orders", query, epsilon=0.5).epsilon
    first = shop.query("orders", epsilon=0.5, **ORDERS)
    printed = capsys.readouterr().out
    assert printed.startswith("orders: not charged yet; once it is, left: epsilon 2.5 of 3")
    assert printed.count("\n") == 1  # the release is the one table of a cell; `price` shows that of the plan
    assert shop.query("orders", query, epsilon=0.5).again
    assert shop.query(query, name="orders", epsilon=0.5).to_arrow().equals(first.to_arrow())
    assert capsys.readouterr().out == ""  # a stored release has no price


@pytest.mark.parametrize(
    ("given", "named", "told"),
    [
        ((), {}, "name: is missing"),
        (("a", "b"), {}, "query: has two names"),
        (("a",), {"name": "b"}, "query: has two names"),
        ((3,), {}, "query: must be a name, a Query, or both"),
        (("a b",), {}, "name: must be 1 to 100"),
        ((), {"name": 3}, "name: must be text"),
    ],
)
def test_a_query_without_one_name_is_refused(given, named, told):
    with pytest.raises(dp.RequestError, match=told) as refused:
        session().query(*given, epsilon=0.5, **named, **ORDERS)
    assert refused.value.hint


def test_no_end_of_an_error_bar_lies_outside_of_the_range_of_a_mean():
    metrics = {"orders": dp.Count(), "price": dp.Mean("price", min_value=0, max_value=20)}
    released = session(purchases(0)[:400]).query(
        "means", epsilon=0.2, **{**ORDERS, "metrics": metrics, "partitions": PRODUCTS}
    )
    table = released.to_arrow(bars=True)
    assert min(table["price_from"].to_pylist()) >= 0
    assert max(table["price_to"].to_pylist()) <= 20
    # The bar of a count has no range to be cut to.
    bar = 1.96 * np.array(table["orders_stddev"].to_pylist())
    assert np.array(table["orders"].to_pylist()) - table["orders_from"].to_pylist() == pytest.approx(bar, rel=1e-3)


REFUSED = {
    "no table": ({"data": [1, 2]}, "data: is a list, which is neither a path nor a table"),
    "lazy frame": ({"data": pl.LazyFrame({"customer": [1]})}, r"data: is a LazyFrame"),
    "no file": ({"data": "nothing"}, "source: matches no file"),
    "column twice": ({"data": pa.table([[1], [2]], ["customer", "customer"])}, "data: has column 'customer' twice"),
    "numbers as names": ({"data": pd.DataFrame({0: [1]})}, "data: has a column whose name is not a string"),
    "types of Parquet": ({"data": "events", "types": {"price": pa.int64()}}, "types: is for columns of pandas"),
    "types of typed": ({"types": {"price": pa.int64()}}, r"types\['price'\]: already has a type"),
    "no cap": ({"epsilon": None}, "epsilon: is needed: the account is new"),
    "no delta": ({"delta": None}, "delta: is needed: the account is new"),
    "bad cap": ({"epsilon": float("nan")}, "epsilon: must be"),
    "no ledger": ({"ledger": "none"}, "ledger: cannot be none"),
    "a ledger that is not there": ({"ledger": "team.sqlite"}, "team.sqlite"),
    "no unit": ({"privacy_unit": []}, "privacy_unit: must be a column name"),
    "a unit that is no column": (
        {"privacy_unit": "custommer"},
        "privacy_unit: names column 'custommer', which does not exist",
    ),
    "a unit of lists": ({"data": pa.table({"customer": [[1]]})}, "column 'customer': "),
    "no dataset": ({"dataset": ""}, "dataset: must be a name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_session_that_is_wrong_by_public_facts_is_refused_with_a_hint(case):
    in_a_folder(purchases(0))
    changes, told = REFUSED[case]
    with pytest.raises(dp.RequestError, match=told) as refused:
        session(**changes)
    assert refused.value.hint or "must be" in refused.value.message
    assert not pathlib.Path(DEFAULT_NAME).exists()


def test_a_named_ledger_must_have_the_account():
    session(dataset="shop")
    with pytest.raises(dp.RequestError, match="dataset 'shp': has no account") as refused:
        session(dataset="shp", ledger=DEFAULT_NAME)
    assert "existing accounts: shop" in refused.value.hint
    assert session(ledger=DEFAULT_NAME).cap.epsilon == 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"epsilon": 4}, "epsilon: is 3 for the account 'shop', on the record"),
        ({"delta": 1e-5}, "delta: is 1e-06 for the account"),
        ({"rule": "filter"}, "rule: is reserved for the account"),
        ({"privacy_unit": "store"}, "privacy_unit: is not that of the account 'shop'"),
    ],
)
def test_a_session_that_says_otherwise_than_its_account_is_refused(changes, told):
    session()
    with pytest.raises(dp.RequestError, match=told) as refused:
        session(**changes)
    assert refused.value.hint


def test_an_account_with_windows_is_refused():
    ledger = Ledger.create(DEFAULT_NAME)
    window = Window(column="paid_at", days=7, origin="2025-01-06")
    ledger.open_account("shop", unit=["customer"], words="customer", epsilon=3.0, delta=1e-6, window=window)
    ledger.close()
    with pytest.raises(dp.RequestError, match="dataset: names the account 'shop', which has windows of 7 days"):
        session()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "../x"}, "name: must be 1 to 100 letters"),
        ({"name": ""}, "name: must be 1 to 100 letters"),
        ({"epsilon": -1}, "epsilon: must be"),
        ({"epsilon": float("nan")}, "epsilon: must be"),
        ({"delta": 2}, "delta: must be"),
        (
            {"partition_by": "produkt"},
            "partition_by: names column 'produkt', which does not exist; did you mean 'product'",
        ),
        ({"metrics": {"x": dp.Sum("note", min_value=0, max_value=1)}}, "metrics.x.column: column 'note'"),
        (
            {"metrics": {}, "partitions": PRODUCTS, "best": dp.Best(by=dp.Sum("note", min_value=0, max_value=1))},
            "^best.by.column: column 'note'",
        ),
        ({"where": "price >"}, "where: is not an SQL expression"),
        ({"where": "random() > 0.5"}, "where: uses 'random', but functions must be deterministic"),
        ({"columns": {"customer": "1"}}, "columns.customer"),
        ({"colour": 1}, "colour: is no argument here"),
        ({"bounds": None}, "bounds: must be ContributionBounds"),
        ({"query": dp.Query(privacy_unit="store", **ORDERS)}, "partition_by: stands beside a query"),
        ({"query": "orders"}, "partition_by: stands beside a query"),
        ({"partitions": dp.PublicPartitions(keys=[("p1",), ("p1",)])}, "partitions.public: lists a partition twice"),
    ],
)
def test_a_query_that_is_wrong_by_public_facts_is_refused_and_costs_nothing(changes, told):
    shop = session()
    with pytest.raises(dp.RequestError, match=told) as refused:
        shop.query(**{"name": "orders", "epsilon": 0.5, **ORDERS, **changes})
    assert "query.json" not in str(refused.value)
    assert shop.remaining == shop.cap


def test_a_query_of_another_unit_is_refused():
    query = dp.Query(privacy_unit="store", **ORDERS)
    with pytest.raises(dp.RequestError, match=r"query.privacy_unit: is not that of the session"):
        session().query(query, name="orders", epsilon=0.5)
    with pytest.raises(dp.RequestError, match="query: has two names"):
        session().query("orders", name="orders", epsilon=0.5)


def test_a_session_over_two_datasets_keeps_them_apart():
    one, other = session(dataset="a/b"), session(dataset="..")
    one.query(name="orders", epsilon=0.5, **ORDERS)
    released = other.query(name="orders", epsilon=0.5, **ORDERS)
    assert not released.again
    assert released.folder.parent.parent == pathlib.Path("dp-releases").absolute()


def test_an_account_that_another_ledger_has_had_is_told(capsys, monkeypatch, tmp_path):
    session(dataset="twice")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    session(dataset="twice")
    assert "were charged before, in the ledger" in capsys.readouterr().err


def test_the_library_names_the_session_without_loading_it():
    assert dp.Session is Session
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        _ = dp.Sesion


def test_the_account_stays_the_same_when_the_notebook_moves_to_another_folder(notebook, monkeypatch):
    for folder in ("here", "there"):
        (notebook / folder).mkdir()
        ledger = Ledger.create(f"{folder}/team.sqlite")
        ledger.open_account("shop", unit=["customer"], words="customer", epsilon=3.0, delta=1e-6)
        ledger.close()
    monkeypatch.chdir(notebook / "here")
    shop = session(ledger="team.sqlite")
    shop.query(name="orders", epsilon=2, show=False, **ORDERS)
    monkeypatch.chdir(notebook / "there")
    assert shop.remaining.epsilon < 1.1
    with pytest.raises(dp.BudgetError, match="this needs epsilon"):
        shop.query(name="more", epsilon=2, show=False, **ORDERS)


def test_a_notebook_can_be_run_again_after_its_cap_was_raised():
    first = session().query(name="orders", epsilon=0.5, show=False, **ORDERS)
    ledger = Ledger.open(DEFAULT_NAME)
    ledger.raise_cap("shop", epsilon=6.0, delta=1e-6)
    ledger.close()
    shop = session(epsilon=6)
    assert shop.price(name="orders", epsilon=0.5, **ORDERS).released
    assert shop.query(name="orders", epsilon=0.5, show=False, **ORDERS).to_arrow().equals(first.to_arrow())
    with pytest.raises(dp.RequestError, match="name 'orders': stands for"):
        shop.query(name="orders", epsilon=0.6, show=False, **ORDERS)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"group": "training"}, "group: reads some"),
        ({"partitions": ReleasedPartitions(stages=("x",))}, "partitions: are"),
    ],
)
def test_a_query_that_is_a_part_of_a_plan_is_not_answered_as_another_one(part, told):
    query = dp.Query(privacy_unit="customer", **{**ORDERS, **part})
    with pytest.raises(dp.RequestError, match=told):
        session().price(query, name="orders", epsilon=0.5)


def test_a_frame_that_the_notebook_changes_later_keeps_its_columns_here():
    frame = purchases(0).to_pandas()
    shop = session(frame)
    frame.rename(columns={"product": "other"}, inplace=True)
    frame["customer"] = "one and the same"
    released = shop.query(name="orders", epsilon=2.5, show=False, **ORDERS).to_arrow()
    assert released.num_rows == 5
