"""The tour of what users do: complete, and it finds an environment whose packages answer otherwise.

In: the tour, an environment that holds our packages and sees the libraries of this one. Out: exit codes and lines. Holds: a
DuckDB that answers one function otherwise is found by name; what the tour leaves out, it names. Not covered: the tour itself,
which `make test-packages` takes.
"""

import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from dp_pipelines.jobs.sql import functions
from tests.helpers.source import ROOT
from tests.packages import expressions, run, tour


def test_every_function_operator_and_type_of_the_whitelist_has_an_expression() -> None:
    names = {name for name, _, _ in expressions.EXPRESSIONS}
    asked = (
        functions.FUNCTIONS | functions.OPERATORS | functions.COMPARISONS | {f"CAST {kind}" for kind in functions.TYPES}
    )
    assert asked - names == expressions.ABSENT.keys()
    assert expressions.ABSENT.keys() & names == set()


def test_every_expression_has_its_value_here() -> None:
    assert expressions.wrong_answers() == []


def test_every_example_has_a_step_or_a_reason() -> None:
    folders = {f"examples/{path.name}" for path in (ROOT / "examples").iterdir() if path.is_dir()}
    toured = {folder for folder in folders for name in tour.STEPS if name.startswith(folder)}
    assert folders - toured == tour.LEFT_OUT.keys()
    jobs = {path.name for path in (ROOT / "examples" / "ta_feng").glob("*.yaml")}
    assert jobs == {pathlib.PurePath(name).name for name in tour.STEPS if name.startswith("examples/ta_feng/")}


def test_pages_of_the_tour_exist() -> None:
    pages = [name for name in tour.STEPS if name.startswith("docs/")]
    assert pages
    assert all((ROOT / name).is_file() for name in pages)


def test_the_locks_of_the_tour_hold_what_the_wheel_asks_for() -> None:
    lock = (ROOT / run.LOCK).read_text()
    names = set(re.findall(r"^([a-z0-9.-]+)==", lock, re.MULTILINE))
    assert {"apache-beam", "duckdb", "google-cloud-storage", "jax", "matplotlib", "numba", "pytest"} <= names
    assert not re.search(r"(?m)^\s*(--|-f|-i)", lock), "no index and no folder of this machine"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """An environment with our packages, which sees the libraries of this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    ours = next(folder.glob("lib/python*/site-packages"))
    shutil.copytree(ROOT / "dp_pipelines", ours / "dp_pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("transforms", "jobs"):
        shutil.copytree(ROOT / name, ours / "dp_pipelines" / name, ignore=shutil.ignore_patterns("__pycache__"))
    theirs = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (ours / "libraries.pth").write_text("\n".join(sorted(theirs)) + "\n")
    return folder


def toured(environment: pathlib.Path, clone: pathlib.Path, *only: str) -> subprocess.CompletedProcess[str]:
    """Take some steps of the tour in an environment, from a copy of the clone without its source."""
    for name in ("README.md", "docs", "examples", "tests"):
        copy = shutil.copy if (ROOT / name).is_file() else shutil.copytree
        copy(ROOT / name, clone / name)
    words = [word for name in only for word in ("--only", name)]
    command = [environment / "bin" / "python", "-m", "tests.packages.tour", *words]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.slow
def test_the_tour_asks_every_function_of_the_installed_duckdb(
    environment: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = toured(environment, tmp_path, "SQL whitelist")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("none failed\n")


@pytest.mark.slow
def test_a_duckdb_that_answers_otherwise_is_found_by_the_name_of_the_function(
    environment: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    # Every connection has a function of the same name, which hides DuckDB's own.
    ours = next(environment.glob("lib/python*/site-packages"))
    (ours / "sitecustomize.py").write_text(
        "import duckdb\n"
        "real = duckdb.connect\n"
        "def connect(*arguments, **options):\n"
        "    connection = real(*arguments, **options)\n"
        "    connection.execute('CREATE MACRO isodow(moment) AS 1')\n"
        "    return connection\n"
        "duckdb.connect = connect\n"
    )
    try:
        done = toured(environment, tmp_path, "SQL whitelist")
    finally:
        (ours / "sitecustomize.py").unlink()
    assert done.returncode == 1
    assert "isodow(m) " in done.stdout
    assert "FAILED in the tour: every function of the SQL whitelist" in done.stdout


def test_a_step_that_fails_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: pathlib.Path) -> None:
        tour.call(folder, sys.executable, "-c", "raise SystemExit(3)")

    steps = {"one": (lambda folder: None, ()), "two": (fails, ()), "three": (fails, ("no_such_package",))}
    monkeypatch.setattr(tour, "STEPS", steps)
    assert tour.run(list(steps)) == ["two"]
    printed = capsys.readouterr().out
    assert "ended with 3, not 0" in printed
    assert "three: left out without no_such_package" in printed


def test_a_complete_tour_leaves_out_only_what_has_a_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {name: (lambda folder: None, ("no_such_package",)) for name in ("one", "two", "three")}
    steps["three"] = (lambda folder: None, ("no_such_package", "nor_this"))
    monkeypatch.setattr(tour, "STEPS", steps)
    monkeypatch.setattr(tour, "ABSENT", dict.fromkeys(("two", "three"), ("no_such_package", "a reason")))
    assert tour.run(list(steps)) == []
    capsys.readouterr()
    assert tour.run(list(steps), complete=True) == ["one", "three"]
    printed = capsys.readouterr().out
    assert "one: needs no_such_package" in printed
    assert "two: left out without no_such_package (a reason)" in printed


def test_reasons_are_of_steps_and_of_modules_that_they_need() -> None:
    assert all(module in tour.STEPS[name][1] and reason for name, (module, reason) in tour.ABSENT.items())


def test_the_packages_are_toured_completely(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[object, ...]] = []
    monkeypatch.setattr(run, "call", lambda *command, **options: called.append(command))
    (tmp_path / "dist").mkdir()
    with zipfile.ZipFile(tmp_path / "dist" / "made.whl", "w") as archive:
        archive.writestr("made.dist-info/METADATA", "Provides-Extra: yaml\n")
    run.toured("newest", tmp_path, pathlib.Path("uv"), "python", [])
    assert called[-1][-2:] == ("tests.packages.tour", "--complete")


def test_the_extras_of_the_wheel_are_those_for_users(tmp_path: pathlib.Path) -> None:
    extras = sorted(importlib.metadata.metadata("dp-pipelines").get_all("Provides-Extra") or [])
    with zipfile.ZipFile(tmp_path / "made.whl", "w") as archive:
        archive.writestr("made.dist-info/METADATA", "".join(f"Provides-Extra: {extra}\n" for extra in extras))
    assert set(run.extras_for_users(tmp_path / "made.whl")) == set(extras) - set(run.NOT_FOR_USERS)
    assert set(run.NOT_FOR_USERS) <= set(extras)
