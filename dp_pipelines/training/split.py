"""Who is held out: a keyed hash of the unit decides, for all rows of a unit at once and for all runs of a plan alike.

In: unit columns, a key, a share. Out: one truth for each row. Holds: the answer for a row depends on its unit and the key alone,
not on its type's width, other rows, files or shards; the hash is independent of those that bound contributions. Not covered:
how many units that makes: each is held out with the probability of the share, over keys.

May import errors, checks, kernels.keys, numpy, pyarrow.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines import checks
from dp_pipelines.kernels import keys


def split(units: Sequence[pa.Array | pa.ChunkedArray], *, key: bytes, held_out: float) -> NDArray[np.bool_]:
    """For each row, whether its unit is held out.

    Args:
        units: the columns of the privacy unit, of equal length, at least one.
        key: such as the digest of the plan. It is no secret.
        held_out: the share of units, between 0 and 1.

    >>> split([pa.array(["ann", "bob", "ann"])], key=b"plan", held_out=0.5).tolist()
    [True, True, True]
    """
    checks.number(held_out, "held_out", above=0, below=1)
    digest = hashlib.sha256(b"dp_pipelines held out\0" + key).digest()
    salt, second = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))
    hashes = keys.hash_columns([keys.plain_unit(column) for column in units], salt)
    return keys.mix(hashes ^ np.uint64(second)) < np.uint64(int(held_out * 2.0**64))
