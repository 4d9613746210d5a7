"""Every type of Arrow that a Parquet file can have, in every part that a column can play: it works, or is refused unpaid.

In: one file with a column of each type. Out: for each part the columns that the request accepts, and one run with all of them.
Holds: a refusal comes before the charge, with exit code 2; what is accepted is released. Not covered: what values become.
"""

import datetime
import decimal
import functools
import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file

ROWS = 400
LONG = "x" * 5000
"""A text that a file holds once for many rows, so that readers take another way."""


def arrays() -> Iterator[pa.Array]:
    """A column of each type, with four values and some nulls."""
    of = [None if place % 50 == 7 else place % 4 for place in range(ROWS)]

    def made(kind: pa.DataType, value: Callable[[int], Any]) -> pa.Array:
        return pa.array([None if number is None else value(number) for number in of], kind)

    yield pa.nulls(ROWS)
    yield made(pa.bool_(), lambda number: number % 2 == 0)
    for bits in (8, 16, 32, 64):
        yield made(getattr(pa, f"int{bits}")(), int)
        yield made(getattr(pa, f"uint{bits}")(), int)
    for real in (pa.float16(), pa.float32(), pa.float64()):
        yield made(real, np.dtype(real.to_pandas_dtype()).type)
    for text in (pa.string(), pa.large_string(), pa.string_view()):
        yield made(text, str)
        yield made(text, lambda number: f"{LONG}{number}")
    for octets in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4)):
        yield made(octets, lambda number: b"abc%d" % number)
    day, midnight = datetime.date(2026, 1, 5), datetime.datetime(2026, 1, 5)
    for date in (pa.date32(), pa.date64()):
        yield made(date, lambda number: day + datetime.timedelta(number))
    for unit in ("s", "ms", "us", "ns"):
        yield made(pa.duration(unit), datetime.timedelta)
        for zone in (None, "UTC", "Europe/Zurich"):
            yield made(pa.timestamp(unit, zone), lambda number: midnight + datetime.timedelta(number))
    for time in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        yield made(time, datetime.time)
    for exact in (pa.decimal32(5, 2), pa.decimal64(10, 2), pa.decimal128(20, 2), pa.decimal256(50, 2)):
        yield made(exact, decimal.Decimal)
    lists = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda inner: pa.list_(inner, 2))
    for several in lists:
        yield made(several(pa.float64()), lambda number: [float(number), 1.0])
        yield made(several(pa.string_view()), lambda number: [str(number), "a"])
    yield made(pa.struct([("a", pa.list_(pa.int64(), 1))]), lambda number: {"a": [number]})
    yield made(pa.list_(pa.list_(pa.int64(), 1)), lambda number: [[number]])
    yield made(pa.struct([("a", pa.int64()), ("b", pa.string_view())]), lambda number: {"a": number, "b": "x"})
    yield made(pa.map_(pa.string(), pa.int64()), lambda number: [("a", number)])
    yield made(pa.string(), str).dictionary_encode()
    yield made(pa.large_string(), str).dictionary_encode()
    yield pa.ExtensionArray.from_storage(pa.uuid(), made(pa.binary(16), lambda number: uuid.UUID(int=number).bytes))
    yield pa.ExtensionArray.from_storage(pa.json_(), made(pa.string(), str))
    yield pa.ExtensionArray.from_storage(pa.bool8(), made(pa.int8(), lambda number: number % 2))
    for stored in (pa.string(), pa.string_view()):
        yield pa.ExtensionArray.from_storage(pa.opaque(stored, "kind", "vendor"), made(stored, str))
    yield made(pa.fixed_shape_tensor(pa.float64(), [2]).storage_type, lambda number: [float(number), 1.0])


TABLE = pa.table({"u": range(ROWS), "k": ["a", "b"] * (ROWS // 2), "y": [True, False] * (ROWS // 2), "v": [1.0] * ROWS})
BY_NAME = {f"x{place}": column for place, column in enumerate(arrays())}
COLUMNS = list(BY_NAME)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("types")
    table = functools.reduce(lambda made, new: made.append_column(*new), BY_NAME.items(), TABLE)
    pq.write_table(table, place / "rows.parquet")
    pq.write_table(table.slice(0, 4), place / "few.parquet")
    pq.write_table(table.select(["u", *COLUMNS]), place / "other.parquet")
    for name, column in BY_NAME.items():
        pq.write_table(pa.table({name: column.slice(0, 4), f"of_{name}": range(4)}), place / f"{name}.parquet")
    return place


def stage(**changes: Any) -> dict[str, Any]:
    bounds = {"max_partitions_contributed": 2, "max_contributions_per_partition": 2}
    return {
        "kind": "aggregate",
        "partition_by": ["k"],
        "bounds": bounds,
        "metrics": {"n": {"kind": "count"}},
        **changes,
    }


def job(**changes: Any) -> dict[str, Any]:
    base = {"dataset": "d", "privacy_unit": "u", "budget": {"epsilon": 30.0, "delta": 1e-5}}
    base |= {"source": {"parquet": "rows.parquet"}, "stages": {"s": stage()}}
    return {key: value for key, value in (base | changes).items() if value is not None}


def feature(name: str, column: pa.Array) -> dict[str, Any]:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return {"kind": "number", "column": name, "min_value": 0, "max_value": 4}
    return {"kind": "category", "column": name, "categories": ["0", "1", "2"]}


def trained(names: list[str]) -> dict[str, Any]:
    features = {name: feature(name, BY_NAME[name]) for name in names}
    label = {"kind": "binary", "column": "y"}
    return job(stages={"m": {"kind": "train", "label": label, "features": features, "fit": {"steps": 2}}})


def joined(names: list[str]) -> dict[str, Any]:
    tables = {"one": {"parquet": "rows.parquet"}, "two": {"parquet": "other.parquet"}}
    return job(
        source=None,
        tables=tables,
        join={"left": "one", "right": "two", "on": names, "max_rows_per_unit": {"one": 2, "two": 2}},
    )


PARTS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "where": lambda names: job(where=" AND ".join(f"({name} IS NOT NULL OR v > 0)" for name in names)),
    "columns": lambda names: job(columns={f"of_{name}": f"{name} IS NULL" for name in names}),
    "join": joined,
    "window": lambda names: job(
        params={"start": {"type": "date"}},
        window={"column": names[0], "days": 7, "param": "start"},
    ),
    "key": lambda names: job(stages={"s": stage(partition_by=names)}),
    "unit": lambda names: job(privacy_unit=names),
    "value": lambda names: job(
        stages={
            "s": stage(
                metrics={f"t{name}": {"kind": "sum", "column": name, "min_value": 0, "max_value": 4} for name in names}
            )
        }
    ),
    "distinct": lambda names: job(
        where="v > 0",
        stages={"s": stage(metrics={f"d{name}": {"kind": "distinct_count", "column": name} for name in names})},
    ),
    "vector": lambda names: job(
        stages={
            name: stage(metrics={"w": {"kind": "vector_sum", "column": name, "size": 2, "norm": "l2", "max_norm": 2.0}})
            for name in names
        }
    ),
    "lookup": lambda names: job(lookup=[{"parquet": f"{name}.parquet", "on": name} for name in names]),
    "listed": lambda names: job(stages={"s": stage(partition_by=names, partitions={"public_file": "few.parquet"})}),
    "over units": lambda names: job(
        stages={
            "s": stage(
                unit_columns={f"last_{name}": f"max({name} IS NULL) OVER (PARTITION BY u)" for name in names},
                max_rows_per_unit=4,
            )
        }
    ),
    "train": trained,
}


WINDOW = ["start=2026-01-05"]


def accepted(folder: pathlib.Path, part: str) -> tuple[list[str], dict[str, str]]:
    """The columns that can play a part, and for each other why not."""
    names: list[str] = []
    refused: dict[str, str] = {}
    path = folder / "job.yaml"
    for name in COLUMNS:
        path.write_text(yaml.safe_dump(PARTS[part]([name]), sort_keys=False))
        try:
            check(job_file.load(str(path)), WINDOW if part == "window" else [])
        except RequestError as error:
            refused[name] = str(error)
        else:
            names.append(name)
    return names, refused


def run(folder: pathlib.Path, content: dict[str, Any], out: pathlib.Path) -> int:
    (folder / "job.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    given = ["--param", *WINDOW] if "window" in content else []
    return main.main(["run", str(folder / "job.yaml"), "--output", str(out), "--ledger", "none", *given])


@pytest.mark.parametrize("part", PARTS)
def test_a_column_of_any_type_plays_its_part_or_is_refused_before_anything_is_spent(
    folder: pathlib.Path, tmp_path: pathlib.Path, part: str
) -> None:
    names, refused = accepted(folder, part)
    assert len(names) >= 5
    for name, why in refused.items():
        assert "job.yaml:" in why or "rows.parquet" in why, (name, why)
    for place, together in enumerate([[name] for name in names] if part == "window" else [names]):
        assert run(folder, PARTS[part](together), tmp_path / f"out{place}") == 0, together
    if part == "train":
        model, released = tmp_path / "out0" / "m", tmp_path / "scores.parquet"
        assert main.main(["predict", str(model), str(folder / "rows.parquet"), "--output", str(released)]) == 0
        assert pq.read_metadata(released).num_rows == ROWS
    if part == "unit":
        views = [name for name, column in BY_NAME.items() if str(column.type).endswith("_view")]
        assert set(views) & set(names)
