"""Runs of several pipelines: each draw is made once, whatever fails, and leaves the game for the next round."""

import datetime
import json
import pathlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.run import ledgered_run, pipelines, production
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.steps.stage_rows import WithoutPartitions
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
SIPS = {"private": {"strategy": "sips"}}
STAGES = {"weekly": stage(partitions=SIPS)}


def kinds(shop: Shop) -> list[str]:
    """The kinds of all events of the shop's ledger."""
    return [event.kind for event in Ledger.open(str(shop.folder / DEFAULT_NAME)).history]


def test_a_selection_in_rounds_publishes_one_table_and_none_of_its_rounds(shop: Shop, call: Call) -> None:
    out = shop.folder / "out"
    said = call("run", shop.write(stages=STAGES), "--output", out)
    assert (said.code, said.err) == (0, "")
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "report.html", "weekly.parquet"]
    table = pa.parquet.read_table(out / "weekly.parquet")
    assert table.column("product").to_pylist() == ["p0", "p1", "p2", "p3", "p4"]
    assert table.column_names == ["product", "orders", "orders_stddev", "revenue", "revenue_stddev"]
    manifest = json.loads((out / "manifest.json").read_text())
    assert [described["name"] for described in manifest["stages"]] == ["weekly"]
    assert {record["stage"] for record in manifest["mechanisms"]} == {
        "weekly", "weekly.select1", "weekly.select2", "weekly.select3",
    }  # fmt: skip
    assert kinds(shop).count("draw_frozen") == 3


def test_what_a_round_has_drawn_is_not_drawn_again_after_a_failure(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, out = shop.write(stages=STAGES), shop.folder / "out"
    ran: list[str] = []
    real = pipelines.run_pipeline

    def failing(request, stages, *rest):  # type: ignore[no-untyped-def]
        ran.extend(stages)
        if "weekly.select2" in stages and ran.count("weekly.select2") == 1:
            raise pipelines.RunFailed("the pipeline failed")
        return real(request, stages, *rest)

    monkeypatch.setattr(production, "run_pipeline", failing)
    assert call("run", job, "--output", out).code == 1
    assert not out.exists()
    assert call("run", job, "--output", out).code == 0
    assert ran == ["weekly.select1", "weekly.select2", "weekly.select2", "weekly.select3", "weekly"]
    assert kinds(shop).count("draw_frozen") == 3
    assert kinds(shop).count("run_reserved") == 1


def test_a_run_that_has_drawn_gives_no_budget_back(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    job = shop.write(stages=STAGES)

    def failing(request, stages, *rest):  # type: ignore[no-untyped-def]
        if "weekly" in stages:
            raise pipelines.RunFailed("the pipeline failed")
        return pipelines.run_pipeline(request, stages, *rest)

    monkeypatch.setattr(production, "run_pipeline", failing)
    assert call("run", job, "--output", shop.folder / "out", "--run-id", "a").code == 1
    said = call("runs", job, "--abandon", "a")
    assert said.code == 0
    assert "its charge stays" in said.out


def test_a_superseded_attempt_cannot_keep_a_draw(shop: Shop, call: Call) -> None:
    assert call("run", shop.write(stages=STAGES), "--output", shop.folder / "out", "--run-id", "a").code == 0
    book = Ledger.open(str(shop.folder / DEFAULT_NAME))
    run = book.run("shop", "a")
    assert run is not None
    draws = ledgered_run.InLedger(book, run, run.attempts[-1].name)
    with pytest.raises(Exception, match="was continued by another process"):
        draws.keep("weekly.select9", b"")
    assert draws.get("weekly.select1") is not None
    assert draws.get("weekly.select9") is None


def test_nothing_that_is_large_enough_publishes_an_empty_table_of_the_same_columns(shop: Shop, call: Call) -> None:
    rows = pa.table({"customer": range(50), "product": [f"p{i}" for i in range(50)], "price": [1.0] * 50})
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    pa.parquet.write_table(rows, shop.folder / "data" / "part.parquet")
    for name, metrics in {"with": stage()["metrics"], "alone": {}}.items():
        out = shop.folder / name
        # One person's product is published with a probability of delta at most: any of these fifty with one of 1e-10.
        budget = {"epsilon": 8.0, "delta": 1e-12}
        job = shop.write(stages={"weekly": stage(partitions=SIPS, metrics=metrics)}, budget=budget)
        assert call("run", job, "--output", out, "--ledger", "none").code == 0
        table = pa.parquet.read_table(out / "weekly.parquet")
        assert table.num_rows == 0
        assert table.schema.field("product").type == pa.string()
        assert table.column_names[0] == "product"
        assert len(table.column_names) == (5 if metrics else 1)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2, None], pa.int32()),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array([datetime.date(2026, 1, 5), None, datetime.date(2026, 1, 6)]),
        pa.array([datetime.datetime(2026, 1, 5, 1, 2, 3, 4), None, datetime.datetime(1970, 1, 1)], pa.timestamp("us", "UTC")),
    ],
)  # fmt: skip
def test_rows_of_released_partitions_leave_whatever_type_their_key_has(values: pa.Array) -> None:
    rows = pa.table({"key": values.take(pa.array(np.arange(30) % 3)), "n": range(30)})
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    for released in ([0], [1], [0, 1, 2], []):
        (left,) = WithoutPartitions(pa.table({"key": plain.take(pa.array(released, pa.int64()))})).process(rows)
        assert sorted(left.column("n").to_pylist()) == [n for n in range(30) if n % 3 not in released]


def test_rounds_find_smaller_partitions_than_one_selection(shop: Shop, call: Call) -> None:
    """On Zipf-like keys it finds some 1.4 times as many, far beyond what chance makes of either (benchmarks/selection.py)."""
    made = np.random.default_rng(5)
    keys = made.zipf(1.3, 60_000)
    rows = pa.table({"customer": np.arange(60_000) // 16, "product": [f"k{k}" for k in keys]})
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    pa.parquet.write_table(rows, shop.folder / "data" / "part.parquet")
    kept = {}
    for strategy in ("sips", "weighted_gaussian"):
        bounds = {"max_partitions_contributed": 16}
        partitions = {"private": {"strategy": strategy}}
        job = shop.write(
            stages={"weekly": stage(bounds=bounds, metrics={}, partitions=partitions)}, budget={"epsilon": 3.0, "delta": 1e-5}
        )  # fmt: skip
        out: pathlib.Path = shop.folder / strategy
        assert call("run", job, "--output", out, "--ledger", "none").code == 0
        kept[strategy] = pa.parquet.read_table(out / "weekly.parquet").num_rows
    assert kept["sips"] > 1.1 * kept["weighted_gaussian"]


@pytest.mark.parametrize(
    "key",
    [
        pa.array([1_000_000_001, 86_400_000_000_002, 3], pa.timestamp("ns")),
        pa.array([2932897, 0, 1], pa.date32()),  # the first day of the year 10000
        pa.array([1, 2, 3], pa.int16()),
        pa.array(["1.10", "2000.00", "3.00"]).cast(pa.decimal128(10, 2)),
        pa.array([b"ab", b"cd", b"ef"], pa.binary(2)),
        pa.array([True, False, None]),
    ],
    ids=str,
)
def test_keys_of_every_type_go_through_the_rounds_and_keep_it(shop: Shop, call: Call, key: pa.Array) -> None:
    rows = pa.table(
        {"customer": np.arange(3000), "product": key.take(pa.array(np.arange(3000) % 3)), "price": [1.0] * 3000}
    )
    for path in (shop.folder / "data").iterdir():
        path.unlink()
    pa.parquet.write_table(rows, shop.folder / "data" / "part.parquet")
    job, out = shop.write(stages=STAGES), shop.folder / "out"
    said = call("run", job, "--output", out)
    assert (said.code, said.err) == (0, "")
    found = pa.parquet.read_table(out / "weekly.parquet").column("product")
    assert found.type == key.type
    assert set(found.cast(pa.int64()).to_pylist() if pa.types.is_temporal(key.type) and key.type != pa.date32() else
               found.cast(pa.int32()).to_pylist() if key.type == pa.date32() else found.to_pylist()) == set(
        key.cast(pa.int64()).to_pylist() if pa.types.is_temporal(key.type) and key.type != pa.date32() else
        key.cast(pa.int32()).to_pylist() if key.type == pa.date32() else key.to_pylist()
    )  # fmt: skip


def test_a_failure_between_two_pipelines_quotes_nothing(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise ValueError("the key p0 is odd")

    monkeypatch.setattr("dp_pipelines.release.over_partitions.over", fails)
    said = call("run", shop.write(stages=STAGES), "--output", shop.folder / "out")
    assert said.code == 1
    assert "p0" not in said.err
    assert "details are not shown" in said.err
