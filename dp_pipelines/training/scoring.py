"""A trained model's scores of encoded rows, in NumPy, and the probabilities they stand for: predictions need no JAX.

In: a task, its parameters, the whitening matrix, encoded rows. Out: a logit, a logit for each class, or a value, for
each row; for a linear model its weights on the encoded columns. Holds: rows are whitened exactly as for training
(`Examples.times`), and scores are those of the kernels; an overflow gives infinity, never an error; where scores are
counted, no row makes the code of a `JaxModel` raise. Not covered: that code, whose object the caller passes in.
"""

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import interrupts
from dp_pipelines.errors import RequestError
from dp_pipelines.query.train_model import MLP, BinaryLabel, JaxModel, LinearModel, NumberLabel, TrainModel
from dp_pipelines.training.examples.store import FEATURE_BITS, whole_numbers
from dp_pipelines.training.kernels import network
from dp_pipelines.training.kernels.exponentials import exponential
from dp_pipelines.training.kernels.linear import LinearKernel

Floats = NDArray[np.float64]


def whitened(rows: NDArray[np.float32], matrix: Floats) -> NDArray[np.float32]:
    """Encoded rows times a matrix, exact before rounding to float32, as in `Examples.times`."""
    whole, exponent = whole_numbers(matrix)
    product = np.rint(rows.astype(np.float64) * 2.0**FEATURE_BITS) @ whole
    return np.ldexp(product, -exponent - FEATURE_BITS).astype(np.float32)


def scores(
    task: TrainModel,
    parameters: Floats,
    whitening: Floats | None,
    rows: NDArray[np.float32],
    *,
    jax_model: Any = None,
    alone: bool = False,
) -> Floats:
    """A model's scores of encoded rows.

    Args:
        task: what the model has learnt.
        parameters: of the model.
        whitening: the matrix, or None.
        rows: from the encoder.
        jax_model: for a `JaxModel`, the object that it names.
        alone: whether the score of a row must depend on that row alone, to the last bit. A released count of scores
            needs it; otherwise a unit might move others' scores across an edge. It is slower: a `JaxModel` scores row
            by row, and a row on which it fails has the score NaN.

    Returns:
        (rows,) or, for classes, (rows, classes).

    Raises:
        RequestError: the object is missing, or does not give such scores.
    """
    features = rows if whitening is None else whitened(rows, whitening)
    if isinstance(task.model, JaxModel):
        if not len(features):  # an object need not handle an empty table, so whether there are rows decides nothing
            return np.zeros((0, task.label.outputs) if task.label.outputs > 1 else 0)
        _refuse_missing(task.model, jax_model)
        fixed = parameters.view()
        fixed.flags.writeable = False
        if not alone:
            return _of_object(task, fixed, features, jax_model)
        with interrupts.watched():
            rows_alone = np.split(features, len(features))
            return np.concatenate([_of_row(task, fixed, row, jax_model) for row in rows_alone])
    if isinstance(task.model, LinearModel):
        return LinearKernel(width=task.width, label=task.label).scores(parameters, features)
    assert isinstance(task.model, MLP)
    shapes = network.shapes(task.width, task.model.hidden, task.label.outputs)
    of = network.scores_alone if alone else network.scores
    return of(shapes, task.label, parameters, features)


def probabilities(task: TrainModel, said: NDArray[Any]) -> Floats:
    """Turn logits into the probability of true, or those of the classes; values that are not finite are ignored.

    The probabilities of a row depend only on that row, bit for bit.

    Args:
        task: a task with classes, possibly binary.
        said: the result of `scores`.

    >>> from dp_pipelines.query.train_model import BinaryLabel, Number
    >>> features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features)
    >>> probabilities(task, np.array([0.0, 800.0, float("nan")])).tolist()
    [0.5, 1.0, 0.5]
    """
    logits = np.nan_to_num(np.asarray(said, np.float64), nan=0.0, posinf=1e300, neginf=-1e300)
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


def linear_weights(task: TrainModel, parameters: Floats, whitening: Floats | None) -> Floats:
    """The weights of a linear model on the encoded columns, in units of the label, whitening undone: columns by outputs.

    The weighted sum of a row is its score; the first column is constant, so its weight is the intercept.
    """
    weights = parameters.reshape(task.label.outputs, task.width).T
    with np.errstate(all="ignore"):
        # Added up in an order that only the shapes decide: scores by these weights are counted.
        weights = weights if whitening is None else np.einsum("ij,jk->ik", whitening, weights)
        if isinstance(task.label, NumberLabel):
            low, high = task.label.min_value, task.label.max_value
            weights = weights * (high - low)
            weights[0] += low
    return weights


def own_code(task: TrainModel, named: str | None, field: str) -> Any:
    """The object that scores a `JaxModel`, imported because the caller names it, never because a file does.

    Args:
        task: the model's task.
        named: `module:attribute`, as the caller gives it.
        field: its name in messages.

    Returns:
        None for other models.

    Raises:
        RequestError: it is not named, is not the model's own, or does not exist.
    """
    if not isinstance(task.model, JaxModel):
        if named is not None:
            raise RequestError(field=field, message="is for models of your own code only", hint="leave it out")
        return None
    if named != task.model.name:
        message = f"must name the code that scores this model, {task.model.name!r}: no file loads code by itself"
        raise RequestError(field=field, message=message, hint="name it if you trust it")
    module, _, attribute = named.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever somebody's code may raise
        message = f"names {named!r}, which cannot be imported: {type(error).__name__}"
        raise RequestError(
            field=field, message=message, hint="put its module on the path, and import it yourself"
        ) from None


def _of_row(task: TrainModel, fixed: Floats, row: NDArray[np.float32], jax_model: Any) -> Floats:
    """What the object says of one row; NaN where that is nothing."""
    try:
        with np.errstate(all="ignore"):  # no row decides whether a warning is printed
            return _of_object(task, fixed, row.copy(), jax_model)
    except BaseException:  # the row may be the reason, so nothing of it is told, whatever its class
        interrupts.end_if_asked()
        return np.full((1, task.label.outputs) if task.label.outputs > 1 else 1, np.nan)


def _of_object(task: TrainModel, fixed: Floats, features: NDArray[np.float32], jax_model: Any) -> Floats:
    # A copy: an object may give the same array each time, written anew.
    found = np.array(jax_model.scores(fixed, features), np.float64)
    outputs = task.label.outputs
    if found.shape != ((len(features), outputs) if outputs > 1 else (len(features),)):
        message = f"gives scores of the shape {found.shape} for {len(features)} rows and {outputs} outputs"
        raise RequestError(field="jax_model", message=message)
    return found


def _refuse_missing(model: JaxModel, jax_model: Any) -> None:
    if jax_model is None:
        raise RequestError(
            field="jax_model",
            message=f"is missing: this model is scored by {model.name!r}, which no file may load by itself",
            hint="import it and hand it over",
        )
