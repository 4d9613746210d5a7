"""`rollup` in job files and sessions: what is published, and what plan, summary, manifest, report and audit say of it.

In: the shop's rows. Out: failures. Holds: each way publishes the same columns, whose numbers add up to the last bit. Not covered:
the arithmetic (tests/release/test_consistent.py) and the table (tests/release/test_rolled_up.py).
"""

import json
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import dp_pipelines as dp
from dp_pipelines.jobs.session.session import Session
from dp_pipelines.release.staging import sorted_by_key
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, purchases, stage
from tests.report.page import Page

Call = Callable[..., Said]

CHAIN = [[], ["product"], ["product", "store"]]
LISTED = {"public": [[product, number] for product in ("p0", "p1", "nobody's") for number in (1, 2, 3)]}
METRICS = {
    "orders": {"kind": "count"},
    "buyers": {"kind": "privacy_id_count"},
    "revenue": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
    "price": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 20},
}


def rolled(**changes: Any) -> dict[str, object]:
    """The shop's stage by product and store, with levels."""
    base = {"partition_by": ["product", "store"], "rollup": CHAIN, "metrics": METRICS, "partitions": LISTED}
    return stage(**{**base, **changes})


def wrong_sums(table: pa.Table) -> list[str]:
    """The levels whose numbers are not those of the level below, added up."""
    frame = table.to_pylist()
    found = []
    for name in ("orders", "revenue"):
        for product in {row["product"] for row in frame if row["level"] == 1 and not row.get("rest")}:
            whole = [r[name] for r in frame if r["level"] == 1 and r["product"] == product and not r.get("rest")]
            parts = [r[name] for r in frame if r["level"] == 2 and r["product"] == product]
            found += [f"{name} of {product}"] if math.fsum(parts) != whole[0] else []
        total = [row[name] for row in frame if row["level"] == 0]
        found += [name] if math.fsum(row[name] for row in frame if row["level"] == 1) != total[0] else []
    return found


def published(shop: Shop, call: Call, **changes: Any) -> pa.Table:
    said = call("run", shop.write(stages={"weekly": rolled(**changes)}), "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, ""), said.err
    return pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"partitions": {"private": {}}},
        {"partitions": {"private": {"strategy": "truncated_geometric", "min_users": 5}}},
        {
            "rollup": {"levels": [["store"], ["product", "store"]], "shares": [1, 1]},
            "metrics": {"orders": {"kind": "count"}},
        },
        {"kept": {"share": 0.02}},
        {"bounds": {"max_contributions": 4}},
        {"where": "price > 1000", "unit_columns": {"n": "count(*) OVER ()"}, "partitions": {"private": {}}},
    ],
    ids=["public", "private", "coins", "two levels", "kept", "rows in all", "nothing"],
)
def test_a_job_publishes_numbers_that_add_up(shop: Shop, call: Call, changes: dict[str, Any]) -> None:
    table = published(shop, call, **changes)
    assert table.column_names[:3] == ["level", "product", "store"]
    assert ("rest" in table.column_names) == ("private" in changes.get("partitions", {}))
    if "rollup" not in changes:
        assert wrong_sums(table) == []
    # Again, with the same run: the same release.
    first = (shop.folder / "out" / "weekly.parquet").read_bytes()
    assert call("run", shop.job, "--output", shop.folder / "again").code == 0
    assert (shop.folder / "again" / "weekly.parquet").read_bytes() == first


@pytest.mark.parametrize("partitions", [LISTED, {"private": {}}], ids=["public", "private"])
def test_rows_are_published_by_level_whatever_the_order_in_which_they_are_printed(
    shop: Shop, call: Call, partitions: dict[str, Any]
) -> None:
    table = published(shop, call, partitions=partitions, order_by="orders desc")
    assert table.column("level").to_pylist() == sorted(table.column("level").to_pylist())
    assert table.equals(sorted_by_key(table, [name for name in table.column_names[:4] if name != "orders"]))


@pytest.mark.usefixtures("rare_false_alarms")
def test_plan_summary_manifest_and_report_say_what_it_is(shop: Shop, call: Call) -> None:
    job = shop.write(stages={"weekly": rolled()})
    plan = call("plan", job)
    assert all(f"{name} · share {part}%" in plan.out for name, part in
               [("weekly.level0", 5), ("weekly.level1", 19), ("weekly", 76)])  # fmt: skip
    stages = {said["name"]: said for said in json.loads(call("plan", job, "--json").out)["stages"]}
    assert stages["weekly"]["rollup"] == {"levels": CHAIN, "shares": pytest.approx([1 / 21, 4 / 21, 16 / 21])}
    assert [stages[name]["level"] for name in ("weekly.level0", "weekly.level1", "weekly")] == [0, 1, 2]
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    words = " ".join(said.out.split())
    assert "orders and revenue: a group is exactly the sum of its parts" in words
    assert "error bars are those before that, and orders_raw and revenue_raw the numbers as noise left them" in words
    assert "counted are the finest groups" in words
    (described,) = json.loads((shop.folder / "out" / "manifest.json").read_text())["stages"]
    assert described["partition_by"] == ["level", "product", "store"]
    entry, raw = described["metrics"]["orders"], described["metrics"]["orders_raw"]
    assert (entry["rolled_up"], raw["raw_of"], raw["kind"]) == ("sum", "orders", "count")
    assert entry["verdict"]["numbers"] == 9
    records = json.loads((shop.folder / "out" / "manifest.json").read_text())["mechanisms"]
    assert {record["stage"] for record in records} == {"weekly.level0", "weekly.level1", "weekly"}
    page = Page((shop.folder / "out" / "report.html").read_text())
    told = " ".join(page.words.split())
    assert "orders : the number of rows, made to add up: each group is the sum of its parts" in told
    assert "Columns that end in _raw , in the file alone, hold the numbers before they were made to add up" in told
    assert {"all", "rest"} >= set(page.inside("td", "i")) >= {"all"}  # what a level does not have
    plots = [str(attributes.get("aria-label")) for tag, attributes in page.elements if tag == "svg"]
    assert plots
    assert not any("level" in title or "_raw" in title for title in plots)
    assert call("audit", job, "--replays", "2000").code == 0


@pytest.mark.usefixtures("rare_false_alarms")
@pytest.mark.parametrize("partitions", [LISTED, {"private": {}}], ids=["public", "private"])
def test_having_decides_which_of_the_finest_groups_are_shown(
    shop: Shop, call: Call, partitions: dict[str, Any]
) -> None:
    """With both the summary and the page; the plan is that of the job without it."""
    job = shop.write(stages={"weekly": rolled(partitions=partitions)})
    plain = call("plan", job, "--json").out
    chosen = {"having": "orders > {least} AND store < 3", "order_by": "orders desc", "limit": 3}
    job = shop.write(stages={"weekly": rolled(partitions=partitions, **chosen)}, params={"least": {"type": "int"}})
    param = ("--param", "least=40")
    assert call("plan", job, *param, "--json").out == plain
    said = call("run", job, *param, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    table = pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet")
    assert wrong_sums(table) == []
    finest = [row for row in table.to_pylist() if row["level"] == 2 and not row["rest"]]
    assert len(finest) == 3
    assert all(row["orders"] > 40 and row["store"] < 3 for row in finest)
    products = {row["product"] for row in table.to_pylist() if row["level"] == 1 and not row["rest"]}
    assert products >= ({"p0", "p1", "nobody's"} if partitions is LISTED else {"p0", "p1"}), "groups above stay"
    (described,) = json.loads((shop.folder / "out" / "manifest.json").read_text())["stages"]
    assert described["partition_by"] == ["level", "product", "store", "rest"]
    page = " ".join(Page((shop.folder / "out" / "report.html").read_text()).words.split())
    for words in (" ".join(said.out.split()), page):
        assert "finest groups pass `orders > 40 AND store < 3`; numbers just above a threshold are too high" in words
        assert "group that is left out is not zero: it is in the `rest` of the group above it" in words
    assert described["shown"]["rows"] == 3
    again = call("run", job, *param, "--output", shop.folder / "again")
    assert again.code == 0
    first = (shop.folder / "out" / "weekly.parquet").read_bytes()
    assert (shop.folder / "again" / "weekly.parquet").read_bytes() == first


SELECTED = {
    "kind": "aggregate", "bounds": stage()["bounds"], "clips": {"price": [0, 20]},
    "select": "SELECT product, store, count(*) AS orders, sum(price) AS revenue FROM source GROUP BY {}",
}  # fmt: skip


def selected(groups: str, **changes: Any) -> dict[str, Any]:
    """The shop's stage, said as a statement."""
    return {**SELECTED, "select": str(SELECTED["select"]).format(groups), **changes}


@needs("sql_select")
def test_levels_of_a_statement_have_the_plan_of_the_stage(shop: Shop, call: Call) -> None:
    said = {name: METRICS[name] for name in ("orders", "revenue")}
    wanted = call("plan", shop.write(stages={"weekly": rolled(metrics=said, partitions={"private": {}})}), "--json")
    assert wanted.code == 0, wanted.err
    for groups, beside in (
        ("ROLLUP (product, store)", {}),
        ("GROUPING SETS ((store, product), (product), ())", {}),
        ("ALL", {"rollup": CHAIN}),
    ):
        found = call("plan", shop.write(stages={"weekly": selected(groups, **beside)}), "--json")
        assert (found.code, found.out) == (0, wanted.out), found.err


WRONG_STATEMENTS = [
    ("ROLLUP (product, store)", {"rollup": CHAIN}, "says levels, which stand in rollup beside the statement too"),
    ("ROLLUP (product, store) HAVING orders > 3", {}, "levels, of which SQL would choose rows too: HAVING"),
    ("CUBE (product, store)", {}, "is no chain of groups"),
    ("ROLLUP (product, store)", {"partitions": {"private": {"strategy": "sips"}}}, "must be one of auto"),
    ("ROLLUP (product, store)", {"top": {"k": 3, "by": "orders"}}, "cannot stand beside rollup"),
]


@needs("sql_select")
@pytest.mark.parametrize(("groups", "beside", "said"), WRONG_STATEMENTS)
def test_what_is_wrong_with_levels_of_a_statement_is_told_where_it_stands(
    shop: Shop, call: Call, groups: str, beside: dict[str, Any], said: str
) -> None:
    told = call("plan", shop.write(stages={"weekly": selected(groups, **beside)}))
    assert told.code == 2
    assert said in told.err
    assert "job.yaml:" in told.err


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rollup": [["store"], ["product"], ["product", "store"]]}, "rollup.0: is no chain: [store] is not a part"),
    ({"rollup": [[], ["product"]]}, "rollup.1: must end with the finest level, which is partition_by: [product, store]"),
    ({"rollup": {"levels": CHAIN, "share": [1, 2, 3]}}, "rollup.share: unknown key; did you mean 'shares'?"),
    ({"rollup": {"levels": CHAIN, "shares": [1, 2]}}, "rollup.shares: must list one number for each of the 3 levels"),
    ({"rollup": "product"}, "rollup: must be a list"),
    ({"having": "level = 1"}, "having: names column 'level': is the same in all rows that are chosen"),
    ({"having": "NOT rest"}, "having: names column 'rest': is the same in all rows that are chosen"),
    ({"having": "ordrs > 3"}, "did you mean 'orders'?"),
    ({"limit": 3}, "limit: needs order_by"),
    ({"top": {"k": 3, "by": "orders"}}, "top: cannot stand beside rollup"),
    ({"metrics": {"typical": {"kind": "median", "column": "price", "min_value": 0, "max_value": 9}}},
     "metrics.typical: takes no part in a rollup"),
    ({"partitions": {"private": {"strategy": "sips"}}}, "partitions.private.strategy: must be one of auto"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), WRONG, ids=lambda given: given if isinstance(given, str) else "")
def test_what_is_wrong_is_told_with_line_and_hint(shop: Shop, call: Call, changes: dict[str, Any], said: str) -> None:
    told = call("run", shop.write(stages={"weekly": rolled(**changes)}), "--output", shop.folder / "out")
    assert told.code == 2
    assert said in told.err
    assert "job.yaml:" in told.err
    assert not (shop.folder / "out").exists()


def test_a_clamp_by_partition_is_refused(shop: Shop, call: Call) -> None:
    pa.parquet.write_table(pa.table({"product": ["p0"], "most": [5.0]}), shop.folder / "most.parquet")
    paid = {"kind": "sum", "column": "price", "min_value": 0, "max_value": {"lookup": "most", "default": 9}}
    job = shop.write(
        lookup={"parquet": "most.parquet", "on": "product"}, stages={"weekly": rolled(metrics={"paid": paid})}
    )
    told = call("plan", job)
    assert told.code == 2
    assert "each finest partition has a scale of its own, so sums do not add up" in told.err


@needs("tune")
def test_tune_predicts_no_levels(shop: Shop, call: Call) -> None:
    grid = ["--grid", "bounds.max_partitions_contributed=1,2"]
    told = call("tune", shop.write(stages={"weekly": rolled()}), *grid, "--output", shop.folder / "tuned")
    assert told.code == 2
    assert "stages.weekly.rollup: has levels, and errors are predicted for one level alone" in told.err


def test_a_session_shows_levels(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    over = Session(purchases(0), privacy_unit="customer", dataset="shop", epsilon=8, delta=1e-5)
    asked: dict[str, Any] = {
        "partition_by": ["product", "store"], "rollup": CHAIN, "delta": 1e-6,
        "bounds": dp.ContributionBounds(max_partitions_contributed=5, max_contributions_per_partition=2),
        "metrics": {"orders": dp.Count(), "revenue": dp.Sum("price", min_value=0, max_value=20)},
    }  # fmt: skip
    release = over.query(name="weekly", epsilon=4.0, **asked)
    assert wrong_sums(release.to_arrow()) == []
    assert "a group is exactly the sum of its parts" in repr(release)
    shown = over.query(name="large", epsilon=3.0, **asked, having="orders > 1e6").to_arrow()
    assert wrong_sums(shown) == []
    assert set(shown.filter(pa.compute.equal(shown.column("level"), 2)).column("rest").to_pylist()) == {True}
