"""The declaration of a PATE model: teachers, each trained on a block of units, vote, and a student learns from their answers.

In: names and numbers that the owner of the job declares. Out: frozen descriptions, validated at once. Holds: nothing here depends
on data; how often teachers are asked and how often they may answer is declared, so no number of units shows. Not covered: how
teachers are trained and asked (`training.teachers`), what it costs (`dp_pipelines.planning`).
"""

import dataclasses
import math
from typing import Annotated, ClassVar

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.query.labels import BinaryLabel, ClassLabel, NumberLabel
from dp_pipelines.query.train_model import MLP, LinearModel, PositiveNumber, Steps, TrainModel

MOST_TEACHERS = 2**16
MOST_ASKED = 2**20
"""The most public examples on which teachers vote."""

ASKED_FOR_ANSWER = 2
"""By default, teachers vote on so many public examples for each answer."""

AGREEING = 0.6
"""By default, this part of the teachers must agree on an answer: a little more than half, as for two classes."""

_LINEAR = LinearModel()
NOT_OF_TEACHERS = (
    "candidates",
    "sampling_rate",
    "clip_norm",
    "momentum",
    "average",
    "max_noise_multiplier",
    "l2",
    "class_weights",
)
"""Fields of noisy steps: the steps of teachers and of the student have no noise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Teachers(Steps):
    """Settings of the votes of teachers, and of the fits of teachers and student.

    Args:
        teachers: how many. Each is trained without noise on a block of units of its own, and nobody sees any of them.
        answers: how many answers the student learns from, at most. More answers have more noise each.
        asked: on how many public examples teachers vote, at most; each costs a noisy test of whether enough of them agree.
            Left out: twice as many as answers.
        threshold: how many teachers must agree on an answer, up to noise. Left out: six of ten of them.
        steps: gradient steps of each teacher, and of the student, over all of its examples: few, since a student with few answers
            would learn their noise.
        learning_rate: of the mean gradient of examples. Left out: the inverse of how far the loss can bend.

    >>> Teachers(teachers=500).settled_threshold, Teachers(answers=100).settled_asked
    (300, 200)
    """

    teachers: Annotated[int, checks.Whole(low=2, high=MOST_TEACHERS)] = 500
    answers: Annotated[int, checks.Whole(low=1, high=MOST_ASKED)] = 100
    asked: Annotated[int, checks.Whole(low=1, high=MOST_ASKED)] | None = None
    threshold: Annotated[int, checks.Whole(low=1, high=MOST_TEACHERS)] | None = None
    steps: Annotated[int, checks.Whole(low=1, high=10**4)] = 5
    learning_rate: PositiveNumber | None = None
    momentum: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name in NOT_OF_TEACHERS and getattr(self, field.name) != field.default:
                message = "is for kind: train, whose gradient steps have noise; votes of teachers have it instead"
                raise RequestError(field=field.name, message=message, hint="leave it out")
        super().__post_init__()
        if self.settled_asked < self.answers:
            message = f"is {self.settled_asked}, fewer than the {self.answers} answers that are paid for"
            raise RequestError(
                field="asked", message=message, hint="ask about twice as many examples, or lower answers"
            )
        if self.settled_threshold > self.teachers:
            message = f"is {self.settled_threshold}, more than the {self.teachers} teachers that there are"
            raise RequestError(field="threshold", message=message, hint="write about six tenths of teachers")

    @property
    def settled_asked(self) -> int:
        """Return on how many public examples teachers vote, at most."""
        return min(ASKED_FOR_ANSWER * self.answers, MOST_ASKED) if self.asked is None else self.asked

    @property
    def settled_threshold(self) -> int:
        """Return how many teachers must agree on an answer, up to noise."""
        return math.ceil(AGREEING * self.teachers - 1e-9) if self.threshold is None else self.threshold


@dataclasses.dataclass(frozen=True, kw_only=True)
class PateModel(TrainModel):
    """A model that learns what teachers answer about public examples: PATE, under the plan's budget.

    Rows of the privacy units reach the model through noisy votes alone. Bins, categories and moments are those of the public
    examples, so nothing is released for them. It is rarely better than `TrainModel` (docs/pate.md).

    Args:
        steps: how teachers vote; in a job file `fit`.

    >>> from dp_pipelines import BinaryLabel, Number
    >>> task = PateModel(privacy_unit="customer", label=BinaryLabel(column="returns"), steps=Teachers(teachers=300),
    ...                  features={"visits": Number(column="visits", min_value=0, max_value=60)})
    >>> task.classes, task.steps.settled_threshold
    (2, 180)
    """

    kind: ClassVar[str] = "pate"

    label: BinaryLabel | ClassLabel
    model: LinearModel | MLP = _LINEAR
    steps: Teachers = Teachers()

    def __post_init__(self) -> None:
        if not isinstance(self.steps, Teachers):
            raise RequestError(field="steps", message="must be Teachers")
        if not isinstance(self.model, LinearModel | MLP):
            message = "must be linear or mlp: teachers train no other model"
            raise RequestError(field="model", message=message, hint="use kind: train for a model of your own")
        if isinstance(self.label, NumberLabel):
            message = "is a number, and teachers vote for one of a few classes"
            raise RequestError(field="label", message=message, hint="use kind: train, or declare kind: classes")
        super().__post_init__()

    @property
    def classes(self) -> int:
        """Return the number of classes for which teachers vote."""
        return max(2, self.label.outputs)

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Return the columns that public examples have."""
        return tuple(dict.fromkeys(feature.column for feature in self.features.values()))
