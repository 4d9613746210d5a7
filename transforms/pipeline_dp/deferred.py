"""A stage in a pipeline's graph before its plan is made.

In: tables, a stage that `compute_budgets` will fill in. Out: released tables, as from `PrivateAggregate`. Holds: a
pipeline whose budgets are not computed is refused before a row is read, and so is a second run of one pipeline, which
would draw a second release. Not covered: releases without Beam (local_result.py).
"""

# Each element function is made from the stage when the pipeline is submitted, which is when Beam pickles it; workers
# get the functions of `PrivateAggregate` and nothing from this module.

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dp_pipelines.kernels import sizes
from dp_pipelines.noise import entropy
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.steps.release_stage import StageSteps, wired
from dp_pipelines.steps.step import Sharded, Step
from dp_pipelines.transforms import once
from dp_pipelines.transforms.beam_flow import BeamFlow, collection_of
from dp_pipelines.transforms.pipeline_dp.budget_accounting import Planned
from dp_pipelines.transforms.rows.input_tables import tables_alone
from dp_pipelines.transforms.shard_counts import shards_of


@dataclasses.dataclass(eq=False)
class DeferredRelease(beam.PTransform):
    """Release a stage that is not planned yet, from tables.

    Args:
        planned: the stage to be.
    """

    planned: Planned

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pcoll: beam.PCollection[pa.Table]) -> beam.PCollection[pa.Table]:
        """As `PrivateAggregate` does."""
        pcoll = tables_alone(pcoll)
        planned = self.planned
        once.note(pcoll, lambda: planned.stage)  # called when the pipeline runs: budgets must be computed by then
        salt = entropy.salt_number()

        shards = shards_of(pcoll.pipeline, None)
        places = sizes.places(shards)

        def of(name: str, gives: Any) -> Step:
            return _Deferred(
                self.planned, lambda stage: getattr(StageSteps.of(stage, shards, salt, places), name), gives
            )

        steps = StageSteps(
            to_shards=of("to_shards", Sharded),
            to_partials=of("to_partials", Sharded),
            draw=of("draw", Sharded),
            ungroup=of("ungroup", pa.Table),
        )
        return collection_of(wired(BeamFlow(pcoll), steps, places))


class _Deferred(Step):
    """Turns into the step made from the stage when it is pickled, if the stage is ready."""

    def __init__(self, planned: Planned, make: Callable[[StagePlan], Step], gives: Any) -> None:
        self.planned, self._make, self.gives = planned, make, gives  # type: ignore[misc]

    def process(self, element: Any) -> Iterable[Any]:
        raise AssertionError("workers get the function itself")

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.planned.ready:  # Beam tries whether it can be pickled when the graph is built
            return (_itself, (None,))
        return (_itself, (self._make(self.planned.stage),))


def _itself(made: Any) -> Any:
    return made
