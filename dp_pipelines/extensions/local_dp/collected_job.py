"""The job file of collected stages: reports that devices have randomised, and the questions that they answer.

In: a YAML or JSON file. Out: a `CollectedJob`, frozen and checked as far as that needs neither questions nor rows. Holds: a job
has either collected stages or others, never both, since neighbours differ and their epsilons are never added: it has no budget.
Not covered: the questions and the columns (`collected_request`).
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import example_parts, validation_errors
from dp_pipelines.jobs.spec.base_models import JobModel, Names, Param
from dp_pipelines.jobs.spec.content import Content, Path, stage_kinds
from dp_pipelines.jobs.spec.source_models import SourceModel

COLLECTED = "collected"
"""The kind of a stage of estimates from reports of devices: such a job has no other stages, and other keys."""

example_parts.add(
    {
        "CollectedJob": (
            """
        dataset: visits
        params: {week: {type: date}}
        privacy_unit: phone
        source: {parquet: "reports/{week}/*.parquet"}
        expect: {reports: 500000}
        stages: {visited: {kind: collected, question: visited.json}}
        """,
            """
        dataset: mixed
        source: {parquet: "batches/*.parquet"}
        shuffler: {honest_reports: 400000, delta: 1.0e-6}
        stages: {visited: {kind: collected, question: visited.json}}
        """,
        ),
        "CollectedStageModel": (
            """
        {kind: collected, question: visited.json, columns: answer, by: age.json, by_columns: [age], memoised: true, answers: 2}
        """,
        ),
        "ShufflerModel": ("{honest_reports: 400000, delta: 1.0e-6}",),
        "CollectedExpect": ("{reports: 500000}",),
    }
)


class CollectedStageModel(JobModel):
    """Estimates from the answers to one question, or from the pairs of answers to two."""

    kind: Annotated[Literal["collected"], Field(description="Estimates from reports of devices.")]
    question: Annotated[str, Field(description="The question's document, relative to the job file.")]
    columns: Annotated[
        Names | None,
        Field(description="The columns of its reports, in the order of the document's fields; left out: those names."),
    ] = None
    by: Annotated[
        str | None, Field(description="The document of a second question to the same people, in the same rows.")
    ] = None
    by_columns: Annotated[Names | None, Field(description="The columns of the second question's reports.")] = None
    memoised: Annotated[
        bool, Field(description="Whether devices remember their answer and repeat it; never with a shuffler.")
    ] = False
    answers: Annotated[
        int,
        Field(
            ge=1,
            le=10**6,
            description="How many fresh answers a person may give to each question, in all runs together; of memoised answers, "
            "of how many distinct values devices keep one. Each is charged.",
        ),
    ] = 1


class ShufflerModel(JobModel):
    """A trusted third party has stripped names, addresses and times, kept one report a person, and mixed the rest."""

    honest_reports: Annotated[
        int, Field(ge=1, le=10**12, description="At least how many people answer honestly: you declare it.")
    ]
    delta: Annotated[float, Field(gt=0, lt=1, description="The delta of what the shuffler hands on.")]


class CollectedExpect(JobModel):
    """A guess about the reports, for the errors that `plan` prints."""

    reports: Annotated[int, Field(ge=1, le=10**12, description="How many reports there will be.")] = 1_000_000


class CollectedJob(JobModel):
    """A job of dp-pipelines over reports under local differential privacy."""

    model_config = ConfigDict(title="dp-pipelines job of collected stages")

    dataset: Annotated[
        str,
        Field(min_length=1, description="The account of answers that these questions are charged to."),
        AfterValidator(lambda name: checks.plain(name, "")),
    ]
    privacy_unit: Annotated[
        Names | None,
        Field(
            description="The columns that name a sender, of whom one row counts; left out: each row is one sender's."
        ),
    ] = None
    params: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")], Param],
        Field(description="What each run is given with `--param`, by name, for the names of the files in source."),
    ] = Field(default_factory=dict)
    source: Annotated[SourceModel, Field(description="The reports: a row for each person.")]
    shuffler: Annotated[ShufflerModel | None, Field(description="Who has mixed the reports before.")] = None
    expect: Annotated[CollectedExpect, Field(description="Guesses about the reports.")] = CollectedExpect()
    stages: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")], CollectedStageModel],
        Field(min_length=1, description="What is estimated, by name."),
    ]

    @model_validator(mode="after")
    def _behind_a_shuffler(self) -> "CollectedJob":
        if self.shuffler is None:
            return self
        if self.privacy_unit is not None:
            raise RequestError(
                field="privacy_unit",
                message="names senders, whom the shuffler must have removed before",
                hint="drop it, and have the shuffler keep one report a person; or drop shuffler",
            )
        for name, stage in self.stages.items():
            if stage.memoised:
                raise RequestError(
                    field=f"stages.{name}.memoised",
                    message="answers have no fresh chance, so a shuffler hides nobody among them",
                    hint="drop shuffler, or have devices answer anew",
                )
        return self


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectedFile:
    """A job of collected stages and where it was said.

    Args:
        path: the file; names in it are relative to its folder.
        job: what it says.
        document: the same as plain data, with the places of its parts.
    """

    path: pathlib.Path
    job: CollectedJob
    document: Content

    def error(self, path: Path, error: RequestError) -> RequestError:
        """The same error with `file:line` and the place in the job before it."""
        field, found = validation_errors.place(path, error.field, self.document)
        return RequestError(field=self.document.named(found, field), message=error.message, hint=error.hint)


def checked(document: Content, path: pathlib.Path) -> CollectedFile:
    """The job that some content is; names in it are relative to the folder of `path`.

    Raises:
        RequestError: `validation_errors.JobErrors` with all that is wrong.
    """
    others = [
        RequestError(
            field=document.named(("stages", name, "kind"), f"stages.{name}.kind"),
            message="stands beside collected stages: a job has either collected stages or others, never both",
            hint="write two job files: what they protect differs, and their epsilons are never added",
        )
        for name, kind in stage_kinds(document).items()
        if kind != COLLECTED
    ]
    validation_errors.raise_all(others + _refused_keys(document))
    try:
        job = CollectedJob.model_validate(document.data)
    except ValidationError as error:
        problems = validation_errors.from_validation(error, document, CollectedJob)
        raise validation_errors.JobErrors(validation_errors.by_line(problems)) from None
    return CollectedFile(path=path, job=job, document=document)


OF_TABLES = {
    "budget": "drop it: devices keep their promise by themselves, and `dp-pipelines ledger init` limits what they are asked",
    "where": "choose rows before: whatever a program does with reports keeps the devices' promise; never choose by the answers "
    "themselves, or every estimate is wrong",
    "lookup": "join before: whatever is done with a report keeps the device's promise",
    "window": "name the files of a window in source, e.g. with params",
    "row_id": "drop it: of each sender one row counts, whichever it is",
}
"""Keys of jobs over tables that have no use here, each with what to do instead."""


def _refused_keys(document: Content) -> list[RequestError]:
    data = document.data if isinstance(document.data, Mapping) else {}
    found = {key: hint for key, hint in OF_TABLES.items() if key in data}
    if isinstance(data.get("columns"), Mapping):
        found["columns"] = "compute them before; columns: of a stage names the columns of its reports"
    return [
        RequestError(
            field=document.named((key,), key), message="is for jobs over tables, not for reports of devices", hint=hint
        )
        for key, hint in found.items()
    ]
