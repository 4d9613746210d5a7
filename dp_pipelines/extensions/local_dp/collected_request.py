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
from collections.abc import Mapping, Sequence
from decimal import Decimal

from dp_pipelines.collect.exp_bound import plain_text
from dp_pipelines.collect.question import Question
from dp_pipelines.collected.collected_stage import CollectedStage
from dp_pipelines.collected.shuffling import amplified
from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.local_dp.answers import AskedQuestion, Asking, Shuffling
from dp_pipelines.extensions.local_dp.collected_job import CollectedFile
from dp_pipelines.jobs.request.list_order import without_order
from dp_pipelines.jobs.sources import declared_source, source_files
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.kernels import keys
from dp_pipelines.ledger import units

LARGEST_DOCUMENT = 64 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectedRequest:
    """What a run needs to know.

    Args:
        file: the job file.
        stages: what is estimated, by name.
        source: the files of reports.
        values: the parameters.
    """

    file: CollectedFile
    stages: Mapping[str, CollectedStage]
    source: source_files.Source
    values: Mapping[str, job_parameters.Value]

    @property
    def unit(self) -> tuple[str, ...]:
        """The columns that name a sender; none where each row is one sender's."""
        return tuple(self.file.job.privacy_unit or ())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(dict.fromkeys((*self.unit, *(name for stage in self.stages.values() for name in stage.reads))))

    @property
    def params(self) -> dict[str, str]:
        """The parameters as text."""
        return {name: str(value) for name, value in self.values.items()}

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of all that the job asks for, of its questions and of the parameters."""
        job = without_order(self.file.job.model_dump(mode="json", exclude={"expect"}, exclude_defaults=True))
        documents = {name: [q.to_json() for q in stage.questions] for name, stage in self.stages.items()}
        return hashlib.sha256(json.dumps([job, documents, self.params], sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def askings(self) -> tuple[Asking, ...]:
        """What people are asked, as accounts know it."""
        return askings_of(self.file, self.stages)

    @functools.cached_property
    def asked(self) -> str:
        """SHA-256 of what people are asked."""
        keys_of = sorted([asking.key, asking.answers] for asking in self.askings)
        return hashlib.sha256(json.dumps(keys_of).encode()).hexdigest()


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
    _refuse_unlike(file, found)
    _refuse_no_promise(file, found)
    return found


def check(file: CollectedFile, given: Sequence[str] = ()) -> CollectedRequest:
    """Everything about a job that is public, checked.

    Args:
        file: the job.
        given: `NAME=VALUE` for each parameter.

    Raises:
        RequestError: what is wrong.
    """
    stages = stages_of(file)
    values = job_parameters.take({name: param.type for name, param in file.job.params.items()}, given)
    try:
        source = declared_source.look(file.job.source, file.path.parent, values, file.document)
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
    request = CollectedRequest(file=file, stages=stages, source=source, values=values)
    if file.job.shuffler is not None:
        _refuse_more_columns(request)
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


def questions_of(file: CollectedFile, stages: Mapping[str, CollectedStage]) -> dict[Question, tuple[bool, int]]:
    """Each question of a job once: whether its answers are remembered, and how many a person may give.

    Args:
        file: the job.
        stages: of the job; a question of several stages is one answer.
    """
    models = file.job.stages
    return {
        asked: (models[name].memoised, models[name].answers)
        for name, stage in stages.items()
        for asked in stage.questions
    }


def person_epsilon(file: CollectedFile, stages: Mapping[str, CollectedStage]) -> Decimal:
    """What all answers of a person to a job's questions cost, as many as are declared: their epsilons add up."""
    asked = questions_of(file, stages)
    return sum((question.epsilon * answers for question, (_, answers) in asked.items()), Decimal(0))


def answers_in_a_row(stages: Mapping[str, CollectedStage]) -> list[Question]:
    """The answers in one row: each question as often as it has columns of its own, since those are different answers."""
    read = {(stage.question, tuple(stage.columns or ())): None for stage in stages.values()}
    read |= {(stage.by, tuple(stage.by_columns or ())): None for stage in stages.values() if stage.by is not None}
    return [question for question, _ in read]


def row_epsilon(stages: Mapping[str, CollectedStage]) -> Decimal:
    """What the answers in one row cost together."""
    return sum((asked.epsilon for asked in answers_in_a_row(stages)), Decimal(0))


def batches_of(file: CollectedFile, stages: Mapping[str, CollectedStage]) -> int:
    """In how many batches of a shuffler a person may be: as many as answers fill, with those that stand in one row."""
    row = answers_in_a_row(stages)
    return max(-(-answers // row.count(question)) for question, (_, answers) in questions_of(file, stages).items())


def askings_of(file: CollectedFile, stages: Mapping[str, CollectedStage]) -> tuple[Asking, ...]:
    """What a person is asked, as accounts charge it: each question, or behind a shuffler all questions of a row together."""
    listed = {question: _asked(question, memoised) for question, (memoised, _) in questions_of(file, stages).items()}
    answers = {question: number for question, (_, number) in questions_of(file, stages).items()}
    epsilon, shuffler = behind_shuffler(file, stages), file.job.shuffler
    if shuffler is None or epsilon is None:
        return tuple(Asking(questions=(asked,), answers=answers[question]) for question, asked in listed.items())
    shuffling = Shuffling(honest_reports=shuffler.honest_reports, epsilon=epsilon, delta=shuffler.delta)
    row = tuple(listed[question] for question in answers_in_a_row(stages))
    return (Asking(questions=row, answers=batches_of(file, stages), shuffling=shuffling),)


def document_of(question: Question) -> str:
    """SHA-256 of a question's document in its one spelling, which devices and server can compare."""
    return hashlib.sha256(question.to_json().encode()).hexdigest()


def _asked(question: Question, memoised: bool) -> AskedQuestion:
    return AskedQuestion(
        name=question.name,
        document=document_of(question),
        mechanism=question.mechanism,
        epsilon=plain_text(question.epsilon),
        memoised=memoised,
    )


def _refuse_unlike(file: CollectedFile, stages: Mapping[str, CollectedStage]) -> None:
    """Refuse stages that declare one question in two ways, or read more answers of a person to it than they declare."""
    row = answers_in_a_row(stages)
    seen: dict[Question, str] = {}
    for name, stage in stages.items():
        for question in stage.questions:
            first = file.job.stages[seen.setdefault(question, name)]
            for key in ("memoised", "answers"):
                if getattr(file.job.stages[name], key) != getattr(first, key):
                    message = (
                        f"differs from that of stage {seen[question]!r}, which has answers to {question.name!r} too"
                    )
                    error = RequestError(field=key, message=message, hint="declare the same in both")
                    raise file.error(("stages", name), error)
            if row.count(question) > first.answers and not first.memoised:
                error = RequestError(
                    field="question",
                    message=f"has answers to {question.name!r} in {row.count(question)} places of a row, and "
                    f"{first.answers} of a person are declared",
                    hint=f"write answers: {row.count(question)}, which is charged, or name the same columns",
                )
                raise file.error(("stages", name), error)
        if stage.by == stage.question and file.job.stages[name].memoised:
            error = RequestError(
                field="by",
                message="is the same question, whose remembered answers are no second chance",
                hint="drop it: pairs need two questions",
            )
            raise file.error(("stages", name), error)


def _refuse_no_promise(file: CollectedFile, stages: Mapping[str, CollectedStage]) -> None:
    """Refuse so many answers that no account can hold what they cost together."""
    shuffler, batches = file.job.shuffler, batches_of(file, stages)
    dearest = max(stages, key=lambda name: file.job.stages[name].answers)
    behind_shuffler(file, stages)
    if person_epsilon(file, stages) > units.LARGEST_EPSILON:
        message = f"costs a person an epsilon above {units.LARGEST_EPSILON:,}, which promises nothing"
    elif shuffler is not None and batches * units.written(shuffler.delta) >= 1:
        message = f"needs {batches:,} batches, whose deltas add up to 1 or more, which promises nothing"
    else:
        return
    error = RequestError(field="answers", message=message, hint="declare fewer")
    raise file.error(("stages", dearest), error)


def _refuse_more_columns(request: CollectedRequest) -> None:
    """Refuse what a shuffler has handed on beside the reports: who sees a row sees all of it."""
    others = sorted({*request.source.schema.names, *request.source.missing} - set(request.columns))
    if others or request.source.undeclared:
        # What `types` does not name is not repeated: without a header it is somebody's row.
        named = f"column {others[0]!r}" if others else "columns without a type"
        problem = RequestError(
            field="source",
            message=f"has {named} beside the reports of this job, and what a shuffler hands on must hold nothing "
            "else: the promise is about whole rows",
            hint="have the shuffler drop it, or estimate every answer of a row in one job",
        )
        raise request.file.error((), problem)


def behind_shuffler(file: CollectedFile, stages: Mapping[str, CollectedStage]) -> float | None:
    """The epsilon behind the job's shuffler, of all answers in one row; None without a shuffler.

    Raises:
        RequestError: nothing is proven for so few honest reports.
    """
    shuffler = file.job.shuffler
    if shuffler is None:
        return None
    try:
        return amplified(row_epsilon(stages), reports=shuffler.honest_reports, delta=shuffler.delta)
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
