"""Delta tables in a bucket: one commit for each run, in every race and after every kill; what cannot be is refused unpaid.

In: published files, runs of the shop, moto's server on this machine. Out: what deltalake reads of the tables, exit codes, the
ledger. Holds: writers are processes or threads that speak HTTP to the server. Not covered: Amazon's own service.
"""

import concurrent.futures
import contextlib
import http.server
import json
import multiprocessing
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import deltalake
import pyarrow as pa
import pyarrow.parquet
import pytest
from moto.s3.responses import S3Response

from dp_pipelines.errors import PublishError, RequestError
from dp_pipelines.extensions.lake import delta_place
from dp_pipelines.extensions.lake.delta_output import DeltaOutput
from dp_pipelines.extensions.lake.delta_place import DeltaBucket
from dp_pipelines.jobs.outputs.extension_output import transaction_of
from dp_pipelines.jobs.outputs.release_place import own_cache, place_of
from dp_pipelines.ledger.ledger import DEFAULT_NAME
from tests.helpers import object_stores
from tests.helpers.object_stores import BUCKET, SECRET, Store
from tests.jobs.conftest import Said, Shop, stage
from tests.jobs.run.test_kills import kill

Call = Callable[..., Said]
LAKE = f"s3://{BUCKET}/lake"
WEEKLY = f"{LAKE}/weekly"
ROWS = pa.table({"k": ["x", None], "n": [9.0, 1.0]})
LISTED = {"public": [["p0"], ["p1"]]}
WEEKS = {"epsilon": 8.0, "delta": 1e-5, "runs": 3}
MODES = pytest.mark.parametrize("mode", ["append", "overwrite"])


@pytest.fixture
def store() -> Iterator[Store]:
    with object_stores.store() as made:
        yield made


@pytest.fixture(autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of this test's own: a release may wait there for its bucket."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def published(folder: pathlib.Path, rows: pa.Table = ROWS) -> pathlib.Path:
    """A published file."""
    folder.mkdir(exist_ok=True)
    pa.parquet.write_table(rows, folder / "weekly.parquet", compression="zstd")
    return folder / "weekly.parquet"


def publish(file: pathlib.Path, run: str, mode: str = "append", folder: str = LAKE) -> None:
    """Commit a run."""
    DeltaOutput(folder=folder, mode=mode).publish("weekly", file, transaction_of("shop", run), run)


def table(url: str = WEEKLY) -> deltalake.DeltaTable:
    """A table of the bucket."""
    return deltalake.DeltaTable(url, storage_options=DeltaBucket(url).options)


def commits(url: str = WEEKLY) -> list[list[dict[str, Any]]]:
    """What each commit says, the first one first."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    made = boto3.client("s3", endpoint_url=DeltaBucket(url).options["aws_endpoint"])
    found = made.list_objects_v2(Bucket=bucket, Prefix=f"{key}/_delta_log/").get("Contents", [])
    names = sorted(entry["Key"] for entry in found)
    log = [made.get_object(Bucket=bucket, Key=name)["Body"].read().decode() for name in names]
    return [[json.loads(line) for line in text.splitlines()] for text in log]


def runs_in(url: str = WEEKLY) -> dict[str, list[dict[str, Any]]]:
    """The rows of a table that is appended to, by run."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in table(url).to_pyarrow_table().to_pylist():
        found.setdefault(row.pop("run_id"), []).append(row)
    return found


def rows_of(path: pathlib.Path) -> list[dict[str, Any]]:
    return list(pa.parquet.read_table(path).to_pylist())


def run(shop: Shop, call: Call, run_id: str, *more: object, out: object = None) -> Said:
    """One run of the shop's job."""
    return call("run", shop.job, "--output", out or shop.folder / run_id, "--run-id", run_id, *more)


def without_times(action: dict[str, Any]) -> dict[str, Any]:
    """An action of a log but for what no two tables have in common."""
    (kind,) = action
    names = {"timestamp", "modificationTime", "createdTime", "deletionTimestamp", "id", "operationParameters"}
    return {kind: {name: value for name, value in action[kind].items() if name not in names}}


@MODES
def test_a_table_in_a_bucket_has_the_commits_of_a_local_one(store: Store, tmp_path: pathlib.Path, mode: str) -> None:
    file = published(tmp_path / "out")
    for run_id in ("one", "two", "one"):
        publish(file, run_id, mode)
        publish(file, run_id, mode, str(tmp_path / "lake"))
    local = tmp_path / "lake" / "weekly"
    logs = [path.read_text() for path in sorted((local / "_delta_log").glob("*.json"))]
    said = [[json.loads(line) for line in text.splitlines()] for text in logs]
    assert len(said) == 2
    assert [[without_times(action) for action in commit] for commit in commits()] == [
        [without_times(action) for action in commit] for commit in said
    ]
    files = {path.name: path.read_bytes() for path in local.glob("*.parquet")}
    assert {name: store.get(f"{WEEKLY}/{name}") for name in store.names("lake/weekly") if "log" not in name} == files
    assert set(files.values()) == {file.read_bytes()}


def test_runs_are_appended_each_once_in_a_bucket(shop: Shop, store: Store, call: Call) -> None:
    shop.write(stages={"weekly": stage(), "listed": stage(partitions=LISTED)}, budget=WEEKS, outputs={"delta": LAKE})
    for name, out in (("a", "a"), ("b", "b"), ("a", "a"), ("a", "elsewhere")):
        said = run(shop, call, name, out=shop.folder / out)
        assert (said.code, said.err) == (0, "")
        assert said.out.endswith("\ndelta      weekly, listed: committed to the Delta tables of the job\n")
    for name in ("weekly", "listed"):
        assert table(f"{LAKE}/{name}").version() == 1
        assert runs_in(f"{LAKE}/{name}") == {run: rows_of(shop.folder / run / f"{name}.parquet") for run in ("a", "b")}
    said_of = (shop.folder / "a" / "manifest.json").read_text()
    transaction = {"tables": ["weekly", "listed"], "mode": "append", "transaction": "dp_pipelines/shop/a"}
    assert json.loads(said_of)["outputs"] == {"delta": transaction}
    assert BUCKET not in said_of
    assert shop.charged() == 2


def test_release_and_tables_may_be_in_one_bucket(shop: Shop, store: Store, call: Call) -> None:
    shop.write(budget=WEEKS, outputs={"delta": f"{LAKE}/", "delta_mode": "overwrite"})
    for name in "aba":
        assert run(shop, call, name, out=f"s3://{BUCKET}/reports/{name}").code == 0
    assert store.names("reports") == [
        f"{name}/{file}" for name in "ab" for file in ("manifest.json", "report.html", "weekly.parquet")
    ]
    (held,) = table().to_pyarrow_dataset().files
    assert store.get(f"{WEEKLY}/{held}") == store.get(f"s3://{BUCKET}/reports/b/weekly.parquet")
    assert (table().version(), shop.charged()) == (1, 2)


def test_the_folder_of_tables_may_name_a_parameter_in_a_bucket(shop: Shop, store: Store, call: Call) -> None:
    shop.write(outputs={"delta": f"{LAKE}/{{shop}}"}, params={"shop": {"type": "string"}})
    assert run(shop, call, "a", "--param", "shop=north").code == 0
    assert table(f"{LAKE}/north/weekly").version() == 0
    said = run(shop, call, "b", "--param", "shop=100%25")
    assert (said.code, "outputs.delta: names a folder with an empty part" in said.err) == (2, True), said.err


# Races.


@MODES
def test_many_at_once_make_one_commit_a_run_in_a_bucket(store: Store, tmp_path: pathlib.Path, mode: str) -> None:
    file = published(tmp_path / "out")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: publish(file, f"r{number % 3}", mode), range(12)))
    assert table().version() == 2
    assert table().to_pyarrow_table().num_rows == len(ROWS) * (3 if mode == "append" else 1)
    assert len([name for name in store.names("lake/weekly") if name.endswith(".parquet")]) == 3


def _publish_all(file: pathlib.Path, runs: list[str]) -> int:
    """What one of several processes does."""
    for run_id in runs:
        publish(file, run_id)
    return len(runs)


def test_processes_that_publish_the_same_runs_make_one_commit_of_each(store: Store, tmp_path: pathlib.Path) -> None:
    file, runs = published(tmp_path / "out"), [f"r{number}" for number in range(6)]
    orders = [runs, runs[::-1], runs]
    with concurrent.futures.ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(_publish_all, [file] * 3, orders)) == [6, 6, 6]
    assert runs_in() == {run_id: ROWS.to_pylist() for run_id in runs}
    ids = [action["txn"]["appId"] for commit in commits() for action in commit if "txn" in action]
    assert sorted(ids) == [transaction_of("shop", run_id) for run_id in runs]
    assert table().version() == 5


def test_no_commit_of_others_is_lost_and_none_of_ours(store: Store, tmp_path: pathlib.Path) -> None:
    file, theirs = published(tmp_path / "out"), 8
    publish(file, "first")

    def by_hand(number: int) -> None:
        row = pa.table({"k": [str(number)], "n": [0.0], "run_id": ["by hand"]})
        deltalake.write_deltalake(WEEKLY, row, mode="append", storage_options=DeltaBucket(WEEKLY).options)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        others = [pool.submit(by_hand, number) for number in range(theirs)]
        ours = [pool.submit(publish, file, f"r{number % 4}") for number in range(8)]
        for made in (*others, *ours):
            made.result()
    found = runs_in()
    assert sorted(row["k"] for row in found.pop("by hand")) == [str(number) for number in range(theirs)]
    assert found == {run_id: ROWS.to_pylist() for run_id in ("first", "r0", "r1", "r2", "r3")}
    assert table().version() == theirs + 4


def test_whoever_sees_no_table_while_another_makes_it_looks_again(
    store: Store, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, seen, opened = published(tmp_path / "out"), [], DeltaBucket.opened
    publish(file, "one")

    def too_early(place: DeltaBucket) -> deltalake.DeltaTable | None:
        seen.append(place)
        return None if len(seen) == 1 else opened(place)

    monkeypatch.setattr(DeltaBucket, "opened", too_early)
    publish(file, "one")
    assert (len(seen), table().version()) == (2, 0)


def test_of_two_releases_of_one_run_one_is_committed(store: Store, tmp_path: pathlib.Path) -> None:
    files = [published(tmp_path / name, pa.table({"k": [name], "n": [1.0]})) for name in ("a", "b")]

    def told(file: pathlib.Path) -> str:
        try:
            publish(file, "one")
        except PublishError as error:
            return str(error)
        return ""

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(told, files))
    assert said[0] == ""
    assert f"Delta table {WEEKLY!r}: has another release of a run of this id" in said[1]
    assert (table().version(), len(runs_in()["one"])) == (0, 1)


def test_a_store_that_writes_over_objects_gets_no_commit(
    store: Store, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There two writers could both be told that a version is theirs, and one commit would be gone."""
    put = S3Response.put_object

    def whatever_stands_there(asked: S3Response) -> Any:
        asked.headers = {name: value for name, value in asked.headers.items() if name.lower() != "if-none-match"}
        return put(asked)

    with monkeypatch.context() as patch:
        patch.setattr(S3Response, "put_object", whatever_stands_there)
        with pytest.raises(PublishError, match="the store writes over objects that may only be created"):
            publish(published(tmp_path / "out"), "one")
    assert not [name for name in store.names("lake/weekly") if "_delta_log" in name]
    publish(published(tmp_path / "out"), "one")
    assert table().version() == 0


def test_what_has_the_name_of_the_data_file_stays(store: Store, tmp_path: pathlib.Path) -> None:
    file = published(tmp_path / "out")
    publish(file, "one")
    (name,) = [name for name in store.names("lake/weekly") if name.endswith(".parquet")]
    key = f"other/weekly/{name}"
    store.client.put_object(Bucket=BUCKET, Key=key, Body=b"of somebody else")
    with pytest.raises(PublishError, match="something else has the name of the run's data file"):
        publish(file, "one", folder=f"s3://{BUCKET}/other")
    assert store.get(f"s3://{BUCKET}/{key}") == b"of somebody else"
    assert store.names("other/weekly") == [name]


def test_the_environment_does_not_take_the_condition_from_a_commit(
    store: Store, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    asked, put = [], S3Response.put_object

    def noted(said: S3Response) -> Any:
        asked.append((said.parse_key_name(), said.headers.get("If-None-Match")))
        return put(said)

    monkeypatch.setattr(S3Response, "put_object", noted)
    for run_id in ("one", "two"):
        publish(published(tmp_path / "out"), run_id)
    logs = [condition for name, condition in asked if name.endswith(".json")]
    assert (logs, {condition for _, condition in asked}) == (["*", "*"], {"*"})


# Kills, and stores that fall silent.

STEPS = [
    ("add to a table", "before", 1),
    ("add to a table", "after", 1),
    ("deliver", "after", 1),
    ("deliver", "after", 2),
]


@pytest.mark.parametrize(
    "step",
    [pytest.param(step, marks=[] if step == STEPS[1] else [pytest.mark.slow]) for step in STEPS],
    ids=lambda step: f"{step[1]} {step[0]} {step[2]}",
)
@pytest.mark.parametrize("ledger", ["ledger", pytest.param("none", marks=pytest.mark.slow)])
def test_after_a_kill_the_same_command_leaves_one_commit_of_one_release_in_a_bucket(
    shop: Shop, store: Store, call: Call, step: tuple[str, str, int], ledger: str
) -> None:
    shop.write(stages={"weekly": stage(), "listed": stage(partitions=LISTED)}, outputs={"delta": LAKE})
    url = str(shop.folder / DEFAULT_NAME) if ledger == "ledger" else "none"
    kill(shop, url, *step)
    for _ in range(2):
        said = run(shop, call, "one", "--ledger", url, out=shop.folder / "out")
        assert (said.code, said.err) == (0, "")
    for name in ("weekly", "listed"):
        assert table(f"{LAKE}/{name}").version() == 0
        assert runs_in(f"{LAKE}/{name}") == {"one": rows_of(shop.folder / "out" / f"{name}.parquet")}
        assert len([file for file in store.names(f"lake/{name}") if file.endswith(".parquet")]) == 1
    if ledger == "ledger":
        assert shop.charged() == 1


@pytest.mark.parametrize("out", ["out", f"s3://{BUCKET}/reports/one"])
@pytest.mark.parametrize("step", ["put", "opened"])
def test_a_store_that_falls_silent_after_the_charge_gets_the_rest_from_the_same_command(
    shop: Shop, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch, out: str, step: str
) -> None:
    shop.write(outputs={"delta": LAKE})
    place = out if out.startswith("s3://") else shop.folder / out
    real, calls = getattr(DeltaBucket, step), []

    def silent(self: DeltaBucket, *given: Any) -> Any:
        calls.append(step)
        if len(calls) == (1 if step == "put" else 2):  # the first look is the one before the charge
            store.stop()
        return real(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaBucket, step, silent)
        said = run(shop, call, "one", out=place)
    assert said.code == 1
    assert f"Delta table {WEEKLY!r}: the store does not answer; the release is published in {str(place)!r}" in said.err
    assert "then run the same command again, which costs nothing" in said.err
    assert SECRET not in said.err
    with object_stores.store(empty=False):
        again = run(shop, call, "one", out=place)
        assert (again.code, again.err, shop.charged()) == (0, "", 1)
        assert list(runs_in()) == ["one"]
    assert not list(own_cache.folder().rglob("*.parquet"))


# Refusals before the charge.


class _Refusing(http.server.BaseHTTPRequestHandler):
    """A store that knows nobody."""

    def do_GET(self) -> None:
        body = b"<Error><Code>AccessDenied</Code><Message>key made-up-key may not</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_PUT = do_GET

    def log_message(self, *given: object) -> None:
        pass


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """The address of such a store."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("delta", "words"),
    [
        ("s3://no-such-bucket/lake", "Delta table 's3://no-such-bucket/lake/weekly': there is no such bucket"),
        (f"s3://key:{SECRET}@{BUCKET}/lake", f"outputs.delta: names 's3://...@{BUCKET}/lake' with somebody's credentials"),
        ("s3://", "outputs.delta: names no bucket that can be"),
        ("s3://a b/lake", "outputs.delta: names no bucket that can be"),
        (f"gs://key:{SECRET}@bucket/lake", "outputs.delta: names no local folder, and none of a bucket of S3"),
        *((f"{LAKE}/{part}/x", "names a folder with an empty part") for part in ("", ".", "..", "a%20b", "a#b", "a?b", "a\tb")),
        (f"{LAKE}/{'x' * 1000}", "cannot be created; choose a shorter name"),
    ],
)  # fmt: skip
def test_a_place_that_is_none_is_refused_unpaid_in_a_bucket(
    shop: Shop, store: Store, call: Call, delta: str, words: str
) -> None:
    shop.write(outputs={"delta": delta})
    said = run(shop, call, "one")
    assert (said.code, words in said.err, shop.charged()) == (2, True, 0), said.err
    assert SECRET not in said.err
    assert store.client.list_objects_v2(Bucket=BUCKET).get("Contents", []) == []
    assert shop.left() == []


def test_a_url_in_a_table_of_one_name_is_read_alike_by_all(store: Store, tmp_path: pathlib.Path) -> None:
    """What `folder_of` lets pass has its log and its data in one folder."""
    file = published(tmp_path / "out")
    for number, part in enumerate(
        ["a b", "a+b", "ä", "日本", "a=b", "a'b", 'a"b', "a{b}", "a\\b", "a:b", "a&b", "a[b", "a.", " a"]
    ):
        folder = delta_place.folder_of(f"s3://{BUCKET}/f{number}/{part}", tmp_path)
        publish(file, "one", folder=folder)
        assert {name.rpartition("/weekly/")[0] for name in store.names(f"f{number}")} == {part}
        assert table(f"{folder}/weekly").to_pyarrow_table().num_rows == len(ROWS)


def test_a_store_that_does_not_answer_or_refuses_the_user_is_told_unpaid(
    shop: Shop, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(outputs={"delta": LAKE})
    with refusing() as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        refused = run(shop, call, "one")
    silent = run(shop, call, "one")
    for said, words in ((refused, "the store refuses this user"), (silent, "the store does not answer")):
        assert (said.code, f"Delta table {WEEKLY!r}: {words}; check AWS_" in said.err) == (2, True), said.err
        assert "made-up-key" not in said.err
    assert (shop.charged(), shop.left()) == (0, [])


@pytest.mark.parametrize(("package", "extra"), [("boto3", "s3"), ("deltalake", "delta")])
def test_packages_that_are_missing_are_told_unpaid_and_after(
    shop: Shop, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    shop.write(stages={"weekly": stage(), "listed": stage(partitions=LISTED)}, outputs={"delta": LAKE})
    install = f"install the extra: pip install 'dp-pipelines[{extra}]'"
    hint = f"error: outputs.delta: needs packages that are not installed; {install}\n"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        before = run(shop, call, "one")
        assert (before.code, before.err, shop.charged()) == (2, hint, 0)
    assert run(shop, call, "one").code == 0
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        after = run(shop, call, "one", out=shop.folder / "again")
        assert (after.code, after.err) == (2, hint)
    assert shop.charged() == 1


def test_writers_that_lock_tables_elsewhere_are_refused(
    shop: Shop, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(outputs={"delta": LAKE})
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
    said = run(shop, call, "one")
    assert (said.code, "and AWS_S3_LOCKING_PROVIDER names another way" in said.err, shop.charged()) == (2, True, 0)
    assert store.names("lake") == []


@pytest.mark.parametrize(
    ("delta", "output"),
    [
        ("out", "out"),
        ("out/lake", "out"),
        ("lake", "lake/weekly"),
        ("lake", "lake/weekly/a"),
        ("old/lake", "out"),
        ("old", "out"),
    ],
)
def test_a_table_and_a_release_lie_apart_in_a_bucket(
    shop: Shop, store: Store, call: Call, delta: str, output: str
) -> None:
    weekly = {"weekly": stage(partitions=LISTED)}
    shop.write(budget=WEEKS, stages=weekly)
    assert run(shop, call, "old", out=f"s3://{BUCKET}/old").code == 0
    before = store.client.list_objects_v2(Bucket=BUCKET)["Contents"]
    shop.write(budget=WEEKS, stages=weekly, outputs={"delta": f"s3://{BUCKET}/{delta}"})
    said = run(shop, call, "one", out=f"s3://{BUCKET}/{output}")
    assert (said.code, "lie in one another" in said.err, shop.charged()) == (2, True, 1), said
    assert str(own_cache.folder()) not in said.err
    assert store.client.list_objects_v2(Bucket=BUCKET)["Contents"] == before


def test_names_that_begin_alike_are_apart(store: Store) -> None:
    place = DeltaBucket(WEEKLY)
    for other in (f"{WEEKLY}2", f"{LAKE}/week", f"{LAKE}2", "s3://another/lake/weekly", "/lake/weekly"):
        assert place.overlapping(place_of(other)) is None
    for other in (WEEKLY, f"{WEEKLY}/a", f"{LAKE}/"):
        assert place.overlapping(place_of(other)) == other.rstrip("/")


def test_whoever_may_not_read_above_the_tables_may_publish(
    shop: Shop, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may read what in a bucket is often said by the beginnings of names."""
    get = S3Response.get_object

    def only_tables(asked: S3Response) -> Any:
        return (
            get(asked)
            if asked.parse_key_name().startswith("lake/weekly/")
            else (403, {}, "<Error><Code>AccessDenied</Code></Error>")
        )

    monkeypatch.setattr(S3Response, "get_object", only_tables)
    shop.write(outputs={"delta": LAKE})
    assert run(shop, call, "one").code == 0
    assert table().version() == 0


def refusal(schema: pa.Schema = ROWS.schema, dataset: str = "shop", run: str = "new") -> str:
    """What is said of the table before a run."""
    try:
        DeltaOutput(folder=LAKE, mode="append").refuse_unready("weekly", schema, transaction_of(dataset, run))
    except RequestError as error:
        return str(error)
    return ""


def test_a_table_that_cannot_take_a_run_is_refused(store: Store, tmp_path: pathlib.Path) -> None:
    assert (refusal(), store.names("lake")) == ("", [])
    publish(published(tmp_path / "out"), "one")
    there = store.names("lake")
    assert refusal() == ""
    assert "has a run of this id already" in refusal(run="one")
    assert "is of dataset 'shop', whose run ids are its own" in refusal(dataset="another")
    assert "has column 'n' as \"double\", and the release none" in refusal(pa.schema([("k", pa.string())]))
    store.client.put_object(Bucket=BUCKET, Key=f"lake/weekly/_delta_log/{0:020}.json", Body=b"{}")
    assert (
        refusal() == f"Delta table {WEEKLY!r}: is not a Delta table that can be read; choose another folder for delta:"
    )
    assert store.names("lake") == there


def test_describe_names_the_bucket(shop: Shop, store: Store, call: Call) -> None:
    shop.write(outputs={"delta": LAKE})
    said = call("describe", shop.job, "--output", shop.folder / "page.md")
    assert said.code == 0, said.err
    assert f"the same rows in Delta tables under {LAKE}" in (shop.folder / "page.md").read_text()
