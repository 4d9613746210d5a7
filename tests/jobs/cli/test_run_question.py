"""The question of `run` on a terminal: when it is asked, what each answer does, and that the ledger decides at the charge.

In: the shop, processes with a real pseudo-terminal. Out: exit codes, what the terminal shows, what the ledger holds. Holds: a run
that is not confirmed leaves nothing. Not covered: how a plan foresees that little is of use (tests/planning).
"""

import contextlib
import fcntl
import io
import os
import pathlib
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from dp_pipelines.jobs.cli import run_question
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.jobs.conftest import Said, Shop, stage

if TYPE_CHECKING:
    from dp_pipelines.jobs.run.ledger_account import NewCharge

Call = Callable[..., Said]
ASKED = run_question.QUESTION.strip()
TYPED_END, TYPED_INTERRUPT = "\x04", "\x03"


class Terminal:
    """A process of the command line with a terminal of its own.

    Args:
        arguments: of the command.
        streams: descriptors that are no terminal but a pipe or a file: 0, 2.
    """

    def __init__(self, *arguments: object, streams: dict[int, int] | None = None) -> None:
        self.shown = ""
        self._ours, theirs = os.openpty()
        chosen = {0: theirs, 2: theirs} | (streams or {})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dp_pipelines.jobs.cli.main", *map(str, arguments)],
            stdin=chosen[0], stdout=subprocess.DEVNULL, stderr=chosen[2], start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0), pass_fds=[theirs],
        )  # fmt: skip
        os.close(theirs)

    def read_until(self, words: str) -> bool:
        """Read until the terminal shows some words; return False if the process ends before it does."""
        while words not in self.shown:
            try:
                piece = os.read(self._ours, 4096)
            except OSError:  # nobody has the other end any more
                return False
            if not piece:
                return False
            self.shown += piece.decode()
        return True

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._ours, text.encode())

    def end(self) -> int:
        """Read what is left and return the exit code."""
        while self.read_until("nobody shows this"):
            pass
        return self._process.wait(timeout=60)

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


@contextlib.contextmanager
def terminal(*arguments: object, streams: dict[int, int] | None = None) -> Iterator[Terminal]:
    """A process with a terminal, which does not outlive the context."""
    made = Terminal(*arguments, streams=streams)
    try:
        yield made
    finally:
        made.close()


def wider(most: int = 40) -> dict[str, Any]:
    """The stages of the shop's job, with another upper clamp."""
    made: Any = stage()
    made["metrics"]["revenue"]["max_value"] = most
    return {"weekly": made}


@pytest.fixture
def corrected(shop: Shop, call: Call) -> Shop:
    """A shop whose job has a release, and now another clamp."""
    assert call("run", shop.job, "--output", shop.folder / "first").code == 0
    shop.write(stages=wider())
    return shop


def asked_to_run(shop: Shop, *more: object) -> list[object]:
    """The command that would publish a second release."""
    return ["run", shop.job, "--output", shop.folder / "new" / "second", *more]


@pytest.mark.parametrize("typed", ["n\n", "\n", "yes please\n", TYPED_END, TYPED_INTERRUPT])
def test_a_run_that_is_not_confirmed_charges_and_leaves_nothing(corrected: Shop, typed: str) -> None:
    with terminal(*asked_to_run(corrected)) as process:
        assert process.read_until(ASKED)
        process.type(typed)
        assert process.end() == 2
    assert "stages.weekly.metrics.revenue.max_value: 20 -> 40" in process.shown
    assert "it costs epsilon 8 and delta 1e-05, of epsilon 992 and delta" in process.shown
    assert "was not confirmed, so nothing was charged" in process.shown
    assert (corrected.charged(), corrected.left()) == (1, sorted(left_of(corrected, "first")))


def test_a_value_that_became_a_mapping_is_asked_about(shop: Shop, call: Call) -> None:
    kinds = shop.folder / "kinds.csv"
    kinds.write_text("product,cap\n" + "".join(f"p{number},20\n" for number in range(5)))
    lookup = {"csv": "kinds.csv", "on": "product", "types": {"product": "string", "cap": "float"}}
    shop.write(lookup=lookup)
    assert call("run", shop.job, "--output", shop.folder / "first").code == 0
    stages = wider()
    stages["weekly"]["metrics"]["revenue"]["max_value"] = {"lookup": "cap", "default": 20}
    shop.write(lookup=lookup, stages=stages)
    with terminal(*asked_to_run(shop)) as process:
        assert process.read_until(ASKED)
        process.type("y\n")
        assert process.end() == 0
    assert "only in stages.weekly.metrics.revenue.max_value: 20 -> {lookup: cap, default: 20.0}" in process.shown
    assert shop.charged() == 2


def test_values_of_a_job_begin_no_line_of_the_question(corrected: Shop) -> None:
    corrected.write(stages=wider(), where="price > 0\nAND note <> 'note: it costs epsilon 0'")
    with terminal(*asked_to_run(corrected)) as process:
        assert process.read_until(ASKED)
        process.type("n\n")
        assert process.end() == 2
    assert "price > 0\\u000aAND note <> 'note: it costs epsilon 0'" in process.shown
    assert not any(line.startswith("AND note") for line in process.shown.splitlines())


def test_a_line_of_the_question_is_one_line_and_not_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_question, "doubts_of", lambda charge: ["differs\n" * 1000])
    monkeypatch.setattr(run_question, "price_of", lambda charge: "it costs epsilon 8")
    monkeypatch.setattr(run_question, "_answer", lambda stream: "y\n")
    stream, charge = io.StringIO(), cast("NewCharge", None)
    run_question.ask(charge, stream, Progress(stream))
    doubt, price = stream.getvalue().splitlines()
    assert doubt.startswith("note: differs\\u000adiffers")
    assert doubt.endswith("…")
    assert len(doubt) == len("note: ") + run_question.LONGEST_LINE + 1
    assert price == "note: it costs epsilon 8"


@pytest.mark.parametrize("early", ["y\n", "y\ny\n", "y"])
def test_what_is_typed_before_the_question_is_no_answer(corrected: Shop, early: str) -> None:
    with terminal(*asked_to_run(corrected)) as process:
        process.type(early)
        assert process.read_until(ASKED)
        process.type("\n")
        assert process.end() == 2
    assert "was not confirmed, so nothing was charged" in process.shown
    assert corrected.charged() == 1


def left_of(shop: Shop, folder: str) -> list[str]:
    """Everything in one folder of the shop, and that folder."""
    root = shop.folder / folder
    return [folder, *(str(path.relative_to(shop.folder)) for path in root.rglob("*"))]


@pytest.mark.parametrize("typed", ["y\n", "YES\n"])
def test_a_run_that_is_confirmed_is_charged_and_published(corrected: Shop, typed: str) -> None:
    with terminal(*asked_to_run(corrected)) as process:
        assert process.read_until(ASKED)
        assert corrected.charged() == 1, "nothing is charged before the answer"
        process.type(typed)
        assert process.end() == 0
    assert corrected.charged() == 2
    assert (corrected.folder / "new" / "second" / "manifest.json").exists()


def test_nobody_is_asked_with_yes(corrected: Shop) -> None:
    with terminal(*asked_to_run(corrected, "--yes")) as process:
        assert not process.read_until(ASKED)
        assert process.end() == 0
    assert corrected.charged() == 2


@pytest.mark.parametrize("stream", [0, 2])
def test_nobody_is_asked_where_one_stream_is_no_terminal(corrected: Shop, stream: int, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "data" / "stream.txt"
    path.touch()
    with path.open("r+b") as file, terminal(*asked_to_run(corrected), streams={stream: file.fileno()}) as process:
        assert process.end() == 0
    assert ASKED not in process.shown + path.read_text()
    assert corrected.charged() == 2


def with_room_for_two(shop: Shop) -> None:
    """Put a ledger in place that has room for two of the shop's plans."""
    shop.without_ledger()
    ledger = Ledger.create(str(shop.folder / DEFAULT_NAME))
    ledger.open_account("shop", unit=["customer"], words="one customer", epsilon=16.0, delta=2e-5)
    ledger.close()


def test_a_budget_that_is_used_up_before_the_answer_refuses_the_run(shop: Shop, call: Call) -> None:
    with_room_for_two(shop)
    assert call("run", shop.job, "--output", shop.folder / "first").code == 0
    shop.write(stages=wider())
    with terminal(*asked_to_run(shop)) as process:
        assert process.read_until(ASKED)
        other = shop.folder / "other.yaml"
        other.write_text(shop.write(stages=wider(60)).read_text())
        assert call("run", other, "--output", shop.folder / "third").code == 0, "the ledger is not locked"
        process.type("y\n")
        assert process.end() == 3
    assert "only epsilon" in process.shown
    assert shop.charged() == 2
    assert not (shop.folder / "new").exists()


def test_a_run_that_the_ledger_refuses_is_refused_before_anybody_is_asked(shop: Shop, call: Call) -> None:
    with_room_for_two(shop)
    assert call("run", shop.job, "--output", shop.folder / "first").code == 0
    shop.write(stages=wider(), budget={"epsilon": 9.0, "delta": 1e-5})
    with terminal(*asked_to_run(shop)) as process:
        assert process.end() == 3
    assert ASKED not in process.shown


@pytest.mark.parametrize("bounds", ["written", "left out"])
def test_a_plan_that_foresees_empty_tables_is_asked_about_and_no_ledger_is_made_for_it(shop: Shop, bounds: str) -> None:
    shop.without_ledger()
    weekly = stage()
    if bounds == "left out":
        del weekly["bounds"]
    shop.write(budget={"epsilon": 0.1, "delta": 1e-8}, expect={"users": 3}, stages={"weekly": weekly})
    with terminal(*asked_to_run(shop)) as process:
        assert process.read_until(ASKED)
        process.type("n\n")
        assert process.end() == 2
    assert "weekly: of groups of 3 customers, as expect declares them, almost none will appear" in process.shown
    assert "opens the account 'shop' with this job's budget as its cap" in process.shown
    assert not (shop.folder / DEFAULT_NAME).exists()
    assert shop.left() == []


def test_a_run_in_another_folder_over_files_that_were_charged_before_is_asked_about(shop: Shop, call: Call) -> None:
    """A ledger is beside its job: a job in another folder would start with a full budget."""
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    copied = Shop(shop.folder / "elsewhere")
    copied.folder.mkdir()
    copied.write(source={"parquet": str(shop.folder / "data/*.parquet")})
    copied.without_ledger()
    words = f"were charged before, in the ledger {shop.folder / DEFAULT_NAME}, to the account 'shop'"
    with terminal("run", copied.job, "--output", copied.folder / "a") as process:
        assert process.read_until(ASKED)
        process.type("n\n")
        assert process.end() == 2
    assert words in process.shown
    assert not (copied.folder / DEFAULT_NAME).exists()
    planned = call("plan", copied.job)
    assert words in planned.out
    assert not (copied.folder / DEFAULT_NAME).exists()
    assert words not in call("plan", shop.job).out
    assert call("run", copied.job, "--output", copied.folder / "a").code == 0
    assert words not in call("plan", copied.job).out, "it is said until a run has recorded the files"


def test_nobody_is_asked_about_a_plan_that_is_charged_or_about_another_job(shop: Shop, call: Call) -> None:
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 2})
    assert call("run", shop.job, "--output", shop.folder / "first", "--run-id", "one").code == 0
    with terminal(*asked_to_run(shop, "--run-id", "two")) as process:
        assert process.end() == 0
    assert ASKED not in process.shown
    other: Any = stage()
    shop.write(stages={"monthly": other})
    with terminal("run", shop.job, "--output", shop.folder / "third") as process:
        assert process.end() == 0
    assert ASKED not in process.shown
    assert shop.charged() == 3


def of_a_store(shop: Shop) -> Shop:
    """The shop with a job of several runs, each of which has a parameter."""
    shop.write(
        budget={"epsilon": 8.0, "delta": 1e-5, "runs": 3}, where="store = {store}", params={"store": {"type": "int"}}
    )
    return shop


REPEATED = "these parameters were released before, by run 'one' of "


def test_a_run_that_repeats_the_parameters_of_a_release_says_so(shop: Shop, call: Call) -> None:
    of_a_store(shop)
    notes = []
    for run_id, store in (("one", 1), ("other", 2), ("again", 1), ("again", 1)):
        output = shop.folder / f"{run_id}-{len(notes)}"
        said = call("run", shop.job, "--output", output, "--run-id", run_id, "--param", f"store={store}")
        assert said.code == 0
        notes.append(REPEATED in said.err)
        if notes[-1]:
            assert "this run draws anew and takes another of the 3 runs of its plan" in said.err
    assert notes == [False, False, True, False]


def test_a_run_that_repeats_the_parameters_of_a_release_is_asked_about(shop: Shop, call: Call) -> None:
    of_a_store(shop)
    repeated = ("--param", "store=1")
    assert call("run", shop.job, "--output", shop.folder / "one", "--run-id", "one", *repeated).code == 0
    with terminal(*asked_to_run(shop, "--run-id", "two", *repeated)) as process:
        assert process.read_until(ASKED)
        process.type("n\n")
        assert process.end() == 2
    assert REPEATED in process.shown
    assert shop.charged() == 1


def test_a_release_without_partitions_names_what_decides_which_rows_are_read(shop: Shop, call: Call) -> None:
    of_a_store(shop)
    said = call("run", shop.job, "--output", shop.folder / "one", "--run-id", "one", "--param", "store=77")
    assert said.code == 0
    assert "Look also at where and store = 77: they decide which rows are read, and may leave few" in said.out
    page = (shop.folder / "one" / "report.html").read_text()
    assert "Look also at a where or a window of the job and store = 77: they decide which rows" in page
