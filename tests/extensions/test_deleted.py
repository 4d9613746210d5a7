"""A deleted extension is gone, with its command, its help and its public names, and everything else works.

In: a copy of the distribution in which the folder of an extension is missing. Out: what processes over the copy print and their
exit codes. Not covered: types and all tests of the core without the folder.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import dp_pipelines.transforms
from dp_pipelines import extensions
from dp_pipelines.jobs.spec import job_schemas
from tests.helpers.source import PACKAGE_FOLDERS, ROOT, modules

IMPORT_ALL = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"


def without(extension: str, folder: pathlib.Path) -> pathlib.Path:
    """Copy the distribution, less one extension.

    Args:
        extension: the name of its folder.
        folder: an empty one.
    """
    ignored = shutil.ignore_patterns("__pycache__")
    for package, source in PACKAGE_FOLDERS.items():
        shutil.copytree(ROOT / source, folder.joinpath(*package.split(".")), ignore=ignored, dirs_exist_ok=True)
    shutil.rmtree(folder / "dp_pipelines" / "extensions" / extension)
    return folder


def python(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter that finds the copy before the checkout."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def commands() -> list[tuple[str, str]]:
    """Return the name and the extension of each built-in command that an extension offers."""
    named = [(*key.split(":"), path.split(".")[2]) for key, path in extensions.BUILT_IN.items()]
    return [(name, extension) for kind, name, extension in named if kind == "command"]


@pytest.mark.parametrize(("name", "extension"), commands())
def test_a_deleted_extension_takes_its_command_and_help_with_it(
    name: str, extension: str, tmp_path: pathlib.Path
) -> None:
    copy = without(extension, tmp_path)
    command = ("-m", "dp_pipelines.jobs.cli.main")
    listing = python(copy, *command, "--help")
    assert listing.returncode == 0
    assert f"\n    {name} " in python(ROOT, *command, "--help").stdout
    assert f"\n    {name} " not in listing.stdout
    for arguments in ((name, "job.yaml"), (name, "--help")):
        refused = python(copy, *command, *arguments)
        assert refused.returncode == 2
        assert refused.stderr.startswith(
            f"error: command '{name}': needs the extension '{extension}', which is not installed"
        )
        assert refused.stdout == ""


@pytest.mark.parametrize(("name", "extension"), commands())
def test_a_folder_of_bytecode_alone_is_not_an_extension(name: str, extension: str, tmp_path: pathlib.Path) -> None:
    copy = without(extension, tmp_path)
    (copy / "dp_pipelines" / "extensions" / extension / "__pycache__").mkdir(parents=True)
    refused = python(copy, "-m", "dp_pipelines.jobs.cli.main", name, "job.yaml")
    assert refused.returncode == 2
    assert "which is not installed" in refused.stderr
    listing = python(copy, "-m", "dp_pipelines.jobs.cli.main", "--help")
    assert (listing.returncode, listing.stderr) == (0, "")


def public_names() -> list[tuple[str, str, str]]:
    """Return the facade, the name and the extension of each public name that an extension offers."""
    return [
        (facade.__name__, name, module.split(".")[1])
        for facade in (dp_pipelines, dp_pipelines.transforms)
        for name, module in facade._ROOMS.items()
        if module.startswith("extensions.")
    ]


@pytest.mark.parametrize(("facade", "name", "extension"), public_names())
def test_a_deleted_extension_takes_its_public_names_with_it(
    facade: str, name: str, extension: str, tmp_path: pathlib.Path
) -> None:
    message = f"ImportError: name '{name}': needs the extension '{extension}', which is not installed"
    copy = without(extension, tmp_path)
    for program in (f"from {facade} import {name}", f"import {facade}\n{facade}.{name}"):
        assert python(ROOT, "-c", program).returncode == 0
        refused = python(copy, "-c", program)
        assert refused.returncode == 1
        assert message in refused.stderr.splitlines()[-1]
    others = f"from {facade} import PrivateCount" if facade.endswith("transforms") else f"from {facade} import Plan"
    assert python(copy, "-c", others).returncode == 0
    offered = f"from {facade} import *\nimport {facade}\nprint('{name}' in globals(), '{name}' in dir({facade}))"
    assert python(ROOT, "-c", offered).stdout == "True True\n"
    assert python(copy, "-c", offered).stdout == "False False\n"


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
COMMANDS = (
    "import json, sys\nfrom dp_pipelines.jobs.cli import main\nfor c in json.loads(sys.argv[1]): print(main.main(c))"
)
"""A program that runs commands one after the other and prints the exit code of each."""


@pytest.mark.parametrize("extension", features(("reader", "output")))
def test_a_deleted_extension_takes_its_keys_of_job_files_with_it(extension: str, tmp_path: pathlib.Path) -> None:
    copy = without(extension, tmp_path / "copy")
    named = features(("reader", "output"))[extension]
    commands = []
    for kind, name in named:
        changed = (
            JOB.replace(SOURCE, f"source: {{{name}: rows}}") if kind == "reader" else f"{JOB}outputs: {{{name}: lake}}"
        )
        (tmp_path / f"{kind}-{name}.yaml").write_text(changed)
        commands.append(["plan", str(tmp_path / f"{kind}-{name}.yaml")])
    (tmp_path / "job.yaml").write_text(JOB)
    refused = python(copy, "-c", COMMANDS, json.dumps([*commands, ["plan", str(tmp_path / "job.yaml")]]))
    assert refused.stdout.startswith("2\n" * len(commands))
    assert refused.stdout.endswith("\n0\n"), "a job without these keys has a plan"
    for (kind, name), line in zip(named, refused.stderr.splitlines()[: len(named)], strict=True):
        place = f"{'source' if kind == 'reader' else 'outputs'}.{name}"
        assert f": {place}: needs the extension '{extension}', which is not installed; install " in line
    printed = python(copy, "-m", "dp_pipelines.jobs.cli.main", "schema").stdout
    schema, whole = json.loads(printed), job_schemas.schema()
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
    name: str, extension: str, tmp_path: pathlib.Path
) -> None:
    copy, command = without(extension, tmp_path / "copy"), ("-m", "dp_pipelines.jobs.cli.main", "run")
    (tmp_path / "rows.csv").write_text("customer\na\n")
    (tmp_path / "job.yaml").write_text(JOB)
    job = ("../job.yaml", "--output", "../out", "--ledger", "none")
    refused = python(copy, *command, *job, "--runner", name)
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        f"error: --runner {name}: needs the extension '{extension}', which is not installed"
    )
    assert not (tmp_path / "out").exists()
    listing = python(copy, *command, "--help").stdout
    assert name in python(ROOT, *command, "--help").stdout
    assert name not in listing
    assert python(copy, *command, *job).returncode == 0, "another runner carries the job out"


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
import pyarrow as pa, pyarrow.parquet
import dp_pipelines as dp
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.spec import stage_keys

pyarrow.parquet.write_table(pa.table({"customer": [1, 2]}), "rows.parquet")
assert main.main(["plan", "by_hand.yaml"]) == 0
assert main.main(["plan", "statement.yaml"]) == 2
assert stage_keys.trials() == {}
session = dp.Session("rows.parquet", privacy_unit="customer", dataset="notebook", epsilon=1, delta=1e-6)
try:
    session.sql("SELECT count(*) AS n FROM source", name="a", epsilon=0.5)
except dp.RequestError as error:
    print(f"refused: {error}")
assert main.main(["schema"]) == 0
"""


def test_a_deleted_extension_takes_its_key_of_stages_with_it(tmp_path: pathlib.Path) -> None:
    copy = without("sql_select", tmp_path)
    (copy / "statement.yaml").write_text(STATEMENT_JOB)
    by_hand = STATEMENT_JOB.replace("select: SELECT count(*) AS n FROM source", "metrics: {n: {kind: count}}")
    (copy / "by_hand.yaml").write_text(by_hand.replace("kind: aggregate", "kind: aggregate\n    partition_by: []"))
    done = python(copy, "-c", WITHOUT_STATEMENTS)
    assert done.returncode == 0, done.stderr
    needed = "needs the extension 'sql_select', which is not installed; install "
    assert f"error: statement.yaml:10: stages.all.select: {needed}" in done.stderr
    assert f"refused: statement: {needed}" in done.stdout
    assert "SelectStage" in json.dumps(job_schemas.schema())
    assert "SelectStage" not in done.stdout


FOLDERS = sorted(path.parent.name for path in (ROOT / "dp_pipelines" / "extensions").glob("*/__init__.py"))


@pytest.mark.slow
@pytest.mark.parametrize("extension", FOLDERS)
def test_without_an_extension_every_other_module_is_imported(extension: str, tmp_path: pathlib.Path) -> None:
    gone = f"dp_pipelines.extensions.{extension}"
    rest = [name for name in modules() if name != gone and not name.startswith(f"{gone}.")]
    done = python(without(extension, tmp_path), "-c", IMPORT_ALL, *rest)
    assert done.returncode == 0, done.stderr
