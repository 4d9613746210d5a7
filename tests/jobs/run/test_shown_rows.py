"""`having`, `order_by` and `limit` in a job: which rows are published, what every page says of it, and what a run id stands for.

In: the shop. Out: published folders, ledgers, messages. Holds: runs are real. Not covered: what is refused
(`tests/jobs/request/test_having.py`), which rows a table keeps (`tests/release/test_shown_rows.py`).
"""

import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

import dp_pipelines as dp
from dp_pipelines.jobs.beam_yaml.transforms import DpAggregate
from dp_pipelines.jobs.session.session import Session
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.release.shown_rows import ShownRows
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, purchases, stage
from tests.jobs.run.test_ledgered_run import files_of, killed
from tests.report.page import Page

Call = Callable[..., Said]

CHOSEN = {"having": "orders > 100 AND revenue / orders > 5", "order_by": ["orders desc", "product"], "limit": 3}
ASKED = "orders > 100 AND revenue / orders > 5 ORDER BY orders DESC NULLS LAST, product NULLS LAST LIMIT 3"


def job(shop: Shop, **changes: Any) -> pathlib.Path:
    """The shop's job, with its stage changed."""
    return shop.write(stages={"weekly": stage(**changes)})


def table_of(folder: pathlib.Path, name: str = "weekly") -> pa.Table:
    return pa.parquet.read_table(folder / f"{name}.parquet")


def manifest_of(folder: pathlib.Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text()))


def words_of(folder: pathlib.Path) -> str:
    return " ".join(Page((folder / "report.html").read_text()).words.split())


def spent(shop: Shop) -> float:
    return float(Ledger.open(str(shop.folder / DEFAULT_NAME)).account("shop").spent[""].epsilon)


@pytest.mark.parametrize("runner", ["direct", pytest.param("portable", marks=pytest.mark.slow)])
def test_the_rows_of_the_query_are_published_by_key_and_printed_in_its_order(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    out, whole = shop.folder / "out", shop.folder / "whole"
    assert call("run", job(shop), "--output", whole, "--ledger", "none").code == 0
    seen, real = list[pa.Table](), ShownRows.of
    monkeypatch.setattr(ShownRows, "of", lambda rows, table, *more: (seen.append(table), real(rows, table, *more))[1])
    said = call("run", job(shop, **CHOSEN), "--output", out, "--ledger", "none", "--runner", runner)
    assert said.code == 0, said.err
    (released,) = seen
    with duckdb.connect() as connection:
        connection.register("released", released)
        wanted = connection.sql(f"SELECT * FROM released WHERE {ASKED}").to_arrow_table().to_pylist()
        connection.unregister("released")
    assert 0 < len(wanted) == table_of(out).num_rows < released.num_rows == 5
    assert table_of(out).to_pylist() == sorted(wanted, key=lambda row: str(row["product"]))
    assert table_of(out).schema == released.schema == table_of(whole).schema
    lines = [line.split()[0] for line in said.out.splitlines() if line.strip().startswith("p") and " ± " in line]
    assert lines == [row["product"] for row in wanted]
    assert "of all 5 groups, 5 differ from zero" in " ".join(said.out.split())
    for text in (" ".join(said.out.split()), words_of(out)):
        assert "5 of 5 groups pass `orders > 100 AND revenue / orders > 5`; numbers just above a threshold" in text
        assert "f these, the 3 largest by orders are shown, which noise makes too high on average" in text
        assert "group that is left out is not zero" in text
    assert "weekly · 3 of 5 partitions" in said.out
    before, now = manifest_of(whole), manifest_of(out)
    assert [now[key] for key in ("plan", "mechanisms", "accounted")] == [
        before[key] for key in ("plan", "mechanisms", "accounted")
    ]
    assert now["job"] != before["job"]
    assert now["run_id"] != before["run_id"], "the id of the one run is made of what its rows are"
    (described,) = now["stages"]
    assert described["shown"] | {"words": []} == {
        "having": CHOSEN["having"], "order_by": CHOSEN["order_by"], "limit": 3, "groups": 5, "passed": 5, "rows": 3,
        "words": [],
    }  # fmt: skip
    assert "shown" not in before["stages"][0]
    assert described["metrics"]["orders"]["verdict"]["numbers"] == 5
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "report.html", "weekly.parquet"]


def test_another_threshold_under_one_run_id_is_an_error_and_under_a_new_one_a_new_charge(
    shop: Shop, call: Call
) -> None:
    budget, out = {"epsilon": 8.0, "delta": 1e-5, "runs": 4}, shop.folder / "out"

    def run(run_id: str, place: str, **changes: Any) -> Said:
        path = shop.write(budget=budget, stages={"weekly": stage(**changes)})
        return call("run", path, "--output", shop.folder / place, "--run-id", run_id)

    assert run("one", "out", having="orders > 100").code == 0
    before, charged = files_of(out), spent(shop)
    for changes in ({"having": "orders > 101"}, {}, {"having": "orders > 100", "order_by": "orders", "limit": 2}):
        said = run("one", "other", **changes)
        assert said.code == 2, said.out
        assert "one" in said.err
        assert not (shop.folder / "other").exists()
        assert spent(shop) == charged
    for place, order in (("again", {}), ("in order", {"order_by": "orders"})):  # an order alone chooses no rows
        assert run("one", place, having="orders > 100", **order).code == 0
        assert files_of(shop.folder / place) == before
    assert spent(shop) == charged
    assert run("two", "two", having="orders > 101").code == 0
    assert table_of(shop.folder / "two") != table_of(out), "a new draw"
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    assert {run.round for run in ledger.state.runs_of("shop")} == {1, 2}, "of the one plan, whose budget both share"
    assert manifest_of(shop.folder / "two")["plan"] == manifest_of(out)["plan"]


def test_keys_that_are_null_change_no_id(shop: Shop, call: Call) -> None:
    nothing = {"having": None, "order_by": None, "limit": None}
    for place, changes in (("out", {}), ("null", nothing)):
        assert call("run", job(shop, **changes), "--output", shop.folder / place, "--ledger", "none").code == 0
    ids = [manifest_of(shop.folder / place) for place in ("out", "null")]
    assert ids[0]["run_id"] == ids[1]["run_id"]


@pytest.mark.slow
@pytest.mark.parametrize(("step", "when"), [("run_staged", "after"), ("describe", "after"), ("run_committed", "after")])
def test_a_crash_between_draw_and_publication_loses_no_row_and_draws_none_again(
    shop: Shop, call: Call, step: str, when: str
) -> None:
    job(shop, **CHOSEN)
    command = killed(shop, step)
    (left,) = shop.folder.glob(".out.staging-*")
    drawn = table_of(left)
    assert drawn.num_rows == 5
    said = call(*command)
    assert said.code == 0, said.err
    first = sorted(drawn.to_pylist(), key=lambda row: -float(row["orders"]))[:3]
    assert table_of(shop.folder / "out").to_pylist() == sorted(first, key=lambda row: str(row["product"]))
    (described,) = manifest_of(shop.folder / "out")["stages"]
    assert (described["shown"]["groups"], described["shown"]["rows"]) == (5, 3)
    before = files_of(shop.folder / "out")
    shutil.rmtree(shop.folder / "out")
    assert call(*command).code == 0
    assert files_of(shop.folder / "out") == before, "the ledger has the rows that were published"
    assert not list(shop.folder.glob(".out*"))


def test_public_lists_totals_the_best_the_top_and_lists_have_their_rows_chosen_too(shop: Shop, call: Call) -> None:
    listed = {"public": [["p0"], ["p1"], ["p2"], ["none"]]}
    spread = {"kind": "quantiles", "column": "price", "quantiles": [0.5], "min_value": 0, "max_value": 20}
    buyers = {"buyers": {"kind": "privacy_id_count"}}
    total = {"partition_by": [], "bounds": {"max_contributions_per_partition": 9}}
    stages = {
        "listed": stage(partitions=listed, having="orders > 400 AND product <> 'p2'"),
        "overall": stage(**total, having="orders > 1e9"),
        "sure": stage(**total, having="orders > 100"),
        "favourites": stage(partitions=listed, metrics=buyers, best={"k": 2, "by": "buyers"}, order_by="rank", limit=1),
        "topmost": stage(top={"k": 3, "by": "orders"}, order_by="revenue", limit=1),
        "spread": stage(metrics={"prices": spread, **buyers}, having="buyers > 0", order_by="buyers desc", limit=2),
        "named": stage(metrics={}, having="product IN ('p0', 'p4')"),
        "means": stage(metrics={"price": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 20,
                                          "shrink": True}}, having="price - price_raw < 100", order_by="price_raw"),
        "plain": stage(),
    }  # fmt: skip
    said = call(
        "run", shop.write(stages=stages, budget={"epsilon": 39.0, "delta": 1e-5}), "--output", shop.folder / "out"
    )
    assert (said.code, said.err) == (0, ""), said.err
    rows = {name: table_of(shop.folder / "out", name) for name in stages}
    assert rows["listed"].column("product").to_pylist() == ["p0", "p1"]
    assert (rows["overall"].num_rows, rows["sure"].num_rows) == (0, 1)
    assert rows["favourites"].column("rank").to_pylist() == [1]
    assert (rows["topmost"].num_rows, rows["spread"].num_rows, rows["means"].num_rows) == (1, 2, 5)
    assert rows["named"].to_pydict() == {"product": ["p0", "p4"]}
    shown = {entry["name"]: entry.get("shown") for entry in manifest_of(shop.folder / "out")["stages"]}
    assert shown["plain"] is None
    assert shown["favourites"]["words"][0] == "of all 2 groups, the first by rank is shown"
    assert shown["topmost"]["words"][0].startswith(
        "of the 3 groups that `top` has chosen, the smallest by revenue is shown"
    )
    assert shown["named"]["words"][0] == "2 of 5 groups pass `product IN ('p0', 'p4')`"
    text = words_of(shop.folder / "out")
    for place in (" ".join(said.out.split()), text):
        assert "he total does not pass `orders > 1e9`; it is not zero" in place
        assert "the total passes `orders > 100`" in place.replace("The total", "the total")
    assert "it is shown if its numbers pass the condition of the job" in text
    assert "those are shown that the job chooses by their released numbers" in text
    assert "o group is shown: none of those that were released passes the condition of the job" in text


@needs("tune")
@pytest.mark.usefixtures("rare_false_alarms")
def test_the_plan_the_audit_and_the_verification_are_those_of_the_job_without_it(shop: Shop, call: Call) -> None:
    plain = call("plan", job(shop), "--json")
    chosen = call("plan", job(shop, **CHOSEN), "--json")
    assert (chosen.code, chosen.out) == (0, plain.out)
    assert call("audit", shop.job, "--replays", "2000").code == 0
    grid = ("--grid", "bounds.max_partitions_contributed=1,2", "--output", shop.folder / "tuning")
    tuned = call("tune", shop.job, "--stage", "weekly", "--synthetic", *grid)
    assert tuned.code == 0, tuned.err
    suggested = [path.read_text() for path in (shop.folder / "tuning").glob("*.yaml")]
    assert all(CHOSEN["having"] in text for text in suggested)
    said = call("run", shop.job, "--output", shop.folder / "out", "--json")
    assert (said.code, json.loads(said.out)["run_id"]) == (0, manifest_of(shop.folder / "out")["run_id"])
    assert call("ledger", "verify", shop.job).code == 0


def test_a_page_of_several_runs_says_that_a_gap_is_not_zero(shop: Shop, call: Call) -> None:
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 2}, stages={"weekly": stage(**CHOSEN)})
    for run_id in ("2026-01-05", "2026-01-12"):
        assert call("run", shop.job, "--output", shop.folder / run_id, "--run-id", run_id).code == 0
    folders = [shop.folder / "2026-01-05", shop.folder / "2026-01-12"]
    said = call("report", *folders, "--output", shop.folder / "trends.html")
    assert said.code == 0, said.err
    text = " ".join(Page((shop.folder / "trends.html").read_text()).words.split())
    assert "a group that is missing in a run is not zero" in text
    assert "chosen for their size are too high or too low on average" in text


def test_a_transform_inside_a_pipeline_leaves_the_choice_to_what_comes_after_it() -> None:
    with pytest.raises(dp.RequestError, match="filter the rows that come out of this transform"):
        DpAggregate(
            epsilon=1.0, delta=1e-6, ledger="none", privacy_unit="customer", partition_by="product",
            bounds={"max_partitions_contributed": 2, "max_contributions_per_partition": 1},
            metrics={"orders": {"kind": "count"}}, having="orders > 50",
        )  # fmt: skip


def test_a_session_shows_the_rows_that_it_was_asked_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session(purchases(0), privacy_unit="customer", dataset="shop", epsilon=3, delta=1e-6)
    asked: dict[str, Any] = {
        "name": "large", "epsilon": 1, "partition_by": "product", "metrics": {"orders": dp.Count()},
        "bounds": dp.ContributionBounds(max_partitions_contributed=5, max_contributions_per_partition=20),
    }  # fmt: skip
    chosen: dict[str, Any] = {"having": "orders > 100", "order_by": "orders desc", "limit": 2}
    release = session.query(**asked, **chosen, show=False)
    assert release.to_arrow().num_rows == 2
    for text in (repr(release), release._repr_html_()):
        assert "2 of 5 partitions" in text
        assert "the 2 largest by orders are shown, which noise makes too high on average" in " ".join(text.split())
    assert session.query(**asked, **chosen, show=False).again
    with pytest.raises(dp.RequestError, match="stands for the release of another query"):
        session.query(**asked, **{**chosen, "having": "orders > 99"}, show=False)
    with pytest.raises(dp.RequestError, match="did you mean 'orders'"):
        session.price(**{**asked, "name": "other"}, having="ordrs > 1")
    with pytest.raises(dp.RequestError, match="limit: needs order_by"):
        session.price(**{**asked, "name": "other"}, limit=3)
