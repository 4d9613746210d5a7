"""Chooses into how many shards of units a transform splits its input, where the program does not say.

In: the pipeline's runner, an estimate of the rows; both are public. Out: a number. Holds: it changes no result. Not covered:
jobs, which read the sizes of their files (docs/scale.md); a pipeline that is handed to another runner after it was built.
"""

from typing import Any

import apache_beam as beam

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import sizes

IN_THIS_PROCESS = 32
"""Shards on runners of one machine, whose memory ends long before a shard is large: few shards cost small inputs least."""

ELSEWHERE = 1024
"""Shards on other runners: of 100 GB each has 100 MB, which takes 2 GB to bound. For small inputs docs/scale.md has the cost."""

ROW_BYTES = 64
"""Bytes of a row as it is shuffled, where the types of its columns are not known before."""

MOST_ROWS = 2**50

_LOCAL = frozenset(
    (
        "FnApiRunner",
        "DirectRunner",
        "SwitchingDirectRunner",
        "BundleBasedDirectRunner",
        "PrismRunner",
        "InteractiveRunner",
    )
)


def check_shards(num_shards: int | None, rows: int | None = None) -> None:
    """Refuse numbers that cannot be those of shards and rows.

    Raises:
        RequestError: a number is out of range, or both are given.
    """
    if num_shards is not None:
        checks.whole(num_shards, "num_shards", low=1, high=sizes.MOST_SHARDS)
    if rows is not None:
        checks.whole(rows, "rows", low=1, high=MOST_ROWS)
    if num_shards is not None and rows is not None:
        message = "cannot be combined with num_shards, which it would choose"
        raise RequestError(field="rows", message=message, hint="leave one of them out")


def shards_of(
    pipeline: beam.Pipeline, num_shards: int | None, rows: int | None = None, row_bytes: int = ROW_BYTES
) -> int:
    """Return the number of shards.

    Args:
        pipeline: whose runner decides where nothing else is given.
        num_shards: as the program gives it; None: it does not.
        rows: a public estimate.
        row_bytes: of a row as it is shuffled.

    >>> shards_of(beam.Pipeline("FnApiRunner"), None), shards_of(beam.Pipeline("FnApiRunner"), None, rows=10**10)
    (32, 16384)
    """
    if num_shards is not None:
        return num_shards
    if rows is not None:
        return sizes.shards(rows * row_bytes)
    runner: Any = pipeline.runner
    return IN_THIS_PROCESS if any(cls.__name__ in _LOCAL for cls in type(runner).__mro__) else ELSEWHERE
