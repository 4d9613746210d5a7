"""What may happen to a run while a command waits for it, and to its files behind links."""

import functools
import json
import pathlib
import shutil
import types
from collections.abc import Callable

import pytest

from dp_pipelines.jobs.run import ledgered_run
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]


def ledger(shop: Shop) -> Ledger:
    """The shop's ledger, as it is now."""
    return Ledger.open(str(shop.folder / DEFAULT_NAME))


@pytest.mark.parametrize("admitted_again", [False, True])
def test_a_run_that_is_abandoned_while_a_command_begins_with_it_is_refused_there(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, admitted_again: bool
) -> None:
    """The id is free again and may stand for a cheaper run by now: the draw of the first may not be committed under it."""
    real = ledgered_run.LedgeredRun.next_attempt

    def next_attempt(run):  # type: ignore[no-untyped-def]
        other = ledger(shop)
        other.abandon(other.state.runs["shop", "one"])
        if admitted_again:
            of_another_job = functools.partial(other.admit, content="another job")
            run._request.admit(
                types.SimpleNamespace(admit=lambda *names, content, **given: of_another_job(*names, **given))
            )
        monkeypatch.setattr(ledgered_run.LedgeredRun, "next_attempt", real)
        return real(run)

    monkeypatch.setattr(ledgered_run.LedgeredRun, "next_attempt", next_attempt)
    said = call("run", shop.job, "--output", shop.folder / "out", "--run-id", "one")
    assert (said.code, said.out) == (2, "")
    assert ("was charged for another job" if admitted_again else "was abandoned while") in said.err
    assert shop.left() == []
    assert not ledger(shop).state.runs["shop", "one"].committed


def test_files_behind_links_belong_to_one_account_under_whichever_name(shop: Shop, call: Call) -> None:
    raw = shop.folder / "data" / "raw"
    raw.mkdir()
    for path in list((shop.folder / "data").glob("*.parquet")):
        shutil.move(path, raw / path.name)
        path.symlink_to(raw / path.name)
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    book = ledger(shop)
    book.open_account("other", unit=["customer"], words="customer", epsilon=9.0, delta=1e-3)
    for pattern in ("data/raw/*.parquet", "data/raw/part-0.parquet", "data/*.parquet"):
        job = shop.write(dataset="other", source={"parquet": pattern}, stages={"weekly": stage()})
        said = call("run", job, "--output", shop.folder / "again")
        assert (said.code, said.out) == (2, "")
        assert "belongs to the account 'shop'" in said.err


def test_an_account_cannot_take_the_files_of_another_by_a_wider_pattern(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    wide = ["--source", str(shop.folder / "**/*.parquet")]
    said = call("ledger", "init", shop.job, "--dataset", "other", "--epsilon", "1", "--delta", "1e-6", *wide)
    assert said.code == 2
    assert "belongs to the account 'shop'" in said.err
    assert call("run", shop.job, "--output", shop.folder / "again").code == 0


def test_a_wrong_account_makes_no_ledger(shop: Shop, call: Call, tmp_path: pathlib.Path) -> None:
    place = tmp_path / "new.sqlite"
    said = call("ledger", "init", shop.job, "--ledger", place, "--epsilon", "0", "--anchor", tmp_path / "anchor")
    assert said.code == 2
    assert not place.exists()


def test_a_second_ledger_for_the_same_dataset_and_files_is_told_of(shop: Shop, call: Call) -> None:
    shop.without_ledger()
    assert "were charged before" not in call("run", shop.job, "--output", shop.folder / "a").err
    (shop.folder / DEFAULT_NAME).unlink()
    said = call("run", shop.job, "--output", shop.folder / "b")
    assert (said.code, said.out) == (2, "")
    assert "and is gone: it records what was spent" in said.err
    assert not (shop.folder / DEFAULT_NAME).exists()
    refused = call("ledger", "init", shop.job)
    assert refused.code == 2
    assert "restore it; to start anew on purpose" in refused.err
    assert not (shop.folder / DEFAULT_NAME).exists()
    assert call("ledger", "init", shop.job, "--accept").code == 0
    said = call("run", shop.job, "--output", shop.folder / "b")
    assert said.code == 0
    assert f"were charged before, in the ledger {shop.folder / DEFAULT_NAME}" in said.err


def test_a_copied_job_with_another_dataset_is_told_of_the_account_that_had_its_files(shop: Shop, call: Call) -> None:
    """Another folder has another ledger, in which a dataset of any name starts with a full budget."""
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    copied = Shop(shop.folder / "elsewhere")
    (copied.folder / "data").mkdir(parents=True)
    for number in range(2):
        (copied.folder / "data" / f"other-{number}.parquet").hardlink_to(
            shop.folder / "data" / f"part-{number}.parquet"
        )
    sources = {"renamed": str(shop.folder / "data/*.parquet"), "linked": "data/*.parquet"}
    for name, pattern in sources.items():
        copied.write(dataset=name, source={"parquet": pattern})
        copied.without_ledger()
        said = call("run", copied.job, "--output", copied.folder / name)
        assert said.code == 0
        assert f"charged before, in the ledger {shop.folder / DEFAULT_NAME}, to the account 'shop'" in said.err
        assert "charged before" not in call("run", copied.job, "--output", copied.folder / f"{name} again").err


def test_a_new_ledger_for_the_same_files_is_told_of_when_it_is_made_and_when_it_is_charged(
    shop: Shop, call: Call
) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    words = f"charged before, in the ledger {shop.folder / DEFAULT_NAME}, to the account 'shop'"
    said = call("ledger", "init", shop.job, "--ledger", shop.folder / "new.sqlite")
    assert said.code == 0
    assert said.err.startswith("note: ")
    assert words in said.err
    for name, told in (("a", True), ("b", False)):
        said = call("run", shop.job, "--output", shop.folder / name, "--ledger", shop.folder / "new.sqlite")
        assert said.code == 0
        assert (words in said.err) is told


def test_a_link_to_a_job_in_another_folder_uses_the_ledger_beside_the_job(shop: Shop, call: Call) -> None:
    job = shop.write(source={"parquet": str(shop.folder / "data/*.parquet")})
    assert call("run", job, "--output", shop.folder / "out").code == 0
    elsewhere = shop.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "job.yaml").symlink_to(job)
    said = call("run", elsewhere / "job.yaml", "--output", shop.folder / "again")
    assert (said.code, said.err) == (0, "")
    assert "its release is unchanged" in said.out
    assert not (elsewhere / DEFAULT_NAME).exists()


def test_times_that_a_ledger_writes_down_are_whole_hours(shop: Shop, call: Call) -> None:
    """Finer ones would tell how long runs take, and so how many rows there are."""
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    exported = json.loads(call("ledger", "export", shop.job).out)
    assert {event["time"][len("2026-01-05T03") :] for event in exported["events"]} == {":00Z"}


def test_staging_that_was_moved_away_gives_no_budget_back(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(run, folder, *rest):  # type: ignore[no-untyped-def]
        folder.rename(shop.folder / "kept")
        raise KeyboardInterrupt

    monkeypatch.setattr(ledgered_run, "_seals", lambda folder, files: moved(None, folder))
    assert call("run", shop.job, "--output", shop.folder / "out", "--run-id", "one").code == 1
    assert "its charge stays" in call("runs", shop.job, "--abandon", "one").out
