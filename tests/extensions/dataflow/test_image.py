"""The recipe for Dataflow, read and partly run: the image's pins, the template's parameters, the launcher on Beam's own runner.

In: examples/dataflow, the shop. Out: a release of the launcher. Holds: what is written there agrees with the command line, the
lock and the package; the packages of the image fit together. Not covered: whether the image can be built, and everything that the
service does: neither was done.
"""

import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib

import apache_beam
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions
from packaging.requirements import Requirement
from packaging.version import Version

from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.run.run import RUN_ID
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.extensions.dataflow.test_dataflow_requirements import EXTRA
from tests.helpers.source import ROOT, modules
from tests.jobs.conftest import Shop, own_anchors, shop  # noqa: F401 - fixtures
from tests.test_packaging import build, contents

RECIPE = ROOT / "examples" / "dataflow"
LOCK = ROOT / "requirements-dataflow.lock"
UV = ROOT / "build" / "lock" / "bin" / "uv"
GUIDE = ROOT / "docs" / "dataflow.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PARAMETERS = {p["name"]: p for p in json.loads((RECIPE / "metadata.json").read_text())["parameters"]}
GOOD = {
    "job": "gs://bucket/jobs/weekly.yaml",
    "run_id": "2026-01-05",
    "output": "gs://bucket/out/2026-01-05",
    "ledger": "postgresql://dp@10.0.0.3:5432/ledger",
    "sdk_container_image": "europe-docker.pkg.dev/project/dp/dp-pipelines:2026-01",
    "ledger_password_secret": "projects/project/secrets/ledger/versions/latest",
    "params": "week=2026-01-05;low=5",
    "engine": "dataflow",
    "run_options": "--machine_type=n2-highmem-4;--max_num_workers=20;--no_use_public_ips",
}


def taken(name: str, value: str) -> bool:
    """Whether the template takes a value for a parameter."""
    return all(re.fullmatch(pattern, value) for pattern in PARAMETERS[name]["regexes"])


def instructions() -> list[str]:
    """The lines of the Dockerfile that do something."""
    text = (RECIPE / "Dockerfile").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def load(name: str) -> object:
    """A module of the recipe, as its launcher would find it."""
    sys.path.insert(0, str(RECIPE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(RECIPE))


# The image.


def test_the_image_has_the_locked_version_of_beam_which_is_in_our_range() -> None:
    (base,) = [line for line in instructions() if line.startswith("FROM apache/beam_python")]
    found = re.fullmatch(r"FROM apache/beam_python(3\.\d+)_sdk:([0-9.]+)", base)
    assert found is not None
    python, beam = found.groups()
    (asked,) = [Requirement(line) for line in PROJECT["dependencies"] if line.startswith("apache-beam")]
    assert asked.specifier.contains(beam)
    assert f"apache-beam=={beam}\n" in LOCK.read_text()
    assert Version(python) >= Version(PROJECT["requires-python"].removeprefix(">="))
    (launcher,) = [line for line in instructions() if "template-launcher-base" in line]
    assert f"python{python.replace('.', '')}-" in launcher
    assert apache_beam.__version__ == beam


def test_no_image_is_taken_without_a_fixed_tag() -> None:
    images = [line.split()[1] for line in instructions() if line.startswith("FROM")]
    assert len(images) == 2
    assert all(":" in image.rpartition("/")[2] and not image.endswith(":latest") for image in images)


def test_the_image_has_all_of_the_package_and_nothing_else_of_the_checkout() -> None:
    copied = [word for line in instructions() if line.startswith("COPY") and "--from" not in line
              for word in line.split()[1:-1]]  # fmt: skip
    assert {"dp_pipelines", "transforms", "jobs", "pyproject.toml", LOCK.name} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    ignored = (RECIPE / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied)


def test_the_image_installs_extras_that_there_are() -> None:
    (install,) = [line for line in instructions() if "pip install" in line]
    extras = re.search(r'"\.\[(.*)\]"', install)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])
    (gcp,) = [
        one for one in map(Requirement, PROJECT["optional-dependencies"]["dataflow"]) if one.name == "apache-beam"
    ]
    (core,) = [Requirement(line) for line in PROJECT["dependencies"] if line.startswith("apache-beam")]
    assert (gcp.name, gcp.extras, gcp.specifier) == (core.name, {"gcp"}, core.specifier)


def copied_to(folder: pathlib.Path) -> pathlib.Path:
    """Copy what the image has of the checkout."""
    for line in instructions():
        if line.startswith("COPY") and "--from" not in line:
            for name in line.split()[1:-1]:
                to = folder / name
                to.parent.mkdir(parents=True, exist_ok=True)
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / name, to)
    return folder


def resolved(folder: pathlib.Path, constraint: str = LOCK.name, what: str = "") -> subprocess.CompletedProcess[str]:
    """Resolve what the image installs, without installing it: by uv, or by pip where uv is missing or finds no way.

    The image installs with pip, which may be configured to look in more places than uv is given. So only pip can say that the
    lock cannot be installed; a refusal that a test expects (`what`) is taken from uv. uv reads what our package needs without
    building it.

    Args:
        folder: what the image has of the checkout.
        constraint: in place of the lock.
        what: in place of our package with its extras.
    """
    (install,) = [line for line in instructions() if "pip install" in line]
    *options, ours = shlex.split(install.partition("pip install")[2].partition("&&")[0])
    options = [constraint if word == LOCK.name else word for word in options if word != "--no-cache-dir"]
    pip, install_nothing = [sys.executable, "-m", "pip"], ["install", "--dry-run", "--quiet"]
    asked = [*options, what or ours]
    if UV.exists():
        uv = [str(UV), "pip", *install_nothing, "--reinstall", "--python", sys.executable]
        done = run_in(folder, [*uv, *asked], **index_of_pip(folder))
        if done.returncode == 0 or (what and "No solution found" in done.stderr):
            return done
    return run_in(folder, [*pip, *install_nothing, "--ignore-installed", *asked])


def index_of_pip(folder: pathlib.Path) -> dict[str, str]:
    """Return the variable that makes uv use the index of pip, whose settings it does not read. The Makefile does the same."""
    given = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL")
    if not given:
        given = run_in(folder, [sys.executable, "-m", "pip", "config", "get", "global.index-url"]).stdout.strip()
    return {"UV_DEFAULT_INDEX": given} if given else {}


def run_in(folder: pathlib.Path, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with further variables in its environment."""
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=1200,
        env={**os.environ, **variables},
    )  # fmt: skip


def pins(lock: pathlib.Path) -> dict[str, Version]:
    """Return the versions that a lock pins for this Python."""
    lines = map(Requirement, (line for line in lock.read_text().splitlines() if not line.startswith("#")))
    here = (line for line in lines if line.marker is None or line.marker.evaluate())
    return {line.name: Version(str(line.specifier).removeprefix("==")) for line in here}


def test_the_image_has_the_versions_of_the_tests_except_where_googles_clients_refuse_them() -> None:
    image, tests = pins(LOCK), pins(ROOT / "requirements.lock")
    other = {name: version for name, version in image.items() if tests.get(name, version) != version}
    assert {"google-cloud-storage", "apache-beam", "duckdb", "psycopg"} <= image.keys()
    assert other.keys() <= {"cachetools", "tenacity"}
    assert all(version < tests[name] for name, version in other.items())


@pytest.mark.slow
def test_the_image_installs_every_module_of_the_package(tmp_path: pathlib.Path) -> None:
    wheel = build("wheel", copied_to(tmp_path / "source"), tmp_path / "out")
    assert {name for name in contents(wheel) if name.endswith(".py")} == {
        name.replace(".", "/") + ("/__init__.py" if path.name == "__init__.py" else ".py")
        for name, path in modules().items()
    }


@pytest.mark.slow
def test_what_the_image_installs_fits_together(tmp_path: pathlib.Path) -> None:
    done = resolved(copied_to(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_a_version_that_googles_clients_refuse_is_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "refused.lock").write_text("cachetools==7.0.0\n")
    done = resolved(tmp_path, "refused.lock", f"apache-beam[gcp]=={apache_beam.__version__}")
    assert done.returncode != 0
    of_uv = "No solution found" in done.stderr and re.search(
        r"apache-beam\[gcp\]\S* depends on cachetools", done.stderr
    )
    assert of_uv or "ResolutionImpossible" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    not EXTRA,
    reason="needs the extra `dataflow`; `make test-packages` runs the same program where it is installed",
)
def test_a_users_own_pipeline_becomes_a_good_job_of_dataflow() -> None:
    command = [sys.executable, str(ROOT / "tests" / "packages" / "user_dataflow.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]


def test_workers_start_what_beam_wants_and_no_secret_is_in_the_image() -> None:
    lines = instructions()
    assert lines[-1] == 'ENTRYPOINT ["/opt/apache/beam/boot"]'
    assert "ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/template/launcher.py" in lines
    everything = "\n".join(path.read_text() for path in RECIPE.iterdir() if path.is_file())
    assert not re.search(r"(?i)(password|token|api_?key)\s*[=:]\s*[\"'][^\"'{]+[\"']", everything)
    assert not [line for line in lines if line.startswith(("ARG", "ENV")) and re.search("(?i)secret|passw|key", line)]


# The template.


def test_the_templates_parameters_are_those_of_the_launcher_and_of_beam() -> None:
    actions = {a.dest: a for a in load("launcher").parser()._actions if a.dest != "help"}
    assert set(PARAMETERS) == {*actions, "sdk_container_image"}
    assert "sdk_container_image" in PipelineOptions([]).get_all_options()
    for name, action in actions.items():
        assert PARAMETERS[name].get("isOptional", False) is not action.required, name
        if action.choices:
            assert PARAMETERS[name]["regexes"] == [f"^({'|'.join(action.choices)})$"]


def test_the_template_takes_good_values_and_every_parameter_has_a_pattern() -> None:
    assert set(GOOD) == set(PARAMETERS)
    assert [name for name, value in GOOD.items() if not taken(name, value)] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ledger", "postgresql://dp:hunter2@10.0.0.3/ledger"),
        ("ledger", "postgresql://dp@10.0.0.3/ledger?password=hunter2"),
        ("ledger", "none"),
        ("ledger", "dp-ledger.sqlite"),
        ("output", "out/week"),
        ("run_id", "-week"),
        ("run_id", ""),
        ("sdk_container_image", "europe-docker.pkg.dev/project/dp/dp-pipelines"),
        ("engine", "flink"),
        ("params", "week"),
        ("run_options", "machine_type=n2"),
    ],
)
def test_the_template_refuses(name: str, value: str) -> None:
    assert not taken(name, value)


def test_run_ids_are_the_same_to_the_template_and_to_the_command() -> None:
    assert PARAMETERS["run_id"]["regexes"] == ["^" + RUN_ID.pattern.removesuffix(r"\Z") + "$"]


def test_the_command_has_every_option_that_the_template_gives_it() -> None:
    text = (RECIPE / "command.py").read_text()
    given = set(re.findall(r'"(--[a-z-]+)"', text))
    assert {"--output", "--run-id", "--ledger", "--runner", "--param"} == given
    arguments = ["run", "job.yaml"] + [word for name in sorted(given) for word in (name, "x")]
    _, rest = main.parser().parse_known_args(arguments)
    assert rest == []


def test_the_second_job_gets_the_project_the_places_and_the_image_of_the_first() -> None:
    options = [
        "--project=p", "--region=r", "--temp_location=gs://b/t", "--sdk_container_image=host/dp:1", "--subnetwork=s",
        "--service_account_email=a@b", "--no_use_public_ips", "--machine_type=e2-small", "--template_location=gs://b/x",
    ]  # fmt: skip
    found = load("launcher").forwarded(PipelineOptions(options))
    left_out = {"--machine_type=e2-small", "--template_location=gs://b/x"}  # of the first job alone
    assert set(found) == set(options) - left_out


# The launcher, on Beam's runner in one process.


def launched(shop: Shop, *changes: str) -> subprocess.CompletedProcess[str]:  # noqa: F811
    """A call of the launcher as the template service makes it, but for places that are local."""
    parameters = [
        f"--job={shop.job}", "--run_id=2026-01-05", f"--output={shop.folder / 'out'}", "--engine=direct",
        f"--ledger={shop.folder / DEFAULT_NAME}", "--runner=FnApiRunner", *changes,
    ]  # fmt: skip
    return subprocess.run(
        [sys.executable, str(RECIPE / "launcher.py"), *parameters],
        cwd=shop.folder, capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "PYTHONPATH": str(RECIPE)},
    )  # fmt: skip


@pytest.mark.slow
def test_the_launcher_makes_one_release_however_often_it_is_started(shop: Shop) -> None:  # noqa: F811
    found = []
    for _ in range(2):
        done = launched(shop)
        assert done.returncode == 0, done.stderr
        found.append({path.name: path.read_bytes() for path in (shop.folder / "out").iterdir()})
    assert found[0] == found[1]
    assert "manifest.json" in found[0]
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    assert [run.run_id for run in ledger.state.runs.values()] == ["2026-01-05"]
    ledger.close()


@pytest.mark.slow
def test_a_refusal_fails_the_job_with_the_words_of_the_command(shop: Shop) -> None:  # noqa: F811
    done = launched(shop, "--params=week=1")
    assert done.returncode != 0
    assert "exit code 2" in done.stderr
    assert "week" in done.stderr
    assert not (shop.folder / "out").exists()


# The guide.


def test_the_guide_says_that_nothing_was_run_on_the_service_and_names_every_parameter() -> None:
    text = GUIDE.read_text()
    assert "was not executed" in text
    assert [name for name in PARAMETERS if f"`{name}`" not in text and f"{name}=" not in text] == []
    for name in ("Dockerfile", "metadata.json", "launcher.py"):
        assert f"examples/dataflow/{name}" in text


def test_the_guides_parameters_are_taken_by_the_template() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    given = yaml.safe_load(block)["--parameters"]
    assert set(given) == set(PARAMETERS)
    assert [name for name, value in given.items() if not taken(name, value)] == []


def test_the_guides_commands_have_options_that_there_are() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    known = {option for action in main.parser()._actions for option in action.option_strings}
    runs = [block for block in blocks if re.search(r"dp-pipelines run|jobs\.dataflow_job", block)]
    assert runs
    beam = set(PipelineOptions([]).get_all_options()) | {"no_use_public_ips"}
    ours = {"output", "run-id", "ledger", "runner", "param", "write"}
    for block in runs:
        for name in re.findall(r"--([a-z_-]+)", re.sub(r"\$\(.*?\)", "", block)):
            assert name in ours or name in beam or f"--{name}" in known, name
