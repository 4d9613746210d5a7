"""Which of Arrow's memory pools a command uses: jemalloc's, whose time does not depend on what ran before.

In: nothing. Out: Arrow's pool, set for this process. Holds: whoever has set ARROW_DEFAULT_MEMORY_POOL keeps their
pool, and so does an Arrow without jemalloc. Not covered: Beam's workers, and programs that use the library: their pool
is theirs to choose.
"""

# With Arrow's own choice, mimalloc, the system time of one and the same job differs several times over, by what ran
# before; with it, two gates of `benchmarks/join.py` fail.

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
