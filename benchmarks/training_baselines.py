"""What the benchmark of models compares with: models without privacy, and other ways to make training private.

In: the examples of one task. Out: results by name. Holds: the same users are held out as for ours. Without privacy: logistic
regression on the same encoding (bins from the exact quantiles) and boosted trees on the features as they are. Private
otherwise, with the budget of the same steps spent on training alone: Laplace noise on gradients clipped in L1 (pure
differential privacy for a user), and examples as privacy units (which protects one basket, not a customer).
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from dp_pipelines.plan_stages import training_parts
from dp_pipelines.query.train_model import Category, TrainModel
from dp_pipelines.training import trainer
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.features import moments
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.kernels.linear import LinearKernel

LOGISTIC, TREES = "logistic regression without privacy", "boosted trees without privacy"
LAPLACE = "Laplace noise on every step, epsilon 1 for training alone"
BASKETS = "one basket as the unit, epsilon 1 for training alone"

Judge = Callable[[Any, Any], Any]


def all_of(data: Any, task: TrainModel, splits: int, judged: Judge) -> dict[str, list[Any]]:
    """The results of all baselines, one for each division of the users."""
    found: dict[str, list[Any]] = {LOGISTIC: [], TREES: [], LAPLACE: [], BASKETS: []}
    for number in range(splits):
        training, held_out = data.parts(task, f"split {number}".encode())
        encoder = exact_encoder(task, training)
        labels, true = encoder.labels(training), encoder.labels(held_out)
        rows, tested = encoder.encode(training).astype(np.float64), encoder.encode(held_out).astype(np.float64)
        linear = LogisticRegression(max_iter=1000).fit(rows, labels)
        found[LOGISTIC].append(judged(linear.decision_function(tested), true))
        trees = HistGradientBoostingClassifier(max_iter=200, learning_rate=0.05, random_state=number)
        trees.fit(plain(task, training), labels)
        found[TREES].append(judged(trees.decision_function(plain(task, held_out)), true))
        units = np.unique(training.column(task.unit_columns[0]).to_numpy(zero_copy_only=False), return_inverse=True)[1]
        whitening = whitened(rows, units)
        found[LAPLACE].append(judged(tested @ whitening @ laplace(rows @ whitening, labels, units), true))
        found[BASKETS].append(judged(tested @ whitening @ by_examples(rows @ whitening, labels, task), true))
    return found


def exact_encoder(task: TrainModel, training: pa.Table) -> Encoder:
    """The encoder with exact quantiles: not private."""
    edges = {}
    for name, number in training_parts.binned(task).items():
        column = training.column(number.column).cast(pa.float64()).drop_null().to_numpy()
        cuts = np.quantile(column, np.arange(1, number.cells) / number.cells)
        edges[name] = tuple(np.clip(cuts, number.min_value, number.max_value))
    return Encoder.of(task, edges=edges)


def logistic(encoder: Encoder, training: pa.Table, held_out: pa.Table) -> Any:
    """Scores of held-out examples by logistic regression on the same encoding."""
    linear = LogisticRegression(max_iter=1000).fit(encoder.encode(training), encoder.labels(training))
    return linear.decision_function(encoder.encode(held_out))


def plain(task: TrainModel, table: pa.Table) -> Any:
    """The features as numbers, categories by their place in the list."""
    columns = []
    for feature in task.features.values():
        column = table.column(feature.column)
        if isinstance(feature, Category):
            places = {value: place for place, value in enumerate(feature.categories or ())}
            columns.append([places.get(value, -1) for value in column.to_pylist()])
        else:
            columns.append(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
    return np.array(columns, float).T


def whitened(rows: Any, units: Any) -> Any:
    """The matrix that whitens features, from exact moments: better than a private one can be."""
    upper = np.triu_indices(rows.shape[1])
    number = len(np.unique(units))
    weights = np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
    return moments.directions((rows.T @ rows)[upper] * weights * number / len(rows), float(number), 0.0).whitening


def laplace(rows: Any, labels: Any, units: Any, epsilon: float = 1.0, steps: int = 40, clip: float = 30.0) -> Any:
    """Full-batch steps, each user's summed gradient clipped to an L1 norm, Laplace noise; epsilons of steps add up.

    The clip norm is the best of 10, 30, 100 and 300 on the first division.
    """
    random = np.random.default_rng()
    order = np.argsort(units, kind="stable")
    rows, labels, starts = rows[order], labels[order], np.flatnonzero(np.diff(units[order], prepend=-1))
    weights = averaged = np.zeros(rows.shape[1])
    momentum = np.zeros(rows.shape[1])
    for step in range(steps):
        slopes = 1 / (1 + np.exp(-rows @ weights)) - labels
        gradients = np.add.reduceat(rows * slopes[:, None], starts)
        gradients *= np.minimum(1, clip / np.maximum(np.abs(gradients).sum(axis=1), 1e-12))[:, None]
        noisy = gradients.sum(axis=0) + random.laplace(0, clip * steps / epsilon, len(weights))
        momentum = 0.8 * momentum + noisy / len(rows)
        weights = weights - 4 * momentum
        averaged = averaged + weights * (step >= steps // 2)
    return averaged / (steps - steps // 2)


class OneRowEach:
    """Examples of which each is a unit of its own."""

    def __init__(self, rows: Any, labels: Any) -> None:
        self._rows, self._labels = rows.astype(np.float32), labels

    @property
    def units(self) -> int:
        """The number of examples."""
        return len(self._rows)

    def chunks(self, units_per_chunk: int) -> Iterator[Chunk]:
        """All of them."""
        for begin in range(0, self.units, units_per_chunk):
            part = slice(begin, begin + units_per_chunk)
            yield Chunk(self._rows[part], self._labels[part], np.arange(len(self._rows[part]) + 1))

    def take(self, units: Any) -> Chunk:
        """Some of them."""
        return Chunk(self._rows[units], self._labels[units], np.arange(len(units) + 1))


def by_examples(rows: Any, labels: Any, task: TrainModel) -> Any:
    """Our trainer with one example as the unit, and the noise of (1, 1e-6) for training alone: mu = 0.2737 over all steps."""
    kernel = LinearKernel(width=rows.shape[1], label=task.label)
    steps = task.steps
    multiplier = Fraction(math.ceil(math.sqrt(steps.steps) / 0.2737 * 1024), 1024)

    class Forgets:
        def get(self, name: str) -> bytes | None:
            return self.__dict__.get(name)

        def keep(self, name: str, content: bytes) -> None:
            self.__dict__[name] = content

    found = trainer.train(
        kernel,
        OneRowEach(rows, labels),
        steps,
        clip_norm=0.5 * math.sqrt(rows.shape[1]),
        multiplier=multiplier,
        divisor=float(len(rows)),
        draws=Forgets(),
        name="baskets",
    )
    return found.parameters
