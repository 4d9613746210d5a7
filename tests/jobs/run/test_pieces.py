"""The pieces of a run that a ledger remembers, each by itself: seals, whose release stands at a place, and which run goes on.

In: folders, small ledgers, no pipeline. Out: what a piece says. Holds: every field that names a run is changed alone. Not
covered: whole runs (`test_ledgered_run`), races of whole commands (`test_races`).
"""

import hashlib
import json
import pathlib
from typing import Any

import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.run import ledgered_run, standing_release
from dp_pipelines.jobs.run.run import JobRun
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.release import manifest, staging
from tests.helpers.ledgers import ACCOUNT, admit, plan, start, with_account

CONTENT = b"a draw of a small table"


def sealed(folder: pathlib.Path) -> str:
    """The seal of a folder's only file."""
    folder.mkdir(exist_ok=True)
    (folder / "weekly.parquet").write_bytes(CONTENT)
    return ledgered_run._seals(folder, {"weekly.parquet": folder / "weekly.parquet"})["weekly.parquet"]


def test_a_seal_follows_from_its_file_and_a_key_that_is_destroyed_with_it(tmp_path: pathlib.Path) -> None:
    first = sealed(tmp_path / "a")
    assert sealed(tmp_path / "a") == first, "a later process knows the file again"
    assert staging.destroy(tmp_path / "a")
    # Whoever tries all draws, and has every other key that there ever was, finds none with this seal.
    others = {sealed(tmp_path / name) for name in ("a", "b", "c")}
    assert len({first, hashlib.sha256(CONTENT).hexdigest(), *others}) == 5
    assert len(first) == 64


def test_a_seal_tells_any_change_of_its_file(tmp_path: pathlib.Path) -> None:
    first, path = sealed(tmp_path / "a"), tmp_path / "a" / "weekly.parquet"
    for other in (b"", CONTENT + b"\0", CONTENT[:-1], CONTENT.upper()):
        path.write_bytes(other)
        assert ledgered_run._seals(path.parent, {path.name: path})[path.name] != first


NAMES = {"run_id": "one", "dataset": "shop", "plan": "p", "job": "j"}


@pytest.mark.parametrize("other", [None, *NAMES])
def test_a_release_is_of_the_run_that_its_manifest_names_in_full_and_of_no_other(
    tmp_path: pathlib.Path, other: str | None
) -> None:
    arguments = [value if name != other else "other" for name, value in NAMES.items()]
    assert standing_release.release_at(tmp_path / "none", *arguments) is None
    (tmp_path / "manifest.json").write_text(json.dumps({"format": manifest.FORMAT, **NAMES}))
    if other is None:
        assert standing_release.release_at(tmp_path, *arguments) == {"format": manifest.FORMAT, **NAMES}
        return
    words = (
        "another run's release"
        if other in ("run_id", "dataset")
        else "of another job, plan, parameters or snapshot of a table"
    )
    with pytest.raises(RequestError, match=words):
        standing_release.release_at(tmp_path, *arguments)


def request(**changes: Any) -> JobRun:
    """What was asked for the run `r` of `tests.helpers.ledgers`."""
    of = plan(0.3, 1e-7, 3)
    asked: dict[str, Any] = {"asked": of.digest[:16], "content": "content of r", "window": "", **changes}
    unused: Any = None
    return JobRun(
        account=ACCOUNT, run_id="r", plan=of.digest, target=pathlib.Path("/nowhere"), files=(), tell=unused, stop=unused,
        production=unused, place=unused, spare=False, **asked,
    )  # fmt: skip


@pytest.mark.parametrize("meanwhile", ["abandoned", "another round", "another job"])
def test_a_command_goes_on_with_the_very_run_that_it_was_admitted_for(tmp_path: pathlib.Path, meanwhile: str) -> None:
    url = str(tmp_path / "ledger.sqlite")
    mine, other = with_account(url), Ledger.open(url)
    admitted = admit(mine, "r", plan(0.3, 1e-7, 3))
    assert ledgered_run._seen_again(mine, admitted, request()) == admitted
    started, attempt = start(other, admitted)
    assert ledgered_run._seen_again(mine, admitted, request()) == started, "its attempts may be others"
    other.abandon(other.end(started, attempt=attempt, how="it failed", destroyed=meanwhile == "another job"))
    if meanwhile != "abandoned":
        # Its staging may have been seen: under the same id it is charged for a round of its own.
        again = admit(other, "r", plan(0.3, 1e-7, 3))
        assert again.round == (2 if meanwhile == "another round" else 1)
    changed = {"content": "another"} if meanwhile == "another job" else {}
    words = "was charged for another job" if changed else "was abandoned while this command waited"
    with pytest.raises(RequestError, match=words):
        ledgered_run._seen_again(mine, admitted, request(**changed))
