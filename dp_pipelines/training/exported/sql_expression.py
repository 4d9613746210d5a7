"""A linear model as one SQL expression over the columns of its features.

In: an artefact, a dialect, which result. Out: text. Holds: the sum of a row's weights is added up as `Encoder.products`
does, so scores have the same bits; nulls, NaN, infinities, values on a cut and unlisted categories are what they are in
`predict`; text is compared by its code points, whatever the collation. Not covered: models that are not linear; how rows
become examples (the job's `where`, `columns`, `unit_columns`); the last digits of probabilities, which are those of the
database's exponential.
"""

# PostgreSQL ends a query where a double overflows, or becomes zero by underflow. So weights that could overflow are refused,
# smaller ones than `LEAST_WEIGHT` are written as zero, and exponents are kept within `MOST_EXPONENT`, as `exponential` does.

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.query.train_model import BinaryLabel, Category, ClassLabel, LinearModel, Number, NumberLabel
from dp_pipelines.training import scoring
from dp_pipelines.training.artefact import PREDICTION, PROBABILITIES, PROBABILITY, Artefact, told_classes
from dp_pipelines.training.exported.dialects import Dialect
from dp_pipelines.training.features import category_values
from dp_pipelines.training.features.encoder import STEPS

Floats = NDArray[np.float64]

LEAST_WEIGHT, MOST_WEIGHT = 1e-290, 1e300
MOST_EXPONENT = 700.0

TO_WHOLE = 1.5 * 2.0**52
"""A number up to 2**51 plus this, less this, is rounded to a whole one, halves to even: as `numpy.rint`, in any database."""

INNER = "__dp_"
"""Begins the names of columns of inner queries: no column of a job may begin so."""


def results(artefact: Artefact) -> tuple[str, ...]:
    """The results that a model has, the most useful first; `expression` gives each of them."""
    label = artefact.task.label
    if isinstance(label, ClassLabel):
        return PREDICTION, PROBABILITY, PROBABILITIES
    return (PROBABILITY,) if isinstance(label, BinaryLabel) else (PREDICTION,)


def expression(artefact: Artefact, dialect: Dialect, result: str | None = None, *, whole: Sequence[str] = ()) -> str:
    """One result of a linear model, as `Artefact.predict` gives it.

    Args:
        artefact: the model.
        dialect: of the database.
        result: one of `results`; by default the first.
        whole: columns of numbers that are truths in the database, which have to become numbers first.

    Returns:
        an expression over the columns of the features, whose types are those of the job: numbers, text (or an enumeration), whole
        numbers, truths, dates. It is of one line for each feature.

    Raises:
        RequestError: it is not a linear model, has no such result, or cannot be written in this dialect.
    """
    if not isinstance(artefact.task.model, LinearModel):
        message = "is not linear, so it has no form in SQL"
        raise RequestError(field="model", message=message, hint="export it as onnx, or use `dp-pipelines predict`")
    known = results(artefact)
    if result is not None and result not in known:
        raise RequestError(field="--result", message=f"is none of this model: {result!r}", hint=nearest(result, known))
    features = artefact.encoder.features
    dialect.refuse_columns(dict.fromkeys(feature.column for feature in features.values()))
    weights = scoring.linear_weights(artefact.task, artefact.parameters, artefact.whitening)
    refuse_overflow(weights)
    weights = np.where(np.abs(weights) < LEAST_WEIGHT, 0.0, weights)
    scores = [_score(artefact, dialect, weights[:, output], whole) for output in range(weights.shape[1])]
    label = artefact.task.label
    if isinstance(label, ClassLabel):
        return _of_classes(label, dialect, scores, result or known[0])
    if isinstance(label, NumberLabel):
        return _clamped(dialect, scores[0], label.min_value, label.max_value)
    power = f"exp({_clamped(dialect, f'-({scores[0]})', -MOST_EXPONENT, MOST_EXPONENT)})"
    return f"({dialect.number(1)} / ({dialect.number(1)} + {power}))"


def refuse_overflow(weights: Floats) -> None:
    """Refuse weights whose sum may overflow.

    Raises:
        RequestError: they do.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.abs(weights).sum()
    if not most < MOST_WEIGHT:
        message = "has weights so large that their sum overflows"
        raise RequestError(field="model", message=message, hint="train it with a smaller fit: learning_rate")


def _clamped(dialect: Dialect, of: str, low: float, high: float) -> str:
    return f"LEAST(GREATEST({of}, {dialect.number(low)}), {dialect.number(high)})"


def _score(artefact: Artefact, dialect: Dialect, weights: Floats, whole: Sequence[str]) -> str:
    """The sum of a row's weights: the constant's, then a line for each feature."""
    lines, at = [dialect.number(weights[0])], 1
    for name, feature in artefact.encoder.features.items():
        own = weights[at : at + feature.width]
        at += feature.width
        if isinstance(feature, Category):
            lines.append(_category(feature, artefact.encoder.listed(name), dialect, own))
        else:
            lines += _number(feature, artefact.encoder.cuts(name), dialect, own, whole)
    return "\n  + ".join(lines)


def _number(
    feature: Number, cuts: Sequence[float], dialect: Dialect, weights: Floats, whole: Sequence[str]
) -> list[str]:
    column = dialect.column(feature.column)
    if feature.column in whole:
        column = f"CAST({column} AS INTEGER)"
    missing = f"CASE WHEN {column} IS NULL OR {column} = {dialect.not_a_number} THEN"
    # A value is clamped to the range before it is compared: it is never below a cut at the range's begin. Of equal cuts the first
    # comparison decides.
    bins = "".join(
        f" WHEN {column} < {dialect.number(cut)} THEN {dialect.number(weight)}"
        for cut, weight in zip(cuts, weights, strict=False)
        if cut > feature.min_value
    )
    lines = [f"{missing} {dialect.number(weights[feature.cells])}{bins} ELSE {dialect.number(weights[len(cuts)])} END"]
    if feature.scaled:
        low, high = feature.min_value, feature.max_value
        # Up to here a value rounds to no step.
        nothing = dialect.number(low + (high - low) / 2**18)
        part = f"(LEAST({column}, {dialect.number(high)}) - {dialect.number(low)}) / {dialect.number(high - low)}"
        to_whole = dialect.number(TO_WHOLE)
        steps = f"(({part} * {dialect.number(STEPS)} + {to_whole}) - {to_whole}) / {dialect.number(STEPS)}"
        zero = dialect.number(0)
        value = f"{missing} {zero} WHEN {column} <= {nothing} THEN {zero} ELSE {steps} END"
        lines.append(f"{value} * {dialect.number(weights[-1])}")
    return lines


def _category(feature: Category, listed: Sequence[object], dialect: Dialect, weights: Floats) -> str:
    other = dialect.number(weights[-1])
    fitting = category_values.of_one_kind(listed, feature.column)
    branches = "".join(
        f" WHEN {dialect.value(value)} THEN {dialect.number(weight)}"
        for value, weight in zip(listed, weights, strict=False)
        if dialect.can_hold(value)
    )
    if not branches:
        return other
    column = dialect.column(feature.column)
    if fitting is category_values.TEXT:
        column = dialect.as_text(column, (str(value) for value in listed))
    return f"CASE {column}{branches} ELSE {other} END"


def _of_classes(label: ClassLabel, dialect: Dialect, scores: Sequence[str], result: str) -> str:
    """One result of a softmax: its inner queries have one row each, made from the row outside."""
    names = [f"{INNER}{place}" for place in range(len(scores))]
    # In SQL a name may be taken for another column of the same list, so each query has names of its own.
    listed = ", ".join(f"{score} AS {name}s" for score, name in zip(scores, names, strict=True))
    largest = f"GREATEST({', '.join(f'{name}s' for name in names)})"
    first = f"SELECT *, {largest} AS {INNER}most FROM (SELECT {listed}) AS {INNER}scores"  # noqa: S608 - the dialect quotes every value and name
    least = dialect.number(-MOST_EXPONENT)
    powers = ", ".join(f"exp(GREATEST({name}s - {INNER}most, {least})) AS {name}p" for name in names)
    second = f"SELECT {powers} FROM ({first}) AS {INNER}largest"  # noqa: S608 - as above
    whole = " + ".join(f"{name}p" for name in names)
    one = dialect.number(1)
    if result == PROBABILITIES:
        found = "ARRAY[" + ", ".join(f"{name}p / ({whole})" for name in names) + "]"
    elif result == PROBABILITY:
        found = f"{one} / ({whole})"
    else:
        classes = told_classes(label).to_pylist()
        for value in classes:
            if not dialect.can_hold(value):
                message = f"has a class that no column of {dialect.title} can hold"
                raise RequestError(field="model", message=message, hint="export it for duckdb, or as onnx")
        branches = [
            f" WHEN {name}p >= {one} THEN {dialect.value(value)}" for name, value in zip(names, classes, strict=True)
        ]
        found = f"CASE{''.join(branches)} END"
    return f"(SELECT {found} FROM ({second}) AS {INNER}powers)"  # noqa: S608 - as above
