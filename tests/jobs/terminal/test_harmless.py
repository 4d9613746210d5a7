"""Nothing that a key, a name or a parameter brings acts on a terminal: each way in which commands print is tried."""

import contextlib
import io
import pathlib
import sys

import pytest
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.terminal import output, silence, summary
from dp_pipelines.jobs.terminal.console import HarmlessConsole
from dp_pipelines.jobs.terminal.progress import Progress
from tests.helpers.source import ROOT

HOSTILE = "a\x1b[2J\x1b]0;t\x07b\x9b31mc\rd\u202ee"
SEEN = "a\\u001b[2J\\u001b]0;t\\u0007b\\u009b31mc\\u000dd\\u202ee"


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_plain_prints_tables_notes_and_progress_show_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with output.printing():
        print(HOSTILE)
        console = summary.console(sys.stdout)
        console.print(f"[bold]styled[/bold] {HOSTILE}")
        table = Table()
        table.add_column(HOSTILE)
        table.add_row(HOSTILE)
        console.print(table)
    output.note(f"error: {HOSTILE}\nsecond line")
    silence.note(err, HOSTILE)
    with Progress(io.StringIO()) as progress:
        progress.show(HOSTILE)
    text = out.getvalue()
    assert text.startswith(f"{SEEN}\n")
    assert "\x1b[1mstyled\x1b[0m" in text, "our own styles stay"
    assert err.getvalue() == f"error: {SEEN}\nsecond line\nnote: {SEEN}\n"
    for shown in (text, err.getvalue()):
        assert not any(sign in shown for sign in ("\x1b[2J", "\x1b]", "\x07", "\x9b", "\r", "\u202e"))


def test_styled_texts_and_the_status_of_a_terminal_show_control_characters_and_brackets() -> None:
    out = Terminal()
    console = HarmlessConsole(file=out, width=200)
    console.print(Text(HOSTILE, "bold"), Text(HOSTILE))
    table = Table()
    table.add_column(Text(HOSTILE))
    table.add_row(Text(HOSTILE))
    console.print(table)
    console.print(Panel(Text(HOSTILE), title=Text(HOSTILE)))
    console.print(Text.assemble("a ", ("styled", "bold")))
    seen = SEEN.replace("\\u0007", "").replace("\\u000d", "")  # which rich's own texts drop
    assert out.getvalue().startswith(f"{seen} {seen}\n")
    assert "\x1b[1mstyled\x1b[0m" in out.getvalue(), "our own styles stay"
    err = Terminal()
    with Progress(err) as progress:
        for words in (HOSTILE, "stage [/x]", "stage [red]"):
            progress.show(words)
            progress._status._live.refresh()
    for words in (SEEN, "stage [/x]", "stage [red]"):
        assert words in err.getvalue()
    for shown in (out.getvalue(), err.getvalue()):
        assert not any(sign in shown for sign in ("\x1b[2J", "\x1b]", "\x07", "\x9b", "\u202e", "c\rd"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", f"{HOSTILE}.yaml"],
        [HOSTILE],
        ["run", "job.yaml", "--output", "out", "--param", f"{HOSTILE}=1"],
        ["run", "job.yaml", "--output", HOSTILE, "--run-id", HOSTILE],
        ["plan", "job.yaml"],
        ["report", HOSTILE],
        ["sql", f"SELECT {HOSTILE} FROM x"],
        ["ledger", "show", "--ledger", HOSTILE],
    ],
)
def test_arguments_and_job_files_bring_none_into_errors(
    arguments: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = HOSTILE.encode("unicode_escape").decode()
    (tmp_path / "job.yaml").write_text(f'"{name}": 1\ndataset: "{name}"\nstages: {{"{name}": {{kind: "{name}"}}}}\n')
    out, err = Terminal(), Terminal()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        main.main(arguments)
    shown = out.getvalue() + err.getvalue()
    assert shown
    assert not any(sign in shown for sign in ("\x1b", "\x07", "\x9b", "\r", "\u202e"))


def test_nothing_but_these_modules_writes_to_the_standard_streams() -> None:
    """A print outside of `output.printing` would be none of theirs."""
    owners = {
        "jobs/terminal/output.py",
        "jobs/terminal/silence.py",
        "jobs/terminal/progress.py",
    }
    for path in (ROOT / "jobs").rglob("*.py"):
        if (name := path.relative_to(ROOT).as_posix()) not in owners:
            text = path.read_text()
            assert "Console(" not in text.replace("HarmlessConsole(", "") or name == "jobs/terminal/console.py", name
            assert "sys.stderr.write" not in text, name
            assert "{error}" not in "".join(line for line in text.splitlines() if "print(" in line), name
