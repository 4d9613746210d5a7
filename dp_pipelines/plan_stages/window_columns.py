"""A query over declared windows as a plain one: start and end are partition columns, and bounds those of the protected unit.

In: queries as they are asked. Out: plain queries and, by stage, the windows whose start and end its rows must have. Holds: the
plain query has the guarantee of any other (docs/proofs/windows.md); a unit is the same in all stages of a plan. Not covered: how
rows get these columns (`transforms.rows.window_stamps`).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.plan_stages.reads import Reads, Rows
from dp_pipelines.query.contribution_bounds import LARGEST_BOUND, ContributionBounds
from dp_pipelines.query.query import PublicPartitions, Query
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.query.windows import WINDOW_END, WINDOW_START, Windows

Asked = Query | TrainModel


def taken(stages: Mapping[str, Asked]) -> tuple[dict[str, Asked], dict[str, Windows]]:
    """The stages with plain queries, and the windows of those that have some.

    Raises:
        RequestError: windows of two stages differ where the unit is a user in a window, another stage has a `window_start` of its
            own in its unit there, or bounds over all windows are too large.
    """
    windows = {name: q.windows for name, q in stages.items() if isinstance(q, Query) and q.windows is not None}
    inside = {name: w for name, w in windows.items() if w.unit == "user_in_window"}
    for name, other in inside.items():
        first_name, first = next(iter(inside.items()))
        aligned = (other.start_micros - first.start_micros) % first.size_micros == 0
        if other.size != first.size or not aligned:
            raise RequestError(
                field=f"stages.{name}.windows",
                message=f"are others than those of stage {first_name!r}: a plan states its total for one privacy unit",
                hint="use the same windows, or make two plans, whose budgets add up",
            )
    for name, asked in stages.items():
        if inside and name not in windows and WINDOW_START in asked.unit_columns:
            raise RequestError(
                field=f"stages.{name}.privacy_unit",
                message=f"reads a column {WINDOW_START!r} of its own; that of stage {next(iter(inside))!r} is made of windows",
                hint="give this stage the same windows, rename the column, or make two plans, whose budgets add up",
            )
    return {name: _plain(name, asked) for name, asked in stages.items()}, windows


def reads_of(reads: Mapping[str, Reads], windows: Mapping[str, Windows]) -> dict[str, Reads]:
    """What steps read, with the windows of their rows."""
    return {
        name: dataclasses.replace(read, windows=windows.get(read.of)) if isinstance(read, Rows) else read
        for name, read in reads.items()
    }


def _plain(name: str, asked: Asked) -> Asked:
    if not isinstance(asked, Query) or asked.windows is None:
        return asked
    windows, of_user = asked.windows, asked.windows.unit == "user"
    partitions = asked.partitions
    if isinstance(partitions, PublicPartitions):
        partitions = PublicPartitions(keys=[(*key, *bounds) for bounds in windows.bounds for key in partitions.keys])
    return dataclasses.replace(
        asked,
        windows=None,
        privacy_unit=asked.unit_columns if of_user else (*asked.unit_columns, WINDOW_START),
        partition_by=(*asked.partition_columns, WINDOW_START, WINDOW_END),
        partitions=partitions,
        bounds=over_all(asked.bounds, windows.count, f"stages.{name}.windows.count") if of_user else asked.bounds,
    )


def over_all(bounds: ContributionBounds, count: int, field: str = "windows.count") -> ContributionBounds:
    """The bounds of a user over several windows, each of which has these bounds.

    Raises:
        RequestError: they are too large.

    >>> over_all(ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3), 52).max_partitions
    104
    """
    scaled: dict[str, Any] = {
        name: value * count
        for name in ("max_partitions_contributed", "max_contributions")
        if isinstance(value := getattr(bounds, name), int)
    }
    if any(value > LARGEST_BOUND for value in scaled.values()):
        message = f"times the bound on a user's contributions is above {LARGEST_BOUND:,}"
        raise RequestError(field=field, message=message, hint="declare fewer windows or smaller bounds")
    return dataclasses.replace(bounds, **scaled)
