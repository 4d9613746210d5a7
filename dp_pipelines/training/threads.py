"""Work on parts of the examples in several threads, with the results in order.

In: a function, parts. Out: its results, in the order of the parts. Holds: only a few parts are in memory at a time. Not
covered: whether the function holds Python's lock.
"""

import concurrent.futures
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
        threads: how many; left out, one for each processor that this process may use, and at most `MOST`.

    >>> list(in_order(lambda number: number * number, iter(range(5)), threads=2))
    [0, 1, 4, 9, 16]
    """
    threads = threads or min(MOST, _processors())
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


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
