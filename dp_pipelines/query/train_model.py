"""The declaration of a train stage: what the model predicts, from which columns, and how it is fitted.

In: names and numbers that the owner of the job declares. Out: frozen descriptions, validated at once. Holds: nothing here depends
on data; all of a `TrainModel` is public, the number of columns that the model sees too. Not covered: where examples come from
(the `unit_columns` and `where` of a job), what it costs (`dp_pipelines.planning`), how it is trained (`dp_pipelines.training`).
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from dp_pipelines import checks
from dp_pipelines.auto_bounds.value_bounds import COLUMN
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.query import feature_pairs, fit_candidates
from dp_pipelines.query.evaluation_groups import EvaluationGroups as EvaluationGroups
from dp_pipelines.query.fit_candidates import FitCandidate as FitCandidate
from dp_pipelines.query.labels import BinaryLabel as BinaryLabel
from dp_pipelines.query.labels import ClassLabel as ClassLabel
from dp_pipelines.query.labels import Label as Label
from dp_pipelines.query.labels import NumberLabel as NumberLabel
from dp_pipelines.query.labels import distinct

MOST_WIDTH = 1024
"""Columns of the encoded features: second moments have the square of them."""

CELL = "cell"
"""The column by which held-out examples are counted."""

OURS = frozenset({COLUMN, CELL})
"""Columns that tables of units and cells get."""

BINS, MOST_BINS = 10, 100
"""The default and the largest number of bins of a feature of numbers."""

MOST_EXAMPLES = 2**16
"""The most examples of one unit."""

MOST_COUNTS = 4096
"""The most released counts of one evaluation: cells of all groups."""

EVALUATED, HALF = 8, 0.5
"""Examples of a held-out unit that count by examples, and the part of steps that is averaged, of earlier versions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number:
    """A feature of numbers, cut into bins of which each becomes a column of zeros and ones.

    Args:
        column: the column.
        min_value, max_value: the declared range; values outside count as its ends. Null and NaN have a column of their own.
        bins: how many bins, 10 where neither they nor edges are given. Their ends are quantiles of the training units' examples,
            released privately. One bin has no ends and costs nothing: with `scaled` it is the straight line, and without it
            refused, since it says nothing of the value.
        edges: instead of bins, the declared cut points between them, rising, inside the range.
        scaled: also a column with the value itself, scaled to [0, 1] (missing: 0).

    >>> Number(column="visits", min_value=0, max_value=60).bins
    10
    >>> Number(column="visits", min_value=0, max_value=60, edges=[1, 2, 5, 10]).width
    6
    """

    column: str
    min_value: float
    max_value: float
    bins: Annotated[int, checks.Whole(low=1, high=MOST_BINS)] | None = None
    edges: Sequence[float] | None = None
    scaled: bool = False

    def __post_init__(self) -> None:
        checks.name(self.column, "column")
        for field in ("min_value", "max_value"):
            hint = "declare what a value can be, from public knowledge"
            bound = checks.number(getattr(self, field), field, above=-1e300, below=1e300, hint=hint)
            object.__setattr__(self, field, bound + 0.0)
        if not self.min_value < self.max_value:
            raise RequestError(field="min_value", message="must be below max_value", hint="widen the range")
        if self.edges is not None and self.bins is not None:
            raise RequestError(field="edges", message="cannot be combined with bins", hint="write one or the other")
        if not isinstance(self.scaled, bool):
            raise RequestError(field="scaled", message="must be true or false")
        if self.edges is None:
            if self.bins is None:
                object.__setattr__(self, "bins", BINS)
            checks.declared(self)
            if self.bins == 1 and not self.scaled:
                message = "is 1 and scaled is not set: the model would see only whether there is a value"
                raise RequestError(
                    field="bins", message=message, hint="write scaled: true for a straight line, or bins: 2"
                )
            return
        if isinstance(self.edges, (str, bytes)) or not isinstance(self.edges, (list, tuple)):
            raise RequestError(field="edges", message="must be a list of numbers")
        cuts = tuple(checks.number(edge, "edges", above=self.min_value, below=self.max_value) for edge in self.edges)
        if not 1 <= len(cuts) < 100 or any(not a < b for a, b in itertools.pairwise(cuts)):
            raise RequestError(field="edges", message="must be 1 to 99 increasing numbers inside the range")
        object.__setattr__(self, "edges", cuts)

    @property
    def cells(self) -> int:
        """Return the number of bins."""
        return self.bins if self.edges is None and self.bins is not None else len(self.edges or ()) + 1

    @property
    def released_edges(self) -> int:
        """Return how many cut points are released: none if they are declared, or if one bin needs none."""
        return self.cells - 1 if self.edges is None else 0

    @property
    def hot(self) -> int:
        """Return the number of columns of which every row has exactly one: bins, and one for missing values."""
        return self.cells + 1

    @property
    def width(self) -> int:
        """Return the number of columns: those of `hot`, and the value itself if it is asked for."""
        return self.hot + self.scaled


@dataclasses.dataclass(frozen=True, kw_only=True)
class Category:
    """A feature with a few values, of which each becomes a column of zeros and ones; all others share one more.

    Args:
        column: text, whole numbers, truths or dates.
        categories: the declared values.
        most: instead of them, how many values are taken from the training units: those that most units have, selected privately.

    >>> Category(column="age", categories=["A", "B"]).width
    3
    """

    column: str
    categories: Sequence[Any] | None = None
    most: Annotated[int, checks.Whole(low=1, high=500)] | None = None

    def __post_init__(self) -> None:
        checks.name(self.column, "column")
        if (self.categories is None) == (self.most is None):
            hint = "list the categories, or say how many to find privately, e.g. most: 50"
            raise RequestError(field="categories", message="or most must be given, but not both", hint=hint)
        if self.most is not None:
            checks.declared(self)
            return
        object.__setattr__(self, "categories", distinct(self.categories, "categories", 1))

    @property
    def width(self) -> int:
        """Return the number of columns: the values, and one for all others and nulls."""
        return (self.most if self.categories is None and self.most is not None else len(self.categories or ())) + 1

    hot = cells = width


Feature = Number | Category


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearModel:
    """Logistic regression (binary), multinomial logistic regression (classes), linear regression (numbers)."""

    def size(self, width: int, outputs: int) -> int:
        """Return the number of parameters. The encoder's constant column is the intercept."""
        return width * outputs


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLP:
    """A network of dense layers with tanh between them.

    Args:
        hidden: units of each hidden layer.
    """

    hidden: Sequence[int] = (64,)

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, (list, tuple)) or not 1 <= len(self.hidden) <= 8:
            raise RequestError(field="hidden", message="must be a list of 1 to 8 layer sizes")
        sizes = tuple(checks.whole(units, "hidden", low=1, high=4096) for units in self.hidden)
        object.__setattr__(self, "hidden", sizes)

    def size(self, width: int, outputs: int) -> int:
        """Return the number of parameters: weights and, for each layer, a bias."""
        sizes = (width, *self.hidden, outputs)
        return sum((before + 1) * after for before, after in itertools.pairwise(sizes))


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxModel:
    """Any model whose loss is given as a JAX function. Needs the extra `train`. Its code runs with your permissions.

    Args:
        name: the import path `module:attribute` of an object with `size`, `initial()`, `loss(parameters, features, label)` of one
            example and `scores(parameters, features)`; see dp_pipelines.training.kernels.jax_model. One with
            `gradient(parameters, features, labels)` of the rows of one unit in place of `loss` may use any library; see
            dp_pipelines.training.kernels.own_gradients.
        parameters: the number of its parameters, which the plan must know.
        microbatch: units whose gradients are in memory at a time.
    """

    name: str
    parameters: int
    microbatch: int = 64

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name.count(":") != 1:
            raise RequestError(field="model.name", message="must be module:attribute")
        checks.whole(self.parameters, "model.parameters", low=1, high=2**22)
        checks.whole(self.microbatch, "model.microbatch", low=1, high=2**16)

    def size(self, width: int, outputs: int) -> int:
        """Return the number of parameters."""
        return self.parameters


Model = LinearModel | MLP | JaxModel

PositiveNumber = Annotated[float, checks.Real(above=1e-30, below=1e30)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps:
    """Settings of a fit by noisy gradient steps with momentum; the result is the average of the last ones.

    Args:
        steps: how many.
        candidates: settings to choose among, at most 8. All are trained and charged; the one that predicts held-out units best is
            published. Each lists only what differs from the settings outside this list.
        sampling_rate: each step takes each training unit with this probability; 1 takes all.
        clip_norm: a unit's summed gradient is scaled down to this L2 norm. Left out: it follows from the norm of a typical row
            of features and the noise of the steps (training.step_defaults).
        learning_rate: of the mean gradient of examples. Left out: it follows from how far the loss can bend, and from noise.
        momentum: from 0 to below 1.
        average: the part of the steps, the last ones, whose parameters are averaged. Left out: a half, or more.
        max_noise_multiplier: the plan is refused where the budget leaves more noise than so many times the norm to each step.
        l2: of a linear model, how strongly the spread of its scores is held down, at most 1: half of this times their variance is
            added to the mean loss, as the released moments have it. It acts after the noise, so it costs nothing.
        class_weights: of a linear model for classes, how much an example of each counts in the loss, in the order of the
            declared classes, or of false and true. The largest counts as 1. Probabilities are then those of examples that are
            weighted so.
    """

    steps: Annotated[int, checks.Whole(low=1, high=10**6)] = 40
    candidates: Sequence[FitCandidate] | None = None
    sampling_rate: Annotated[float, checks.Real(above=1e-12, below=1, also=(1,))] = 1.0
    clip_norm: PositiveNumber | None = None
    learning_rate: PositiveNumber | None = None
    momentum: Annotated[float, checks.Real(above=0, below=1, also=(0,))] = 0.8
    average: Annotated[float, checks.Real(above=0, below=1, also=(0, 1))] | None = None
    max_noise_multiplier: PositiveNumber | None = None
    l2: Annotated[float, checks.Real(above=0, below=1, also=(1,))] | None = None
    class_weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", fit_candidates.checked(self.candidates))
        fit_candidates.refuse_equal(fit_candidates.settings(self))
        checks.declared(self)
        if self.class_weights is not None:
            if isinstance(self.class_weights, (str, bytes)) or not isinstance(self.class_weights, (list, tuple)):
                raise RequestError(field="class_weights", message="must be a list of numbers")
            own = [checks.number(weight, "class_weights", above=1e-6, below=1e6) for weight in self.class_weights]
            object.__setattr__(self, "class_weights", tuple(own))

    @property
    def relative_weights(self) -> tuple[float, ...] | None:
        """Return the weights of the classes over the largest of them.

        >>> Steps(class_weights=[1, 4]).relative_weights
        (0.25, 1.0)
        """
        own = self.class_weights
        return None if own is None else tuple(weight / max(own) for weight in own)

    @property
    def averaged(self) -> int:
        """Return how many of the last steps are averaged: half of them by default.

        >>> Steps(steps=5).averaged, Steps(steps=5, average=0.0).averaged
        (3, 1)
        """
        return min(self.steps, max(1, math.ceil((HALF if self.average is None else self.average) * self.steps - 1e-6)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainModel:
    """A model that is trained under the plan's budget: the privacy unit is the same as in every other stage.

    Args:
        privacy_unit: the column(s) that identify whom the guarantee protects.
        label: what is predicted.
        features: by name, what it is predicted from, sorted by name. None may tell of a time after that of the model's use.
        pairs: features whose bins are crossed, two by two, sorted: each cell is a column, which costs no budget but adds noise.
        model: its kind.
        steps: how it is fitted.
        max_examples_per_unit: examples of one unit that are kept, by a keyed hash.
        whiten: rotate and scale the features by their second moments, released privately, before training.
        held_out: the part of units, chosen by a keyed hash of the unit, that the model never sees and is evaluated on.
        evaluation_cells: into how many cells the scores of held-out examples are counted, for each label.
        weighting: what counts in the evaluation: `units`, each held-out unit once, with one of its examples, or `examples`, up to
            `evaluation_examples` of each, with as many times the noise. Left out: `units`, unless that number is given.
        evaluation_examples: examples of one held-out unit that are counted; left out: 1, and 8 by examples.
        evaluation_by: groups of held-out examples for each of which the model is evaluated too, at the same epsilon; overall
            figures get more noise, since they add up those of all groups.

    >>> task = TrainModel(privacy_unit="customer", label=BinaryLabel(column="returns"),
    ...                   features={"visits": Number(column="visits", min_value=0, max_value=60)})
    >>> task.width, task.size
    (12, 12)
    """

    kind: ClassVar[str] = "train"

    privacy_unit: str | Sequence[str]
    label: Label
    features: Annotated[Mapping[str, Feature], checks.NotEmpty()]
    model: Model = LinearModel()
    steps: Steps = Steps()
    max_examples_per_unit: Annotated[int, checks.Whole(low=1, high=MOST_EXAMPLES)] = 32
    whiten: bool = True
    held_out: Annotated[float, checks.Real(above=0, below=1, hint="write e.g. held_out: 0.2")] = 0.2
    evaluation_cells: Annotated[int, checks.Whole(low=2, high=1024)] = 16
    weighting: Literal["units", "examples"] | None = None
    evaluation_examples: Annotated[int, checks.Whole(low=1, high=MOST_EXAMPLES)] | None = None
    evaluation_by: EvaluationGroups | None = None
    pairs: Sequence[feature_pairs.Pair] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "privacy_unit", checks.names(self.privacy_unit, "privacy_unit"))
        for column in OURS & set(self.privacy_unit):
            raise RequestError(
                field="privacy_unit", message=f"has a column {column!r}, which is a reserved name", hint="rename it"
            )
        if not isinstance(self.label, Label):
            raise RequestError(field="label", message="must be a BinaryLabel, ClassLabel or NumberLabel")
        if not isinstance(self.features, Mapping) or not self.features:
            raise RequestError(field="features", message="must map at least one name to a feature")
        for name, feature in self.features.items():
            checks.plain(checks.name(name, "features"), "features")
            if not isinstance(feature, Feature):
                raise RequestError(field=f"features.{name}", message="must be a Number or a Category")
            if feature.column == COLUMN:
                raise RequestError(
                    field=f"features.{name}",
                    message=f"is column {COLUMN!r}, which is a reserved name",
                    hint="rename it",
                )
            if feature.column == self.label.column:
                raise RequestError(
                    field=f"features.{name}", message="is the label itself", hint="drop it, or name another column"
                )
        object.__setattr__(self, "features", FrozenMapping(dict(sorted(self.features.items()))))
        pairs = feature_pairs.in_order(feature_pairs.checked(self.pairs, self.features))
        object.__setattr__(self, "pairs", tuple(pairs))
        if not isinstance(self.model, Model):
            raise RequestError(field="model", message="must be a LinearModel, MLP or JaxModel")
        if not isinstance(self.steps, Steps):
            raise RequestError(field="steps", message="must be Steps")
        if self.steps.candidates is not None:
            fit_candidates.refuse_columns(self.privacy_unit)
        if not isinstance(self.whiten, bool):
            raise RequestError(field="whiten", message="must be true or false")
        self._refuse_unfit_steps()
        checks.declared(self)
        if self.weighting not in ("units", "examples", None):
            raise RequestError(field="weighting", message="must be units or examples")
        if self.weighting == "units" and self.evaluation_examples not in (1, None):
            message = "counts one example of each unit, and a number of examples of a unit is given beside it"
            raise RequestError(field="weighting", message=message, hint="leave that out, or write weighting: examples")
        self._refuse_unfit_groups()
        if self.width > MOST_WIDTH:
            of_pairs = sum(self.columns_of_pairs)
            of_which = f" ({of_pairs} of them for pairs)" if of_pairs else ""
            message = f"take up {self.width} columns{of_which}, more than the limit of {MOST_WIDTH}"
            few = "fewer pairs, or " if of_pairs else ""
            raise RequestError(field="features", message=message, hint=f"use {few}fewer features, or fewer bins")

    def _refuse_unfit_steps(self) -> None:
        for name in ("l2", "class_weights"):
            if getattr(self.steps, name) is not None and not isinstance(self.model, LinearModel):
                raise RequestError(field=f"fit.{name}", message="is for linear models alone", hint="leave it out")
        classes = 0 if isinstance(self.label, NumberLabel) else max(2, self.label.outputs)
        if self.steps.class_weights is not None and len(self.steps.class_weights) != classes:
            message = f"must be {classes} numbers, one for each class" if classes else "is for classes"
            hint = (
                "write false first, then true" if isinstance(self.label, BinaryLabel) else "see classes: of the label"
            )
            raise RequestError(field="fit.class_weights", message=message, hint=hint)

    def _refuse_unfit_groups(self) -> None:
        by = self.evaluation_by
        if by is None:
            return
        if not isinstance(by, EvaluationGroups):
            raise RequestError(field="evaluation.by", message="must be EvaluationGroups")
        if by.column in self.unit_columns:
            message = "is part of the privacy unit: groups are of many units"
            raise RequestError(field="evaluation.by.column", message=message, hint="name another column")
        if by.count * 2 * self.evaluation_cells > MOST_COUNTS:
            message = f"are too many for {by.count} groups: together they would be more than {MOST_COUNTS:,} counts"
            hint = f"write cells: {MOST_COUNTS // (2 * by.count)} or fewer"
            raise RequestError(field="evaluation.cells", message=message, hint=hint)

    @property
    def unit_columns(self) -> tuple[str, ...]:
        """Return the columns of the privacy unit."""
        return tuple(self.privacy_unit)

    @property
    def evaluated_groups(self) -> int:
        """Return the number of groups in which held-out examples are counted; 1 if none are asked for."""
        return 1 if self.evaluation_by is None else self.evaluation_by.count

    @property
    def counts_units(self) -> bool:
        """Return True if each held-out unit counts once in the evaluation."""
        return self.weighting == "units" or (self.weighting is None and self.evaluation_examples is None)

    @property
    def counted_examples(self) -> int:
        """Return the most examples of one held-out unit that count in the evaluation."""
        most = 1 if self.counts_units else self.evaluation_examples or EVALUATED
        return min(most, self.max_examples_per_unit)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns of examples: those of the unit, the label, the features and the groups."""
        by = () if self.evaluation_by is None else (self.evaluation_by.column,)
        seen = (self.label.column, *(f.column for f in self.features.values()))
        return tuple(dict.fromkeys((*self.unit_columns, *seen, *by)))

    @property
    def columns_of_pairs(self) -> tuple[int, ...]:
        """Return the number of columns of each pair."""
        return feature_pairs.columns(self.pairs, self.features)

    @property
    def width(self) -> int:
        """Return the number of columns of the encoded features, with the constant one and those of pairs. It is public."""
        return 1 + sum(feature.width for feature in self.features.values()) + sum(self.columns_of_pairs)

    @property
    def size(self) -> int:
        """Return the number of the model's parameters."""
        return self.model.size(self.width, self.label.outputs)
