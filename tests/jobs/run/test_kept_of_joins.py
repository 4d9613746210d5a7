"""What bounds cut off of joined rows, released: the figures are those of the rows that a join makes, and say so."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from tests.jobs.conftest import Said

Call = Callable[..., Said]

UNITS = 1000


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two orders of each customer, on two days; visits of every other one: three a day of every fourth, else one."""
    customers = np.repeat(np.arange(UNITS), 2)
    orders = {"customer": customers, "day": np.tile([0, 1], UNITS), "store": ["s"] * 2 * UNITS}
    pa.parquet.write_table(pa.table(orders), tmp_path / "orders.parquet")
    times = np.where(customers % 4 == 0, 3, np.where(customers % 2 == 0, 1, 0))
    visits = {"person": np.repeat(customers, times), "visited": np.repeat(orders["day"], times)}
    pages = [f"p{place % 5}" for place in range(int(times.sum()))]
    pa.parquet.write_table(pa.table({**visits, "page": pages}), tmp_path / "visits.parquet")
    return tmp_path


def figures(folder: pathlib.Path, call: Call, kind: str, **changes: Any) -> tuple[dict[str, Any], Said, dict[str, Any]]:
    """What a run says of the bounds, all that it prints, and its manifest."""
    stage = {
        "kind": "aggregate", "partition_by": ["store"], "kept": {"share": 0.5},
        "bounds": {"max_partitions_contributed": 1, "max_contributions_per_partition": 3},
        "metrics": {"pairs": {"kind": "count"}, "pages": {"kind": "distinct_count", "column": "page"}},
    }  # fmt: skip
    job = {
        "dataset": "shop", "privacy_unit": {"orders": "customer", "visits": "person"},
        "budget": {"epsilon": 39.0, "delta": 1e-5},  # so large that shares are right to a percent
        "tables": {"orders": {"parquet": "orders.parquet"}, "visits": {"parquet": "visits.parquet"}},
        "join": {"left": "orders", "right": "visits", "on": [["day", "visited"]], "kind": kind,
                 "max_rows_per_unit": {"orders": 10, "visits": 10}},
        "stages": {"weekly": stage}, **changes,
    }  # fmt: skip
    (folder / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
    out = folder / "out"
    said = call("run", folder / "job.yaml", "--output", out, "--ledger", "none")
    assert said.code == 0, said.err
    manifest = json.loads((out / "manifest.json").read_text())
    found: dict[str, Any] = json.loads((out / "kept.json").read_text())["weekly"]
    return found, said, manifest


def test_of_a_left_join_they_tell_who_meets_nothing(folder: pathlib.Path, call: Call) -> None:
    """A quarter of the units has 6 joined rows, of which 3 are counted; the others have 2, of half of them without a visit."""
    kept, said, manifest = figures(folder, call, "left")
    assert kept["whole"]["share"] == pytest.approx(0.75, abs=0.05)
    assert kept["rows"]["share"] == pytest.approx((250 * 3 + 750 * 2) / (250 * 6 + 750 * 2), abs=0.05)
    facts = {fact["column"]: fact["share"] for fact in kept["facts"]}
    assert facts["page"] == pytest.approx(0.5, abs=0.05)
    assert facts["store"] == pytest.approx(1, abs=0.05)
    assert manifest["stages"][0]["kept"] == {**kept, "of": "joined rows"}
    words = " ".join(said.out.split())
    assert "of the joined rows of" in words
    assert "of one joined row of each customer, not null:" in words
    assert "of the joined rows of" in (folder / "out" / "report.html").read_text()


def test_of_an_inner_join_and_a_where_they_are_of_rows_that_met(folder: pathlib.Path, call: Call) -> None:
    kept, _, _ = figures(folder, call, "inner", where="day = 0")
    assert kept["whole"]["share"] == pytest.approx(1, abs=0.05)
    facts = {fact["column"] or fact["fact"]: fact["share"] for fact in kept["facts"]}
    assert facts["where"] == pytest.approx(0.5, abs=0.15)  # of one row of 500 units, drawn by hash: 6.7 standard errors
    assert facts["page"] == pytest.approx(1, abs=0.05)
