"""The command `run` where its names hold parameters: what they become, what is finished first, where the link leads.

In: the shop with a job of several runs. Out: folders, links, messages, exit codes. Holds: runs are real. Not covered: what a link
may replace (tests/jobs/outputs/test_latest_link.py).
"""

import os
import subprocess
from collections.abc import Callable

import pytest

from dp_pipelines.jobs.runners import processes
from dp_pipelines.ledger import events
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers import warm_process
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]
DAILY = {
    "params": {"day": {"type": "date"}},
    "where": "CAST(paid_at AS DATE) = {day}",
    "budget": {"epsilon": 8.0, "delta": 1e-5, "runs": 7},
}


def nightly(shop: Shop, day: str, *more: str) -> list[str]:
    """The command of a night."""
    names = ["--run-id", "day-{day}", "--output", str(shop.folder / "out" / "{day}")]
    return ["run", str(shop.job), *names, "--param", f"day={day}", *more]


def states(shop: Shop) -> dict[str, str]:
    """The state of each run."""
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    try:
        return {run.run_id: run.state for run in ledger.state.runs.values()}
    finally:
        ledger.close()


def test_names_are_filled_from_parameters_and_the_link_stays_at_the_newest_day(shop: Shop, call: Call) -> None:
    shop.write(**DAILY)
    latest = ("--latest", str(shop.folder / "out" / "latest"))
    for day, told in (("2025-01-08", "leads to"), ("2025-01-07", "still leads to run 'day-2025-01-08'")):
        said = call(*nightly(shop, day, *latest))
        assert (said.code, f"latest {told}" in said.err) == (0, True)
    assert states(shop) == {"day-2025-01-08": "published", "day-2025-01-07": "published"}
    assert sorted(os.listdir(shop.folder / "out")) == ["2025-01-07", "2025-01-08", "latest"]
    assert os.readlink(shop.folder / "out" / "latest") == "2025-01-08"


def test_a_link_has_the_values_of_parameters_in_its_name_too(shop: Shop, call: Call) -> None:
    shop.write(params={"shop": {"type": "string"}})
    link = shop.folder / "latest-{shop}"
    fixed = ("--output", shop.folder / "out", "--param", "shop=north")
    assert call("run", shop.job, *fixed, "--latest", link).code == 0
    assert os.readlink(shop.folder / "latest-north") == "out"
    assert "--latest: uses {place}, which params does not" in call("run", shop.job, *fixed, "--latest", "{place}").err


def test_a_night_that_was_killed_is_finished_before_the_next_one_begins(shop: Shop, call: Call) -> None:
    shop.write(**DAILY)
    warm_process.kill(nightly(shop, "2025-01-07"), folder=shop.folder, point=events.ATTEMPT_STARTED, when="after")
    assert states(shop) == {"day-2025-01-07": "started"}
    said = call(*nightly(shop, "2025-01-08"))
    assert said.code == 0
    assert "note: run 'day-2025-01-07' has no release yet, and is finished first" in said.err
    assert f"run 'day-2025-01-07' is published in {shop.folder / 'out' / '2025-01-07'}" in said.err
    assert states(shop) == {"day-2025-01-07": "published", "day-2025-01-08": "published"}
    assert call(*nightly(shop, "2025-01-08")).err == ""


def test_a_night_on_which_another_process_works_is_left_to_it(shop: Shop, call: Call) -> None:
    shop.write(**DAILY)
    warm_process.kill(nightly(shop, "2025-01-07"), folder=shop.folder, point=events.RUN_RESERVED, when="after")
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            where = processes.here() | {"pid": other.pid, "began": processes._began(other.pid)}
            ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
            (run,) = ledger.state.runs.values()
            ledger.start(run, attempt="a", staging=str(shop.folder / "out" / ".staging"), where=where)
            ledger.close()
            said = call(*nightly(shop, "2025-01-08"))
        finally:
            other.kill()
    assert said.code == 0
    note = f"note: run 'day-2025-01-07' has no release yet, and is left to process {other.pid}, which is working on it"
    assert said.err.splitlines() == [note]
    assert states(shop) == {"day-2025-01-07": "started", "day-2025-01-08": "published"}


def test_a_night_that_cannot_be_finished_is_told_and_stops_no_other(shop: Shop, call: Call) -> None:
    shop.write(**DAILY)
    warm_process.kill(nightly(shop, "2025-01-07"), folder=shop.folder, point=events.ATTEMPT_STARTED, when="after")
    fixed = ["--run-id", "day-{day}", "--param", "day=2025-01-08", "--output"]
    said = call("run", shop.job, *fixed, shop.folder / "one")
    assert said.code == 0
    command = f"dp-pipelines run {shop.job} --run-id day-2025-01-07 --param day=2025-01-07 --output DIR"
    assert f"note: run 'day-2025-01-07' has no release yet; finish it with: {command}" in said.err
    assert states(shop)["day-2025-01-08"] == "published"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--run-id", "day-{today}", "--output", "out"],
            "--run-id: uses {today}, which params does not declare; no clock",
        ),
        (
            ["--run-id", "day-{dya}", "--output", "out"],
            "uses {dya}, which params does not declare; did you mean 'day'?",
        ),
        (["--run-id", "a", "--output", "out/{week}"], "--output: uses {week}, which params does not declare"),
        (["--run-id", "a", "--output", "out", "--synthetic", "--latest", "x"], "--latest: is for releases"),
        (["--run-id", "a", "--output", "out", "--latest", "data"], "exists and is no link"),
    ],
)
def test_names_that_cannot_be_filled_are_refused_before_anything_is_made(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    shop.write(**DAILY)
    monkeypatch.chdir(shop.folder)
    said = call("run", shop.job, "--param", "day=2025-01-07", *arguments)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert shop.left() == []


def test_a_value_with_a_slash_leaves_no_folder(shop: Shop, call: Call) -> None:
    shop.write(params={"city": {"type": "string"}})
    said = call("run", shop.job, "--param", "city=a/b", "--output", shop.folder / "{city}")
    assert said.code == 2
    assert "--param city: is part of a name in --output and must not be empty" in said.err
