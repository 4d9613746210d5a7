"""The wheel and the sdist: complete, nothing generic at top level, usable from a folder outside the checkout.

In: the checkout, and the libraries that it is tested with. Out: a wheel built from the tree, an sdist, a wheel built
from that sdist, and an environment that holds the wheel alone. Holds: nothing is written into the checkout, and no
registry is asked, but for `make dist`, whose tools come from one. Not covered: other versions than the locked ones.
"""

import configparser
import email
import importlib
import importlib.metadata
import json
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docs.blocks import blocks
from tests.helpers.source import PACKAGE_FOLDERS, ROOT, modules, packages

NOT_IN_THE_SDIST = {".gitignore"}
"""Files of the checkout that only git reads."""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command outside the checkout and give what it printed; its whole output is the message if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_tree(to: Path) -> Path:
    """The files of the checkout that git holds or would hold, without what earlier builds left behind."""
    for name in files_of_the_checkout():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, to / name)
    return to


def files_of_the_checkout() -> list[str]:
    """Return the names of all files that a commit of the checkout would hold; of an unpacked sdist, of all its files."""
    if not (ROOT / ".git").exists():
        held = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        return [path.as_posix() for path in held if path.suffix != ".pyc" and not path.parts[0].endswith(".egg-info")]
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def build(what: str, tree: Path, out: Path) -> Path:
    """Build a wheel or an sdist with the locked setuptools; no registry is asked."""
    run(sys.executable, "-m", "build", f"--{what}", "--no-isolation", "--outdir", out, tree, cwd=tree.parent)
    (made,) = out.iterdir()
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, less its RECORD, which lists the others."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def listed_packages(root: Path) -> list[str]:
    """The packages that setup.py installs."""
    return runpy.run_path(str(root / "setup.py"))["packages"](root)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tree, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", tree, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with our wheel; it sees the libraries of this one, but not its link to the checkout."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    install = ("install", "--quiet", "--no-deps", "--no-index", wheel)
    run(sys.executable, "-m", "pip", "--python", python, *install, cwd=folder)
    # A folder that a .pth file names is searched, but the .pth files inside it, such as the editable one, are not read.
    ours = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    theirs = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (ours / "libraries.pth").write_text("\n".join(sorted(theirs)) + "\n")
    return folder


def test_every_folder_with_code_is_a_listed_package() -> None:
    assert sorted(packages()) == sorted(listed_packages(ROOT))
    assert all((path.parent / "__init__.py").is_file() for path in modules().values())


def test_a_forgotten_package_is_found(tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    (tmp_path / "tree" / "transforms" / "forgotten").mkdir()
    (tmp_path / "tree" / "transforms" / "forgotten" / "module.py").write_text('"""A module."""\n')
    assert packages(tmp_path / "tree") - set(listed_packages(tmp_path / "tree")) == {
        "dp_pipelines.transforms.forgotten"
    }


def test_the_folder_of_an_extension_can_be_deleted_without_a_change_of_a_list(tree: Path, tmp_path: Path) -> None:
    less = tmp_path / "tree"
    shutil.copytree(tree, less)
    shutil.rmtree(less / "dp_pipelines" / "extensions" / "describe")
    made = contents(build("wheel", less, tmp_path / "out"))
    assert not [name for name in made if "describe/" in name]
    assert "dp_pipelines/extensions/__init__.py" in made


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path, tree: Path) -> None:
    expected = {
        f"{package.replace('.', '/')}/{path.relative_to(tree / folder).as_posix()}"
        for package, folder in PACKAGE_FOLDERS.items()
        for path in (tree / folder).rglob("*")
        if path.is_file()
    }
    assert {name for name in contents(wheel) if ".dist-info/" not in name} == expected
    assert "dp_pipelines/py.typed" in expected


def test_nothing_generic_is_installed_at_top_level(wheel: Path) -> None:
    assert {name.partition("/")[0].partition("-")[0] for name in contents(wheel)} == {"dp_pipelines"}


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    files = contents(wheel)
    (info,) = (name for name in files if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(files[info])
    assert (metadata["Name"], metadata["License-Expression"]) == ("dp-pipelines", "Apache-2.0")
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get_payload(), "README.md is the long description"
    assert any(name.endswith("licenses/LICENSE") for name in files)
    (points,) = (files[name] for name in files if name.endswith("/entry_points.txt"))
    parser = configparser.ConfigParser()
    parser.read_string(points.decode())
    assert dict(parser["console_scripts"]) == {"dp-pipelines": "dp_pipelines.jobs.cli.main:main"}


def test_the_wheel_and_the_package_say_the_same_version(wheel: Path) -> None:
    written = re.search(r'^__version__ = "(.+)"$', (ROOT / "dp_pipelines" / "__init__.py").read_text(), re.MULTILINE)
    assert written
    assert wheel.name == f"dp_pipelines-{written[1]}-py3-none-any.whl"
    assert f"\nversion: {written[1]}\n" in (ROOT / "CITATION.cff").read_text()
    first = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first
    assert first[1] in (written[1], "Unreleased")


def test_the_sdist_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert (unpacked / "tests" / "test_packaging.py").is_file()
    again = build("wheel", unpacked, tmp_path / "out")
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


def test_the_sdist_holds_every_file_of_the_checkout(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert sorted(set(files_of_the_checkout()) - held - NOT_IN_THE_SDIST) == []


@pytest.mark.slow
def test_tests_run_in_the_unpacked_sdist(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    files = ("docs/test_job_file_keys.py", "extensions/dataflow/test_image.py", "examples/test_schedule.py", "packages")
    tests = [f"tests/{name}" for name in files]
    run(
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *tests,
        cwd=unpacked,
    )


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(environment: Path, tmp_path: Path) -> None:
    names = listed_packages(ROOT)
    code = (
        f"import importlib, importlib.util\nfor name in {names!r}: print(importlib.import_module(name).__file__)\n"
        "assert not importlib.util.find_spec('transforms') and not importlib.util.find_spec('jobs')"
    )
    files = run(environment / "bin" / "python", "-I", "-c", code, cwd=tmp_path).split()
    assert len(files) == len(names)
    assert all(Path(file).is_relative_to(environment) for file in files)


def test_the_command_works_outside_the_checkout(environment: Path, tmp_path: Path) -> None:
    printed = run(environment / "bin" / "dp-pipelines", "--help", cwd=tmp_path)
    assert all(command in printed for command in ("plan", "run", "schema"))


@pytest.mark.slow
def test_the_readmes_job_is_planned_outside_the_checkout(environment: Path, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    job = next(block.text for block in blocks(readme) if (block.rule, block.value) == ("file", "weekly.yaml"))
    (tmp_path / "weekly.yaml").write_text(job)
    run(environment / "bin" / "python", "-I", ROOT / "examples" / "shop" / "make_rows.py", cwd=tmp_path)
    planned = run(environment / "bin" / "dp-pipelines", "plan", "weekly.yaml", cwd=tmp_path)
    assert "accounted  epsilon 0.9999, delta 1e-06" in planned
    assert all(name in planned for name in ("orders", "revenue"))


@pytest.mark.slow
def test_make_dist_makes_the_wheel_and_the_sdist_anew(tree: Path, wheel: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    (tmp_path / "tree" / "dist").mkdir()
    (tmp_path / "tree" / "dist" / "dp_pipelines-0.0.9-py3-none-any.whl").write_bytes(b"of an older version")
    # A module that is gone, as an earlier build leaves it behind.
    stale = tmp_path / "tree" / "build" / "lib" / "dp_pipelines" / "gone.py"
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.write_text('"""A module that is gone."""\n')
    run("make", "dist", f"PYTHON={sys.executable}", cwd=tmp_path / "tree")
    made = {path.suffix: path for path in (tmp_path / "tree" / "dist").iterdir()}
    assert sorted(made) == [".gz", ".json", ".whl"]
    assert made[".whl"].name == wheel.name
    assert contents(made[".whl"]) == contents(wheel)
    parts = json.loads(made[".json"].read_text())
    names = {(part["name"], part["version"]) for part in parts["components"]}
    assert (parts["bomFormat"], parts["specVersion"]) == ("CycloneDX", "1.6")
    assert ("pyarrow", importlib.metadata.version("pyarrow")) in names


@pytest.mark.slow
def test_the_editable_install_works_from_any_folder(tmp_path: Path) -> None:
    code = "import dp_pipelines.transforms, dp_pipelines.jobs; print(dp_pipelines.transforms.__file__)"
    for folder in (tmp_path, ROOT, ROOT / "tests"):
        printed = run(sys.executable, "-c", code, cwd=folder).strip()
        assert Path(printed) == ROOT / "transforms" / "__init__.py"


def test_the_lock_is_exact_versions_and_they_are_what_runs_here() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    pins = [Requirement(line) for line in lines]
    assert {"apache-beam", "pytest", "setuptools"} <= {pin.name for pin in pins}
    assert all(pin.url is None and [part.operator for part in pin.specifier] == ["=="] for pin in pins)
    here = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
    other = [str(pin) for pin in here if not pin.specifier.contains(importlib.metadata.version(pin.name))]
    assert not other, f"installed in another version; set up again with `make test`: {other}"


def test_every_range_of_the_requirements_holds_the_locked_version() -> None:
    """The packages of Dataflow have a lock of their own: they are not installed here."""
    dataflow = [line for line in (ROOT / "requirements-dataflow.lock").read_text().splitlines() if "==" in line]
    locked = {pin.name: next(iter(pin.specifier)).version for pin in map(Requirement, dataflow)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    for asked in map(Requirement, ranges):
        if asked.marker is not None and not asked.marker.evaluate():
            continue  # of another Python
        try:
            version = importlib.metadata.version(asked.name)
        except importlib.metadata.PackageNotFoundError:
            version = locked[asked.name]
        assert asked.specifier.contains(version), asked
        operators = {part.operator for part in asked.specifier}
        assert operators == {">=", "<"} or asked.name == project["name"], f"{asked} has an end that nobody tried"
