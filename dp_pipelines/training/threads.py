"""Work on parts of the examples in several threads, with the results in order.

In: a function, parts. Out: its results, in the order of the parts. Holds: of `in_order` only a few parts are in memory at a time.
Not covered: whether the function holds Python's lock.
"""

import concurrent.futures
import functools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
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
        threads: how many; left out, one for each processor that this process may use, and at most `MOST`.

    >>> list(in_order(lambda number: number * number, iter(range(5)), threads=2))
    [0, 1, 4, 9, 16]
    """
    threads = threads or processors()
    if threads == 1:
        yield from map(of, parts)
        return
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        waiting: deque[concurrent.futures.Future[Result]] = deque()
        for part in parts:
            waiting.append(pool.submit(of, part))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def spread(of: Callable[[Part], Result], parts: Sequence[Part], threads: int) -> list[Result]:
    """The result of `of` for each part, in order; the threads stay for later calls, as work of a millisecond needs it.

    Args:
        of: called in several threads; must not call `spread` itself.
        parts: all of them.
        threads: how many, this one included, which takes the first of every so many parts.

    >>> spread(lambda number: number * number, range(5), 2)
    [0, 1, 4, 9, 16]
    """
    if threads == 1 or len(parts) <= 1:
        return [of(part) for part in parts]
    pool = _kept(os.getpid(), threads - 1)
    helping = {place: pool.submit(of, part) for place, part in enumerate(parts) if place % threads}
    own = {place: of(part) for place, part in enumerate(parts) if place not in helping}
    return [own[place] if place in own else helping[place].result() for place in range(len(parts))]


@functools.lru_cache(maxsize=4)
def _kept(process: int, threads: int) -> concurrent.futures.ThreadPoolExecutor:
    """The threads of `spread` in this process; a fork has none of its parent's."""
    return concurrent.futures.ThreadPoolExecutor(threads, "dp-spread")


def processors() -> int:
    """The processors that this process may use, at most `MOST`."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST, found)
