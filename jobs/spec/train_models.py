"""Stages of a job file that release a model, and the library's `TrainModel`, `FederateModel` or `PateModel` that each becomes.

In: what stands under a stage with `kind: train`, `federate` or `pate`. Out: checked models. Holds: their fields are those of the
library's models and their parts; what is wrong is told by the library's own errors. Not covered: whether columns exist and have
types that can play their part (`jobs.request.train_tasks`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from dp_pipelines.jobs.spec.base_models import OverUnits, Share
from dp_pipelines.jobs.spec.declared import DeclaredFields, DeclaredModel, Held, made_of
from dp_pipelines.jobs.spec.source_models import PublicModel
from dp_pipelines.query import train_model
from dp_pipelines.query.federate_model import FederateModel, Rounds
from dp_pipelines.query.models.pate_model import NOT_OF_TEACHERS, PateModel, Teachers
from dp_pipelines.query.train_model import TrainModel

_OF_EVALUATION = ("privacy_unit", "evaluation_cells", "weighting", "evaluation_examples", "evaluation_by")
"""Fields of a task that a stage says elsewhere."""


class FeatureModel(DeclaredModel[Held]):
    """Base of the models of features, which may leave out a column that has their name."""

    column: Annotated[str | None, Field(description="The column; left out: the one with the feature's name.")] = None

    def build(self, name: str = "feature") -> Held:
        """The library's feature."""
        made: Held = self.library(**{**self.arguments(), "column": self.column or name})
        return made


@made_of(train_model.Number, kind="number")
class NumberFeature(FeatureModel[train_model.Number]):
    """A feature of numbers, cut into bins: quantiles that are released privately, or declared cut points."""


@made_of(train_model.Category, kind="category")
class CategoryFeature(FeatureModel[train_model.Category]):
    """A feature with a few values: declared ones, or those that most units have, selected privately."""


@made_of(train_model.BinaryLabel, kind="binary")
class BinaryTarget(DeclaredModel[train_model.BinaryLabel]):
    """True or false, or 1 and 0."""


@made_of(train_model.ClassLabel, kind="classes")
class ClassTarget(DeclaredModel[train_model.ClassLabel]):
    """One of the declared classes."""


@made_of(train_model.NumberLabel, kind="number")
class NumberTarget(DeclaredModel[train_model.NumberLabel]):
    """A number within a declared range."""


@made_of(train_model.LinearModel, kind="linear")
class Linear(DeclaredModel[train_model.LinearModel]):
    """Logistic, multinomial logistic or linear regression, as the label says."""


@made_of(train_model.MLP, kind="mlp")
class Network(DeclaredModel[train_model.MLP]):
    """A network of dense layers."""


@made_of(train_model.FitCandidate)
class CandidateModel(DeclaredModel[train_model.FitCandidate]):
    """Settings of one candidate; what is left out is as beside the list."""


@made_of(train_model.JaxModel, kind="jax")
class Jax(DeclaredModel[train_model.JaxModel]):
    """A model of your own, whose loss is a JAX function: code that runs with your permissions."""


@made_of(train_model.Steps)
class FitModel(DeclaredModel[train_model.Steps]):
    """How the model is fitted; what is left out has a default that needs no look at data."""


@made_of(Rounds, leave_out=("candidates", "l2", "class_weights"), keys={"rounds": "steps"})
class RoundsModel(DeclaredModel[Rounds]):
    """How a model is fitted in federated rounds; what is left out has a default that needs no look at data."""


@made_of(Teachers, leave_out=NOT_OF_TEACHERS)
class TeachersModel(DeclaredModel[Teachers]):
    """How teachers vote and are fitted; what is left out has a default that needs no look at data."""


@made_of(train_model.EvaluationGroups)
class GroupsModel(DeclaredModel[train_model.EvaluationGroups]):
    """By which groups of held-out examples a model is evaluated too."""


@made_of(
    TrainModel,
    only=("evaluation_cells", "weighting", "evaluation_examples", "evaluation_by"),
    keys={"cells": "evaluation_cells", "max_examples_per_unit": "evaluation_examples", "by": "evaluation_by"},
)
class EvaluationModel(DeclaredFields):
    """How held-out units are counted."""


class ModelStage(OverUnits, DeclaredFields):
    """What stages that release a model have in common."""

    share: Share = 1.0
    evaluation: Annotated[EvaluationModel, Field(description="How held-out units are counted.")] = EvaluationModel()

    if TYPE_CHECKING:  # of `TrainModel`, what other modules read by name
        features: dict[str, NumberFeature | CategoryFeature]

    def build(self, privacy_unit: Sequence[str]) -> TrainModel:
        """What the library trains.

        Raises:
            RequestError: it names the key.
        """
        features = {name: feature.build(name) for name, feature in self.features.items()}
        own = {**self.arguments(), **self.evaluation.arguments(), "features": features}
        made: TrainModel = self.library(privacy_unit=privacy_unit, **own)
        return made

    @property
    def metrics(self) -> dict[str, Any]:
        """None: what such a stage releases is a model."""
        return {}


@made_of(TrainModel, leave_out=_OF_EVALUATION, keys={"fit": "steps"})
class TrainStage(ModelStage):
    """A model that is trained under the job's budget."""

    kind: Annotated[Literal["train"], Field(description="A model that is trained under the job's budget.")]


@made_of(FederateModel, leave_out=_OF_EVALUATION, keys={"fit": "steps"})
class FederateStage(ModelStage):
    """A model that clients train in federated rounds, under the job's budget."""

    kind: Annotated[
        Literal["federate"],
        Field(description="A model that clients train in federated rounds, under the job's budget."),
    ]


@made_of(PateModel, leave_out=_OF_EVALUATION, keys={"fit": "steps"})
class PateStage(ModelStage):
    """A model that learns from noisy votes of teachers about public examples, under the job's budget."""

    kind: Annotated[
        Literal["pate"],
        Field(description="A model that learns what teachers vote about public examples, under the job's budget."),
    ]
    public: Annotated[
        PublicModel,
        Field(
            description="The public table on which teachers vote, with the columns of the features as examples have them. "
            "Nothing in it is protected: its rows are counted and named, and must be nobody's secret."
        ),
    ]
