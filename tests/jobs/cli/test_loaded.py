"""A command loads what it needs: what is slow, or for other jobs, stays out.

In: commands, each in a process of its own. Out: the modules that it has loaded. Holds: a job without SQL, tuning or Dataflow
loads none of these. Not covered: `--help` (test_main); seconds, which `benchmarks/start.py` takes.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.conftest import Shop, stage

SCRIPT = """
import sys
from dp_pipelines.jobs.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code or 0
print(*sorted(sys.modules), file=open("modules", "w"))
sys.exit(code)
"""
OTHERS = (
    "dp_pipelines.tuning",
    "dp_pipelines.jobs.tune",
    "dp_pipelines.jobs.dataflow",
    "dp_pipelines.jobs.sql.windows",
)
SQL = {"dp_pipelines.jobs.sql", "dp_pipelines.jobs.sql.row_expressions", "dp_pipelines.jobs.sql.row_slices"}
"""What of the room of SQL a job without SQL needs: a class for expressions, which may be none, and slices of rows."""


def loaded(folder: Path, *arguments: object) -> set[str]:
    """The modules that a command has loaded when it ends."""
    command = [sys.executable, "-c", SCRIPT, *(str(argument) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return set((folder / "modules").read_text().split())


def of(modules: set[str], *packages: str) -> list[str]:
    return sorted(name for name in modules if any(name == p or name.startswith(p + ".") for p in packages))


def test_a_job_without_sql_tuning_and_dataflow_loads_none_of_these(shop: Shop) -> None:
    found = loaded(shop.folder, "run", shop.write(stages={"weekly": stage()}), "--output", shop.folder / "out")
    assert "apache_beam" in found
    assert not of(found, "duckdb", "jax", "numba", *OTHERS)
    assert not set(of(found, "dp_pipelines.jobs.sql")) - SQL
    assert not [name for name in found if "dataflow" in name and name.startswith("dp_pipelines")]


def test_the_library_alone_loads_neither_pandas_nor_beam() -> None:
    code = "import sys, dp_pipelines; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not of(set(done.stdout.split()), "pandas", "apache_beam", "duckdb", "matplotlib", "jax", "numba")


@pytest.mark.slow
def test_a_job_with_a_condition_loads_the_database_that_evaluates_it(shop: Shop) -> None:
    job = shop.write(stages={"weekly": stage()}, where="price > 1")
    assert "duckdb" in loaded(shop.folder, "run", job, "--output", shop.folder / "out")
