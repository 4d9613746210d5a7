"""Histograms, quantiles, different values and the largest partitions through whole pipelines, beside DuckDB and numpy."""

import decimal
import itertools
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines import (
    ContributionBounds,
    Count,
    DistinctCount,
    Histogram,
    Max,
    Median,
    Min,
    PrivatePartitions,
    PublicPartitions,
    Quantiles,
    Query,
    Top,
)
from dp_pipelines.transforms import PrivateAggregate, PublishRelease, ReadParquet
from tests.helpers.pipelines import one_stage, publish
from tests.helpers.quiet import silence

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = REPOSITORY / "data" / "ta_feng"
WIDE = ContributionBounds(max_partitions_contributed=7, max_contributions_per_partition=600)
TIGHT = ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2)
EDGES = [0.0, 10.0, 50.0, 99.5, 1000.0]
CATEGORIES = ["<25", "25-29", "30-34", "nobody"]


@pytest.fixture(scope="module")
def ta_feng():
    """The data, fetched as the demo fetches them where they are not there yet."""
    fetch = [sys.executable, str(REPOSITORY / "examples" / "ta_feng" / "fetch.py")]
    subprocess.run(fetch, check=True, capture_output=True)
    return str(FILES / "*.parquet")


def close(released, name, true):
    """Whether numbers without noise are the true ones, but for the rounding to the release lattice."""
    mine = np.asarray(released[name].to_pylist(), float)
    slack = np.asarray(released[f"{name}_stddev"].to_pylist(), float) / 500 + 1e-9
    return (np.abs(mine - np.asarray(true, float)) <= slack).all()


def test_on_real_data_without_noise_all_of_it_equals_duckdb(ta_feng, tmp_path, monkeypatch):
    silence(monkeypatch)
    keys = [k for (k,) in duckdb.sql(f"""
        select PRODUCT_SUBCLASS from '{ta_feng}' group by 1 having count(*) > 3000 order by 1""").fetchall()]  # fmt: skip
    most = duckdb.sql(
        f"select max(n) from (select count(*) as n from '{ta_feng}' group by CUSTOMER_ID, PRODUCT_SUBCLASS)"
    ).fetchall()[0][0]
    bins = ", ".join(
        f"count(*) filter (SALES_PRICE >= {low} and SALES_PRICE {'<=' if high == EDGES[-1] else '<'} {high})"
        for low, high in itertools.pairwise(EDGES)
    )
    ages = ", ".join(f"count(*) filter (AGE_GROUP = '{age}')" for age in CATEGORIES)
    truth = duckdb.sql(f"""
        select PRODUCT_SUBCLASS as key, [{bins}] as bins, [{ages}] as ages, count(distinct PRODUCT_ID) as products,
               count(distinct AGE_GROUP) as groups, quantile_cont(SALES_PRICE, [0.1, 0.25, 0.5, 0.75, 0.9]) as prices
        from '{ta_feng}' where PRODUCT_SUBCLASS in {tuple(keys)} group by key order by key
    """).to_arrow_table()
    query = Query(
        privacy_unit="CUSTOMER_ID",
        partition_by="PRODUCT_SUBCLASS",
        bounds=ContributionBounds(max_partitions_contributed=len(keys), max_contributions_per_partition=most),
        metrics={
            "bins": Histogram("SALES_PRICE", edges=EDGES),
            "ages": Histogram("AGE_GROUP", categories=CATEGORIES),
            "products": DistinctCount("PRODUCT_ID", max_values_per_partition=3000),
            "groups": DistinctCount("AGE_GROUP"),
            "prices": Quantiles("SALES_PRICE", quantiles=[0.1, 0.25, 0.5, 0.75, 0.9], min_value=0, max_value=1024),
            "middle": Median("SALES_PRICE", min_value=0, max_value=1024),
        },
        partitions=PublicPartitions(keys=[(key,) for key in keys]),
    )
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = pipeline | ReadParquet(ta_feng, columns=list(query.columns))
        tables | PrivateAggregate(one_stage(query, epsilon=39)) | PublishRelease(str(tmp_path / "out"))
    released = pq.read_table(tmp_path / "out" / "stage.parquet")
    assert released["PRODUCT_SUBCLASS"].to_pylist() == keys
    assert len(keys) > 20
    for name in ("bins", "ages", "products", "groups"):
        assert close(released, name, truth[name].to_pylist()), name
    prices, true = (np.asarray(of["prices"].to_pylist()) for of in (released, truth))
    leaf = 1024 / 4096
    # Half a step of rounding in each of six levels moves a rank by less than the rows at a price.
    assert np.mean(np.abs(prices - true) <= leaf) > 0.97
    assert released["middle"].to_pylist() == pytest.approx(prices[:, 2].tolist())


def rows(number=6000, people=400):
    """Rows of every trouble: nulls, NaN, infinities, dictionaries, decimals; one user who holds every value."""
    made = np.random.default_rng(11)
    who = np.where(np.arange(number) % 3 == 0, 0, made.integers(1, people, number))
    price = np.where(
        made.random(number) < 0.05, [np.nan, np.inf, -np.inf, -0.0, 5e-324] * (number // 5), made.normal(50, 30, number)
    )
    return pa.table({
        "u": pa.array(who),
        "p": pa.array([f"p{i}" for i in made.integers(0, 6, number)]).dictionary_encode(),
        "price": pa.array(price, mask=made.random(number) < 0.1),
        "item": pa.array([f"item {i % 90}" if i % 17 else None for i in made.integers(0, 9000, number)]).dictionary_encode(),
        "money": pa.array([decimal.Decimal(int(i)).scaleb(-2) for i in made.integers(0, 500, number)], pa.decimal128(9, 2)),
    })  # fmt: skip


METRICS = {
    "bins": Histogram("price", edges=[-10, 0, 20.5, 60, 100]),
    "items": Histogram("item", categories=[f"item {i}" for i in range(20)]),
    "different": DistinctCount("item", max_values_per_partition=90),
    "sums": DistinctCount("money", max_values_per_partition=500),
    "prices": Quantiles("price", quantiles=[0, 0.3, 0.5, 1], min_value=-50, max_value=150),
    "low": Min("price", min_value=-50, max_value=150),
    "high": Max("price", min_value=-50, max_value=150),
}


def query(**changes):
    """All of the metrics over the troubled rows."""
    given = {
        "privacy_unit": "u",
        "partition_by": "p",
        "bounds": WIDE,
        "metrics": METRICS,
        "partitions": PrivatePartitions(),
    }
    return Query(**{**given, **changes})


def test_troubled_rows_without_noise_equal_duckdb(tmp_path, monkeypatch):
    silence(monkeypatch)
    events = rows()
    connection = duckdb.connect()
    connection.register(
        "events",
        events.set_column(1, "p", events["p"].cast(pa.string())).set_column(
            3, "item", events["item"].cast(pa.string())
        ),
    )
    listed = [*(f"p{i}" for i in range(6)), "empty"]
    released = publish(
        one_stage(query(partitions=PublicPartitions(keys=[(k,) for k in listed])), 39.0), [events], tmp_path / "out"
    )
    assert released["p"].to_pylist() == ["empty", *listed[:-1]]
    truth = connection.sql("""
        select p, [count(*) filter (price >= -10 and price < 0), count(*) filter (price >= 0 and price < 20.5),
                   count(*) filter (price >= 20.5 and price < 60), count(*) filter (price >= 60 and price <= 100)] as bins,
               count(distinct item) as different, count(distinct money) as sums
        from events group by p order by p
    """).to_arrow_table()
    for name in ("bins", "different", "sums"):
        assert close(released.slice(1), name, truth[name].to_pylist()), name
        assert np.abs(np.asarray(released[name].to_pylist()[0])).max() < 1e-6
    for row, key in enumerate(listed[:-1], start=1):
        of_key = events.filter(pa.array([k == key for k in events["p"].to_pylist()]))
        known = np.asarray([v for v in of_key["price"].to_pylist() if v is not None and not np.isnan(v)])
        found = released["prices"].to_pylist()[row][1:3]
        assert np.abs(np.array(found) - np.quantile(np.clip(known, -50, 150), [0.3, 0.5])).max() < 1.0
        items = [sum(v == f"item {i}" for v in of_key["item"].to_pylist()) for i in range(20)]
        assert np.abs(np.array(released["items"].to_pylist()[row]) - items).max() < 0.5


@pytest.mark.parametrize(
    ("bounds", "public"),
    [
        pytest.param(WIDE, False, marks=pytest.mark.slow),
        (TIGHT, False),
        (WIDE, True),
        pytest.param(TIGHT, True, marks=pytest.mark.slow),
    ],
    ids=["wide, private", "tight, private", "wide, public", "tight, public"],
)
def test_order_batches_and_shards_change_nothing(bounds, public, tmp_path, monkeypatch):
    silence(monkeypatch)
    events = rows()
    partitions = PublicPartitions(keys=[("p1",), ("p4",), ("none",)]) if public else PrivatePartitions()
    stage = one_stage(query(bounds=bounds, partitions=partitions), 39.0)
    shuffled = events.take(pa.array(np.random.default_rng(5).permutation(events.num_rows)))
    pieces = [shuffled.slice(begin, 700) for begin in range(0, shuffled.num_rows, 700)]
    one = publish(stage, [events], tmp_path / "one", shards=1)
    other = publish(stage, [events.slice(0, 0), *pieces], tmp_path / "other", shards=13)
    assert one.equals(other)
    assert one.num_rows == (3 if public else 6)


def test_partitions_without_rows_all_null_and_alone_come_out(tmp_path, monkeypatch):
    silence(monkeypatch)
    nulls = rows().slice(0, 50)
    for name in ("price", "item", "money"):
        nulls = nulls.set_column(nulls.column_names.index(name), name, pa.nulls(50, nulls.schema.field(name).type))
    stage = one_stage(query(partitions=PublicPartitions(keys=[("p1",)])), 39.0)
    empty = publish(stage, [nulls.slice(0, 0)], tmp_path / "empty")
    only_nulls = publish(stage, [nulls], tmp_path / "nulls")
    assert empty.equals(only_nulls)
    found = empty.to_pylist()[0]
    assert found["bins"] == pytest.approx([0.0] * 4, abs=1e-6)
    assert found["different"] == pytest.approx(0, abs=1e-6)
    assert all(-50 <= value <= 150 for value in found["prices"])
    untyped = nulls.set_column(nulls.column_names.index("item"), "item", pa.nulls(50))
    assert publish(stage, [untyped, nulls], tmp_path / "untyped").equals(empty)
    private = one_stage(query(), 39.0)
    assert publish(private, [nulls.slice(0, 0)], tmp_path / "none").num_rows == 0


def test_a_bound_on_different_values_cuts_off_the_same_as_plain_counting(tmp_path, monkeypatch):
    silence(monkeypatch)
    events = pa.table(
        {"u": np.repeat(np.arange(30), 40), "p": ["p"] * 1200, "k": [f"{i // 40}-{i % 7}" for i in range(1200)]}
    )
    stage = one_stage(
        Query(
            privacy_unit="u",
            partition_by="p",
            bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=3),
            metrics={"k": DistinctCount("k"), "all": DistinctCount("k", max_values_per_partition=7)},
            partitions=PublicPartitions(keys=[("p",)]),
        ),
        39.0,
    )
    released = publish(stage, [events.slice(0, 700), events.slice(700)], tmp_path / "out")
    # No two users share a value: each brings three of its seven, however often it repeats one.
    assert close(released, "k", [90])
    assert close(released, "all", [210])


@pytest.mark.parametrize(("k", "expected"), [(2, ["p1", "p3"]), (6, [f"p{i}" for i in range(4)])])
def test_the_largest_partitions_are_published_and_more_than_there_are_is_all(k, expected, tmp_path, monkeypatch):
    silence(monkeypatch)
    sizes = {"p0": 300, "p1": 500, "p2": 200, "p3": 400}
    events = pa.table({"u": list(range(sum(sizes.values()))), "p": [p for p, n in sizes.items() for _ in range(n)]})
    asked = query(metrics={"rows": Count()}, bounds=TIGHT, top=Top(k=k, by="rows"))
    released = publish(one_stage(asked, 39.0), [events], tmp_path / "out", shards=3)
    assert released["p"].to_pylist() == expected


def test_with_noise_all_of_it_has_error_bars(tmp_path):
    released = publish(
        one_stage(query(bounds=TIGHT, partitions=PublicPartitions(keys=[("p1",), ("p2",)]))), [rows()], tmp_path / "out"
    )
    for name, metric in METRICS.items():
        values, bars = (np.asarray(released[f"{name}{end}"].to_pylist()) for end in ("", "_stddev"))
        assert values.shape == bars.shape
        assert (values.ndim == 2) == metric.many
        assert np.isfinite(values).all()
        assert (bars > 0).all()
    assert pa.types.is_list(released.schema.field("bins").type)
