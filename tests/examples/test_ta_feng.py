"""The Ta Feng example, without a network: what fetch.py refuses, and the truth that releases are judged by."""

import datetime
import hashlib
import importlib
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ta_feng"
HEADER = (
    "\ufeff" + ",".join(f'"{name}"' for name in (
        "TRANSACTION_DT", "CUSTOMER_ID", "AGE_GROUP", "PIN_CODE", "PRODUCT_SUBCLASS", "PRODUCT_ID", "AMOUNT", "ASSET",
        "SALES_PRICE",
    )) + "\r\n"
)  # fmt: skip
ROWS = (
    '"11/1/2000","00000001","","115","110101","0001","2","24","30"\r\n'
    '"1/31/2001","00000002","25-29","Others","110102","0002","1","40","50"\r\n'
)


@pytest.fixture
def load(monkeypatch):
    """A function that imports a script of the example by its name."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module
    for name in ("fetch", "truth", "compare"):
        sys.modules.pop(name, None)


@pytest.fixture
def table(load):
    return load("fetch").parse((HEADER + ROWS).encode())


def test_types_are_those_of_the_content(table):
    assert table["TRANSACTION_DT"].to_pylist() == [datetime.date(2000, 11, 1), datetime.date(2001, 1, 31)]
    assert table["CUSTOMER_ID"].to_pylist() == ["00000001", "00000002"]
    assert table["AGE_GROUP"].to_pylist() == [None, "25-29"]
    assert table["SALES_PRICE"].type == pa.int32()


def test_changed_content_is_refused(load):
    fetch = load("fetch")
    fetch.check_hash(b"rows", hashlib.sha256(b"rows").hexdigest(), "the file")
    with pytest.raises(fetch.FetchError, match="do not use it"):
        fetch.check_hash(b"rowz", hashlib.sha256(b"rows").hexdigest(), "the file")


def test_a_table_of_another_size_is_refused(load, table):
    fetch = load("fetch")
    fetch.check_table(table, 2, 2)
    for rows, customers in ((3, 2), (2, 1)):
        with pytest.raises(fetch.FetchError, match="expected are"):
            fetch.check_table(table, rows, customers)


def test_months_are_written_whole_and_known_again(load, table, tmp_path):
    fetch = load("fetch")
    out = tmp_path / "data" / "ta_feng"
    assert not fetch.is_complete(out, rows=2)
    assert fetch.write_months(table, out) == ["2000-11.parquet", "2001-01.parquet"]
    assert fetch.is_complete(out, rows=2)
    assert pq.read_table(out).sort_by("CUSTOMER_ID").drop_columns([]).equals(table.replace_schema_metadata({}))
    assert [path.name for path in out.parent.iterdir()] == ["ta_feng"]


def test_a_damaged_or_missing_file_is_noticed(load, table, tmp_path):
    fetch = load("fetch")
    out = tmp_path / "ta_feng"
    fetch.write_months(table, out)
    part = out / "2000-11.parquet"
    content = part.read_bytes()
    part.write_bytes(content[:-20])
    assert not fetch.is_complete(out, rows=2)
    part.unlink()
    assert not fetch.is_complete(out, rows=2)
    pq.write_table(table.slice(0, 1), part)  # right rows, without the mark
    assert not fetch.is_complete(out, rows=2)


def test_a_folder_with_something_else_is_not_touched(load, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert load("fetch").main(["--out", str(tmp_path)]) == 1
    assert "remove it or name another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.fixture
def events(tmp_path):
    """Two customers: one with three partitions (four rows in the first), one with one row."""
    day = datetime.date(2000, 11, 1)
    rows = [("a", "s1", day, price) for price in (10, 20, 30, 1_000)]
    rows += [("a", "s2", day, 40), ("a", "s3", day, 50), ("b", "s1", day + datetime.timedelta(days=7), 60)]
    names = ("CUSTOMER_ID", "PRODUCT_SUBCLASS", "TRANSACTION_DT", "SALES_PRICE")
    columns = [list(column) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(dict(zip(names, columns, strict=True))), tmp_path / "events.parquet")
    return tmp_path


def test_bounds_that_do_not_bind_change_nothing(load, events):
    truth = load("truth")
    wide = truth.Bounds(max_partitions=9, max_rows_per_partition=9, low=0, high=10_000)
    exact, bounded = truth.exact(events), truth.bounded(events, wide)
    assert truth.keys(exact) == truth.keys(bounded)
    for metric in truth.METRICS:
        np.testing.assert_allclose(bounded[metric], exact[metric])


def test_bounds_that_bind_leave_what_a_count_by_hand_gives(load, events):
    truth = load("truth")
    bounds = truth.Bounds(max_partitions=2, max_rows_per_partition=1, low=0, high=100)
    bounded = truth.bounded(events, bounds)
    # customer a keeps each of three partitions with chance 2/3; of the first one row, of mean (10 + 20 + 30 + 100) / 4
    assert [key[0] for key in truth.keys(bounded)] == ["s1", "s1", "s2", "s3"]
    np.testing.assert_allclose(bounded["customers"], [2 / 3, 1, 2 / 3, 2 / 3])
    np.testing.assert_allclose(bounded["orders"], [2 / 3, 1, 2 / 3, 2 / 3])
    np.testing.assert_allclose(bounded["revenue"], [2 / 3 * 40, 60, 2 / 3 * 40, 2 / 3 * 50])
    np.testing.assert_allclose(bounded["mean_price"], [40, 60, 40, 50])


def test_a_public_list_is_applied_before_the_bounds(load, events):
    truth = load("truth")
    bounds = truth.Bounds(max_partitions=2, max_rows_per_partition=1, low=0, high=100)
    bounded = truth.bounded(events, bounds, ["s2", "s3"])
    np.testing.assert_allclose(bounded["customers"], [1, 1])


def test_a_release_is_compared_and_drawn(load, events, tmp_path, capsys):
    release = tmp_path / "release"
    release.mkdir()
    columns = {
        "PRODUCT_SUBCLASS": ["s1", "s3"],
        "week": [datetime.datetime(2000, 11, 6), datetime.datetime(2000, 10, 30)],
    }
    for metric in load("truth").METRICS:
        columns |= {metric: [1.0, 2.0], f"{metric}_stddev": [0.5, 0.5]}
    pq.write_table(pa.table(columns), release / "weekly.parquet")
    picture = tmp_path / "picture.png"
    arguments = ["--release", str(release), "--data", str(events), "--plot", str(picture)]
    assert load("compare").main(arguments) == 0
    printed = capsys.readouterr().out
    assert "2 of 4 partitions" in printed
    assert "with private data it would publish them" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
