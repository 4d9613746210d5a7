"""The folder examples/nightly, run: two nights without dbt, one again, one too many; and the budgets for Prometheus.

In: made-up rows. Out: releases, exit codes, gauges. Not covered: cron, Airflow, Prometheus. dbt needs an environment
of its own: DBT names its program; without it that test is skipped.
"""

import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from tests.helpers.source import ROOT
from tests.jobs.conftest import own_anchors  # noqa: F401 - fixture

NIGHTLY = ROOT / "examples" / "nightly"
SAMPLE = re.compile(r'(dp_pipelines_[a-z]+)\{((?:[a-z]+="[^"\\]*",?)*)\} (\S+)')


@pytest.fixture
def nightly(tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the folder for two nights, with rows of two days and our command on the path."""
    folder = tmp_path / "nightly"
    shutil.copytree(NIGHTLY, folder)
    job = folder / "nightly.yaml"
    job.write_text(job.read_text().replace("runs: 365, spare: 5", "runs: 2"))
    programs = folder / "programs"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    (programs / "dp-pipelines").write_text(
        f"#!{sys.executable}\nimport sys\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main())\n"
    )
    (programs / "dp-pipelines").chmod(0o755)
    cities = ["Aarhus", "Bergen", "Gdansk", "Turku"]
    (folder / "events").mkdir()
    (folder / "rows").mkdir()
    for day in (5, 6, 7):
        rows = {
            "customer_id": list(range(800)),
            "city": [cities[number % 4] for number in range(800)],
            "price": [float(number % 60) for number in range(800)],
        }
        pa.parquet.write_table(pa.table(rows), folder / "rows" / f"2026-01-0{day}.parquet")
        rows["paid_at"] = [datetime.datetime(2026, 1, day, 12)] * 800
        pa.parquet.write_table(pa.table(rows), folder / "events" / f"{day}.parquet")
    return folder


def night(folder: pathlib.Path, day: str, *programs: str) -> int:
    """Run a night and return its exit code."""
    path = os.pathsep.join([str(folder / "programs"), *programs, "/usr/bin", "/bin"])
    command = [str(folder / "nightly.sh"), day]
    return subprocess.run(command, env={**os.environ, "PATH": path}, check=False, timeout=240).returncode


def runs_left(folder: pathlib.Path) -> float:
    """Return the gauge of runs that are left, after a look at the form of each line."""
    left = []
    for line in (folder / "metrics" / "dp_pipelines.prom").read_text().splitlines():
        match = SAMPLE.fullmatch(line)
        assert match or line.startswith(("# HELP dp_pipelines_", "# TYPE dp_pipelines_")), line
        if match and match[1] == "dp_pipelines_runs" and 'of="left"' in match[2]:
            left.append(float(match[3]))
    (number,) = left
    return number


@pytest.mark.slow
def test_each_night_is_released_once_and_the_budgets_are_counted(nightly: pathlib.Path) -> None:
    assert night(nightly, "2026-01-05") == 0
    assert runs_left(nightly) == 1
    first = (nightly / "out" / "2026-01-05" / "daily.parquet").read_bytes()
    assert night(nightly, "2026-01-06") == 0
    assert night(nightly, "2026-01-05") == 0
    assert (nightly / "out" / "2026-01-05" / "daily.parquet").read_bytes() == first
    assert (nightly / "out" / "latest").resolve().name == "2026-01-06"
    assert night(nightly, "2026-01-07") == 3
    assert runs_left(nightly) == 0
    assert len((nightly / "lineage" / "2026-01-07.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
@pytest.mark.skipif(
    "DBT" not in os.environ, reason="needs dbt-duckdb in an environment of its own: DBT names its program"
)
def test_dbt_writes_the_rows_and_reads_the_release(nightly: pathlib.Path) -> None:
    shutil.rmtree(nightly / "rows")
    (nightly / "programs" / "dbt").symlink_to(os.environ["DBT"])
    assert night(nightly, "2026-01-05") == 0
    assert pa.parquet.read_table(nightly / "rows" / "2026-01-05.parquet").num_rows == 800
    assert (nightly / "nightly.duckdb").is_file()


def test_alarms_name_gauges_that_are_written_and_the_cron_line_retries_failures_alone() -> None:
    written = (NIGHTLY / "budgets.py").read_text()
    for rule in yaml.safe_load((NIGHTLY / "alarms.yaml").read_text())["groups"][0]["rules"]:
        for gauge in re.findall(r"dp_pipelines_[a-z]+", rule["expr"]):
            assert f'"{gauge}"' in written
    (line,) = [line for line in (NIGHTLY / "nightly.cron").read_text().splitlines() if line[:1].isdigit()]
    assert "%" not in line


@pytest.mark.parametrize(("code", "calls"), [(0, 1), (1, 2), (2, 1), (3, 1)])
def test_the_cron_line_tries_a_failure_again_and_a_refusal_never(code: int, calls: int, tmp_path: pathlib.Path) -> None:
    (line,) = [line for line in (NIGHTLY / "nightly.cron").read_text().splitlines() if line[:1].isdigit()]
    (tmp_path / "nightly.sh").write_text(f"#!/bin/bash\necho call >> calls\nexit {code}\n")
    (tmp_path / "nightly.sh").chmod(0o755)
    command = line.split(" ", 5)[5].replace("/srv/nightly", str(tmp_path)).replace("sleep 600", "sleep 0")
    done = subprocess.run(["/bin/bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (tmp_path / "calls").read_text().count("call") == calls
    assert ("is missing" in done.stdout) == (code != 0)
