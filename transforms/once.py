"""Ensures that a stage of a plan is drawn once: in one pipeline, by one run of it.

In: a pipeline under construction, and the stages that its steps will draw. Out: nothing, or a refusal when the pipeline
runs, before a row is read. Holds: for every runner, and for `with` blocks; a runner's own retries are not a second run.
Not covered: anything that does not go through `Pipeline.run` of the pipeline that was built: templates,
`Pipeline.from_runner_api`, the fragments that interactive runners make, other processes (`NOT_COVERED` in manifests
says so).
"""

# Beam asks error handlers at the start of `Pipeline.run` whether they were closed. That is the first moment at which a pipeline
# that runs differs from one that was only inspected, and the only one that Beam's public interface gives to a transform.

import dataclasses
import os
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
from apache_beam.transforms.error_handling import ErrorHandler

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import RequestError
from dp_pipelines.planning import payment
from dp_pipelines.planning.stage import StagePlan

NOT_COVERED = (
    "further runs of this pipeline that the library cannot see: from a template, from its description "
    "(Pipeline.from_runner_api), in an interactive runner, in another process; no ledger remembers them"
)
"""What manifests of users' own pipelines say in addition."""


@dataclasses.dataclass
class _Draws:
    """What a pipeline draws.

    Args:
        stages: functions that return the stages when the pipeline runs.
        keys: plan and name of the stages that are already known.
        outputs: the folders that the pipeline publishes.
        ran: whether the pipeline has run.
    """

    stages: list[Callable[[], StagePlan]] = dataclasses.field(default_factory=list)
    keys: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    outputs: set[str] = dataclasses.field(default_factory=set)
    ran: bool = False

    def pay(self) -> None:
        """Pay for all stages at the start of a run.

        Raises:
            RequestError: another run has drawn one of the stages, or a stage is not planned yet.
        """
        drawn = [stage() for stage in self.stages]
        if self.ran:
            raise RequestError(
                field=f"stage {drawn[0].name!r}",
                message="has already been released by another run, and its plan pays for it only once",
                hint="build the pipeline again with a new plan: the two budgets add up",
            )
        together = [(level.name, stage.payment) for stage in drawn for level in stage.levels]
        payment.pay(together)
        self.ran = True
        if unused := payment.unreleased(together):
            warnings.warn(
                f"this pipeline does not release {', '.join(map(repr, unused))} of its plan: unless another one does, their "
                "share of the budget is spent on nothing; make a plan without them",
                stacklevel=2,
            )


_draws: weakref.WeakKeyDictionary[beam.Pipeline, _Draws] = weakref.WeakKeyDictionary()
"""By pipeline. No value refers to its pipeline, so that both can go."""


class _AtRun(ErrorHandler):
    """Handles no errors; Beam calls it at the start of a run."""

    def __init__(self, draws: _Draws) -> None:
        super().__init__(None)
        self._draws = draws

    def verify_closed(self) -> None:
        """Called by Beam, once for each run of the pipeline. Errors as for `_Draws.pay`."""
        self._draws.pay()


def records(stages: Iterable[StagePlan]) -> list[MechanismRecord]:
    """The records of all that is drawn with some stages: those of a rollup have levels."""
    return [record for stage in stages for level in stage.levels for record in level.mechanisms]


def note(pcoll: beam.PCollection[Any], stage: Callable[[], StagePlan]) -> None:
    """Note that a step of a pipeline will draw a stage.

    Args:
        pcoll: of the pipeline under construction.
        stage: returns the stage when the pipeline runs; it must not refer to the pipeline.
    """
    draws = _draws.setdefault(pcoll.pipeline, _Draws())
    if not draws.stages:
        _AtRun(draws).add_error_pcollection(pcoll)
    draws.stages.append(stage)


def refuse_second_writer(pipeline: beam.Pipeline, output: str) -> None:
    """Refuse a folder that a step of the pipeline publishes already.

    Raises:
        RequestError: another step publishes this folder.
    """
    draws, place = _draws.setdefault(pipeline, _Draws()), os.path.abspath(output)
    if place in draws.outputs:
        raise RequestError(
            field="output",
            message="is published by another step of this pipeline",
            hint="give all stages to one PublishRelease: (first, second) | PublishRelease(...)",
        )
    draws.outputs.add(place)


def refuse_second_draw(pipeline: beam.Pipeline, stage: StagePlan) -> None:
    """Refuse a stage that the pipeline already releases: its plan pays for one draw.

    Raises:
        RequestError: this stage of this plan is in the pipeline already.
    """
    draws, paid = _draws.setdefault(pipeline, _Draws()), stage.payment
    key = (str(stage.statement.get("plan")) if paid is None else f"{paid.plan} {paid.run}", stage.name)
    if key in draws.keys:
        raise RequestError(
            field=f"stage {stage.name!r}",
            message="is released twice in this pipeline, but its plan pays for it once",
            hint="use the output of the first PrivateAggregate, or put a second stage into the plan",
        )
    draws.keys.add(key)
