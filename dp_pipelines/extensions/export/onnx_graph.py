"""A linear model or a network as an ONNX graph: from the columns of its features to what `predict` says of them.

In: an artefact. Out: a checked `onnx.ModelProto`. Holds: sums of weights are added up in float64 as `Encoder.products`
does, a network's layers in float32 as `scoring` does; NaN, infinities, values on a cut and unlisted categories are what
they are in `predict`. Not covered: nulls, which ONNX does not have (`missing_values` says what to write instead); the code
of a `JaxModel`; how rows become examples.
"""

# Only operators that onnxruntime has for float64, of a set that is some years old. Every feature becomes a place, the number
# of the one of its columns that is 1, and the place takes a row out of a table: of weights, or, for a network, of the
# whitening matrix.

import importlib.util
import itertools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.export.sql_expression import MOST_EXPONENT, refuse_overflow
from dp_pipelines.query.train_model import MLP, BinaryLabel, Category, ClassLabel, JaxModel, LinearModel, Number
from dp_pipelines.training import scoring
from dp_pipelines.training.artefact import PREDICTION, PROBABILITIES, PROBABILITY, RESULTS, Artefact, told_classes
from dp_pipelines.training.features import category_values
from dp_pipelines.training.features.category_values import ValueKind
from dp_pipelines.training.features.encoder import STEPS
from dp_pipelines.training.kernels import network

if TYPE_CHECKING:
    import onnx

Floats = NDArray[np.float64]

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
"""Versions that programs of 2022 read."""

MOST_SINGLE = 1e37
"""What a network may add up: far below what float32 holds."""

ROWS = "rows"
"""The name of the number of rows of inputs and outputs."""


def onnx_model(artefact: Artefact) -> "onnx.ModelProto":
    """A model as a graph.

    Args:
        artefact: the model, of any kind but a `JaxModel`.

    Returns:
        a model whose inputs are the columns of the features, each (rows,): float64 numbers with NaN for none, text, int64 for
        whole numbers and truths, dates as text such as 2026-01-31; see `missing_values`. Its outputs are those of
        `Artefact.predict`, `probabilities` as (rows, classes).

    Raises:
        RequestError: the library is not installed, or ONNX cannot hold the model.
    """
    if importlib.util.find_spec("onnx") is None:
        message = "needs the library onnx, not installed here"
        raise RequestError(field="--format onnx", message=message, hint="pip install 'dp-pipelines[onnx]'")
    if isinstance(artefact.task.model, JaxModel):
        message = "is code of your own, which has no form in ONNX"
        raise RequestError(field="model", message=message, hint="use `dp-pipelines predict --jax-model`")
    import onnx
    from onnx import helper

    kinds = _kinds(artefact)
    for column in kinds:
        if column in RESULTS:
            message = "has the name of a result"
            raise RequestError(field=f"column {column!r}", message=message, hint="rename it in the job's columns")
    building = _Graph()
    inputs = [
        helper.make_tensor_value_info(column, building.types[_tensor(kind)], [ROWS]) for column, kind in kinds.items()
    ]
    if isinstance(artefact.task.model, LinearModel):
        weights = scoring.linear_weights(artefact.task, artefact.parameters, artefact.whitening)
        refuse_overflow(weights)
        scores = _products(building, artefact, weights)
    else:
        scores = _network(building, artefact)
    outputs = _outputs(building, artefact, scores)
    graph = helper.make_graph(building.nodes, "dp_pipelines", inputs, outputs, building.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="dp_pipelines")
    model.doc_string = artefact.privacy.words
    missing = json.dumps(missing_values(artefact), sort_keys=True)
    helper.set_model_props(model, {"plan": artefact.privacy.plan, "missing": missing})
    onnx.checker.check_model(model, full_check=True)
    return model


def missing_values(artefact: Artefact) -> dict[str, Any]:
    """What to write in place of a null, by column of a category; for a number it is NaN.

    Any value that is not listed does: this is one that certainly is not. Errors as for `onnx_model`.
    """
    found: dict[str, Any] = {}
    for column, kind in _kinds(artefact).items():
        if kind is not None:
            own = (item for item in artefact.encoder.features.items() if item[1].column == column)
            listed = {_written(value) for name, _ in own for value in artefact.encoder.listed(name)}
            if _tensor(kind) is str:
                candidates: Any = itertools.chain([""], (f"missing {number}" for number in itertools.count()))
            else:
                candidates = itertools.count(-1, -1)
            found[column] = next(value for value in candidates if value not in listed)
    return found


class _Graph:
    """Nodes and constants, each with a name of its own, which begins as no column does."""

    def __init__(self) -> None:
        from onnx import TensorProto, helper, numpy_helper

        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.types = {float: TensorProto.DOUBLE, int: TensorProto.INT64, str: TensorProto.STRING}
        self.casts = {np.float64: TensorProto.DOUBLE, np.float32: TensorProto.FLOAT, np.int64: TensorProto.INT64}
        self._helper, self._numpy_helper = helper, numpy_helper

    def constant(self, value: Any, kind: Any = np.float64) -> str:
        """The name of a constant array."""
        name = f"__constant_{len(self.constants)}"
        self.constants.append(self._numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def node(self, operator: str, *inputs: str, name: str = "", **settings: Any) -> str:
        """The name of a node's result."""
        result = name or f"__{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(operator, list(inputs), [result], **settings))
        return result

    def cast(self, of: str, kind: Any) -> str:
        """As another type of numbers."""
        return self.node("Cast", of, to=self.casts[kind])

    def column(self, of: str) -> str:
        """(rows,) as (rows, 1)."""
        return self.node("Unsqueeze", of, self.constant([1], np.int64))


def _kinds(artefact: Artefact) -> dict[str, ValueKind | None]:
    """For each column of the features the kind of its categories, or None for numbers."""
    found: dict[str, ValueKind | None] = {}
    listed: dict[str, list[Any]] = {}
    for name, feature in artefact.encoder.features.items():
        if isinstance(feature, Category):
            listed.setdefault(feature.column, []).extend(artefact.encoder.listed(name))
    for feature in artefact.encoder.features.values():
        kind = None
        if isinstance(feature, Category):
            own = listed[feature.column]
            # Where no category was found, the column has the type that it has in training all the same.
            kind = category_values.of_one_kind(own, feature.column) if own else _of_source(artefact, feature.column)
        if found.setdefault(feature.column, kind) is not kind:
            message = (
                "is read in two ways, as number and as category or as two kinds of category, and an input has one type"
            )
            raise RequestError(field=f"column {feature.column!r}", message=message, hint="use `dp-pipelines predict`")
    return found


def _of_source(artefact: Artefact, column: str) -> ValueKind:
    """The kind of a column of the source; text where that is not known."""
    preparation = artefact.preparation
    made = column in preparation.columns or column in preparation.unit_columns
    try:
        kind = category_values.kind_of_type(pa.type_for_alias("" if made else preparation.source.get(column, "")))
    except ValueError:
        return category_values.TEXT
    return category_values.TEXT if kind.of_value is None else kind


def _tensor(kind: ValueKind | None) -> type:
    if kind is None:
        return float
    return int if kind.numeric else str


def _written(value: Any) -> Any:
    """A category as the input has it."""
    kind = category_values.kind_of(value)
    return int(value) if kind.numeric else str(kind.written(value))


def _products(building: _Graph, artefact: Artefact, table: Floats) -> str:
    """Each encoded row times a table (width, outputs), added up feature by feature, then pair by pair: (rows, outputs)."""
    total, at = building.constant(table[:1]), 1
    places: dict[str, str] = {}
    for name, feature in artefact.encoder.features.items():
        own = table[at : at + feature.width]
        at += feature.width
        value = ""
        if isinstance(feature, Category):
            places[name] = _category(building, feature, artefact.encoder.listed(name), missing_values(artefact))
        else:
            places[name], value = _number(building, feature, artefact.encoder.cuts(name))
        total = building.node("Add", total, building.node("Gather", building.constant(own), places[name]))
        if value:
            scaled = building.node("Mul", building.column(value), building.constant(own[-1:]))
            total = building.node("Add", total, scaled)
    for first, second in artefact.encoder.pairs:
        rows, across = artefact.encoder.features[first].hot, artefact.encoder.features[second].hot
        own = table[at : at + rows * across]
        at += rows * across
        begin = building.node("Mul", places[first], building.constant(across, np.int64))
        place = building.node("Add", begin, places[second])
        total = building.node("Add", total, building.node("Gather", building.constant(own), place))
    return total


def _number(building: _Graph, feature: Number, cuts: Sequence[float]) -> tuple[str, str]:
    """Which column of a number's is 1, and the scaled value, if there is one."""
    missing = building.node("IsNaN", feature.column)
    low, high = building.constant(feature.min_value), building.constant(feature.max_value)
    clamped = building.node("Max", building.node("Min", feature.column, high), low)
    place = building.constant(0, np.int64)
    if cuts:
        above = building.node("GreaterOrEqual", building.column(clamped), building.constant(list(cuts)))
        counted = building.cast(above, np.int64)
        place = building.node("ReduceSum", counted, building.constant([1], np.int64), keepdims=0)
    place = building.node("Where", missing, building.constant(feature.cells, np.int64), place)
    if not feature.scaled:
        return place, ""
    part = building.node(
        "Div", building.node("Sub", clamped, low), building.constant(feature.max_value - feature.min_value)
    )
    steps = building.node("Round", building.node("Mul", part, building.constant(STEPS)))
    value = building.node("Div", steps, building.constant(STEPS))
    return place, building.node("Where", missing, building.constant(0.0), value)


def _category(building: _Graph, feature: Category, listed: Sequence[Any], missing: dict[str, Any]) -> str:
    """Which column of a category's is 1."""
    other = feature.width - 1
    places = {_written(value): place for place, value in enumerate(listed)}
    if isinstance(missing[feature.column], str):
        texts = {text: place for text, place in places.items() if not _halves(text)}
        keys: dict[str, Any] = {"keys_strings": [*texts, missing[feature.column]]}
        numbers = [*texts.values(), other]
    else:
        whole = {number: place for number, place in places.items() if -(2**63) <= number < 2**63}
        keys = {"keys_int64s": [*whole, missing[feature.column]]}
        numbers = [*whole.values(), other]
    settings = {**keys, "values_int64s": numbers, "default_int64": other}
    return building.node("LabelEncoder", feature.column, domain="ai.onnx.ml", **settings)


def _halves(text: str) -> bool:
    """Whether a text has half of a surrogate pair, so that no column can hold it."""
    return any("\ud800" <= sign <= "\udfff" for sign in text)


def _network(building: _Graph, artefact: Artefact) -> str:
    """A network's scores: (rows, outputs), in units of the label's range where that is a number."""
    task = artefact.task
    assert isinstance(task.model, MLP)
    layers = network.layers(network.shapes(task.width, task.model.hidden, task.label.outputs), artefact.parameters)
    whitening = np.eye(task.width) if artefact.whitening is None else artefact.whitening
    _refuse_large(whitening, layers)
    values = building.cast(_products(building, artefact, whitening), np.float32)
    for number, layer in enumerate(layers):
        weights, bias = building.constant(layer[:-1], np.float32), building.constant(layer[-1], np.float32)
        values = building.node("Add", building.node("MatMul", values, weights), bias)
        if number + 1 < len(layers):
            values = building.node("Tanh", values)
    values = building.cast(values, np.float64)
    label = task.label
    if isinstance(label, BinaryLabel | ClassLabel):
        return values
    span, low = building.constant(label.max_value - label.min_value), building.constant(label.min_value)
    return building.node("Add", building.node("Mul", values, span), low)


def _refuse_large(whitening: Floats, layers: network.Layers) -> None:
    """Refuse a network whose sums may overflow in float32."""
    reach = np.abs(whitening).sum(axis=0).max()
    for layer in layers:
        with np.errstate(all="ignore"):
            sums = np.abs(layer.astype(np.float64)).sum(axis=0).max() * max(reach, 1.0)
        if not sums < MOST_SINGLE:
            message = "has weights so large that their sum overflows"
            raise RequestError(field="model", message=message, hint="train it with a smaller fit: learning_rate")
        reach = 1.0  # of tanh


def _outputs(building: _Graph, artefact: Artefact, scores: str) -> list[Any]:
    """The results of scores (rows, outputs), as `Artefact.predict` gives them."""
    from onnx import helper

    label = artefact.task.label
    if isinstance(label, ClassLabel):
        return _of_classes(building, label, scores)
    flat = building.node("Squeeze", scores, building.constant([1], np.int64))
    if isinstance(label, BinaryLabel):
        ends = building.constant(MOST_EXPONENT), building.constant(-MOST_EXPONENT)
        kept = building.node("Max", building.node("Min", flat, ends[0]), ends[1])
        power = building.node("Exp", building.node("Neg", kept))
        one = building.constant(1.0)
        result = building.node("Div", one, building.node("Add", one, power), name=PROBABILITY)
    else:
        high, low = building.constant(label.max_value), building.constant(label.min_value)
        result = building.node("Max", building.node("Min", flat, high), low, name=PREDICTION)
    return [helper.make_tensor_value_info(result, building.types[float], [ROWS])]


def _of_classes(building: _Graph, label: ClassLabel, scores: str) -> list[Any]:
    from onnx import helper

    probabilities = building.node("Softmax", scores, axis=1, name=PROBABILITIES)
    largest = building.node("ArgMax", probabilities, axis=1, keepdims=0)
    building.node("ReduceMax", probabilities, axes=[1], keepdims=0, name=PROBABILITY)
    classes = told_classes(label)
    kind: Any = str
    if category_values.kind_of_type(classes.type) in (category_values.INT, category_values.BOOL):
        kind, listed = int, building.constant(classes.cast("int64").to_pylist(), np.int64)
    else:
        listed = building.constant([str(value) for value in classes.to_pylist()], object)
    building.node("Gather", listed, largest, name=PREDICTION)
    return [
        helper.make_tensor_value_info(PREDICTION, building.types[kind], [ROWS]),
        helper.make_tensor_value_info(PROBABILITY, building.types[float], [ROWS]),
        helper.make_tensor_value_info(PROBABILITIES, building.types[float], [ROWS, label.outputs]),
    ]
