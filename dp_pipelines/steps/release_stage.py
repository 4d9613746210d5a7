"""A whole stage, as a graph of steps: bound, accumulate, select, add noise.

In: a flow of tables of events, a stage of a plan. Out: a flow of released tables (partition columns, metrics, standard
deviations), behind the barrier. Holds: two shuffles of data for any number of metrics and columns; the order and the splitting of
the input affect only the noise. Not covered: who may see the output; only one attempt of a run may be published.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import pyarrow as pa

from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.kernels.sizes import key_places, places
from dp_pipelines.metrics.lookup_bound import Join
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.planning.stage_kinds import BestKind
from dp_pipelines.release.all_partitions import published
from dp_pipelines.steps.aggregate import ToPartials, ToShards
from dp_pipelines.steps.draw_release import DrawLevels, DrawPartyTable, DrawRelease, without_receipts
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.step import Sharded, Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageSteps:
    """The steps of a stage, in the order of the data flow."""

    to_shards: Step
    to_partials: Step
    draw: Step
    ungroup: Step

    @classmethod
    def of(cls, stage: StagePlan, num_shards: int, salt: int, count: int, join: Join | None = None) -> "StageSteps":
        """Those of a planned stage; `count` is the number of places, `join` is for bounds that differ by partition."""
        return cls(
            to_shards=ToShards(stage.layout, num_shards, salt),
            to_partials=ToPartials(stage, count, salt),
            draw=_draw(stage, count),
            ungroup=Ungroup(stage, join, count * len(stage.levels)),
        )


def _draw(stage: StagePlan, count: int) -> DrawRelease:
    """The step that draws all noise of a stage; `count` is the number of places."""
    if stage.query.parties is not None:
        return DrawPartyTable(stage, count)
    return DrawLevels(stage, count) if stage.coarser else DrawRelease(stage, count)


def places_of(stage: StagePlan, num_shards: int) -> int:
    """In how many places a stage is drawn: a choice among all candidates needs them in one."""
    if isinstance(stage.layout.public, KeyFile):
        return max(places(num_shards), key_places(len(stage.layout.public)))
    return 1 if isinstance(stage.kind, BestKind) else places(num_shards)


def released(tables: Flow, stage: StagePlan, num_shards: int, salt: int, join: Join | None = None) -> Flow:
    """The release of a stage.

    Args:
        tables: of events.
        stage: what is released.
        num_shards: the number of groups of units into which the data are split; it changes no result.
        salt: a 64-bit number for the hashes of this run.
        join: adds the columns of the job's public table, for bounds that differ by partition; the rows are scaled before this.
    """
    count = places_of(stage, num_shards)
    steps = StageSteps.of(stage, num_shards, salt, count, join)
    return wired(tables, steps, count * len(stage.levels))


def wired(tables: Flow, steps: StageSteps, count: int) -> Flow:
    """The graph of a stage: two shuffles of data, and the barrier.

    Args:
        tables: of events.
        steps: of the stage.
        count: the number of places, of all levels together.
    """
    contributions = tables.each("ToShards", steps.to_shards).by_key("ByShard")
    return drawn(contributions.each("ToPartials", steps.to_partials), steps, count)


def drawn(contributions: Flow, steps: StageSteps, count: int) -> Flow:
    """The second half of the graph of a stage.

    Args:
        contributions: partial aggregates, each with its place.
        steps, count: as for `wired`.
    """
    # Every place appears, whatever the data hold; an empty table stands for it.
    everywhere = contributions.known("Places", [(place, pa.table({})) for place in range(count)], Sharded)
    return (
        contributions.with_others("WithPlaces", everywhere)
        .by_key("ByPlace")
        .each("DrawRelease", steps.draw)
        .by_key("Barrier")
        .each("Released", steps.ungroup)
    )


class Ungroup(Step):
    """The released table of a stage, out of those of its places, each of which was drawn once; over a large list several."""

    def __init__(self, stage: StagePlan, join: Join | None, count: int) -> None:
        self._stage, self._join, self._count = stage, join, count

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """The tables.

        Raises:
            GateError: a place was drawn twice, or not at all.
        """
        tables = without_receipts(element[1], self._stage.name, self._count)
        if self._stage.query.parties is not None:  # what is published comes of the sum with the tables of the others
            yield from tables
            return
        if (
            isinstance(self._stage.layout.public, KeyFile) and not self._stage.coarser
        ):  # too many, perhaps, for one table; the writer sorts them
            yield from (published(table, self._stage, self._join) for table in tables)
            return
        # Sorted again: the order in which places arrive must not be seen.
        together = pa.concat_tables(list(tables), promote_options="permissive")
        yield published(together, self._stage, self._join)
