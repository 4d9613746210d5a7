"""Accounts of kinds that extensions add: found by the kinds of their events, and read only where their rules are not installed.

In: a made-up kind of account of another distribution; ledgers on SQLite and PostgreSQL. Out: states, refusals. Holds: each method
that writes is called. Not covered: the built-in kinds (tests/extensions/local_dp); a folder that was deleted
(`tests/extensions/test_deleted.py`).
"""

import inspect
import pathlib
from collections.abc import Callable, Iterator

import pytest

from dp_pipelines import extensions
from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.ledger import account_kind, export
from dp_pipelines.ledger.entries import EngineJob, Run
from dp_pipelines.ledger.ledger import Ledger
from tests.helpers import ledgers

TOY = """
import dataclasses
from dp_pipelines.errors import RequestError
from dp_pipelines.ledger.entries import Cost, Run

@dataclasses.dataclass(frozen=True)
class ToyAccount:
    name: str
    sources: tuple = ()
    tickets: int = 0
    file_hint = "its files are toys"
    charge_stays = "toys stay charged"
    def with_sources(self, sources):
        return dataclasses.replace(self, sources=sources)
    def not_of_tables(self, shown):
        return RequestError(field=f"dataset {self.name!r}", message="is an account of toys")
    def to_json(self):
        return {"account": self.name, "tickets": self.tickets}
    def run_to_json(self, run):
        return {"run_id": run.run_id}
    def spent_json(self, ledger, run):
        return {"tickets": self.tickets}

class Toys:
    events = ("toy_opened", "toy_charged", "toy_admitted")
    def apply(self, state, event):
        body = event.content
        if event.kind == "toy_opened":
            state.need_new(body)
            state.others[body["account"]] = ToyAccount(body["account"], tuple(body["sources"]))
            return
        account = state.others[body["account"]]
        if event.kind == "toy_admitted":
            names = {"account": account.name, "run_id": body["run_id"], "window": "", "plan": "p", "content": "c"}
            state.admit(Run(**names, params={}, round=1, cost=Cost(), times={"reserved": event.time}))
            return
        if body["tickets"] < 1:
            raise ValueError
        state.others[account.name] = dataclasses.replace(account, tickets=account.tickets + body["tickets"])

TOYS = Toys()
"""

OPENED = {"account": "toys", "sources": ["/toys/*.csv"]}


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    account_kind.rules_of.cache_clear()
    yield
    account_kind.rules_of.cache_clear()


@pytest.fixture
def other(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A distribution with a kind of account, on the path of this process; calling it takes the distribution away."""
    folder = tmp_path / "other"
    metadata = folder / "other-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    lines = [f"account:{kind} = toy_accounts:TOYS" for kind in ("toy_opened", "toy_charged", "toy_admitted")]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{extensions.GROUP}]", *lines, ""]))
    (folder / "toy_accounts.py").write_text(TOY)
    monkeypatch.syspath_prepend(str(folder))

    def take_away() -> None:
        (metadata / "entry_points.txt").unlink()
        account_kind.rules_of.cache_clear()

    return take_away


def with_toys(url: str) -> Ledger:
    ledger = ledgers.with_account(url)
    ledger.write(lambda add: add("toy_opened", OPENED))
    ledger.write(lambda add: add("toy_charged", {"account": "toys", "tickets": 3}))
    return ledger


@pytest.mark.usefixtures("other")
def test_an_extension_adds_a_kind_of_account_and_the_ledger_keeps_its_rules(url: str) -> None:
    ledger = with_toys(url)
    assert Ledger.open(url).state.others["toys"].to_json() == {"account": "toys", "tickets": 3}
    assert Ledger.open(url).state == ledger.state
    with pytest.raises(LedgerError, match="is impossible here"):
        ledger.write(lambda add: add("toy_charged", {"account": "toys", "tickets": 0}))
    with pytest.raises(RequestError, match="is an account of toys"):
        ledger.account("toys")
    with pytest.raises(RequestError, match="already has an account|is an account of toys"):
        ledger.open_account("toys", unit=["u"], words="one u", epsilon=1.0, delta=1e-6)
    with pytest.raises(RequestError, match="belongs to the account 'toys'.*its files are toys"):
        ledger.claim_source("grocery", "/toys/*.csv")
    ledger.claim_source("toys", "/more/*.csv")
    assert ledger.state.others["toys"].sources == ("/toys/*.csv", "/more/*.csv")
    assert export.to_json(ledger)["answers_accounts"] == [{"account": "toys", "tickets": 3}]
    assert "not_installed" not in export.to_json(ledger)


WRITES: dict[str, Callable[[Ledger, Run], object]] = {
    "open_account": lambda book, run: book.open_account("new", unit=["u"], words="one u", epsilon=1.0, delta=1e-6),
    "raise_cap": lambda book, run: book.raise_cap("grocery", epsilon=90.0, delta=1e-3),
    "claim_source": lambda book, run: book.claim_source("grocery", "/more/*.csv"),
    "admit": lambda book, run: ledgers.admit(book, "another"),
    "start": lambda book, run: book.start(run, attempt="b", staging="/b", where={}),
    "submitted": lambda book, run: book.submitted(run, attempt="a", job=EngineJob(name="j", runner="flink")),
    "end": lambda book, run: book.end(run, attempt="a", how="it failed", destroyed=True),
    "freeze": lambda book, run: book.freeze(run, attempt="a", name="s", content=b"x"),
    "staged": lambda book, run: book.staged(run, attempt="a", files={}),
    "commit": lambda book, run: book.commit(run, attempt="a", files={"t": b"x"}),
    "published": lambda book, run: book.published(run, "/out"),
    "abandon": lambda book, run: book.abandon(run),
    "note_tuning": lambda book, run: book.note_tuning("grocery", stage="s", configurations=1, content="c", grid="g"),
}
"""A call of each method that writes."""


def test_every_method_that_writes_is_called_here() -> None:
    methods = {name: inspect.getsource(method) for name, method in inspect.getmembers(Ledger, inspect.isfunction)}
    writing = {name for name, text in methods.items() if "self.write(" in text or "self._follow(" in text}
    assert writing - {"_follow"} == set(WRITES)


def test_a_ledger_with_an_account_whose_rules_are_gone_verifies_and_takes_nothing(
    url: str, other: Callable[[], None]
) -> None:
    ledger = with_toys(url)
    run = ledger.start(ledgers.admit(ledger, "first"), attempt="a", staging="/a", where={})
    ledger.claim_source("toys", "/more/*.csv")
    open_before, events, spent = ledger, ledger.head.seq, dict(ledger.account("grocery").spent)
    other()
    book = Ledger.open(url)
    assert book.verify() == events
    assert book.account("grocery").spent == spent
    assert set(book.state.missing) == {"toys"}
    words = "account 'toys' is not offered by any installed extension"
    for name, write in WRITES.items():
        for opened in (book, open_before):
            if opened is open_before:
                open_before._state = None  # after a failure, it is read again
            with pytest.raises(RequestError, match=words):
                write(opened, run)
        assert Ledger.open(url).head.seq == events, name
    with pytest.raises(RequestError, match=words):
        ledgers.admit(book, "tried", trial=True)
    with pytest.raises(RequestError, match=words):
        Ledger.accept(url)
    with pytest.raises(RequestError, match="'toys'.*is not offered by any installed extension"):
        book.account("toys")
    assert export.to_json(book)["not_installed"] == {"toys": "is not offered by any installed extension"}


def test_stored_bytes_of_an_account_whose_rules_are_gone_are_verified_too(
    sqlite: str, other: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = with_toys(sqlite)
    ledger.write(lambda add: add("toy_admitted", {"account": "toys", "run_id": "monday"}))
    run = ledger.start(ledger.state.runs["toys", "monday"], attempt="a", staging="/a", where={})
    run = ledger.freeze(run, attempt="a", name="s", content=b"a frozen draw")
    run = ledger.staged(run, attempt="a", files={})
    run = ledger.commit(run, attempt="a", files={"t": b"a table"})
    other()
    book = Ledger.open(sqlite)
    assert ("toys", "monday") not in book.state.runs
    asked: list[str] = []
    contents = Ledger._contents
    monkeypatch.setattr(Ledger, "_contents", lambda self, digests: asked.extend(digests) or contents(self, digests))
    book.verify()
    assert sorted(asked) == sorted([*run.files.values(), *run.drawn.values()])


@pytest.mark.usefixtures("other")
def test_an_account_with_an_event_of_a_newer_version_is_not_installed_and_neither_are_its_runs(sqlite: str) -> None:
    ledger = with_toys(sqlite)
    ledgers.admit(ledger, "first")
    ledger.write(lambda add: add("toy_admitted", {"account": "toys", "run_id": "monday"}))
    ledger.write(lambda add: add("toy_of_a_newer_version", {"account": "toys"}))
    book = Ledger.open(sqlite)
    found = export.to_json(book)
    assert [run["run_id"] for run in found["runs"]] == ["first"]
    assert set(found["not_installed"]) == {"toys"}
    assert found["answers_accounts"] == []


def test_an_unknown_event_of_no_account_is_impossible(sqlite: str) -> None:
    ledger = ledgers.with_account(sqlite)
    with pytest.raises(LedgerError, match="is impossible here"):
        ledger.write(lambda add: add("something_else", {"x": 1}))
