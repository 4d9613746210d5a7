"""Which of Arrow's memory pools a command uses: jemalloc's, whose time does not depend on what ran before.

In: nothing. Out: Arrow's pool, set for this process. Holds: whoever has set ARROW_DEFAULT_MEMORY_POOL keeps their
pool, and so does an Arrow without jemalloc. Not covered: Beam's workers, and programs that use the library: their pool
is theirs to choose.
"""

# Arrow's own choice, mimalloc, asks the kernel for large pages: where memory is scattered, the kernel gathers them
# first. That took a third of a join's processor time (`benchmarks/join.py`: 0.3 or 1.5 s of system time for the same
# job, by what ran before).

import os

VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's own variable."""


def choose() -> None:
    """Set the pool, before the first table is read."""
    if VARIABLE in os.environ:
        return
    import pyarrow as pa

    if "jemalloc" in pa.supported_memory_backends():
        pool = pa.jemalloc_memory_pool()
        try:
            pa.allocate_buffer(64, memory_pool=pool)
        except (pa.ArrowException, MemoryError):  # on a machine whose pages are larger than those it was compiled for
            return
        pa.set_memory_pool(pool)
