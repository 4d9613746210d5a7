"""Graphs on the local runner: what comes out is what plain Python makes of it, with any number of threads and hardly any memory.

In: random graphs of steps of every kind. Out: the numbers that arrive at the end, each as often as it should. Holds: an error
leaves a graph without its text, and whatever ends a graph leaves no thread and no file. Not covered: the steps of a job
(`tests/engines`).
"""

import collections
import io
import os
import pathlib
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import interrupts
from dp_pipelines.disk_errors import DiskError
from dp_pipelines.errors import DamagedInputError
from dp_pipelines.jobs.runners import shuffle, workers
from dp_pipelines.jobs.runners.local import LocalFlow, LocalGraph, LocalStepFailed
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.steps.step import AheadStep, GatheringStep, GroupStep, Step
from tests.helpers.examples import examples
from tests.helpers.left_behind import nothing_left, only_new_objects_are_collected  # noqa: F401 - a fixture

KEYS = 3
SECRET = "4711 of Eve"


def table(numbers: Iterable[int]) -> pa.Table:
    return pa.table({"number": pa.array(list(numbers), pa.int64())})


def numbers_of(found: pa.Table) -> list[int]:
    return list(found.column("number").to_pylist())


# Steps of each kind, and what plain Python makes of all their numbers together.


class Doubled(Step):
    """Two tables of each."""

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        yield table(2 * number for number in numbers_of(element))
        yield table(2 * number + 1 for number in numbers_of(element))


class Alone(Step):
    """A task for each table."""

    alone = True

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        yield table(number + 1 for number in numbers_of(element))


class Ahead(AheadStep):
    """Something heavy."""

    def compute(self, element: pa.Table) -> list[pa.Table]:
        return [table(number + 2 for number in numbers_of(element))]


class Gathering(GatheringStep):
    """Something heavy, of several tables at once."""

    def compute(self, element: list[pa.Table]) -> list[pa.Table]:
        return [table(number + 3 for each in element for number in numbers_of(each))]


class ByKey(Step):
    """The numbers of a table, by key."""

    def process(self, element: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        for key in range(KEYS):
            found = [number for number in numbers_of(element) if number % KEYS == key]
            if found:
                yield key, table(found)


class OfKey(GroupStep):
    """The numbers of a key, and one that says that the key was there."""

    def compute(self, element: tuple[int, list[pa.Table]]) -> list[pa.Table]:
        key, tables = element
        return [*tables, table([-1 - key])]


class OfKeyAtOnce(Step):
    """The same as a plain step."""

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        yield from element[1]
        yield table([-1 - element[0]])


def _keyed(numbers: list[int]) -> list[int]:
    return numbers + [-1 - key for key in {number % KEYS for number in numbers}]


Made = tuple[Callable[[LocalFlow, str], LocalFlow], Callable[[list[int]], list[int]]]

KINDS: dict[str, Made] = {
    "plain": (lambda f, name: f.each(name, Doubled()), lambda n: [2 * x for x in n] + [2 * x + 1 for x in n]),
    "alone": (lambda f, name: f.each(name, Alone()), lambda n: [x + 1 for x in n]),
    "ahead": (lambda f, name: f.each(name, Ahead()), lambda n: [x + 2 for x in n]),
    "gathering": (lambda f, name: f.each(name, Gathering(40)), lambda n: [x + 3 for x in n]),
    "gathering much": (lambda f, name: f.each(name, Gathering(2**20)), lambda n: [x + 3 for x in n]),
    "spread": (lambda f, name: f.spread(name), lambda n: n),
    "by key": (lambda f, name: f.each(f"{name} cut", ByKey()).by_key(name).each(f"{name} of", OfKey()), _keyed),
    "by key, plain": (
        lambda f, name: f.each(f"{name} cut", ByKey()).by_key(name).each(f"{name} of", OfKeyAtOnce()),
        _keyed,
    ),
}


class Noting(Step):
    """Keeps what arrives."""

    def __init__(self, found: list[int]) -> None:
        self._found = found

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        self._found.extend(numbers_of(element))
        yield from ()


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[str, int, int]]]:
    """Tables of numbers; and steps, each with the collection that it reads, and one that is added to it (-1: none)."""
    tables = draw(st.lists(st.lists(st.integers(0, 20), max_size=5), max_size=6))
    steps: list[tuple[str, int, int]] = []
    for place in range(draw(st.integers(1, 6))):
        kind, of = draw(st.sampled_from(sorted(KINDS))), draw(st.integers(max(0, place - 2), place))
        steps.append((kind, of, draw(st.sampled_from([-1, -1, *range(place + 1)]))))
    return tables, steps


def graph_of(threads: int, memory: int, folder: pathlib.Path | None) -> LocalGraph:
    return LocalGraph(threads=threads, memory=memory, folder=folder, progress=Progress(io.StringIO()))


@settings(max_examples=examples(150, 1000))
@given(graph=graphs(), threads=st.sampled_from([1, 2, 4]), memory=st.sampled_from([1, 100, 2**30]))
def test_a_graph_makes_what_plain_python_makes(
    graph: tuple[list[list[int]], list[tuple[str, int, int]]], threads: int, memory: int
) -> None:
    tables, steps = graph
    made = graph_of(threads, memory, pathlib.Path("."))
    flows: list[LocalFlow] = [made.start.known("Numbers", [table(numbers) for numbers in tables], pa.Table)]
    wanted: list[list[int]] = [[number for numbers in tables for number in numbers]]
    for place, (kind, of, other) in enumerate(steps):
        flow, numbers = flows[of], wanted[of]
        if other >= 0:
            flow, numbers = flow.with_others(f"Both {place}", flows[other]), numbers + wanted[other]
        wire, plain = KINDS[kind]
        flows.append(wire(flow, f"Step {place}"))
        wanted.append(plain(numbers))
    found: list[list[int]] = [[] for _ in flows]
    for place, flow in enumerate(flows):
        flow.each(f"Note {place}", Noting(found[place]))
    made.run()
    assert [collections.Counter(each) for each in found] == [collections.Counter(each) for each in wanted]
    assert made._held._bytes == 0


class Joined(GroupStep):
    """The numbers of a key in the order in which they come, and tables of them for the next shuffle."""

    def __init__(self, found: list[tuple[int, list[int]]]) -> None:
        self._found = found

    def compute(self, element: tuple[int, list[pa.Table]]) -> list[tuple[int, pa.Table]]:
        key, tables = element
        numbers = [number for each in tables for number in numbers_of(each)]
        self._found.append((key, numbers))
        return [(number % KEYS, table([number])) for number in numbers]


class Pause(AheadStep):
    """Takes longer for some than for others."""

    def compute(self, element: pa.Table) -> list[pa.Table]:
        time.sleep(sum(numbers_of(element)) % 7 * 2e-4)
        return [element, element]


@settings(max_examples=examples(40, 300), deadline=None)
@given(
    tables=st.lists(st.lists(st.integers(0, 1000), min_size=1, max_size=3), min_size=5, max_size=12),
    threads=st.sampled_from([2, 4]),
    memory=st.sampled_from([1, 100, 2**30]),
)
def test_values_of_a_key_come_in_an_order_that_threads_do_not_decide(
    tables: list[list[int]], threads: int, memory: int
) -> None:
    orders = []
    for of_threads, of_memory in ((1, 2**30), (threads, memory)):
        found: list[tuple[int, list[int]]] = []
        made = graph_of(of_threads, of_memory, pathlib.Path("."))
        rows = made.start.known("Numbers", [table(numbers) for numbers in tables], pa.Table)
        cut = rows.spread("Spread").each("Pause", Pause()).with_others("More", rows.each("Alone", Alone()))
        first = cut.each("Cut", ByKey()).by_key("First").each("Join", Joined(found))
        first.by_key("Second").each("Join again", Joined(found))
        made.run()
        orders.append(sorted(found))
    assert orders[0] == orders[1]


# Errors, and what is left.


class Failing(Step):
    """Raises an error at the numbers beyond 5."""

    def __init__(self, error: Callable[[], BaseException]) -> None:
        self._error = error

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        if max(numbers_of(element), default=0) > 5:
            raise self._error()
        yield element


class FailingAhead(AheadStep):
    """The same, in whatever thread has nothing to do."""

    def __init__(self, error: Callable[[], BaseException]) -> None:
        self._error = error

    def compute(self, element: pa.Table) -> list[pa.Table]:
        return list(Failing(self._error).process(element))


def failing(step: Step, threads: int = 2, folder: pathlib.Path | None = None) -> LocalGraph:
    """Twenty tables, gathered and shuffled; a step fails at some of them."""
    made = graph_of(threads, 1, folder or pathlib.Path("."))
    rows = made.start.known("Numbers", [table([number]) for number in range(20)], pa.Table)
    KINDS["by key"][0](rows.each("Before", Gathering(20)), "First").each("Fails", step).each("After", Noting([]))
    return made


@pytest.mark.parametrize("step", [Failing, FailingAhead])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", [ValueError, MemoryError, KeyError, pa.ArrowInvalid, OSError, RecursionError])
def test_the_error_of_a_step_is_told_by_its_class_and_the_step(
    step: Callable[[Callable[[], BaseException]], Step], threads: int, kind: type[Exception]
) -> None:
    with nothing_left(), pytest.raises(LocalStepFailed) as told:
        failing(step(lambda: kind(SECRET)), threads).run()
    assert str(told.value) == f"{kind.__name__} [while running 'Fails']"
    assert SECRET not in "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize("error", [DiskError("out", "the disk is full"), shuffle.SpillFailed("no place")], ids=repr)
def test_an_error_of_a_disk_stays_as_it_is(error: Exception) -> None:
    with nothing_left(), pytest.raises(type(error)) as told:
        failing(Failing(lambda: error)).run()
    assert str(told.value) == str(error)


def test_an_error_of_ours_keeps_its_text_which_is_public() -> None:
    with nothing_left(), pytest.raises(LocalStepFailed) as told:
        failing(Failing(lambda: DamagedInputError("file 'a': is damaged"))).run()
    assert str(told.value) == "file 'a': is damaged [while running 'Fails']"


class Panic(BaseException):
    """What libraries in Rust raise, and what quotes nothing that it can be asked for."""

    def __str__(self) -> str:
        raise ValueError("secret")

    __repr__ = __str__


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, Panic])
def test_a_step_that_wants_to_end_the_process_fails_as_any_other(kind: type[BaseException]) -> None:
    with nothing_left(), pytest.raises(LocalStepFailed, match=f"^{kind.__name__} "):
        failing(Failing(kind)).run()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_a_step_that_fails_once_a_signal_came_ends_the_graph_as_interrupted(kind: type[BaseException]) -> None:
    def stopped() -> BaseException:
        interrupts.note()
        return kind()

    with interrupts.watched(), nothing_left(), pytest.raises(KeyboardInterrupt):
        failing(Failing(stopped)).run()


class Twice(Step):
    """Reads the values of a key a second time."""

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        yield from element[1]
        yield from element[1]


def test_values_of_a_key_that_are_read_again_are_an_error_and_not_missing() -> None:
    made = graph_of(2, 2**30, None)
    rows = made.start.known("Numbers", [table([1])], pa.Table)
    rows.each("Cut", ByKey()).by_key("Key").each("Reads", Twice()).each("After", Noting([]))
    with nothing_left(), pytest.raises(LocalStepFailed, match="^RuntimeError .while running 'Reads'.$"):
        made.run()


@pytest.mark.parametrize("reads", [False, True])
def test_a_disk_that_fails_is_told_with_its_folder_and_ends_all_threads(
    reads: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> int:
        raise OSError(5, SECRET)

    monkeypatch.setattr(os, "pread" if reads else "pwrite", fails)
    with nothing_left(tmp_path), pytest.raises(DiskError) as told:
        failing(Ahead(), 3, tmp_path).run()
    assert f"folder {str(tmp_path)!r}: the disk failed; nothing was published; check it, or" in str(told.value)
    assert "--spill-folder" in str(told.value)


def test_what_somebody_else_has_cut_off_is_told_without_a_size(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pread", lambda *given: b"")
    with nothing_left(tmp_path), pytest.raises(shuffle.SpillFailed) as told:
        failing(Ahead(), 3, tmp_path).run()
    assert str(told.value) == f"spill folder {str(tmp_path)!r}: what was written there cannot be read again"


def test_an_interrupt_leaves_nothing_once_the_steps_under_way_have_ended(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()

    class Lasting(Step):
        def process(self, element: pa.Table) -> Iterator[pa.Table]:
            began.set()
            assert go_on.wait(60)
            yield element

    real = threading.Condition.wait

    def wait(self: threading.Condition, timeout: float | None = None) -> bool:
        if timeout == workers.POLL and began.is_set():
            raise KeyboardInterrupt
        return real(self, timeout)

    monkeypatch.setattr(threading.Condition, "wait", wait)
    monkeypatch.setattr(workers, "PATIENCE", 0.05)
    with nothing_left(tmp_path):
        with pytest.raises(KeyboardInterrupt):
            failing(Lasting(), 3, tmp_path).run()
        go_on.set()
        for thread in threading.enumerate():
            if thread.name.startswith("dp-local"):
                thread.join(60)


def test_arrow_has_its_threads_back_whatever_ends_a_graph() -> None:
    before = pa.cpu_count()
    try:
        pa.set_cpu_count(3)
        for step in (Ahead(), Failing(ValueError)):
            with pytest.raises(LocalStepFailed) if isinstance(step, Failing) else nothing_left():
                failing(step).run()
            assert pa.cpu_count() == 3
    finally:
        pa.set_cpu_count(before)


def test_work_is_taken_over_by_a_thread_that_has_nothing_to_do() -> None:
    threads: set[str] = set()
    given, found = list[int](), list[int]()
    end = time.monotonic() + 60

    class Meeting(AheadStep):
        def compute(self, element: pa.Table) -> list[pa.Table]:
            threads.add(threading.current_thread().name)
            time.sleep(0.001)
            return [element]

    class Many(Step):
        def process(self, element: pa.Table) -> Iterator[pa.Table]:
            while len(threads) < 2 and time.monotonic() < end:
                given.append(7)
                yield element

    made = graph_of(2, 2**30, None)
    rows = made.start.known("Numbers", [table([7])], pa.Table)  # one task: a thread has none of its own
    rows.each("Many", Many()).each("Meet", Meeting()).each("Note", Noting(found))
    made.run()
    assert len(threads) == 2
    assert found == given
