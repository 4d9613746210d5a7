"""An extension of another distribution adds a format of sources, an output and a command, without a change in the core.

In: a distribution with entry points, made in a temporary folder. Out: the schema, help, a run, refusals. Not covered: built-in
extensions (`tests/extensions`), and what is wrong with a command that cannot be used (`tests/extensions/test_table.py`).
"""

import json
import pathlib
import sys
import zipfile
from collections.abc import Callable

import pyarrow.parquet
import pytest

from dp_pipelines import extensions
from tests.jobs.conftest import Said

TOY = """
import dataclasses, pathlib
import pyarrow as pa
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import readers, source_files
from dp_pipelines.jobs.spec.base_models import JobModel
from dp_pipelines.jobs.spec.extension_keys import OutputKeys, SourceKey
from dp_pipelines.steps.step import Step


class Lines(Step):
    def __init__(self, types):
        self._types = types

    def process(self, path):
        yield pa.table({name: pa.array([], kind) for name, kind in self._types.items()})
        words = [line.split() for line in pathlib.Path(path).read_text().splitlines()]
        columns = {"who": [who for who, _ in words], "what": [what for _, what in words]}
        yield pa.table({name: columns[name] for name in self._types})


class WordsReader(readers.TableReader):
    def tables(self, start, files, types, shuffled=readers.UNKNOWN):
        return readers.known(start, files).each("Read", Lines(dict(types)))


class Words:
    keys = SourceKey(model=str, description="A file of two words a line.", called="files of words")

    def look(self, declared):
        files = source_files.find(declared.value, declared.folder)
        schema = pa.schema([("who", pa.string()), ("what", pa.string())])
        return source_files.Source(
            files=files, schema=schema, sizes={}, types=None, missing={}, rows=1, reader=WordsReader()
        )

    def refuse_absent(self, declared):
        source_files.find(declared.value, declared.folder)

    def snapshot(self, declared):
        return None


@dataclasses.dataclass
class Copies:
    folder: pathlib.Path

    def needed(self): pass
    def refuse_place(self, name, release): pass
    def refuse_unready(self, name, schema, transaction): pass
    def to_json(self): return {"sort": "copy"}

    def refused(self, schema):
        if "bad" in schema.names:
            yield "bad", "is bad", "rename it"

    def publish(self, name, file, transaction, run_id):
        self.folder.mkdir(exist_ok=True)
        (self.folder / (transaction.replace("/", "_") + "_" + file.name)).write_bytes(file.read_bytes())


class Shelf:
    keys = OutputKeys(
        fields={"shelf": (str | None, None), "shelf_mode": (str, "plain"), "files": (int, 7)},
        described="copies under", delivered="copied to the shelf",
    )

    def bind(self, said, folder, values):
        if said["shelf_mode"] != "plain":
            raise RequestError(field="", message="has no such mode", hint="write plain")
        return Copies(folder / said["shelf"])


class Hello:
    example = ("hello you", "say hello")
    takes_runner = needs_arrow = defers_collection = False

    def add(self, make):
        make("hello", "greet somebody", "").add_argument("name")

    def run(self, given, rest):
        print("hello", given.name)
        return 0


class Ends:
    @property
    def keys(self):
        raise SystemExit(0)


class NoModel:
    keys = SourceKey(model=object(), description="No type at all.")


READER, OUTPUT, COMMAND, NOTHING, ENDS, NO_MODEL = Words(), Shelf(), Hello(), object(), Ends(), NoModel()
"""

JOB = """
dataset: toys
privacy_unit: who
budget: {epsilon: 8.0, delta: 1.0e-5}
source: {words: rows.txt}
outputs: {shelf: shelf}
stages:
  all:
    kind: aggregate
    partition_by: [what]
    partitions: {public: [[ball], [bear]]}
    bounds: {max_partitions_contributed: 1, max_contributions_per_partition: 1}
    metrics: {n: {kind: count}}
"""


@pytest.fixture
def toys(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder with a job that uses the keys of a distribution on the path of this process."""
    metadata = tmp_path / "toys-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    names = {"reader:words": "READER", "output:shelf": "OUTPUT", "command:hello": "COMMAND", "reader:empty": "NOTHING",
             "reader:ends": "ENDS", "reader:no_model": "NO_MODEL"}  # fmt: skip
    lines = [f"{name} = toy_extension:{attribute}" for name, attribute in names.items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{extensions.GROUP}]", *lines, ""]))
    (tmp_path / "toy_extension.py").write_text(TOY)
    (tmp_path / "rows.txt").write_text("".join(f"u{i} {('ball', 'bear')[i % 2]}\n" for i in range(200)))
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_toy_reader_output_and_command_need_no_change_in_the_core(
    toys: pathlib.Path, call: Callable[..., Said]
) -> None:
    defined = json.loads(call("schema").out)["$defs"]
    assert defined["SourceModel"]["properties"]["words"]["description"] == "A file of two words a line."
    assert {"words", "where", *extensions.built_in("reader")} <= set(defined["TableModel"]["properties"])
    assert {"shelf", "shelf_mode", "files"} <= set(defined["OutputsModel"]["properties"])
    assert "csv" in json.dumps(defined["OutputsModel"]["properties"]["files"]), "a key of the core stays as it is"
    assert "greet somebody" in call("--help").out
    assert call("hello", "you").out == "hello you\n"
    run = ("run", toys / "job.yaml", "--output", toys / "out", "--run-id", "one")
    said = call(*run)
    assert said.code == 0, said.err
    assert said.out.endswith("\nshelf      all: copied to the shelf\n")
    table = pyarrow.parquet.read_table(toys / "out" / "all.parquet")
    assert table["what"].to_pylist() == ["ball", "bear"]
    assert all(abs(count - 100) < 60 for count in table["n"].to_pylist())
    assert (toys / "shelf" / "dp_pipelines_toys_one_all.parquet").read_bytes() == (
        toys / "out" / "all.parquet"
    ).read_bytes()
    outputs = json.loads((toys / "out" / "manifest.json").read_text())["outputs"]
    assert outputs == {"shelf": {"tables": ["all"], "sort": "copy", "transaction": "dp_pipelines/toys/one"}}
    assert call(*run).code == 0, "the same run again is the stored release"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            ("words: rows.txt", "words: rows.txt, types: {who: string}"),
            "is for csv: and jsonl: only; files of words have types",
        ),
        (("words: rows.txt", "wards: rows.txt"), "source.wards: unknown key"),
        (("words: rows.txt", "words: none.txt"), "source: matches no file"),
        (("words: rows.txt", "empty: rows.txt"), "reader 'empty': its extension does not say which keys it has"),
        (("words: rows.txt", "ends: rows.txt"), "reader 'ends': its extension does not say which keys it has"),
        (("words: rows.txt", "no_model: rows.txt"), "reader 'no_model': its extension does not say which keys it has"),
        (("shelf: shelf", "shelf: null, shelf_mode: plain, files: [csv]"), "outputs.shelf_mode: is for shelf: only"),
        (("shelf: shelf", "shelf: shelf, shelf_mode: fancy"), "outputs.shelf: has no such mode"),
        (("metrics: {n:", "metrics: {bad:"), "outputs.shelf: column 'bad' of table 'all' is bad; rename it"),
    ],
)
def test_what_is_wrong_with_keys_of_a_toy_is_refused(
    changed: tuple[str, str], words: str, toys: pathlib.Path, call: Callable[..., Said]
) -> None:
    (toys / "job.yaml").write_text(JOB.replace(*changed))
    said = call("run", toys / "job.yaml", "--output", toys / "out")
    assert said.code == 2
    assert words in said.err
    assert not (toys / "out").exists()


def test_without_the_distribution_its_keys_are_unknown(
    toys: pathlib.Path, call: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    (toys / "toys-1.0.dist-info" / "entry_points.txt").unlink()
    said = call("plan", toys / "job.yaml")
    assert said.code == 2
    assert "source.words: unknown key" in said.err
    assert "outputs.shelf: unknown key" in said.err
    assert call("hello", "you").code == 2


@pytest.mark.parametrize("place", ["folder", "archive", "unreadable folder"])
def test_the_features_of_a_distribution_are_listed_wherever_it_is_installed(
    place: str, toys: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "archive":
        archive = tmp_path / "toys.zip"
        with zipfile.ZipFile(archive, "w") as written:
            for path in (*(toys / "toys-1.0.dist-info").iterdir(), toys / "toy_extension.py"):
                written.write(path, path.relative_to(toys))
        monkeypatch.setattr(sys, "path", [str(archive), *(folder for folder in sys.path if folder != str(toys))])
    if place == "unreadable folder":
        (toys / "more-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    assert extensions.third_party("command") == ["hello"]
    if place == "folder":
        (toys / "toys-1.0.dist-info" / "entry_points.txt").unlink()
        assert extensions.third_party("command") == []
