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
from dp_pipelines.extensions.export.dialects import Dialect
from dp_pipelines.query.train_model import BinaryLabel, Category, ClassLabel, LinearModel, Number, NumberLabel
from dp_pipelines.training import scoring
from dp_pipelines.training.artefact import PREDICTION, PROBABILITIES, PROBABILITY, Artefact, told_classes
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
        numbers, truths, dates. It is of one line for each feature and each pair.

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
    """The sum of a row's weights: the constant's, a line for each feature and one for its scaled value, one for each pair."""
    lines, at, encoder = [dialect.number(weights[0])], 1, artefact.encoder
    chosen = {name: _Chosen(artefact, dialect, name, whole) for name in encoder.features}
    for name, feature in encoder.features.items():
        lines.append(chosen[name].of([dialect.number(weight) for weight in weights[at : at + feature.hot]]))
        at += feature.width
        if isinstance(feature, Number) and feature.scaled:
            lines.append(f"{chosen[name].scaled(feature)} * {dialect.number(weights[at - 1])}")
    for first, second in encoder.pairs:
        rows, across = encoder.features[first].hot, encoder.features[second].hot
        own = weights[at : at + rows * across].reshape(rows, across)
        at += rows * across
        inner = [chosen[second].of([dialect.number(weight) for weight in row]) for row in own]
        lines.append(chosen[first].of(inner))
    return "\n  + ".join(lines)


class _Chosen:
    """One of several texts, by the value of a feature.

    Args:
        artefact: the model.
        dialect: of the database.
        name: of the feature.
        whole: columns of numbers that are truths in the database.
    """

    def __init__(self, artefact: Artefact, dialect: Dialect, name: str, whole: Sequence[str]) -> None:
        self._encoder, self._dialect, self._name = artefact.encoder, dialect, name
        self._feature = artefact.encoder.features[name]
        column = dialect.column(self._feature.column)
        self._column = f"CAST({column} AS INTEGER)" if self._feature.column in whole else column
        self._missing = f"CASE WHEN {self._column} IS NULL OR {self._column} = {dialect.not_a_number} THEN"

    def of(self, texts: Sequence[str]) -> str:
        """The text of the column that is 1.

        Args:
            texts: of each of the feature's columns of which a row has exactly one.
        """
        feature = self._feature
        if isinstance(feature, Category):
            return self._of_category(feature, texts)
        # A value is clamped to the range before it is compared: it is never below a cut at the range's begin. Of equal cuts the
        # first comparison decides.
        cuts = self._encoder.cuts(self._name)
        bins = "".join(
            f" WHEN {self._column} < {self._dialect.number(cut)} THEN {text}"
            for cut, text in zip(cuts, texts, strict=False)
            if cut > feature.min_value
        )
        return f"{self._missing} {texts[feature.cells]}{bins} ELSE {texts[len(cuts)]} END"

    def _of_category(self, feature: Category, texts: Sequence[str]) -> str:
        listed = self._encoder.listed(self._name)
        fitting = category_values.of_one_kind(listed, feature.column)
        branches = "".join(
            f" WHEN {self._dialect.value(value)} THEN {text}"
            for value, text in zip(listed, texts, strict=False)
            if self._dialect.can_hold(value)
        )
        if not branches:
            return texts[-1]
        column = self._dialect.column(feature.column)
        if fitting is category_values.TEXT:
            column = self._dialect.as_text(column, (str(value) for value in listed))
        return f"CASE {column}{branches} ELSE {texts[-1]} END"

    def scaled(self, feature: Number) -> str:
        """The value itself, scaled to [0, 1]."""
        low, high, number = feature.min_value, feature.max_value, self._dialect.number
        # Up to here a value rounds to no step.
        nothing = number(low + (high - low) / 2**18)
        part = f"(LEAST({self._column}, {number(high)}) - {number(low)}) / {number(high - low)}"
        steps = f"(({part} * {number(STEPS)} + {number(TO_WHOLE)}) - {number(TO_WHOLE)}) / {number(STEPS)}"
        zero = number(0)
        return f"{self._missing} {zero} WHEN {self._column} <= {nothing} THEN {zero} ELSE {steps} END"


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
