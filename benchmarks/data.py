"""Made-up events for the benchmarks, in Parquet under data/bench/, written once and kept.

In: a kind and a number of rows. Out: a folder of Parquet files, a million rows each: `user` and `key` (int64; text in
kind `strings`) and `value` (float64). Holds: the same kind and number give the same rows on every machine; a folder is
there whole or not at all. The seed is fixed, for this is not noise. Keys follow Zipf's law (exponent 1.1) over 1,000;
users are skewed (the one at quantile q of all users has a rate of about q^-1/2), some 13 rows a user; values are
exponential with mean 50, so that a clamp at 200 binds for 2% of them.

Kinds: `even`; `hot_user`, half of all rows are one user's; `hot_key`, half of all rows have one key; `strings`, the
even case with text such as `user-0001234`.

    python benchmarks/data.py even 10_000_000
"""

import argparse
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

KINDS = ("even", "hot_user", "hot_key", "strings")
FOLDER = pathlib.Path(__file__).resolve().parents[1] / "data" / "bench"
# Part of the folder's name: raise it when the rows change.
VERSION = 1
KEYS = 1_000
EXPONENT = 1.1
ROWS_PER_USER = 13
ROWS_PER_FILE = 1_000_000
ROWS_PER_GROUP = 1 << 17
SEED = 20001101

Integers = npt.NDArray[np.int64]


def folder_of(kind: str, rows: int) -> pathlib.Path:
    """Where the rows lie, or will."""
    return FOLDER / f"v{VERSION}-{kind}-{rows}"


def _text(prefix: str, numbers: Integers, width: int) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")
    return pc.binary_join_element_wise(pa.scalar(prefix), digits, "")


def make(kind: str, rows: int, users: int, seed: tuple[int, ...]) -> pa.Table:
    """One table of `rows` rows, by users below `users`."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}")
    random = np.random.default_rng(seed)
    user = np.minimum((random.random(rows) ** 2 * users).astype(np.int64), users - 1)
    weights = np.arange(1, KEYS + 1) ** -EXPONENT
    key = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(rows)).clip(max=KEYS - 1).astype(np.int64)
    value = random.exponential(50.0, rows)
    hot = random.random(rows) < 0.5
    if kind == "hot_user":
        user[hot] = 0
    if kind == "hot_key":
        key[hot] = 0
    if kind == "strings":
        return pa.table({"user": _text("user-", user, 7), "key": _text("key-", key, 4), "value": value})
    return pa.table({"user": user, "key": key, "value": value})


def dataset(kind: str, rows: int) -> pathlib.Path:
    """The folder with these rows, made first if it is not there."""
    folder = folder_of(kind, rows)
    if folder.is_dir():
        return folder
    FOLDER.mkdir(parents=True, exist_ok=True)
    users = max(1, rows // ROWS_PER_USER)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=FOLDER) as staging:
        whole = pathlib.Path(staging, "whole")
        whole.mkdir()
        for index, start in enumerate(range(0, rows, ROWS_PER_FILE)):
            table = make(kind, min(ROWS_PER_FILE, rows - start), users, (SEED, KINDS.index(kind), rows, index))
            pq.write_table(table, whole / f"part-{index:03d}.parquet", row_group_size=ROWS_PER_GROUP)
        whole.rename(folder)
    return folder


def job(folder: pathlib.Path) -> dict[str, Any]:
    """The query of aggregate.py over such a folder, as a job file."""
    values = {"column": "value", "min_value": 0, "max_value": 200}
    stage = {
        "kind": "aggregate",
        "partition_by": ["key"],
        "bounds": {"max_partitions_contributed": 4, "max_contributions_per_partition": 2},
        "metrics": {
            "rows": {"kind": "count"},
            "users": {"kind": "privacy_id_count"},
            "sum": {"kind": "sum", **values},
            "mean": {"kind": "mean", **values, "nullable": False},
        },
    }
    return {
        "dataset": "benchmark",
        "privacy_unit": "user",
        "source": {"parquet": str(folder / "*.parquet")},
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "stages": {"keys": stage},
    }


def main(arguments: list[str] | None = None) -> int:
    """The command line: makes one data set and prints its folder."""
    parser = argparse.ArgumentParser(description="Make the rows that the benchmarks read.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("rows", type=int)
    options = parser.parse_args(arguments)
    if not options.rows > 0:
        parser.error("rows must be above 0")
    print(dataset(options.kind, options.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
