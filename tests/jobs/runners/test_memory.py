"""Whole runs in little memory: what `--memory` says is what a run takes, and a spill disk that fills up is told and mended.

In: wide rows in whole processes. Out: their peak memory, their messages. Holds: limits are those of the system. Not covered:
memory that is neither of rows nor of tables, such as that of a report with millions of partitions.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.engines import wide_rows
from tests.helpers.small_disks import SmallDisk

pytestmark = pytest.mark.slow

MIB = 2**20

CALL = "import sys; from dp_pipelines.jobs.cli.main import main; sys.exit(main(sys.argv[1:]))"

LEAST = ("--threads=1", "--memory=640MiB")


# A small process starts the command: of a test, a child would inherit the most memory that it has ever taken, and threads.
LAUNCH = """
import os, resource, subprocess, sys
limit = int(sys.argv[1])
if limit:
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
process = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss)
"""


def run(job: pathlib.Path, *options: str, limit: int = 0) -> tuple[int, str, int]:
    """Run a job, with so many bytes of addresses: the exit code, what was said, and the most memory that it has taken."""
    command = [sys.executable, "-c", CALL, "run", str(job), "--output", str(job.parent / "out"), *options]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, str(limit), *command], capture_output=True, text=True, check=True
    )
    code, peak = map(int, done.stdout.split())
    return code, done.stderr, peak * 1024


def test_a_run_takes_what_memory_says_and_more_where_it_may(tmp_path: pathlib.Path) -> None:
    peaks = []
    for name, memory in (("little", "640MiB"), ("much", "4GiB")):
        folder = tmp_path / name
        folder.mkdir()
        job = wide_rows.forty_clamps(folder, rows=3_000_000)  # 500 MiB as they are shuffled
        code, said, peak = run(job, "--ledger=none", "--threads=1", f"--memory={memory}", f"--spill-folder={tmp_path}")
        assert code == 0, said
        peaks.append(peak)
    assert peaks[0] <= 640 * MIB
    assert peaks[1] > 640 * MIB  # the rows are as many as was meant


def test_a_run_stays_within_the_limit_of_its_process(tmp_path: pathlib.Path) -> None:
    (tmp_path / "job").mkdir()
    job = wide_rows.forty_clamps(tmp_path / "job", rows=3_000_000)
    code, said, peak = run(job, "--ledger=none", f"--spill-folder={tmp_path}", limit=3 * 1024 * MIB)
    assert code == 0, said
    assert peak <= 1536 * MIB
    shutil.rmtree(job.parent / "out")
    code, _, _ = run(job, "--ledger=none", "--runner=direct", limit=3 * 1024 * MIB)
    assert code != 0  # it holds all that is shuffled


@pytest.mark.long
def test_ten_million_rows_of_forty_metrics_end_in_four_gib(tmp_path: pathlib.Path) -> None:
    job = wide_rows.forty_clamps(tmp_path, rows=10_000_000)
    code, said, peak = run(job, "--ledger=none", limit=4 * 1024 * MIB)
    assert code == 0, said
    assert peak <= 2048 * MIB


def test_a_spill_disk_that_fills_up_is_told_and_the_same_command_mends_it(
    tmp_path: pathlib.Path, real_disk: SmallDisk
) -> None:
    (tmp_path / "job").mkdir()
    job = wide_rows.forty_clamps(tmp_path / "job", rows=1_000_000, clamps=20)  # twice what may wait in memory
    options = (*LEAST, f"--spill-folder={real_disk.path}")
    real_disk.fill(leave=4 * MIB)
    code, said, _ = run(job, *options)
    assert code == 1
    assert "Traceback" not in said
    [told] = [line for line in said.splitlines() if line.startswith("error")]
    assert told.startswith(f"error: folder '{real_disk.path}': the disk is full")
    assert "--spill-folder" in told
    assert told.endswith("then run the same command again")
    assert not re.search(r"[0-9]", told.replace(str(real_disk.path), ""))
    assert real_disk.names() == []
    assert {path.name for path in job.parent.iterdir()} == {"data", "job.yaml", DEFAULT_NAME}
    assert attempts(job.parent) == 1  # what was charged stays charged
    real_disk.free()
    code, said, _ = run(job, *options)
    assert code == 0, said
    assert attempts(job.parent) == 2
    assert real_disk.names() == []


def attempts(folder: pathlib.Path) -> int:
    """How often the only run that the ledger was charged for was tried."""
    ledger = Ledger.open(str(folder / DEFAULT_NAME))
    [charged] = ledger.state.runs.values()
    ledger.close()
    return len(charged.attempts)
