"""The demo of scheduled runs can be repeated: it starts anew where the ledger of the last time is gone.

In: the real data, a ledger that was made and deleted. Out: the exit code of the demo, its folders. Not covered: what it prints.
"""

import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.docs.worlds import ta_feng
from tests.helpers import warm_process
from tests.helpers.source import ROOT

EXAMPLE = ROOT / "examples" / "ta_feng"


@pytest.mark.slow
def test_the_demo_starts_anew_where_its_ledger_is_gone(tmp_path: pathlib.Path) -> None:
    ta_feng(tmp_path)
    weeks = tmp_path / "weeks"
    weeks.mkdir()
    init = ["ledger", "init", str(EXAMPLE / "scheduled.yaml"), "--ledger", str(weeks / "ledger.sqlite")]
    words = ["--unit-words", "customer (all purchases of four months)"]
    assert warm_process.run([*init, *words], folder=ROOT).returncode == 0
    shutil.rmtree(weeks)
    assert "is gone: it records what was spent" in warm_process.run([*init, *words], folder=ROOT).stderr
    demo = subprocess.run(
        [sys.executable, EXAMPLE / "demo.py", "--output", weeks], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert demo.returncode == 0, demo.stderr
    assert len(list(weeks.glob("*/report.html"))) == 3
