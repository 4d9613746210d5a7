"""What it costs to read CSV line by line: our reader beside the one that Arrow's streaming reader made, in turns.

In: a number of cells. Out: seconds of processor time for each, and their ratio, for plain files and for quoted ones. Holds: both
end with the same values. Run: python benchmarks/csv_lines.py [--rows 2000000] [--turns 5]
"""

import argparse
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dp_pipelines.steps import read_files
from dp_pipelines.transforms import CsvFormat

TYPES = {
    "customer": pa.int64(),
    "day": pa.date32(),
    "product": pa.string(),
    "amount": pa.float64(),
    "number": pa.int64(),
}


def made(rows: int) -> pa.Table:
    """Five columns of purchases; some products need quotation marks where there may be some."""
    generator = np.random.default_rng(1)
    days = pa.array(generator.integers(18000, 20000, rows).astype("int32")).cast(pa.date32())
    return pa.table(
        {
            "customer": generator.integers(0, 10**6, rows),
            "day": days,
            "product": pa.array(generator.integers(0, 1000, rows)).cast(pa.string()),
            "amount": np.round(generator.random(rows) * 100, 2),
            "number": generator.integers(0, 20, rows),
        }
    )


def by_arrow(path: pathlib.Path, quoted: bool) -> Iterator[pa.Table]:
    """The reader as it was: cells may hold line breaks, and a line that is no row is left to a handler."""
    convert = pa.csv.ConvertOptions(
        include_columns=list(TYPES), column_types=dict.fromkeys(TYPES, pa.binary()), strings_can_be_null=True
    )
    parse = pa.csv.ParseOptions(
        quote_char='"' if quoted else False, newlines_in_values=quoted, invalid_row_handler=lambda row: "skip"
    )
    reading = pa.csv.ReadOptions(use_threads=False, block_size=2**26)
    with path.open("rb") as stream:
        options = {"read_options": reading, "parse_options": parse, "convert_options": convert}
        for batch in pa.csv.open_csv(stream, **options):
            columns = [_cast(batch.column(name), kind) for name, kind in TYPES.items()]
            yield pa.table(dict(zip(TYPES, columns, strict=True)))


def _cast(cells: pa.Array, kind: pa.DataType) -> pa.Array:
    text = cells.cast(pa.string())
    return text if pa.types.is_string(kind) else pa.compute.utf8_trim_whitespace(text).cast(kind)


def by_lines(path: pathlib.Path, quoted: bool) -> Iterator[pa.Table]:
    """Our reader."""
    return read_files.ReadCsvFile(TYPES, CsvFormat(quote='"' if quoted else None)).process(str(path))


def seconds(reader: Callable[[pathlib.Path, bool], Iterator[pa.Table]], path: pathlib.Path, quoted: bool) -> float:
    """Processor time of one pass."""
    began = time.process_time()
    for _ in reader(path, quoted):
        pass
    return time.process_time() - began


def main() -> None:
    """Write the files, read each in turns, print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    table = made(given.rows)
    with tempfile.TemporaryDirectory() as folder:
        for style, quoted in (("none", False), ("none", True), ("all_valid", True)):
            path = pathlib.Path(folder) / f"{style}.csv"
            pa.csv.write_csv(table, path, pa.csv.WriteOptions(quoting_style=style, quoting_header=style))
            same = pa.concat_tables(by_arrow(path, quoted)).equals(pa.concat_tables(by_lines(path, quoted)))
            took = [(seconds(by_arrow, path, quoted), seconds(by_lines, path, quoted)) for _ in range(given.turns)]
            arrow, lines = (statistics.median(column) for column in zip(*took, strict=True))
            ratio = statistics.median(ours / theirs for theirs, ours in took)
            print(
                f"cells in marks: {style}, quoted: {quoted}: Arrow {arrow:.2f} s, by lines {lines:.2f} s, "
                f"ratio {ratio:.2f}, same values: {same}"
            )


if __name__ == "__main__":
    main()
