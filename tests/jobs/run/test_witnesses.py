"""`ledger verify --against` and `--anchor`: what shows a ledger that somebody rewrote, on real runs, and what does not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines import extensions
from dp_pipelines.jobs.cli import main
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers.rewritten import renamed_in_place, rewrite, unanchored
from tests.jobs.conftest import Said, Shop, purchases

Call = Callable[..., Said]
GOLDEN = Path(__file__).parents[2] / "ledger" / "golden"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Two runs in a ledger whose anchor lies in a second place."""
    shop = Shop(tmp_path_factory.mktemp("weekly") / "shop")
    (shop.folder / "data").mkdir(parents=True)
    pa.parquet.write_table(purchases(0), shop.folder / "data" / "part-0.parquet")
    shop.write(budget={"epsilon": 1.0, "delta": 1e-6, "runs": 3})
    assert main.main(["ledger", "init", str(shop.job), "--anchor", str(shop.folder / "second")]) == 0
    for name in ("w1", "w2"):
        assert main.main(["run", str(shop.job), "--output", str(shop.folder / "out" / name), "--run-id", name]) == 0
    shutil.copytree(shop.folder, shop.folder.with_name("kept"))
    return shop


@pytest.fixture
def weekly(made: Shop) -> Shop:
    """The same in each test, at the same place: the ledger names its anchor by it."""
    shutil.rmtree(made.folder)
    shutil.copytree(made.folder.with_name("kept"), made.folder)
    return made


def against(call: Call, shop: Shop, *more: object) -> Said:
    return call("ledger", "verify", shop.job, "--against", *more)


def events_until(shop: Shop, run_id: str) -> int:
    """The number of events before a run was reserved."""
    return next(
        event.seq - 1
        for event in Ledger.open(str(shop.folder / DEFAULT_NAME)).history
        if event.kind == "run_reserved" and event.content["run_id"] == run_id
    )


def switched_off(shop: Shop, monkeypatch: pytest.MonkeyPatch, keep: int, first=lambda body: body) -> None:
    """The ledger's file rewritten, with its anchor out of sight of this user."""
    rewrite(str(shop.folder / DEFAULT_NAME), keep, first)
    monkeypatch.setenv("XDG_STATE_HOME", str(shop.folder / "another home"))


def test_a_ledger_holds_what_all_of_its_manifests_have_seen(weekly: Shop, call: Call) -> None:
    out = weekly.folder / "out"
    for names in (
        [out / "w1" / "manifest.json", out / "w2" / "manifest.json"],
        [out / "w1", out / "w2"],
        [out / "*" / "manifest.json"],
        [out / "*", "--against", out / "w1"],
    ):
        said = against(call, weekly, *names)
        assert (said.code, said.err) == (0, "")
        assert said.out.endswith("matches 2 of 2 manifests\n")
    said = against(call, weekly, out / "w1", "--json")
    assert json.loads(said.out)["manifests"] == 1
    assert "manifests" not in json.loads(call("ledger", "verify", weekly.job, "--json").out)


def test_a_rollback_with_the_anchor_switched_off_is_found_by_any_manifest(
    weekly: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The anchor stands in event 1, so that every later hash is another one."""
    switched_off(weekly, monkeypatch, events_until(weekly, "w2"), unanchored)
    assert call("ledger", "verify", weekly.job).code == 0, "nothing but a manifest shows it here"
    said = against(call, weekly, weekly.folder / "out" / "*")
    assert (said.code, said.out) == (1, "")
    lines = said.err.splitlines()
    assert len(lines) == 3
    assert "w1/manifest.json: has seen an event" in lines[0]
    assert "w2/manifest.json: has seen event" in lines[1]
    assert "does not match 2 of 2 manifests: it was rolled back, altered or replaced" in lines[2]


def test_only_a_newer_manifest_finds_a_rollback(weekly: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger and anchor restored together by the operator of both disks: the chain up to there is the true one."""
    keep = events_until(weekly, "w2")
    ledger = Ledger.open(str(weekly.folder / DEFAULT_NAME))
    head = weekly.folder / "second" / f"{ledger.state.ledger}.json"
    head.write_text(json.dumps({"ledger": ledger.state.ledger, "seq": keep, "hash": ledger.history[keep - 1].hash}))
    switched_off(weekly, monkeypatch, keep)
    out = weekly.folder / "out"
    assert call("ledger", "verify", weekly.job, "--anchor", weekly.folder / "second").code == 0
    assert against(call, weekly, out / "w1").code == 0
    said = against(call, weekly, out / "w2")
    assert said.code == 1
    assert f"has seen event {keep + 3}, but the ledger ends with event {keep}" in said.err


@pytest.mark.parametrize("replaced", [unanchored, renamed_in_place])
def test_what_a_manifest_refuses_is_not_accepted(
    weekly: Shop,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    replaced: Callable[[dict[str, object]], dict[str, object]],
) -> None:
    switched_off(weekly, monkeypatch, events_until(weekly, "w2"), replaced)
    for file in (weekly.folder / "second").glob("*.json"):
        file.unlink()
    folders = weekly.folder / "second", weekly.folder / "another home"
    said = against(call, weekly, weekly.folder / "out" / "*", "--accept")
    assert (said.code, said.out) == (1, "")
    assert "it was rolled back, altered or replaced" in said.err
    assert not [path for folder in folders for path in folder.rglob("*.json")], "an anchor or a note was written"
    assert call("ledger", "verify", weekly.job, "--accept").code == 0
    assert [path for folder in folders for path in folder.rglob("place-*.json")], "what is accepted is noted"


def test_a_commit_that_was_taken_back_is_found_though_its_charge_stands(
    weekly: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head in a manifest is older than its own commit: without it the run would be drawn a second time."""
    seen = json.loads((weekly.folder / "out" / "w2" / "manifest.json").read_text())["ledger"]["head"]["seq"]
    shutil.rmtree(weekly.folder / "second")
    switched_off(weekly, monkeypatch, seen)
    assert call("ledger", "verify", weekly.job, "--accept").code == 0
    said = against(call, weekly, weekly.folder / "out" / "w2")
    assert said.code == 1
    assert "is the release of run 'w2', which the ledger does not list as released" in said.err


def test_a_manifest_that_was_altered_is_found(weekly: Shop, call: Call) -> None:
    path = weekly.folder / "out" / "w1" / "manifest.json"
    path.write_text(path.read_text().replace('"epsilon": 1.0', '"epsilon": 0.1'))
    said = against(call, weekly, path)
    assert said.code == 1
    assert "is not the manifest that the ledger has for run 'w1'" in said.err


def test_a_manifest_of_another_ledger_is_told_from_this_ones(
    weekly: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched_off(weekly, monkeypatch, events_until(weekly, "w1"), renamed_in_place)
    assert call("ledger", "verify", weekly.job, "--accept").code == 0
    said = against(call, weekly, weekly.folder / "out" / "w1")
    assert said.code == 1
    assert "w1/manifest.json: names the ledger " in said.err


def test_a_release_without_a_ledger_is_counted_and_no_witness(weekly: Shop, call: Call) -> None:
    job = weekly.write()
    assert call("run", job, "--output", weekly.folder / "out" / "alone", "--ledger", "none").code == 0
    said = against(call, weekly, weekly.folder / "out" / "*")
    assert said.code == 0
    assert said.out.endswith("matches 2 of 3 manifests; 1 without a ledger\n")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1, "ledger": {}}', '{"format": 1, "ledger": {"head": 7}}', "[" * 100_000,
     '{"format": 1, "run_id": "r", "ledger": {"id": "l", "account": "a", "head": {"seq": true, "hash": "h"}}}',
     '{"format": 1, "run_id": "r", "ledger": {"id": "l", "account": "a", "head": {"seq": 0, "hash": "h"}}}',
     '{"format": 1, "run_id": null, "ledger": {"id": "l", "account": "a", "head": {"seq": 1, "hash": "h"}}}'],
)  # fmt: skip
def test_what_is_no_manifest_is_refused(weekly: Shop, call: Call, text: str) -> None:
    (weekly.folder / "out" / "broken.json").write_text(text)
    said = against(call, weekly, weekly.folder / "out" / "w1", weekly.folder / "out" / "broken.json")
    assert (said.code, said.out) == (2, "")
    assert "out/broken.json: is not the manifest of a release" in said.err
    assert said.err.count("\n") == 1


def test_all_manifests_that_cannot_be_read_are_told_at_once(weekly: Shop, call: Call) -> None:
    said = against(call, weekly, weekly.folder / "none.json", weekly.folder / "no" / "*.json", weekly.folder / "data")
    assert (said.code, said.out) == (2, "")
    assert said.err.count("cannot be read: No such file or directory") == 3


def test_the_manifest_of_an_old_release_is_found_in_its_old_ledger(call: Call, tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "ledger_0_1_0.sqlite", tmp_path / "old.sqlite")
    options = ["--ledger", tmp_path / "old.sqlite", "--against", GOLDEN / "manifest_0_1_0.json"]
    assert call("ledger", "verify", *options).code == 0
    rewrite(str(tmp_path / "old.sqlite"), 3)
    assert call("ledger", "verify", *options).code == 1


@pytest.mark.parametrize("given", ["option", "environment"])
def test_every_command_that_opens_a_ledger_refuses_one_whose_anchor_was_switched_off(
    weekly: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    second = weekly.folder / "second"
    if given == "environment":
        monkeypatch.setenv("DP_PIPELINES_ANCHOR", str(second))
    pinned = ["--anchor", second] if given == "option" else []
    tuned = ["tune", weekly.job, "--grid", "bounds.max_partitions_contributed=1,2"]
    commands = [
        ["run", weekly.job, "--output", weekly.folder / "out" / "w3", "--run-id", "w3"],
        *([[*tuned, "--output", weekly.folder / "tuning"]] if extensions.is_installed("command", "tune") else []),
        ["doctor", weekly.job, "--no-probe"],
        ["runs", weekly.job],
        ["runs", weekly.job, "--abandon", "w2"],
        ["ledger", "show", weekly.job],
        ["ledger", "verify", weekly.job],
        ["ledger", "verify", "--accept", weekly.job],
        ["ledger", "export", weekly.job],
        ["ledger", "raise", weekly.job, "--epsilon", "9", "--delta", "1e-3"],
    ]
    assert call("ledger", "show", weekly.job, *pinned).code == 0
    switched_off(weekly, monkeypatch, events_until(weekly, "w1"), unanchored)
    for command in commands:
        said = call(*command, *pinned)
        assert said.code == 1, command
        assert "says that its anchor is in this user's own folder" in said.err + said.out, command
    assert not (weekly.folder / "out" / "w3").exists()
    if given == "option":
        assert call("run", *commands[0][1:]).code == 0, "without a pin nothing shows it to a user who has not seen it"


def test_a_run_makes_its_ledger_with_the_anchor_that_is_pinned(shop: Shop, call: Call, tmp_path: Path) -> None:
    shop.without_ledger()
    run = ["run", shop.job, "--output", shop.folder / "out", "--anchor"]
    assert call(*run, tmp_path / "second").code == 0
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    assert ledger.state.anchor == str(tmp_path / "second")
    assert (tmp_path / "second" / f"{ledger.state.ledger}.json").exists()
    assert call("ledger", "init", shop.job, "--anchor", tmp_path / "third", "--dataset", "b").code == 2
    assert call("ledger", "init", "--ledger", shop.folder / DEFAULT_NAME, "--anchor", tmp_path / "second",
                "--dataset", "b", "--unit", "u", "--epsilon", "1", "--delta", "1e-6").code == 0  # fmt: skip
