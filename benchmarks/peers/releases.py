"""What a private system gets and gives in the accuracy benchmark. For both environments: pyarrow, no Beam.

In: a request, a JSON file. Out: a Parquet file with one row for each run and released partition: run, subclass, week,
orders, customers, revenue, mean_price. Holds: both systems read the same prepared file of rows (unit, subclass, week,
price) and get the same bounds, budget and public list.
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

METRICS = ("orders", "customers", "revenue", "mean_price")
Key = tuple[str, datetime.date]
Asked = TypeVar("Asked")
Released = tuple[Key, tuple[float, float, float, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One batch of independent releases of the weekly report.

    Args:
        rows: the prepared Parquet file: unit, subclass (text), week (date), price (float64).
        runs: how many releases, each under the whole budget.
        epsilon, delta: the budget of a release.
        max_partitions, max_rows: contribution bounds.
        low, high: the clamp of prices.
        public: subclasses of a public list, to be taken with every one of `weeks`; empty: private selection.
        weeks: ISO dates.
    """

    rows: str
    runs: int
    epsilon: float
    delta: float
    max_partitions: int
    max_rows: int
    low: float
    high: float
    public: Sequence[str]
    weeks: Sequence[str]

    @property
    def public_keys(self) -> list[Key]:
        """The public list of partitions."""
        weeks = [datetime.date.fromisoformat(week) for week in self.weeks]
        return [(subclass, week) for subclass in self.public for week in weeks]


def arguments(description: str, kind: Callable[..., Asked] = Request) -> tuple[Asked, pathlib.Path]:
    """The request, of a kind, and the path of the answer, from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("request", type=pathlib.Path, help="JSON file")
    parser.add_argument("answer", type=pathlib.Path, help="Parquet file to write")
    options = parser.parse_args()
    return kind(**json.loads(options.request.read_text())), options.answer


def write(path: pathlib.Path, releases: Iterator[Sequence[Released]]) -> None:
    """Write all releases; says each on stdout, so that a parent can show progress."""
    columns: dict[str, list[object]] = {name: [] for name in ("run", "subclass", "week", *METRICS)}
    for run, release in enumerate(releases):
        for (subclass, week), values in release:
            for name, value in zip(columns, (run, subclass, week, *values), strict=True):
                columns[name].append(value)
        print(f"{len(release)} partitions", flush=True)
    types = [pa.int64(), pa.string(), pa.date32(), *[pa.float64()] * len(METRICS)]
    arrays = [pa.array(column, kind) for column, kind in zip(columns.values(), types, strict=True)]
    pq.write_table(pa.table(arrays, names=list(columns)), path)
