"""An old copy is not taken for the ledger: the anchor, where it is missing, damaged, chosen or not."""

import json
import os
import pathlib
import shutil
import sqlite3

import pytest

from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.ledger import events
from dp_pipelines.ledger.database import Database
from dp_pipelines.ledger.ledger import Ledger
from tests.helpers import ledgers
from tests.helpers.small_disks import SmallDisk


def head_file(folder: pathlib.Path, ledger: Ledger) -> pathlib.Path:
    return folder / f"{ledger.state.ledger}.json"


def unchosen(state: pathlib.Path) -> pathlib.Path:
    return state / "dp_pipelines" / "anchors"


@pytest.fixture(params=["chosen", "unchosen"])
def place(request, tmp_path: pathlib.Path, own_state: pathlib.Path) -> tuple[str | None, pathlib.Path]:
    """What is given when a ledger is made, and where its anchor then lies."""
    if request.param == "chosen":
        return str(tmp_path / "second"), tmp_path / "second"
    return None, unchosen(own_state)


def test_the_head_is_written_after_each_event(url: str, place) -> None:
    given, folder = place
    ledger = ledgers.with_account(url, anchor=given)
    for step in range(3):
        ledgers.admit(ledger, f"r{step}", asked=f"{step}")
        known = json.loads(head_file(folder, ledger).read_text())
        assert known == {"ledger": ledger.state.ledger, "seq": ledger.head.seq, "hash": ledger.head.hash}


def test_an_old_copy_is_refused_and_the_newest_is_taken(sqlite: str, place) -> None:
    ledger = ledgers.with_account(sqlite, anchor=place[0])
    shutil.copy(sqlite, sqlite + ".old")
    ledgers.admit(ledger, "r")
    shutil.copy(sqlite, sqlite + ".new")
    os.replace(sqlite + ".old", sqlite)
    for attempt in (Ledger.open, Ledger.accept):
        with pytest.raises(LedgerError, match="older than its anchor .* restore the newest copy"):
            attempt(sqlite)
    os.replace(sqlite + ".new", sqlite)
    assert Ledger.open(sqlite).run(ledgers.ACCOUNT, "r") is not None


def test_an_old_copy_that_went_on_is_refused(sqlite: str, place) -> None:
    ledger = ledgers.with_account(sqlite, anchor=place[0])
    shutil.copy(sqlite, sqlite + ".old")
    ledgers.admit(ledger, "r")
    folder = place[1]
    shutil.move(folder, str(folder) + ".away")
    os.replace(sqlite + ".old", sqlite)
    ledgers.admit(Ledger.accept(sqlite), "another")
    shutil.rmtree(folder)
    shutil.move(str(folder) + ".away", folder)
    with pytest.raises(LedgerError, match="differs from the one that its anchor .* has seen"):
        Ledger.open(sqlite)


def test_a_process_that_opened_an_old_copy_cannot_charge_it(sqlite: str, place) -> None:
    """It opened the ledger when that was the newest; meanwhile others wrote, and a copy in between was restored."""
    ledger = ledgers.with_account(sqlite, anchor=place[0])
    early = Ledger.open(sqlite)
    ledgers.admit(ledger, "one", asked="1")
    shutil.copy(sqlite, sqlite + ".old")
    ledgers.admit(ledger, "two", asked="2")
    os.replace(sqlite + ".old", sqlite)
    for _ in range(2):
        with pytest.raises(LedgerError, match="older than its anchor|was replaced"):
            ledgers.admit(early, "three", asked="3")
    for late in (ledger, early):
        with pytest.raises(LedgerError):
            ledgers.admit(late, "three", asked="3")
        with pytest.raises(LedgerError):
            _ = late.state.runs


def test_an_anchor_never_goes_back(sqlite: str, place) -> None:
    ledger = ledgers.with_account(sqlite, anchor=place[0])
    first = ledger.head
    ledgers.admit(ledger, "r")
    ledger._anchor.write(first)  # a slower process, which wrote its event before
    assert json.loads(head_file(place[1], ledger).read_text())["seq"] == ledger.head.seq


def test_a_chosen_anchor_that_is_missing_is_refused_until_it_is_accepted(url: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "second"
    ledger = ledgers.with_account(url, anchor=str(folder))
    head_file(folder, ledger).unlink()
    with pytest.raises(LedgerError, match="missing or damaged.*--accept"):
        Ledger.open(url)
    with pytest.raises(LedgerError, match="missing or damaged"):
        ledgers.admit(ledger, "r")
    assert Ledger.accept(url).state.runs == {}
    assert Ledger.open(url).verify() == 2
    ledgers.admit(ledger, "r")


def test_an_anchor_that_nobody_chose_may_be_missing(url: str, own_state: pathlib.Path) -> None:
    ledger = ledgers.with_account(url)
    shutil.rmtree(own_state)
    ledgers.admit(Ledger.open(url), "r")
    assert head_file(unchosen(own_state), ledger).exists()


DAMAGE = {
    "empty": "", "no JSON": "{", "another": '{"ledger": "x", "seq": 1, "hash": "h"}', "a list": "[]",
    "no number": '{"ledger": "LEDGER", "hash": "h"}', "a number that is none": '{"ledger": "LEDGER", "seq": "1", "hash": "h"}',
    "a number below one": '{"ledger": "LEDGER", "seq": 0, "hash": "h"}', "no hash": '{"ledger": "LEDGER", "seq": 1}',
    "deep": "[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_anchor_is_refused_until_it_is_accepted(sqlite: str, place, damage: str) -> None:
    ledger = ledgers.with_account(sqlite, anchor=place[0])
    file = head_file(place[1], ledger)
    file.write_text(DAMAGE[damage].replace("LEDGER", ledger.state.ledger))
    with pytest.raises(LedgerError, match="missing or damaged"):
        Ledger.open(sqlite)
    with pytest.raises(LedgerError, match="missing or damaged"):
        ledgers.admit(ledger, "r")
    Ledger.accept(sqlite)
    assert Ledger.open(sqlite).run(ledgers.ACCOUNT, "r") is None


def test_what_was_begun_may_be_finished_without_an_anchor_and_says_so(sqlite: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "second"
    ledger = ledgers.with_account(sqlite, anchor=str(folder))
    run, attempt = ledgers.start(ledger, ledgers.admit(ledger, "r"))
    shutil.rmtree(folder)
    folder.write_text("now a file: nothing can be written")
    with pytest.raises(LedgerError, match=r"anchor .*; the ledger has taken this step"):
        ledger.staged(run, attempt=attempt, files={})
    assert ledger.state.runs[ledgers.ACCOUNT, "r"].state == "staged"
    with pytest.raises(LedgerError):
        ledgers.admit(ledger, "another", asked="2")
    assert Database(sqlite).events()[-1].kind == events.RUN_STAGED


def test_an_anchor_that_cannot_be_written_leaves_no_ledger_behind(sqlite: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="anchor"):
        Ledger.create(sqlite, anchor=str(tmp_path / "file" / "below"))
    assert not Ledger.exists(sqlite)


def test_a_place_that_nobody_chose_may_be_unwritable(sqlite: str, own_state: pathlib.Path) -> None:
    own_state.write_text("a file")
    ledgers.admit(ledgers.with_account(sqlite), "r")
    assert Ledger.open(sqlite).verify() == 4


def test_two_ledgers_with_one_chosen_anchor_cannot_keep_the_same_account(url: str, tmp_path: pathlib.Path) -> None:
    anchor = str(tmp_path / "second")
    ledgers.with_account(url, anchor=anchor)
    other = Ledger.create(str(tmp_path / "other.sqlite"), anchor=anchor)
    with pytest.raises(RequestError, match="already exists in another ledger"):
        ledgers.open_account(other)
    assert other.state.accounts == {}
    ledgers.open_account(other, "another")
    assert set(other.state.accounts) == {"another"}


def test_an_account_that_is_refused_is_not_claimed(tmp_path: pathlib.Path) -> None:
    anchor = str(tmp_path / "second")
    first = ledgers.with_account(str(tmp_path / "a.sqlite"), anchor=anchor, patterns=["/data/*"])
    with pytest.raises(RequestError, match="belongs to the account"):
        ledgers.open_account(first, "second", patterns=["/data/*"])
    other = Ledger.create(str(tmp_path / "b.sqlite"), anchor=anchor)
    ledgers.open_account(other, "second")
    assert set(other.state.accounts) == {"second"}


def test_a_damaged_claim_is_refused(tmp_path: pathlib.Path) -> None:
    anchor = tmp_path / "second"
    ledgers.with_account(str(tmp_path / "a.sqlite"), anchor=str(anchor))
    (claim,) = anchor.glob("account-*.json")
    claim.write_text("")
    with pytest.raises(LedgerError, match="damaged"):
        ledgers.open_account(Ledger.create(str(tmp_path / "b.sqlite"), anchor=str(anchor)))


def test_ledgers_in_a_place_that_nobody_chose_have_nothing_to_do_with_each_other(tmp_path: pathlib.Path) -> None:
    for name in ("a", "b"):
        ledgers.admit(ledgers.with_account(str(tmp_path / name)), "r")


def test_a_ledger_and_its_anchor_restored_together_are_taken(sqlite: str, tmp_path: pathlib.Path) -> None:
    """What cannot be found, and the docs say so."""
    folder = tmp_path / "second"
    ledger = ledgers.with_account(sqlite, anchor=str(folder))
    shutil.copy(sqlite, sqlite + ".old")
    shutil.copytree(folder, str(folder) + ".old")
    ledgers.admit(ledger, "r")
    shutil.rmtree(folder)
    shutil.move(str(folder) + ".old", folder)
    os.replace(sqlite + ".old", sqlite)
    assert Ledger.open(sqlite).run(ledgers.ACCOUNT, "r") is None


@pytest.mark.slow
def test_an_anchor_that_is_written_while_the_ledger_is_opened_is_no_alarm(url: str, place, spawn) -> None:
    ledger = ledgers.with_account(url, anchor=place[0], epsilon=100.0, delta=1e-3)
    opening = [spawn(ledgers.open_often, url, 12) for _ in range(2)]
    for number in range(150):
        ledgers.admit(ledger, f"r{number}", asked=f"{number}")
        if not any(process.is_alive() for process in opening):
            break
    for process in opening:
        process.join(60)
        assert process.exitcode == 0


def test_removing_events_by_hand_is_found(sqlite: str) -> None:
    ledgers.admit(ledgers.with_account(sqlite), "r")
    with sqlite3.connect(sqlite) as connection:
        (trigger,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'dp_events_delete'").fetchone()
        connection.execute("DROP TRIGGER dp_events_delete")
        connection.execute("DELETE FROM dp_events WHERE seq > 2")
        connection.execute(trigger)
    connection.close()
    with pytest.raises(LedgerError, match="older than its anchor"):
        Ledger.open(sqlite)


def test_a_chosen_anchor_on_a_full_or_read_only_disk_says_so_and_what_the_ledger_has(
    sqlite: str, small_disk: SmallDisk
) -> None:
    anchor = str(small_disk.path / "second")
    ledger = ledgers.with_account(sqlite, anchor=anchor)
    for number, (stop, mend, reason) in enumerate(
        (
            (small_disk.fill, small_disk.free, "the disk is full; .*; free some space on it, then"),
            (small_disk.read_only, small_disk.writable, "the disk is read-only; .*; mount it for writing, then"),
        )
    ):
        stop()
        with pytest.raises(LedgerError, match=f"^anchor .*: cannot be written: {reason}") as raised:
            ledgers.admit(ledger, f"r{number}", asked=f"{number}")
        assert "the ledger has taken this step, and is not charged for it again" in str(raised.value)
        mend()
        spent = Ledger.open(sqlite).account(ledgers.ACCOUNT).spent
        ledger = Ledger.open(sqlite)
        ledgers.admit(ledger, f"r{number}", asked=f"{number}")
        assert ledger.account(ledgers.ACCOUNT).spent == spent
        ledgers.admit(ledger, f"s{number}", asked=f"s{number}")
    assert os.listdir(small_disk.path) == ["second"]
    assert not [name for name in os.listdir(anchor) if name.startswith(".")]


def test_an_anchor_that_nobody_chose_is_missed_and_told(sqlite: str, own_state: pathlib.Path) -> None:
    ledger = ledgers.with_account(sqlite)
    assert ledger.anchor_trouble == ""
    shutil.rmtree(own_state)
    own_state.write_text("a file")
    ledgers.admit(ledger, "r")
    assert ledger.anchor_trouble.startswith(f"anchor {own_state}")
    assert "cannot be written" in ledger.anchor_trouble
