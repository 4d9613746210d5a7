"""Threads do every task and whatever was kept, once; the first error ends all of them, and so does an interrupt."""

import threading
import time

import pytest

from dp_pipelines.jobs.runners.workers import Crew, Stopped


class Doing:
    """A worker that notes what it does, and hands every third task over if somebody is idle."""

    def __init__(self, crew: Crew, done: list[int], fails: int | None = None) -> None:
        self.crew, self.done, self.fails, self.kept = crew, done, fails, list[int]()

    def begin(self, task: int) -> None:
        self.crew.check()
        if task == self.fails:
            raise ValueError(task)
        if task % 3 == 0 and self.crew.hand_over(task):
            return
        time.sleep(0.0005)
        self.kept.append(task)

    def take_over(self, work: int) -> None:
        self.done.append(work)

    def finish(self) -> None:
        self.done.extend(self.kept)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("tasks", [0, 1, 60])
def test_every_task_is_done_once(threads: int, tasks: int) -> None:
    done: list[int] = []
    crew = Crew(threads, range(tasks))
    crew.run(lambda: Doing(crew, done))
    assert sorted(done) == list(range(tasks))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dp-local")]


def test_the_first_error_ends_all_threads() -> None:
    done: list[int] = []
    crew = Crew(4, range(10_000))
    with pytest.raises(ValueError, match="17"):
        crew.run(lambda: Doing(crew, done, fails=17))
    assert done == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dp-local")]


def test_an_interrupt_of_the_main_thread_ends_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(3, range(10_000))
    calls = iter(range(100))

    def wait(timeout: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread() and next(calls) == 2:
            raise KeyboardInterrupt
        return real(timeout)

    real = crew._changed.wait
    monkeypatch.setattr(crew._changed, "wait", wait)
    monkeypatch.setattr("dp_pipelines.jobs.runners.workers.POLL", 0.01)
    with pytest.raises(KeyboardInterrupt):
        crew.run(lambda: Doing(crew, []))
    with pytest.raises(Stopped):
        crew.check()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dp-local")]
