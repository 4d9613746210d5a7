"""The benchmark of quantiles: its measure of error, and that both peers' scripts and ours answer what is asked."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"


def test_the_error_is_that_of_the_price_and_of_its_rank(load):
    quantiles = load("quantiles")
    prices = [np.arange(101.0)] * 2
    exact = np.tile(np.array(quantiles.QUANTILES) * 100, (1, 2, 1))
    assert [error.tolist() for error in quantiles.errors(exact, prices)] == [[0.0], [0.0]]
    price, rank = quantiles.errors(exact + 5, prices)
    assert price.tolist() == [5.0]
    assert rank[0] == pytest.approx(5, abs=1)


def test_a_price_that_many_rows_have_has_every_rank_between(load):
    quantiles = load("quantiles")
    _, rank = quantiles.errors(np.full((1, 1, 5), 7.0), [np.full(50, 7.0)])
    assert rank.tolist() == [0.0]


def test_the_goal_is_missed_by_an_error_like_the_peers(load):
    quantiles = load("quantiles")
    same = (np.array([1.0, 1.1]), np.array([1.0, 1.1]))
    half = (same[0] / 2, same[1])
    prices = [np.arange(3.0)]
    for ours, met in ((same, False), (half, True)):
        found = {(quantiles.OURS, "tree"): ours, (quantiles.OPENDP, "a"): same, (quantiles.PIPELINEDP, "b"): same}
        text, good = quantiles.section("a list", found, prices)
        assert good is met
        assert ("**missed**" in text) is not met


def test_our_answer_is_close_to_the_rows_where_the_budget_is_large(tmp_path):
    made = np.random.default_rng(1).uniform(0, 100, 2000)
    rows = pa.table({"unit": range(2000), "partition": pa.array([0] * 2000, pa.int32()), "price": made})
    pq.write_table(rows, tmp_path / "rows.parquet")
    request = {"rows": str(tmp_path / "rows.parquet"), "partitions": 2, "quantiles": [0.25, 0.5], "runs": 3, "epsilon": 20.0,
               "delta": 1e-6, "max_partitions": 1, "max_rows": 1, "low": 0.0, "high": 100.0}  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps(request))
    command = [
        sys.executable,
        str(PEERS / "quantiles_ours.py"),
        str(tmp_path / "request.json"),
        str(tmp_path / "out.parquet"),
    ]
    subprocess.run(command, check=True)
    table = pq.read_table(tmp_path / "out.parquet")
    values = np.array(table["values"].to_pylist())
    assert values.shape == (3, 2, 2)
    assert np.abs(values[:, 0] - np.quantile(made, [0.25, 0.5])).max() < 3
