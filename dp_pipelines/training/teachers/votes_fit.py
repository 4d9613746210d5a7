"""From examples of the units and a public table to a student: teachers are trained and asked once, and it learns their answers.

In: the frozen parts of a stage, the training units, a public table, a store of draws. Out: the student. Holds: votes reach
nothing but the noise; the answers are kept before the student is trained, and before them the digest of the public table that
they are about, so that no retry asks again, and none applies them to other rows; everything else follows from them and public
facts. Not covered: the evaluation, which is that of every model (`fit`).
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.description import Preparation, Statement
from dp_pipelines.training.drawing import Drawing
from dp_pipelines.training.examples.groups import TrainingUnits
from dp_pipelines.training.examples.store import Chunk, Examples
from dp_pipelines.training.kept_draws import Draws
from dp_pipelines.training.teachers import noisy_answers, public_examples, votes
from dp_pipelines.training.teachers.noisy_answers import Answers
from dp_pipelines.training.teachers.public_examples import PublicExamples

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotesFit:
    """One run of teachers and their student. Arguments as for `fit.Fit`."""

    name: str
    task: PateModel
    stages: Mapping[str, StagePlan]
    public: pa.Table
    folder: pathlib.Path
    draws: Draws
    key: bytes
    tell: Callable[[str], None]
    drawing: Drawing

    def student(self, training: TrainingUnits, statement: Statement, preparation: Preparation) -> Artefact:
        """The student.

        Args:
            training: the units that teachers learn from.
            statement, preparation: for its file.

        Raises:
            RequestError: the public table is another one than that on which teachers have voted in this run.
        """
        self._settle_public()
        known = PublicExamples.of(self.task, self.public, self.key)
        if self.draws.get(self.name) is None:
            self.draws.keep(self.name, self._asked(training, known).to_bytes())
        kept = self.draws.get(self.name)
        assert kept is not None
        answers = Answers.from_bytes(kept)
        self.tell(f"training the student of {self.name}")
        kernel = votes.learner(self.task, self.key)
        return Artefact(
            task=self.task,
            encoder=known.encoder,
            parameters=learnt(self.task, known, answers, self.key),
            whitening=known.whitening,
            privacy=statement,
            preparation=preparation,
            path={
                "answered": tuple(answers.examples.tolist()),
                "row": tuple(known.places[answers.examples].tolist()),
                "answer": tuple(answers.classes.tolist()),
                "asked": (answers.asked,),
            },
            taken={"learning_rate": float(kernel.rate)},
        )

    def _settle_public(self) -> None:
        """Keep the digest of the public table, or refuse another table than the one that is kept."""
        plain = public_examples.plain(self.task, self.public)
        name, found = f"{self.name}.public", public_examples.digest(plain).encode()
        if self.draws.get(name) is None:
            self.draws.keep(name, found)
        if self.draws.get(name) != found:
            message = "has changed since this run began, and teachers have voted on what it was"
            hint = "restore it, or start a run with another id"
            raise RequestError(field=f"stages.{self.name}.{public_examples.FIELD}", message=message, hint=hint)

    def _asked(self, training: TrainingUnits, known: PublicExamples) -> Answers:
        """What teachers answer, drawn anew."""
        stage, tests = self.stages[self.name], self.stages[training_parts.tests_of(self.name)]
        self.tell(f"training the teachers of {self.name}")
        voted = self._votes(training, stage, known)
        self.tell(f"asking the teachers of {self.name}")
        return noisy_answers.noisy_answers(
            self.task,
            voted,
            noisy_answers.noise_of_tests(tests, functools.partial(self.drawing.noisy_sum, tests)),
            noisy_answers.noise_of_answers(stage, self.task.classes, functools.partial(self.drawing.noisy_sum, stage)),
        )

    def _votes(self, training: TrainingUnits, stage: StagePlan, known: PublicExamples) -> NDArray[np.int64]:
        hashes = votes.UnitHashes(self.task.unit_columns, self.key)
        encoded = training.encoded(stage, self.folder, "encoded", known.encoder, hashes)
        if known.whitening is not None:
            encoded = encoded.times(self.folder, "whitened", known.whitening)
        examples = encoded.rows_for(stage)
        assert isinstance(examples, Examples)
        blocks = votes.UnitBlocks.of_units(examples, self.task.steps.teachers)
        return votes.votes_of(self.task, examples, blocks, known.rows, self.key)


def learnt(task: PateModel, known: PublicExamples, answers: Answers, key: bytes) -> Floats:
    """The parameters of a student of these answers; without any, those with which students begin.

    Args:
        task: what is learnt.
        known: the public examples.
        answers: about some of them.
        key: public bytes.
    """
    rows = np.ascontiguousarray(known.rows[answers.examples])
    chunk = Chunk(rows, answers.classes.astype(np.float64), np.array([0, len(rows)]))
    (own,) = votes.learner(task, key).trained(chunk)
    result: Floats = own if np.isfinite(own).all() else votes.learner(task, key).initial()
    return result
