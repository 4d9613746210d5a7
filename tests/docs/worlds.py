"""What the pages take for granted: a shop's files, a job file, a model that was trained before.

In: an empty folder. Out: that folder with files in it. Holds: rows are made, never real; each page has a folder of its own.
Not covered: Ta Feng, which the tutorial's own test fetches as its reader does.
"""

import datetime
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.docs.blocks import blocks
from tests.helpers.source import ROOT

ROWS = 20_000


def shop(folder: pathlib.Path) -> None:
    """Rows with every column that a page names, and the tables beside them."""
    made = np.random.default_rng(7)
    days = made.integers(0, 119, ROWS)
    times = np.datetime64("2026-01-05", "us") + days * np.timedelta64(1, "D")
    rows = {
        "CUSTOMER_ID": made.integers(0, 4_000, ROWS),
        "PRODUCT": [f"p{number}" for number in made.integers(0, 5, ROWS)],
        "PRODUCT_ID": made.integers(0, 50, ROWS),
        "SOLD_AT": pa.array(times),
        "AMOUNT": made.integers(0, 5, ROWS),
        "PRICE": made.random(ROWS) * 300,
        "STORE": made.integers(1, 4, ROWS),
        "ORDER_LINE": np.arange(ROWS),
        "EMBEDDING": pa.array(list(made.random((ROWS, 16), np.float32)), pa.list_(pa.float32(), 16)),
        "day": days,
        "weekday": days % 7 + 1,
        "price": made.random(ROWS) * 300,
        "area": [("north", "south")[number] for number in made.integers(0, 2, ROWS)],
        "brand": [f"b{number}" for number in made.integers(0, 30, ROWS)],
    }
    (folder / "data").mkdir()
    pq.write_table(pa.table(rows), folder / "data" / "one.parquet")
    clamps = {"MIN_PRICE": [0.0, 0.5, 5.0], "MAX_PRICE": [20.0, 50.0, 1000.0]}
    pq.write_table(pa.table({"STORE": [1, 2, 3], "CITY": ["a", "b", "c"], **clamps}), folder / "stores.parquet")
    pq.write_table(pa.table({"PRODUCT": [f"p{number}" for number in range(5)]}), folder / "products.parquet")
    (folder / "events").mkdir()
    events = {
        "customer_id": rows["CUSTOMER_ID"],
        "region": rows["area"],
        "week": [datetime.date(2026, 1, 5) + datetime.timedelta(days=int(day) // 7 * 7) for day in days],
        "amount": rows["PRICE"],
        "age": made.integers(18, 90, ROWS),
        "spent": rows["price"],
    }
    pq.write_table(pa.table(events), folder / "events" / "one.parquet")


WEEKLY_JOB = """
dataset: shop
params: {week: {type: date}}
privacy_unit: CUSTOMER_ID
budget: {epsilon: 1.0, delta: 1.0e-6, runs: 52}
source: {parquet: "data/*.parquet"}
where: "date_trunc('week', SOLD_AT) = {week}"
columns: {week: "date_trunc('week', SOLD_AT)"}
stages:
  weekly:
    kind: aggregate
    partition_by: [PRODUCT, week]
    bounds: {max_partitions_contributed: 16, max_contributions_per_partition: 2}
    metrics:
      orders: {kind: count}
      buyers: {kind: privacy_id_count}
      revenue: {kind: sum, column: PRICE, min_value: 0, max_value: 1000}
      price: {kind: mean, column: PRICE, min_value: 0, max_value: 1000, nullable: false}
"""


def readme(folder: pathlib.Path) -> None:
    """What a reader copies from examples/shop, and the rows of a Beam pipeline."""
    shop(folder)
    shutil.rmtree(folder / "data")
    for name in ("make_rows.py", "weekly.yaml"):
        shutil.copy(ROOT / "examples" / "shop" / name, folder)


def weekly(folder: pathlib.Path) -> None:
    """The shop, and a job file for one report a week; the same for people of whom each week is a unit."""
    shop(folder)
    (folder / "weekly.yaml").write_text(WEEKLY_JOB)
    shutil.copytree(folder / "data", folder / "windows")
    other = WEEKLY_JOB.replace("data/", "windows/").replace("dataset: shop", "dataset: windows")
    (folder / "windows.yaml").write_text(other)


def weekly_and_unlabelled(folder: pathlib.Path) -> None:
    """The same, with a public table of examples without labels."""
    weekly(folder)
    made = np.random.default_rng(8)
    table = {
        "lines": made.integers(1, 20, 400),
        "area": [("north", "south")[number] for number in made.integers(0, 2, 400)],
    }
    pq.write_table(pa.table(table), folder / "unlabelled.parquet")


MODEL_JOB = """
dataset: shop
privacy_unit: CUSTOMER_ID
budget: {epsilon: 4.0, delta: 1.0e-6}
source: {parquet: "data/*.parquet"}
columns: {late: "day > 60"}
stages:
  returns:
    kind: train
    label: {kind: binary, column: late}
    features:
      weekday: {kind: category, categories: [1, 2, 3, 4, 5, 6, 7]}
      price: {kind: number, min_value: 0, max_value: 300, scaled: true}
    fit: {steps: 5}
"""


def an_ab_test(folder: pathlib.Path) -> None:
    """Customers of two arms."""
    made = np.random.default_rng(7)
    customer = made.integers(0, 4_000, ROWS)
    rows = {"customer": customer, "arm": np.where(customer % 2, "B", "A"), "amount": made.random(ROWS) * 30}
    (folder / "data").mkdir()
    pq.write_table(pa.table(rows), folder / "data" / "one.parquet")


ANALYSIS = """
import pyarrow.compute


def slope(table):
    return pyarrow.compute.mean(table["spent"]).as_py() / 300
"""


def an_analysis(folder: pathlib.Path) -> None:
    """The shop, and a module with a function of the reader's own."""
    shop(folder)
    (folder / "my_analysis.py").write_text(ANALYSIS)


def a_model(folder: pathlib.Path) -> None:
    """The shop, and a release with a model in it."""
    shop(folder)
    (folder / "model.yaml").write_text(MODEL_JOB)
    program = pathlib.Path(sys.executable).with_name("dp-pipelines")
    command = [program, "run", "model.yaml", "--output", "out/2026-W01", "--ledger", "none"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def ta_feng(folder: pathlib.Path) -> None:
    """The data of the tutorial, fetched once."""
    subprocess.run([sys.executable, ROOT / "examples" / "ta_feng" / "fetch.py"], check=True, capture_output=True)
    (folder / "data").mkdir()
    (folder / "data" / "ta_feng").symlink_to(ROOT / "data" / "ta_feng")


RECIPES = (
    "funnel", "retention", "top_products", "active_users", "dashboard", "ab_test", "weighted_mean", "wrong_release",
)  # fmt: skip


def app(folder: pathlib.Path) -> None:
    """The rows of the recipes, as a reader makes them."""
    script = ROOT / "examples" / "recipes" / "make_rows.py"
    subprocess.run([sys.executable, script], cwd=folder, check=True, capture_output=True)


WORLDS: dict[str, Callable[[pathlib.Path], None]] = {
    "docs/two_organisations.md": shop,
    "README.md": readme,
    "docs/jobs.md": weekly,
    "docs/ab_tests.md": an_ab_test,
    "docs/training.md": weekly,
    "docs/federate.md": weekly,
    "docs/pate.md": weekly_and_unlabelled,
    "docs/ledger.md": weekly,
    "docs/schedule.md": weekly,
    "docs/tune.md": weekly,
    "docs/check.md": weekly,
    "docs/describe.md": weekly,
    "docs/session.md": shop,
    "docs/sql.md": shop,
    "docs/outputs.md": shop,
    "docs/models.md": a_model,
    "docs/sample_and_aggregate.md": an_analysis,
    "docs/tutorial.md": ta_feng,
    **dict.fromkeys([f"docs/recipes/{name}.md" for name in RECIPES], app),
}
"""What is there before the first block; other pages begin with an empty folder."""

BEFORE = {
    "docs/models.md": """
import apache_beam as beam
import pyarrow as pa

pipeline = beam.Pipeline(runner="FnApiRunner")
rows = pipeline | beam.Create([{"weekday": 1, "price": 2.5}])
examples = pa.table({"weekday": [1, 2], "price": [2.5, 300.0]})
""",
    # The first block, which the others go on from, without its pipeline.
    "docs/beam.md": blocks((ROOT / "docs" / "beam.md").read_text())[0].text.partition("plan = ")[0],
}
"""Names that a page's Python takes from its reader's program."""
