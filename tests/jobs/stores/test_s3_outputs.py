"""Releases that are published in a bucket: whole or not at all, once, never over anything.

In: runs of the shop, moto's server on this machine. Out: objects, exit codes, the ledger. Holds: what lies in the bucket is what
a local folder would hold, byte for byte. Not covered: Amazon's own service; stores that do not know conditional writes.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator

import pytest

from dp_pipelines.engine import object_store
from dp_pipelines.engine.object_store import StoreError
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.outputs import release_place
from dp_pipelines.jobs.stores import object_folder, s3_folder
from dp_pipelines.jobs.stores.s3_folder import S3Folder
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.release import manifest
from tests.helpers import object_stores
from tests.helpers.extension_folders import needs
from tests.helpers.object_stores import BUCKET, SECRET, Store
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]
FILES = ["manifest.json", "report.html", "weekly.parquet"]


@pytest.fixture
def store() -> Iterator[Store]:
    with object_stores.store() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_stays_here() -> Iterator[None]:
    """After each test nothing is left in the user's cache but what a test says."""
    yield
    folder = release_place.own_cache.folder() / "to-publish"
    left = [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    for path in left:
        path.unlink()


def waiting() -> list[str]:
    """What waits on this machine to be put into a bucket."""
    folder = release_place.own_cache.folder() / "to-publish"
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def folders(shop: Shop) -> list[str]:
    """Where the ledger says that releases are."""
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    try:
        return [folder for run in ledger.state.runs.values() for folder in run.folders]
    finally:
        ledger.close()


def test_a_release_in_a_bucket_is_that_of_a_local_folder(shop: Shop, store: Store, call: Call) -> None:
    url = f"s3://{BUCKET}/reports/one"
    said = call("run", shop.job, "--output", url, "--run-id", "one")
    assert (said.code, said.err) == (0, "")
    assert f"files      {url}" in said.out
    assert store.names("reports/one") == FILES
    assert (folders(shop), waiting(), shop.left()) == ([url], [], [])
    assert call("run", shop.job, "--output", shop.folder / "out", "--run-id", "one").code == 0
    assert {name: store.get(f"{url}/{name}") for name in FILES} == {
        path.name: path.read_bytes() for path in (shop.folder / "out").iterdir()
    }


@pytest.mark.parametrize("ledger", [[], ["--ledger", "none"]], ids=["with a ledger", "without"])
def test_the_same_command_gives_the_same_bytes_and_costs_nothing(
    shop: Shop, store: Store, call: Call, ledger: list[str]
) -> None:
    asked = ("run", shop.job, "--output", f"s3://{BUCKET}/one/", "--json", *ledger)
    first, held = call(*asked), [store.get(f"s3://{BUCKET}/one/{name}") for name in FILES]
    again = call(*asked)
    assert (first.code, again.code) == (0, 0), again.err
    assert [json.loads(said.out)["published_before"] for said in (first, again)] == [False, True]
    assert json.loads(again.out)["output"] == f"s3://{BUCKET}/one"
    assert held == [store.get(f"s3://{BUCKET}/one/{name}") for name in FILES]
    assert shop.charged() == (0 if ledger else 1)
    assert waiting() == []


@pytest.mark.parametrize("ledger", [[], ["--ledger", "none"]], ids=["with a ledger", "without"])
def test_what_stands_there_is_refused_unpaid(shop: Shop, store: Store, call: Call, ledger: list[str]) -> None:
    url = f"s3://{BUCKET}/one"
    assert call("run", shop.job, "--output", url, "--run-id", "one", *ledger).code == 0
    other = call("run", shop.job, "--output", url, "--run-id", "two", *ledger)
    assert other.code == 2
    assert f"output {url!r}: holds another run's release" in other.err
    store.client.put_object(Bucket=BUCKET, Key="full/notes.txt", Body=b"mine")
    full = call("run", shop.job, "--output", f"s3://{BUCKET}/full", "--run-id", "three", *ledger)
    assert full.code == 2
    assert "holds something, and no release that is whole" in full.err
    for name in ("../../x", "notes.txt/x"):  # the last cannot be beside a file of that name
        files = {"notes.txt": {}, name: {}}
        content = json.dumps({"format": manifest.FORMAT, "files": files}).encode()
        store.client.put_object(Bucket=BUCKET, Key="full/manifest.json", Body=content)
        store.client.put_object(Bucket=BUCKET, Key="full/notes.txt/x", Body=b"mine")
        full = call("run", shop.job, "--output", f"s3://{BUCKET}/full", "--run-id", "three", *ledger)
        assert full.code == 2
        assert "already has a manifest.json, which is of no release" in full.err
    store.client.put_object(Bucket=BUCKET, Key="one/weekly.parquet", Body=b"another")
    damaged = call("run", shop.job, "--output", url, "--run-id", "one", *ledger)
    assert damaged.code == 2
    assert f"output {url!r}: holds a release whose files differ from its manifest" in damaged.err
    assert shop.charged() == (0 if ledger else 1)
    assert waiting() == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://no-such-bucket/one", "but there is no such bucket"),
        (f"s3://{BUCKET}", "which is no folder in a bucket"),
        (f"s3://key:{SECRET}@{BUCKET}/one", f"names 's3://...@{BUCKET}/one' with somebody's credentials"),
        ("gs://bucket/one", "is not a local folder"),
    ],
)
def test_a_place_that_is_none_is_refused_unpaid(shop: Shop, store: Store, call: Call, url: str, words: str) -> None:
    said = call("run", shop.job, "--output", url, "--run-id", "one")
    assert (said.code, shop.charged()) == (2, 0)
    assert words in said.err
    assert SECRET not in said.err


@needs("check", "sql_select")
def test_other_commands_refuse_a_bucket(shop: Shop, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.folder)
    url = f"s3://{BUCKET}/one"
    statement = "SELECT product, count(*) AS orders FROM 'data/*.parquet' GROUP BY product"
    asked = ("--epsilon", 1, "--delta", 1e-6, "--unit", "customer", "--max-partitions", 3, "--max-rows", 2)
    assert call("sql", statement, *asked, "--output", url).code == 2
    assert call("run", shop.job, "--synthetic", "--output", url).code == 2
    assert call("check", shop.job, "--output", url).code == 2
    assert (store.names("one"), shop.left()) == ([], [])


@pytest.mark.parametrize("ledger", [[], ["--ledger", "none"]], ids=["with a ledger", "without"])
def test_a_store_that_falls_silent_before_the_end_gets_the_rest_from_the_same_command(
    shop: Shop, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch, ledger: list[str]
) -> None:
    url = f"s3://{BUCKET}/one"
    created = S3Folder.create

    def until_the_manifest(self: S3Folder, name: str, content: bytes) -> bool:
        if name == "manifest.json":
            store.stop()
        return created(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(S3Folder, "create", until_the_manifest)
        said = call("run", shop.job, "--output", url, "--run-id", "one", *ledger)
    assert said.code == 1
    assert f"place {url!r}: the store does not answer; " in said.err
    assert "run the same command again" in said.err
    assert waiting() == FILES
    with object_stores.store(empty=False) as other:
        assert other.names("one") == FILES[1:]  # no manifest: not a release yet
        said = call("run", shop.job, "--output", url, "--run-id", "one", *ledger)
        assert (said.code, other.names("one")) == (0, FILES), said.err
    assert shop.charged() == (0 if ledger else 1)
    assert waiting() == []


def test_a_release_that_waits_for_its_bucket_is_named_to_another_run(
    shop: Shop, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{BUCKET}/one"

    def refuses(self: S3Folder, name: str, content: bytes) -> bool:
        raise StoreError(*object_store.NO_ANSWER)

    shop.write(budget={"epsilon": 1.0, "delta": 1e-6, "runs": 2})
    with monkeypatch.context() as patch:
        patch.setattr(S3Folder, "create", refuses)
        assert call("run", shop.job, "--output", url, "--run-id", "p1").code == 1
    assert store.names("one") == []
    said = call("run", shop.job, "--output", url, "--run-id", "p2")
    assert said.code == 2
    assert f"output {url!r}: is taken by the release of run 'p1', which waits in '" in said.err
    assert "to-publish" in said.err
    assert "run that one's command again, or remove that folder" in said.err
    assert call("run", shop.job, "--output", url, "--run-id", "p1").code == 0
    assert store.names("one") == FILES


@pytest.mark.parametrize("ledger", [[], ["--ledger", "none"]], ids=["with a ledger", "without"])
def test_whoever_loses_a_race_is_told_what_another_place_costs_and_keeps_the_release(
    shop: Shop, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch, ledger: list[str]
) -> None:
    url = f"s3://{BUCKET}/lost-{len(ledger)}"
    put = object_folder.put

    def outrun(folder: pathlib.Path, place: S3Folder, shown: str) -> None:
        place.create("manifest.json", b"of another release")
        put(folder, place, shown)

    with monkeypatch.context() as patch:
        patch.setattr(object_folder, "put", outrun)
        said = call("run", shop.job, "--output", url, "--run-id", "one", *ledger)
    assert said.code == 1
    assert f"output {url!r}: holds another release, or part of one, which came meanwhile" in said.err
    assert waiting() == (FILES if ledger else [])
    if ledger:
        assert "would draw anew and cost as much again" in said.err
        assert "costs nothing" not in said.err
        (kept,) = (release_place.own_cache.folder() / "to-publish").glob("*/release")
        assert repr(str(kept.parent)) in said.err
        shutil.rmtree(kept.parent)
    else:
        assert "another --output, which costs nothing" in said.err
        assert call("run", shop.job, "--output", f"s3://{BUCKET}/two", "--run-id", "one").code == 0
        assert (store.names("two"), shop.charged()) == (FILES, 1)


@pytest.fixture
def releases(shop: Shop, call: Call) -> list[pathlib.Path]:
    """Two releases."""
    for name in ("one", "two"):
        assert call("run", shop.job, "--output", shop.folder / name, "--run-id", name, "--ledger", "none").code == 0
    return [shop.folder / "one", shop.folder / "two"]


def together(folders: list[pathlib.Path], url: str) -> list[bool]:
    """Which of several publishers at once have succeeded."""

    def put(folder: pathlib.Path) -> bool:
        try:
            object_folder.put(folder, S3Folder(url, "output"), url)
        except RequestError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(len(folders)) as pool:
        return list(pool.map(put, folders))


def test_of_two_publishers_one_wins_and_its_release_is_whole(store: Store, releases: list[pathlib.Path]) -> None:
    for number in range(5):
        url = f"s3://{BUCKET}/raced-{number}"
        won = together(releases, url)
        assert sorted(won) == [False, True]
        winner = releases[won.index(True)]
        assert {name: store.get(f"{url}/{name}") for name in FILES} == {
            path.name: path.read_bytes() for path in winner.iterdir()
        }


def test_two_publishers_of_one_release_both_succeed(store: Store, releases: list[pathlib.Path]) -> None:
    assert together([releases[0]] * 3, f"s3://{BUCKET}/raced") == [True, True, True]
    assert store.names("raced") == FILES


def test_an_object_that_somebody_else_is_creating_is_tried_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_folder, "_SECONDS", 0.0)
    folder = S3Folder(f"s3://{BUCKET}/x", "output")
    told = iter([409, 409, 412])

    def conflict(**given: object) -> None:
        status = next(told)
        raise folder._errors.ClientError({"ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")

    monkeypatch.setattr(folder._client, "put_object", conflict)
    assert folder.create("a", b"1") is False
    assert list(told) == []


def test_a_private_folder_stands_in_for_the_bucket(store: Store, tmp_path: pathlib.Path) -> None:
    place = release_place.place_of(f"s3://{BUCKET}/one")
    assert place.folder == release_place.place_of(f"s3://{BUCKET}/one//").folder
    assert place.folder != release_place.place_of(f"s3://{BUCKET}/two").folder
    assert os.path.isabs(place.folder)
