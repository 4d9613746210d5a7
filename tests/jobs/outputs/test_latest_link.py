"""The link to the newest release: it changes in one step, never moves back, and takes the place of nothing else.

In: published folders that are manifests alone, moto's server on this machine. Out: links, objects, refusals. Not covered: the
command that makes it (tests/jobs/cli/test_run_commands.py).
"""

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from dp_pipelines.errors import PublishError, RequestError
from dp_pipelines.jobs.outputs import latest_link
from dp_pipelines.jobs.stores.s3_folder import S3Folder
from dp_pipelines.release import manifest
from dp_pipelines.report.trends.published_runs import ReleasedRun
from tests.helpers import object_stores
from tests.helpers.object_stores import BUCKET, Store


@pytest.fixture
def store() -> Iterator[Store]:
    with object_stores.store() as made:
        yield made


def published(folder: pathlib.Path, **content: Any) -> ReleasedRun:
    """A published folder that has a manifest and nothing else."""
    whole = {"format": manifest.FORMAT, "dataset": "shop", "plan": "p", "params": {}, **content}
    folder.mkdir()
    manifest.write_manifest(whole, folder)
    return ReleasedRun(folder=folder, content=whole)


def of_round(number: int, seq: int = 0, **more: Any) -> dict[str, Any]:
    """What a manifest says of a ledger."""
    return {"ledger": {"id": "l", "round": number, "head": {"seq": seq}}, **more}


BEFORE_AND_AFTER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "parameter": ({"params": {"day": "2026-01-05"}}, {"params": {"day": "2026-01-06"}}),
    "parameter under another plan": (
        {"params": {"day": "2026-01-05"}, **of_round(9, 9)},
        {"params": {"day": "2026-01-06"}, **of_round(1, 2), "plan": "q"},
    ),
    "run id": ({"run_id": "2026-W01"}, {"run_id": "2026-W02"}),
    "window": ({"ledger": {"window": "2026-01-05"}}, {"ledger": {"window": "2026-01-12"}}),
    "a spare run, which has the last round of its plan, before a regular one": (of_round(6, 20), of_round(3, 30)),
    "an abandoned round that is given again": (of_round(5, 20), of_round(2, 30)),
    "correction of a day under another plan": (
        {"params": {"day": "2026-01-05"}, **of_round(7, 20)},
        {"params": {"day": "2026-01-05"}, **of_round(1, 30), "plan": "q"},
    ),
}


@pytest.mark.parametrize("case", BEFORE_AND_AFTER)
def test_the_link_leads_to_the_newer_of_two_runs_whichever_ends_last(case: str, tmp_path: pathlib.Path) -> None:
    for order in (1, -1):
        (place := tmp_path / str(order)).mkdir()
        runs = [published(place / name, **content) for name, content in zip("ab", BEFORE_AND_AFTER[case], strict=True)]
        link = latest_link.link_of(str(place / "latest"))
        for run in runs[::order]:
            link.refuse_unfit(str(run.folder))
            said = link.point_to(run, str(run.folder))
        assert os.readlink(place / "latest") == "b"
        assert ("still leads to" in said) == (order == -1)


def test_the_link_can_be_made_anew_where_its_release_is_gone_and_moves_with_its_folder(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "latest").symlink_to("gone")
    link = latest_link.link_of(str(place / "latest"))
    link.refuse_unfit(str(place / "a"))
    link.point_to(published(place / "a", run_id="a"), "a")
    place.rename(tmp_path / "moved")
    assert manifest.read_manifest(tmp_path / "moved" / "latest") is not None
    assert sorted(path.name for path in (tmp_path / "moved").iterdir()) == ["a", "latest"]


def test_a_link_takes_the_place_of_nothing_else(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    published(tmp_path / "release")
    for name, rule in {
        "file": "exists and is no link",
        "folder": "exists and is no link",
        "link": "is a link to something that is no release",
        "new": "is the output folder itself",
        "release/latest": "is inside a published folder",
    }.items():
        with pytest.raises(RequestError, match=rule):
            latest_link.link_of(str(tmp_path / name)).refuse_unfit(str(tmp_path / "new"))
    with pytest.raises(RequestError, match="the release is in a bucket"):
        latest_link.link_of(str(tmp_path / "latest")).refuse_unfit("s3://bucket/out")
    with pytest.raises(RequestError, match="the release is on this machine"):
        latest_link.link_of("s3://bucket/out/latest.json").refuse_unfit(str(tmp_path / "new"))
    with pytest.raises(RequestError, match="names no object in a folder of a bucket"):
        latest_link.link_of("s3://bucket").refuse_unfit("s3://bucket/out")


@pytest.mark.parametrize(
    ("output", "latest"),
    [
        ("p/one", "p/one/latest"),
        ("p/one", "p/one/deep/er/latest"),
        ("p/x/../one", "p/./one/latest"),
        ("~/p/one", "p/one/latest"),
        ("p/one", "~/p/one/latest"),
        ("same/one", "p/one/latest"),
        ("p/one", "same/one/latest"),
        ("old", "old/deep/latest"),
        ("p/one", "old/deep/latest"),
    ],
)
def test_a_link_inside_a_release_is_refused_however_its_folder_is_written(
    output: str, latest: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "p").mkdir()
    (tmp_path / "same").symlink_to("p")
    published(tmp_path / "old")
    with pytest.raises(RequestError, match="is inside (the output|a published) folder"):
        latest_link.link_of(latest).refuse_unfit(output)
    latest_link.link_of("p/one-latest").refuse_unfit("p/one")


@pytest.mark.parametrize(
    ("latest", "rule"),
    [
        ("file/latest", "cannot be written: '.*file' is no folder"),
        ("file/new/latest", "cannot be written: '.*file' is no folder"),
        ("dangling/latest", "cannot be written: '.*dangling' is no folder"),
        ("x" * 300, "cannot be written: File name too long"),
        ("x" * 252, "cannot be written: File name too long"),  # the name before it takes its place is longer
        ("new/" + "x" * 300 + "/latest", "cannot be written: File name too long"),
        ("new/" + "x/" * 3000 + "latest", "cannot be written: File name too long"),
        ("/proc/new/latest", "cannot be written: "),  # where not even root may write
    ],
)
def test_a_place_that_can_never_have_a_link_is_refused_before_anything_is_charged(
    latest: str, rule: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to("gone")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(RequestError, match=rule):
        latest_link.link_of(str(tmp_path / latest)).refuse_unfit(str(tmp_path / "out"))
    latest_link.link_of(str(tmp_path / "new" / "deep" / ("x" * 200))).refuse_unfit(str(tmp_path / "out"))
    assert sorted(os.listdir(tmp_path)) == before


def test_what_killed_processes_left_beside_the_link_is_removed(tmp_path: pathlib.Path) -> None:
    for left in (".latest.12345", ".latest.x", ".other.12345"):
        (tmp_path / left).symlink_to("gone")
    (tmp_path / ".latest.7").write_text("a file of somebody else")
    run = published(tmp_path / "a", run_id="a")
    latest_link.link_of(str(tmp_path / "latest")).point_to(run, "a")
    assert sorted(os.listdir(tmp_path)) == [".latest.7", ".latest.x", ".other.12345", "a", "latest"]


def test_a_link_that_cannot_be_written_leaves_the_release_and_says_what_to_do(tmp_path: pathlib.Path) -> None:
    run = published(tmp_path / "a")
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        PublishError, match="the release is published in here, and the same command tries the link again"
    ):
        latest_link.link_of(str(tmp_path / "file" / "latest")).point_to(run, "here")


def test_in_a_bucket_the_link_is_an_object_that_never_moves_back(
    store: Store, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (
        published(tmp_path / day, params={"day": day}, run_id=day, **of_round(1))
        for day in ("2026-01-05", "2026-01-06")
    )
    url = f"s3://{BUCKET}/reports/latest.json"
    link = latest_link.link_of(url)
    link.refuse_unfit(f"s3://{BUCKET}/reports/2026-01-05")
    read = S3Folder.read_version

    def slow(folder: S3Folder, name: str) -> tuple[bytes | None, str | None]:
        """Read the object, and have another process write it before this one does."""
        monkeypatch.setattr(S3Folder, "read_version", read)
        found = folder.read_version(name)
        latest_link.link_of(url).point_to(new, "s3://new")
        return found

    monkeypatch.setattr(S3Folder, "read_version", slow)
    assert "still leads to run '2026-01-06'" in link.point_to(old, "s3://old")
    assert json.loads(store.get(url))["release"] == "s3://new"
    assert "leads to s3://new" in link.point_to(new, "s3://new")
    with pytest.raises(RequestError, match="is the output, or inside of it"):
        link.refuse_unfit(f"s3://{BUCKET}/reports")
    folder = S3Folder(f"s3://{BUCKET}/reports", "place")
    assert folder.replace("latest.json", b"[1]", folder.read_version("latest.json")[1])
    with pytest.raises(RequestError, match="is an object that is no link to a release"):
        link.refuse_unfit(f"s3://{BUCKET}/reports/2026-01-05")
