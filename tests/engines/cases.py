"""What every runner must compute alike: jobs and rows that have gone wrong on some engine, or could.

In: a folder. Out: the job file of a case, with its rows beside it. Holds: rows are the same on every machine; no job has `top`.
Not covered: large data (`benchmarks/`). Tests only.
"""

import datetime
import decimal
import pathlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from tests.helpers.source import ROOT

TA_FENG = ROOT / "data" / "ta_feng"

Case = Callable[[pathlib.Path], pathlib.Path]

METRICS = {
    "orders": {"kind": "count"},
    "buyers": {"kind": "privacy_id_count"},
    "revenue": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
    "price": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 20},
}


def purchases(customers: list[int], products: list[str]) -> pa.Table:
    """Rows of a shop."""
    made = np.random.default_rng(11)
    rows = len(customers)
    days = np.datetime64("2025-01-06", "us") + made.integers(0, 28 * 86_400, rows) * 1_000_000
    return pa.table(
        {
            "customer": customers,
            "product": products,
            "store": pa.array(made.integers(1, 4, rows), pa.int32()),
            "paid_at": pa.array(days),
            "price": pa.array(made.random(rows) * 22 - 1),
        }
    )


def job(folder: pathlib.Path, tables: list[pa.Table], **changes: Any) -> pathlib.Path:
    """A job file with its rows beside it."""
    (folder / "data").mkdir()
    for number, table in enumerate(tables):
        pa.parquet.write_table(table, folder / "data" / f"part-{number}.parquet", row_group_size=5000)
    base = {
        "dataset": "shop",
        "privacy_unit": "customer",
        "budget": {"epsilon": 1.0, "delta": 1e-5},
        "source": {"parquet": "data/*.parquet"},
        "stages": {"weekly": aggregate()},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({**base, **changes}, sort_keys=False))
    return path


def aggregate(**changes: Any) -> dict[str, Any]:
    """An aggregate stage."""
    base = {
        "kind": "aggregate",
        "partition_by": ["product"],
        "bounds": {"max_partitions_contributed": 3, "max_contributions_per_partition": 2},
        "metrics": METRICS,
    }
    return {**base, **changes}


def a_hot_user(folder: pathlib.Path) -> pathlib.Path:
    """One user has nine of ten rows."""
    numbers = random.Random(1)
    customers = [7] * 36_000 + [numbers.randrange(500) for _ in range(4000)]
    rows = purchases(customers, [f"p{numbers.randrange(40)}" for _ in customers])
    return job(folder, [rows.slice(0, 15_000), rows.slice(15_000)])


def a_hot_key(folder: pathlib.Path) -> pathlib.Path:
    """All users are in one partition, and some in a thousand others."""
    numbers = random.Random(2)
    customers = [numbers.randrange(4000) for _ in range(20_000)]
    products = ["hot" if numbers.random() < 0.9 else f"p{numbers.randrange(1000)}" for _ in customers]
    return job(folder, [purchases(customers, products)])


def a_damaged_file(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A job, and its only file, whose footer is whole and whose first row group is not. No engine can compute it."""
    made = a_hot_key(folder)
    [path] = (folder / "data").iterdir()
    content = bytearray(path.read_bytes())
    content[100:5000] = bytes(4900)
    path.write_bytes(content)
    return made, path


def empty_shards(folder: pathlib.Path) -> pathlib.Path:
    """Fewer users than shards and fewer partitions than places; a public partition that nobody is in; a file without rows."""
    rows = purchases([1, 1, 2], ["a", "b", "a"])
    listed = aggregate(partitions={"public": [["a"], ["nobody's"]]})
    return job(folder, [rows, rows.slice(0, 0)], stages={"found": aggregate(), "listed": listed})


def no_rows(folder: pathlib.Path) -> pathlib.Path:
    """An input without rows."""
    listed = aggregate(partitions={"public": [["a"], ["b"]]})
    return job(folder, [purchases([1], ["a"]).slice(0, 0)], stages={"found": aggregate(), "listed": listed})


def types(folder: pathlib.Path) -> pathlib.Path:
    """A column of every type, as unit, as partition and as value; with nulls, NaN, signs of zero and ends of ranges."""
    numbers = random.Random(3)
    day = datetime.date(2025, 1, 6)
    noon = datetime.datetime(2025, 1, 6, 12)
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "text": (pa.string(), ["", "a", "ä\0", None]),
        "large_text": (pa.large_string(), ["x", "a longer text than one word", None]),
        "code": (pa.dictionary(pa.int16(), pa.string()), ["north", "south", None]),
        "bytes": (pa.binary(), [b"", b"\xff\0", None]),
        "large_bytes": (pa.large_binary(), [b"1", b"22"]),
        "fixed": (pa.binary(4), [b"aaaa", b"\0\0\0\0"]),
        "flag": (pa.bool_(), [True, False, None]),
        "tiny": (pa.int8(), [-128, 127, None]),
        "small": (pa.int16(), [-(2**15), 5]),
        "whole": (pa.int32(), [-1, 2**31 - 1]),
        "long": (pa.int64(), [-(2**63), 2**53 + 1, None]),
        "byte": (pa.uint8(), [0, 255]),
        "short": (pa.uint16(), [1, 2**16 - 1]),
        "unsigned": (pa.uint32(), [7, 2**32 - 1]),
        "huge": (pa.uint64(), [0, 2**64 - 1, None]),
        "single": (pa.float32(), [0.0, -0.0, float("nan"), 1.5]),
        "double": (pa.float64(), [0.1, float("inf"), float("-inf"), float("nan"), None]),
        "amount": (pa.decimal128(20, 2), [decimal.Decimal("0.10"), decimal.Decimal("-7.00"), None]),
        "wide": (pa.decimal256(50, 3), [decimal.Decimal("1.001"), None]),
        "day": (pa.date32(), [day, day + datetime.timedelta(1), None]),
        "second": (pa.timestamp("s"), [noon, None]),
        "moment": (pa.timestamp("us", "UTC"), [noon.replace(tzinfo=datetime.UTC), None]),
        "clock": (pa.time64("us"), [datetime.time(1, 2, 3), None]),
        "length": (pa.duration("ms"), [datetime.timedelta(seconds=1), None]),
        "nothing": (pa.null(), [None]),
    }
    many = range(6000)
    patterns = [{name: numbers.choice(found) for name, (_, found) in values.items()} for _ in range(30)]
    drawn = [patterns[numbers.randrange(30)] for _ in many]
    columns = {name: pa.array([row[name] for row in drawn], kind) for name, (kind, _) in values.items()}
    columns["who"] = pa.array([f"u{numbers.randrange(700)}" for _ in many])
    columns["where"] = pa.array([numbers.randrange(5) for _ in many], pa.int16())
    columns["vector"] = pa.array([[numbers.random(), -1.0, 0.5] for _ in many], pa.list_(pa.float64()))
    numeric = ("tiny", "small", "whole", "long", "byte", "short", "unsigned", "huge", "single", "double", "amount")
    limits = {"min_value": -1000, "max_value": 1000}
    of_numbers = {f"of_{name}": {"kind": "sum", "column": name, **limits} for name in numeric}
    others = {
        "spread": {"kind": "variance", "column": "double", **limits},
        "typical": {"kind": "geometric_mean", "column": "double", "min_value": 0.01, "max_value": 1000},
        "bands": {"kind": "quantiles", "column": "amount", "quantiles": [0.5, 0.9], **limits},
        "bins": {"kind": "histogram", "column": "single", "edges": [-1, 0, 1, 2]},
        "codes": {"kind": "histogram", "column": "code", "categories": ["north", "south"]},
        "kinds": {"kind": "distinct_count", "column": "large_text"},
        "taste": {"kind": "vector_sum", "column": "vector", "size": 3, "norm": "l2", "max_norm": 1.0},
    }
    counted = {"rows": {"kind": "count"}, "units": {"kind": "privacy_id_count"}}
    wide = {"max_partitions_contributed": 20, "max_contributions_per_partition": 3}
    keys = [name for name in values if name not in ("single", "double")]  # floats cannot partition
    stages = {
        "keys": aggregate(partition_by=keys, metrics=counted, bounds=wide),
        "values": aggregate(partition_by=["where"], metrics={**of_numbers, **others, **counted}, bounds=wide),
    }
    rows = pa.table(columns)
    return job(
        folder, [rows.slice(0, 2500), rows.slice(2500)], privacy_unit=["who", "day", "bytes", "single"], stages=stages
    )


def shaped_csv(folder: pathlib.Path) -> pathlib.Path:
    """Text files with cells that do not fit, a condition, a column of SQL and a joined table."""
    numbers = random.Random(4)
    path = job(
        folder,
        [],
        source={"csv": "data/*.csv", "types": {"customer": "int64", "product": "string", "price": "double"}},
        where="price IS NULL OR price < 15",
        columns={"dear": "CASE WHEN price > 10 THEN 'dear' ELSE 'cheap' END"},
        lookup={"parquet": "products.parquet", "on": "product"},
        stages={"weekly": aggregate(partition_by=["family", "dear"])},
    )
    for number in range(2):
        lines = ["customer,product,price"]
        for _ in range(3000):
            customer = numbers.choice([numbers.randrange(300), "x"])
            lines.append(f"{customer},p{numbers.randrange(9)},{numbers.random() * 20:.2f}")
        (folder / "data" / f"part-{number}.csv").write_text("\n".join(lines) + "\n")
    listed = {"product": [f"p{i}" for i in range(8)], "family": [f"f{i % 3}" for i in range(8)]}
    pa.parquet.write_table(pa.table(listed), folder / "products.parquet")
    return path


def _telling_what_is_kept(path: pathlib.Path) -> pathlib.Path:
    """The same job, whose stages also say what their bounds cut off."""
    content = yaml.safe_load(path.read_text())
    for stage in content["stages"].values():
        stage["kept"] = {"share": 0.1}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def kept_of_a_hot_user(folder: pathlib.Path) -> pathlib.Path:
    """What bounds keep where nearly all rows are those of one user."""
    return _telling_what_is_kept(a_hot_user(folder))


def kept_of_no_rows(folder: pathlib.Path) -> pathlib.Path:
    """What bounds keep of nothing."""
    return _telling_what_is_kept(no_rows(folder))


def kept_of_types(folder: pathlib.Path) -> pathlib.Path:
    """What bounds keep, and which values are null, in columns of every type."""
    return _telling_what_is_kept(types(folder))


def kept_of_shaped_csv(folder: pathlib.Path) -> pathlib.Path:
    """What bounds, a condition and a joined table keep of text files."""
    return _telling_what_is_kept(shaped_csv(folder))


def unit_columns(folder: pathlib.Path) -> pathlib.Path:
    """Columns from windows over all rows of a unit, before anything is bounded."""
    numbers = random.Random(5)
    customers = [numbers.choice([3, numbers.randrange(300)]) for _ in range(6000)]
    rows = purchases(customers, [f"p{numbers.randrange(6)}" for _ in customers])
    stage = aggregate(
        unit_columns={
            "before": "count(*) OVER (ORDER BY paid_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
            "spent": "sum(price) OVER (PARTITION BY store)",
        },
        where="before >= 1",
        max_rows_per_unit=100,
        metrics={
            "orders": {"kind": "count"},
            "spent": {"kind": "sum", "column": "spent", "min_value": 0, "max_value": 99},
        },
    )
    return job(folder, [rows.slice(0, 1000), rows.slice(1000)], stages={"weekly": stage})


def rollups(folder: pathlib.Path) -> pathlib.Path:
    """Three levels, private, listed, and listed on disk; null keys, keys of long texts, a listed region that nobody is in."""
    numbers = random.Random(8)
    customers = [numbers.choice([3, numbers.randrange(700)]) for _ in range(9000)]
    long = "a product whose name is longer than what travels as it is, " + "z" * 30
    rows = purchases(customers, [numbers.choice(["p1", "p2", long]) for _ in customers])
    rows = rows.append_column("region", pa.array([numbers.choice(["north", None, "south"]) for _ in customers]))
    by = ["region", "store", "product"]
    listed = [[r, s, p] for r in ("north", None, "nobody's") for s in (1, 2) for p in ("p1", long)]
    chain = {"partition_by": by, "rollup": [[], ["region"], ["region", "store"], by]}
    metrics = {
        **METRICS,
        "spent": {"kind": "sum", "column": "price", "min_sum_per_partition": 0, "max_sum_per_partition": 9},
    }
    stages = {
        "found": aggregate(**chain, metrics=metrics),
        "listed": aggregate(**chain, metrics=metrics, partitions={"public": listed}),
        "rows": aggregate(**chain, bounds={"max_contributions": 5}),
        "on_disk": aggregate(
            **chain, metrics=metrics, partitions={"public_sorted_file": "keys.parquet"}, having="orders_raw >= 5"
        ),
    }
    regions, stores, products = (list(column) for column in zip(*listed, strict=True))
    columns = {"region": regions, "store": pa.array(stores, pa.int32()), "product": products}
    pa.parquet.write_table(pa.table(columns).sort_by([(name, "ascending") for name in by]), folder / "keys.parquet")
    return job(folder, [rows.slice(0, 5000), rows.slice(5000)], stages=stages)


def other_keys(folder: pathlib.Path) -> pathlib.Path:
    """Listed keys and one group of all others: null keys that are listed or not, codes, long texts, a listed key without rows."""
    numbers = random.Random(10)
    customers = [numbers.choice([3, numbers.randrange(400)]) for _ in range(6000)]
    long = "a product whose name is longer than what travels as it is, " + "z" * 30
    rows = purchases(customers, [numbers.choice(["p1", "p2", "p3", long, long + "z"]) for _ in customers])
    regions = pa.array([numbers.choice(["north", None, "south"]) for _ in customers]).dictionary_encode()
    rows = rows.append_column("region", regions)
    several = {"product": ["p1", long, "nobody's"], "store": {"range": [1, 2]}}
    metrics = {**METRICS, "kinds": {"kind": "distinct_count", "column": "product"}}
    chosen = {"max_partitions_contributed": 2, "max_contributions_per_partition": 3}
    stages = {
        "regions": aggregate(partition_by=["region"], partitions={"public": [["north"], [None]], "other": True}),
        "no_null": aggregate(
            partition_by=["region"], partitions={"public": [["north"]], "other": True}, metrics=metrics
        ),
        "several": aggregate(
            partition_by=["product", "store"], partitions={"public": {"product": several}, "other": True}, bounds=chosen
        ),
        "rows": aggregate(partitions={"public": [[long]], "other": True}, bounds={"max_contributions": 5}),
        "losses": aggregate(partitions={"public": [["p1"]], "other": True}, kept={"share": 0.1}),
    }
    return job(folder, [rows.slice(0, 2000), rows.slice(2000)], stages=stages)


def _tables(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
    """Two tables whose units and days are written in other types, with nulls, and one unit that has most rows."""
    numbers = random.Random(9)
    customers = [7] * 2500 + [numbers.randrange(300) for _ in range(3000)]
    orders = purchases(customers, [f"p{numbers.randrange(6)}" for _ in customers])
    orders = orders.append_column("day", pa.array([numbers.choice([None, 1, 2, 3]) for _ in customers], pa.int32()))
    users = [7] * 2000 + [numbers.choice([None, numbers.randrange(320)]) for _ in range(3000)]
    pages = [numbers.choice(["home", "cart", None]) for _ in users]
    visits = {
        "user": pa.array(users, pa.int16()),
        "visited": pa.array([numbers.choice([None, 1, 2, 4]) for _ in users], pa.int64()),
        "page": pa.array(pages).dictionary_encode(),
        "seconds": pa.array([numbers.choice([None, float("nan"), numbers.random() * 90]) for _ in users]),
    }
    pa.parquet.write_table(pa.table(visits), folder / "visits.parquet", row_group_size=1500)
    tables = {
        "orders": {"parquet": "data/*.parquet", "where": "price > 0"},
        "visits": {"parquet": "visits.parquet", "columns": {"long_visit": "seconds > 60"}},
    }
    unit = {"orders": "customer", "visits": "user"}
    path = job(folder, [orders.slice(0, 2000), orders.slice(2000)], privacy_unit=unit, **changes)
    said = {**yaml.safe_load(path.read_text()), "tables": tables}
    del said["source"]
    path.write_text(yaml.safe_dump(said))
    return path


def joined_tables(folder: pathlib.Path) -> pathlib.Path:
    """A join on unit and day, and on top of it all rows of a unit; caps that leave rows out."""
    metrics = {**METRICS, "time": {"kind": "sum", "column": "seconds", "min_value": 0, "max_value": 60}}
    windows = aggregate(unit_columns={"rows_here": "count(*) OVER ()"}, where="rows_here < 900")
    most = {"orders": 400, "visits": 300}
    return _tables(
        folder,
        join={"left": "orders", "right": "visits", "on": [["day", "visited"]], "max_rows_per_unit": most},
        where="store <> 2",
        stages={"pages": aggregate(partition_by=["product", "page"], metrics=metrics), "windows": windows},
    )  # fmt: skip


def left_joined_tables(folder: pathlib.Path) -> pathlib.Path:
    """A left join on the unit alone: all pairs of a unit's rows, and rows that meet nothing."""
    return _tables(
        folder,
        join={"left": "orders", "right": "visits", "kind": "left", "max_rows_per_unit": {"orders": 600, "visits": 500}},
        stages={"pages": aggregate(partition_by=["page", "long_visit"], bounds={"max_contributions": 40})},
    )


def united_tables(folder: pathlib.Path) -> pathlib.Path:
    """Two tables one under the other."""
    made = _tables(
        folder,
        union=["orders", "visits"],
        stages={"days": aggregate(partition_by=["what"], metrics={"n": {"kind": "count"}})},
    )
    said = yaml.safe_load(made.read_text())
    said["tables"]["orders"]["columns"] = {"what": "product"}
    said["tables"]["visits"]["columns"] = {"what": "page"}
    made.write_text(yaml.safe_dump(said))
    return made


def examples_of_a_join(folder: pathlib.Path) -> pathlib.Path:
    """The joined rows on which a model would be trained."""
    stage = {
        "kind": "train",
        "unit_columns": {"rows_here": "count(*) OVER ()"},
        "where": "rows_here > 1",
        "label": {"kind": "binary", "column": "long_visit"},
        "features": {
            "rows_here": {"kind": "number", "min_value": 0, "max_value": 900},
            "page": {"kind": "category", "categories": ["home", "cart"]},
        },
        "max_examples_per_unit": 4,
    }
    most = {"orders": 40, "visits": 30}
    join = {"left": "orders", "right": "visits", "on": [["day", "visited"]], "max_rows_per_unit": most}
    return _tables(folder, join=join, stages={"long": stage})


def examples_of_training(folder: pathlib.Path) -> pathlib.Path:
    """The rows on which a model would be trained."""
    numbers = random.Random(6)
    customers = [numbers.randrange(300) for _ in range(5000)]
    rows = purchases(customers, [f"p{numbers.randrange(6)}" for _ in customers])
    stage = {
        "kind": "train",
        "unit_columns": {
            "before": "count(*) OVER (ORDER BY paid_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
            "dear": "price > 10",
        },
        "where": "before >= 0",
        "label": {"kind": "binary", "column": "dear"},
        "features": {
            "before": {"kind": "number", "min_value": 0, "max_value": 20},
            "product": {"kind": "category", "categories": ["p1", "p2"]},
        },
        "max_examples_per_unit": 4,
    }
    return job(folder, [rows.slice(0, 1000), rows.slice(1000)], stages={"dear": stage})


def ta_feng(folder: pathlib.Path) -> pathlib.Path:
    """The demo's weekly report of 817,741 real rows; a test that needs it is skipped where nobody has fetched them."""
    if not TA_FENG.is_dir():
        pytest.skip("the data of Ta Feng are not here: examples/ta_feng/fetch.py")
    text = (ROOT / "examples" / "ta_feng" / "weekly.yaml").read_text()
    path = folder / "job.yaml"
    path.write_text(text.replace("../../data/ta_feng", str(TA_FENG)))
    return path


SMALL: list[Case] = [
    a_hot_user, a_hot_key, empty_shards, no_rows, types, shaped_csv, unit_columns, examples_of_training,
    kept_of_a_hot_user, kept_of_no_rows, kept_of_types, kept_of_shaped_csv, rollups,
    other_keys, joined_tables, left_joined_tables, united_tables, examples_of_a_join,
]  # fmt: skip
CASES: list[Case] = [*SMALL, ta_feng]
