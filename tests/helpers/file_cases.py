"""The jobs that pairs of files go through: every type as a key, as a number, as a value that is counted; every kind of metric.

In: nothing. Out: lists of cases. Holds: each column of `hostile` is read by some case. Tests only.
"""

from typing import Any

from tests.helpers import hostile
from tests.helpers.file_pairs import Case

KEYS = [
    "text",
    "large",
    "code",
    "blob",
    "fixed",
    "flag",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "dec",
    "small_dec",
    "day",
    "day64",
    "at",
    "at_s",
    "at_ns",
    "at_tz",
    "clock",
]
NUMBERS = ["f16", "f32", "f64", "dec", "small_dec", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "flag"]
CSV_KEYS = ["text", "flag", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "day", "at", "at_tz", "shop"]
CSV_NUMBERS = ["f32", "f64", "i8", "u64", "flag"]
LISTED = {"public": [["north"], ["south"], ["none"]]}
SPREAD = {"column": "f64", "min_value": -1, "max_value": 4}


def count(*columns: str, **metrics: Any) -> dict[str, Any]:
    """A stage that counts rows and units in partitions, and more."""
    both = {"rows": {"kind": "count"}, "units": {"kind": "privacy_id_count"}}
    return {"partition_by": list(columns), "metrics": {**both, **metrics}}


def of_types(keys: list[str], numbers: list[str], csv: bool) -> list[Case]:
    """Each type as a key, beside a number that is added up and another type of which different values are counted."""
    cases = []
    for place, key in enumerate(keys):
        total = {"kind": "sum", "column": numbers[place % len(numbers)], "min_value": -1, "max_value": 4}
        different = {"kind": "distinct_count", "column": keys[(place + 5) % len(keys)]}
        stage = count(key, total=total, different=different)
        cases.append(Case(name=f"{'csv' if csv else 'parquet'}, by {key}", csv=csv, job={"stage": stage}))
    return cases


def of_kinds(csv: bool) -> list[Case]:
    """Each kind of job and metric."""
    spread = {"mean": {"kind": "mean", **SPREAD}, "variance": {"kind": "variance", **SPREAD}}
    tree = {"bands": {"kind": "quantiles", "quantiles": [0.1, 0.5], **SPREAD}}
    bars = {"bars": {"kind": "histogram", "column": "f64", "edges": [0, 1, 3]}}
    clipped = {"kind": "sum", "column": "f64", "min_sum_per_partition": 0, "max_sum_per_partition": 5}
    columns = {
        "half": "CAST(i32 / 2 AS INTEGER)",
        "loud": "upper(text)",
        "month": "date_trunc('month', \"at\")",
        "is_long": "length(text) > 9",
    }
    clamp = {"column": "f64", "min_value": 0, "max_value": {"lookup": "most", "default": 2}}
    clamps = {kind: {"kind": kind, **clamp} for kind in ("sum", "mean")}
    jobs: dict[str, dict[str, Any]] = {
        "spread": {"stage": count("text", **spread)},
        "quantiles": {"stage": count("day", **tree)},
        "histogram": {"stage": count("flag", **bars)},
        "clipped": {"stage": count("i8", most=clipped)},
        "rows in all": {"stage": {**count("text", "day"), "bounds": {"max_contributions": 3}}},
        "two units": {"privacy_unit": ["who", "number"], "stage": count("shop", **spread)},
        "a number as unit": {"privacy_unit": "number", "stage": count("text", "flag")},
        "listed": {"stage": {**count("text", **spread, most=clipped), "partitions": LISTED}},
        "listed, a tree": {"stage": {**count("text", **tree, **bars), "partitions": LISTED}},
        "listed, all others": {
            "stage": {**count("text", **spread, most=clipped), "partitions": {**LISTED, "other": True}}
        },
        "row id": {"row_id": "text", "stage": count("day")},
        "expressions": {
            "where": "i32 >= 0 OR f64 > 1",
            "columns": columns,
            "stage": count("loud", "month", "is_long", "half"),
        },
        "lookup": {"lookup": {"parquet": "stores.parquet", "on": "shop"}, "stage": count("city")},
        "clamps": {"lookup": {"parquet": "stores.parquet", "on": "shop"}, "stage": count("shop", "text", **clamps)},
        "lookup of csv": {"lookup": {"csv": "stores.csv", "on": "shop"}, "where": "shop > 0", "stage": count("city")},
    }
    stores = {"parquet": "stores.parquet", "on": {"shop": "shop"}}
    towns = {"csv": "towns.csv", "on": ["city", "flag"], "max_rows_per_key": 3}
    jobs["lookups, exploded"] = {"lookup": [stores, towns], "stage": count("ward", total={"kind": "sum", **SPREAD})}
    jobs["exploded, rows in all"] = {
        "lookup": [stores, towns],
        "row_id": "text",
        "stage": {**count("city"), "bounds": {"max_contributions": 3}},
    }
    if csv:
        german = {"encoding": "cp1252", "decimal": ",", "thousands": ".", "formats": {"at": ["%d.%m.%Y", "iso8601"]}}
        jobs["german"] = {"source": {**german, "nulls": ["", "-"]}, "stage": count("text", "at", **spread)}
        marks = {"delimiter": "|", "quote": "'", "header": False, "names": list(hostile.CSV_TYPES)}
        jobs["no header, other marks"] = {"source": marks, "stage": count("text")}
        jobs["unquoted"] = {"source": {"quoted": False}, "stage": count("text", **spread)}
        jobs["unquoted, listed"] = {"source": {"quoted": False}, "stage": {**count("text"), "partitions": LISTED}}
    else:
        vectors = {"kind": "vector_sum", "column": "vector", "size": 2, "norm": "l2", "max_norm": 1.0}
        jobs["vectors"] = {"stage": count("text", sums=vectors)}
    return [Case(name=f"{'csv' if csv else 'parquet'}, {name}", csv=csv, job=job) for name, job in jobs.items()]


CASES = [
    *of_types(KEYS, NUMBERS, csv=False),
    *of_types(CSV_KEYS, CSV_NUMBERS, csv=True),
    *of_kinds(csv=False),
    *of_kinds(csv=True),
]
