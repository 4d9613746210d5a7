"""One small job for each form of a release: every selection strategy, every refinement of a stage, every kind of model.

In: a folder. Out: files of rows, and a job for each form, the same on every machine. Holds: `test_releases.py` compares the
forms with the keys of a job file. Not covered: several organisations and reports of devices, which have jobs of their own in
`releases.py`.
"""

import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

CUSTOMERS, ROWS, KEYS = 400, 1600, 300

SOURCE = {"parquet": "data/*.parquet"}
BOUNDS = {"max_partitions_contributed": 3, "max_contributions_per_partition": 2}
PAID = {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20}
METRICS = {"orders": {"kind": "count"}, "customers": {"kind": "privacy_id_count"}, "paid": PAID}
PUBLIC = {"public": [[product] for product in ("p0", "p1", "p2", "nobody's")]}
DEAR = {"kind": "binary", "column": "dear"}
LINE = {"store": {"kind": "number", "min_value": 0, "max_value": 4, "bins": 1, "scaled": True}}
STRATEGIES = ("auto", "truncated_geometric", "laplace", "gaussian", "weighted_gaussian", "sips")
JAX = "tests.training.kernels.test_own_gradients:logistic"


def rows() -> pa.Table:
    """Return the orders of a shop: most customers have a few products, few customers the rare ones."""
    made = np.random.default_rng(20260105)
    customer = made.integers(0, CUSTOMERS, ROWS)
    product = np.minimum(made.geometric(0.4, ROWS) - 1, 9)
    price = made.integers(-40, 900, ROWS) / 32
    return pa.table(
        {
            "customer": customer,
            "product": pa.array([f"p{number}" for number in product]),
            "store": pa.array(made.integers(1, 4, ROWS)),
            "arm": pa.array(np.where(customer % 2, "B", "A")),
            "page": pa.array([f"page {number:03d}" for number in made.integers(0, KEYS, ROWS) // 20 * 20]),
            "price": pa.array(price, mask=made.random(ROWS) < 0.05),
            "dear": pa.array(price > 10),
        }
    )


def write(folder: pathlib.Path) -> None:
    """Write all files that the jobs read."""
    (folder / "data").mkdir(parents=True)
    table = rows()
    pa.parquet.write_table(table.slice(0, 700), folder / "data" / "a.parquet")
    pa.parquet.write_table(table.slice(700), folder / "data" / "b.parquet", row_group_size=300)
    pa.parquet.write_table(table.select(["store", "product"]).slice(0, 40), folder / "public.parquet")
    visits = table.select(["customer", "store"]).rename_columns(["person", "place"]).slice(200, 600)
    pa.parquet.write_table(visits, folder / "visits.parquet")
    keys = pa.table({"page": [f"page {number:03d}" for number in range(KEYS)]})
    pa.parquet.write_table(keys, folder / "keys.parquet")


def aggregate(**changes: Any) -> dict[str, Any]:
    """Return an aggregate stage with some keys changed."""
    return {"kind": "aggregate", "partition_by": ["product"], "bounds": BOUNDS, "metrics": METRICS, **changes}


def train(**changes: Any) -> dict[str, Any]:
    """Return a train stage with some keys changed."""
    return {"kind": "train", "label": DEAR, "features": LINE, "fit": {"steps": 3}, **changes}


def job(stage: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a job of one stage with some keys changed or left out (None)."""
    made = {
        "dataset": "baseline",
        "privacy_unit": "customer",
        "budget": {"epsilon": 4.0, "delta": 1e-5},
        "source": SOURCE,
        "stages": {"made": stage},
        **changes,
    }
    return {key: value for key, value in made.items() if value is not None}


def selected_by(strategy: str) -> dict[str, Any]:
    """Return a job that selects partitions by a strategy."""
    bounds = {"max_partitions_contributed": 4, "max_contributions_per_partition": 1}
    private = {"private": {"strategy": strategy}}
    return job(aggregate(partition_by=["product", "store"], bounds=bounds, partitions=private))


AUTO = {"column": "price", "min_value": 0, "max_value": "auto", "within": [0, 1000]}
NETWORK = {"kind": "mlp", "hidden": [4]}
OWN = {"kind": "jax", "name": JAX, "parameters": 4, "microbatch": 8}

JOBS: dict[str, dict[str, Any]] = {
    **{f"strategy {strategy}": selected_by(strategy) for strategy in STRATEGIES},
    "rollup": job(aggregate(partition_by=["product", "store"], rollup=[[], ["product"], ["product", "store"]])),
    "compare": job(
        aggregate(
            partition_by=["arm"],
            partitions={"public": [["A"], ["B"]]},
            bounds={"max_partitions_contributed": 1, "max_contributions_per_partition": 6},
            compare={"by": "arm", "baseline": "A", "metrics": ["orders", "paid / orders"]},
        )
    ),
    "bound losses": job(aggregate(partitions=PUBLIC, kept={"share": 0.3})),
    "auto bounds of values": job(aggregate(partitions=PUBLIC, metrics={"paid": {"kind": "sum", **AUTO}})),
    "auto bound on partitions": job(
        aggregate(
            bounds={
                "max_partitions_contributed": "auto",
                "max_contributions_per_partition": 2,
                "partition_candidates": [1, 2, 4],
            }
        )
    ),
    "other keys": job(
        aggregate(
            partition_by=["product", "store"],
            partitions={
                "public": {"product": {"product": ["p0", "p1", "nobody's"], "store": {"range": [1, 3]}}},
                "other": True,
            },
        )
    ),
    "large list": job(
        aggregate(
            partition_by="page",
            partitions={"public_sorted_file": "keys.parquet"},
            having="orders >= 20",
            metrics={"orders": {"kind": "count"}, "paid": PAID},
        )
    ),
    "join": job(
        aggregate(partition_by=["product", "place"], metrics={"orders": {"kind": "count"}, "paid": PAID}),
        source=None,
        privacy_unit={"orders": "customer", "visits": "person"},
        tables={"orders": SOURCE, "visits": {"parquet": "visits.parquet"}},
        join={
            "left": "orders",
            "right": "visits",
            "on": [["store", "place"]],
            "max_rows_per_unit": {"orders": 4, "visits": 4},
        },
    ),
    "rows are people": job(aggregate(partitions=PUBLIC, bounds="auto"), privacy_unit={"row": True}),
    "total": job(aggregate(partition_by=[], bounds={"max_contributions_per_partition": 6})),
    "best": job(aggregate(partitions=PUBLIC, metrics={"orders": {"kind": "count"}}, best={"k": 2, "by": "orders"})),
    "top": job(aggregate(top={"k": 2, "by": "orders"})),
    "train linear": job(train()),
    "train mlp": job(train(model=NETWORK)),
    "train jax": job(train(model=OWN)),
    "train with found features": job(
        train(
            features={
                "product": {"kind": "category", "most": 3},
                "store": {"kind": "number", "min_value": 0, "max_value": 4, "bins": 3},
            }
        )
    ),
    "federate": job(
        {"kind": "federate", "expected_clients": 400, "label": DEAR, "features": LINE, "fit": {"rounds": 3}}
    ),
    "federate with correlated noise": job(
        {
            "kind": "federate",
            "expected_clients": 400,
            "label": DEAR,
            "features": LINE,
            "fit": {"rounds": 4, "separation": 2, "noise": "correlated"},
        }
    ),
    "pate": job(
        {
            "kind": "pate",
            "label": DEAR,
            "features": LINE,
            "public": {"parquet": "public.parquet"},
            "fit": {"teachers": 40, "answers": 10},
        }
    ),
}
"""The job of each form."""
