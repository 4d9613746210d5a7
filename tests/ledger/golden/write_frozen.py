"""Write the ledgers with frozen plans anew: after a change of `planning.plan.FORMAT`, which no ledger of a release may need.

In: the job of each folder of `frozen`. Out: its ledger after two of four runs, and what the second release says.
Run: python tests/ledger/golden/write_frozen.py
"""

import gzip
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

from dp_pipelines.jobs.cli.main import main
from dp_pipelines.jobs.runners import processes
from dp_pipelines.ledger.ledger import DEFAULT_NAME
from tests.jobs.run.test_frozen_plans import GOLDEN, placed

NOWHERE = {
    "boot": "0" * 32,
    "machine": "0" * 32,
    "numbers": "pid:[4026531836]",
    "host": "example",
    "pid": 1,
    "began": "1",
}
"""Stands for the process that ran a job: the files name no machine of ours."""


def write(name: str, folder: pathlib.Path) -> None:
    """Run a job twice, and keep its ledger and the same parts of the manifest as before."""
    job = placed(name, folder)
    (folder / DEFAULT_NAME).unlink()
    for run in ("W1", "W2"):
        if code := main(["run", str(job), "--run-id", run, "--output", str(folder / run)]):
            raise SystemExit(f"{name}: run {run} ended with {code}")
    manifest = json.loads((folder / "W2" / "manifest.json").read_text())
    file = GOLDEN / name / "manifest.json"
    known = json.loads(file.read_text())
    file.write_text(json.dumps({key: manifest[key] for key in known}, indent=1) + "\n")
    (GOLDEN / name / "ledger.sqlite.gz").write_bytes(gzip.compress((folder / DEFAULT_NAME).read_bytes(), mtime=0))


if __name__ == "__main__":
    processes.here = lambda: NOWHERE
    for path in sorted(GOLDEN.iterdir()):
        with tempfile.TemporaryDirectory() as place:
            os.environ |= {"XDG_CACHE_HOME": place + "/cache", "XDG_STATE_HOME": place + "/state"}
            write(path.name, pathlib.Path(place))
