"""A tour of what users do, in the environment whose Python runs it: it needs neither pytest nor the clone's source.

In: a folder with the clone's README, docs, examples and tests; an environment with the wheel. Out: a line for each step; exit
code 1 if one fails, with its name in the last line. Holds: each step has a folder of its own and made-up rows; no network is
used. Not covered: statistics, engines, privacy: the tests have these.

    cd CLONE_WITHOUT_SOURCE && ENVIRONMENT/bin/python -m tests.packages.tour [--only WORDS] [--complete] [--list]
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable

import dp_pipelines
from tests.docs.blocks import blocks
from tests.docs.run_blocks import ended
from tests.docs.worlds import BEFORE, WORLDS
from tests.helpers.source import ROOT
from tests.packages import expressions, made_up_rows

PROGRAM = str(pathlib.Path(sys.executable).with_name("dp-pipelines"))
EXAMPLES = ROOT / "examples"
WORKERS = 2
"""Steps at a time: some wait for processes of their own."""

MOST_SECONDS = 600
"""Of one command: more is a command that waits for something."""

Step = Callable[[pathlib.Path], None]


class StepError(Exception):
    """A step ended otherwise than it should."""


def call(folder: pathlib.Path, *command: object, expect: int = 0, **variables: str) -> str:
    """Run a command in a folder and return what it printed.

    Args:
        folder: where it runs.
        command: the command.
        expect: the exit code that is right.
        variables: of the environment.

    Raises:
        StepError: another exit code; the message ends with what the command wrote.
    """
    words = [str(word) for word in command]
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    variables = {**os.environ, "PATH": path, "MPLBACKEND": "Agg", **variables}
    done = subprocess.run(
        words, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
    )
    if done.returncode != expect:
        raise StepError(f"{' '.join(words)} ended with {done.returncode}, not {expect}\n{done.stdout}{done.stderr}")
    return done.stdout


def ta_feng_in(folder: pathlib.Path) -> None:
    """Lay out the clone's examples with made-up rows of Ta Feng."""
    shutil.copytree(EXAMPLES, folder / "examples")
    made_up_rows.ta_feng(folder / "data" / "ta_feng")


def page(name: str) -> Step:
    """Return the step that runs all blocks of a page, as tests/docs does."""

    def step(folder: pathlib.Path) -> None:
        if name == "docs/tutorial.md":
            made_up_rows.ta_feng(folder / "data" / "ta_feng")
        elif name in WORLDS:
            WORLDS[name](folder)
        for block in blocks((ROOT / name).read_text()):
            if block.rule not in ("not run", "tested by"):
                right, was, stderr = ended(block, folder, BEFORE.get(name, ""))
                if was != right:
                    raise StepError(f"{name}:{block.line} ended with {was}, not {right}\n{stderr}")

    return step


def job(path: str, *options: str) -> Step:
    """Return the step that plans and runs an example's job on made-up rows of Ta Feng."""

    def step(folder: pathlib.Path) -> None:
        ta_feng_in(folder)
        call(folder, PROGRAM, "run", f"examples/{path}", "--output", "out", "--ledger", "none", *options)
        if not (folder / "out" / "manifest.json").is_file():
            raise StepError("no manifest was published")

    return step


def versions(folder: pathlib.Path) -> None:
    """The installed package is the wheel's, it is complete, and the doctor finds nothing wrong."""
    place = pathlib.Path(dp_pipelines.__file__)
    if not place.is_relative_to(sys.prefix):
        raise StepError(f"dp_pipelines comes from {place}, not from this environment")
    code = (
        "import importlib, pkgutil, dp_pipelines, dp_pipelines.jobs, dp_pipelines.transforms\n"
        "for package in (dp_pipelines, dp_pipelines.jobs, dp_pipelines.transforms):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if '.pipeline_dp' not in module.name or importlib.util.find_spec('pipeline_dp'):\n"
        "            importlib.import_module(module.name)\n"
    )
    call(folder, sys.executable, "-c", "import importlib.util\n" + code)
    print(call(folder, PROGRAM, "doctor"), end="")


def functions(folder: pathlib.Path) -> None:
    """Every function, operator and type of the SQL whitelist answers as DuckDB 2.0 did."""
    wrong = expressions.wrong_answers()
    if wrong:
        raise StepError("\n".join(wrong))


def tax_units(folder: pathlib.Path) -> None:
    """The job of the tax units: two tables and a model with default settings."""
    shutil.copytree(EXAMPLES, folder / "examples")
    made_up_rows.tax_units(folder / "data" / "tax_units")
    call(folder, PROGRAM, "run", "examples/tax_units/earners.yaml", "--output", "out", "--ledger", "none")
    model, rows = "out/earners", "data/tax_units/units.parquet"
    call(folder, PROGRAM, "predict", model, rows, "--output", "scores.parquet")
    call(folder, PROGRAM, "export", model, "--format", "sql", "--output", "model.sql")
    call(folder, PROGRAM, "export", model, "--format", "onnx", "--output", "model.onnx")
    call(folder, PROGRAM, "report", "out", "--output", "page.html")


def scheduled(folder: pathlib.Path) -> None:
    """Three scheduled weeks under one budget, and a fourth that is refused."""
    ta_feng_in(folder)
    call(folder, sys.executable, "examples/ta_feng/demo.py", "--output", "out")


def departments(folder: pathlib.Path) -> None:
    """Answers of devices, shuffled and not."""
    ta_feng_in(folder)
    call(folder, sys.executable, "examples/collect/departments.py", "--out", "departments")


def recipes(folder: pathlib.Path) -> None:
    """Two jobs of docs/recipes: columns over what a user did, and a ratio of released numbers."""
    shutil.copytree(EXAMPLES, folder / "examples")
    shutil.copytree(EXAMPLES.parent / "docs" / "recipes", folder / "docs" / "recipes")
    call(folder, sys.executable, "examples/recipes/errors.py", "funnel", "weighted_mean")


def notebook(folder: pathlib.Path) -> None:
    """The cells of the session's notebook, one after the other."""
    cells = json.loads((EXAMPLES / "notebook" / "session.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    call(folder, sys.executable, "-c", code)


def pipeline_dp(folder: pathlib.Path) -> None:
    """Two programs for PipelineDP with one import changed."""
    programs = EXAMPLES / "pipeline_dp"
    for program, made, words in (
        ("movie_ratings.py", "ratings.txt", ("ratings.txt", "stars")),
        ("restaurant_visits.py", "visits.csv", ("visits.csv", "--public")),
    ):
        call(folder, sys.executable, programs / program, "--make", made)
        call(folder, sys.executable, programs / program, *words)


def beam_yaml(folder: pathlib.Path) -> None:
    """A pipeline of Beam YAML."""
    ta_feng_in(folder)
    shutil.copytree(EXAMPLES / "beam_yaml", folder, dirs_exist_ok=True)
    command = ("-m", "dp_pipelines.jobs.beam_yaml.run_pipeline", "weekly.yaml")
    call(folder, sys.executable, *command)


def pytorch(folder: pathlib.Path) -> None:
    """The job whose model is a PyTorch network."""
    for name in ("returns.yaml", "returns_net.py"):
        shutil.copy(EXAMPLES / "pytorch" / name, folder)
    call(folder, sys.executable, EXAMPLES / "shop" / "make_rows.py")
    call(folder, PROGRAM, "run", "returns.yaml", "--output", "out", PYTHONPATH=str(folder))


def dataflow(folder: pathlib.Path) -> None:
    """A user's own pipeline, as Dataflow would receive it."""
    call(folder, sys.executable, ROOT / "tests" / "packages" / "user_dataflow.py")


def launcher(folder: pathlib.Path) -> None:
    """The launcher of the flex template, on Beam's runner in one process."""
    shutil.copy(EXAMPLES / "shop" / "weekly.yaml", folder)
    call(folder, sys.executable, EXAMPLES / "shop" / "make_rows.py")
    recipe = EXAMPLES / "dataflow"
    call(folder, PROGRAM, "ledger", "init", "weekly.yaml")
    options = ("--run_id=first", f"--output={folder / 'out'}", "--engine=direct", "--runner=FnApiRunner")
    place = (f"--job={folder / 'weekly.yaml'}", f"--ledger={folder / 'dp-ledger.sqlite'}")
    call(folder, sys.executable, recipe / "launcher.py", *place, *options, PYTHONPATH=str(recipe))


PAGES: dict[str, tuple[str, ...]] = {
    "README.md": (),
    "docs/tutorial.md": (),
    "docs/sql.md": (),
    "docs/beam.md": (),
    "docs/describe.md": (),
}
"""The pages all of whose blocks are run, and the packages that each needs."""

STEPS: dict[str, tuple[Step, tuple[str, ...]]] = {
    "every module, and the doctor": (versions, ()),
    "every function of the SQL whitelist": (functions, ()),
    **{name: (page(name), needed) for name, needed in PAGES.items()},
    "examples/ta_feng/shop.yaml": (job("ta_feng/shop.yaml"), ()),
    "examples/ta_feng/weekly.yaml": (job("ta_feng/weekly.yaml"), ()),
    "examples/ta_feng/customers.yaml": (job("ta_feng/customers.yaml"), ()),
    "examples/ta_feng/federated.yaml": (job("ta_feng/federated.yaml"), ("numba",)),
    "examples/ta_feng/scheduled.yaml": (scheduled, ()),
    "examples/tax_units: train, predict, export, report": (tax_units, ("onnx",)),
    "examples/collect": (departments, ()),
    "examples/recipes": (recipes, ()),
    "examples/notebook": (notebook, ("polars", "matplotlib")),
    "examples/pipeline_dp": (pipeline_dp, ("pipeline_dp",)),
    "examples/beam_yaml": (beam_yaml, ("docstring_parser",)),
    "examples/pytorch": (pytorch, ("jax", "torch")),
    "examples/dataflow": (launcher, ()),
    "a user's pipeline on Dataflow": (dataflow, ("google.cloud.dataflow",)),
}
"""The steps, and the packages without which each is left out, which the tour says."""

LEFT_OUT = {
    "examples/first_hour": "fetches a table for benchmarks",
    "examples/java": "needs Java and Maven: make test-java",
    "examples/nightly": "needs dbt: tests/examples/test_nightly.py",
    "examples/schedule": "needs cron, systemd or Airflow",
    "examples/secure_sums": "needs Flower: make .venv-secure-sums/installed",
    "examples/shop": "README runs it",
}
"""Examples without a step of their own, and why."""


ABSENT = {"examples/pytorch": ("torch", "it is in no extra: users choose its build")}
if sys.version_info >= (3, 14):
    ABSENT["examples/pipeline_dp"] = ("pipeline_dp", "it supports no such Python")
"""Steps that clean environments with all extras may leave out, each without which module, and why."""


def is_installed(name: str) -> bool:
    """Return True if a module can be found; of a dotted name the packages above it are imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def taken(name: str, complete: bool = False) -> bool:
    """Take a step, or leave it out; print what came of it. Returns False if it failed.

    Args:
        name: of the step.
        complete: whether only the steps of `ABSENT` may be left out.
    """
    step, needed = STEPS[name]
    missing = [package for package in needed if not is_installed(package)]
    expected, reason = ABSENT.get(name, ("", ""))
    if missing and complete and missing != [expected]:
        print(f"FAILED         {name}: needs {', '.join(missing)}, which some extra should bring", flush=True)
        return False
    if missing:
        print(f"-              {name}: left out without {', '.join(missing)}{reason and f' ({reason})'}", flush=True)
        return True
    began, failure = time.monotonic(), ""
    with tempfile.TemporaryDirectory(prefix="tour-", ignore_cleanup_errors=True) as folder:
        try:
            step(pathlib.Path(folder).resolve())
        except StepError as error:
            failure = f"\n{str(error)[-4000:]}"
        except Exception:  # another package that behaves otherwise may fail in any way
            failure = f"\n{traceback.format_exc()[-4000:]}"
    verdict = "FAILED" if failure else "ok"
    print(f"{verdict:6} {time.monotonic() - began:5.1f} s  {name}{failure}", flush=True)
    return not failure


def run(names: list[str], complete: bool = False) -> list[str]:
    """Take steps, two at a time; return the names of those that failed."""
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as workers:
        verdicts = workers.map(lambda name: taken(name, complete), names)
        return [name for name, well in zip(names, verdicts, strict=True) if not well]


def main() -> int:
    """Take the tour. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="WORDS", action="append", help="only steps whose names contain these words")
    parser.add_argument("--list", action="store_true", help="print the names of the steps")
    parser.add_argument("--complete", action="store_true", help="fail where a step is left out that need not be")
    given = parser.parse_args()
    chosen = [name for name in STEPS if not given.only or any(words in name for words in given.only)]
    if given.list:
        print("\n".join(chosen))
        return 0
    if not chosen:
        parser.error("no step has such a name")
    with tempfile.TemporaryDirectory(prefix="tour-user-", ignore_cleanup_errors=True) as own:
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
            os.environ[variable] = f"{own}/{variable.lower()}"  # neither caches nor accounts of the user
        began = time.monotonic()
        failed = run(chosen, given.complete)
    seconds = f"{time.monotonic() - began:.0f} s, {sum(os.times()[:4]):.0f} s of processors"
    print(f"tour: {len(chosen)} steps in {seconds}", flush=True)
    print(f"FAILED in the tour: {', '.join(failed)}" if failed else "none failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
