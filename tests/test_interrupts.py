"""Signals near rows: which errors a guard lets pass, with and without somebody who watches.

In: signals that are sent to this process. Holds: a signal ends what runs, and an error that code over rows raises does not.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from dp_pipelines import interrupts
from dp_pipelines.kernels.columns import column_casts

pytest.importorskip("pipeline_dp", reason="needs the extra pipeline-dp: Python 3.11 to 3.13")

from dp_pipelines.transforms.pipeline_dp import extract


@pytest.fixture
def handled() -> Iterator[Callable[[int, Any], None]]:
    """Set handlers of signals that are put back."""
    before: dict[int, Any] = {}

    def handle(number: int, handler: Any) -> None:
        before.setdefault(number, signal.signal(number, handler))

    handle(signal.SIGINT, signal.default_int_handler)
    yield handle
    for number, handler in before.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def going_on() -> Iterator[None]:
    """Watched code that no interrupt may end; Pytest would end with it."""
    try:
        with interrupts.watched():
            yield
    except KeyboardInterrupt:
        pytest.fail("ended by an interrupt")


class Interrupting:
    """A cell that a person's Ctrl-C hits while it is converted."""

    def __float__(self) -> float:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError


class Raising:
    """A cell that raises the same error itself, or another one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self._error = KeyboardInterrupt("secret") if error is None else error

    def __float__(self) -> float:
        raise self._error


class Hostile(BaseExceptionGroup[BaseException]):
    """A group whose own methods fail, as code of a library may."""

    @property
    def exceptions(self) -> Any:
        raise AssertionError("secret")

    def subgroup(self, matcher: Any) -> Any:
        raise AssertionError("secret")

    def __str__(self) -> str:
        raise AssertionError("secret")


def shared(depth: int) -> BaseExceptionGroup[BaseException]:
    """Return a group that has two to the power of its depth members, without an interrupt."""
    group = BaseExceptionGroup[BaseException]("secret", [SystemExit("secret")])
    for _ in range(depth):
        group = BaseExceptionGroup("secret", [group, group])
    return group


PLAIN_GROUPS: list[BaseException] = [
    ExceptionGroup("secret", [ValueError("secret"), ExceptionGroup("secret", [TypeError("secret")])]),
    BaseExceptionGroup("secret", [SystemExit("secret"), ValueError("secret")]),
    Hostile("secret", [GeneratorExit("secret")]),
    shared(100),
]
INTERRUPT_GROUPS: list[BaseException] = [
    BaseExceptionGroup("secret", [KeyboardInterrupt("secret")]),
    BaseExceptionGroup("secret", [ValueError("secret"), BaseExceptionGroup("secret", [KeyboardInterrupt("secret")])]),
    Hostile("secret", [Hostile("secret", [KeyboardInterrupt("secret")])]),
]


CELLS = (1.0, "two", None)


@pytest.mark.usefixtures("handled")
def test_ctrl_c_ends_rows_that_nobody_watches() -> None:
    with pytest.raises(KeyboardInterrupt, match=r"^$") as ended:
        extract._each(lambda cell: float(Interrupting()), [1, 2, 3])
    assert ended.value.__suppress_context__
    assert not interrupts._asked.is_set()


class Pretending(Exception):
    """An error that calls itself an interrupt, or raises when it is asked for its class."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        if self.args:
            raise ValueError("secret")
        return KeyboardInterrupt


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("arguments", [(), ("raises",)])  # no errors: Pytest asks parameters for their class
def test_an_error_costs_its_row_whatever_it_says_of_its_own_class(arguments: tuple[str, ...]) -> None:
    for error in (Pretending(*arguments), BaseExceptionGroup("", [Pretending(*arguments)])):
        cells = [1, Raising(error), 3]
        assert extract._each(lambda cell: float(cell), cells) == [1.0, extract._FAILED, 3.0]


@pytest.mark.usefixtures("handled")
def test_an_interrupt_that_rows_raise_costs_a_row_where_it_is_watched_and_in_a_thread() -> None:
    found: list[Any] = []

    def read() -> None:
        found.extend(extract._each(lambda cell: float(cell), [1, Raising(), 3]))

    with interrupts.watched():
        read()
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert found == 2 * [1.0, extract._FAILED, 3.0]


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("error", PLAIN_GROUPS + INTERRUPT_GROUPS)
def test_a_group_of_errors_costs_its_row_whatever_is_in_it(error: BaseException) -> None:
    cells = [1.0, Raising(error), 3.0]
    with going_on():
        assert extract._each(float, cells) == [1.0, extract._FAILED, 3.0]
        assert column_casts.column(cells, pa.float64()).to_pylist() == [1.0, None, 3.0]
        assert extract._all_of(lambda cell: [float(cell)], cells[1]) == []


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("error", PLAIN_GROUPS)
def test_a_group_without_an_interrupt_costs_its_row_where_nobody_watches(error: BaseException) -> None:
    raised = ""
    try:
        assert extract._each(float, [1.0, Raising(error), 3.0]) == [1.0, extract._FAILED, 3.0]
    except BaseException as ended:  # Pytest cannot show one with hostile methods as its context
        raised = type(ended).__name__
    assert raised == ""


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("error", INTERRUPT_GROUPS)
def test_an_interrupt_inside_a_group_ends_rows_that_nobody_watches(error: BaseException) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"^$") as ended:
        extract._each(float, [1.0, Raising(error), 3.0])
    assert ended.value.__suppress_context__


class Late(list[Any]):
    """Rows behind the last of which an interrupt comes, as one in the moment after `extend` does."""

    def __iter__(self) -> Iterator[Any]:
        yield from list.__iter__(self)
        raise KeyboardInterrupt


def test_an_interrupt_behind_the_last_row_ends_the_loop_over_rows(handled: Callable[[int, Any], None]) -> None:
    def end(number: int, frame: object) -> None:
        interrupts.note()
        raise TimeoutError

    handled(signal.SIGALRM, end)  # a loop that never ended would fill the memory
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        with going_on():
            assert extract._each(str, Late([1, 2])) == ["1", "2"]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_a_handler_that_returns_stops_nothing_whatever_the_cells(handled: Callable[[int, Any], None]) -> None:
    heard: list[int] = []
    handled(signal.SIGHUP, lambda number, frame: heard.append(number))
    with going_on():
        signal.raise_signal(signal.SIGHUP)
        assert column_casts.column(CELLS, pa.int64()).to_pylist() == [1, None, None]
    assert heard == [signal.SIGHUP]


class Clearing(threading.Event):
    """A flag in whose clearing a signal comes, once."""

    sent = False

    def clear(self) -> None:
        super().clear()
        if self.sent:
            self.sent = False
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("handled")
def test_a_signal_at_the_end_of_a_run_does_not_end_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = Clearing()
    monkeypatch.setattr(interrupts, "_asked", flag)
    with pytest.raises(KeyboardInterrupt), interrupts.watched():
        flag.sent = True
    assert not flag.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupts.note()  # as from a thread of the run before
    with going_on():
        assert column_casts.column(CELLS, pa.int64()).to_pylist() == [1, None, None]
