"""`dp-pipelines check`: what it writes is private and says so, what it prints tells nothing of rows, the look is noted first."""

import json
import pathlib
import stat
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.extensions.check import check
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers import warm_process
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, purchases, stage

Call = Callable[..., Said]

WORDS = (
    "raw rows were looked at with `check` on {}{}: what was chosen by that look, such as {}a filter of rows, is not covered by "
    "epsilon"
)


def checked(call: Call, shop: Shop, *more: object, output: str = "checked") -> Said:
    return call("check", shop.job, "--output", shop.folder / output, *more)


def profile(folder: pathlib.Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "PRIVATE-check.json").read_text())
    return found


def looks(shop: Shop) -> list[Any]:
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    try:
        return list(ledger.state.tunings)
    finally:
        ledger.close()


def test_a_private_folder_is_written_and_says_so_everywhere(shop: Shop, call: Call) -> None:
    said = checked(call, shop)
    assert said.code == 0, said.err
    folder = shop.folder / "checked"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["PRIVATE-check.json", "PRIVATE-report.html"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    page = (folder / "PRIVATE-report.html").read_text()
    assert page.count("PRIVATE. Do not publish.") == 2
    assert "<title>PRIVATE" in page
    assert profile(folder)["private"] is True
    assert "PRIVATE" in said.out
    assert shop.left() == ["checked", *(f"checked/{name}" for name in names)]
    assert json.loads(checked(call, shop, "--json", output="json").out) == {
        "folder": str(shop.folder / "json"), "private": True, "noted": True,
    }  # fmt: skip


def test_nothing_that_is_printed_depends_on_a_row(shop: Shop, call: Call) -> None:
    """The same command over other rows, many more of them, and over none at all: byte for byte the same words."""
    paid = {"orders": {"kind": "count"}, "paid": {"kind": "sum", "column": "price", "min_value": 5, "max_value": 20}}
    shop.write(
        stages={"weekly": stage(metrics=paid)}, where="price > 1 OR price < 1e-300",
        columns={"week": "date_trunc('week', paid_at)", "number": "CAST(note AS INTEGER)"},
    )  # fmt: skip
    few = purchases(9).slice(0, 40)
    others = {
        "others": [purchases(5, 12_000), few],
        "one heavy customer": [pa.concat_tables([few.take([3] * 5000), few]), few],
        "nobody": [t.set_column(0, "customer", pa.nulls(len(t), pa.int64())) for t in (purchases(5), few)],
        "no price": [t.set_column(4, "price", pa.array(np.full(len(t), np.nan))) for t in (purchases(5), few)],
        "infinite prices": [t.set_column(4, "price", pa.array(np.full(len(t), np.inf))) for t in (purchases(5), few)],
        "huge prices": [t.set_column(4, "price", pa.array(np.full(len(t), 1.7e308))) for t in (purchases(5), few)],
        "prices next to none": [
            t.set_column(4, "price", pa.array(np.full(len(t), 5e-324))) for t in (purchases(5), few)
        ],
        "none": [purchases(5).slice(0, 0)] * 2,
    }
    first = checked(call, shop)
    assert first.code == 0, first.err
    found = [(shop.folder / "checked" / "PRIVATE-check.json").read_text()]
    for name, tables in others.items():
        for number, table in enumerate(tables):
            pa.parquet.write_table(table, shop.folder / "data" / f"part-{number}.parquet")
        said = checked(call, shop, output=name)
        assert said == Said(first.code, first.out.replace("/checked\n", f"/{name}\n"), first.err)
        found.append((shop.folder / name / "PRIVATE-check.json").read_text())
        assert "<html" in (shop.folder / name / "PRIVATE-report.html").read_text()
    assert len(set(found)) == 9, "the rows of this test ought to make a difference"
    assert any("There are no rows." in text for text in found)
    assert any("have no privacy unit" in text for text in found)


def test_the_look_is_noted_and_nothing_charged(shop: Shop, call: Call) -> None:
    before = json.loads(call("ledger", "show", shop.job, "--json").out)["accounts"][0]["budgets"]
    assert checked(call, shop).code == 0
    account = json.loads(call("ledger", "show", shop.job, "--json").out)["accounts"][0]
    assert account["budgets"] == before
    (noted,) = account["tunings"]
    assert (noted["command"], noted["stage"]) == ("check", "weekly")
    shown = call("ledger", "show", shop.job).out
    assert "checked the raw rows at" in shown
    assert "configurations" not in shown
    assert "looked at the raw rows" in call("ledger", "export", shop.job, "--format", "html").out
    assert call("ledger", "verify", shop.job).code == 0


def test_the_look_is_noted_before_anything_is_read(shop: Shop, call: Call) -> None:
    broken = bytearray((shop.folder / "data" / "part-1.parquet").read_bytes())
    broken[100:2000] = bytes(1900)
    (shop.folder / "data" / "part-1.parquet").write_bytes(bytes(broken))
    said = checked(call, shop)
    assert said.code == 1
    assert "a row group cannot be read" in said.err
    assert shop.left() == []
    assert len(looks(shop)) == 1


@pytest.mark.parametrize("frozen", [False, True], ids=["new", "frozen"])
def test_each_release_after_a_check_says_so_everywhere(shop: Shop, call: Call, frozen: bool) -> None:
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 3})
    if frozen:
        assert call("run", shop.job, "--output", shop.folder / "before", "--run-id", "before").code == 0
        assert "tuned" not in json.loads((shop.folder / "before" / "manifest.json").read_text())
    assert checked(call, shop).code == 0
    said = call("run", shop.job, "--output", shop.folder / "out", "--run-id", "after")
    assert said.code == 0, said.err
    day = looks(shop)[0].time[:10]
    words = WORDS.format(day, ", after the plan was frozen" if frozen else "", "" if frozen else "a bound or ")
    manifest = json.loads((shop.folder / "out" / "manifest.json").read_text())
    assert manifest["tuned"] == [{"date": day, "stage": "weekly", "words": words}]
    assert manifest["not_covered"][-1] == words
    assert words in said.out
    page = (shop.folder / "out" / "report.html").read_text()
    assert f"<strong>The raw rows were looked at.</strong> About this release: {words}." in page


def test_without_a_ledger_one_is_made_but_no_account_and_none_means_none(shop: Shop, call: Call) -> None:
    shop.without_ledger()
    for beside in shop.folder.glob(f"{DEFAULT_NAME}-*"):
        beside.unlink()
    said = checked(call, shop, "--ledger", "none", output="unnoted")
    assert "No ledger records the look" in said.out
    assert not (shop.folder / DEFAULT_NAME).exists()
    assert checked(call, shop).code == 0
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    assert not ledger.state.accounts
    assert [tuning.account for tuning in ledger.state.tunings] == ["shop"]
    ledger.close()


def test_rows_of_another_account_are_not_looked_at_under_a_new_name(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    shop.write(dataset="another")
    said = checked(call, shop)
    assert said.code == 2
    assert "belongs to the account 'shop'" in said.err
    assert not (shop.folder / "checked").exists()


@pytest.mark.parametrize(
    ("changes", "more", "code", "words"),
    [
        ({"source": {"parquet": "nowhere/*.parquet"}}, [], 2, "matches no file"),
        ({"columns": {"week": "date_trunc('week', paid)"}}, [], 2, "paid"),
        ({"stages": {"weekly": stage(partition_by=["city"])}}, [], 2, "names column 'city', which does not exist"),
        ({"lookup": {"parquet": "none.parquet", "on": "product"}}, [], 2, "matches no file"),
        ({}, ["--param", "week=1"], 2, "week"),
        ({}, ["--runner", "dataflow"], 2, "cannot keep private output"),
        ({}, ["--unknown=1"], 2, ""),
        ({"stages": {"weekly": stage(metrics={"n": {"kind": "count", "stddev": 1e-3}})}}, [], 3, ""),
        pytest.param(
            {"stages": {"answers": {"kind": "collected"}}}, [], 2, "only dp-pipelines plan, run, runs and ledger know such jobs",
            marks=needs("local_dp"),
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_by_public_facts_is_refused_before_anything_is_noted(
    shop: Shop, call: Call, changes: dict[str, Any], more: list[str], code: int, words: str
) -> None:
    shop.write(**changes)
    said = checked(call, shop, *more)
    assert said.code == code, said
    assert words in said.err
    assert shop.left() == []
    assert not looks(shop)


def test_a_release_holds_no_folder_of_a_check(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    said = checked(call, shop, output="out/checked")
    assert said.code == 2
    assert "is inside a release" in said.err
    assert checked(call, shop, output="out").code == 2


def test_no_text_of_a_failure_quotes_a_row(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> None:
        raise ValueError("customer 17 paid 30")

    monkeypatch.setattr(check, "advice", fails)
    said = checked(call, shop)
    assert said.code == 1
    assert "17" not in said.err + said.out
    assert "the results could not be written" in said.err
    assert shop.left() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "when"), [("stage a file", "before"), ("stage a file", "after"), ("rename", "before")]
)
def test_a_check_that_is_killed_leaves_no_page_and_the_same_command_makes_one(
    shop: Shop, call: Call, step: str, when: str
) -> None:
    arguments = ["check", str(shop.job), "--output", str(shop.folder / "checked")]
    warm_process.kill(arguments, folder=shop.folder, point=step, when=when)
    assert not (shop.folder / "checked").exists()
    assert len(looks(shop)) == 1
    (left,) = shop.folder.glob(".checked.staging-*")
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    assert checked(call, shop).code == 0
    assert len(looks(shop)) == 2
    assert profile(shop.folder / "checked")["stages"][0]["units"] > 0
