"""Rows in a store that speaks S3: what is public is refused unpaid, whatever the store does later ends a paid run, and says so.

In: the shop's files, in moto's server on this machine. Out: exit codes, messages, the ledger. Holds: a message names the URL, and
never a key. Not covered: Amazon's own service; the integers of each format (`tests/engines/test_object_stores.py`).
"""

import glob
import http.server
import os
import pathlib
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines import extensions
from dp_pipelines.engine import object_store
from dp_pipelines.errors import DamagedInputError
from dp_pipelines.jobs.run.production import Production
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.steps.read_files import ReadCsvFile
from tests.helpers import object_stores
from tests.helpers.object_stores import BUCKET, SECRET, Store
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
PUBLIC = {"listed": stage(partitions={"public": [["p0"], ["p1"]]})}


@pytest.fixture
def store() -> Iterator[Store]:
    with object_stores.store() as made:
        yield made


@pytest.fixture
def rows(store: Store, shop: Shop) -> str:
    """The URL of the shop's rows."""
    return store.put(shop.folder / "data", "data")


def test_the_local_runner_reads_a_bucket_without_beam(shop: Shop, rows: str) -> None:
    job = shop.write(source={"parquet": f"{rows}/*.parquet"}, stages=PUBLIC)
    asked = ["run", str(job), "--output", str(shop.folder / "out")]
    program = f"import sys; from dp_pipelines.jobs.cli import main; code = main.main({asked!r}); "
    program += "print(code, sorted(n for n in sys.modules if n in ('apache_beam', 'boto3')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
    assert shop.charged() == 1


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.csv", ["a.csv"]), ("**/*.csv", ["a.csv", "deep/b.csv", "deep/er/c.csv"]), ("*/b.csv", ["deep/b.csv"]),
        ("[!b].csv", ["a.csv"]), ("deep/b.csv", ["deep/b.csv"]), ("**", ["a.csv", "deep/b.csv", "deep/er/c.csv"]),
        (".*", [".half.csv"]), (".tmp/*", [".tmp/d.csv"]), ("**/.*.csv", [".half.csv", "deep/.half.csv"]),
    ],
)  # fmt: skip
def test_patterns_match_what_they_match_on_a_disk(
    store: Store, tmp_path: pathlib.Path, pattern: str, found: list[str]
) -> None:
    seen, hidden = (
        ("a.csv", "deep/b.csv", "deep/er/c.csv"),
        (".half.csv", "deep/.half.csv", ".tmp/d.csv", "deep/.tmp/e.csv"),
    )
    for name in seen + hidden:
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).write_text("k\n1\n")
    url = store.put(tmp_path / "x", "x")
    store.client.put_object(Bucket=BUCKET, Key="xy/other.csv", Body=b"k\n")  # only begins like the folder
    assert [name for name, _ in object_store.matching(f"{url}/{pattern}")] == [f"{url}/{name}" for name in found]
    on_disk = glob.glob(pattern, root_dir=tmp_path / "x", recursive=True)  # as `source_files.find_files`
    assert {name for name in on_disk if (tmp_path / "x" / name).is_file()} == set(found)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://no-such-bucket/data/*.parquet", "there is no such bucket"),
        (f"s3://{BUCKET}/none/*.parquet", "matches no file"),
        (f"s3://{BUCKET}/none.parquet", "matches no file"),
        ("s3://*/data/*.parquet", "the name of its bucket has a wildcard"),
    ],
)
def test_what_is_not_there_is_refused_unpaid(shop: Shop, rows: str, call: Call, url: str, words: str) -> None:
    job = shop.write(source={"parquet": url}, stages=PUBLIC)
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (2, 0)
    assert words in said.err
    assert url in said.err


def test_a_store_that_does_not_answer_is_refused_unpaid(
    shop: Shop, rows: str, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:password@127.0.0.1:9")
    url = f"{rows}/*.parquet"
    job = shop.write(source={"parquet": url}, stages=PUBLIC)
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (2, 0)
    assert f"names {url!r}, but the store does not answer; check AWS_ENDPOINT_URL" in said.err
    assert SECRET not in said.err
    assert "password" not in said.err


def test_credentials_in_a_url_are_refused_and_not_shown(shop: Shop, store: Store, call: Call) -> None:
    url = "s3://some-key:some-secret@bucket/data"
    job = shop.write(source={"parquet": url}, stages=PUBLIC)
    of_extensions = [name for name in ("check", "describe") if extensions.is_installed("command", name)]
    for command in ("plan", "run", *of_extensions):
        said = call(command, job, *(() if command == "plan" else ("--output", shop.folder / "out")))
        assert said.code == 2
        assert "s3://...@bucket/data" in said.err
        assert "some-" not in said.err + said.out
    assert shop.charged() == 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://some-key:some/some-secret@bucket/data", "'s3://...@bucket/data'"),
        ("https://host/data?size=1&X-Amz-Signature=some-secret&more=some-thing", "'https://host/data?size=1&...'"),
    ],
)
def test_a_secret_with_a_slash_or_in_a_query_is_refused_and_not_shown(
    shop: Shop, call: Call, url: str, shown: str
) -> None:
    for source, output in (({"parquet": url}, shop.folder / "out"), ({"parquet": "data/*.parquet"}, url)):
        said = call("run", shop.write(source=source, stages=PUBLIC), "--output", output)
        assert said.code == 2
        assert f"names {shown} with somebody's credentials" in said.err
        assert "some-" not in said.err + said.out
    assert shop.charged() == 0


def test_a_user_whom_the_store_refuses_is_told_so_unpaid(
    shop: Shop, rows: str, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moto.core.responses.ActionAuthenticatorMixin.request_count", 0)
    monkeypatch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
    job = shop.write(source={"parquet": f"{rows}/*.parquet"}, stages=PUBLIC)
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (2, 0)
    assert "but the store refuses this user; check AWS_ACCESS_KEY_ID" in said.err
    assert SECRET not in said.err
    assert "made-up-key" not in said.err


def test_a_footer_that_is_damaged_is_refused_and_a_row_group_ends_a_paid_run(
    shop: Shop, rows: str, store: Store, call: Call
) -> None:
    whole = store.get(f"{rows}/part-0.parquet")
    job = shop.write(source={"parquet": f"{rows}/*.parquet"}, stages=PUBLIC)
    store.client.put_object(Bucket=BUCKET, Key="data/part-0.parquet", Body=whole[:-9])
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (2, 0)
    assert f"file '{rows}/part-0.parquet': is not a complete Parquet file" in said.err
    damaged = whole[:40] + bytes(len(whole) // 2) + whole[40 + len(whole) // 2 :]
    store.client.put_object(Bucket=BUCKET, Key="data/part-0.parquet", Body=damaged)
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (1, 1)
    assert f"file '{rows}/part-0.parquet': a row group cannot be read; it is damaged; nothing was published" in said.err
    assert shop.left() == []


def test_a_store_that_falls_silent_ends_a_paid_run_and_the_same_command_finishes_it(
    shop: Shop, rows: str, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = shop.write(source={"parquet": f"{rows}/*.parquet"}, stages=PUBLIC)
    released = Production.release

    def after_the_end_of_the_store(self: Production, *given: object) -> object:
        store.stop()
        return released(self, *given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Production, "release", after_the_end_of_the_store)
        said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (1, 1)
    assert f"file '{rows}/part-" in said.err
    assert "cannot be read from its store; nothing was published" in said.err
    assert SECRET not in said.err
    assert shop.left() == []
    with object_stores.store() as other:
        other.put(shop.folder / "data", "data")
        said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (0, 1)


class CutOff(http.server.BaseHTTPRequestHandler):
    """Hands requests on to a store, and half of each answer with rows back."""

    endpoint = ""

    def do_HEAD(self) -> None:
        self._hand_on()

    def do_GET(self) -> None:
        self._hand_on()

    def _hand_on(self) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        asked = urllib.request.Request(self.endpoint + self.path, headers=headers, method=self.command)
        try:
            answer = urllib.request.urlopen(asked, timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.path.partition("?")[0].endswith(".parquet") else body)
        self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


def test_an_answer_that_is_cut_off_ends_with_the_code_of_what_passes(
    shop: Shop, rows: str, store: Store, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = shop.write(source={"parquet": f"{rows}/*.parquet"}, stages=PUBLIC)
    monkeypatch.setattr(CutOff, "endpoint", store.endpoint)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), CutOff) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.server_address[1]}")
        said = call("run", job, "--output", shop.folder / "out")
        proxy.shutdown()
    assert said.code == 1
    assert "cannot be read from its store; run the same command again" in said.err
    assert shop.left() == []


@pytest.fixture
def lines(store: Store) -> str:
    """The URL of a CSV file that is read in many pieces."""
    content = "k\n" + "".join(f"{number}\n" for number in range(600_000))
    store.client.put_object(Bucket=BUCKET, Key="a.csv", Body=content.encode())
    return f"s3://{BUCKET}/a.csv"


def read(url: str, between: Callable[[], object]) -> int:
    """The rows of a CSV file, between whose first and second table something happens."""
    tables = ReadCsvFile({"k": pa.int64()}, block=2**16, opener=object_store.open_object).process(url)
    first = [next(tables), next(tables)]
    between()
    return sum(table.num_rows for table in [*first, *tables])


def test_an_object_is_read_as_one(lines: str) -> None:
    assert read(lines, lambda: None) == 600_000


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(lines: str, store: Store) -> None:
    def replaced() -> None:
        content = store.get(lines)
        store.client.put_object(Bucket=BUCKET, Key="a.csv", Body=content.replace(b"5", b"6"))

    with pytest.raises(DamagedInputError, match=r"file 's3://shop-bucket/a.csv': was replaced while it was read"):
        read(lines, replaced)


def test_an_object_that_is_deleted_while_it_is_read_is_an_error(lines: str, store: Store) -> None:
    with pytest.raises(DamagedInputError, match=r"file 's3://shop-bucket/a.csv': "):
        read(lines, lambda: store.client.delete_object(Bucket=BUCKET, Key="a.csv"))


def test_a_store_that_falls_silent_within_an_object_is_told_apart_from_damage(lines: str, store: Store) -> None:
    with pytest.raises(DamagedInputError, match=r"file 's3://shop-bucket/a.csv': cannot be read from its store"):
        read(lines, store.stop)


def test_rows_of_a_bucket_belong_to_one_account(shop: Shop, rows: str, call: Call) -> None:
    job = shop.write(source={"parquet": f"{rows}/*.parquet"}, stages=PUBLIC)
    assert call("run", job, "--output", shop.folder / "one").code == 0
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    ledger.open_account("other", unit=["customer"], words="one customer", epsilon=1000.0, delta=0.5)
    ledger.close()
    shop.write(dataset="other", source={"parquet": f"{rows}/part-0.parquet"}, stages=PUBLIC)
    said = call("run", job, "--output", shop.folder / "two")
    assert (said.code, shop.charged()) == (2, 1)
    assert "shop" in said.err
