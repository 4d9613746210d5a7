"""The table of measures of a small core: its size, what a small run loads, and what the core knows of extensions.

In: the checkout. Out: one line for each measure. Holds: nothing is changed; the run has caches of its own. Not covered: types and
the core's tests without a folder: `tests/extensions/test_deleted.py` is what `--deleted` runs.

    python tests/baseline/measures.py [--toy COMMIT] [--deleted]
"""

import argparse
import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.baseline import edges
from tests.helpers.source import ROOT, modules

OUTSIDE = ("dp_pipelines.extensions", "dp_pipelines.transforms.pipeline_dp", "dp_pipelines.jobs.beam_yaml")
"""Packages that are not part of the core."""

NAMES = {
    "lake": r"iceberg|avro|bigquery|delta_?(lake|table|tables|output|place|model|mode)",
    "sql_select": r"sql_select|select_?(stage|stages|statement)|from_statement",
    "tune": r"tunes?|tuned|tuning|tunings",
    "check": r"data_profile|check_command",
    "describe": r"assessments?",
    "lineage": r"lineage",
    "export": r"onnx|export_model",
    "dataflow": r"dataflow",
    "federated": r"federate|federated",
    "pate": r"pate|teachers|votes",
    "local_dp": r"collected",
    "two_organisations": r"party|parties",
    "sample_and_aggregate": r"sample_and_aggregate",
}
"""By extension a pattern of the words by which code calls it and nothing else. Words such as check and export mean more."""

FEATURES = ("training", "join", "rollup", "rolled", "compar")
"""Parts of the names of modules that a run of one metric has no use for."""

DRIVER_PACKAGES = ("jobs.run", "extensions.local_dp", "extensions.two_organisations")
"""Packages whose modules may drive a run: they then have a function `run`."""

JOB = """
dataset: shop
privacy_unit: customer
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: rows.parquet}
stages:
  weekly:
    kind: aggregate
    partition_by: [product]
    bounds: {max_partitions_contributed: 1, max_contributions_per_partition: 1}
    metrics: {orders: {kind: count}}
"""

RUN = """
import json, sys
import pyarrow as pa, pyarrow.parquet
pyarrow.parquet.write_table(pa.table({"customer": list(range(3000)), "product": ["a"] * 3000}), "rows.parquet")
from dp_pipelines.jobs.cli.main import main
assert main(["run", "job.yaml", "--output", "out"]) == 0
print(json.dumps({name: module.__file__ for name, module in sys.modules.items() if name.startswith("dp_pipelines")}))
"""


def core(known: Mapping[str, pathlib.Path]) -> dict[str, pathlib.Path]:
    """Return the modules of the core.

    >>> sorted(core({"dp_pipelines.jobs.run.run": ROOT, "dp_pipelines.extensions.tune.goal": ROOT, "dp_pipelines.jobs": ROOT}))
    ['dp_pipelines.jobs', 'dp_pipelines.jobs.run.run']
    """
    return {name: path for name, path in known.items() if not any(f"{name}.".startswith(f"{out}.") for out in OUTSIDE)}


def statements(source: str) -> int:
    r"""Count the statements of a text.

    >>> statements("def f():\n    x = 1\n    return x")
    3
    """
    return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(source)))


def identifiers(source: str) -> Iterator[str]:
    r"""Yield all names in a text's code: variables, attributes, functions, classes, arguments, imports. No comments and strings.

    >>> sorted(identifiers("from a.pate import b\nclass C:\n    def d(self, e): return self.f"))
    ['C', 'a.pate', 'b', 'd', 'e', 'f', 'self', 'self']
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.alias):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def words(identifier: str) -> str:
    """Return a name as words in lower case with underscores.

    >>> words("PateModel"), words("query.models.pate_model")
    ('pate_model', 'query_models_pate_model')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).replace(".", "_").lower()


def names_of_extensions(sources: Iterable[str]) -> Counter[str]:
    """Count the different names in each text that name an extension, by extension.

    Args:
        sources: texts of modules of the core.
    """
    patterns = {extension: re.compile(rf"(?:^|_)(?:{pattern})(?:_|$)") for extension, pattern in NAMES.items()}
    found: Counter[str] = Counter()
    for source in sources:
        used = {words(name) for name in identifiers(source)}
        found.update(e for e, pattern in patterns.items() for name in used if pattern.search(name))
    return found


def run_drivers(known: Mapping[str, pathlib.Path]) -> list[str]:
    """Return the modules that drive a run: those of `DRIVER_PACKAGES` with a function `run`."""
    roots = tuple(f"dp_pipelines.{package}." for package in DRIVER_PACKAGES)
    return [name for name, path in known.items() if name.startswith(roots) and has_run(path.read_text())]


def has_run(source: str) -> bool:
    r"""Return True if a module has a function `run` at its top.

    >>> has_run("def run(): ..."), has_run("class A:\n    def run(self): ...")
    (True, False)
    """
    return any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in ast.parse(source).body)


def callbacks(source: str, name: str = "Work") -> list[str]:
    r"""Return the fields of a class that hold functions.

    >>> callbacks("Tell = Callable[[str], None]\nclass Work:\n    a: int\n    b: Tell\n    c: Callable[[], int] | None")
    ['b', 'c']
    """
    body = ast.parse(source).body
    aliases = {
        node.targets[0].id
        for node in body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and ast.unparse(node.value).startswith("Callable[")
    }
    fields = [field for node in body if isinstance(node, ast.ClassDef) and node.name == name for field in node.body]
    return [
        ast.unparse(field.target)
        for field in fields
        if isinstance(field, ast.AnnAssign) and {"Callable", *aliases} & set(identifiers(ast.unparse(field.annotation)))
    ]


def lines_outside(numstat: str, inside: tuple[str, ...]) -> int:
    r"""Count the lines that a commit changed outside of some folders.

    Args:
        numstat: what `git show --numstat --format=` prints.
        inside: the folders.

    >>> lines_outside("3\t1\tjobs/cli/main.py\n9\t0\tdp_pipelines/extensions/toy/a.py\n", ("dp_pipelines/extensions/",))
    4
    """
    rows = (line.split("\t") for line in numstat.splitlines() if line)
    changed = [(added, removed) for added, removed, path in rows if not path.startswith(inside)]
    return sum(int(number) for pair in changed for number in pair if number != "-")


def loaded() -> dict[str, str]:
    """Run a job of one metric in a process with empty caches, and return the files of our modules that it has loaded."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "job.yaml").write_text(JOB)
        empty = {f"XDG_{name}_HOME": f"{folder}/{name.lower()}" for name in ("CACHE", "STATE", "CONFIG")}
        command, environment = [sys.executable, "-c", RUN], {**os.environ, **empty}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measures(files: Mapping[str, str], toy: str = "", deleted: bool = False) -> Iterator[str]:
    """Yield a line for each measure.

    Args:
        files: of the modules that a run of one metric has loaded.
        toy: the commit that adds a toy stage type; empty: there is none.
        deleted: whether the tests that delete the folder of each extension are run, which takes minutes.
    """
    known = modules()
    sources = {name: path.read_text() for name, path in core(known).items()}
    yield f"statements in the core: {sum(map(statements, sources.values())):,}"
    lines = sum(len(pathlib.Path(file).read_text().splitlines()) for file in files.values() if file)
    yield f"lines loaded by a run of one metric, cold caches: {lines:,} in {len(files)} modules"
    features = [name for name in files if any(feature in name for feature in FEATURES)]
    yield f"modules of training, joins, rollups and compare loaded by it, by name: {len(features)}"
    named = names_of_extensions(text for name, text in sources.items() if name not in edges.FACADE)
    by_extension = ", ".join(f"{extension} {number}" for extension, number in named.most_common())
    yield f"names of extensions in core source, outside the facade: {named.total()} ({by_extension or 'none'})"
    imported = [line for line in edges.LIST.read_text().splitlines() if not line.startswith("facade ")]
    yield f"imports from the core into extensions: {len(imported)} (tests/baseline/edges.txt)"
    yield f"after deleting the folder of each extension in a copy: {_tested() if deleted else 'not tested; add --deleted'}"
    yield f"lines outside its folder in the commit that adds the toy stage type: {_of_toy(toy)}"
    drivers = [name.removeprefix("dp_pipelines.") for name in run_drivers(known)]
    fields = [field for text in sources.values() for field in callbacks(text)]
    yield f"run drivers: {len(drivers)} ({', '.join(drivers)}); callbacks in them: {len(fields)} ({', '.join(fields)})"


def _tested() -> str:
    """Return the last line of the tests that delete folders."""
    tests = [sys.executable, "-m", "pytest", "-q", "tests/extensions/test_deleted.py"]
    done = subprocess.run(tests, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[-1]


def _of_toy(commit: str) -> str:
    """Return the lines outside of extensions and tests that a commit changed."""
    if not commit:
        return "there is none yet; name one with --toy"
    show = ["git", "show", "--numstat", "--format=", commit]
    numstat = subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return f"{lines_outside(numstat, ('dp_pipelines/extensions/', 'tests/')):,}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the measures of a small core.")
    parser.add_argument("--toy", metavar="COMMIT", default="", help="the commit that adds a toy stage type")
    parser.add_argument("--deleted", action="store_true", help="run the tests that delete each folder; takes minutes")
    given = parser.parse_args()
    for line in measures(loaded(), given.toy, given.deleted):
        print(line)
