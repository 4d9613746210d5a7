"""A small shop for every test of the jobs: files of rows, a job file, and the command line called in this process.

In: nothing. Out: the fixtures `shop` and `call`. Holds: the shop's rows are the same in every test; each test has a folder of
its own. Not covered: real subprocesses, which `test_cli` starts itself.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.audit import audit
from dp_pipelines.auto_bounds import partition_bound, value_bounds
from dp_pipelines.jobs.cli import main
from dp_pipelines.ledger import pins
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers.postgres import postgres, server  # noqa: F401 - fixtures

ROWS = 4000


def purchases(seed: int, rows: int = ROWS) -> pa.Table:
    """Rows of the shop."""
    made = np.random.default_rng(seed)
    days = np.datetime64("2025-01-06", "us") + made.integers(0, 28 * 86_400, rows) * 1_000_000
    return pa.table(
        {
            "customer": made.integers(0, 1000, rows),
            "product": pa.array([f"p{i}" for i in made.integers(0, 5, rows)]),
            "store": made.integers(1, 4, rows).astype(np.int32),
            "paid_at": pa.array(days),
            "price": made.random(rows) * 20,
            "note": pa.array(["7", "x", None, "30"] * (rows // 4)),
        }
    )


@pytest.fixture(scope="session", autouse=True)
def own_anchors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point the user's state folder, where ledgers keep their anchors, to a temporary one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@dataclasses.dataclass
class Shop:
    """A folder with data and a job file."""

    folder: Path

    @property
    def job(self) -> Path:
        """The job file."""
        return self.folder / "job.yaml"

    def write(self, **changes: object) -> Path:
        """Write the job file: the shop's own job with some keys at the top changed, or left out where None."""
        job = {
            "dataset": "shop",
            "privacy_unit": "customer",
            "budget": {"epsilon": 8.0, "delta": 1e-5},
            "source": {"parquet": "data/*.parquet"},
            "stages": {"weekly": stage()},
        }
        job.update(changes)
        self.job.write_text(yaml.safe_dump({k: v for k, v in job.items() if v is not None}, sort_keys=False))
        return self.job

    def without_ledger(self) -> None:
        """As it is before the first run: no ledger, and this user has seen none here."""
        path = self.folder / DEFAULT_NAME
        path.unlink(missing_ok=True)
        pins._note(os.path.realpath(path)).unlink(missing_ok=True)

    def charged(self) -> int:
        """How many runs the ledger has charged."""
        ledger = Ledger.open(str(self.folder / DEFAULT_NAME))
        try:
            return len(ledger.state.runs)
        finally:
            ledger.close()

    def left(self) -> list[str]:
        """Everything in the folder but the data, the job file and the ledger."""
        kept = {"data", "job.yaml", DEFAULT_NAME}
        return sorted(
            str(p.relative_to(self.folder))
            for p in self.folder.rglob("*")
            if p.relative_to(self.folder).parts[0] not in kept
        )


def stage(**changes: object) -> dict[str, object]:
    """The shop's stage, with some keys changed."""
    base: dict[str, object] = {
        "kind": "aggregate",
        "partition_by": ["product"],
        "bounds": {"max_partitions_contributed": 3, "max_contributions_per_partition": 2},
        "metrics": {
            "orders": {"kind": "count"},
            "revenue": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
        },
    }
    return {**base, **changes}


def fill(folder: Path) -> None:
    """Write the two files of rows of the shop."""
    (folder / "data").mkdir()
    for number in range(2):
        pa.parquet.write_table(purchases(number), folder / "data" / f"part-{number}.parquet")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop with two files, its own job, and a ledger in which many jobs have room."""
    fill(tmp_path)
    made = Shop(tmp_path)
    made.write()
    ledger = Ledger.create(str(tmp_path / DEFAULT_NAME))
    ledger.open_account("shop", unit=["customer"], words="one customer", epsilon=1000.0, delta=0.5)
    ledger.close()
    return made


@dataclasses.dataclass
class Said:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def rare_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit that takes a sound plan for a wrong one once in 1e10 runs, where users get one in 1e6."""
    monkeypatch.setitem(audit.audit.__kwdefaults__, "false_alarms", 1e-10)


@pytest.fixture
def rows_alone_pass_for_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are chosen where noise alone passes for rows once in 1e11 runs, where users get one in 1,000 or 2,000."""
    for module in (value_bounds, partition_bound):
        monkeypatch.setattr(module, "FALSE_ALARM", 1e-11)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run the command line in this process."""

    def run(*arguments: object) -> Said:
        capfd.readouterr()
        try:
            code = main.main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capfd.readouterr()
        return Said(code, captured.out, captured.err)

    return run
