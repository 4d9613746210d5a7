"""A hundred wrong inputs: one job that is right, with one thing wrong in each.

In: nothing. Out: the text of each job file and the command that is given it. Holds: each is wrong by its own text or by the
schema of its files, never by a row. Tests only.
"""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import yaml

RIGHT: dict[str, Any] = {
    "dataset": "golden",
    "params": {"week": {"type": "date"}},
    "privacy_unit": "customer",
    "budget": {"epsilon": 1.0, "delta": 1e-6, "runs": 2},
    "source": {"parquet": "data/*.parquet"},
    "where": "price < 15",
    "columns": {"dear": "price > 10"},
    "stages": {
        "weekly": {
            "kind": "aggregate",
            "partition_by": ["product"],
            "bounds": {"max_partitions_contributed": 3, "max_contributions_per_partition": 2},
            "partitions": {"private": {"strategy": "auto"}},
            "metrics": {
                "orders": {"kind": "count"},
                "revenue": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
            },
        },
        "model": {
            "kind": "train",
            "label": {"kind": "binary", "column": "dear"},
            "features": {"weight": {"kind": "number", "min_value": -1, "max_value": 1}},
        },
    },
}
GONE = object()
WEEKLY, MODEL = "stages.weekly.", "stages.model."
CHANGES: list[tuple[str, Any]] = [
    ("dataset", GONE), ("dataset", ""), ("dataset", 3), ("dataset", "a\x07b"), ("epsilon", 1), ("privacy_unit", GONE),
    ("privacy_unit", "nobody"), ("privacy_unit", []), ("privacy_unit", ["customer", "customer"]),
    ("budget", GONE), ("budget.epsilon", 0), ("budget.epsilon", -1), ("budget.epsilon", "1"), ("budget.epsilon", float("inf")),
    ("budget.epsilon", float("nan")), ("budget.delta", 1), ("budget.delta", -1e-9), ("budget.delta", 0), ("budget.runs", 0),
    ("budget.runs", 1.5), ("budget.runs", 10**9), ("budget.split", "harmonic"), ("budget.more", 1), ("budget.epsilon", 1e-12),
    ("source", GONE), ("source", {}), ("source", {"parquet": "data/*.parquet", "csv": "x.csv"}),
    ("source", {"csv": "data/*.csv"}),
    ("source.types", {"customer": "int64"}), ("source.quoted", False),
    ("source", {"parquet": "s3://key:secret@bucket/*.parquet"}),
    ("source", {"iceberg": {"path": "s3://key:secret@bucket/orders"}}),
    ("source", {"bigquery": {"table": "acme.shop.orders"}}),
    ("source", {"bigquery": {"table": "acme.orders", "snapshot_time": "2026-01-05T00:00:00Z"}}),
    ("source", {"bigquery": {"table": "acme.shop.orders", "snapshot_time": "2026-01-05"}}),
    ("source", {"bigquery": {"table": "acme.shop.orders", "snapshot_time": "2999-01-05T00:00:00Z"}}),
    ("source", {"bigquery": {"table": "acme.shop.orders", "snapshot_time": "2026-01-05T00:00:00Z"}, "delimiter": ";"}),
    ("where", "nobody > 1"), ("where", "price <"), ("where", "count(*) > 1"), ("where", "price"), ("where", "random() < 0.5"),
    ("where", "price > (SELECT 1)"), ("columns.dear", "nobody || 'x'"), ("columns.dear", "getenv('HOME')"),
    ("columns.price", "1"),
    ("columns.dear", "CAST(note AS"), ("lookup", {"parquet": "nowhere.parquet", "on": "product"}), ("lookup", {"on": "product"}),
    ("params.week.type", "week"), ("params.1week", {"type": "date"}), ("window", {"column": "paid_at", "days": 7}),
    ("window", {"column": "paid_at", "days": 7, "param": "month"}), ("row_id", "nobody"),
    ("outputs", {}), ("outputs.files", []), ("outputs.files", ["xlsx"]), ("outputs.files", ["csv", "csv"]), ("outputs.delta", ""),
    ("outputs.delta", "gs://bucket/tables"), ("outputs", {"files": ["csv"], "delta_mode": "append"}),
    ("outputs.delta_mode", "merge"), ("expect", {"users": -1}),
    ("stages", {}), ("stages", GONE), ("stages", []), (WEEKLY + "kind", "average"), (WEEKLY + "kind", GONE),
    (WEEKLY + "share", 0), (WEEKLY + "partition_by", GONE), (WEEKLY + "partition_by", []), (WEEKLY + "partition_by", ["nobody"]),
    (WEEKLY + "partition_by", ["price"]), (WEEKLY + "partition_by", ["product", "product"]),
    (WEEKLY + "bounds", {}), (WEEKLY + "bounds.max_partitions_contributed", 0),
    (WEEKLY + "bounds.max_partitions_contributed", "many"), (WEEKLY + "bounds.max_partitions_contributed", 2**30),
    (WEEKLY + "bounds.max_contributions_per_partition", -1), (WEEKLY + "bounds.max_contributions", 3),
    (WEEKLY + "bounds.partition_candidates", [1, 2]), (WEEKLY + "partitions", {}),
    (WEEKLY + "partitions", {"private": {}, "public": [["p1"]]}), (WEEKLY + "partitions", {"public": [["p1"], ["p1"]]}),
    (WEEKLY + "partitions", {"public": [["p1", "p2"]]}), (WEEKLY + "partitions", {"public": [[1]]}),
    (WEEKLY + "partitions", {"public_file": "nowhere.parquet"}), (WEEKLY + "partitions.private.strategy", "fair"),
    (WEEKLY + "partitions.private.min_users", -1), (WEEKLY + "metrics.orders.kind", "tally"),
    (WEEKLY + "metrics.orders.column", "price"), (WEEKLY + "metrics.orders.weight", 0),
    (WEEKLY + "metrics.revenue.column", "nobody"),
    (WEEKLY + "metrics.revenue.column", "note"), (WEEKLY + "metrics.revenue.min_value", 30),
    (WEEKLY + "metrics.revenue.max_value", GONE), (WEEKLY + "metrics.revenue.max_value", "auto"),
    (WEEKLY + "metrics.revenue.max_value", float("nan")), (WEEKLY + "metrics.revenue.stddev", 1e-9),
    (WEEKLY + "metrics.product", {"kind": "count"}), (WEEKLY + "metrics.bars", {"kind": "histogram", "column": "price"}),
    (WEEKLY + "metrics.bars", {"kind": "histogram", "column": "price", "edges": [1, 0]}),
    (WEEKLY + "metrics.half", {"kind": "quantiles", "column": "price", "quantiles": [2], "min_value": 0, "max_value": 1}),
    (WEEKLY + "metrics.sums", {"kind": "vector_sum", "column": "vector", "size": 0, "max_norm": 1}),
    (WEEKLY + "top", {"k": 1, "by": "nobody"}), (WEEKLY + "top", {"k": 0, "by": "orders"}),
    (WEEKLY + "best", {"k": 1, "by": "orders"}),
    (WEEKLY + "unit_columns", {"before": "sum(price) OVER (ORDER BY random())"}), (WEEKLY + "where", "nobody = 1"),
    (MODEL + "label.column", "nobody"), (MODEL + "label.kind", "ternary"), (MODEL + "features", {}),
    (MODEL + "features.weight.min_value", 2), (MODEL + "features.weight.bins", 0), (MODEL + "fit", {"steps": 0}),
    (MODEL + "fit", {"sampling_rate": 2.0}), (MODEL + "model", {"kind": "forest"}), (MODEL + "held_out", 1.5),
]  # fmt: skip
TEXTS = {
    "no text": "",
    "no YAML": "stages: [",
    "a list": "- 1\n",
    "a key twice": "dataset: a\ndataset: b\n",
    "a tab": "dataset: a\n\tbudget: 1\n",
    "an anchor that is nowhere": "dataset: *a\n",
}


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A wrong input: what is wrong, the job file's text, and what stands behind `plan job.yaml`."""

    name: str
    text: str
    options: tuple[str, ...] = ("--param", "week=2025-01-06")


def inputs() -> Iterator[Wrong]:
    """All of them."""
    for name, text in TEXTS.items():
        yield Wrong(name, text)
    right = yaml.safe_dump(RIGHT, sort_keys=False)
    yield Wrong("a parameter that is no date", right, ("--param", "week=monday"))
    yield Wrong("a parameter that nobody knows", right, ("--param", "week=2025-01-06", "--param", "day=1"))
    for path, value in CHANGES:
        yield Wrong(
            f"{path}: {'left out' if value is GONE else value}", yaml.safe_dump(changed(path, value), sort_keys=False)
        )


def changed(path: str, value: Any) -> dict[str, Any]:
    """The right job with something else in one place."""
    made = copy.deepcopy(RIGHT)
    *outer, last = path.split(".")
    place = made
    for key in outer:
        place = place.setdefault(key, {})
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return made
