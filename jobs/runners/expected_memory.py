"""What a runner of this process would hold of the rows that a job declares, told before anything is charged.

In: the rows that `expect` declares, their width as they are shuffled. Out: an error where memory cannot hold them. Holds: public
numbers alone, never a footer or the size of a file; nothing declared, nothing said. Not covered: `local`, which holds what
`--memory` says whatever the rows are; clusters, whose memory is not known here.
"""

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.runners import local_options
from dp_pipelines.kernels.sizes import GIB, MIB

DIRECT_BYTES = 300 * MIB
"""The direct runner without rows: Beam and its libraries."""

DIRECT_COPIES = 5
"""Bytes that it holds for each that is shuffled: `benchmarks/held.py` finds 4.6 to 5.8."""


def direct_bytes(rows: float, row_bytes: int) -> float:
    """What the direct runner holds, about.

    Args:
        rows: in all.
        row_bytes: of one as it is shuffled, in all stages of a pipeline together.
    """
    return DIRECT_BYTES + DIRECT_COPIES * rows * row_bytes


def refuse_unfit(runner: str, rows: float, row_bytes: int) -> None:
    """Refuse a run that would be killed for want of memory.

    Args:
        runner: its name.
        rows: that the job declares.
        row_bytes: as for `direct_bytes`.

    Raises:
        RequestError: as said.
    """
    free = local_options.free_memory()
    if runner != "direct" or free is None:
        return
    held = direct_bytes(rows, row_bytes)
    if held > free:
        raise RequestError(
            field="--runner direct",
            message=f"holds some {_gib(held)} with the {rows:,.0f} rows that expect declares; {_gib(free)} are there",
            hint="take --runner local or flink",
        )


def _gib(size: float) -> str:
    """Gibibytes for people.

    >>> _gib(6.04 * 2**30), _gib(2**40)
    ('6.0 GiB', '1,024 GiB')
    """
    return f"{size / GIB:,.1f} GiB" if size < 100 * GIB else f"{size / GIB:,.0f} GiB"
