"""Unit columns of an aggregate stage: windows over a unit's rows, before anything is bounded or counted.

In: the shop. Out: folders, messages. Holds: runs are real. Not covered: what windows may say (`test_unit_columns`).
"""

import json
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.jobs.conftest import Said, Shop, stage
from tests.report.page import Page

Call = Callable[..., Said]


def test_an_aggregate_stage_may_count_what_windows_over_a_unit_make_of_its_rows(shop: Shop, call: Call) -> None:
    """Baskets: one row for each customer and day, with what was spent in it."""
    baskets = stage(
        unit_columns={
            "day": "CAST(paid_at AS DATE)",
            "line": "row_number() OVER (PARTITION BY day ORDER BY price)",
            "spent": "sum(price) OVER (PARTITION BY day)",
        },
        where="line = 1",
        partition_by="day",
        partitions={"public": [["2025-01-06"], ["2025-01-07"]]},
        metrics={
            "baskets": {"kind": "count"},
            "spent": {"kind": "sum", "column": "spent", "min_value": 0, "max_value": 1000},
        },
        bounds={"max_partitions_contributed": 2, "max_contributions_per_partition": 1},
    )
    shop.write(stages={"baskets": baskets}, budget={"epsilon": 39.0, "delta": 1e-3})
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    found = pa.parquet.read_table(shop.folder / "out" / "baskets.parquet").sort_by("day")
    rows = pa.concat_tables(pa.parquet.read_table(path) for path in sorted((shop.folder / "data").iterdir()))
    days = rows.column("paid_at").cast(pa.date32(), safe=False)
    truth = rows.set_column(3, "day", days).group_by(["day", "customer"]).aggregate([("price", "sum")])
    truth = truth.group_by("day").aggregate([("price_sum", "sum"), ("price_sum", "count")]).sort_by("day").slice(0, 2)
    assert found.column("baskets").to_pylist() == pytest.approx(truth.column("price_sum_count").to_pylist(), abs=8)
    assert found.column("spent").to_pylist() == pytest.approx(truth.column("price_sum_sum").to_pylist(), abs=5000)
    said = call(
        "run", shop.write(stages={"baskets": {**baskets, "partition_by": "nights"}}), "--output", shop.folder / "b"
    )
    assert said.code == 2
    assert "names column 'nights', which does not exist" in said.err


def test_a_limit_on_the_rows_that_windows_read_is_said_and_no_direction_is_claimed(shop: Shop, call: Call) -> None:
    """Of customers with many rows only two are read, so that everybody passes the condition: the number is far too high."""
    few = stage(
        unit_columns={"lines": "count(*) OVER ()"}, where="lines <= 2", max_rows_per_unit=2, partition_by=[],
        metrics={"customers": {"kind": "privacy_id_count"}}, bounds={"max_contributions_per_partition": 2},
    )  # fmt: skip
    shop.write(stages={"few": few})
    out = shop.folder / "out"
    assert call("run", shop.job, "--output", out).code == 0
    (described,) = json.loads((out / "manifest.json").read_text())["stages"]
    assert described["limits"][0] == "at most 2 rows of one customer are read"
    words = Page((out / "report.html").read_text()).words
    assert "As counted; how much the limits change it is not known." in words
    assert "Between" not in words.partition("random noise")[0]
