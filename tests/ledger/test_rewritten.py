"""Who can write the ledger alone: the anchor switched off, the last runs dropped, each hash computed again; and what finds it."""

import pathlib
import shutil

import pytest
import sqlalchemy as sa

from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.ledger import pins
from dp_pipelines.ledger.ledger import Ledger
from tests.helpers import ledgers
from tests.helpers.rewritten import renamed, renamed_in_place, rewrite, unanchored
from tests.ledger.conftest import Server

KEPT = 2
"""The events before the first run: the ledger and its account."""

SWITCHED_OFF = [unanchored, renamed]


@pytest.fixture
def anchor(tmp_path: pathlib.Path) -> str:
    """A second place that the attacker cannot write."""
    return str(tmp_path / "second")


def spent(url: str, anchor: str) -> None:
    """A ledger with an anchor, on which a run has been spent."""
    ledgers.finish(ledger := ledgers.with_account(url, anchor=anchor), ledgers.admit(ledger, "r"))
    ledger.close()


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Another user, or a container with a new home, who has never seen the ledger."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another home"))


@pytest.mark.parametrize("first", SWITCHED_OFF)
def test_whoever_has_never_seen_the_ledger_and_pins_no_anchor_is_deceived(
    url: str, anchor: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, first
) -> None:
    """Without any of the defences: the chain is sound, `verify` passes, and the whole budget is there again."""
    spent(url, anchor)
    rewrite(url, KEPT, first)
    elsewhere(monkeypatch, tmp_path)
    ledger = Ledger.open(url)
    assert ledger.verify() == KEPT
    assert ledger.account(ledgers.ACCOUNT).spent == {}
    ledgers.admit(ledger, "again")


@pytest.mark.parametrize("first", SWITCHED_OFF)
@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_pinned_anchor_finds_that_it_was_switched_off(
    url: str, anchor: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, first, by: str
) -> None:
    spent(url, anchor)
    elsewhere(monkeypatch, tmp_path)
    if by == "environment":
        monkeypatch.setenv(pins.ENVIRONMENT, anchor)
    pinned = anchor if by == "option" else None
    Ledger.open(url, anchor=pinned).close()
    shutil.rmtree(tmp_path / "another home")
    rewrite(url, KEPT, first)
    for attempt in (Ledger.open, Ledger.accept, Ledger.open_or_create):
        with pytest.raises(
            LedgerError, match="says that its anchor is in this user's own folder .* rewritten or replaced"
        ):
            attempt(url, anchor=pinned)


def test_an_anchor_finds_a_ledger_under_another_name(
    url: str, anchor: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    spent(url, anchor)
    rewrite(url, KEPT, renamed_in_place)
    elsewhere(monkeypatch, tmp_path)
    with pytest.raises(LedgerError, match="missing or damaged"):
        Ledger.open(url, anchor=anchor)


@pytest.mark.parametrize("first", [*SWITCHED_OFF, renamed_in_place])
def test_the_note_of_a_user_who_has_seen_the_ledger_finds_it(url: str, anchor: str, first) -> None:
    spent(url, anchor)
    rewrite(url, KEPT, first)
    with pytest.raises(LedgerError, match="was rewritten or replaced"):
        Ledger.open(url)


def test_a_ledger_that_is_gone_is_not_made_anew_unasked(sqlite: str) -> None:
    first = Ledger.open_or_create(sqlite)
    first.close()
    away = pathlib.Path(sqlite).rename(sqlite + ".away")
    for _ in range(2):
        with pytest.raises(RequestError, match="was here.*and is gone.*restore it"):
            Ledger.open_or_create(sqlite)
        assert not pathlib.Path(sqlite).exists()
    away.rename(sqlite)
    assert Ledger.open_or_create(sqlite).state.ledger == first.state.ledger
    pathlib.Path(sqlite).unlink()
    with pytest.raises(RequestError, match="is gone"):
        Ledger.create(sqlite)
    Ledger.create(sqlite, anew=True).close()
    assert Ledger.open_or_create(sqlite).state.ledger != first.state.ledger, "one that was asked for takes its place"


def test_a_ledger_that_this_user_has_seen_and_that_is_gone_is_told_with_its_events_and_nobody_is_punished_for_the_right_one(
    postgres: str, server: Server
) -> None:
    """The server is there, and its database is an empty one: a failover to the wrong copy."""
    spent(postgres, None)
    count = len(Ledger.open(postgres).history)
    name = sa.make_url(postgres).database
    message = (
        rf"was here \({count} events\) and is gone: .*restore it; to start anew on purpose, .*`.*ledger init --accept`"
    )
    server.run(f"ALTER DATABASE {name} RENAME TO {name}_away")
    server.url(name)
    for make in (Ledger.open, Ledger.open_or_create, Ledger.create):
        with pytest.raises(RequestError, match=message):
            make(postgres)
    server.run(f"DROP DATABASE {name}")
    server.run(f"ALTER DATABASE {name}_away RENAME TO {name}")
    assert len(Ledger.open_or_create(postgres).history) == count


def test_a_process_that_had_the_ledger_open_charges_nothing_to_the_rewritten_one(url: str, anchor: str) -> None:
    spent(url, anchor)
    early = Ledger.open(url)
    rewrite(url, KEPT, unanchored)
    for _ in range(2):
        with pytest.raises(LedgerError):
            ledgers.admit(early, "again")


def test_dropped_runs_alone_are_found_by_the_anchor(url: str, anchor: str) -> None:
    spent(url, anchor)
    rewrite(url, KEPT)
    with pytest.raises(LedgerError, match="is older than its anchor"):
        Ledger.open(url, anchor=anchor)


def test_a_disk_operator_who_restores_ledger_and_anchor_together_passes_a_pin(sqlite: str, anchor: str) -> None:
    """What a pinned anchor does not stop: only a newer anchor or manifest finds a rollback."""
    ledger = ledgers.with_account(sqlite, anchor=anchor)
    shutil.copytree(anchor, anchor + " old")
    ledgers.admit(ledger, "r")
    shutil.rmtree(anchor)
    shutil.move(anchor + " old", anchor)
    rewrite(sqlite, KEPT)
    assert Ledger.open(sqlite, anchor=anchor).verify() == KEPT


def test_a_ledger_that_was_replaced_on_purpose_is_accepted_once(url: str, anchor: str) -> None:
    spent(url, anchor)
    rewrite(url, KEPT, renamed)
    with pytest.raises(LedgerError, match="--accept"):
        Ledger.open(url)
    Ledger.accept(url).close()
    assert Ledger.open(url).verify() == KEPT


def test_a_ledger_that_this_software_makes_anew_is_the_one_that_is_seen_from_then_on(sqlite: str) -> None:
    ledgers.with_account(sqlite).close()
    pathlib.Path(sqlite).unlink()
    made = Ledger.create(sqlite, anew=True)
    assert Ledger.open(sqlite).state.ledger == made.state.ledger


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ledger": 1, "anchor": 2}'])
def test_a_note_that_is_damaged_is_made_anew(sqlite: str, own_state: pathlib.Path, text: str) -> None:
    ledgers.with_account(sqlite).close()
    (note,) = (own_state / "dp_pipelines" / "anchors").glob("place-*.json")
    known = note.read_text()
    note.write_text(text)
    Ledger.open(sqlite).close()
    assert note.read_text() == known


def test_one_ledger_under_two_names_is_one_place(sqlite: str, tmp_path: pathlib.Path, own_state: pathlib.Path) -> None:
    ledgers.with_account(sqlite).close()
    (tmp_path / "link").symlink_to(pathlib.Path(sqlite).parent)
    Ledger.open(str(tmp_path / "link" / pathlib.Path(sqlite).name)).close()
    assert len(list((own_state / "dp_pipelines" / "anchors").glob("place-*.json"))) == 1


def test_a_ledger_that_is_made_under_the_environments_anchor_keeps_it(
    sqlite: str, anchor: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv(pins.ENVIRONMENT, anchor)
    ledgers.with_account(sqlite).close()
    monkeypatch.delenv(pins.ENVIRONMENT)
    assert Ledger.open(sqlite).state.anchor == anchor
    (tmp_path / "by another way").symlink_to(anchor)
    Ledger.open(sqlite, anchor=str(tmp_path / "by another way")).close()
    with pytest.raises(LedgerError, match="or correct the name"):
        Ledger.open(sqlite, anchor=str(tmp_path / "third"))


def test_this_users_own_folder_can_be_pinned_and_must_then_hold_the_anchor(
    sqlite: str, own_state: pathlib.Path
) -> None:
    ledger = ledgers.with_account(sqlite)
    folder = own_state / "dp_pipelines" / "anchors"
    Ledger.open(sqlite, anchor=str(folder)).close()
    (folder / f"{ledger.state.ledger}.json").unlink()
    Ledger.open(sqlite).close()
    with pytest.raises(LedgerError, match="missing or damaged"):
        Ledger.open(sqlite, anchor=str(folder))


def test_an_empty_variable_pins_nothing(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pins.ENVIRONMENT, "")
    ledgers.with_account(sqlite, anchor=None).close()
    with pytest.raises(RequestError, match="does not exist"):
        Ledger.open(sqlite + ".none")
    assert Ledger.open(sqlite).state.anchor == ""
