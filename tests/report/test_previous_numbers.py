"""Numbers of the run before: taken only where they are about the same groups under the same limits.

In: manifests and tables of two runs. Out: the numbers that may be compared. Not covered: which run is the one before
(`tests/jobs/run/test_previous_release.py`), what the page says of a change (`test_page_for_readers`).
"""

import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.report.trends.previous_numbers import comparable_numbers
from tests.report.page import manifest, metric

CITIES = {"city": ["a", "b"], **metric("orders", [100.0, 200.0], 3.0), **metric("customers", [50.0, 60.0], 3.0)}
TOTAL = {**metric("orders", [300.0], 5.0), **metric("customers", [90.0], 5.0)}


def compared(
    folder: pathlib.Path, columns: dict[str, Any], before: dict[str, Any], **changed: Any
) -> dict[str, dict[str, list[float]]]:
    """The numbers of a run with these columns `before`, whose stage was described otherwise where it says so."""
    entries = {"orders": {"kind": "count"}, "customers": {"kind": "privacy_id_count"}}
    keys = [name for name in columns if name == "city"]
    described = {"name": "weekly", "partition_by": keys, "metrics": entries, "limits": ["at most 2 rows"]}
    for name, table in (("now", columns), ("then", before)):
        pa.parquet.write_table(pa.table(table), folder / f"{name}.parquet")
    then = manifest(stages=[described | changed])
    now = manifest(stages=[described])
    return comparable_numbers(
        now, {"weekly": folder / "now.parquet"}, then, {"weekly": (folder / "then.parquet").read_bytes()}
    )


def test_totals_are_compared_and_sums_of_the_same_groups_but_no_sums_of_people(tmp_path: pathlib.Path) -> None:
    assert compared(tmp_path, TOTAL, TOTAL) == {"weekly": {"orders": [300.0, 5.0], "customers": [90.0, 5.0]}}
    same = compared(tmp_path, CITIES, CITIES)
    assert same == {"weekly": {"orders": [300.0, pytest.approx(3 * 2**0.5)]}}


def test_other_groups_are_not_compared(tmp_path: pathlib.Path) -> None:
    assert compared(tmp_path, CITIES, CITIES | {"city": ["a", "c"]}) == {}
    assert compared(tmp_path, CITIES, {name: column[:1] for name, column in CITIES.items()}) == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"limits": ["at most 4 rows"]},
        {"max_partitions_contributed": 4},
        {"metrics": {"orders": {"kind": "count", "bounds": [0, 9]}, "customers": {"kind": "privacy_id_count"}}},
        {"metrics": {"orders": {"kind": "count"}}},
        {"name": "another"},
    ],
    ids=["limits", "groups of a unit", "bounds", "metrics", "stage"],
)
def test_what_was_limited_otherwise_is_not_compared(tmp_path: pathlib.Path, changed: dict[str, Any]) -> None:
    assert compared(tmp_path, TOTAL, TOTAL, **changed) == {}


def test_numbers_without_an_error_bar_are_not_compared(tmp_path: pathlib.Path) -> None:
    chosen = {**TOTAL, "orders_stddev": pa.array([None], pa.float64())}
    assert compared(tmp_path, TOTAL, chosen) == {"weekly": {"customers": [90.0, 5.0]}}


def test_a_table_that_cannot_be_read_is_not_compared(tmp_path: pathlib.Path) -> None:
    pa.parquet.write_table(pa.table(TOTAL), tmp_path / "now.parquet")
    described = {"name": "weekly", "partition_by": [], "metrics": {"orders": {"kind": "count"}}}
    content = manifest(stages=[described])
    assert comparable_numbers(content, {"weekly": tmp_path / "now.parquet"}, content, {"weekly": b"no table"}) == {}
    assert comparable_numbers(content, {"weekly": tmp_path / "now.parquet"}, content, {}) == {}
