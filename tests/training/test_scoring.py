"""Scores that are counted: what is said of a row is a function of that row alone, whoever stands beside it."""

import types
from typing import Any

import numpy as np
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.query.train_model import (
    MLP,
    BinaryLabel,
    ClassLabel,
    JaxModel,
    Label,
    LinearModel,
    Model,
    Number,
    NumberLabel,
    TrainModel,
)
from dp_pipelines.training import evaluation, scoring
from dp_pipelines.training.kernels import network

LABELS: dict[str, Label] = {
    "binary": BinaryLabel(column="y"),
    "classes": ClassLabel(column="y", classes=["a", "b", "c"]),
    "number": NumberLabel(column="y", min_value=-2, max_value=6),
}
MODELS: dict[str, Model] = {"linear": LinearModel(), "network": MLP(hidden=(40, 24))}


def task_of(model: Model, label: Label) -> TrainModel:
    features = {f"f{n}": Number(column=f"f{n}", min_value=0, max_value=60, bins=20) for n in range(6)}
    return TrainModel(privacy_unit="u", label=label, features=features, model=model)


def parameters_of(task: TrainModel) -> np.ndarray:
    return network.uniform(task.model.size(task.width, task.label.outputs), b"parameters") * 0.4


def parts_of(count: int) -> list[np.ndarray]:
    """Rows as they stand when others are there or not, and in other orders."""
    made = np.random.default_rng(7)
    whole = np.arange(count)
    return [whole, whole[1:], whole[-3:], whole[:1], whole[count // 2 :], made.permutation(count), whole[::3]]


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("model", MODELS)
def test_a_rows_score_and_cell_have_the_same_bits_whoever_stands_beside_it(model: str, label: str) -> None:
    task = task_of(MODELS[model], LABELS[label])
    rows = np.random.default_rng(1).normal(size=(700, task.width)).astype(np.float32)
    rows[5], rows[6], rows[7] = np.nan, np.inf, 3e38
    at, labels = parameters_of(task), np.zeros(700)
    whole = scoring.scores(task, at, None, rows, alone=True)
    cells = evaluation.cells(task, whole, labels)
    for part in parts_of(700):
        found = scoring.scores(task, at, None, rows[part], alone=True)
        assert found.tobytes() == whole[part].tobytes()
        assert evaluation.cells(task, found, labels[part]).tolist() == cells[part].tolist()
    ordinary = np.delete(np.arange(700), [5, 6, 7])
    np.testing.assert_allclose(whole[ordinary], scoring.scores(task, at, None, rows[ordinary]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("label", ["binary", "classes"])
def test_a_rows_probabilities_have_the_same_bits_whoever_stands_beside_it(label: str) -> None:
    task = task_of(LinearModel(), LABELS[label])
    logits = np.random.default_rng(2).normal(size=(700, task.label.outputs) if label == "classes" else 700) * 5
    whole = scoring.probabilities(task, logits)
    for part in parts_of(700):
        assert scoring.probabilities(task, logits[part]).tobytes() == whole[part].tobytes()


def test_products_by_blas_would_not_do() -> None:
    task = task_of(MODELS["network"], LABELS["number"])
    rows, at = np.random.default_rng(1).normal(size=(5000, task.width)).astype(np.float32), parameters_of(task)
    whole = scoring.scores(task, at, None, rows)
    if all(scoring.scores(task, at, None, rows[part]).tobytes() == whole[part].tobytes() for part in parts_of(5000)):
        pytest.skip("on this machine they do, as far as this looks")
    alone = scoring.scores(task, at, None, rows, alone=True)
    assert all(
        scoring.scores(task, at, None, rows[part], alone=True).tobytes() == alone[part].tobytes()
        for part in parts_of(5000)
    )


@pytest.mark.parametrize(("label", "shape"), [("binary", (0,)), ("classes", (0, 3))])
@pytest.mark.parametrize("model", MODELS)
def test_no_rows_have_no_scores(model: str, label: str, shape: tuple[int, ...]) -> None:
    task = task_of(MODELS[model], LABELS[label])
    none = np.zeros((0, task.width), np.float32)
    assert scoring.scores(task, parameters_of(task), None, none, alone=True).shape == shape


def test_code_of_ones_own_is_asked_row_by_row() -> None:
    """Here it looks at all rows that it gets, which must not reach what is counted."""
    seen: list[int] = []

    def scores(parameters: Any, features: Any) -> np.ndarray:
        seen.append(len(features))
        return features[:, 0] + features.sum()

    task = task_of(JaxModel(name="a:b", parameters=3), LABELS["binary"])
    model, rows = types.SimpleNamespace(scores=scores), np.ones((4, task.width), np.float32)
    found = scoring.scores(task, np.zeros(3), None, rows, jax_model=model, alone=True)
    assert seen == [1] * 4
    assert found.tolist() == [1.0 + task.width] * 4
    scoring.scores(task, np.zeros(3), None, rows, jax_model=model)
    assert seen == [1] * 4 + [4]


@pytest.mark.parametrize("label", LABELS)
def test_a_row_on_which_ones_own_code_fails_counts_as_the_middle_and_nothing_is_told(label: str) -> None:
    """Otherwise one held-out row would decide how a run ends."""
    task = task_of(JaxModel(name="a:b", parameters=3), LABELS[label])

    def scores(parameters: Any, features: Any) -> np.ndarray:
        if features[0, 1] > 1:
            raise ValueError(str(features))
        if features[0, 1] < -1:
            return np.zeros(7)
        found = np.repeat(np.exp(features[:, :1] * 1e9), task.label.outputs, axis=1)  # overflows
        features[:] = np.nan
        return found if task.label.outputs > 1 else found[:, 0]

    model, rows = types.SimpleNamespace(scores=scores), np.ones((4, task.width), np.float32)
    rows[1, 1], rows[2, 1], rows[3, 0] = 5, -5, 0
    at = np.zeros(3)
    found = scoring.scores(task, at, None, rows, jax_model=model, alone=True)
    assert np.isnan(found[1:3]).all()
    assert (found[3] == 1).all()
    assert np.isfinite(rows).all()
    assert at.tolist() == [0] * 3
    middle = evaluation.cells(task, np.zeros_like(found), np.zeros(4))
    if label != "number":
        assert evaluation.cells(task, found, np.zeros(4))[1:3].tolist() == middle[1:3].tolist()
    with pytest.raises((ValueError, RequestError)):
        scoring.scores(task, at, None, rows[1:2].copy(), jax_model=model)


@pytest.mark.parametrize("label", ["binary", "classes"])
def test_code_of_ones_own_that_fails_on_a_row_says_nothing_of_that_row_alone(label: str) -> None:
    """A row that decides whether a run ends well would show in its exit code."""

    def scores(parameters: Any, features: Any) -> np.ndarray:
        which = int(features[0, 0])
        if which == 1:
            raise ValueError(str(features))
        if which == 2:
            raise GeneratorExit(9)
        return np.zeros(7) if which == 3 else np.full((1, 3) if label == "classes" else 1, 0.5)

    task = task_of(JaxModel(name="a:b", parameters=3), LABELS[label])
    model, rows = types.SimpleNamespace(scores=scores), np.zeros((5, task.width), np.float32)
    rows[:, 0] = [0, 1, 2, 3, 4]
    found = scoring.scores(task, np.zeros(3), None, rows, jax_model=model, alone=True)
    assert np.isnan(found.reshape(5, -1)).all(axis=1).tolist() == [False, True, True, True, False]
    with pytest.raises(RequestError, match="gives scores of the shape"):
        scoring.scores(task, np.zeros(3), None, rows[3:4], jax_model=model)
    with pytest.raises(RequestError, match="is missing"):
        scoring.scores(task, np.zeros(3), None, rows, alone=True)


def test_code_of_ones_own_may_give_the_same_array_each_time() -> None:
    """Otherwise every row would have the score of the last one, and one unit would move all counts."""
    kept = np.zeros(1)

    def scores(parameters: Any, features: Any) -> np.ndarray:
        kept[:] = features[:, 0]
        return kept

    task = task_of(JaxModel(name="a:b", parameters=3), LABELS["binary"])
    model, rows = types.SimpleNamespace(scores=scores), np.zeros((4, task.width), np.float32)
    rows[:, 0] = [1, 2, 3, 4]
    found = scoring.scores(task, np.zeros(3), None, rows, jax_model=model, alone=True)
    assert found.tolist() == [1, 2, 3, 4]


def test_code_of_ones_own_cannot_change_the_parameters() -> None:
    def scores(parameters: Any, features: Any) -> np.ndarray:
        parameters += 1
        return features[:, 0]

    task = task_of(JaxModel(name="a:b", parameters=3), LABELS["binary"])
    model, at = types.SimpleNamespace(scores=scores), np.zeros(3)
    rows = np.zeros((4, task.width), np.float32)
    with pytest.raises(ValueError, match="read-only"):
        scoring.scores(task, at, None, rows, jax_model=model)
    assert at.tolist() == [0, 0, 0]
