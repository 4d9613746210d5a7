"""Jobs whose clamps come from their public lookup table: what is published, what is said of it, what is refused."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

import dp_pipelines as dp
from dp_pipelines.jobs.beam_yaml.transforms import DpAggregate
from dp_pipelines.ledger.ledger import DEFAULT_NAME
from dp_pipelines.metrics.lookup_bound import LookupBound
from dp_pipelines.transforms import BoundContributions, PrivateAggregate
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
MOST: dict[str, Any] = {"lookup": "most", "default": 2000}
LOOKUP = {"csv": "stores.csv", "types": {"store": "string", "most": "double", "least": "double"}, "on": "store"}
REVENUE = {"kind": "sum", "column": "price", "min_value": 0, "max_value": MOST}
PRICE = {"kind": "mean", "column": "price", "min_value": {"lookup": "least", "default": 0}, "max_value": MOST}
METRICS = {"orders": {"kind": "count"}, "revenue": REVENUE, "price": PRICE, "spread": {**REVENUE, "kind": "variance"}}
BOUNDS = {"max_partitions_contributed": 8, "max_contributions_per_partition": 20}
BUDGET = {"epsilon": 39.0, "delta": 1e-5}
CLAMPS = {"corner": 2.0, "town": 20.0, "mall": 200.0, None: 2000.0}
FLOORS = {"corner": 0.5, "town": 1.0, "mall": -5.0, None: 0.0}


def rows() -> pa.Table:
    """Prices up to one and a half times the clamp of their store; a fourth of the rows are of no store."""
    made, number = np.random.default_rng(3), 8000
    stores = [list(CLAMPS)[k] for k in made.integers(0, 4, number)]
    price = made.random(number) * 1.5 * np.array([CLAMPS[store] for store in stores])
    day = [f"d{i}" for i in made.integers(0, 2, number)]
    customer = np.arange(number) // 4
    return pa.table({"customer": customer, "store": pa.array(stores), "day": day, "price": price})


@pytest.fixture
def stores(shop: Shop) -> Shop:
    """The shop with a clamp for each store in a public table; it has a blank line, and a store without rows."""
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    pa.parquet.write_table(rows(), shop.folder / "data" / "part.parquet")
    table = "store,most,least\ncorner,2,0.5\n\ntown,20,1\nmall,200,-5\nnowhere,7,0\n"
    (shop.folder / "stores.csv").write_text(table)
    return shop


def write(shop: Shop, **changes: Any) -> pathlib.Path:
    weekly = {"partition_by": ["store", "day"], "bounds": BOUNDS, "metrics": METRICS, **changes}
    return shop.write(lookup=LOOKUP, budget=BUDGET, stages={"weekly": stage(**weekly)})


def truth() -> pl.DataFrame:
    """The clamped values of each partition, by another program."""
    low = pl.col("store").replace_strict(FLOORS, return_dtype=pl.Float64)
    high = pl.col("store").replace_strict(CLAMPS, return_dtype=pl.Float64)
    from_0, clamped = pl.col("price").clip(0, high), pl.col("price").clip(low, high)
    true = [pl.len().alias("orders"), from_0.sum().alias("revenue"), clamped.mean().alias("price"),
            from_0.var(ddof=0).alias("spread")]  # fmt: skip
    return pl.DataFrame(rows()).group_by("store", "day").agg(true).sort("store", "day", nulls_last=True)


def test_each_partition_is_clamped_to_its_own_bound_and_has_noise_in_proportion(stores: Shop, call: Call) -> None:
    out = stores.folder / "out"
    said = call("run", write(stores), "--output", out)
    assert (said.code, said.err) == (0, "")
    released = pl.DataFrame(pyarrow.parquet.read_table(out / "weekly.parquet"))
    assert released.columns == ["store", "day", *(f"{m}{end}" for m in METRICS for end in ("", "_stddev"))]
    true, released = truth(), released.sort("store", "day", nulls_last=True)
    assert released.select("store", "day").equals(true.select("store", "day"))
    for name in METRICS:
        # 7.5 deviations of 32 numbers: a false alarm has a probability below 1e-11.
        assert (abs(released[name] - true[name]) <= 7.5 * released[f"{name}_stddev"] + 1e-9).all(), name
    clamps = released["store"].replace_strict(CLAMPS, return_dtype=pl.Float64)
    multiples = released["revenue_stddev"] / clamps
    np.testing.assert_allclose(multiples, multiples[0], rtol=1e-12)
    assert released["orders_stddev"].n_unique() == 1


def test_a_shrunk_mean_and_its_raw_value_are_in_units_of_the_column(stores: Shop, call: Call) -> None:
    mean = {"kind": "mean", "column": "price", "min_value": 0, "max_value": MOST, "shrink": True}
    said = call("run", write(stores, metrics={"price": mean}), "--output", stores.folder / "out", "--ledger", "none")
    assert said.code == 0, said.err
    found = pl.read_parquet(stores.folder / "out" / "weekly.parquet").sort("store", "day", nulls_last=True)
    true = (
        pl.DataFrame(rows())
        .with_columns(pl.col("price").clip(0, pl.col("store").replace_strict(CLAMPS, return_dtype=pl.Float64)))
        .group_by("store", "day").agg(pl.col("price").mean()).sort("store", "day", nulls_last=True)
    )  # fmt: skip
    for column in ("price", "price_raw"):
        assert (found[column] / true["price"]).to_numpy() == pytest.approx(1, rel=0.2)
        assert (found[f"{column}_stddev"] < 0.1 * true["price"]).all()


def test_the_clamps_are_told_in_words_wherever_noise_is(stores: Shop, call: Call) -> None:
    job, out = write(stores), stores.folder / "out"
    said = call("plan", job, "--json")
    (weekly,) = json.loads(said.out)["stages"]
    revenue = weekly["metrics"]["revenue"]
    assert revenue["stddev"] is None
    assert revenue["stddev_multiple"] > 0
    words = "0 … most (2000 by default)"
    assert revenue["clamp"] == {"min_value": 0.0, "max_value": MOST, "noise_grows_with": "most", "words": words}
    assert weekly["metrics"]["price"]["stddev_multiple"] is None
    text = call("plan", job).out
    assert f"{revenue['stddev_multiple']:.4g} times most" in text
    line = f"revenue, spread: values are clamped to {words}, by partition; each partition's noise follows its own clamp"
    assert line in text
    said = call("run", job, "--output", out)
    assert f"price is clamped to {words}, by partition" in said.out
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["stages"][0]["metrics"]["revenue"]["clamp"] == revenue["clamp"]
    multiple = revenue["stddev_multiple"]
    spread = pyarrow.parquet.read_table(out / "weekly.parquet")["revenue_stddev"].to_pylist()
    assert sorted({round(s / multiple, 9) for s in spread}) == [2, 20, 200, 2000]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"each value clamped to {words} (by partition; each partition&#39;s noise follows its own clamp)" in page


def test_it_goes_with_public_lists_rounds_of_selection_chosen_bounds_unit_columns_and_top(
    stores: Shop, call: Call
) -> None:
    most = {"revenue": REVENUE}
    auto = {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 5000]}
    candidates = {
        "max_partitions_contributed": "auto",
        "partition_candidates": [4, 8],
        "max_contributions_per_partition": 20,
    }
    base = {"partition_by": ["store", "day"], "bounds": BOUNDS, "metrics": most}
    listed = [["town", "d0"], ["nowhere", "d0"], ["unknown", "d0"], [None, "d1"]]
    stages = {
        "listed": stage(**base, partitions={"public": listed}),
        "sips": stage(**base, partitions={"private": {"strategy": "sips"}}),
        "auto": stage(**{**base, "bounds": candidates, "metrics": {"revenue": REVENUE, "chosen": auto}}),
        "units": stage(
            **{**base, "partition_by": ["store"]},
            unit_columns={"nth": "row_number() OVER (PARTITION BY store ORDER BY day, price)"},
            where="nth = 1",
        ),
        "top": stage(**base, top={"k": 2, "by": "revenue"}),
    }
    job = stores.write(lookup=LOOKUP, budget={"epsilon": 39.0, "delta": 1e-5}, stages=stages)
    out = stores.folder / "out"
    said = call("run", job, "--output", out, "--ledger", "none")
    assert (said.code, said.err) == (0, "")
    true = {(store, day): revenue for store, day, revenue in truth().select("store", "day", "revenue").rows()}
    clamps = {**CLAMPS, "nowhere": 7.0, "unknown": 2000.0}
    found = {name: pyarrow.parquet.read_table(out / f"{name}.parquet").to_pylist() for name in stages}
    for name in ("listed", "sips", "auto", "top"):
        multiples = {round(row["revenue_stddev"] / clamps[row["store"]], 9) for row in found[name]}
        assert len(multiples) == 1
        for row in found[name]:
            far = abs(row["revenue"] - true.get((row["store"], row["day"]), 0.0))
            assert far <= 7.5 * row["revenue_stddev"] + 1e-9
    assert {(row["store"], row["day"]) for row in found["listed"]} == {tuple(key) for key in listed}
    # The largest by value, not by shares of their clamps, which are alike everywhere.
    assert [(row["store"], row["day"]) for row in found["top"]] == [(None, "d0"), (None, "d1")]
    first = pl.DataFrame(rows()).sort("day", "price").group_by("customer", "store").first()
    for store, price in first.group_by("store").agg(pl.col("price")).rows():
        (row,) = (row for row in found["units"] if row["store"] == store)
        assert abs(row["revenue"] - np.clip(price, 0, CLAMPS[store]).sum()) <= 7.5 * row["revenue_stddev"]


@pytest.mark.usefixtures("rare_false_alarms")
def test_an_audit_agrees_and_a_second_run_gives_the_same_release(stores: Shop, call: Call) -> None:
    job, out = write(stores), stores.folder / "out"
    said = call("audit", job, "--replays", "2000")
    assert said.code == 0, said.out + said.err
    assert call("run", job, "--output", out, "--run-id", "one").code == 0
    again = stores.folder / "again"
    assert call("run", job, "--output", again, "--run-id", "one").code == 0
    assert (again / "weekly.parquet").read_bytes() == (out / "weekly.parquet").read_bytes()


def test_integers_floats_and_decimals_of_parquet_are_clamps(stores: Shop, call: Call) -> None:
    whole = pa.table({"store": pa.array(["corner", "town"]).dictionary_encode(), "most": pa.array([2, 20], pa.int16())})
    pa.parquet.write_table(whole, stores.folder / "stores.parquet")
    lookup = {"parquet": "stores.parquet", "on": "store"}
    weekly = stage(partition_by=["store"], bounds=BOUNDS, metrics={"revenue": REVENUE})
    job = stores.write(lookup=lookup, budget=BUDGET, stages={"weekly": weekly})
    assert call("run", job, "--output", stores.folder / "out").code == 0
    table = pyarrow.parquet.read_table(stores.folder / "out" / "weekly.parquet").to_pylist()
    spread = {row["store"]: row["revenue_stddev"] for row in table}
    assert [round(spread[s] / spread["corner"], 9) for s in ("corner", "town", "mall", None)] == [1, 10, 1000, 1000]


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no default": ({"max_value": {"lookup": "most"}}, ["revenue.max_value.default: is missing"]),
    "no lookup": ({"max_value": {"default": 3}}, ["revenue.max_value.lookup: is missing"]),
    "an unknown key": ({"max_value": {**MOST, "on": "store"}}, ["max_value.on: unknown key; known keys: lookup, default"]),
    "no such column": ({"max_value": {**MOST, "lookup": "mots"}}, ["max_value: names column 'mots'", "did you mean 'most'?"]),
    "a private column": (
        {"max_value": {**MOST, "lookup": "price"}},
        ["revenue.max_value: names column 'price'", "not one of the public lookup table's", "would be private"],
    ),
    "the key": ({"max_value": {**MOST, "lookup": "store"}}, ["'store', which is not one of the public lookup table's"]),
    "a default below": ({"max_value": {**MOST, "default": -1}}, ["max_value.default: must be above min_value, 0"]),
    "a default of zero": ({"max_value": {**MOST, "default": 0}}, ["max_value.default: must be above min_value, 0"]),
    "auto": ({"min_value": "auto", "within": [0, 9]}, ["revenue.max_value: differs by partition, beside a bound that the run"]),
    "stddev": ({"stddev": 4.0}, ["revenue.stddev: stands beside a bound that differs by partition"]),
    "sums clipped": ({"min_value": None, "min_sum_per_partition": 0, "max_sum_per_partition": 1}, ["stands beside no bounds"]),
    "a geometric mean": ({"kind": "geometric_mean", "min_value": 1}, ["revenue.max_value: must be a number"]),
    "a median": ({"kind": "median"}, ["revenue.max_value: must be a number"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_bound_is_refused_with_its_line(stores: Shop, call: Call, case: str) -> None:
    changes, told = WRONG[case]
    metric = {key: value for key, value in {**REVENUE, **changes}.items() if value is not None}
    said = call("run", write(stores, metrics={"revenue": metric}), "--output", stores.folder / "out")
    assert said.code == 2
    assert "job.yaml:" in said.err
    assert all(words in said.err for words in told), said.err
    assert not (stores.folder / "out").exists()


def test_a_table_by_another_key_than_the_partitions_is_refused(stores: Shop, call: Call) -> None:
    said = call("plan", write(stores, partition_by=["day"]))
    assert said.code == 2
    assert "revenue.max_value: differs by 'store', which is not in partition_by" in said.err
    job = stores.write(stages={"weekly": stage(partition_by=["store"], metrics={"revenue": REVENUE})})
    said = call("plan", job)
    assert said.code == 2
    assert "names column 'most' of a lookup, and the job has none; add lookup:" in said.err


@pytest.mark.parametrize(
    ("line", "metric", "told"),
    [
        ("town,0,1", REVENUE, "'most' of the lookup, which is not above the other bound, 0, in line 4"),
        ("town,-20,1", REVENUE, "'most' of the lookup, which is not above the other bound, 0, in line 4"),
        ("town,,1", REVENUE, "'most' of the lookup, which is null in line 4"),
        ("town,nan,1", REVENUE, "'most' of the lookup, which is null in line 4"),
        ("town,inf,1", REVENUE, "'most' of the lookup, which is not a finite number below 1e+100 in line 4"),
        ("town,20,20", PRICE, "'most' of the lookup, which is not above column 'least' in line 4"),
        ("town,20,", PRICE, "'least' of the lookup, which is null in line 4"),
        ("town,20,21", {**REVENUE, "min_value": PRICE["min_value"], "max_value": 20}, "not below the other bound, 20, in"),
        (f"{'x' * 20000},20,1", REVENUE, "which has a key of more than 16384 bytes, which is null as a partition, in line 4"),
    ],
)  # fmt: skip
def test_a_row_of_the_public_table_that_is_no_clamp_is_named(
    stores: Shop, call: Call, line: str, metric: dict[str, Any], told: str
) -> None:
    path = stores.folder / "stores.csv"
    path.write_text(path.read_text().replace("town,20,1", line))
    said = call("plan", write(stores, metrics={"revenue": metric}))
    assert said.code == 2
    assert "job.yaml:" in said.err
    assert told in said.err
    assert "stores.csv" in said.err


def test_rows_of_several_files_and_of_parquet_are_named_too(stores: Shop, call: Call) -> None:
    for number, most in enumerate(([1.0, 2.0], [3.0, 0.0])):
        names = [f"s{number}{place}" for place in range(2)]
        pa.parquet.write_table(pa.table({"store": names, "most": most}), stores.folder / f"stores-{number}.parquet")
    weekly = stage(partition_by=["store"], metrics={"revenue": REVENUE})
    job = stores.write(lookup={"parquet": "stores-*.parquet", "on": "store"}, stages={"weekly": weekly})
    said = call("plan", job)
    assert said.code == 2
    assert "in row 2 of" in said.err
    assert "stores-1.parquet" in said.err
    pa.parquet.write_table(pa.table({"store": ["a"], "most": ["much"]}), stores.folder / "stores-0.parquet")
    (stores.folder / "stores-1.parquet").unlink()
    assert "of the lookup, which has type string; write it as numbers" in call("plan", job).err


def test_a_column_of_the_rows_with_the_name_of_ours_is_refused(stores: Shop, call: Call) -> None:
    ours = "price as a share of [0.0, 'most' or 2000.0]"
    path = stores.folder / "data" / "part.parquet"
    pa.parquet.write_table(rows().append_column(ours, pa.array([1.0] * 8000)), path)
    said = call("plan", write(stores, metrics={"revenue": REVENUE}))
    assert said.code == 2
    assert "which the rows already have; rename that column" in said.err


@needs("tune")
def test_the_best_by_such_a_sum_and_tuning_it_are_refused(stores: Shop, call: Call) -> None:
    best = {"metrics": {"revenue": REVENUE}, "best": {"k": 1, "by": "revenue"}, "partition_by": ["store"]}
    said = call("plan", write(stores, **best, partitions={"public": [["town"], ["mall"]]}))
    assert said.code == 2
    assert "has a bound that differs by partition, so that its values in two partitions cannot be compared" in said.err
    grid = "bounds.max_partitions_contributed=1,2"
    said = call("tune", write(stores), "--grid", grid, "--output", stores.folder / "tuned")
    assert said.code == 2
    assert "metrics.revenue: has a bound that differs by partition, for which no prediction exists" in said.err
    assert not (stores.folder / "tuned").exists()


BY_STORE = dp.Query(
    privacy_unit="customer",
    partition_by=["store"],
    bounds=dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2),
    metrics={"revenue": dp.Sum("price", min_value=0, max_value=LookupBound(lookup="most", default=20))},
)


@pytest.mark.parametrize("transform", [PrivateAggregate, BoundContributions])
def test_a_pipeline_of_ones_own_has_no_lookup_and_is_refused(transform: Callable[[Any], object]) -> None:
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": BY_STORE})
    with pytest.raises(dp.RequestError, match="with a bound from the public lookup of a job; run it with"):
        transform(plan["s"])


def test_a_session_and_beam_yaml_have_no_lookup_and_refuse_it(stores: Shop) -> None:
    session = dp.Session(
        rows(), privacy_unit="customer", dataset="shop", ledger=str(stores.folder / DEFAULT_NAME),
        releases=stores.folder / "releases",
    )  # fmt: skip
    spent = session.spent
    with pytest.raises(
        dp.RequestError, match=r"revenue.max_value: names column 'most' of a lookup, and the job has none"
    ):
        session.query(BY_STORE, name="one", epsilon=1.0)
    assert session.spent == spent
    pipeline = beam.Pipeline(runner=FnApiRunner())
    tables = pipeline | beam.Create([beam.Row(customer=1, store="a", price=1.0)])
    with pytest.raises(dp.RequestError, match="of a lookup|public lookup of a job"):
        _ = tables | DpAggregate(
            epsilon=1.0, delta=1e-6, ledger="none", privacy_unit="customer", partition_by="store",
            bounds={"max_partitions_contributed": 2, "max_contributions_per_partition": 1}, metrics={"revenue": REVENUE},
        )  # fmt: skip
