"""The table of extensions: what it lists is there, nobody replaces it, and other distributions can add to it.

In: the table; a distribution with entry points, made in a temporary folder. Out: commands, help, refusals. Not covered: a folder
that was deleted (`test_deleted`).
"""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

import dp_pipelines.transforms
from dp_pipelines import extensions
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.cli.account_commands import AccountCommands
from dp_pipelines.jobs.cli.extension_command import Command
from dp_pipelines.jobs.cli.job_runs import KeyedRun
from dp_pipelines.jobs.cli.run_option import RunOption
from dp_pipelines.jobs.outputs.extension_output import Output
from dp_pipelines.jobs.runners.extension_runner import Runner
from dp_pipelines.jobs.sources.extension_reader import Reader
from dp_pipelines.jobs.spec.job_kinds import JobKind
from dp_pipelines.jobs.spec.stage_keys import StageKey
from dp_pipelines.ledger.account_kind import AccountKind
from tests.helpers.extension_folders import is_of_deleted, needs
from tests.helpers.source import ROOT
from tests.jobs.conftest import Said

FOLDERS = sorted(path.parent.name for path in (ROOT / "dp_pipelines" / "extensions").glob("*/__init__.py"))

HELLO = """
class Hello:
    example = ("hello you", "say hello")
    takes_runner = needs_arrow = defers_collection = False
    def add(self, make):
        make("hello", "greet", "").add_argument("name")
    def run(self, given, rest):
        print("hello", given.name)
        return 0
HELLO = Hello()
NOTHING = object()
"""


@pytest.fixture
def others(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A distribution that offers a command of its own, and commands with names of ours; on the path of this process."""
    metadata = tmp_path / "others-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    lines = [f"command:{name} = hello_command:HELLO" for name in ("hello", "run", "describe")]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{extensions.GROUP}]", *lines, ""]))
    (tmp_path / "hello_command.py").write_text(HELLO)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_every_entry_of_the_table_offers_what_its_kind_needs_and_every_folder_has_one() -> None:
    kinds = {
        "command": Command, "stage_key": StageKey, "reader": Reader, "output": Output, "run_option": RunOption,
        "runner": Runner,
    }  # fmt: skip
    kinds |= {"job": JobKind, "job_run": KeyedRun, "account": AccountKind, "account_commands": AccountCommands}
    for key, path in extensions.BUILT_IN.items():
        kind, _, name = key.partition(":")
        if extensions.has_folder(path.split(".")[2]):
            assert isinstance(extensions.load(kind, name), kinds[kind])
    public = (*dp_pipelines._ROOMS.values(), *dp_pipelines.transforms._ROOMS.values())
    named = {module.split(".")[1] for module in public if module.startswith("extensions.")}
    listed = {path.split(".")[2] for path in extensions.BUILT_IN.values()} | named
    assert {name for name in listed if extensions.has_folder(name)} == set(FOLDERS)


def test_a_command_of_another_distribution_is_listed_and_runs(others: pathlib.Path) -> None:
    def command(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "dp_pipelines.jobs.cli.main", *arguments],
            env={**os.environ, "PYTHONPATH": str(others)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert command("hello", "you") == "hello you\n"
    assert "dp-pipelines hello you  " in command("--help")


@pytest.mark.parametrize("name", ["run", pytest.param("describe", marks=needs("describe"))])
def test_a_built_in_name_is_never_replaced(name: str, others: pathlib.Path, call: Callable[..., Said]) -> None:
    said = call(name, "--help")
    assert said.code == 0
    assert "greet" not in said.out
    assert extensions.third_party("command") == ["hello", "run"]
    assert call("--help").out.count("greet") == 1


def test_entry_points_are_read_only_for_unknown_names_and_help(
    others: pathlib.Path, call: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        read.extend([group] if group == extensions.GROUP else [])  # pydantic reads a group of its own
        return []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    for arguments in (["--version"], ["describe", "--help"], ["run", "--help"], ["plan", "no.yaml"]):
        call(*arguments)
    assert read == []
    call("--help")
    assert call("unknown").code == 2
    assert read == [extensions.GROUP] * 2


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("not_there:HELLO", "cannot be loaded from 'not_there:HELLO': ModuleNotFoundError"),
        ("hello_command:NOTHING", "does not offer what a command needs"),
    ],
)
def test_a_command_that_cannot_be_used_is_refused_by_name(
    path: str, message: str, others: pathlib.Path, call: Callable[..., Said]
) -> None:
    metadata = others / "others-1.0.dist-info"
    (metadata / "entry_points.txt").write_text(f"[{extensions.GROUP}]\ncommand:broken = {path}\n")
    said = call("broken")
    assert said.code == main.WRONG
    assert "command 'broken': " in said.err
    assert message in said.err


BROKEN = {
    "not there": "not_there:HELLO",
    "ends the process": "ends:HELLO",
    "has no parser": "hello_command:NOTHING",
    "takes another name": "hello_command:HELLO",
    "raises": "raises:HELLO",
    "one word of an example": "words:HELLO",
}
"""Entry points of the command `broken`, each unusable in another way."""


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, others: pathlib.Path) -> None:
    """A command of another distribution that cannot be used, next to one that can."""
    path = BROKEN[request.param]
    entry_points = f"[{extensions.GROUP}]\ncommand:broken = {path}\ncommand:hello = hello_command:HELLO\n"
    (others / "others-1.0.dist-info" / "entry_points.txt").write_text(entry_points)
    (others / "ends.py").write_text("import sys\nsys.exit(0)\n")
    raising = HELLO.replace('make("hello"', "raise ValueError\n        make('hello'")
    (others / "raises.py").write_text(raising)
    (others / "words.py").write_text(
        HELLO.replace('"hello"', '"broken"').replace('("hello you", "say hello")', '"hello you"')
    )


@pytest.mark.usefixtures("broken")
def test_an_extension_that_cannot_be_used_affects_its_own_command_alone(call: Callable[..., Said]) -> None:
    assert call("broken", "you").code == main.WRONG
    assert call("hello", "you").out == "hello you\n"
    helped = call("--help")
    assert helped.code == 0
    assert "dp-pipelines hello you" in helped.out
    assert "note: left out: command 'broken': " in helped.err
    misspelt = call("pln", "weekly.yaml")
    assert misspelt.code == main.WRONG
    assert "did you mean 'plan'?" in misspelt.err


def test_help_of_an_extension_may_have_a_percent_sign_and_its_arguments_any_name(
    others: pathlib.Path, call: Callable[..., Said]
) -> None:
    (others / "percent.py").write_text(HELLO.replace('"greet"', '"greet 100% of you"'))
    (others / "others-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{extensions.GROUP}]\ncommand:hello = percent:HELLO\n"
    )
    assert "greet 100% of you" in call("--help").out
    assert call("hello", "--version").code == main.WRONG  # an unknown argument of its own, not of the program


@needs("describe")
def test_a_built_in_extension_that_is_not_complete_affects_its_own_command_alone(
    call: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extensions.BUILT_IN, "command:describe", "dp_pipelines.extensions.describe.gone:DESCRIBE")
    said = call("describe", "job.yaml")
    assert said.code == main.WRONG
    assert "its extension is not complete" in said.err
    assert call("schema").code == 0
    assert call("--help").code == 0


def test_lists_of_the_source_leave_out_what_is_in_the_folder_of_a_deleted_extension_and_nothing_else() -> None:
    gone = ("dp_pipelines/extensions/gone/table.py:read", "dp_pipelines.extensions.gone.table")
    there = ("dp_pipelines/extensions/__init__.py:load", "dp_pipelines/extensions/gone", "jobs/sources/gone/own.py")
    installed = [f"dp_pipelines/extensions/{name}/gone.py" for name in FOLDERS]
    assert [is_of_deleted(place) for place in gone] == [True, True]
    assert not any(is_of_deleted(place) for place in (*there, *installed))


def test_a_name_that_nobody_offers_is_refused() -> None:
    with pytest.raises(RequestError, match="is not offered by any installed extension"):
        extensions.load("command", "nothing")
