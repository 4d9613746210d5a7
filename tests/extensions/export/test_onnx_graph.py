"""A model in ONNX: onnxruntime gives what `predict` gives, of linear models and of networks.

In: odd models and rows. Out: the results of both. Holds: a null is written as `missing_values` says. Not covered: the
command (`tests/extensions/export/test_export_model.py`); other programs that read ONNX.
"""

import dataclasses
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import MLP, BinaryLabel, Category, ClassLabel, Number, NumberLabel, RequestError, TrainModel
from dp_pipelines.extensions.export.onnx_graph import missing_values, onnx_model
from dp_pipelines.query.train_model import JaxModel
from dp_pipelines.training.artefact import PREDICTION, Artefact
from dp_pipelines.training.description import Preparation
from dp_pipelines.training.features.encoder import Encoder
from tests.extensions.export.odd_models import artefact, models

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


def run(model: Artefact, rows: pa.Table) -> dict[str, np.ndarray]:
    """What onnxruntime makes of the graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx_model(model).SerializeToString(), options, ["CPUExecutionProvider"])
    missing = missing_values(model)
    given = {put.name: as_input(rows.column(put.name), put.type, missing.get(put.name)) for put in session.get_inputs()}
    return dict(zip([put.name for put in session.get_outputs()], session.run(None, given), strict=True))


def as_input(column: pa.ChunkedArray, kind: str, missing: Any) -> np.ndarray:
    """A column as ONNX takes it."""
    values = column.to_pylist()
    if kind == "tensor(double)":
        return np.array([np.nan if value is None else float(value) for value in values])
    if kind == "tensor(int64)":
        return np.array([missing if value is None else int(value) for value in values], np.int64)
    return np.array([missing if value is None else str(value) for value in values], object)


def agree(model: Artefact, rows: pa.Table, tolerance: float) -> None:
    """Whether results are those of `predict`."""
    found, wanted = run(model, rows), model.predict(rows)
    assert set(found) == set(wanted.column_names)
    clear = np.ones(rows.num_rows, np.bool_)
    if isinstance(model.task.label, ClassLabel):
        by_class = np.sort(np.array(wanted["probabilities"].to_pylist()))
        clear = by_class[:, -1] - by_class[:, -2] > 10 * tolerance
    for name in wanted.column_names:
        values = wanted.column(name).to_pylist()
        if name == PREDICTION and isinstance(model.task.label, ClassLabel):
            assert np.array(found[name], object)[clear].tolist() == np.array(values, object)[clear].tolist()
        else:
            assert np.array(found[name]) == pytest.approx(np.array(values), rel=tolerance, abs=tolerance)


@hypothesis.settings(max_examples=120)
@hypothesis.given(models())
def test_linear_models_give_what_predict_gives(pair: tuple[Artefact, pa.Table]) -> None:
    agree(*pair, tolerance=1e-12)


@hypothesis.settings(max_examples=60)
@hypothesis.given(models(), hypothesis.strategies.integers(0, 2**32), hypothesis.strategies.booleans())
def test_networks_give_what_predict_gives(pair: tuple[Artefact, pa.Table], words: int, whiten: bool) -> None:
    linear, rows = pair
    made = np.random.default_rng(words)
    task = dataclasses.replace(linear.task, model=MLP(hidden=(4, 3)), whiten=whiten)
    width = task.width
    whitening = made.normal(size=(width, width)) / np.sqrt(width) if whiten else None
    model = artefact(task, linear.encoder, made.normal(size=task.size), whitening)
    agree(model, rows, tolerance=2e-6)


def small(**changes: Any) -> Artefact:
    """A model of one number."""
    features = {"f": Number(column="x", min_value=0, max_value=1, edges=[0.5])}
    asked: dict[str, Any] = {
        "privacy_unit": "u",
        "label": BinaryLabel(column="y"),
        "features": features,
        "whiten": False,
    }
    task = TrainModel(**{**asked, **changes})
    return artefact(task, Encoder.of(task), np.zeros(task.size))


def test_a_model_says_whom_it_protects_and_what_stands_for_a_null() -> None:
    made = onnx_model(small(features={"f": Category(column="c", categories=["", "missing 0"])}))
    assert made.doc_string.startswith("adding or removing all rows of one value of u")
    assert {item.key: item.value for item in made.metadata_props} == {"plan": "ab", "missing": '{"c": "missing 1"}'}


@pytest.mark.parametrize(
    ("text", "kind", "stands"),
    [
        ("int64", "tensor(int64)", -1),
        ("date32[day]", "tensor(string)", ""),
        ("bool", "tensor(int64)", -1),
        ("?", "tensor(string)", ""),
    ],
)
def test_a_column_of_which_no_category_was_found_keeps_its_type(text: str, kind: str, stands: Any) -> None:
    features = {"f": Category(column="c", most=2), "g": Category(column="c", most=3)}
    task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features, whiten=False)
    model = artefact(task, Encoder.of(task, vocabulary={"f": [], "g": []}), np.zeros(task.size))
    model = dataclasses.replace(model, preparation=Preparation(source={"c": text}))
    (put,) = onnxruntime.InferenceSession(onnx_model(model).SerializeToString()).get_inputs()
    assert (put.type, missing_values(model)) == (kind, {"c": stands})
    one = dataclasses.replace(model, encoder=Encoder.of(task, vocabulary={"f": [], "g": [7]}))
    (put,) = onnxruntime.InferenceSession(onnx_model(one).SerializeToString()).get_inputs()
    assert put.type == "tensor(int64)"


def test_the_same_model_gives_the_same_bytes() -> None:
    first, again = (onnx_model(small()).SerializeToString(deterministic=True) for _ in range(2))
    assert first == again


def test_what_onnx_cannot_hold_is_refused() -> None:
    with pytest.raises(RequestError, match="code of your own"):
        onnx_model(small(model=JaxModel(name="tests.training.jax_models:net", parameters=3)))
    both = {"n": Number(column="x", min_value=0, max_value=1, edges=[0.5]), "c": Category(column="x", categories=[1])}
    with pytest.raises(RequestError, match="two ways"):
        onnx_model(small(features=both))
    with pytest.raises(RequestError, match="name of a result"):
        onnx_model(small(features={"f": Number(column="probability", min_value=0, max_value=1, edges=[0.5])}))
    with pytest.raises(RequestError, match="several kinds"):
        onnx_model(small(features={"f": Category(column="c", categories=["a", 1])}))
    large = small(model=MLP(hidden=(2,)), label=NumberLabel(column="y", min_value=0, max_value=1))
    with pytest.raises(RequestError, match="overflows"):
        onnx_model(artefact(large.task, large.encoder, np.full(large.task.size, 1e38)))
