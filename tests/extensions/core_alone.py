"""Delete folders of extensions in a copy of the tree; there, mypy and the quick tests of everything else.

In: the tracked files of the checkout, its environment. Out: what mypy and pytest print; exit code 1 where one fails. Holds: the
folder is deleted with its tests, and no test finds the module of the checkout instead. Not covered: slow tests; engines.

    python tests/extensions/core_alone.py [--each | EXTENSION...] [--tests PATH...] [--workers 2]

Without names, all are deleted at once.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = "dp_pipelines/extensions", "tests/extensions"
WHOLE = "tests/mutants", "tests/packages"
"""Tests whose subject is the whole tree: its planted faults, its wheel."""


def installed() -> list[str]:
    """Return the names of the extensions whose folders there are."""
    return sorted(path.parent.name for path in (ROOT / FOLDERS[0]).glob("*/__init__.py"))


def copied(folder: pathlib.Path, deleted: Sequence[str]) -> None:
    """Copy the tracked files of the checkout, as they are in it, without some extensions.

    Args:
        folder: empty.
        deleted: names of extensions.
    """
    gone = tuple(f"{above}/{name}/" for above in FOLDERS for name in deleted)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists() and not name.startswith(gone):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def linked(folder: pathlib.Path) -> pathlib.Path:
    """Make the package of a copy one folder, as it is where it is installed; return a folder that holds nothing but it, for mypy.

    Else Python would look for the parts that are folders of their own in the checkout.
    """
    package = folder / "build" / "tree" / "dp_pipelines"
    package.mkdir(parents=True)
    parts = [folder / "transforms", folder / "jobs"]
    for part in (*(folder / "dp_pipelines").iterdir(), *parts):
        (package / part.name).symlink_to(part)
    for part in parts:
        (folder / "dp_pipelines" / part.name).symlink_to(part)
    return package.parent


def works(deleted: Sequence[str], tests: Sequence[str], workers: int) -> bool:
    """Return True if types and tests are green without some extensions."""
    with tempfile.TemporaryDirectory(prefix="core-alone-") as place:
        folder = pathlib.Path(place)
        copied(folder, deleted)
        tree = linked(folder)
        variables = {**os.environ, "PYTHONPATH": str(folder)}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        print(f"without {', '.join(deleted)}", flush=True)
        types = ["mypy", "--config-file", str(folder / "setup.cfg"), "--cache-dir", str(folder / "build" / "mypy")]
        checked = subprocess.run([sys.executable, "-m", *types, "-p", "dp_pipelines"], cwd=tree, env=variables)
        found = "import dp_pipelines.jobs as jobs; print(*jobs.__path__)"
        seen = subprocess.run([sys.executable, "-c", found], cwd=folder, env=variables, capture_output=True, text=True)
        assert seen.stdout.startswith(str(folder)), "the tests would see the package of the checkout"
        run = ["pytest", "-q", "-n", str(workers), "--dist", "loadfile", "-m", "not slow and not bench and not long"]
        run += [*tests, *(f"--ignore={name}" for name in WHOLE)]
        tested = subprocess.run([sys.executable, "-m", *run], cwd=folder, env=variables)
    return checked.returncode == tested.returncode == 0


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("extensions", nargs="*", metavar="EXTENSION", choices=[[], *installed()])
    parser.add_argument("--each", action="store_true", help="delete one extension after the other")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="only these tests")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    names = given.extensions or installed()
    groups = [[name] for name in names] if given.each else [names]
    worked = [works(group, given.tests, given.workers) for group in groups]
    return 0 if all(worked) else 1


if __name__ == "__main__":
    sys.exit(main())
