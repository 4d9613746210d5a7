"""The cells in which held-out examples are counted: one object for each kind, chosen by the label.

In: the task; scores and labels of examples; then the counts. Out: the public edges of the bins, the cell of each
example, the measures that follow from the counts. Holds: the cell of an example depends only on its own score and
label; edges are public; no other module asks which kind of cells a task has. Not covered: the release of the counts
(training.evaluation).
"""

import abc
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.plan_stages import training_parts
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, NumberLabel, TrainModel
from dp_pipelines.training import measures
from dp_pipelines.training.measures import Counts
from dp_pipelines.training.scoring import probabilities

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

SPREAD = 2.0
"""Edges are evenly spaced in u, where logit(p) = SPREAD * logit(u). Compared with even edges in p, they are half as far
apart near 0 and 1, and about twice as far in the middle. With 32 bins they lose .001 of the AUC for scores around even
odds, and .007 instead of .09 for a label of 1 in 100."""

LEAST_PROBABILITY = 1e-6
"""The logarithmic loss clips probabilities to stay this far from 0 and 1."""


class CellKind(abc.ABC):
    """A kind of cells."""

    name: ClassVar[str]
    """Its name in `evaluation.json`."""

    @abc.abstractmethod
    def fits(self, task: TrainModel) -> bool:
        """Whether examples of the task are counted in such cells."""

    @abc.abstractmethod
    def count(self, task: TrainModel) -> int:
        """The number of cells in use."""

    @abc.abstractmethod
    def edges(self, task: TrainModel) -> tuple[float, ...]:
        """The public edges of the bins; none if cells are not bins."""

    @abc.abstractmethod
    def cells(self, task: TrainModel, bins: Floats, truth: Floats, scores: NDArray[Any]) -> Places:
        """The cell of each example.

        Args:
            task: the task.
            bins: the edges.
            truth: finite labels.
            scores: as kernels give them.
        """

    @abc.abstractmethod
    def measured(self, task: TrainModel, bins: Floats, seen: Counts) -> dict[str, Any]:
        """The fields of `evaluation.Evaluation` that follow from the counts of all cells."""


class BinaryCells(CellKind):
    """For a binary label: label by bin of the probability."""

    name = "binary"

    def fits(self, task: TrainModel) -> bool:
        """See `CellKind`."""
        return isinstance(task.label, BinaryLabel)

    def count(self, task: TrainModel) -> int:
        """See `CellKind`."""
        return 2 * task.evaluation_cells

    def edges(self, task: TrainModel) -> tuple[float, ...]:
        """See `CellKind`."""
        return _of_probability(task)

    def cells(self, task: TrainModel, bins: Floats, truth: Floats, scores: NDArray[Any]) -> Places:
        """See `CellKind`."""
        return (truth > 0.5) * task.evaluation_cells + _bin(bins, probabilities(task, scores))

    def measured(self, task: TrainModel, bins: Floats, seen: Counts) -> dict[str, Any]:
        """See `CellKind`."""
        count, middle = len(bins) - 1, middles(bins)
        true = np.repeat([0.0, 1.0], count)
        said, above = np.tile(middle, 2), np.tile((bins[:-1] >= 0.5).astype(float), 2)
        everything = np.ones(2 * count)
        safe = np.clip(said, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        loss = -np.where(true > 0, np.log(safe), np.log1p(-safe))
        right = (true == above).astype(float)
        auc, ties = measures.auc(seen, bins)
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
            "thresholds": measures.thresholds(seen, bins),
            "baselines": {"majority": {"accuracy": measures.largest_share(seen, [1 - true, true])}},
        }


class ClassCells(CellKind):
    """For a few classes: true by predicted class."""

    name = "classes"

    def fits(self, task: TrainModel) -> bool:
        """See `CellKind`."""
        return isinstance(task.label, ClassLabel) and len(task.label.classes) ** 2 <= 2 * task.evaluation_cells

    def count(self, task: TrainModel) -> int:
        """See `CellKind`."""
        return task.label.outputs**2

    def edges(self, task: TrainModel) -> tuple[float, ...]:
        """See `CellKind`."""
        return ()

    def cells(self, task: TrainModel, bins: Floats, truth: Floats, scores: NDArray[Any]) -> Places:
        """See `CellKind`."""
        return truth.astype(np.int64) * task.label.outputs + _said(probabilities(task, scores))

    def measured(self, task: TrainModel, bins: Floats, seen: Counts) -> dict[str, Any]:
        """See `CellKind`."""
        count = task.label.outputs
        true, said = np.divmod(np.arange(count**2), count)
        right = (true == said).astype(float)
        recalls = [seen.share(right * (true == which), (true == which).astype(float)) for which in range(count)]
        return {
            "measures": {
                "accuracy": seen.share(right, np.ones(count**2)),
                "balanced_accuracy": measures.mean(recalls),
            },
            "baselines": {
                "majority": {
                    "accuracy": measures.largest_share(seen, [(true == which).astype(float) for which in range(count)])
                }
            },
            "confusion": tuple(
                tuple(seen.number(((true == t) & (said == s)).astype(float)) for s in range(count))
                for t in range(count)
            ),
        }


class ConfidenceCells(CellKind):
    """For many classes: right or wrong by bin of the largest probability."""

    name = "confidence"

    def fits(self, task: TrainModel) -> bool:
        """See `CellKind`."""
        return isinstance(task.label, ClassLabel) and len(task.label.classes) ** 2 > 2 * task.evaluation_cells

    def count(self, task: TrainModel) -> int:
        """See `CellKind`."""
        return 2 * task.evaluation_cells

    def edges(self, task: TrainModel) -> tuple[float, ...]:
        """See `CellKind`."""
        return _of_probability(task)

    def cells(self, task: TrainModel, bins: Floats, truth: Floats, scores: NDArray[Any]) -> Places:
        """See `CellKind`."""
        by_class = probabilities(task, scores)
        largest = by_class.max(axis=1) if len(by_class) else np.zeros(0)
        right: NDArray[np.bool_] = truth.astype(np.int64) == _said(by_class)
        return np.asarray(right * task.evaluation_cells + _bin(bins, largest), np.int64)

    def measured(self, task: TrainModel, bins: Floats, seen: Counts) -> dict[str, Any]:
        """See `CellKind`."""
        count = len(bins) - 1
        right, said = np.repeat([0.0, 1.0], count), np.tile(middles(bins), 2)
        return {
            "measures": {"accuracy": seen.share(right, np.ones(2 * count))},
            "calibration": measures.points(seen, bins, said, right, np.tile(np.arange(count), 2)),
        }


class NumberCells(CellKind):
    """For a number: bin of the true value by bin of the predicted one."""

    name = "numbers"

    def fits(self, task: TrainModel) -> bool:
        """See `CellKind`."""
        return isinstance(task.label, NumberLabel)

    def count(self, task: TrainModel) -> int:
        """See `CellKind`."""
        return _places(task) ** 2

    def edges(self, task: TrainModel) -> tuple[float, ...]:
        """See `CellKind`."""
        assert isinstance(task.label, NumberLabel)
        places, low, high = _places(task), float(task.label.min_value), float(task.label.max_value)
        return tuple(low * (1 - at / places) + high * (at / places) for at in range(places + 1))

    def cells(self, task: TrainModel, bins: Floats, truth: Floats, scores: NDArray[Any]) -> Places:
        """See `CellKind`: a score that is not finite counts as the middle."""
        values = np.nan_to_num(np.asarray(scores, np.float64), nan=float((bins[0] + bins[-1]) / 2))
        return _bin(bins, truth) * (len(bins) - 1) + _bin(bins, values)

    def measured(self, task: TrainModel, bins: Floats, seen: Counts) -> dict[str, Any]:
        """See `CellKind`."""
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
            "baselines": {"mean": {"rmse": measures.around_mean(seen, true)}},
            "calibration": measures.points(seen, bins, said, true, at_said, share=False),
            "confusion": tuple(
                tuple(seen.number(((at_true == t) & (at_said == s)).astype(float)) for s in range(count))
                for t in range(count)
            ),
        }


KINDS: tuple[CellKind, ...] = (BinaryCells(), ClassCells(), ConfidenceCells(), NumberCells())
"""All kinds of cells; each task has one of them."""


def kind_of(task: TrainModel) -> CellKind:
    """The kind of cells of a task."""
    return next(kind for kind in KINDS if kind.fits(task))


def middles(bins: Floats) -> Floats:
    """The value that stands for each bin."""
    return np.asarray((bins[:-1] + bins[1:]) / 2)


def _bin(bins: Floats, values: Floats) -> Places:
    return np.clip(np.searchsorted(bins, values, side="right") - 1, 0, len(bins) - 2).astype(np.int64)


def _said(by_class: Floats) -> Places:
    """The class with the largest probability."""
    return np.argmax(by_class, axis=1) if len(by_class) else np.zeros(0, np.int64)


def _places(task: TrainModel) -> int:
    """The number of bins for a number: true and predicted bins make a square of cells."""
    return math.isqrt(training_parts.cell_count(task))


def _of_probability(task: TrainModel) -> tuple[float, ...]:
    """Edges of probabilities, 1/2 among them."""
    count = task.evaluation_cells
    below = count // 2
    even = [0.5 * at / below for at in range(below)] + [0.5 + 0.5 * at / (count - below) for at in range(count - below)]
    odds = ((u / (1 - u)) ** SPREAD for u in even)
    return (*(float(f"{odd / (1 + odd):.12g}") for odd in odds), 1.0)
