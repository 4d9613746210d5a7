"""Memory that is freed and needed again at once: one setting of Linux's C library.

In: nothing. Out: a process that keeps freed arrays. Holds: no result changes. Not covered: other systems, where nothing happens.
"""

import numpy as np

LARGEST_KEPT = 2**25 - 2**16
"""An array size, in bytes, just below the largest from which Linux's C library learns what to keep (32 MiB)."""


def keep_freed_memory() -> None:
    """Have the process keep the memory of freed arrays for the next ones: a tenth of a job's processor time.

    By default glibc hands the memory of each array of some megabytes back, and the kernel clears it again for the next
    array of the same size. It raises its limit to the largest array that was freed so far, up to 32 MiB (mallopt(3),
    M_MMAP_THRESHOLD), so one such array is made and freed; none of its pages is touched. Elsewhere it does nothing.
    """
    np.empty(LARGEST_KEPT, np.uint8)
