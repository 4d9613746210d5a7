"""How good a model is, from noisy counts of held-out examples by what is true and what the model says.

In: the task; scores and labels of examples of held-out units; then the released counts. Out: the query that counts; the cell of
each example; `Evaluation`, the measures that follow from the counts. Holds: the cell of an example is a function of its own score
and label, and `scoring.scores` makes its score one of the example alone; its edges are public, never taken from scores; what
follows the release reads nothing but released counts and public numbers, and gives a number or None for whatever they are. Not
covered: which units are held out, and the noise.
"""

# Cells: of a binary label, label by bin of the probability; of a few classes, true by predicted class; of many classes, right or
# wrong by bin of the largest probability; of a number, bin of the true by bin of the predicted value.

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.query.query import Query
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, NumberLabel, TrainModel
from dp_pipelines.training import measures
from dp_pipelines.training.kernels.exponentials import exponential
from dp_pipelines.training.measures import Counts, EstimatedMeasure, Point

Floats = NDArray[np.float64]
Kind = Literal["binary", "classes", "confidence", "numbers"]

FORMAT = 1

CELL = training_parts.CELL
"""The column with the cell of each example."""

SPREAD = 2.0
"""Edges are even on the scale u with logit(p) = SPREAD * logit(u): half as far apart as even ones near 0 and 1, and about
twice as far in the middle. Of 32 bins, for scores about even odds they lose .001 of the AUC, and for a label of 1 in 100 .007
instead of .09."""

MOST_COUNTED = 1e15
"""No count is larger; noise that is says nothing."""

LEAST_PROBABILITY = 1e-6
"""The logarithmic loss takes no probability nearer to 0 or 1 than this."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is known of a model from its released counts.

    Args:
        kind: what the cells are.
        cells: the released counts.
        stddev: of the noise of each.
        examples_per_unit: the most examples of one unit that were counted.
        edges: of the bins: probabilities, or values of the label.
        classes: the declared ones, where the label has some.
        examples: how many examples there are.
        measures: by name: `auc`, `accuracy`, `log_loss`, `brier`, `base_rate`; `balanced_accuracy`; `rmse`, `mae`, `r2`.
        calibration: what was predicted and what was so, by ranges of the prediction.
        roc: of a binary label, part of the false and part of the true that are above each edge, from the highest edge down.
        confusion: counts, true by predicted.
        ties: of a binary label, part of the pairs of a true and a false example that share a bin: the measured AUC is off by at
            most half of it, whatever the model is.
    """

    kind: Kind
    cells: tuple[float, ...]
    stddev: float
    examples_per_unit: int
    edges: tuple[float, ...]
    classes: tuple[Any, ...] = ()
    examples: EstimatedMeasure
    measures: Mapping[str, EstimatedMeasure]
    calibration: tuple[Point, ...] = ()
    roc: tuple[tuple[EstimatedMeasure, EstimatedMeasure], ...] = ()
    confusion: tuple[tuple[EstimatedMeasure, ...], ...] = ()
    ties: float | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON values, with all that was released."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "cells": list(self.cells),
            "stddev": self.stddev,
            "examples_per_unit": self.examples_per_unit,
            "edges": list(self.edges),
            "classes": list(self.classes),
            "examples": self.examples.to_json(),
            "measures": {name: estimate.to_json() for name, estimate in self.measures.items()},
            "calibration": [point.to_json() for point in self.calibration],
            "roc": [{"false": false.to_json(), "true": true.to_json()} for false, true in self.roc],
            "confusion": [[count.to_json() for count in row] for row in self.confusion],
            "ties": self.ties,
        }

    def text(self) -> str:
        """The content of `evaluation.json`."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


def kind_of(task: TrainModel) -> Kind:
    """What the cells of a task are."""
    if isinstance(task.label, BinaryLabel):
        return "binary"
    if isinstance(task.label, ClassLabel):
        return "classes" if len(task.label.classes) ** 2 <= 2 * task.evaluation_cells else "confidence"
    return "numbers"


def cell_count(task: TrainModel) -> int:
    """The number of cells that are used: not more than are counted (`training_parts.cell_count`).

    >>> from dp_pipelines.query.train_model import Number
    >>> features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    >>> cell_count(TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features))
    32
    """
    kind = kind_of(task)
    if kind == "classes":
        return task.label.outputs**2
    return _places(task) ** 2 if kind == "numbers" else 2 * task.evaluation_cells


def _places(task: TrainModel) -> int:
    """Bins of a number: true and predicted ones make a square of cells."""
    return math.isqrt(training_parts.cell_count(task))


def edges(task: TrainModel) -> tuple[float, ...]:
    """The public edges of the bins: of the probability (with 1/2 among them), or of the label's range; none for few classes.

    >>> from dp_pipelines.query.train_model import Number
    >>> features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features, evaluation_cells=4)
    >>> edges(task)
    (0.0, 0.1, 0.5, 0.9, 1.0)
    """
    count, label = task.evaluation_cells, task.label
    if isinstance(label, NumberLabel):
        places = _places(task)
        low, high = float(label.min_value), float(label.max_value)
        return tuple(low * (1 - at / places) + high * (at / places) for at in range(places + 1))
    if kind_of(task) == "classes":
        return ()
    below = count // 2
    even = [0.5 * at / below for at in range(below)] + [0.5 + 0.5 * at / (count - below) for at in range(count - below)]
    odds = ((u / (1 - u)) ** SPREAD for u in even)
    return (*(float(f"{odd / (1 + odd):.12g}") for odd in odds), 1.0)


def query(task: TrainModel) -> Query:
    """What is counted: a table with the unit's columns, the constant column of `value_bounds.COLUMN`, whole numbers `CELL`."""
    return training_parts.evaluation_query(task)


def cells(task: TrainModel, scores: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """The cell of each example.

    Args:
        task: the task.
        scores: as kernels give them: logits, logits by classes, or values; what is not finite counts as the middle.
        labels: 0 or 1, numbers of classes, or values; NaN where there is none.

    Returns:
        numbers from 0 to `cell_count(task) - 1`; -1, which is counted nowhere, where there is no label.
    """
    labels = np.asarray(labels, np.float64)
    known = np.isfinite(labels)
    truth = np.where(known, labels, 0.0)
    kind, bins = kind_of(task), np.array(edges(task))
    if kind == "numbers":
        places = len(bins) - 1
        values = np.nan_to_num(np.asarray(scores, np.float64), nan=float((bins[0] + bins[-1]) / 2))
        found = _bin(bins, truth) * places + _bin(bins, values)
    elif kind == "binary":
        found = (truth > 0.5) * task.evaluation_cells + _bin(bins, probabilities(task, scores))
    else:
        by_class = probabilities(task, scores)
        said = np.argmax(by_class, axis=1) if len(by_class) else np.zeros(0, np.int64)
        right = truth.astype(np.int64)
        if kind == "classes":
            found = right * task.label.outputs + said
        else:
            largest = by_class.max(axis=1) if len(by_class) else np.zeros(0)
            found = (right == said) * task.evaluation_cells + _bin(bins, largest)
    return np.where(known, found, -1).astype(np.int64)


def probabilities(task: TrainModel, scores: NDArray[Any]) -> Floats:
    """Logits as the probability of true, or as those of the classes; what is not finite counts as if it were not there.

    Those of a row are a function of that row alone, bit for bit.

    >>> from dp_pipelines.query.train_model import Number
    >>> features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features)
    >>> probabilities(task, np.array([0.0, 800.0, float("nan")])).tolist()
    [0.5, 1.0, 0.5]
    """
    logits = np.nan_to_num(np.asarray(scores, np.float64), nan=0.0, posinf=1e300, neginf=-1e300)
    if isinstance(task.label, BinaryLabel):
        small = exponential(-np.abs(logits))
        return np.where(logits >= 0, 1.0, small) / (1.0 + small)
    largest = logits.max(axis=1, keepdims=True) if len(logits) else logits[:, :1]
    with np.errstate(over="ignore"):
        powers = exponential(logits - largest)
    whole = np.zeros(len(powers))
    for power in powers.T:
        whole += power
    return np.asarray(powers / whole[:, None])


def summary(task: TrainModel, counts: Sequence[float] | Floats, stddev: float) -> Evaluation:
    """What released counts say of a model.

    Args:
        task: the task.
        counts: the released counts, of all cells that there are (`training_parts.cell_count`) or of those that are used.
        stddev: of the noise of each.

    Raises:
        RequestError: they are not as many as the task has cells, or no finite numbers.

    >>> from dp_pipelines.query.train_model import Number
    >>> features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features, evaluation_cells=4)
    >>> found = summary(task, [40, 30, 20, 10, 10, 20, 30, 40], 0.0)
    >>> found.measures["accuracy"].value, found.measures["auc"].value
    (0.7, 0.75)
    """
    values, used = np.asarray(counts, np.float64), cell_count(task)
    sound = values.shape in ((used,), (training_parts.cell_count(task),)) and np.isfinite(values).all()
    if not sound or not 0 <= stddev < math.inf:
        raise RequestError(field="counts", message=f"must be {used} finite numbers with a standard deviation")
    values, per_unit = values[:used], min(task.evaluation_examples, task.max_examples_per_unit)
    kind, bins = kind_of(task), np.array(edges(task))
    seen = Counts(values=np.clip(values, -MOST_COUNTED, MOST_COUNTED), stddev=float(stddev), per_unit=per_unit)
    of_kind = {"binary": _binary, "classes": _classes, "confidence": _confidence, "numbers": _numbers}[kind]
    with np.errstate(all="ignore"):  # what is no number becomes None
        return Evaluation(
            kind=kind,
            cells=tuple(values.tolist()),
            stddev=float(stddev),
            examples_per_unit=per_unit,
            edges=tuple(bins.tolist()),
            classes=tuple(task.label.classes) if isinstance(task.label, ClassLabel) else (),
            examples=seen.number(np.ones(len(values))),
            **of_kind(task, seen, bins),
        )


def middles(bins: Floats) -> Floats:
    """The value that stands for each bin."""
    return np.asarray((bins[:-1] + bins[1:]) / 2)


def _bin(bins: Floats, values: Floats) -> NDArray[np.int64]:
    return np.clip(np.searchsorted(bins, values, side="right") - 1, 0, len(bins) - 2).astype(np.int64)


def _binary(task: TrainModel, seen: Counts, bins: Floats) -> dict[str, Any]:
    count, middle = len(bins) - 1, middles(bins)
    true = np.repeat([0.0, 1.0], count)
    said, above = np.tile(middle, 2), np.tile((bins[:-1] >= 0.5).astype(float), 2)
    everything = np.ones(2 * count)
    safe = np.clip(said, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    loss = -np.where(true > 0, np.log(safe), np.log1p(-safe))
    right = (true == above).astype(float)
    auc, ties = measures.auc(seen)
    curve = []
    for edge in range(count - 1, 0, -1):
        over = np.tile((np.arange(count) >= edge).astype(float), 2)
        curve.append((seen.share(over * (1 - true), 1 - true), seen.share(over * true, true)))
    return {
        "measures": {
            "auc": auc,
            "accuracy": seen.share(right, everything),
            "base_rate": seen.share(true, everything),
            "log_loss": seen.ratio(loss, everything),
            "brier": seen.ratio((said - true) ** 2, everything),
        },
        "calibration": measures.points(seen, bins, said, true, np.tile(np.arange(count), 2)),
        "roc": tuple(curve),
        "confusion": tuple(
            tuple(seen.number(((true == t) & (above == a)).astype(float)) for a in (0, 1)) for t in (0, 1)
        ),
        "ties": ties,
    }


def _classes(task: TrainModel, seen: Counts, bins: Floats) -> dict[str, Any]:
    count = task.label.outputs
    true, said = np.divmod(np.arange(count**2), count)
    right = (true == said).astype(float)
    recalls = [seen.share(right * (true == which), (true == which).astype(float)) for which in range(count)]
    return {
        "measures": {
            "accuracy": seen.share(right, np.ones(count**2)),
            "balanced_accuracy": measures.mean(recalls),
        },
        "confusion": tuple(
            tuple(seen.number(((true == t) & (said == s)).astype(float)) for s in range(count)) for t in range(count)
        ),
    }


def _confidence(task: TrainModel, seen: Counts, bins: Floats) -> dict[str, Any]:
    count = len(bins) - 1
    right, said = np.repeat([0.0, 1.0], count), np.tile(middles(bins), 2)
    return {
        "measures": {"accuracy": seen.share(right, np.ones(2 * count))},
        "calibration": measures.points(seen, bins, said, right, np.tile(np.arange(count), 2)),
    }


def _numbers(task: TrainModel, seen: Counts, bins: Floats) -> dict[str, Any]:
    count, middle = len(bins) - 1, middles(bins)
    at_true, at_said = np.divmod(np.arange(count**2), count)
    true, said = middle[at_true], middle[at_said]
    everything = np.ones(count**2)
    return {
        "measures": {
            "rmse": measures.root(seen.ratio((true - said) ** 2, everything)),
            "mae": seen.ratio(np.abs(true - said), everything),
            "r2": measures.explained(seen, true, said),
        },
        "calibration": measures.points(seen, bins, said, true, at_said, share=False),
        "confusion": tuple(
            tuple(seen.number(((at_true == t) & (at_said == s)).astype(float)) for s in range(count))
            for t in range(count)
        ),
    }
