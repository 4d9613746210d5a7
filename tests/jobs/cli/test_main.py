"""The command line as scripts see it: exit codes, streams, help, and what is left when it is stopped.

In: the shop. Out: what real processes print and how they end. Holds: nothing is measured in seconds; what costs seconds is
what is imported, and that is looked at.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import dp_pipelines
from dp_pipelines import extensions
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.cli.arguments import run_arguments
from dp_pipelines.jobs.run import plan_cache
from dp_pipelines.jobs.spec import job_file
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
SLOW = ("apache_beam", "jax", "dp_accounting", "scipy", "duckdb", "pyarrow", "rich")


def process(*arguments: object, cwd: pathlib.Path, start: str = "") -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    code = f"{start}\nimport sys\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main())"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def loaded_by(code: str, cwd: pathlib.Path) -> set[str]:
    """Which slow libraries a fresh interpreter has loaded after some code."""
    shown = f"import sys\n{code}\nprint('loaded', *(m for m in {SLOW!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", shown], cwd=cwd, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


def command(*arguments: str) -> str:
    """Code that calls the command line and goes on."""
    return f"from dp_pipelines.jobs.cli.main import main\ntry: main({list(arguments)!r})\nexcept SystemExit: pass"


def test_help_loads_nothing_that_the_package_does_not_load_anyway(tmp_path: pathlib.Path) -> None:
    alone = loaded_by("import dp_pipelines", tmp_path)
    assert loaded_by(command("--help"), tmp_path) <= alone
    assert loaded_by(command("run", "--help"), tmp_path) <= alone


def test_the_schema_and_a_plan_load_neither_beam_nor_jax(shop: Shop) -> None:
    assert not loaded_by(command("schema"), shop.folder) & {"apache_beam", "jax", "duckdb", "dp_accounting"}
    # Planned twice: the second time from the cache, without the accountant.
    assert not loaded_by(command("plan", str(shop.job)), shop.folder) & {"apache_beam", "jax"}
    assert not loaded_by(command("plan", str(shop.job)), shop.folder) & {"apache_beam", "jax", "dp_accounting", "scipy"}


def test_what_counts_as_slow_is_seen_when_it_is_loaded(tmp_path: pathlib.Path) -> None:
    assert loaded_by("import duckdb", tmp_path) == {"duckdb"}


def test_without_arguments_the_three_commands_of_a_newcomer_come_first_and_then_the_rest(call: Call) -> None:
    said = call()
    assert (said.code, said.err) == (0, "")
    first, later = said.out.split("Later:")
    assert [line.split()[1] for line in first.splitlines() if line.startswith("  dp-pipelines")] == [
        "init",
        "plan",
        "run",
    ]
    installed = {name for name in ("check", "describe") if extensions.is_installed("command", name)}
    assert {"ledger", *installed} <= {line.split()[0] for line in later.splitlines() if line.startswith("  ")}


@pytest.mark.parametrize("name", ["plan", "run", "runs", "ledger", "report", "schema"])
def test_every_command_has_help_with_an_example(call: Call, name: str) -> None:
    assert name in call("--help").out
    said = call(name, "--help")
    assert said.code == 0
    assert f"  dp-pipelines {name} " in said.out or f"  dp-pipelines {name}\n" in said.out


def test_the_job_in_the_help_is_a_job(tmp_path: pathlib.Path) -> None:
    text = run_arguments.EPILOG.split("a job file:\n")[1].split("\nAny other")[0]
    assert (
        job_file.read(re.sub(r"^  ", "", text, flags=re.MULTILINE), tmp_path / "job.yaml", "job.yaml").job.dataset
        == "grocery"
    )


def test_the_version_is_the_packages(call: Call) -> None:
    assert call("--version").out == f"dp-pipelines {dp_pipelines.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--"], "missing command"),
        (["plna", "x"], "unknown command 'plna'; did you mean 'plan'?"),
        (["rum", "job.yaml"], "unknown command 'rum'; did you mean 'run'?"),
        (["xyz"], "unknown command 'xyz'; commands: plan, run, "),
        (["run", "job.yaml", "--ouput", "o"], "unknown argument --ouput; did you mean '--output'?"),
        (["run", "job.yaml", "--output", "o", "--ledgr=none"], "unknown argument --ledgr; did you mean '--ledger'?"),
        pytest.param(
            ["sql", "SELECT 1", "--dateset", "o"],
            "unknown argument --dateset; did you mean '--dataset'?",
            marks=needs("sql_select"),
        ),
        (["ledger", "raise", "--epsiln", "2"], "unknown argument --epsiln; did you mean '--epsilon'?"),
        (["plan"], "JOB"),
        (["run", "job.yaml"], "--output"),
        (["run", "job.yaml", "--outpu", "x"], "--output"),
        (["plan", "none.yaml"], "none.yaml: cannot be read"),
        (["plan", "job.yaml", "--jsn"], "unknown argument --jsn"),
        (["plan", "job.yaml", "--param", "x=1"], "--param x: is not declared"),
        (["run", "none.yaml", "--output", "out"], "none.yaml: cannot be read"),
        (["run", "job.yaml", "--output", "out", "--ledger", "sqlite:x"], "--ledger: is neither a path"),
        (["run", "job.yaml", "--output", "out", "--runner", "FlinkRunner"], "--runner FlinkRunner: unknown runner"),
        (["run", "job.yaml", "--output", "out", "--run-id", "../x"], "--run-id: must have"),
        (["run", "job.yaml", "--output", "gs://bucket/out"], "local"),
        (["run", "job.yaml", "--output", "out\udcff"], "--output: is not a UTF-8 path"),
        (["run", "job.yaml", "--output", "out", "--nonsense=1"], "--nonsense: is neither an option"),
        (
            ["run", "job.yaml", "--output", "out", "--runner", "direct", "--direct_num_workers=x"],
            "--direct_num_workers: is rejected by Beam",
        ),
        (["run", "job.yaml", "--output", "out", "--runner", "direct", "--runtime_type_check"], "prints row values"),
        (
            ["run", "job.yaml", "--output", "out", "--runner", "direct", "--performance_runtime_type_check"],
            "prints row values",
        ),
        (
            ["run", "job.yaml", "--output", "out", "--runner", "direct", "--runtime_type_chec"],
            "did you mean '--runtime_type_check'",
        ),
        (["run", "job.yaml", "--output", "out", "--runner", "direct", "--enable_hot_key_logging"], "prints keys"),
        (["run", "job.yaml", "--output", "out", "--runner", "direct", "--save_main_session"], "is refused"),
        (
            ["run", "job.yaml", "--output", "out", "--runner", "direct", "--experiments=a,enable_data_sampling"],
            "copies rows",
        ),
        (
            ["run", "job.yaml", "--output", "out", "--runner", "direct", "--experiment=enable_data_sampling"],
            "copies rows",
        ),
        (["run", "job.yaml", "--output", "out", "--runner", "direct", "--profile_memory"], "is refused"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(shop.folder)
    said = call(*arguments)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert shop.left() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy_unit": "custmer"},
        {"budget": {"epsilon": float("nan"), "delta": 1e-6}},
        {"budget": {"epsilon": 1e9, "delta": 1e-6}},
        {"budget": {"epsilon": True, "delta": 1e-6}},
        {"source": {"parquet": "none/*.parquet"}},
        {"where": "(SELECT 1) = 1"},
        {"stages": {"s" * 101: stage()}},
        {"stages": {"a\nb": stage()}},
        {"columns": {"a\nb": "prise"}},
        {"stages": {"s": stage(partition_by="price")}},
        {"stages": {"s": stage(partitions={"public": [["a"], ["a"]]})}},
        {"unknown": 1},
    ],
)
def test_a_wrong_job_is_refused_by_run_and_leaves_nothing(shop: Shop, call: Call, changes: dict[str, object]) -> None:
    said = call("run", shop.write(**changes), "--output", shop.folder / "a" / "out")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert shop.left() == []


def test_each_error_of_a_job_is_a_line(shop: Shop, call: Call) -> None:
    said = call("plan", shop.write(unknown=1, budget={"epsilon": 0, "delta": 2}))
    assert said.code == 2
    assert [line.split(": ")[0] for line in said.err.splitlines()] == ["error"] * 3


def test_a_budget_that_cannot_be_met_is_exit_code_3(shop: Shop, call: Call) -> None:
    budget = {"epsilon": 2e-6, "delta": 1e-45}
    said = call("run", shop.write(budget=budget), "--output", shop.folder / "out")
    assert (said.code, said.out) == (3, "")
    assert said.err.startswith("error: ")
    assert shop.left() == []


def test_private_partitions_without_delta_are_a_wrong_request(shop: Shop, call: Call) -> None:
    # Partitions chosen from the data always cost some delta, whatever the budget.
    said = call("plan", shop.write(budget={"epsilon": 1.0, "delta": 0}))
    assert (said.code, said.out) == (2, "")
    assert "budget.delta: must be above 0" in said.err


def test_a_plan_is_printed_for_people_and_for_scripts(shop: Shop, call: Call) -> None:
    job = shop.write(expect={"users": 300, "rows_per_partition": 500})
    people = call("plan", job)
    assert people.code == 0
    assert "orders" in people.out
    assert re.search(r"half of the groups of \d+ customers appear, one in a thousand of \d+\n", people.out)
    assert "Smaller groups are missing from the tables, whatever they hold." in people.out
    scripts = json.loads(call("plan", job, "--json").out)
    assert {"epsilon", "delta", "accounted", "accounted_one_run", "stages", "mechanisms"} <= set(scripts)
    metric = scripts["stages"][0]["metrics"]["orders"]
    assert metric["stddev"] > 0
    assert scripts["stages"][0]["selection"]["half_keep_users"] > 1
    assert shop.left() == []


def test_a_plan_needs_no_files_but_says_what_it_did_not_check(shop: Shop, call: Call) -> None:
    said = call("plan", shop.write(source={"parquet": "later/*.parquet"}, where="nothing > 1"))
    assert said.code == 0
    assert said.err.startswith("note: files and expressions were not checked")
    said = call("plan", shop.write(params={"week": {"type": "string"}}, source={"parquet": "{week}/*"}))
    assert said.code == 0
    assert "give the parameters" in said.err
    assert call("plan", shop.write(where="nothing > 1")).code == 2


@pytest.mark.parametrize(
    ("where", "columns", "words"),
    [
        ("wek = {week}", {}, ["where: names column 'wek'"]),
        ("week = {week}", {"week": "date_trunc('week', paid_at)"}, ["'week'", "here (date_trunc('week', paid_at))"]),
        (
            "CAST({week} AS DATE) = paid_at",
            {"week": "prize"},
            ["columns.week: names column 'prize'", "did you mean 'price'"],
        ),
    ],
)
def test_a_plan_checks_names_of_columns_without_values_of_parameters(
    shop: Shop, call: Call, where: str, columns: dict[str, str], words: list[str]
) -> None:
    said = call("plan", shop.write(where=where, columns=columns, params={"week": {"type": "string"}}))
    assert said.code == 2
    assert all(word in said.err for word in words), said.err


def test_a_plan_refuses_no_expression_that_only_some_values_of_parameters_spoil(shop: Shop, call: Call) -> None:
    said = call("plan", shop.write(where="CAST({week} AS DATE) <= paid_at", params={"week": {"type": "string"}}))
    assert said.code == 0
    assert said.err.startswith("note: the values of parameters in expressions were not checked")
    types = {"customer": "int", "product": "string", "price": "float"}
    later = {"source": {"csv": "{week}/*.csv", "types": types}, "params": {"week": {"type": "string"}}}
    assert "names column 'wek'" in call("plan", shop.write(where="wek = {week}", **later)).err, (
        "the job declares the columns"
    )


def test_a_cached_plan_is_the_same_plan(
    shop: Shop, call: Call, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = call("plan", shop.job, "--json")
    (entry,) = plan_cache.folder().glob("shown-*")
    assert plan_cache.folder().stat().st_mode & 0o777 == 0o700
    assert call("plan", shop.job, "--json").out == first.out
    call("plan", shop.write(budget={"epsilon": 7.0, "delta": 1e-5}), "--json")
    assert len(list(plan_cache.folder().glob("shown-*"))) == 2
    entry.write_text("{broken")
    assert call("plan", shop.write(), "--json").out == first.out
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/none")
    assert call("plan", shop.job, "--json").out == first.out


def test_the_plan_of_a_run_is_the_plan_that_was_printed(shop: Shop, call: Call) -> None:
    printed = json.loads(call("plan", shop.job, "--json").out)
    call("run", shop.job, "--output", shop.folder / "out")
    content = json.loads((shop.folder / "out" / "manifest.json").read_text())
    assert content["plan"] == printed["digest"]
    assert content["mechanisms"] == printed["mechanisms"]


def test_real_processes_give_the_exit_codes_and_separate_their_streams(shop: Shop) -> None:
    good = process("run", "job.yaml", "--output", "out", "--json", cwd=shop.folder)
    wrong = process("run", "none.yaml", "--output", "other", cwd=shop.folder)
    out, err = good.communicate(timeout=120)
    assert (good.returncode, err) == (0, "")
    assert json.loads(out)["files"] == {
        name: str(shop.folder / "out" / name) for name in ("report.html", "weekly.parquet")
    }
    out, err = wrong.communicate(timeout=120)
    assert (wrong.returncode, out) == (2, "")
    assert err.count("\n") == 1


def test_a_reader_that_goes_away_is_no_traceback(shop: Shop) -> None:
    ends = os.pipe()
    os.close(ends[0])
    code = "import sys\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main(['schema']))"
    done = subprocess.run([sys.executable, "-c", code], stdout=ends[1], stderr=subprocess.PIPE, text=True, check=False)
    os.close(ends[1])
    assert "Traceback" not in done.stderr


def test_a_mistake_of_ours_is_exit_code_1(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(job_file, "content_of", fails)
    said = call("plan", shop.job)
    assert said.code == 1
    assert said.err.splitlines()[-1].startswith("error: internal error")


def test_many_files_are_checked_before_anything_is_read(shop: Shop, call: Call) -> None:
    for number in range(30):
        pa.parquet.write_table(pa.table({"customer": np.arange(3)}), shop.folder / "data" / f"x{number:02}.parquet")
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert said.code == 2
    assert "x00.parquet" in said.err
    assert shop.left() == []


def test_no_option_of_beam_is_taken_for_a_misspelt_one_of_ours() -> None:
    beams = argparse.ArgumentParser(conflict_handler="resolve")
    for group in PipelineOptions.__subclasses__():
        group._add_argparse_args(beams)
    options = [name for action in beams._actions for name in action.option_strings if name.startswith("--")]
    assert len(options) > 100
    top = main.parser()
    of_extensions = [name for name in ("sql", "check", "tune") if extensions.is_installed("command", name)]
    for command in ("run", "doctor", *of_extensions):
        for name in options:
            top.refuse_misspelt([command, name])
