"""What a step of a stage reads: the rows of the stage that was asked for, or what is made of them first.

In: the name of that stage. Out: one of six small classes, on which whoever runs a step decides. Holds: it follows from what
was asked, before a row is read, and never from a name. Not covered: how rows become groups, counts or examples (jobs.run).
"""

import dataclasses

from dp_pipelines.query.windows import Windows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows as the stage sees them.

    Args:
        of: the stage that was asked for.
        windows: of which each row has start and end as columns; None: its rows are in no windows.
    """

    of: str
    windows: Windows | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Groups:
    """The same rows, each with the group of its partition (`partition_groups`).

    Args:
        of: the stage whose partitions are grouped.
    """

    of: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitPartitionCounts:
    """One row of each privacy unit, with the number of its partitions (`auto_bounds.partition_bound`).

    Args:
        of: the stage whose partitions are counted.
        rows: whether it has also the number of rows in one of them (`auto_bounds.joint_bounds`).
    """

    of: str
    rows: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitFacts:
    """What the bounds keep of each privacy unit, and facts about one of its rows (`plan_stages.kept_counts`).

    Args:
        of: the stage whose bounds these are.
    """

    of: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmRows:
    """The rows as the stage sees them, of which each unit counts in one arm (`plan_stages.arm_moments`).

    Args:
        of: the stage whose partitions are the arms.
    """

    of: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagedExamples:
    """The examples of a train stage, which lie on disk; no pipeline reads them.

    Args:
        of: the train stage.
    """

    of: str


Reads = Rows | Groups | UnitPartitionCounts | UnitFacts | ArmRows | StagedExamples
