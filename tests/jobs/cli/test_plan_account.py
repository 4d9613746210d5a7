"""What `plan` says of the account: what is left, and whether a run would be refused, without writing anything."""

import contextlib
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.ledger.patience import A_MOMENT
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]


def line(said: Said) -> str:
    """The line about the account."""
    assert said.code == 0
    (found,) = [text for text in said.out.splitlines() if text.startswith("account    ")] or [""]
    return found.removeprefix("account    ")


def digest(shop: Shop) -> str:
    return hashlib.sha256((shop.folder / DEFAULT_NAME).read_bytes()).hexdigest()


def other_plan(shop: Shop) -> None:
    made: Any = stage()
    made["metrics"]["revenue"]["max_value"] = 40
    shop.write(stages={"weekly": made})


def test_a_plan_says_what_is_left_and_with_which_command_a_refused_run_fits(shop: Shop, call: Call) -> None:
    shop.without_ledger()
    assert line(call("plan", shop.job)) == "", "there is no ledger"
    assert call("run", shop.job, "--output", shop.folder / "first").code == 0
    assert "this job has its release" in line(call("plan", shop.job))
    other_plan(shop)
    before = digest(shop)
    said = line(call("plan", shop.job))
    assert digest(shop) == before, "nothing is written"
    assert said.startswith("'shop': epsilon 0")
    assert " of 8 and delta 0 of 1e-05 left; a run would be refused: dp-pipelines ledger raise " in said
    assert call("run", shop.job, "--output", shop.folder / "second").code == 3
    command = said.partition(": dp-pipelines ")[2].split()
    assert call(*command).code == 0
    assert line(call("plan", shop.job)).endswith("left; a run fits")
    assert call("run", shop.job, "--output", shop.folder / "second").code == 0


def test_a_plan_of_several_runs_says_how_many_are_left(shop: Shop, call: Call) -> None:
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 2})
    assert line(call("plan", shop.job)) == "'shop': epsilon 1000 of 1000 and delta 0.5 of 0.5 left; a run fits"
    for name, words in (
        ("one", "this plan is paid for, and 1 run is left"),
        ("two", "a run would be refused: the plan's budget covers"),
    ):
        assert call("run", shop.job, "--output", shop.folder / name, "--run-id", name).code == 0
        assert words in line(call("plan", shop.job))


def test_json_and_what_needs_values_say_no_more_than_they_know(shop: Shop, call: Call) -> None:
    assert "account" not in json.loads(call("plan", shop.job, "--json").out)
    shop.write(where="store = {store}", params={"store": {"type": "int"}})
    assert line(call("plan", shop.job)) == "'shop': epsilon 1000 of 1000 and delta 0.5 of 0.5 left"
    shop.write(dataset="other", source={"parquet": "later/*.parquet"})
    assert "no account 'other' yet" in line(call("plan", shop.job))


def test_rows_of_another_account_are_said_to_be_refused(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "first").code == 0
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    ledger.open_account("other", unit=["customer"], words="one customer", epsilon=9.0, delta=1e-5)
    ledger.close()
    shop.write(dataset="other")
    assert "a run would be refused: source" in line(call("plan", shop.job))
    shop.write(dataset="third")
    said = line(call("plan", shop.job))
    assert said.startswith("the ledger has no account 'third' yet; a run would be refused: source")
    assert "belongs to the account 'shop'" in said
    assert "opens it" not in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_ledger_that_this_user_may_not_read_fails_no_plan(shop: Shop, call: Call) -> None:
    (shop.folder / DEFAULT_NAME).chmod(0)
    assert "what 'shop' has left is not known" in line(call("plan", shop.job))


def test_a_damaged_ledger_fails_no_plan(shop: Shop, call: Call) -> None:
    (shop.folder / DEFAULT_NAME).write_bytes(b"no ledger" * 1000)
    assert "what 'shop' has left is not known" in line(call("plan", shop.job))


@pytest.mark.parametrize("command", ["plan", "init"])
def test_a_ledger_that_is_locked_is_waited_for_a_moment_only(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    call("ledger", "init", shop.job)
    waits: list[float] = []
    connect = sqlite3.connect

    def noted(place: Any, **options: Any) -> sqlite3.Connection:
        waits.append(options.get("timeout", 5.0))
        return connect(place, **{**options, "timeout": 0.01})

    with contextlib.closing(connect(shop.folder / DEFAULT_NAME, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", noted)
        if command == "plan":
            assert "is not known" in line(call("plan", shop.job))
        else:
            arguments = ("--unit", "customer", "--output", shop.folder / "new.yaml")
            assert call("init", shop.folder / "data", *arguments).code == 0
    assert waits
    assert set(waits) == {A_MOMENT}


def test_a_plan_opens_the_ledger_once(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call("ledger", "init", shop.job)
    opened: list[str] = []
    real = Ledger.open.__func__  # type: ignore[attr-defined]

    def noted(cls: type[Ledger], url: str, **options: Any) -> Ledger:
        opened.append(url)
        book: Ledger = real(cls, url, **options)
        return book

    monkeypatch.setattr(Ledger, "open", classmethod(noted))
    assert line(call("plan", shop.job)).endswith("a run fits")
    assert opened == [str(shop.folder / DEFAULT_NAME)]


def test_a_first_job_says_that_its_run_will_be_refused_by_the_account_of_its_files(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "first").code == 0
    makes = ("init", shop.folder / "data", "--output")
    rows = call(*makes, shop.folder / "rows.yaml", "--one-row-per-person")
    assert rows.code == 0
    assert "a run of it will be refused: the account protects each customer; remove the file" in rows.out
    assert "call init with --unit customer" in rows.out
    assert call("run", shop.folder / "rows.yaml", "--output", shop.folder / "rows").code == 2
    other = call(*makes, shop.folder / "other.yaml", "--unit", "customer", "--dataset", "other")
    assert "a run of it will be refused: these files belong to the account 'shop'" in other.out
    assert "write dataset: shop" in other.out
    fitting = call(*makes, shop.folder / "fitting.yaml", "--unit", "customer")
    assert "it charges the account 'shop'" in fitting.out
    assert "refused" not in fitting.out


def test_groups_are_of_the_unit_that_the_account_names(shop: Shop, call: Call) -> None:
    assert re.search(
        r"half of the groups of \d+ customers appear, one in a thousand of \d+\n", call("plan", shop.job).out
    )
    shop.without_ledger()
    options = ("--epsilon", 9, "--delta", 1e-5, "--unit", "customer", "--unit-words", "patient")
    assert call("ledger", "init", "--ledger", shop.folder / DEFAULT_NAME, "--dataset", "shop", *options).code == 0
    assert re.search(
        r"half of the groups of \d+ patients appear, one in a thousand of \d+\n", call("plan", shop.job).out
    )
    chosen: Any = stage(metrics={"visits": {"kind": "count"}})
    del chosen["bounds"]
    listed = stage(metrics={"buyers": {"kind": "privacy_id_count"}})
    shop.write(stages={"chosen": chosen, "listed": listed})
    text = call("plan", shop.job, "--group", 4).out
    for words in (
        "4 patients together",
        "within 10% from",
        "rows per patient and partition",
        "numbers of patients by what",
    ):
        assert words in text
    assert re.search(r"shares of patients, within 5 percentage points from [\d,]+ patients on", text)
    named = re.sub(r"^ (units|rows) .*", "", text, flags=re.MULTILINE)  # metrics of histograms
    assert not re.search(r"\b(users?|units?)\b", named), named


def test_where_the_run_chooses_the_bound_both_ends_of_its_range_are_said(shop: Shop, call: Call) -> None:
    made: Any = stage()
    del made["bounds"]
    shop.write(stages={"weekly": made})
    text = call("plan", shop.job).out
    stages = json.loads(call("plan", shop.job, "--json").out)["stages"]
    (candidates,) = [one["partition_candidates"] for one in stages if one["name"] == "weekly"]
    sizes = r"half of the groups of [\d,]+ customers appear, one in a thousand of [\d,]+ if the run chooses (\d+)"
    assert [int(bound) for bound in re.findall(sizes, text)] == [candidates[0], candidates[-1]]
    assert "Smaller groups are missing from the tables, whatever they hold." in text
    assert "users appear" not in text
