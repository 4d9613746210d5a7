"""The commands `ledger` and `runs`: what they print for people and for scripts, and what they refuse.

In: the shop. Out: text, JSON, CSV, exit codes. Holds: an export is checked here by code that shares nothing with ours. Not
covered: the HTML page (`tests/release`), what the ledger itself refuses (`tests/ledger`).
"""

import csv
import datetime
import hashlib
import io
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dp_pipelines.accounting.accountant import epsilon_of
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.jobs.cli import shown_ledger
from dp_pipelines.jobs.run import ledgered_run
from dp_pipelines.jobs.runners import processes
from dp_pipelines.jobs.terminal import summary
from dp_pipelines.ledger import release_list, units
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers import ledgers
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]
THREE = {"epsilon": 1.0, "delta": 1e-6, "runs": 3}


@pytest.fixture
def fresh(shop: Shop) -> Shop:
    """The shop before it has a ledger, with a job for three runs."""
    shop.without_ledger()
    shop.write(budget=THREE)
    return shop


def run(shop: Shop, call: Call, name: str) -> Said:
    """One of the three runs."""
    return call("run", shop.job, "--output", shop.folder / name, "--run-id", name)


@pytest.mark.parametrize("name", ["init", "raise", "show", "verify", "export"])
def test_every_command_below_ledger_has_help_with_an_example(call: Call, name: str) -> None:
    assert name in call("ledger", "--help").out
    said = call("ledger", name, "--help")
    assert said.code == 0
    assert f"  dp-pipelines ledger {name} " in said.out


def test_an_account_is_opened_from_a_job_and_from_options_alike(fresh: Shop, call: Call) -> None:
    said = call("ledger", "init", fresh.job, "--unit-words", "one customer")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[0] == f"created the ledger {fresh.folder / DEFAULT_NAME}"
    assert "opened the account 'shop': epsilon 1 and delta 1e-06 for each customer, rule reserved" in said.out
    other = fresh.folder / "team.sqlite"
    options = [
        "--dataset",
        "shop",
        "--unit",
        "customer",
        "--unit-words",
        "one customer",
        "--epsilon",
        1,
        "--delta",
        "1e-6",
    ]
    options += ["--source", fresh.folder / "data" / "*.parquet"]
    assert call("ledger", "init", "--ledger", other, *options).code == 0
    accounts = [Ledger.open(str(path)).account("shop") for path in (fresh.folder / DEFAULT_NAME, other)]
    assert accounts[0] == accounts[1]


def test_more_accounts_and_other_rules_fit_into_one_ledger(fresh: Shop, call: Call) -> None:
    assert call("ledger", "init", fresh.job).code == 0
    options = ["--ledger", fresh.folder / DEFAULT_NAME, "--epsilon", 2, "--delta", "1e-5", "--unit", "user"]
    windows = ["--window-column", "at", "--window-days", 30, "--window-origin", "2026-01-01"]
    said = call("ledger", "init", *options, "--dataset", "monthly", *windows, "--rule", "filter")
    assert (said.code, said.err) == (0, "")
    assert "created the ledger" not in said.out
    assert "value of user in one window of 30 days, rule filter" in said.out
    shown = json.loads(call("ledger", "show", fresh.job, "--json").out)
    assert [account["account"] for account in shown["accounts"]] == ["shop", "monthly"]
    assert shown["accounts"][1]["window"] == {"column": "at", "days": 30, "origin": "2026-01-01"}
    assert shown["accounts"][1]["budgets"][""]["left"] == {"epsilon": 2.0, "delta": 1e-5}


def test_of_a_job_its_own_account_is_shown_and_how_to_see_the_others(fresh: Shop, call: Call) -> None:
    ledger = fresh.folder / DEFAULT_NAME
    assert call("ledger", "init", fresh.job).code == 0
    alone = call("ledger", "show", fresh.job).out
    assert "other account" not in alone
    more = ["--ledger", ledger, "--epsilon", 2, "--delta", "1e-5", "--unit", "user"]
    assert call("ledger", "init", *more, "--dataset", "monthly").code == 0
    own = call("ledger", "show", fresh.job).out
    assert "shop · protects each" in own
    assert "monthly" not in own
    line = own.splitlines()[-1]
    assert line.startswith("this ledger has 1 other account: it is shown by dp-pipelines ledger show --ledger ")
    every = call(*line.partition(" by dp-pipelines ")[2].split()).out
    assert "shop · protects each" in every
    assert "monthly · protects each" in every
    assert "other account" not in every


def test_a_job_without_an_account_is_said_to_have_none_yet(fresh: Shop, call: Call) -> None:
    assert call("ledger", "init", fresh.job).code == 0
    fresh.write(dataset="new")
    own = call("ledger", "show", fresh.job).out
    assert "new · no account yet" in own
    assert "shop · protects each" not in own
    assert "this ledger has 1 other account" in own


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init", "JOB"], "has an account in the ledger"),
        (["init"], "already exists"),
        (["init", "--dataset", "x"], "--unit: is required to open an account"),
        (["init", "JOB", "--anchor", "here"], "--anchor: is fixed when a ledger is created"),
        (
            ["init", "--dataset", "x", "--unit", "u", "--epsilon", "nan", "--delta", "1e-6"],
            "epsilon: must be a finite number",
        ),
        (["init", "--dataset", "x", "--unit", "u", "--epsilon", "-1", "--delta", "1e-6"], "epsilon: must be from 0"),
        (["init", "--dataset", "x", "--unit", "u", "--epsilon", "1", "--delta", "1"], "delta: must be below 1"),
        (["init", "--dataset", "x", "--unit", "u", "--epsilon", "one", "--delta", "0"], "invalid float value"),
        (["init", "--dataset", "x", "--rule", "best"], "invalid choice"),
        (["init", "JOB", "--window-days", "7"], "--window-days: and --window-column go together"),
        (["init", "JOB", "--window-days", "0", "--window-column", "t"], "--window-days: "),
        (
            ["init", "JOB", "--window-days", "7", "--window-column", "t", "--window-origin", "May"],
            "--window-origin: must be",
        ),
        (["raise", "JOB"], "--epsilon: or --delta is required"),
        (["raise", "JOB", "--epsilon", "1"], "can only be raised"),
        (["raise", "JOB", "--epsilon", "1", "--delta", "0.5"], "can only be raised"),
        (["raise", "--epsilon", "1", "--delta", "0.5"], "--dataset: is required"),
        (["raise", "--dataset", "none", "--epsilon", "1", "--delta", "0.5"], "has no account"),
        (["show", "--ledger", "none.sqlite"], "does not exist"),
        (["verify", "--ledger", "none.sqlite"], "does not exist"),
        (["verify", "--ledger", "none.sqlite", "--accept"], "does not exist"),
        (["export", "--ledger", "mysql://h/d"], "must be SQLite or PostgreSQL"),
        (["export", "--format", "xml"], "invalid choice"),
        (["shwo"], "unknown command 'shwo'; did you mean 'show'?"),
        ([], "ledger: needs one of init, raise, show, verify, export"),
    ],
)
def test_a_wrong_request_is_one_line_and_changes_nothing(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(shop.folder)
    before = (shop.folder / DEFAULT_NAME).read_bytes()
    said = call("ledger", *(str(shop.job) if part == "JOB" else part for part in arguments))
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert said.err.count("\n") == 1
    assert (shop.folder / DEFAULT_NAME).read_bytes() == before
    assert shop.left() == []


def test_a_cap_is_raised_on_the_record(fresh: Shop, call: Call) -> None:
    call("ledger", "init", fresh.job, "--epsilon", "0.5")
    assert run(fresh, call, "w1").code == 3
    said = call("ledger", "raise", fresh.job, "--epsilon", "1.5", "--delta", "1e-6")
    assert (said.code, said.out) == (
        0,
        "the cap of 'shop' is now epsilon 1.5 and delta 1e-06; left: epsilon 1.5 and delta 1e-06\n",
    )
    assert run(fresh, call, "w1").code == 0
    assert [event.kind for event in Ledger.open(str(fresh.folder / DEFAULT_NAME)).history].count("cap_raised") == 1


def test_the_part_of_a_cap_that_is_left_out_stays(fresh: Shop, call: Call) -> None:
    call("ledger", "init", fresh.job, "--epsilon", "0.5", "--delta", "1e-7")
    for part, told in (("--epsilon", "epsilon 2 and delta 1e-07"), ("--delta", "epsilon 2 and delta 2")):
        said = call("ledger", "raise", fresh.job, part, "2" if part == "--epsilon" else "2e-5")
        assert said.code == 0
        assert said.out.startswith(f"the cap of 'shop' is now {told}")


def test_show_says_what_each_run_of_a_plan_has_used(fresh: Shop, call: Call) -> None:
    costs = []
    for number in (1, 2, 3):
        assert run(fresh, call, f"w{number}").code == 0
        shown = json.loads(call("ledger", "show", fresh.job, "--json").out)
        (plan,) = shown["accounts"][0]["plans"]
        assert (plan["used"], plan["runs"]) == (number, 3)
        costs.append(plan["epsilon"])
        people = call("ledger", "show", fresh.job).out
        assert (
            f"{number} of 3 runs used, at a joint cost of epsilon {summary.spent_number(plan['epsilon'])} of " in people
        )
        so_far = f"run {number} of 3; the runs so far used epsilon {summary.spent_number(plan['epsilon'])} of 1"
        assert so_far in (fresh.folder / f"w{number}" / "report.html").read_text()
        assert (
            f"so far     {so_far}\n"
            in call("run", fresh.job, "--run-id", f"w{number}", "--output", fresh.folder / f"w{number}").out
        )
        # The block for all three is charged at once.
        assert shown["accounts"][0]["budgets"][""]["spent"]["epsilon"] == pytest.approx(plan["accounted"]["epsilon"])
    content = json.loads((fresh.folder / "w1" / "manifest.json").read_text())
    records = [MechanismRecord.from_json(record) for record in content["mechanisms"]]
    delta = content["accounted"]["delta"]
    assert costs == pytest.approx([epsilon_of(records, delta, runs=number) for number in (1, 2, 3)])
    assert costs[0] < costs[1] < costs[2] <= 1.0
    assert costs[2] == pytest.approx(content["accounted"]["epsilon"], rel=1e-4)


def test_show_says_for_what_the_budget_was_spent_and_a_refusal_names_it(fresh: Shop, call: Call) -> None:
    call("ledger", "init", fresh.job, "--epsilon", "1.5", "--delta", "1e-5")
    for name in ("w1", "w2"):
        assert run(fresh, call, name).code == 0
    people = call("ledger", "show", fresh.job).out
    [first, second] = [
        line.split() for line in people.splitlines() if "weekly: orders, revenue" in line and "w" in line
    ][1:]
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    assert first[:4] == [day, "w1", "(1", "of"]
    assert {str(fresh.job), str(fresh.folder / "w1"), "1", "1e-06"} <= set(first)
    assert second[-3:] == ["0", "0", str(fresh.folder / "w2")]
    assert "used  epsilon 1 of 1.5 and delta 1e-06 of 1e-05 (67%), by 2 runs" in people
    assert "too little for another plan like the last one" in people
    assert "2 of 3 runs used" in people
    assert "1 run paid for and not used" in people
    [account] = json.loads(call("ledger", "show", fresh.job, "--json").out)["accounts"]
    rows = list(csv.DictReader(io.StringIO(call("ledger", "show", fresh.job, "--csv").out)))
    assert [(one["run_id"], one["round"]) for one in account["releases"]] == [("w1", 1), ("w2", 2)]
    for row, one in zip(rows, account["releases"], strict=True):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00Z", one["time"])
        assert row["stages"] == "weekly: orders, revenue"
        assert one["stages"] == {"weekly": ["orders", "revenue"]}
        assert [float(row["epsilon"]), float(row["delta"])] == [one["epsilon"], one["delta"]]
        assert (row["job"], row["day"], row["folders"]) == (str(fresh.job), day, one["folders"][0])
    spent = account["budgets"][""]["spent"]
    assert sum(one["epsilon"] for one in account["releases"]) == spent["epsilon"]
    fresh.write(budget=THREE | {"epsilon": 0.7})
    refused = run(fresh, call, "other")
    assert refused.code == 3
    assert (
        f"used by: run 'w1' of {day} (weekly: orders, revenue of {fresh.job}, epsilon 1 for all 3 runs" in refused.err
    )


def test_nothing_of_a_list_of_runs_is_cut_and_a_narrow_terminal_gets_lists(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = ["2026-11-26", "run-" + "x" * 150, "/folder/" + "y" * 90]
    for terminal in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda terminal=terminal: terminal)
        out = summary.console(stream)
        shown_ledger.print_table(out, ("day", "run", "folder"), [cells])
        assert all(cell in stream.getvalue() for cell in cells)
        assert ("─" in stream.getvalue()) == (not terminal)


def test_a_plan_whose_only_run_was_given_up_is_listed_with_its_charge(tmp_path: Path, call: Call) -> None:
    url = str(tmp_path / "l.sqlite")
    ledger = ledgers.with_account(url)
    ledger.abandon(ledgers.admit(ledger, "w1"))
    account = ledger.account(ledgers.ACCOUNT)
    given_up, unused = release_list.entries(ledger.state, account)
    assert (given_up.state, given_up.epsilon, given_up.delta) == ("abandoned", 0.0, 0.0)
    assert (unused.state, unused.run_id, unused.stages) == ("unused", "", {"weekly": ()})
    assert unused.epsilon == units.epsilon_of(account.spent[""].epsilon) > 0
    assert "set aside, no run yet" in call("ledger", "show", "--ledger", url).out
    assert "a plan that no run uses (weekly, epsilon 0.25)" in release_list.used_in_words(ledger.state, account, "")


def test_runs_are_listed_with_their_states(fresh: Shop, call: Call) -> None:
    call("ledger", "init", fresh.job)
    assert call("runs", fresh.job).out == "no runs\n"
    for name in ("w1", "w2"):
        run(fresh, call, name)
    people = call("runs", fresh.job).out
    assert "w1" in people
    assert "2 of 3" in people
    assert people.count("published") == 2
    listed = json.loads(call("runs", fresh.job, "--json").out)
    assert [(one["run_id"], one["round"], one["state"]) for one in listed] == [
        ("w1", 1, "published"),
        ("w2", 2, "published"),
    ]
    assert listed[0]["folders"] == [str(fresh.folder / "w1")]
    assert call("run", fresh.job, "--output", fresh.folder / "copy", "--run-id", "w1").code == 0
    (line,) = [line for line in call("runs", fresh.job).out.splitlines() if line.split()[:1] == ["w1"]]
    assert f"{fresh.folder / 'w1'}, {fresh.folder / 'copy'}" in line
    assert [one["last_attempt"]["state"] for one in listed] == ["committed", "committed"]
    assert json.loads(call("runs", "--ledger", fresh.folder / DEFAULT_NAME, "--dataset", "other", "--json").out) == []


HERE = processes.here()


@pytest.mark.parametrize(
    ("where", "ended", "state"),
    [
        (HERE, "", "at work"),
        ({**HERE, "began": "1"}, "", "killed"),  # another process has its number by now
        ({**HERE, "began": "1"}, ledgered_run.GONE, "killed"),
        ({**HERE, "boot": "x", "host": "elsewhere"}, "", "unknown here"),
        (HERE, "it failed", "failed"),
        (HERE, "it was interrupted", "interrupted"),
    ],
)
def test_what_became_of_the_last_attempt_is_told(
    shop: Shop, call: Call, where: dict[str, Any], ended: str, state: str
) -> None:
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    made = ledgers.plan()
    arguments = {"plan": made, "asked": "x", "content": "c", "params": {}}
    begun = ledger.admit("shop", "w1", records=lambda number: made.mechanisms, **arguments)
    assert [one["last_attempt"] for one in json.loads(call("runs", shop.job, "--json").out)] == [None]
    begun = ledger.start(begun, attempt="a", staging=str(shop.folder / "none"), where=where)
    if ended:
        ledger.end(begun, attempt="a", how=ended, destroyed=True)
    [listed] = json.loads(call("runs", shop.job, "--json").out)
    assert listed["last_attempt"] == {"state": state, "host": where["host"], "pid": where["pid"]}
    people = call("runs", shop.job).out
    assert state in people
    assert (f"the last attempt of w1 was killed: process {where['pid']} on " in people) == (state == "killed")


def test_verify_says_that_a_ledger_is_sound_and_where_it_is_not(fresh: Shop, call: Call) -> None:
    run(fresh, call, "w1")
    said = call("ledger", "verify", fresh.job)
    assert said.code == 0
    assert said.out.startswith("sound: ")
    assert json.loads(call("ledger", "verify", fresh.job, "--json").out)["sound"] is True
    path = fresh.folder / DEFAULT_NAME
    with sqlite3.connect(path) as changed:
        made = changed.execute("SELECT sql FROM sqlite_master WHERE name = 'dp_events_update'").fetchone()[0]
        changed.execute("DROP TRIGGER dp_events_update")
        changed.execute("UPDATE dp_events SET body = replace(body, '\"epsilon\":1.0', '\"epsilon\":9.0') WHERE seq = 2")
        changed.execute(made)
    changed.close()
    for command in (["ledger", "verify", fresh.job], ["ledger", "show", fresh.job], ["runs", fresh.job]):
        said = call(*command)
        assert (said.code, said.out) == (1, "")
        assert "event 2 is not as it was written" in said.err
    assert run(fresh, call, "w2").code == 1


def test_an_old_copy_is_refused_and_a_lost_anchor_can_be_accepted(fresh: Shop, call: Call, tmp_path: Path) -> None:
    anchor = tmp_path / "second place"
    assert call("ledger", "init", fresh.job, "--anchor", anchor).code == 0
    path = fresh.folder / DEFAULT_NAME
    old = path.read_bytes()
    assert run(fresh, call, "w1").code == 0
    new = path.read_bytes()
    path.write_bytes(old)
    for command in (["ledger", "verify"], ["ledger", "verify", "--accept"], ["ledger", "show"]):
        said = call(*command, fresh.job)
        assert said.code == 1
        assert "an old copy was restored" in said.err
    path.write_bytes(new)
    for file in anchor.glob("*.json"):
        file.unlink()
    assert "--accept" in call("ledger", "show", fresh.job).err
    assert call("ledger", "verify", "--accept", fresh.job).code == 0
    assert run(fresh, call, "w2").code == 0


def chain_is_whole(rows: list[dict[str, Any]]) -> bool:
    """An auditor's own check of the chain."""
    before = "0" * 64
    for number, row in enumerate(rows, 1):
        text = json.dumps([1, number, before, row["kind"], row["time"], row["body"]])
        if int(row["seq"]) != number or row["previous"] != before:
            return False
        before = row["hash"]
        if hashlib.sha256(text.encode()).hexdigest() != before:
            return False
    return True


def test_an_export_can_be_checked_without_this_software(fresh: Shop, call: Call) -> None:
    for name in ("w1", "w2"):
        run(fresh, call, name)
    content = json.loads(call("ledger", "export", fresh.job).out)
    rows = content["events"]
    assert chain_is_whole(rows)
    assert content["head"] == {"seq": len(rows), "hash": rows[-1]["hash"]}
    # The head that a manifest names is in it.
    head = json.loads((fresh.folder / "w1" / "manifest.json").read_text())["ledger"]["head"]
    assert rows[head["seq"] - 1]["hash"] == head["hash"]
    charged = [json.loads(row["body"]) for row in rows if row["kind"] == "plan_frozen"]
    assert sum(int(body["cost"]["epsilon"]) for body in charged) <= 10**12
    for change in ({"body": rows[2]["body"] + " "}, {"time": "2026"}, {"kind": "cap_raised"}):
        assert not chain_is_whole([*rows[:2], rows[2] | change, *rows[3:]])
    assert not chain_is_whole(rows[1:])
    assert not chain_is_whole([*rows[:2], *rows[3:]])


def test_the_csv_has_a_line_for_each_event_with_the_same_chain(fresh: Shop, call: Call) -> None:
    run(fresh, call, "w1")
    rows = list(csv.DictReader(io.StringIO(call("ledger", "export", fresh.job, "--format", "csv").out)))
    whole = json.loads(call("ledger", "export", fresh.job).out)["events"]
    assert [(row["seq"], row["hash"], row["previous"]) for row in rows] == [
        (str(row["seq"]), row["hash"], row["previous"]) for row in whole
    ]
    assert [row["previous"] for row in rows] == ["0" * 64, *(row["hash"] for row in rows[:-1])]
    (frozen,) = [row for row in rows if row["kind"] == "plan_frozen"]
    assert 0.9 < float(frozen["epsilon"]) <= 1
    assert "@" in frozen["who"]
    (reserved,) = [row for row in rows if row["kind"] == "run_reserved"]
    assert (reserved["account"], reserved["run_id"]) == ("shop", "w1")


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@x", 'a,b"c"'])
def test_no_name_becomes_a_formula_in_a_spreadsheet(tmp_path: Path, call: Call, name: str) -> None:
    ledger, out = tmp_path / "l.sqlite", tmp_path / "export.csv"
    options = [f"--dataset={name}", "--unit", "u", "--epsilon", "1", "--delta", "1e-6"]
    assert call("ledger", "init", "--ledger", ledger, *options).code == 0
    assert call("ledger", "export", "--ledger", ledger, "--format", "csv", "--output", out).code == 0
    with out.open(newline="") as stream:
        cells = [cell for row in csv.reader(stream) for cell in row]
    assert any(name in cell for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


@pytest.mark.parametrize("form", ["json", "csv", "html"])
def test_an_export_replaces_an_earlier_one_and_no_file_of_another_kind(fresh: Shop, call: Call, form: str) -> None:
    call("ledger", "init", fresh.job)
    ledger, out = fresh.folder / DEFAULT_NAME, fresh.folder / "export"
    for target in (ledger, fresh.job):
        before = Path(target).read_bytes()
        said = call("ledger", "export", fresh.job, "--format", form, "--output", target)
        assert said.code == 2
        assert "is a file of another kind, and is not replaced" in said.err
        assert Path(target).read_bytes() == before
    for _ in range(2):
        assert call("ledger", "export", fresh.job, "--format", form, "--output", out).code == 0


def test_an_export_that_cannot_be_written_is_an_error(fresh: Shop, call: Call) -> None:
    call("ledger", "init", fresh.job)
    said = call("ledger", "export", fresh.job, "--output", fresh.folder / "none" / "x.json")
    assert said.code == 1
    assert "cannot be written" in said.err


def test_names_that_terminals_take_for_commands_are_shown_escaped(tmp_path: Path, call: Call) -> None:
    ledger = tmp_path / "l.sqlite"
    options = [
        "--dataset",
        "shop\x1b[31m",
        "--unit",
        "u",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--unit-words",
        "one \x1b[2J",
    ]
    said = call("ledger", "init", "--ledger", ledger, *options)
    shown = call("ledger", "show", "--ledger", ledger)
    assert "\x1b" not in said.out + shown.out


def test_refusals_of_a_budget_are_short_and_keep_their_facts(fresh: Shop, call: Call) -> None:
    fresh.write(budget={"epsilon": 1.0, "delta": 1e-6, "runs": 3, "spare": 1})
    assert [run(fresh, call, name).code for name in ("w1", "w2", "w3")] == [0, 0, 0]
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    with_spare = run(fresh, call, "w4")
    assert with_spare.code == 3
    assert with_spare.err.splitlines()[-1] == (
        f"error: run 'w4': is one too many: the plan's budget covers 4 runs, of them 1 spare, used by 'w1' of {day}, "
        f"'w2' of {day}, 'w3' of {day}; to correct a release, take the spare run with --spare; else repeat a --run-id for "
        "its release; `dp-pipelines report FOLDER --job JOB --output NEW` gives it other files or words for free; or plan "
        "anew, which is charged: runs: 4 instead of 3 in the budget, in sql `--runs 4 --run-id ID`"
    )
    assert call("run", fresh.job, "--output", fresh.folder / "w4", "--run-id", "w4", "--spare").code == 0
    without = run(fresh, call, "w5").err.splitlines()[-1]
    assert len(without) < 400  # it names the free way too
    spare = call("run", fresh.job, "--output", fresh.folder / "w5", "--run-id", "w5", "--spare")
    assert (spare.code, spare.err.splitlines()[-1].count(f" of {day}")) == (3, 1)
    assert f"the plan's budget covers 1 spare run, used by 'w4' of {day};" in spare.err
    assert "which is charged: spare: 2 instead of 1 in the budget" in spare.err
    fresh.write(budget={"epsilon": 0.5, "delta": 1e-6})
    above = run(fresh, call, "other")
    assert above.code == 3
    line = above.err.splitlines()[-1].replace(str(fresh.job), "job.yaml")
    assert len(line) < 600
    for fact in (
        "this needs epsilon 0.4",
        "used by: run 'w1' of",
        "`dp-pipelines ledger show`",
        "`dp-pipelines ledger raise`",
    ):
        assert fact in line
