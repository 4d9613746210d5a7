"""The only source of randomness: words of the operating system's generator.

In: how many. Out: uniform 64-bit words for draws; bytes for salts and keys, by functions of their own. Holds: this module
keeps nothing between calls, so a fork, a thread, a pickle or a restored process image never repeats a word, and there is no seed
to set. Not covered: what callers keep; an operating system with a broken generator, or a virtual machine restored from a
snapshot on a kernel that does not reseed. All our proofs assume that these words are independent and uniform.
"""

# `os.urandom` in blocks gives about 50 million words a second on one core, more than a sampler can use. A generator
# of our own would be faster, but would bring back seeds and repeats after forks. A test walks the syntax tree of the
# whole project to find any other source of randomness.

import os

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import checks

BLOCK_WORDS = 16_384
"""Words requested at a time: 128 KiB stay in the cache; above that, malloc begins to map pages."""


def words(n: int) -> NDArray[np.uint64]:
    """Return `n` independent uniform words.

    Args:
        n: how many, at least 0.

    Returns:
        uint64 array of shape (n,). It may be read-only.

    >>> words(3).shape, words(3).dtype
    ((3,), dtype('uint64'))
    """
    if n <= BLOCK_WORDS:
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)
    result = np.empty(n, dtype=np.uint64)
    for start in range(0, n, BLOCK_WORDS):
        block = result[start : start + BLOCK_WORDS]
        block[:] = np.frombuffer(os.urandom(8 * block.size), dtype=np.uint64)
    return result


def salt(size: int = 16) -> bytes:
    """Return fresh bytes for a salt or a key: of a hash for one run (sharding, contribution bounding), of a file.

    No noise and no coin is drawn from it. Salts serve fairness; no privacy guarantee depends on them.

    Args:
        size: number of bytes, 8 to 64.

    Raises:
        RequestError: `size` is not a whole number in that range.

    >>> len(salt())
    16
    """
    return os.urandom(checks.whole(size, "size", low=8, high=64))


def salt_number() -> int:
    """Return a fresh salt as a 64-bit number.

    >>> 0 <= salt_number() < 2**64
    True
    """
    return int.from_bytes(salt(8), "little")
