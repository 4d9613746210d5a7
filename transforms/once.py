"""Ensures that a stage of a plan is drawn once: in one pipeline, by one run of it.

In: a pipeline under construction, and the stages that its steps will draw. Out: nothing, or a refusal when the pipeline
runs, before a row is read. Holds: for every runner, and for `with` blocks; a runner's own retries are not a second run.
Not covered: anything that does not go through `Pipeline.run` of the pipeline that was built: templates,
`Pipeline.from_runner_api`, the fragments that interactive runners make, other processes (`NOT_COVERED` in manifests
says so).
"""

# Beam queries its error handlers at the start of `Pipeline.run`. That is the first moment at which a pipeline that runs
# differs from one that was only inspected.

from collections.abc import Callable

import apache_beam as beam

from dp_pipelines.errors import RequestError
from dp_pipelines.planning import payment
from dp_pipelines.planning.stage import StagePlan

NOT_COVERED = (
    "further runs of this pipeline that the library cannot see: from a template, from its description "
    "(Pipeline.from_runner_api), in an interactive runner, in another process; no ledger remembers them"
)
"""What manifests of users' own pipelines say in addition."""

_PLACE = "_dp_pipelines_draws"


class _Draws:
    """The stages that a pipeline draws."""

    def __init__(self) -> None:
        self.stages: list[Callable[[], StagePlan]] = []
        self._run = False

    def verify_closed(self) -> None:
        """Called by Beam, once for each run of the pipeline.

        Raises:
            RequestError: another run has drawn one of the stages, or a stage is not planned yet.
        """
        drawn = [stage() for stage in self.stages]
        if self._run:
            raise RequestError(
                field=f"stage {drawn[0].name!r}",
                message="has already been released by another run, and its plan pays for it only once",
                hint="build the pipeline again with a new plan: the two budgets add up",
            )
        payment.pay((stage.name, stage.payment) for stage in drawn)
        self._run = True


def note(pipeline: beam.Pipeline, stage: Callable[[], StagePlan]) -> None:
    """Note that a step of this pipeline will draw a stage.

    Args:
        pipeline: the pipeline under construction.
        stage: returns the stage when the pipeline runs.
    """
    draws = pipeline.__dict__.get(_PLACE)
    if draws is None:
        draws = pipeline.__dict__[_PLACE] = _Draws()
        pipeline._register_error_handler(draws)
    draws.stages.append(stage)
