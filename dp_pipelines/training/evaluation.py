"""How good a model is, from noisy counts of held-out examples by truth and prediction.

In: the task; scores and labels of examples of held-out units; then the released counts. Out: the query that counts; the
cell of each example; `Evaluation`, the measures that follow from the counts. Holds: the cell of an example depends only
on its own score, label and group, and its score (`scoring.scores`) only on the example; edges are public, never taken from
scores; after the release, only released counts and public numbers are read, and any counts give a number or None. Not
covered: which units are held out, and the noise.
"""

# Where groups are declared, cell c of group g is number g * cells + c of the one vector that is released. An example still
# adds one to one number, so the release costs what it does without groups; what all groups say together is the sum of their
# counts, and of their noise.

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels import keys
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.query.evaluation_groups import OTHERS
from dp_pipelines.query.query import Query
from dp_pipelines.query.train_model import ClassLabel, JaxModel, TrainModel
from dp_pipelines.training import scoring
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.candidate_choice import ChosenCandidate
from dp_pipelines.training.evaluation_cells import kind_of
from dp_pipelines.training.features import category_values
from dp_pipelines.training.measures import Counts, EstimatedMeasure, Point, Threshold

Floats = NDArray[np.float64]

FORMAT = 1

CELL = training_parts.CELL
"""The column with the cell of each example."""

MOST_COUNTED = 1e15
"""The largest possible count; noise this large carries no information."""

OF_GROUP = ("cells", "examples", "measures", "calibration", "confusion", "baselines")
"""What `evaluation.json` says of each group."""

COMPARED = (
    "a group of few examples has wide error bars, and a difference between groups that is within them may be chance"
)
"""What readers of figures by group must know."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What released counts tell about a model.

    Args:
        kind: the name of the kind of cells, from `evaluation_cells`.
        cells: the released counts; where there are groups, what those of all groups add up to.
        stddev: of the noise of each of them.
        examples_per_unit: the most examples of one unit that were counted.
        edges: of the bins: probabilities, or values of the label.
        classes: the declared classes, if the label has any.
        chosen: which candidate this is, if it was chosen among several on these units, so that measures are slightly too good.
        examples: the number of examples.
        measures: by name: `auc`, `accuracy`, `log_loss`, `brier`, `base_rate`; `balanced_accuracy`; `rmse`, `mae`, `r2`.
        calibration: predicted and observed values, by range of the prediction.
        roc: for a binary label, the shares of false and of true examples above each edge, from the highest edge down.
        confusion: counts, true by predicted.
        ties: for a binary label, the share of pairs of a true and a false example that share a bin: the measured AUC is
            off by at most half of it, whatever the model is.
        thresholds: for a binary label, what is found above each edge, from the highest down: recall, precision, lift.
        baselines: what needs no model, by name, with its measures: `majority` always says the most frequent class, `mean` the
            mean, `best_feature` ranks by one feature alone (`single_features`).
        best_feature: the name of that feature.
        by: the same of each group of examples, where groups are declared.
    """

    kind: str
    cells: tuple[float, ...]
    stddev: float
    examples_per_unit: int
    edges: tuple[float, ...]
    classes: tuple[Any, ...] = ()
    chosen: ChosenCandidate | None = None
    examples: EstimatedMeasure
    measures: Mapping[str, EstimatedMeasure]
    calibration: tuple[Point, ...] = ()
    roc: tuple[tuple[EstimatedMeasure, EstimatedMeasure], ...] = ()
    confusion: tuple[tuple[EstimatedMeasure, ...], ...] = ()
    ties: float | None = None
    thresholds: tuple[Threshold, ...] = ()
    baselines: Mapping[str, Mapping[str, EstimatedMeasure]] = FrozenMapping({})
    best_feature: str | None = None
    by: "ByGroup | None" = None

    def beside(self, alone: Mapping[str, EstimatedMeasure]) -> "Evaluation":
        """The same with the best of single features as a baseline.

        Args:
            alone: the AUC of each feature, by name; without a value, or none: nothing is said.
        """
        values = {name: area.value for name, area in alone.items() if area.value is not None}
        if not values:
            return self
        name = max(values, key=lambda feature: values[feature])
        baselines = {**self.baselines, "best_feature": {"auc": alone[name]}}
        return dataclasses.replace(self, baselines=baselines, best_feature=name)

    def to_json(self) -> dict[str, Any]:
        """JSON values, with everything that was released."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "cells": list(self.cells),
            "stddev": self.stddev,
            "examples_per_unit": self.examples_per_unit,
            "edges": list(self.edges),
            "classes": list(self.classes),
            **({} if self.chosen is None else {"chosen": self.chosen.to_json()}),
            "examples": self.examples.to_json(),
            "measures": {name: estimate.to_json() for name, estimate in self.measures.items()},
            "calibration": [point.to_json() for point in self.calibration],
            "roc": [{"false": false.to_json(), "true": true.to_json()} for false, true in self.roc],
            "confusion": [[count.to_json() for count in row] for row in self.confusion],
            "ties": self.ties,
            "thresholds": [threshold.to_json() for threshold in self.thresholds],
            "baselines": {
                name: {measure: estimate.to_json() for measure, estimate in of.items()}
                for name, of in self.baselines.items()
            },
            "best_feature": self.best_feature,
            **({} if self.by is None else {"by": self.by.to_json()}),
        }

    def text(self) -> str:
        """The content of `evaluation.json`."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByGroup:
    """What released counts tell about a model for each group of examples by itself.

    Args:
        column: by whose values there are groups.
        groups: these values; the last one, None, stands for all others and nulls.
        found: of each group.
    """

    column: str
    groups: tuple[Any, ...]
    found: tuple[Evaluation, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        of_groups = [found.to_json() for found in self.found]
        return {
            "column": self.column,
            "stddev": self.found[0].stddev,
            "others": OTHERS,
            "words": COMPARED,
            "groups": [
                {"group": group, **{key: said[key] for key in OF_GROUP}}
                for group, said in zip(self.groups, of_groups, strict=True)
            ],
        }


def cell_count(task: TrainModel) -> int:
    """The number of cells in use, of each group: at most as many as are counted (`training_parts.cell_count`).

    >>> from dp_pipelines.query.train_model import BinaryLabel, Number
    >>> features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    >>> cell_count(TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features))
    32
    """
    return kind_of(task).count(task)


def edges(task: TrainModel) -> tuple[float, ...]:
    """The public edges of the bins: of the probability (1/2 among them), or of the label's range; none for few classes.

    >>> from dp_pipelines.query.train_model import BinaryLabel, Number
    >>> features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features, evaluation_cells=4)
    >>> edges(task)
    (0.0, 0.1, 0.5, 0.9, 1.0)
    """
    return kind_of(task).edges(task)


def query(task: TrainModel) -> Query:
    """The query that counts: its table has the unit's columns, the constant `value_bounds.COLUMN` and integers `CELL`."""
    return training_parts.evaluation_query(task)


def cells(task: TrainModel, scores: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """The cell of each example.

    Args:
        task: the task.
        scores: as kernels give them: logits, logits by class, or values; one that is not finite counts as the middle.
        labels: 0 or 1, numbers of classes, or values; NaN for none.

    Returns:
        numbers from 0 to `cell_count(task) - 1`, whatever its group; -1, which is not counted, if there is no label.
    """
    labels = np.asarray(labels, np.float64)
    known = np.isfinite(labels)
    truth = np.where(known, labels, 0.0)
    found = kind_of(task).cells(task, np.array(edges(task)), truth, scores)
    return np.where(known, found, -1).astype(np.int64)


def groups_of(task: TrainModel, table: pa.Table) -> NDArray[np.int64]:
    """The number of each example's group: the last one if its value is not declared, or null; 0 where there are no groups.

    >>> from dp_pipelines.query.train_model import BinaryLabel, EvaluationGroups, Number
    >>> features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features,
    ...                   evaluation_by=EvaluationGroups(column="area", groups=["north", "south"]))
    >>> groups_of(task, pa.table({"area": ["south", None, "north", "NORTH"]})).tolist()
    [1, 2, 0, 2]
    """
    by = task.evaluation_by
    if by is None:
        return np.zeros(table.num_rows, np.int64)
    places = category_values.places(keys.one_array(table.column(by.column)), by.groups)
    return np.where(places < 0, len(by.groups), places)


def celled(artefact: Artefact, table: pa.Table) -> pa.Table:
    """Held-out examples, each with the number of the count in which it would stand.

    Args:
        artefact: the model.
        table: examples with the columns of its task.
    """
    task, model = artefact.task, artefact.task.model
    named = scoring.own_code(task, model.name, "model") if isinstance(model, JaxModel) else None
    scores = artefact.scores(table, jax_model=named, alone=True)
    within = cells(task, scores, artefact.encoder.labels(table))
    counted = np.where(within < 0, -1, groups_of(task, table) * training_parts.cell_count(task) + within)
    columns = {name: table.column(name) for name in task.unit_columns}
    return pa.table({**columns, CELL: pa.array(counted)})


def summary(task: TrainModel, counts: Sequence[float] | Floats, stddev: float) -> Evaluation:
    """What released counts say about a model.

    Args:
        task: the task.
        counts: the released counts of all cells (`training_parts.counted_cells`), or of those in use, group by group.
        stddev: of the noise of each count.

    Raises:
        RequestError: their number is not the task's number of cells, or one is not finite.

    >>> from dp_pipelines.query.train_model import BinaryLabel, Number
    >>> features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features, evaluation_cells=4)
    >>> found = summary(task, [40, 30, 20, 10, 10, 20, 30, 40], 0.0)
    >>> found.measures["accuracy"].value, found.measures["auc"].value
    (0.7, 0.75)
    """
    values, used, by = np.asarray(counts, np.float64), cell_count(task), task.evaluation_by
    wanted = (used * task.evaluated_groups, training_parts.counted_cells(task))
    sound = values.shape in ((wanted[0],), (wanted[1],)) and np.isfinite(values).all()
    if not sound or not 0 <= stddev < math.inf:
        raise RequestError(field="counts", message=f"must be {wanted[0]} finite numbers with a standard deviation")
    if by is None:
        return _of_counts(task, values[:used], stddev)
    of_groups = np.clip(values.reshape(by.count, -1)[:, :used], -MOST_COUNTED, MOST_COUNTED)
    whole = _of_counts(task, of_groups.sum(axis=0), stddev * math.sqrt(by.count))
    found = tuple(_of_counts(task, each, stddev) for each in of_groups)
    return dataclasses.replace(whole, by=ByGroup(column=by.column, groups=(*by.groups, None), found=found))


def _of_counts(task: TrainModel, values: Floats, stddev: float) -> Evaluation:
    """What one count for each cell in use says."""
    per_unit = task.counted_examples
    kind, bins = kind_of(task), np.array(edges(task))
    seen = Counts(values=np.clip(values, -MOST_COUNTED, MOST_COUNTED), stddev=float(stddev), per_unit=per_unit)
    with np.errstate(all="ignore"):  # anything but a number becomes None
        return Evaluation(
            kind=kind.name,
            cells=tuple(values.tolist()),
            stddev=float(stddev),
            examples_per_unit=per_unit,
            edges=tuple(bins.tolist()),
            classes=tuple(task.label.classes) if isinstance(task.label, ClassLabel) else (),
            examples=seen.number(np.ones(len(values))),
            **kind.measured(task, bins, seen),
        )
