"""Checks the types of a model's columns before a row is read.

In: a schema, a `TrainModel` or parts of it. Out: every problem, as `RequestError`s with column, message and hint.
Holds: types and declared values are public; nothing here looks at rows. Numbers are integers, floats, decimals and
booleans; times are neither numbers nor categories.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.query.train_model import BinaryLabel, Category, ClassLabel, Feature, Label, TrainModel
from dp_pipelines.training.features import category_values


def wrong_types(schema: pa.Schema, task: TrainModel) -> dict[str, RequestError]:
    """What is wrong with the columns of a task, by name of the feature, or `label`; empty if nothing is.

    Args:
        schema: of the examples: source, defined and unit columns.
        task: what is trained.

    >>> from dp_pipelines.query.train_model import BinaryLabel, Number
    >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"),
    ...                   features={"x": Number(column="day", min_value=0, max_value=1)})
    >>> schema = pa.schema([("u", pa.int64()), ("y", pa.bool_()), ("day", pa.date32())])
    >>> wrong_types(schema, task)["x"].message
    'has type date32[day], which is no number'
    """
    wrong = {**of_features(schema, task.features), **of_label(schema, task.label)}
    used = {name: feature.column for name, feature in task.features.items()} | {"label": task.label.column}
    for name, column in used.items():
        if column in task.unit_columns:
            message = "is part of the privacy unit: a model that knows it would learn people by heart"
            wrong[name] = RequestError(field=f"column {column!r}", message=message, hint="name another column")
    return wrong


def of_features(schema: pa.Schema, features: Mapping[str, Feature]) -> dict[str, RequestError]:
    """What is wrong with the columns of features, by their names."""
    found = {}
    for name, feature in features.items():
        declared = feature.categories or () if isinstance(feature, Category) else None
        found[name] = _of_column(schema, feature.column, declared)
    return {name: error for name, error in found.items() if error is not None}


def of_label(schema: pa.Schema, label: Label) -> dict[str, RequestError]:
    """What is wrong with the column of a label, as `label`."""
    error = _of_column(schema, label.column, label.classes if isinstance(label, ClassLabel) else None)
    if error is None:
        return {}
    if isinstance(label, BinaryLabel) and schema.names.count(label.column) == 1:
        kind = keys.plain_type(schema.field(label.column).type)
        hint = f'compare it, e.g. columns: {{{label.column}_is: "{label.column} = ..."}}'
        message = f"has type {kind}, which is neither true nor false"
        error = RequestError(field=error.field, message=message, hint=hint)
    return {"label": error}


def of_groups(schema: pa.Schema, task: TrainModel) -> RequestError | None:
    """What is wrong with the column of the groups by which a model is evaluated; None if nothing is."""
    by = task.evaluation_by
    return None if by is None else _of_column(schema, by.column, by.groups)


def whole_columns(schema: pa.Schema) -> frozenset[str]:
    """The columns whose type holds whole numbers or truths alone.

    >>> sorted(whole_columns(pa.schema([("n", pa.int16()), ("x", pa.float64()), ("b", pa.bool_())])))
    ['b', 'n']
    """
    plain = {name: keys.plain_type(kind) for name, kind in zip(schema.names, schema.types, strict=True)}
    return frozenset(name for name, kind in plain.items() if pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _of_column(schema: pa.Schema, name: str, declared: Sequence[Any] | None) -> RequestError | None:
    """What is wrong with a column of numbers (`declared` is None) or of categories."""
    field = f"column {name!r}"
    if schema.names.count(name) != 1:
        hint = "define it in columns or unit_columns, or name another one"
        return RequestError(field=field, message="is not a column of the examples, or not a single one", hint=hint)
    plain = keys.plain_type(schema.field(name).type)
    kind = category_values.kind_of_type(plain)
    if declared is None:
        if kind.numeric:
            return None
        hint = f'make one of it, e.g. columns: {{{name}_number: "CAST({name} AS DOUBLE)"}}'
        return RequestError(field=field, message=f"has type {plain}, which is no number", hint=hint)
    if not kind.listed:
        hint = f'cast it, e.g. columns: {{{name}_text: "CAST({name} AS VARCHAR)"}}'
        message = f"has type {plain}, which is no category: text, whole numbers, truths and dates are"
        return RequestError(field=field, message=message, hint=hint)
    if any(kind.fitting(value) is None for value in declared):
        message = f"holds {kind.words}, and a declared value is none of them"
        return RequestError(field=field, message=message, hint="write the values as what the column holds")
    return None
