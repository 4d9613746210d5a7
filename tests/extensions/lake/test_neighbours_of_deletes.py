"""Snapshots with the same living rows give the same integers, whatever was deleted, by which files, and under which types.

In: Iceberg tables with rows of a few units and of Eve, who writes the extremes of each type; lists of deleted values under every
type that a column can be compared with. Out: failures, the rows that are left, the exact sums before the noise. Holds: a row is
left out exactly if it equals one listed row, as Python compares the values; the sums are those of a table that never had the
deleted rows. Not covered: deletes by place (tests/jobs/sources).
"""

import dataclasses
import datetime
import decimal
import math
import pathlib
import random
import shutil
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.extensions.lake import equal_rows
from dp_pipelines.extensions.lake.iceberg_table import look_at_iceberg
from dp_pipelines.jobs.spec import job_file
from tests.extensions.lake.test_delta_table import rows as read
from tests.helpers import file_pairs, icebergs, neighbours

D = decimal.Decimal
US, UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
TIMES = [0, 1, -1, 1_767_225_600_000_000, 253_402_300_799_000_000, 2**63 - 1, -(2**63) + 1]
FLOATS = [0.0, -0.0, 1.5, 3.0, math.nan, math.inf, -math.inf, 2.0**53, 1e300, 5e-324, -(2.0**63), 2.0**63]
WHOLE = [0, 1, 3, -1, 2**31 - 1, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1]
DECIMALS = [D("0.00"), D("1.50"), D("1.5"), D("-0.01"), D("9999999.99"), D("1.501"), D("99999999999999999.9999")]
TEXTS = ["", "a", "é", "e\u0301", "x" * 300]
COLUMNS: dict[str, tuple[pa.DataType, list[Any], list[pa.DataType]]] = {
    "long": (pa.int64(), WHOLE, [pa.int32(), pa.uint64(), pa.int8(), pa.float64(), pa.float32(), pa.null()]),
    "int": (pa.int32(), WHOLE, [pa.int64(), pa.int16(), pa.float64(), pa.null()]),
    "double": (pa.float64(), FLOATS, [pa.float32(), pa.int64(), pa.int32(), pa.uint64()]),
    "single": (pa.float32(), FLOATS, [pa.float64(), pa.int64(), pa.int16()]),
    "decimal": (pa.decimal128(9, 2), DECIMALS, [pa.decimal128(5, 2), pa.decimal128(38, 6), pa.decimal128(3, 1)]),
    "zoned": (UTC, TIMES, [pa.timestamp("ns"), pa.timestamp("ms", "UTC"), US]),
    "naive": (US, TIMES, [pa.timestamp("ns", "UTC"), UTC, pa.timestamp("ms")]),
    "text": (pa.string(), TEXTS, [pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.null()]),
    "bytes": (pa.binary(), [b"", b"a", b"\xff", b"x" * 300], [pa.large_binary(), pa.null()]),
    "day": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(2026, 1, 1)], []),
    "flag": (pa.bool_(), [True, False], [pa.null()]),
}
"""Of each column the table's type, values, and further types under which a list may have them."""


def fits(value: Any, kind: pa.DataType) -> bool:
    """Whether a type has a value, as Python knows it; times are whole numbers of microseconds."""
    if value is None:
        return True
    if pa.types.is_null(kind):
        return False
    if pa.types.is_timestamp(kind):
        times = {"ns": 1000, "us": 1, "ms": D("0.001")}[kind.unit] * value
        return times == int(times) and -(2**63) <= times < 2**63
    if pa.types.is_decimal(kind):
        return value == round(value, kind.scale) and abs(value) < 10 ** (kind.precision - kind.scale)
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        least, most = -(2 ** (kind.bit_width - 1)) * signed, 2 ** (kind.bit_width - signed)
        return math.isfinite(value) and value == int(value) and least <= value < most
    if pa.types.is_floating(kind):
        return math.isnan(value) or _as_float(value, kind) == value
    return True


def _as_float(value: Any, kind: pa.DataType) -> float:
    if kind == pa.float64() or not math.isfinite(value):
        return float(value)
    return math.inf if abs(value) > 3.4e38 else struct.unpack("f", struct.pack("f", value))[0]


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values that fit as a column."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    if pa.types.is_timestamp(kind):
        made = [None if v is None else int({"ns": 1000, "us": 1, "ms": D("0.001")}[kind.unit] * v) for v in values]
        return pa.array(made, pa.int64()).view(kind)
    if pa.types.is_integer(kind):
        return pa.array([None if value is None else int(value) for value in values], kind)
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)
    return pa.array([round(v, kind.scale) if v is not None and pa.types.is_decimal(kind) else v for v in values], kind)


def as_listed(value: Any, kind: pa.DataType) -> Any:
    """A value as a list of that type has it: a whole number has no minus zero."""
    return int(value) if value is not None and pa.types.is_integer(kind) else value


def equal(mine: Any, listed: Any, kind: pa.DataType) -> bool:
    """Whether a cell of a column equals a listed value."""
    if mine is None or listed is None:
        return mine is listed
    if not pa.types.is_floating(kind):
        return bool(mine == listed)
    if math.isnan(mine) or math.isnan(listed):
        return math.isnan(mine) and math.isnan(listed)
    return mine == listed and math.copysign(1, mine) == math.copysign(1, float(listed))


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A table with deletes.

    Args:
        path: of its metadata file.
        living: the rows that it has left.
    """

    path: str
    living: pa.Table


def created(folder: pathlib.Path, rows: pa.Table) -> Any:
    """A table, whose file is written here: pyiceberg knows fewer times than a column has."""
    blank = pa.table([pa.nulls(rows.num_rows, field.type) for field in rows.schema], schema=rows.schema)
    table = icebergs.created(folder, blank)
    for location in icebergs.data_files(table):
        path = location.removeprefix("file://")
        ids = pa.parquet.read_schema(path)
        pa.parquet.write_table(pa.table(rows.columns, schema=ids), path)
    return table


def drawn(rng: random.Random, folder: pathlib.Path) -> Snapshot:
    """A table whose rows and lists share many values, and the rows that no list names."""
    names = rng.sample(sorted(COLUMNS), 4)
    units = [f"u{number % 5}" for number in range(20)] + ["eve"] * rng.choice([0, 1, 5])
    pools = {n: [None, *(v for v in COLUMNS[n][1] if fits(v, COLUMNS[n][0]))] for n in names}
    cells = {name: [rng.choice(pools[name]) for _ in units] for name in names}
    columns = {name: array(cells[name], COLUMNS[name][0]) for name in names}
    every = pa.table({"at": range(len(units)), "who": units, "k": [rng.choice("ab") for _ in units], **columns})
    table = created(folder / "table", every)
    files, lists = [], []
    for _ in range(rng.choice([1, 1, 3])):
        compared = rng.sample(names, rng.choice([1, 1, 2]))
        kinds = {name: rng.choice([COLUMNS[name][0], *COLUMNS[name][2]]) for name in compared}
        possible = {n: [as_listed(v, kinds[n]) for v in [None, *COLUMNS[n][1]] if fits(v, kinds[n])] for n in compared}
        number = rng.choice([1, 3, 8])
        listed = {name: [rng.choice(possible[name]) for _ in range(number)] for name in compared}
        values = pa.table({name: array(listed[name], kinds[name]) for name in compared})
        files.append(icebergs.by_value(folder, table, values))
        lists += [dict(zip(compared, row, strict=True)) for row in zip(*listed.values(), strict=True)]
    lives = [
        not any(all(equal(cells[n][place], one[n], COLUMNS[n][0]) for n in one) for one in lists)
        for place in range(len(units))
    ]
    return Snapshot(icebergs.with_deletes(table, files), every.filter(pa.array(lives)))


def without_deletes(snapshot: Snapshot, folder: pathlib.Path) -> str:
    """A table that never had the rows that the snapshot has lost."""
    return icebergs.metadata_of(created(folder / "living", snapshot.living))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SnapshotCase(file_pairs.Case):
    """A job over whatever table is at `now.metadata.json`."""

    csv: bool = False

    def write(self, folder: pathlib.Path) -> job_file.JobFile:
        """Write the job file."""
        stage = {
            "kind": "aggregate", "partition_by": ["k"], "partitions": {"public": [["a"], ["b"]]},
            "bounds": {"max_partitions_contributed": 2, "max_contributions_per_partition": 3},
            "metrics": {"rows": {"kind": "count"}, "places": {"kind": "sum", "column": "at", "min_value": 0, "max_value": 30}},
        }  # fmt: skip
        content = {
            "dataset": "pairs", "privacy_unit": "who", "budget": {"epsilon": 30.0, "delta": 1e-5},
            "source": {"iceberg": {"path": str(folder / "now.metadata.json")}}, "stages": {file_pairs.NAME: stage},
        }  # fmt: skip
        (folder / "job.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return job_file.load(str(folder / "job.yaml"))


def differing(rng: random.Random, folder: pathlib.Path, runs: file_pairs.Runs) -> list[str]:
    """What differs between a drawn snapshot and the table of its living rows, in words."""
    folder.mkdir()
    snapshot = drawn(rng, folder)
    sums, broken = [], []
    for path in (snapshot.path, without_deletes(snapshot, folder)):
        if read(look_at_iceberg(path, None), ["at"]) != snapshot.living.select(["at"]).to_pylist():
            broken.append("other rows are left")
        shutil.copy(path, runs.folder / "now.metadata.json")
        seen = runs.seen(b"")
        broken += [seen.public["failure"]] if seen.public["failure"] else []
        sums.append(neighbours.exact(seen.totals) if seen.totals else None)
    return broken + (["other sums"] if sums[0] != sums[1] else [])


def found(seed: int, number: int, folder: pathlib.Path) -> list[str]:
    """What differs in so many pairs."""
    (folder / "job").mkdir()
    first = icebergs.created(folder / "first", pa.table({"at": [0], "who": ["a"], "k": ["a"]}))
    shutil.copy(icebergs.metadata_of(first), folder / "job" / "now.metadata.json")
    runs = file_pairs.RunsOnLocal(SnapshotCase(name="deletes", job={}), folder / "job", threads=1, memory=2**30)
    return [
        f"{pair}: {words}"
        for pair in range(number)
        for words in differing(random.Random(f"{seed} {pair}"), folder / str(pair), runs)
    ]


def test_snapshots_with_the_same_living_rows_give_the_same_integers(tmp_path: pathlib.Path) -> None:
    assert found(0, 25, tmp_path) == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_thousand_snapshots_give_the_integers_of_their_living_rows(seed: int, tmp_path: pathlib.Path) -> None:
    assert found(seed, 100, tmp_path) == []


def test_a_list_whose_values_that_do_not_fit_become_null_is_found(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equal_rows, "_valid", lambda values: np.ones(len(values), np.bool_))
    assert any("other rows are left" in words for words in found(0, 25, tmp_path))
