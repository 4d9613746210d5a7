"""Commands whose output nobody reads to its end: what they have done stands, and they say so where that can be heard.

In: every command of the parser, in a folder where it works. Out: real processes with real pipes. Holds: the reader is gone before
the first byte, so that no test depends on who is faster. Not covered: terminals that hang up (`test_stopped`).
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dp_pipelines import extensions
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.terminal import output
from dp_pipelines.ledger.ledger import DEFAULT_NAME
from tests.helpers import warm_process
from tests.helpers.source import ROOT
from tests.jobs.conftest import Shop
from tests.jobs.predict.test_predict import model

RELEASE = ROOT / "tests" / "report" / "golden" / "release_0_1_0"

START = "from dp_pipelines.jobs.cli.main import main; raise SystemExit(main())"

# What each command is called with, in the folder of a shop. Of each command the first word or two are its name.
PRINTING = {
    "plan": "plan job.yaml --explain",
    "audit": "audit job.yaml --replays 20000",
    "doctor": "doctor",
    "ledger show": "ledger show",
    "ledger verify": "ledger verify",
    "ledger export": "ledger export",
    "runs": "runs",
    "schema": "schema",
    "--help": "--help",
    "--version": "--version",
}
"""Commands that do nothing but print."""

LASTING = {
    "run": ("run job.yaml --output out --ledger none", "out/manifest.json"),
    "sql": (
        "sql @query.sql --dataset shop --unit customer --epsilon 1 --delta 1e-6 --max-partitions-contributed 3 "
        "--max-contributions-per-partition 2 --ledger none --output out/orders",
        "out/orders/manifest.json",
    ),
    "init": ("init data --unit customer --output new.yaml", "new.yaml"),
    "predict": ("predict model data/part-0.parquet --output scores.parquet", "scores.parquet"),
    "export": ("export model --format sql --output model.sql", "model.sql"),
    "report": (f"report {RELEASE} --output page.html", "page.html"),
    "tune": ("tune job.yaml --output tuning --grid bounds.max_partitions_contributed=1,2", "tuning"),
    "check": ("check job.yaml --output checked", "checked"),
    "describe": ("describe job.yaml --output page.html", "page.html"),
    "ledger init": (
        "ledger init --ledger new.sqlite --dataset shop --unit customer --epsilon 1 --delta 1e-6",
        "new.sqlite",
    ),
    "ledger raise": ("ledger raise --dataset shop --epsilon 2000 --delta 0.5", DEFAULT_NAME),
    "ledger export": ("ledger export --format html --output budget.html", "budget.html"),
}
"""Commands that leave something, with what they leave."""

ELSEWHERE = {"dataflow"}
"""Commands that need packages which these tests do not have: tests/extensions/dataflow/test_image.py."""

_COMMANDS = {key.removeprefix("command:") for key in extensions.BUILT_IN if key.startswith("command:")}
MISSING = _COMMANDS - set(extensions.built_in("command"))
"""Commands whose extension was deleted."""

SLOW = {"run", "sql", "check", "tune", "doctor", "audit"}


def marked(commands: dict[str, object]) -> list[object]:
    """The names of installed commands; those that import Beam, or draw for seconds, are slow tests."""
    installed = [name for name in commands if name not in MISSING]
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in installed]


def commands_of(parser: argparse.ArgumentParser, before: str = "") -> Iterator[str]:
    """All commands that a parser takes, those of commands included."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield before
    for action in below:
        for name, parser_below in action.choices.items():
            yield from commands_of(parser_below, f"{before} {name}".strip())


def to_nobody(
    shop: Shop, line: str, *, also_errors: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command whose standard output is a pipe that nobody reads any more."""
    nobody = warm_process.NOBODY
    errors = nobody if also_errors else None
    return warm_process.run(line.split(), folder=shop.folder, output=nobody, errors=errors, **environment)


def in_shell(shop: Shop, line: str) -> subprocess.CompletedProcess[str]:
    """A command in a shell that tells the exit code of the command itself as its last line of standard error."""
    command = f"{{ {sys.executable} -c '{START}' {line.replace(' @END', '; echo $? >&2; }', 1)}"
    return subprocess.run(
        ["sh", "-c", command], cwd=shop.folder, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.fixture
def ready(shop: Shop) -> Shop:
    """A shop where every command has what it needs."""
    model(shop.folder / "model")
    statement = "SELECT product, count(*) AS orders FROM 'data/*.parquet' GROUP BY ALL"
    (shop.folder / "query.sql").write_text(statement, encoding="utf-8")
    return shop


def test_every_command_of_the_parser_is_tried_here() -> None:
    assert set(commands_of(main.parser())) == {*PRINTING, *LASTING, *ELSEWHERE} - {"--help", "--version", *MISSING}


@pytest.mark.parametrize("name", marked(PRINTING))
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_who_leaves_is_no_failure(ready: Shop, name: str, unbuffered: str) -> None:
    done = to_nobody(ready, PRINTING[name], PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", marked(LASTING))
def test_what_a_command_has_done_stands_and_is_said_if_its_reader_leaves(ready: Shop, name: str) -> None:
    line, left = LASTING[name]
    done = to_nobody(ready, line)
    assert done.returncode == 0
    assert (ready.folder / left).exists()
    assert "Error" not in done.stderr
    if "--output budget.html" in line:  # nothing was to be printed
        assert done.stderr == ""
    else:
        assert done.stderr.splitlines()[-1].startswith("note: ")
        assert "could not be shown here" in done.stderr


@pytest.mark.parametrize("name", marked(LASTING))
def test_what_a_command_has_done_stands_if_the_disk_is_full(ready: Shop, name: str) -> None:
    line, left = LASTING[name]
    done = warm_process.run(line.split(), folder=ready.folder, output="/dev/full")
    assert done.returncode == 0, done.stderr
    assert (ready.folder / left).exists()


@pytest.mark.parametrize("name", ["ledger show", "ledger export", "runs", "--help"])
def test_what_a_full_disk_loses_is_an_error_where_printing_was_all(ready: Shop, name: str) -> None:
    done = warm_process.run(PRINTING[name].split(), folder=ready.folder, output="/dev/full")
    assert (done.returncode, done.stderr) == (1, f"error: {output.UNSHOWN}\n")


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 2])
def test_the_first_lines_of_a_summary_can_be_taken(shop: Shop, lines: int) -> None:
    done = in_shell(shop, f"run job.yaml --output out --ledger none @END | head -{lines}")
    assert len(done.stdout.splitlines()) == lines
    assert done.stderr.splitlines()[-1] == "0"
    assert "Error" not in done.stderr


def test_the_first_line_of_more_than_a_pipe_holds_can_be_taken(shop: Shop) -> None:
    done = in_shell(shop, "schema @END | head -1")
    assert (done.stdout, done.stderr) == ("{\n", "0\n")
    # A schema is longer than what pipes hold on no system of ours; this is.
    code = "from dp_pipelines.jobs.terminal import output\nwith output.printing():\n    print('x\\n' * 10**6)"
    piped = subprocess.run(
        ["bash", "-c", f'{sys.executable} -c "{code}" | head -1; echo ${{PIPESTATUS[0]}}'],
        capture_output=True, text=True, check=False, cwd=shop.folder,
    )  # fmt: skip
    assert (piped.stdout, piped.stderr) == ("x\n0\n", "")


@pytest.mark.parametrize(
    ("line", "code"), [("plan none.yaml", 2), ("plan", 2), ("ledger show --ledger none.sqlite", 2)]
)
def test_an_error_that_nobody_hears_keeps_its_exit_code(shop: Shop, line: str, code: int) -> None:
    assert to_nobody(shop, line, also_errors=True).returncode == code


@pytest.mark.slow
def test_progress_that_nobody_hears_ends_no_run(shop: Shop) -> None:
    # rich takes any stream for a terminal where the environment says so, as machines that build do.
    done = to_nobody(shop, "run job.yaml --output out --ledger none", also_errors=True, FORCE_COLOR="1")
    assert done.returncode == 0
    assert (shop.folder / "out" / "manifest.json").is_file()


def test_what_an_audit_has_found_stays_its_exit_code(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from dp_pipelines.jobs.cli import audit_command

    class Found:
        agrees = False

    monkeypatch.setattr(audit_command, "audit_job", lambda *given: Found())
    monkeypatch.setattr(audit_command, "text", lambda *given: "wrong")
    reader, writer = os.pipe()
    os.close(reader)
    before, kept = sys.stdout, os.dup(1)
    with open(writer, "w", encoding="utf-8") as nobody:
        sys.stdout = nobody
        try:
            assert main.main(["audit", str(shop.job)]) == main.FAILED
        finally:
            sys.stdout = before
            os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # for what the stream still holds
            os.dup2(kept, 1)
            os.close(kept)


def test_the_account_is_opened_though_the_reader_left_after_the_first_line(shop: Shop) -> None:
    line, _ = LASTING["ledger init"]
    assert to_nobody(shop, line, PYTHONUNBUFFERED="1").returncode == 0
    shown = warm_process.run(["ledger", "show", "--ledger", "new.sqlite"], folder=shop.folder)
    assert "shop" in shown.stdout


@pytest.mark.slow
def test_the_account_is_opened_and_said_though_standard_error_is_broken(shop: Shop) -> None:
    """The other ledger has had these files, of which a note is due on standard error."""
    assert warm_process.run(["run", "job.yaml", "--output", "out"], folder=shop.folder).returncode == 0
    line = "ledger init job.yaml --ledger new.sqlite"
    done = warm_process.run(line.split(), folder=shop.folder, errors="/dev/full")
    assert done.returncode == 0
    assert "opened the account 'shop'" in done.stdout


def test_what_was_said_before_an_unforeseen_failure_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="unforeseen"), output.printing():
        print("made the ledger")
        raise OSError("unforeseen")
    assert capsys.readouterr().out == "made the ledger\n"
