"""Our own source as data: its modules, its text files and what each module imports.

In: the checkout. Out: paths, module names, imports with their lines. Holds: nothing is imported or run. Not covered:
imports whose name is computed at run time.
"""

import ast
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
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = importlib.util.resolve_name("." * node.level + base, package)
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func)
            if called in ("__import__", "import_module", "importlib.import_module"):
                yield Import(str(node.args[0].value), node.lineno)


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
