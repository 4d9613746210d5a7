"""What all runs of a job together may cost, and the window of event time that each of them takes.

In: the keys `budget` and `window` of a job file. Out: their models. Holds: numbers are in range. Not covered: what is left of the
budget (`ledger`).
"""

from typing import Annotated

from pydantic import Field

from dp_pipelines.jobs.spec.base_models import JobModel, Positive
from dp_pipelines.planning.rounds import Split


class BudgetModel(JobModel):
    """What all runs together may cost."""

    epsilon: Annotated[Positive, Field(description="The privacy loss of one unit, in all runs together.")]
    delta: Annotated[
        float,
        Field(ge=0, lt=1, allow_inf_nan=False, description="The probability that is left out of epsilon's promise."),
    ]
    runs: Annotated[int, Field(ge=1, le=10**6, description="How often this plan will be run under the budget.")] = 1
    spare: Annotated[
        int,
        Field(
            ge=0,
            le=10**6,
            description="Further runs that the budget covers, for corrections: a run takes one only with --spare.",
        ),
    ] = 0
    split: Annotated[Split, Field(description="How the runs share the budget: each as much, or later ones more.")] = (
        "constant"
    )

    @property
    def all_runs(self) -> int:
        """How many runs the budget covers, with those for corrections."""
        return self.runs + self.spare


class EventWindow(JobModel):
    """Each run takes one window of event time, and protects one unit within it. The account has the same windows."""

    column: Annotated[str, Field(description="A column of dates or timestamps of the source.")]
    days: Annotated[int, Field(ge=1, le=36525, description="How many days a window has.")]
    param: Annotated[str, Field(description="A parameter of type date: the first day of the run's window.")]
