"""A command loads what it needs: what is slow, or for other jobs, stays out.

In: commands, each in a process of its own. Out: the modules that it has loaded. Holds: a job without SQL, tuning or Dataflow
loads none of these. Not covered: `--help` (test_main); seconds, which `benchmarks/start.py` takes.
"""

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import dp_pipelines
from tests.jobs.conftest import Shop, stage

SCRIPT = """
import sys, threading
from dp_pipelines.jobs.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code or 0
print(*sorted(sys.modules), file=open("modules", "w"))
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
sys.exit(code)
"""
SESSION = """
import sys, threading
import pyarrow.parquet
import dp_pipelines as dp
for number in range(2):
    data = pyarrow.parquet.read_table("data/part-0.parquet") if number else "data"
    session = dp.Session(data, privacy_unit="customer", dataset=f"s{number}", epsilon=3, delta=1e-6)
    bounds = dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2)
    session.query("a", partition_by="product", bounds=bounds, metrics={"orders": dp.Count()}, epsilon=1).to_arrow()
print(*sorted(sys.modules), file=open("modules", "w"))
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
"""
WHO = """
import sys, traceback
class Asked:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            open("who", "w").write("".join(traceback.format_stack()))
sys.meta_path.insert(0, Asked())
"""
"""Keeps who was the last to ask for pandas, where it is really looked for."""

SLOW = ("apache_beam", "duckdb", "flint", "jax", "jinja2", "matplotlib", "numba", "pandas", "scipy", "sqlalchemy")
OTHERS = (
    "dp_pipelines.extensions.dataflow",
    "dp_pipelines.jobs.sql.windows",
)
KEYS = [f"dp_pipelines.extensions.lake{module}" for module in ("", ".formats", ".models")]
"""What says which keys of job files an installed extension adds; nothing that reads or writes."""

OPTIONS = [f"dp_pipelines.extensions.lineage{module}" for module in ("", ".option")]
"""What says which options of `run` an installed extension adds; nothing that follows a run."""

SQL = {"dp_pipelines.jobs.sql", "dp_pipelines.jobs.sql.row_expressions", "dp_pipelines.jobs.sql.row_slices"}
"""What of the room of SQL a job without SQL needs: a class for expressions, which may be none, and slices of rows."""


def loaded(folder: Path, *arguments: object, script: str = SCRIPT) -> set[str]:
    """The modules that a command has loaded when it ends. No thread of it is left then, and no temporary file."""
    command = [sys.executable, "-c", script, *(str(argument) for argument in arguments)]
    with tempfile.TemporaryDirectory() as temporary:
        environment = {**os.environ, "TMPDIR": temporary}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
        assert done.returncode == 0, done.stderr
        assert os.listdir(temporary) == []
    return set((folder / "modules").read_text().split())


def of(modules: set[str], *packages: str) -> list[str]:
    return sorted(name for name in modules if any(name == p or name.startswith(p + ".") for p in packages))


def test_a_job_without_sql_tuning_and_dataflow_loads_none_of_these(shop: Shop) -> None:
    found = loaded(shop.folder, "run", shop.write(stages={"weekly": stage()}), "--output", shop.folder / "out")
    assert "dp_pipelines.jobs.runners.local" in found
    assert not of(found, "apache_beam", "pandas", "duckdb", "jax", "numba", *OTHERS)
    assert of(found, "dp_pipelines.extensions") == ["dp_pipelines.extensions", *KEYS, *OPTIONS]
    assert not set(of(found, "dp_pipelines.jobs.sql")) - SQL
    assert not [name for name in found if "dataflow" in name and name.startswith("dp_pipelines")]


def test_the_library_alone_loads_nothing_until_a_name_is_used() -> None:
    code = "import sys, dp_pipelines; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert of(found, "dp_pipelines") == ["dp_pipelines"]
    assert not of(found, "numpy", "pyarrow", "pydantic", *SLOW)


def test_every_public_name_is_there_and_stands_where_type_checkers_find_it() -> None:
    path = Path(dp_pipelines.__file__)
    listed = {
        (alias.asname, f"{line.module}.{alias.name}")
        for line in ast.walk(ast.parse(path.read_text()))
        if isinstance(line, ast.ImportFrom) and (line.module or "").startswith("dp_pipelines")
        for alias in line.names
    }
    loaded_at = {(name, f"dp_pipelines.{room}.{name}") for name, room in dp_pipelines._ROOMS.items()}
    assert listed == loaded_at
    assert all(getattr(dp_pipelines, name).__name__ == name for name in dp_pipelines._ROOMS)
    assert set(dp_pipelines._ROOMS) <= set(dir(dp_pipelines))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = dp_pipelines.Nothing


def test_help_loads_no_library(tmp_path: Path) -> None:
    found = loaded(tmp_path, "--help")
    assert not of(found, "numpy", "pyarrow", "pydantic", "yaml", "dp_pipelines.kernels", "dp_pipelines.planning", *SLOW)


@pytest.mark.slow
def test_a_plan_loads_no_engine_ledger_or_page_and_no_accountant_the_second_time(shop: Shop) -> None:
    job = shop.write(stages={"weekly": stage()})
    shop.without_ledger()  # what is left in an account can only be read from its ledger
    of_no_plan = {"dp_pipelines.transforms", "dp_pipelines.report.report", *SLOW}
    assert not of(loaded(shop.folder, "plan", job), *of_no_plan - {"scipy", "flint"})
    assert not of(loaded(shop.folder, "plan", job), "dp_pipelines.accounting.composition", *of_no_plan)


@pytest.mark.slow
@pytest.mark.parametrize("ledger", [(), ("--ledger", "none")], ids=["ledger", "no ledger"])
def test_a_run_on_one_machine_loads_neither_beam_nor_pandas(shop: Shop, ledger: tuple[str, ...]) -> None:
    output = ("--output", shop.folder / "out", *ledger)
    found = loaded(shop.folder, "run", shop.write(stages={"weekly": stage()}), *output, script=WHO + SCRIPT)
    assert not of(found, "apache_beam", "pandas", "duckdb", "matplotlib", "numba", "jax")
    assert bool(of(found, "sqlalchemy", "dp_pipelines.ledger.database")) == (not ledger)
    assert not (shop.folder / "who").exists()


AUTO = {"revenue": {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 100]}}
FORMS: dict[str, dict[str, object]] = {
    "a condition and a column": {"where": "price > 1", "columns": {"dear": "price > 10"}},
    "auto bounds": {"stages": {"weekly": stage(metrics=AUTO)}},
    "selection in rounds": {"stages": {"weekly": stage(partitions={"private": {"strategy": "sips"}})}},
    "a window over a unit's rows": {
        "stages": {"weekly": stage(unit_columns={"number": "count(*) OVER (ORDER BY paid_at)"}, max_rows_per_unit=50)}
    },
    "what is kept": {"stages": {"weekly": stage(kept={"share": 0.1})}},
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_whatever_a_job_asks_for_it_loads_neither_beam_nor_pandas(shop: Shop, form: str) -> None:
    found = loaded(shop.folder, "run", shop.write(**FORMS[form]), "--output", shop.folder / "out")
    assert not of(found, "apache_beam", "pandas", "dp_pipelines.transforms")


@pytest.mark.slow
def test_looks_at_rows_load_neither_beam_nor_pandas(shop: Shop) -> None:
    grid = ("--grid", "bounds.max_partitions_contributed=1,2")
    for command in (("tune", shop.job, *grid), ("check", shop.job)):
        found = loaded(shop.folder, *command, "--output", shop.folder / command[0])
        assert not of(found, "apache_beam", "pandas", "dp_pipelines.transforms")


@pytest.mark.slow
def test_a_session_loads_neither_beam_nor_pandas(shop: Shop) -> None:
    found = loaded(shop.folder, script=WHO + SESSION)
    assert "dp_pipelines.jobs.runners.local" in found
    assert not of(found, "apache_beam", "pandas", "dp_pipelines.transforms", "duckdb", "matplotlib", "numba", "jax")
    assert not (shop.folder / "who").exists()


@pytest.mark.slow
def test_beam_is_loaded_for_its_own_runners(shop: Shop) -> None:
    assert "apache_beam" in loaded(shop.folder, "run", shop.job, "--output", shop.folder / "out", "--runner", "direct")


@pytest.mark.slow
def test_a_job_with_a_condition_loads_the_database_that_evaluates_it(shop: Shop) -> None:
    job = shop.write(stages={"weekly": stage()}, where="price > 1")
    assert "duckdb" in loaded(shop.folder, "run", job, "--output", shop.folder / "out")
