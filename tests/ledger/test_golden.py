"""A ledger that version 0.1.0 has written is opened as it is, by every later version.

In: `golden/ledger_0_1_0.sqlite`, with an event of each kind, and the manifest of its one release. Holds: both were written by
that version's own code, and are never made anew.
"""

import pathlib
import shutil

import pytest

from dp_pipelines.ledger import events, units
from dp_pipelines.ledger.entries import Cost
from dp_pipelines.ledger.ledger import Ledger
from tests.helpers import ledgers

GOLDEN = pathlib.Path(__file__).parent / "golden" / "ledger_0_1_0.sqlite"


@pytest.fixture
def old(sqlite: str) -> str:
    """A copy of it."""
    shutil.copy(GOLDEN, sqlite)
    return sqlite


def test_it_opens_unchanged_and_says_what_it_said(old: str) -> None:
    ledger = Ledger.open(old)
    assert ledger.verify() == 18
    kinds = {event.kind for event in ledger.history}
    assert kinds <= set(events.KINDS)
    assert len(kinds) == 15
    assert ledger.head.hash == "e0b5eb2a9f9f5fb1ab42e98196b4773c86f37780c45205da657ac04da7cc2076"
    account = ledger.account("grocery")
    assert (account.epsilon, account.delta, account.rule) == (2.0, 1e-5, "reserved")
    assert account.sources == ("/data/*.parquet", "/more/*.parquet")
    (block,) = ledger.state.plans.values()
    assert account.spent == {"": Cost(epsilon=block.cost.epsilon, delta=block.cost.delta)}
    assert 0.29 < units.epsilon_of(block.cost.epsilon) <= 0.3
    states = {run.run_id: (run.state, run.round) for run in ledger.state.runs.values()}
    assert states == {"2026-W01": ("published", 1), "given-up": ("abandoned", 2), "2026-W02": ("reserved", 2)}
    (look,) = ledger.state.tunings
    assert (look.account, look.stage, look.time) == ("grocery", "weekly", "2026-01-05T03+00:00")
    assert pathlib.Path(old).read_bytes() == GOLDEN.read_bytes()


def test_its_release_is_given_back_and_its_runs_go_on(old: str) -> None:
    ledger = Ledger.open(old)
    released = ledger.release(ledger.state.runs["grocery", "2026-W01"])
    assert released["weekly.parquet"] == b"released"
    assert released["manifest.json"] == (GOLDEN.parent / "manifest_0_1_0.json").read_bytes()
    known = ledger.state.runs["grocery", "2026-W02"]
    assert ledgers.finish(ledger, known).state == "published"
    assert Ledger.open(old).verify() == 22
