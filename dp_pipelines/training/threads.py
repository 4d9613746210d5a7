"""Work in several threads: on parts of the examples with the results in order, or on a task that all of them share.

In: a function, and the parts. Out: its results, in the order of the parts (`in_order`); or nothing (`together`). Holds:
only a few parts are in memory at a time. Not covered: whether the function holds Python's lock.
"""

import concurrent.futures
import contextlib
import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

MOST = 16
"""Threads: each has a part in memory, which may be all examples of a shard."""


def in_order(of: Callable[[Part], Result], parts: Iterator[Part], threads: int | None = None) -> Iterator[Result]:
    """The result of `of` for each part, in order, with a few parts in work at a time.

    Args:
        of: called in several threads.
        parts: iterated in this thread.
        threads: how many; left out, one for each processor that this process may use, and at most `MOST`. A single part
            starts no thread: that would take longer than a step over few units.

    >>> list(in_order(lambda number: number * number, iter(range(5)), threads=2))
    [0, 1, 4, 9, 16]
    """
    threads = threads or processors()
    if threads == 1:
        yield from map(of, parts)
        return
    begin = list(itertools.islice(parts, 2))
    if len(begin) < 2:
        yield from map(of, begin)
        return
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        waiting: deque[concurrent.futures.Future[Result]] = deque()
        for part in itertools.chain(begin, parts):
            waiting.append(pool.submit(of, part))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def together(work: Callable[[], None], threads: int) -> None:
    """Call `work` in several threads at once; returns when all calls have ended. The threads stay for later calls.

    Args:
        work: takes what is left of a common task until nothing is; must not call `together` itself.
        threads: how many, this one included, which does all where no other can be had.

    >>> left, done = deque(range(5)), []
    >>> def work() -> None:
    ...     while left:
    ...         done.append(left.popleft())
    >>> together(work, 2)
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """
    helping: list[concurrent.futures.Future[None]] = []
    try:
        # Raised if no thread can be started, for example because the interpreter ends: then there are fewer.
        with contextlib.suppress(RuntimeError):
            for _ in range(threads - 1):
                helping.append(_kept(threads - 1).submit(work))
        work()
    finally:
        concurrent.futures.wait(helping)
    for helper in helping:
        helper.result()


@functools.lru_cache(maxsize=4)
def _kept(threads: int) -> concurrent.futures.ThreadPoolExecutor:
    """The threads of `together`."""
    return concurrent.futures.ThreadPoolExecutor(threads, "dp-together")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept.cache_clear)  # none of the parent's threads is there


def processors() -> int:
    """The processors that this process may use, at most `MOST`."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST, found)
