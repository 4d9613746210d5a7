"""Every package that the source imports is declared in pyproject.toml, by the core or by an extra.

In: the source and pyproject.toml. Out: one finding for each import that nothing declares. Holds: a package of an extra is
imported late, or by a module of that extra; a package that only comes along with another one counts as undeclared. Not covered:
packages whose name is computed at run time, and those that examples need.
"""

import ast
import functools
import importlib
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

from tests.helpers.source import ROOT, imports, modules, nodes

GOOGLE = {
    "google.api_core": "google-api-core",
    "google.cloud.bigquery_storage_v1": "google-cloud-bigquery-storage",
    "google.cloud.storage": "google-cloud-storage",
}
"""Packages that share the folder `google`."""

BROUGHT_BY_THE_USER = {
    "fastavro": "Beam brings it; the extra avro adds codecs",
    "pandas": "only where the user's rows are in its frames, or asks for one",
    "polars": "only where the user's rows are in its frames, or asks for one",
}
"""Packages that the core uses where they are installed, each with the reason why no extra of their own is needed."""

MODULES_OF_EXTRAS = {
    "dp_pipelines.training.kernels.compiled": "train",
    "dp_pipelines.transforms.pipeline_dp": "pipeline-dp",
}
"""Modules, with all below them, that are loaded only where an extra is installed: these may import it at the top."""


def normalised(name: str) -> str:
    """Return the name of a distribution as the index spells it.

    >>> normalised("PyYAML"), normalised("jax_privacy")
    ('pyyaml', 'jax-privacy')
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> dict[str, set[str]]:
    """Return the extras that declare each distribution; the core is the extra ""."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    extras: dict[str, set[str]] = {}
    for extra, lines in groups.items():
        for line in lines:
            extras.setdefault(normalised(Requirement(line).name), set()).add(extra)
    return extras


installed = functools.cache(importlib.metadata.packages_distributions)


def distributions(name: str) -> set[str]:
    """Return the distributions that hold an imported name, which is given in full."""
    for prefix, distribution in GOOGLE.items():
        if name == prefix or name.startswith(f"{prefix}."):
            return {distribution}
    top = name.partition(".")[0]
    return {normalised(one) for one in installed().get(top, [top])}


def foreign(source: str, module: str, is_package: bool) -> Iterator[tuple[str, int]]:
    """Yield the imports of a module that are neither ours nor the standard library's, with their lines."""
    for found in imports(source, module, is_package):
        if found.name.partition(".")[0] not in {"dp_pipelines", *sys.stdlib_module_names}:
            yield found.name, found.line


@functools.cache
def lines_run_at_import(source: str) -> frozenset[int]:
    """Return the lines of the imports that run when a module is imported: not in a function, not for types only."""
    lines = set()
    waiting = [nodes(source)[0]]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
            continue  # no expression holds a statement
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            lines.add(node.lineno)
        waiting.extend(ast.iter_child_nodes(node))
    return frozenset(lines)


def undeclared(files: Iterable[tuple[str, Path]], extras: dict[str, set[str]]) -> list[str]:
    """Return what is wrong with the imports of modules, a line for each.

    Args:
        files: the name of each module and its file.
        extras: as `declared` returns them.
    """
    wrong = []
    for module, path in files:
        source = path.read_text()
        at_import = lines_run_at_import(source)
        own = {extra for prefix, extra in MODULES_OF_EXTRAS.items() if f"{module}.".startswith(f"{prefix}.")}
        for name, line in foreign(source, module, path.name == "__init__.py"):
            by = set().union(*(extras.get(one, set()) for one in distributions(name))) - {"dev", "bench", "docs"}
            if not by:
                if name.partition(".")[0] not in BROUGHT_BY_THE_USER:
                    wrong.append(f"{module}:{line} imports {name}, which pyproject.toml does not declare")
            elif "" not in by and line in at_import and not by & own:
                wrong.append(f"{module}:{line} imports {name} of the extra {min(by)} when it is imported itself")
    return wrong


def test_every_imported_package_is_declared_by_the_core_or_by_an_extra_that_is_imported_late() -> None:
    assert undeclared(modules().items(), declared()) == []


def test_every_declared_package_of_an_extra_for_users_is_imported_or_named() -> None:
    used = {
        one
        for module, path in modules().items()
        for name, _ in foreign(path.read_text(), module, path.name == "__init__.py")
        for one in distributions(name)
    }
    named = {"psycopg": "SQLAlchemy loads it by the ledger's URL"}
    asked = {name for name, by in declared().items() if by - {"dev", "bench", "docs"}}
    assert sorted(asked - used - named.keys()) == []


def test_modules_of_extras_exist() -> None:
    names = modules()
    extras = set().union(*declared().values())
    assert [module for module, extra in MODULES_OF_EXTRAS.items() if module not in names or extra not in extras] == []


def test_an_undeclared_package_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text("import numpy\nimport requests\n\ndef later():\n    import matplotlib.figure\n")
    [wrong] = undeclared([("planted", planted)], declared())
    assert wrong == "planted:2 imports requests, which pyproject.toml does not declare"
    without = {name: by for name, by in declared().items() if name != "grpcio"}
    assert any("orphaned_jobs" in line and "imports grpc" in line for line in undeclared(modules().items(), without))


def test_a_package_of_an_extra_at_the_top_of_a_module_of_the_core_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text("from typing import TYPE_CHECKING\nimport boto3\nif TYPE_CHECKING:\n    import onnx\n")
    [wrong] = undeclared([("planted", planted)], declared())
    assert wrong == "planted:2 imports boto3 of the extra s3 when it is imported itself"
