"""A job of collected stages that is ready to be planned and run: its questions, files and columns agree.

In: a checked job file. Out: a `CollectedRequest`. Holds: what public facts can show to be wrong is refused before anything is
created or read: documents whose numbers do not follow from their epsilon, columns that are missing or hold no whole numbers.
Not covered: what reports say, which decides no error.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Mapping
from decimal import Decimal

from dp_pipelines.collect.question import Question
from dp_pipelines.collected.collected_stage import CollectedStage
from dp_pipelines.collected.shuffling import amplified
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import declared_source, source_files
from dp_pipelines.jobs.spec.collected_job import CollectedFile
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.kernels import keys

LARGEST_DOCUMENT = 64 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectedRequest:
    """What a run needs to know.

    Args:
        file: the job file.
        stages: what is estimated, by name.
        source: the files of reports.
    """

    file: CollectedFile
    stages: Mapping[str, CollectedStage]
    source: source_files.Source

    @property
    def unit(self) -> tuple[str, ...]:
        """The columns that name a sender; none where each row is one sender's."""
        return tuple(self.file.job.privacy_unit or ())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(dict.fromkeys((*self.unit, *(name for stage in self.stages.values() for name in stage.reads))))

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of all that the job asks for and of its questions."""
        job = self.file.job.model_dump(mode="json", exclude={"expect"}, exclude_defaults=True)
        documents = {name: [q.to_json() for q in stage.questions] for name, stage in self.stages.items()}
        return hashlib.sha256(json.dumps([job, documents], sort_keys=True).encode()).hexdigest()


def stages_of(file: CollectedFile) -> dict[str, CollectedStage]:
    """What each stage estimates.

    Raises:
        RequestError: a document cannot be read or is not sound, a stage cannot be, or nothing is proven of the shuffler.
    """
    found: dict[str, CollectedStage] = {}
    known: dict[str, Question] = {}
    for name, model in file.job.stages.items():
        question = _question(file, name, "question", model.question, known)
        by = _question(file, name, "by", model.by, known) if model.by is not None else None
        try:
            found[name] = CollectedStage(question, model.columns, by, model.by_columns)
        except RequestError as error:
            raise file.error(("stages", name), error) from None
    behind_shuffler(file, found)
    return found


def check(file: CollectedFile) -> CollectedRequest:
    """Everything about a job that is public, checked.

    Raises:
        RequestError: what is wrong.
    """
    stages = stages_of(file)
    try:
        source = declared_source.look(file.job.source, file.path.parent, {}, file.document)
    except RequestError as error:
        raise (file.error((), error) if error.field.partition(".")[0] == "source" else error) from None
    for name, stage in stages.items():
        missing = [source.missing[column] for column in stage.reads if column in source.missing]
        if missing:
            raise missing[0]
        try:
            stage.check_types(source.schema)
        except RequestError as error:
            raise file.error(("stages", name), error) from None
    request = CollectedRequest(file=file, stages=stages, source=source)
    for column in request.unit:
        if column in source.missing:
            raise source.missing[column]
        if column not in source.schema.names:
            problem = RequestError(
                field="privacy_unit",
                message=f"names {column!r}, which is not a column of the source",
                hint=nearest(column, source.schema.names, "columns"),
            )
            raise file.error((), problem)
        keys.check_key_type(source.schema.field(column).type, column, partition=False)
    return request


def person_epsilon(stages: Mapping[str, CollectedStage]) -> Decimal:
    """What all questions of a job cost a person who answers each once: their epsilons add up.

    Args:
        stages: of the job; a question of several stages is one answer.
    """
    return sum((asked.epsilon for asked in {q for stage in stages.values() for q in stage.questions}), Decimal(0))


def behind_shuffler(file: CollectedFile, stages: Mapping[str, CollectedStage]) -> float | None:
    """The epsilon behind the job's shuffler, of all answers of a person, which stand in one row; None without a shuffler.

    Raises:
        RequestError: nothing is proven for so few honest reports.
    """
    shuffler = file.job.shuffler
    if shuffler is None:
        return None
    try:
        return amplified(person_epsilon(stages), reports=shuffler.honest_reports, delta=shuffler.delta)
    except RequestError as error:
        problem = RequestError(field="honest_reports", message=f"are too few: epsilon {error.message}", hint=error.hint)
        raise file.error(("shuffler",), problem) from None


def _question(file: CollectedFile, stage: str, key: str, name: str, known: dict[str, Question]) -> Question:
    """The question of a document. Documents of one name must be one question, or their answers would be taken for each other."""
    path = file.path.parent / name

    def refused(message: str, hint: str) -> RequestError:
        return file.error(("stages", stage), RequestError(field=key, message=message, hint=hint))

    try:
        question = Question.from_json(_text(path))
    except OSError as error:
        reason = error.strerror or "no file"
        raise refused(f"names {name!r}, which cannot be read: {reason}", "name a file of Question.to_json()") from None
    except UnicodeDecodeError:
        raise refused(f"names {name!r}, which is not UTF-8 text", "name a file of Question.to_json()") from None
    except RequestError as error:
        raise refused(f"names {name!r}, in which {error.field}: {error.message}", error.hint or "") from None
    if known.setdefault(question.name, question) != question:
        raise refused(f"names another question {question.name!r} than another stage", "give one of them another name")
    return question


def _text(path: pathlib.Path) -> str:
    if path.stat().st_size > LARGEST_DOCUMENT:
        raise OSError(0, "is larger than 64 MiB")
    return path.read_text(encoding="utf-8")
