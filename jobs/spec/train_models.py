"""A train stage of a job file, and the library's `TrainModel` that it becomes.

In: what stands under a stage with `kind: train`. Out: checked models. Holds: what is wrong is told by the library's own errors.
Not covered: whether columns exist and have types that can play their part (`jobs.request.train_tasks`).
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dp_pipelines.jobs.spec.base_models import JobModel, OverUnits, Positive, Scalar
from dp_pipelines.query import train_model
from dp_pipelines.query.train_model import TrainModel


class NumberFeature(JobModel):
    """A feature of numbers, cut into bins: quantiles that are released privately, or declared cut points."""

    kind: Literal["number"]
    column: Annotated[str | None, Field(description="The column; left out: the one with the feature's name.")] = None
    min_value: float
    max_value: float
    bins: int | None = None
    edges: list[float] | None = None
    scaled: bool = False

    @model_validator(mode="after")
    def _sound(self) -> "NumberFeature":
        self.build("feature")
        return self

    def build(self, name: str) -> train_model.Feature:
        """The library's feature."""
        fields = {key: value for key, value in self if key not in ("kind", "column")}
        return train_model.Number(column=self.column or name, **fields)


class CategoryFeature(JobModel):
    """A feature with a few values: declared ones, or those that most units have, selected privately."""

    kind: Literal["category"]
    column: Annotated[str | None, Field(description="The column; left out: the one with the feature's name.")] = None
    categories: list[Scalar] | None = None
    most: int | None = None

    @model_validator(mode="after")
    def _sound(self) -> "CategoryFeature":
        self.build("feature")
        return self

    def build(self, name: str) -> train_model.Feature:
        """The library's feature."""
        return train_model.Category(column=self.column or name, categories=self.categories, most=self.most)


class BinaryTarget(JobModel):
    """True or false, or 1 and 0."""

    kind: Literal["binary"]
    column: str

    def build(self) -> train_model.Label:
        """The library's label."""
        return train_model.BinaryLabel(column=self.column)


class ClassTarget(JobModel):
    """One of the declared classes."""

    kind: Literal["classes"]
    column: str
    classes: list[Scalar]

    @model_validator(mode="after")
    def _sound(self) -> "ClassTarget":
        self.build()
        return self

    def build(self) -> train_model.Label:
        """The library's label."""
        return train_model.ClassLabel(column=self.column, classes=self.classes)


class NumberTarget(JobModel):
    """A number within a declared range."""

    kind: Literal["number"]
    column: str
    min_value: float
    max_value: float

    @model_validator(mode="after")
    def _sound(self) -> "NumberTarget":
        self.build()
        return self

    def build(self) -> train_model.Label:
        """The library's label."""
        return train_model.NumberLabel(column=self.column, min_value=self.min_value, max_value=self.max_value)


class Linear(JobModel):
    """Logistic, multinomial logistic or linear regression, as the label says."""

    kind: Literal["linear"]

    def build(self) -> train_model.Model:
        """The library's model."""
        return train_model.LinearModel()


class Network(JobModel):
    """A network of dense layers."""

    kind: Literal["mlp"]
    hidden: list[int] = Field(default_factory=lambda: [64])

    @model_validator(mode="after")
    def _sound(self) -> "Network":
        self.build()
        return self

    def build(self) -> train_model.Model:
        """The library's model."""
        return train_model.MLP(hidden=self.hidden)


class FitModel(JobModel):
    """How the model is fitted; what is left out has a default that needs no look at data."""

    steps: int = train_model.Steps.steps
    sampling_rate: float = train_model.Steps.sampling_rate
    clip_norm: float | None = None
    learning_rate: float | None = None
    momentum: float = train_model.Steps.momentum
    average: float = train_model.Steps.average
    max_noise_multiplier: float | None = None

    @model_validator(mode="after")
    def _sound(self) -> "FitModel":
        self.build()
        return self

    def build(self) -> train_model.Steps:
        """The library's steps."""
        return train_model.Steps(**dict(self))


class EvaluationModel(JobModel):
    """How held-out units are counted."""

    cells: int = TrainModel.evaluation_cells
    max_examples_per_unit: int = TrainModel.evaluation_examples


class TrainStage(OverUnits):
    """A model that is trained under the job's budget."""

    kind: Literal["train"]
    share: Annotated[Positive, Field(description="Weight of this stage in the budget.")] = 1.0
    max_examples_per_unit: int = TrainModel.max_examples_per_unit
    label: Annotated[BinaryTarget | ClassTarget | NumberTarget, Field(discriminator="kind")]
    features: Annotated[
        dict[str, Annotated[NumberFeature | CategoryFeature, Field(discriminator="kind")]], Field(min_length=1)
    ]
    model: Annotated[Linear | Network, Field(discriminator="kind")] = Linear(kind="linear")
    fit: FitModel = FitModel()
    whiten: bool = True
    held_out: float = TrainModel.held_out
    evaluation: EvaluationModel = EvaluationModel()

    def build(self, privacy_unit: Sequence[str]) -> TrainModel:
        """What the library trains.

        Raises:
            RequestError: it names the key.
        """
        return TrainModel(
            privacy_unit=privacy_unit,
            label=self.label.build(),
            features={name: feature.build(name) for name, feature in self.features.items()},
            model=self.model.build(),
            steps=self.fit.build(),
            max_examples_per_unit=self.max_examples_per_unit,
            whiten=self.whiten,
            held_out=self.held_out,
            evaluation_cells=self.evaluation.cells,
            evaluation_examples=self.evaluation.max_examples_per_unit,
        )

    @property
    def metrics(self) -> dict[str, Any]:
        """None: what a train stage releases is a model."""
        return {}
