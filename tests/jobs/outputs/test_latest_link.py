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
