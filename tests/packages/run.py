"""Builds the wheel, installs it into clean environments outside the clone, and takes the tour in each.

In: the clone, uv, a Python. Out: what the tours print; exit code 1 if an environment cannot be made or a tour fails. Holds: the
environments see neither the clone's source nor its packages; with `newest` each version is that of requirements-newest.lock, with
`lowest` each package that pyproject.toml names is the oldest that it allows. Not covered: versions between these.

    build/lock/bin/python tests/packages/run.py --uv build/lock/bin/uv [--python python3.12] [newest] [lowest]
"""

import argparse
import email
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCK = "requirements-newest.lock"
WAYS = ("newest", "lowest")

NOT_COPIED = ("build", "dist", "data", "out")
"""Folders of the clone that git ignores; so are caches, environments and git's own folder, whose names begin with a dot."""

SOURCE = ("dp_pipelines", "transforms", "jobs")
"""Folders that the wheel holds; the tour must not see them."""

NOT_FOR_USERS = ("dev", "bench", "docs")
"""Extras for work on the library itself."""


UNSET = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV")
"""Variables that the tour does not see: with the first, every process of it would compile all modules that it imports."""


class PackagesError(Exception):
    """A command failed."""


def left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder of the clone that are not copied."""
    made = {name for name in names if name == "__pycache__" or name.endswith(".egg-info")}
    if pathlib.Path(folder) != ROOT:
        return made
    return made | {name for name in names if name in NOT_COPIED or (name.startswith(".") and name != ".ci")}


def call(*command: object, cwd: pathlib.Path, env: dict[str, str] | None = None) -> None:
    """Run a command.

    Raises:
        PackagesError: it failed; what it printed comes before.
    """
    words = [str(word) for word in command]
    if subprocess.run(words, cwd=cwd, env=env, check=False).returncode != 0:
        raise PackagesError(f"{words[0]} failed: {' '.join(words[1:])}")


def extras_for_users(wheel: pathlib.Path) -> list[str]:
    """Return the extras of a wheel that users install."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    return [extra for extra in metadata.get_all("Provides-Extra", []) if extra not in NOT_FOR_USERS]


def constraints(way: str, work: pathlib.Path, uv: pathlib.Path, python: str, extras: list[str]) -> pathlib.Path:
    """Return the file that fixes the versions of an environment."""
    if way == "newest":
        return ROOT / LOCK
    lock = work / "lowest.lock"
    named = [word for extra in extras for word in ("--extra", extra)]
    options = ("--quiet", "--python", python, "--resolution", "lowest-direct", "--no-header", "--no-annotate")
    call(uv, "pip", "compile", *options, *named, "-o", lock, ROOT / "pyproject.toml", cwd=work)
    return lock


def toured(way: str, work: pathlib.Path, uv: pathlib.Path, python: str, only: list[str]) -> None:
    """Make an environment and take the tour in it.

    Raises:
        PackagesError: a step of this failed.
    """
    (wheel,) = (work / "dist").glob("*.whl")
    extras = extras_for_users(wheel)
    environment = work / way
    own = environment / "bin" / "python"
    began = time.monotonic()
    call(uv, "venv", "--quiet", "--python", python, environment, cwd=work)
    versions = constraints(way, work, uv, python, extras)
    given = ("--quiet", "--python", own, "--constraint", versions)
    call(uv, "pip", "install", *given, f"{wheel}[{','.join(extras)}]", cwd=work)
    call(uv, "pip", "check", "--quiet", "--python", own, cwd=work)
    print(f"== {way} versions, installed in {time.monotonic() - began:.0f} s: {', '.join(extras)}", flush=True)
    options = [word for words in only for word in ("--only", words)]
    variables = {name: value for name, value in os.environ.items() if name not in UNSET}
    call(own, "-m", "tests.packages.tour", "--complete", *options, cwd=work / "clone", env=variables)


def main() -> int:
    """Build, install, tour. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "ways", metavar="WAY", nargs="*", default=[], help=f"versions: {', '.join(WAYS)}; default: both"
    )
    parser.add_argument("--uv", type=pathlib.Path, required=True, help="the program uv")
    parser.add_argument("--python", default=sys.executable, help="the Python of the environments")
    parser.add_argument("--only", metavar="WORDS", action="append", default=[], help="only steps with these words")
    given = parser.parse_args()
    if set(given.ways) - set(WAYS):
        parser.error(f"ways are {' and '.join(WAYS)}")
    os.environ["UV_PYTHON_DOWNLOADS"] = "never"
    uv = given.uv.absolute()
    python = shutil.which(given.python) or given.python
    with tempfile.TemporaryDirectory(prefix="test-packages-", ignore_cleanup_errors=True) as folder:
        work = pathlib.Path(folder).resolve()
        try:
            # The wheel is built from the sdist, so that it holds only what an sdist holds.
            shutil.copytree(ROOT, work / "clone", ignore=left_out)
            call(uv, "build", "--quiet", "--python", python, "--out-dir", work / "dist", work / "clone", cwd=work)
            for name in SOURCE:
                shutil.rmtree(work / "clone" / name)
            failed = []
            for way in given.ways or WAYS:
                try:
                    toured(way, work, uv, python, given.only)
                except PackagesError as error:
                    failed.append(f"{way}: {error}")
        except PackagesError as error:
            failed = [str(error)]
    for line in failed:
        print(f"FAILED with {line}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
