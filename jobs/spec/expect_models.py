"""What a job file says that decides no release: guesses about the rows, and earlier looks at them.

In: `expect:` and `tuned:` of a job file. Out: checked models. Holds: none of it is part of a plan or of what a run id fixes. Not
covered: what follows from guesses (`planning.expected_error`), and what a release says of looks (`release.manifest`).
"""

import datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.base_models import JobModel, Positive


class Expect(JobModel):
    """Guesses about the rows: for the errors that `plan` tells, `tune --synthetic` and memory. They decide no release."""

    users: Annotated[Positive | None, Field(description="Privacy units of a typical partition.")] = None
    rows_per_partition: Annotated[Positive | None, Field(description="Rows of a typical partition.")] = None
    totals: Annotated[
        dict[str, list[float]] | None,
        Field(description="By metric, mean and standard deviation of what one unit adds to it, for `compare`."),
    ] = None
    arms: Annotated[
        dict[str, Positive] | None,
        Field(
            min_length=1,
            description="By arm of `compare`, its privacy units; arms that are not named have `users`. Arms of unequal size "
            "find less than the total number of units suggests.",
        ),
    ] = None
    units: Annotated[
        Positive | None,
        Field(description="Privacy units in all that the stages read, for the error bar of a model's AUC."),
    ] = None
    positives: Annotated[
        Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None,
        Field(
            description="The share of examples whose label is true, for the same error bar; by default half. "
            "A rare label makes it much wider."
        ),
    ] = None
    rows: Annotated[
        Positive | None,
        Field(description="Rows in all that the stages read; `direct` is refused where they do not fit into memory."),
    ] = None
    partitions: Annotated[
        Positive | None,
        Field(
            description="Partitions of a list sorted on disk that have rows, to which `plan` compares those that pass by noise."
        ),
    ] = None


def _day(text: str) -> str:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        raise RequestError(field="", message="must be a date", hint="write e.g. 2026-01-05") from None
    return text


class TunedModel(JobModel):
    """A look at the raw rows by which values of this job were chosen, as `dp-pipelines tune` writes it into what it suggests."""

    stage: Annotated[
        str, Field(description="The stage that was tuned."), AfterValidator(lambda name: checks.plain(name, ""))
    ]
    date: Annotated[
        str,
        Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", description="The day of the look."),
        AfterValidator(_day),
    ]
