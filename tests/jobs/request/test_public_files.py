"""Public files that are files of the source too: refused before they are read, wherever a job names one."""

import os
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.sources import public_tables
from dp_pipelines.jobs.spec import job_file
from tests.jobs.conftest import Shop, stage

SAID = "is a file of the source too, whose rows are somebody's"
TABLES = {"orders": {"parquet": "data/*.parquet"}, "visits": {"parquet": "visits.parquet"}}
JOIN = {"left": "orders", "right": "visits", "max_rows_per_unit": {"orders": 9, "visits": 9}}


@pytest.fixture
def joined(shop: Shop) -> dict[str, Any]:
    """What makes the shop's job one over two tables."""
    pa.parquet.write_table(
        pa.table({"person": [1, 1], "page": ["a", "a"], "kind": ["b", None]}), shop.folder / "visits.parquet"
    )
    unit = {"orders": "customer", "visits": "person"}
    return {"source": None, "tables": TABLES, "join": JOIN, "privacy_unit": unit}


def refused(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The words with which a job is refused that reads no public file."""

    def read(*_: object, **__: object) -> pa.Table:
        raise AssertionError("a file of the source was read as a public one")

    monkeypatch.setattr(public_tables, "read_public", read)
    with pytest.raises(RequestError, match=SAID) as caught:
        check(job_file.load(str(path)), [])
    return str(caught.value).replace(str(path.parent), "")


def part(shop: Shop) -> str:
    """A file of the shop's source, relative to the job file."""
    return min(str(path.relative_to(shop.folder)) for path in (shop.folder / "data").glob("*.parquet"))


@pytest.mark.parametrize("listed", [False, True])
def test_a_lookup(shop: Shop, monkeypatch: pytest.MonkeyPatch, listed: bool) -> None:
    lookup = {"parquet": part(shop), "on": "product"}
    said = refused(shop.write(lookup=[lookup] if listed else lookup), monkeypatch)
    assert ("lookup.0: " if listed else "lookup: ") + SAID in said


@pytest.mark.parametrize("key", ["public_file", "public_sorted_file"])
def test_a_list_of_partitions(shop: Shop, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    said = refused(shop.write(stages={"weekly": stage(partitions={key: part(shop)})}), monkeypatch)
    assert f"stages.weekly.partitions.{key}: {SAID}" in said


@pytest.mark.parametrize("how", ["symlink", "hard link", "dots"])
def test_whatever_the_file_is_called(shop: Shop, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    name = "products.parquet"
    if how == "symlink":
        os.symlink(part(shop), shop.folder / name)
    elif how == "hard link":
        os.link(shop.folder / part(shop), shop.folder / name)
    else:
        name = f"data/../{part(shop)}"
    refused(shop.write(lookup={"parquet": name, "on": "product"}), monkeypatch)


@pytest.mark.parametrize("other", ["its own", "another's"])
def test_the_lookup_of_a_table_is_a_file_of_no_table(
    shop: Shop, joined: dict[str, Any], monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    name, on = (part(shop), "product") if other == "its own" else ("visits.parquet", {"product": "page"})
    orders = {**TABLES["orders"], "lookup": {"parquet": name, "on": on}}
    path = shop.write(**{**joined, "tables": {**TABLES, "orders": orders}})
    assert "tables.orders.lookup: " + SAID in refused(path, monkeypatch)


@pytest.mark.parametrize("key", ["public_file", "public_sorted_file"])
def test_a_name_that_no_file_can_have_is_told_at_its_line(shop: Shop, key: str) -> None:
    path = shop.write(stages={"weekly": stage(partitions={key: "a\0b"})})
    with pytest.raises(RequestError, match=key):
        check(job_file.load(str(path)), [])


def test_a_file_beside_the_source_is_public(shop: Shop) -> None:
    pa.parquet.write_table(pa.table({"product": ["a"], "kind": ["b"]}), shop.folder / "products.parquet")
    assert check(job_file.load(str(shop.write(lookup={"parquet": "products.parquet", "on": "product"}))), []).lookup
