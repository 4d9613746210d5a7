"""A stage of a plan is drawn once: in one pipeline, by one run of it.

In: a pipeline that is built, and the stages that its steps will draw. Out: nothing; or a refusal, when the pipeline is run and
before a row is read. How: what Beam asks of error handlers at the start of `Pipeline.run` is the first moment at which a pipeline
that was only looked at differs from one that is run. Holds: for every runner, and for `with` blocks; what a runner tries again by
itself is no second run. Not covered: whatever does not go through `Pipeline.run` of the very pipeline that was built: templates,
`Pipeline.from_runner_api`, the fragments that interactive runners make, other processes (`NOT_COVERED` in manifests says so).
"""

from collections.abc import Callable

import apache_beam as beam

from dp_pipelines.errors import RequestError
from dp_pipelines.planning import payment
from dp_pipelines.planning.stage import StagePlan

NOT_COVERED = (
    "further runs of this pipeline that the library cannot see: from a template, from its description "
    "(Pipeline.from_runner_api), in an interactive runner, in another process; no ledger remembers them"
)
"""What manifests of pipelines of one's own say beside the rest."""

_PLACE = "_dp_pipelines_draws"


class _Draws:
    """What a pipeline draws."""

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
    """A step of this pipeline will draw a stage.

    Args:
        pipeline: that is being built.
        stage: gives the stage when the pipeline is run.
    """
    draws = pipeline.__dict__.get(_PLACE)
    if draws is None:
        draws = pipeline.__dict__[_PLACE] = _Draws()
        pipeline._register_error_handler(draws)
    draws.stages.append(stage)
