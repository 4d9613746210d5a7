"""Our own source as data: its modules, its text files and what each module imports.

In: the checkout. Out: paths, module names, imports with their lines. Holds: nothing is imported or run. Not covered:
imports whose name is computed at run time.
"""

import ast
import contextlib
import functools
import gc
import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

PACKAGE_FOLDERS = {"dp_pipelines": "dp_pipelines", "dp_pipelines.transforms": "transforms", "dp_pipelines.jobs": "jobs"}
"""The folders of the distribution, by the name under which they are imported (`FOLDERS` in setup.py)."""

SCRIPT_FOLDERS = ("tests", "benchmarks", "examples")


class Import(NamedTuple):
    """One imported name, in full, and the line where it stands."""

    name: str
    line: int


class Written(NamedTuple):
    """One imported name as it is written, the line, and whether it is written relative to the module."""

    name: str
    line: int
    relative: bool


class Outline(NamedTuple):
    """What is kept of a module's syntax: its docstring, or "", and what it imports."""

    header: str
    imported: tuple[Written, ...]


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python from looking for cycles meanwhile: trees have none, but so many objects that it would take most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@functools.lru_cache(maxsize=1)
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a text's syntax, the module first. Those of the last text alone are kept, since trees are large."""
    with uncollected():
        return tuple(ast.walk(ast.parse(source)))


@functools.cache
def outline(source: str) -> Outline:
    """What is asked of the same text again and again, read once.

    >>> outline("from .a import b")
    Outline(header='', imported=(Written(name='.a.b', line=1, relative=True),))
    """
    module, *_ = found = nodes(source)
    assert isinstance(module, ast.Module)
    return Outline(ast.get_docstring(module) or "", tuple(_imported(found)))


def _imported(found: tuple[ast.AST, ...]) -> Iterator[Written]:
    """The imports among the nodes of a module."""
    for node in found:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Written(alias.name, node.lineno, False)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (f"{node.module}." if node.module else "")
            for alias in node.names:
                yield Written(base + alias.name, node.lineno, node.level > 0)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func)
            if called in ("__import__", "import_module", "importlib.import_module"):
                yield Written(str(node.args[0].value), node.lineno, False)


def modules(root: Path = ROOT) -> dict[str, Path]:
    """All modules of the distribution: name to file."""
    found = {}
    for package, folder in PACKAGE_FOLDERS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def packages(root: Path = ROOT) -> set[str]:
    """All packages of the distribution: each folder that holds Python files."""
    found = set()
    for package, folder in PACKAGE_FOLDERS.items():
        for path in (root / folder).rglob("*.py"):
            found.add(".".join((package, *path.parent.relative_to(root / folder).parts)))
    return found


def scripts(root: Path = ROOT) -> list[Path]:
    """Python files that are not installed: tests, benchmarks, examples."""
    return sorted(path for folder in SCRIPT_FOLDERS for path in (root / folder).rglob("*.py"))


def imports(source: str, module: str = "", is_package: bool = False) -> Iterator[Import]:
    """What a module imports, wherever it does: at the top, in a function, for types only, by `importlib`.

    Args:
        source: the text of the module.
        module: its full name, against which relative imports are resolved.
        is_package: whether it is the `__init__` of a package.

    >>> list(imports("from a import b"))
    [Import(name='a.b', line=1)]
    """
    package = module if is_package else module.rpartition(".")[0]
    for name, line, relative in outline(source).imported:
        yield Import(importlib.util.resolve_name(name, package) if relative else name, line)


def text_files(root: Path = ROOT) -> list[Path]:
    """The text files that a commit of the checkout would hold: neither ignored nor binary nor a link."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    paths = [root / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink() and b"\0" not in path.read_bytes()]
