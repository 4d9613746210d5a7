"""A deleted extension is gone, with its command, its help and its public names, and everything else works.

In: a copy of the distribution in which the folder of an extension is missing. Out: what processes over the copy print and their
exit codes. Not covered: types and all tests of the core without the folder.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import dp_pipelines.transforms
from dp_pipelines import extensions
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.spec import job_schemas
from tests.helpers.extension_folders import needs
from tests.helpers.source import PACKAGE_FOLDERS, ROOT, modules


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    """Skip what is about an extension that the checkout itself does not have."""
    given = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if "extension" in given and not extensions.has_folder(given["extension"]):
        pytest.skip(f"needs the extension {given['extension']}")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a copy of the distribution. All tests share it, so that its modules are compiled once."""
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__")
    for package, source in PACKAGE_FOLDERS.items():
        shutil.copytree(ROOT / source, folder.joinpath(*package.split(".")), ignore=ignored, dirs_exist_ok=True)
    return folder


@contextlib.contextmanager
def without(extension: str, copy: pathlib.Path) -> Iterator[pathlib.Path]:
    """Take an extension out of the copy meanwhile, and return its folder, which does not exist then."""
    folder, aside = copy / "dp_pipelines" / "extensions" / extension, copy / extension
    folder.rename(aside)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)


def python(copy: pathlib.Path, program: str, *arguments: str, folder: pathlib.Path) -> str:
    """Return what a program prints that finds the copy before the checkout and ends well.

    Args:
        copy: of the distribution.
        program: in Python.
        arguments: of it.
        folder: it begins there.
    """
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


COMMANDS = """
import contextlib, io, json, sys
from dp_pipelines.jobs.cli import main
answers = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main.main(command)
        except SystemExit as end:
            code = end.code or 0
    answers.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""
"""A program that runs commands one after the other, and prints their exit codes, output and messages."""


def answers(copy: pathlib.Path, folder: pathlib.Path, *commands: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Return the exit code, the output and the messages of each command, in a process over the copy."""
    given: list[Any] = json.loads(python(copy, COMMANDS, json.dumps(commands), folder=folder))
    return [tuple(answer) for answer in given]


def commands() -> list[tuple[str, str]]:
    """Return the name and the extension of each built-in command that an extension offers."""
    named = [(*key.split(":"), path.split(".")[2]) for key, path in extensions.BUILT_IN.items()]
    return [(name, extension) for kind, name, extension in named if kind == "command"]


@pytest.mark.parametrize("has_bytecode", [False, True], ids=["no folder", "a folder of bytecode alone"])
@pytest.mark.parametrize(("name", "extension"), commands())
def test_a_deleted_extension_takes_its_command_and_help_with_it(
    name: str, extension: str, has_bytecode: bool, copy: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with without(extension, copy) as gone:
        if has_bytecode:
            (gone / "__pycache__").mkdir(parents=True)
        listing, *refused = answers(copy, tmp_path, ("--help",), (name, "job.yaml"), (name, "--help"))
    assert (listing[0], listing[2]) == (0, "")
    assert f"\n    {name} " in main.parser().format_help()
    assert f"\n    {name} " not in listing[1]
    for code, out, message in refused:
        assert (code, out) == (2, "")
        assert message.startswith(f"error: command '{name}': needs the extension '{extension}', which is not installed")


def public_names() -> list[tuple[str, str, str]]:
    """Return the facade, the name and the extension of each public name that an extension offers."""
    return [
        (facade.__name__, name, module.split(".")[1])
        for facade in (dp_pipelines, dp_pipelines.transforms)
        for name, module in facade._ROOMS.items()
        if module.startswith("extensions.")
    ]


NAMES = """
import importlib, json, sys
facade, name, other = sys.argv[1:]
answers = []
for program in (f"from {facade} import {name}", f"import {facade}\\n{facade}.{name}", f"from {facade} import {other}"):
    try:
        exec(program, {})
        answers.append("imported")
    except ImportError as error:
        answers.append(str(error))
offered = {}
exec(f"from {facade} import *", offered)
print(json.dumps([*answers, name in offered, name in dir(importlib.import_module(facade))]))
"""
"""A program that imports a name of a facade and another one, and prints what came of it and whether the name is offered."""


@pytest.mark.parametrize(("facade", "name", "extension"), public_names())
def test_a_deleted_extension_takes_its_public_names_with_it(
    facade: str, name: str, extension: str, copy: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    arguments = (facade, name, "PrivateCount" if facade.endswith("transforms") else "Plan")
    assert json.loads(python(copy, NAMES, *arguments, folder=tmp_path)) == [*["imported"] * 3, True, True]
    with without(extension, copy):
        taken, reached, *others = json.loads(python(copy, NAMES, *arguments, folder=tmp_path))
    assert others == ["imported", False, False]
    for message in (taken, reached):
        assert message.startswith(f"name '{name}': needs the extension '{extension}', which is not installed")


def features(kinds: tuple[str, ...]) -> dict[str, list[tuple[str, str]]]:
    """Return the kind and the name of each built-in feature of some kinds, by extension."""
    found: dict[str, list[tuple[str, str]]] = {}
    for key, path in extensions.BUILT_IN.items():
        kind, _, name = key.partition(":")
        if kind in kinds:
            found.setdefault(path.split(".")[2], []).append((kind, name))
    return found


JOB = """
dataset: shop
privacy_unit: customer
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {csv: rows.csv, types: {customer: string}}
stages: {all: {kind: aggregate, partition_by: [], bounds: {max_contributions_per_partition: 1}, metrics: {n: {kind: count}}}}
"""
SOURCE = "source: {csv: rows.csv, types: {customer: string}}"


@pytest.mark.parametrize("extension", features(("reader", "output")))
def test_a_deleted_extension_takes_its_keys_of_job_files_with_it(
    extension: str, copy: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    named = features(("reader", "output"))[extension]
    for kind, name in named:
        changed = (
            JOB.replace(SOURCE, f"source: {{{name}: rows}}") if kind == "reader" else f"{JOB}outputs: {{{name}: lake}}"
        )
        (tmp_path / f"{kind}-{name}.yaml").write_text(changed)
    (tmp_path / "job.yaml").write_text(JOB)
    plans = [("plan", f"{kind}-{name}.yaml") for kind, name in named]
    with without(extension, copy):
        *refused, planned, printed = answers(copy, tmp_path, *plans, ("plan", "job.yaml"), ("schema",))
    assert planned[0] == 0, "a job without these keys has a plan"
    for (kind, name), (code, _, message) in zip(named, refused, strict=True):
        place = f"{'source' if kind == 'reader' else 'outputs'}.{name}"
        assert code == 2
        assert f": {place}: needs the extension '{extension}', which is not installed; install " in message
    schema, whole = json.loads(printed[1]), job_schemas.schema()
    for kind, name in named:
        for part in ("SourceModel", "TableModel") if kind == "reader" else ("OutputsModel",):
            assert name in whole["$defs"][part]["properties"]
            assert name not in schema["$defs"][part]["properties"]
            assert name not in json.dumps(schema["$defs"][part])


@pytest.mark.parametrize(
    ("name", "extension"),
    [(name, extension) for extension, named in features(("runner",)).items() for _, name in named],
)
def test_a_deleted_extension_takes_its_runner_and_help_with_it(
    name: str, extension: str, copy: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("customer\na\n")
    (tmp_path / "job.yaml").write_text(JOB)
    job, helped = ("run", "job.yaml", "--output", "out", "--ledger", "none"), ("run", "--help")
    with without(extension, copy):
        listing, refused = answers(copy, tmp_path, helped, (*job, "--runner", name))
        assert not (tmp_path / "out").exists()
        [by_another_runner] = answers(copy, tmp_path, job)
    assert refused[0] == 2
    assert refused[2].startswith(f"error: --runner {name}: needs the extension '{extension}', which is not installed")
    with pytest.raises(SystemExit):
        main.main(list(helped))
    assert name in capsys.readouterr().out
    assert name not in listing[1]
    assert by_another_runner[0] == 0
    assert (tmp_path / "out").exists()


STATEMENT_JOB = """
dataset: shop
privacy_unit: customer
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: rows.parquet}
stages:
  all:
    kind: aggregate
    bounds: {max_partitions_contributed: 1, max_contributions_per_partition: 1}
    select: SELECT count(*) AS n FROM source
"""

WITHOUT_STATEMENTS = """
import contextlib, io
import pyarrow as pa, pyarrow.parquet
import dp_pipelines as dp
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.spec import stage_keys

pyarrow.parquet.write_table(pa.table({"customer": [1, 2]}), "rows.parquet")
assert main.main(["plan", "by_hand.yaml"]) == 0
with contextlib.redirect_stderr(io.StringIO()) as message:
    assert main.main(["plan", "statement.yaml"]) == 2
print(message.getvalue())
assert stage_keys.trials() == {}
session = dp.Session("rows.parquet", privacy_unit="customer", dataset="notebook", epsilon=1, delta=1e-6)
try:
    session.sql("SELECT count(*) AS n FROM source", name="a", epsilon=0.5)
except dp.RequestError as error:
    print(f"refused: {error}")
assert main.main(["schema"]) == 0
"""


@needs("sql_select")
def test_a_deleted_extension_takes_its_key_of_stages_with_it(copy: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "statement.yaml").write_text(STATEMENT_JOB)
    by_hand = STATEMENT_JOB.replace("select: SELECT count(*) AS n FROM source", "metrics: {n: {kind: count}}")
    (tmp_path / "by_hand.yaml").write_text(by_hand.replace("kind: aggregate", "kind: aggregate\n    partition_by: []"))
    with without("sql_select", copy):
        printed = python(copy, WITHOUT_STATEMENTS, folder=tmp_path)
    needed = "needs the extension 'sql_select', which is not installed; install "
    assert f"error: statement.yaml:10: stages.all.select: {needed}" in printed
    assert f"refused: statement: {needed}" in printed
    assert "SelectStage" in json.dumps(job_schemas.schema())
    assert "SelectStage" not in printed


ALL_KEYS_HIDDEN = "\n  --kind", "--questions", "collected stages"


@pytest.mark.parametrize(("name", "extension"), [(n, e) for e, named in features(("job",)).items() for _, n in named])
def test_a_deleted_extension_takes_its_kind_of_job_with_it(
    name: str, extension: str, copy: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "reports.yaml").write_text(f"dataset: visits\nsource: {{csv: a.csv}}\nstages:\n  a: {{kind: {name}}}\n")
    calls = [("plan", "reports.yaml"), ("run", "reports.yaml", "--output", "out"), ("ledger", "show", "reports.yaml")]
    with without(extension, copy):
        *refused, other, helped, printed = answers(
            copy,
            tmp_path,
            *calls,
            ("audit", "reports.yaml"),
            ("plan", "job.yaml"),
            ("ledger", "init", "--help"),
            ("schema",),
        )
    for code, out, message in refused:
        assert (code, out) == (2, "")
        assert message.startswith(
            f"error: reports.yaml:4: stages.a.kind: needs the extension '{extension}', which is not "
        )
    assert other[0] == 0, "a job over tables has a plan"
    assert not (tmp_path / "out").exists()
    assert [words for words in ALL_KEYS_HIDDEN if words in helped[1]] == []
    assert name not in printed[1]


@needs("two_organisations")
def test_a_deleted_extension_takes_its_way_to_run_a_job_with_it(copy: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "rows.csv").write_text("customer\na\n")
    (tmp_path / "job.yaml").write_text(JOB)
    members = ", ".join(
        f"{name}: {{address: '127.0.0.1:{port}'}}" for name, port in zip("abc", range(4001, 4004), strict=True)
    )
    (tmp_path / "together.yaml").write_text(f"{JOB}parties: {{members: {{{members}}}}}\n")
    run = ("run", "together.yaml", "--output", "out", "--ledger", "book.sqlite")
    with without("two_organisations", copy):
        *refused, optioned, other, helped, printed = answers(
            copy, tmp_path, run, ("plan", "together.yaml"), (*run, "--party", "a"),
            ("plan", "job.yaml"), ("run", "--help"), ("schema",),
        )  # fmt: skip
    for code, out, message in refused:
        assert (code, out) == (2, "")
        assert ": parties: needs the extension 'two_organisations', which is not installed; install " in message
    assert optioned[0] == 2
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "book.sqlite").exists()
    assert other[0] == 0, "a job without the key has a plan"
    assert "--party" not in helped[1]
    defined, whole = json.loads(printed[1])["$defs"], job_schemas.schema()["$defs"]
    assert "parties" in whole["Job"]["properties"]
    assert "parties" not in defined["Job"]["properties"]
    assert whole.keys() - defined.keys() == {"PartiesModel", "Member"}


LEDGER = """
import sys
from dp_pipelines.extensions.local_dp import answers_ledger
from dp_pipelines.extensions.local_dp.answers import AnswerLimits, AskedQuestion, Asking
from dp_pipelines.ledger.ledger import Ledger

ledger = Ledger.create(sys.argv[1])
ledger.open_account("shop", unit=["customer"], words="one customer", epsilon=2.0, delta=1e-5)
limits = AnswerLimits(epsilon=3.0, questions=2, question_epsilon=2.0)
answers_ledger.open_account(ledger, "visits", kind="local", limits=limits, patterns=["/reports/*.csv"])
asked = [Asking(questions=(AskedQuestion(name="age", document="7d1f", mechanism="unary", epsilon="1.5"),))]
run = answers_ledger.admit_estimate(ledger, "visits", "monday", askings=asked, asked="x", content="c", params={})
run = ledger.start(run, attempt="a", staging="/none", where={})
ledger.commit(ledger.staged(run, attempt="a", files={}), attempt="a", files={"t.parquet": b"x"})
ledger.claim_source("visits", "/more/*.csv")
print(ledger.head.seq, ledger.head.hash)
"""
"""A program that makes a ledger with accounts of both kinds, and prints its head."""


@needs("local_dp")
@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_a_ledger_with_an_account_of_a_deleted_extension_verifies_and_nothing_is_added(
    place: str, copy: pathlib.Path, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "book.sqlite") if place == "sqlite" else str(request.getfixturevalue(place))
    (tmp_path / "rows.csv").write_text("customer\na\n")
    (tmp_path / "job.yaml").write_text(JOB)
    head = python(copy, LEDGER, url, folder=tmp_path)
    there = ("--ledger", url)
    reads = [("ledger", "verify", *there), ("ledger", "show", *there), ("ledger", "show", "--json", *there)]
    reads += [("ledger", "export", "--format", form, *there) for form in ("json", "csv", "html")]
    reads += [("runs", *there)]
    writes = [
        ("ledger", "raise", "--dataset", "shop", "--epsilon", "4", *there),
        ("ledger", "raise", "--dataset", "visits", "--epsilon", "4", *there),
        ("ledger", "init", "--dataset", "new", "--unit", "u", "--epsilon", "1", "--delta", "1e-6", *there),
        ("ledger", "verify", "--accept", *there),
        ("run", "job.yaml", "--output", "out", *there),
    ]
    with without("local_dp", copy):
        done = answers(copy, tmp_path, *reads, *writes, reads[0])
    read, refused, last = done[: len(reads)], done[len(reads) : -1], done[-1]
    assert [(code, message) for code, _, message in read] == [(0, "")] * len(reads)
    seq, hashed = head.split()
    assert read[0][1] == last[1] == f"sound: {seq} events, head {hashed}\n"
    needed = "needs the extension 'local_dp', which is not installed"
    assert f"visits · {needed}; nothing can be added to this ledger" in read[1][1]
    assert json.loads(read[2][1])["not_installed"] == {"visits": needed}
    for code, out, message in refused:
        assert (code, out) == (2, "")
        assert needed in message
        assert "'visits'" in message
    assert not (tmp_path / "out").exists()
    [whole] = answers(copy, tmp_path, reads[0])
    assert whole[:2] == (0, read[0][1]), "with the extension it is as it was"


IMPORT_ALL = """
import importlib.util, os, pathlib, sys

core, extensions, folder = sys.argv[1].split(), sys.argv[2].split(), pathlib.Path("dp_pipelines/extensions")
names = {path.parent.name for path in folder.glob("*/__init__.py")}
for name in names:
    (folder / name).rename(name)
for module in core:
    importlib.import_module(module)
for name in names:
    pathlib.Path(name).rename(folder / name)
for name in sorted(names):
    (folder / name).rename(name)
    importlib.invalidate_caches()
    child = os.fork()
    if child == 0:
        gone = f"dp_pipelines.extensions.{name}"
        for module in extensions:
            if f"{module}.".startswith(f"{gone}."):
                continue
            importlib.import_module(module)
        assert importlib.util.find_spec(gone) is None
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"not every module is imported without {name}"
    pathlib.Path(name).rename(folder / name)
    print(name)
"""
"""A program that imports the core without any extension, and then, for each extension, all the others without that one."""


@pytest.mark.slow
def test_without_an_extension_every_other_module_is_imported(copy: pathlib.Path) -> None:
    first = "dp_pipelines.extensions."
    others = [name for name in modules() if name.startswith(first)]
    core = [name for name in modules() if not name.startswith(first)]
    printed = python(copy, IMPORT_ALL, " ".join(core), " ".join(others), folder=copy)
    assert printed.split() == sorted(
        path.parent.name for path in (ROOT / first.replace(".", "/")).glob("*/__init__.py")
    )
