"""What an owner and an auditor read: everything that was charged, the chain, and nothing that a spreadsheet would run."""

import csv
import hashlib
import io
import json

import pytest

from dp_pipelines.ledger import export
from dp_pipelines.ledger.entries import FILTER, Window
from dp_pipelines.ledger.ledger import Ledger
from tests.helpers.ledgers import ACCOUNT, admit, finish, open_account, plan, with_account


@pytest.fixture
def ledger(url: str) -> Ledger:
    made = with_account(url, patterns=["/data/*.parquet"])
    open_account(made, "adaptive", rule=FILTER)
    open_account(made, "weekly", window=Window(column="t", days=7, origin="2026-01-05"))
    finish(made, admit(made, "r1", plan(0.3, 1e-7, 3)))
    admit(made, "r2", account="adaptive")
    admit(made, "r3", account="weekly", window="2026-01-05")
    return made


def test_the_export_is_json_and_its_chain_can_be_verified_without_us(ledger: Ledger) -> None:
    content = json.loads(json.dumps(export.to_json(ledger), allow_nan=False))
    before = "0" * 64
    for number, event in enumerate(content["events"], start=1):
        fields = [1, number, before, event["kind"], event["time"], event["body"]]
        before = hashlib.sha256(json.dumps(fields).encode()).hexdigest()
        assert event["hash"] == before
    assert content["head"] == {"seq": len(content["events"]), "hash": before}


def test_what_is_spent_and_left_add_up_to_the_cap(ledger: Ledger) -> None:
    for account in export.to_json(ledger)["accounts"]:
        for budget in account["budgets"].values():
            for part in ("epsilon", "delta"):
                assert budget["spent"][part] + budget["left"][part] == pytest.approx(budget["cap"][part])
                assert 0 <= budget["spent"][part] <= budget["cap"][part]


def test_what_is_spent_is_what_was_charged(ledger: Ledger) -> None:
    accounts = {account["account"]: account for account in export.to_json(ledger)["accounts"]}
    accounted = plan(0.3, 1e-7, 3).accounted
    spent = accounts[ACCOUNT]["budgets"][""]["spent"]
    assert accounted["epsilon"] <= spent["epsilon"] <= accounted["epsilon"] + 1e-11
    assert spent["delta"] == 1e-7
    assert list(accounts["weekly"]["budgets"]) == ["2026-01-05"]
    assert accounts["adaptive"]["order"] is not None
    assert accounts[ACCOUNT]["order"] is None


def test_an_account_that_was_never_charged_shows_its_cap(url: str) -> None:
    made = with_account(url, rule=FILTER)
    (account,) = export.to_json(made)["accounts"]
    assert account["budgets"][""]["left"] == {"epsilon": 1.0, "delta": 1e-6}


def test_runs_are_listed_with_their_state_and_round(ledger: Ledger) -> None:
    runs = {run["run_id"]: run for run in export.to_json(ledger)["runs"]}
    assert {name: (run["state"], run["round"], run["runs"]) for name, run in runs.items()} == {
        "r1": ("published", 1, 3), "r2": ("reserved", 1, 1), "r3": ("reserved", 1, 1),
    }  # fmt: skip
    assert runs["r1"]["files"] == ledger.state.runs[ACCOUNT, "r1"].files


def test_the_table_has_a_line_for_each_event(ledger: Ledger) -> None:
    rows = list(csv.DictReader(io.StringIO(export.to_csv(ledger))))
    assert [int(row["seq"]) for row in rows] == list(range(1, ledger.head.seq + 1))
    assert [row["hash"] for row in rows] == [event.hash for event in ledger.history]
    charged = [row for row in rows if row["epsilon"]]
    assert {row["who"] for row in charged} == {"ann@host"}
    assert sum(float(row["epsilon"]) for row in charged if row["account"] == ACCOUNT) == pytest.approx(
        plan(0.3, 1e-7, 3).accounted["epsilon"]
    )


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x", "\tx", '"quoted", with comma', "line\nbreak"])
def test_a_name_is_never_a_formula(sqlite: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Version 0.1.0 took names with tabs and line breaks, which a ledger may hold since then.
    monkeypatch.setattr("dp_pipelines.ledger.ledger.checks.plain", lambda value, field: value)
    made = with_account(sqlite)
    open_account(made, name)
    rows = list(csv.DictReader(io.StringIO(export.to_csv(made))))
    cell = rows[-1]["account"]
    assert cell.lstrip("'") == name
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
