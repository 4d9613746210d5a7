"""Delete folders of extensions in a copy of the tree; there, mypy and the quick tests of everything else.

In: the checkout, its environment. Out: what mypy and pytest print; exit code 1 where one fails. Holds: the
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
sys.path.insert(0, str(ROOT))

from tests.mutants.tree import copy_tree  # noqa: E402

FOLDERS = "dp_pipelines/extensions", "tests/extensions"
WHOLE = (
    *("tests/mutants", "tests/packages", "tests/test_ci.py", "tests/test_packaging.py"),
    "tests/baseline/test_edges.py",
)
"""Tests whose subject is the whole tree: its planted faults, its wheel, what CI runs, the list of its edges."""


def installed() -> list[str]:
    """Return the names of the extensions whose folders there are."""
    return sorted(path.parent.name for path in (ROOT / FOLDERS[0]).glob("*/__init__.py"))


def works(deleted: Sequence[str], tests: Sequence[str], workers: int) -> bool:
    """Return True if types and tests are green without some extensions."""
    with tempfile.TemporaryDirectory(prefix="core-alone-") as place:
        folder = pathlib.Path(place)
        copy_tree(ROOT, folder)
        for above in FOLDERS:
            for name in deleted:
                shutil.rmtree(folder / above / name, ignore_errors=True)  # not each has tests
        variables = {**os.environ, "PYTHONPATH": str(folder)}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        print(f"without {', '.join(deleted)}", flush=True)
        types = ["mypy", "--config-file", str(folder / "setup.cfg"), "--cache-dir", str(folder / "build" / "mypy")]
        checked = subprocess.run([sys.executable, "-m", *types, "-p", "dp_pipelines"], cwd=folder, env=variables)
        found = "import dp_pipelines.jobs as jobs; print(*jobs.__path__)"
        seen = subprocess.run([sys.executable, "-c", found], cwd=folder, env=variables, capture_output=True, text=True)
        assert seen.stdout.startswith(str(folder)), "the tests would see the package of the checkout"
        run = [
            "pytest",
            "-v",
            "--tb=short",
            "-n",
            str(workers),
            "--dist",
            "loadfile",
            "-m",
            "not slow and not bench and not long",
        ]
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
