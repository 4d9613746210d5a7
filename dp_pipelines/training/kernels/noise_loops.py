"""Large draws of the noise of sums, compiled.

In: halves of words, a table's entries. Out: the same draws as NumPy makes of them (`noise.samplers`), bit for bit.
Holds: integers only; the steps are the same for every value. Not covered: ties, which `training.gaussian_noise`
settles; where words come from.
"""

# Why beside NumPy's? The noise of a network's step took a third of the step: NumPy makes some thirty passes over it,
# and takes Python's lock for each, so that a second thread helps little.
#
# Needs Numba, of the extra `train`; only `training.gaussian_noise` imports this, and only where it is installed.

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.training.kernels.compiled import compiled

Halves = NDArray[np.uint32]
Integers = NDArray[np.int64]


@compiled
def draws(halves: Halves, entries: Halves, mask: int, out: Integers, tied: Integers) -> int:
    """Write a draw for each half, as `AliasTable.look_up` and a mirrored sign make it.

    Args:
        halves: uint32 (n,), uniform.
        entries: uint32 (2**c,), those of the table.
        mask: 2**c - 1.
        out: int64 (n,).
        tied: int64 (n,), the places whose draws are not settled; their number is returned.
    """
    ties = 0
    for place in range(len(halves)):
        half = np.int64(halves[place])
        field = half & 0x7FFFFFFF
        entry = np.int64(entries[field & mask])
        value = min(field, entry) & mask
        out[place] = -value if half >> 31 else value
        if (field ^ entry) <= mask:
            tied[ties] = place
            ties += 1
    return ties
