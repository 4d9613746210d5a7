"""The peers answer the query that they are measured with, compared with a slow and plain answer."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

PEERS = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"


@pytest.fixture
def folder(load, tmp_path):
    """Few users with many rows, so that all bounds bind."""
    pq.write_table(load("data").make("even", 20_000, 500, (6,)), tmp_path / "part.parquet")
    return tmp_path


@pytest.mark.parametrize("script", ["duckdb_bounded.py", "polars_bounded.py"])
def test_a_peer_bounds_contributions_as_the_workload_says(load, folder, script):
    workload, measure = load("workload"), load("measure")
    command = [sys.executable, str(PEERS / script), str(folder)]
    run = measure.parse(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    table = pq.read_table(folder)
    pairs = Counter(zip(table["user"].to_pylist(), table["key"].to_pylist(), strict=True))
    keys_of = Counter(user for user, _ in pairs)
    # each user counts once in each kept key, whichever keys these are
    assert run.totals["users"] == sum(min(workload.MAX_KEYS, n) for n in keys_of.values())
    # a kept pair has one row or two; which pairs are kept is the peer's choice, within three standard deviations or so
    chance = {user: min(1, workload.MAX_KEYS / n) for user, n in keys_of.items()}
    expected = sum(chance[user] * min(workload.MAX_ROWS, n) for (user, _), n in pairs.items())
    assert run.totals["rows"] == pytest.approx(expected, rel=0.03)
    assert run.totals["users"] < run.totals["rows"] <= 2 * run.totals["users"]
    assert run.totals["sum"] / run.totals["rows"] == pytest.approx(49, rel=0.1)
    assert run.seconds > 0
    assert run.max_rss_mib > 20


@pytest.mark.parametrize("script", ["ours_local.py", "ours_quantiles.py"])
def test_a_whole_command_reports_its_release(load, folder, script):
    command = [sys.executable, str(PEERS / script), str(folder)]
    run = load("measure").parse(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert 0 < run.partitions < 100  # of a thousand keys: those that the noise cannot hide
    assert 0 < run.totals["rows"] < 20_000
    assert run.seconds > 0
    assert run.plan_seconds > 0


def test_a_report_is_the_last_line_and_nothing_else_is_taken_for_one(load):
    measure = load("measure")
    report = {
        "plan_seconds": 1.0,
        "seconds": 1.0,
        "cpu_seconds": 1.0,
        "data_seconds": 1.0,
        "import_seconds": 1.0,
        "max_rss_mib": 1.0,
        "partitions": 1,
        "totals": {},
        "system": "x",
    }
    assert measure.parse("a warning\n" + json.dumps(report) + "\n").seconds == 1.0
    for wrong in ("", "no report\n", "{}\n", json.dumps(report) + "\nlast words\n"):
        with pytest.raises(measure.BenchmarkError, match="no report"):
            measure.parse(wrong)
