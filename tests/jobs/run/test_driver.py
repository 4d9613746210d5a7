"""The driver with a request that is no job: each step happens in its order, with a ledger and without one, and after failures.

In: a request of one file with 16 bytes that no other attempt has, a real SQLite ledger or none. Out: published folders. Not
covered: deaths of processes (`test_kills`), two commands at once (`test_races`, `test_ledgered_run`).
"""

import ast
import dataclasses
import inspect
import itertools
import json
import pathlib
import re
import textwrap
from collections.abc import Mapping

import pytest

from dp_pipelines.errors import DpError
from dp_pipelines.jobs.run import driver, ledgered_run, unledgered_run
from dp_pipelines.jobs.run.driver import RunAttempt, RunFacts, RunRequest
from dp_pipelines.ledger.entries import Run
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.release import manifest
from tests.helpers.ledgers import ACCOUNT, admit, plan, with_account
from tests.helpers.source import ROOT

DRAWS = itertools.count()
"""Stand for random draws: no two are alike."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Toy(RunRequest):
    """A run that publishes 16 bytes, others in each attempt, and notes which step it takes.

    Args:
        steps: the steps so far.
        fails: the step that fails.
    """

    steps: list[str]
    fails: str = ""

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == self.fails:
            raise DpError(f"{name} fails")

    def admit(self, ledger: Ledger) -> Run:
        self._step("admit")
        return admit(ledger, self.run_id)

    def produce(self, attempt: RunAttempt) -> dict[str, pathlib.Path]:
        self._step("produce")
        assert not self.target.exists(), "nothing is visible before the commit"
        path = attempt.folder / "draw.bin"
        path.write_bytes(next(DRAWS).to_bytes(16, "big"))
        return {"draw.bin": path}

    def describe(
        self, number: int, folder: pathlib.Path, files: Mapping[str, pathlib.Path], facts: RunFacts
    ) -> dict[str, pathlib.Path]:
        self._step("describe")
        content = {"format": manifest.FORMAT, "run_id": self.run_id, "dataset": self.account, "plan": self.plan}
        listed = {"job": self.content, "files": manifest.digests(files), "ledger": dict(facts.ledger)}
        (folder / "manifest.json").write_text(json.dumps(content | listed))
        return {**files, "manifest.json": folder / "manifest.json"}

    def deliver(self, *, remembered: bool) -> None:
        self._step(f"deliver, {'' if remembered else 'not '}remembered")


@pytest.fixture(params=["ledger", "no ledger"])
def ledger(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Ledger | None:
    """A ledger with an account, or none."""
    return with_account(str(tmp_path / "ledger.sqlite")) if request.param == "ledger" else None


def toy(folder: pathlib.Path, **changes: str) -> Toy:
    """The run `r` of `tests.helpers.ledgers`."""
    return Toy(
        account=ACCOUNT, run_id="r", plan=plan().digest, asked=plan().digest[:16], content="content of r", target=folder / "out",
        files=(), tell=pytest.fail, stop=lambda job: pytest.fail(job.name), steps=[], **changes,
    )  # fmt: skip


def left(folder: pathlib.Path) -> list[str]:
    """What attempts have left in a folder."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(".out"))


def test_a_run_is_charged_produced_described_and_delivered_once_and_given_back_afterwards(
    ledger: Ledger | None, tmp_path: pathlib.Path
) -> None:
    run, delivered = toy(tmp_path), f"deliver, {'' if ledger else 'not '}remembered"
    assert not driver.carry_out(run, ledger)
    assert run.steps == [*(["admit"] if ledger else []), "produce", "describe", delivered]
    draw = (run.target / "draw.bin").read_bytes()
    again = toy(tmp_path)
    assert driver.carry_out(again, ledger)
    assert again.steps == [delivered], "a release is delivered again, since the command may have been killed before"
    assert (run.target / "draw.bin").read_bytes() == draw
    assert left(tmp_path) == []


@pytest.mark.parametrize("step", ["admit", "produce", "describe"])
def test_a_run_that_fails_is_not_visible_leaves_nothing_and_the_same_command_finishes_it(
    ledger: Ledger | None, tmp_path: pathlib.Path, step: str
) -> None:
    if step == "admit" and ledger is None:
        pytest.skip("without a ledger nothing is charged")
    with pytest.raises(DpError, match=f"{step} fails"):
        driver.carry_out(toy(tmp_path, fails=step), ledger)
    assert not (tmp_path / "out").exists()
    assert left(tmp_path) == []
    spent = None if ledger is None else ledger.account(ACCOUNT).spent
    assert not driver.carry_out(toy(tmp_path), ledger)
    if ledger is not None and step != "admit":
        assert ledger.account(ACCOUNT).spent == spent, "it was charged before, and is not charged again"


def test_an_attempt_whose_private_memory_cannot_be_reached_is_ended(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is open in the ledger as soon as it has begun: others would wait for as long as this process lives."""
    ledger = with_account(str(tmp_path / "ledger.sqlite"))

    class Remembering(Toy):
        def produce(self, attempt: RunAttempt) -> dict[str, pathlib.Path]:
            attempt.draws.remember("noise", b"of a round")
            return super().produce(attempt)

    def unreachable(*run: object) -> None:
        raise DpError("the folder cannot be reached")

    monkeypatch.setattr(ledgered_run.noise_memory, "of_run", unreachable)
    run = toy(tmp_path)
    with pytest.raises(DpError, match="cannot be reached"):
        driver.carry_out(Remembering(**{one.name: getattr(run, one.name) for one in dataclasses.fields(run)}), ledger)
    known = ledger.run(ACCOUNT, "r")
    assert known is not None
    assert [attempt.ended for attempt in known.attempts] == ["it failed"]


def test_a_release_that_was_committed_and_not_delivered_is_delivered_by_the_same_command(
    ledger: Ledger | None, tmp_path: pathlib.Path
) -> None:
    delivery = f"deliver, {'' if ledger else 'not '}remembered"
    with pytest.raises(DpError, match="deliver"):
        driver.carry_out(toy(tmp_path, fails=delivery), ledger)
    draw = (tmp_path / "out" / "draw.bin").read_bytes()
    again = toy(tmp_path)
    driver.carry_out(again, ledger)
    assert again.steps == [delivery], "nothing is drawn again"
    assert (tmp_path / "out" / "draw.bin").read_bytes() == draw


def test_a_release_without_a_ledger_that_was_changed_is_refused(tmp_path: pathlib.Path) -> None:
    driver.carry_out(toy(tmp_path), None)
    (tmp_path / "out" / "draw.bin").write_bytes(b"another")
    with pytest.raises(DpError, match="its files differ from its manifest"):
        driver.carry_out(toy(tmp_path), None)


def test_the_note_of_a_process_is_private_and_never_published(tmp_path: pathlib.Path) -> None:
    seen = []

    class Looking(Toy):
        def produce(self, attempt: RunAttempt) -> dict[str, pathlib.Path]:
            private = attempt.folder.parent
            seen.append(((private / unledgered_run.NOTE).exists(), private.stat().st_mode & 0o777))
            return super().produce(attempt)

    of_toy = toy(tmp_path)
    fields = {field.name: getattr(of_toy, field.name) for field in dataclasses.fields(of_toy)}
    driver.carry_out(Looking(**fields), None)
    assert seen == [(True, 0o700)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["draw.bin", "manifest.json"]


def test_the_page_of_the_architecture_shows_the_driver_as_it_is() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    [shown] = re.findall(r"```python\n(   run\.refuse_other_release.*?)```", page, flags=re.DOTALL)
    [function] = ast.parse(inspect.getsource(driver.carry_out)).body
    assert isinstance(function, ast.FunctionDef)
    real = function.body[2:-1]  # without the docstring, the choice of the state and the result
    assert ast.unparse(ast.parse(textwrap.dedent(shown))) == "\n".join(map(ast.unparse, real))
