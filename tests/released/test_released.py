"""What version 0.2.0 and later ones wrote is opened, verified and continued by this version (docs/stability.md).

In: the folders beside this file, each written by the version that it names (write.py). Holds: nothing of them is ever written
again. Not covered: version 0.1.0, of which tests/ledger and tests/report have a ledger and a release.
"""

import gzip
import json
import pathlib
import shutil
from collections.abc import Callable

import pytest

import dp_pipelines as dp
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.jobs.conftest import Said, call, own_anchors  # noqa: F401 - fixtures
from tests.released import write

VERSIONS = sorted(path.name for path in write.HERE.glob("v*"))


@pytest.fixture(params=VERSIONS)
def released(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with a job, its ledger after two of four runs, and both releases."""
    folder = tmp_path / "shop"
    shutil.copytree(write.HERE / request.param, folder)
    packed = folder / "ledger.sqlite.gz"
    (folder / DEFAULT_NAME).write_bytes(gzip.decompress(packed.read_bytes()))
    (folder / DEFAULT_NAME).chmod(0o600)
    packed.unlink()
    write.write_rows(folder, ("W1", "W2", "W3"))
    return folder


def test_the_first_stable_version_is_here() -> None:
    assert "v0_2_0" in VERSIONS


def test_its_ledger_is_shown_and_verified_with_its_releases(released: pathlib.Path, call: Callable[..., Said]) -> None:  # noqa: F811
    before = (released / DEFAULT_NAME).read_bytes()
    shown = call("ledger", "show", released / "job.yaml", "--json")
    assert shown.code == 0, shown.err
    assert (
        call("ledger", "verify", released / "job.yaml", "--accept").code == 0
    )  # the anchor of its machine is not here
    verified = call("ledger", "verify", released / "job.yaml", "--against", *sorted(released.glob("W*/manifest.json")))
    assert verified.code == 0, verified.err
    assert (released / DEFAULT_NAME).read_bytes() == before


def test_its_releases_are_read_and_drawn_as_pages(released: pathlib.Path, call: Callable[..., Said]) -> None:  # noqa: F811
    release = dp.read_release(released / "W2")
    assert "orders" in str(release)
    page = released / "page.html"
    drawn = call("report", released / "W2", "--output", page)
    assert drawn.code == 0, drawn.err
    assert "Orders and late deliveries by region" in page.read_text()


def test_an_old_run_gives_its_release_and_a_further_one_continues_the_account(
    released: pathlib.Path,
    call: Callable[..., Said],  # noqa: F811
) -> None:
    stored = (released / "W2" / "weekly.parquet").read_bytes()
    ledger = Ledger.open(str(released / DEFAULT_NAME))
    spent, events = dict(ledger.account("shop").spent), len(ledger.history)
    ledger.close()
    shutil.rmtree(released / "W2")
    for week in ("W2", "W3"):
        done = call(*write.run_arguments(released, week))
        assert done.code == 0, done.err
    assert (released / "W2" / "weekly.parquet").read_bytes() == stored
    old, new = (json.loads((released / week / "manifest.json").read_text()) for week in ("W2", "W3"))
    for key in ("plan", "accounted", "mechanisms", "privacy_unit"):
        assert new[key] == old[key], key
    ledger = Ledger.open(str(released / DEFAULT_NAME))
    assert dict(ledger.account("shop").spent) == spent
    assert ledger.verify() > events
    ledger.close()
