"""L2: the fitted model is that of the penalised loss; it costs nothing and changes nothing where it is not asked for."""

import dataclasses
import pathlib
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import BinaryLabel, Number, NumberLabel, Plan, RequestError, Steps, TrainModel
from dp_pipelines.training import trainer
from dp_pipelines.training.features import moments, seen_columns
from dp_pipelines.training.kept_draws import InMemory, Released
from dp_pipelines.training.kernels import of_task
from dp_pipelines.training.kernels.linear import LinearKernel
from dp_pipelines.training.kernels.penalty import ScorePenalty, constant_direction, penalised
from tests.training.few import Few
from tests.training.test_fit import examples, fitted, task

UNITS, WIDTH = 400, 4
NUMBER = NumberLabel(column="y", min_value=0, max_value=1)


class Silent:
    """A sum without noise: tests alone have one."""

    def __init__(self, *, norm: float, **ignored: object) -> None:
        self.norm = norm

    def begin(self) -> None:
        return None

    def release(self, total: np.ndarray, begun: None) -> np.ndarray:
        return total


def rows() -> tuple[np.ndarray, np.ndarray]:
    """A constant and three related numbers, and a label that follows them."""
    made = np.random.default_rng(1)
    x = made.normal(size=(UNITS, WIDTH))
    x[:, 2] += x[:, 1]
    x[:, 0] = 1
    return x, 0.4 + x @ np.array([0, 0.1, -0.05, 0.02]) + made.normal(0, 0.1, UNITS)


def whitening_of(x: np.ndarray) -> np.ndarray:
    """The inverse root of the mean of x x'."""
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    return (vectors / np.sqrt(values)) @ vectors.T


def trained(x: np.ndarray, y: np.ndarray, l2: float | None, matrix: np.ndarray | None) -> np.ndarray:
    """The weights of half a square, without noise, of enough steps."""
    features = x if matrix is None else x @ matrix
    kernel = penalised(LinearKernel(width=WIDTH, label=NUMBER), l2, matrix)
    reach = float(np.linalg.eigvalsh(features.T @ features / UNITS)[-1])
    rate = trainer.default_rate(kernel, reach)
    steps = Steps(steps=600, average=0.0, momentum=0.5, learning_rate=rate)
    found = trainer.train(
        kernel, Few([(row[None], own[None]) for row, own in zip(features, y, strict=True)], WIDTH), steps,
        clip_norm=1e6, multiplier=Fraction(1), divisor=Released(float(UNITS)), draws=InMemory(), name="m",
        noisy_sum=Silent,
    )  # fmt: skip
    return found.parameters if matrix is None else matrix @ found.parameters


@pytest.mark.parametrize("l2", [0.05, 1.0])
def test_the_model_is_the_one_that_is_best_beside_half_of_l2_times_the_variance_of_its_scores(l2: float) -> None:
    x, y = rows()
    spread = x - x.mean(axis=0)
    expected = np.linalg.solve(x.T @ x + l2 * spread.T @ spread, x.T @ y)
    assert trained(x, y, l2, whitening_of(x)) == pytest.approx(expected, abs=1e-4)


def test_of_features_as_they_are_it_is_half_of_l2_times_the_squares_of_the_weights_but_the_constants() -> None:
    x, y = rows()
    expected = np.linalg.solve(x.T @ x / UNITS + 0.3 * np.diag([0, 1, 1, 1]), x.T @ y / UNITS)
    assert trained(x, y, 0.3, None) == pytest.approx(expected, abs=1e-4)


def test_stronger_ones_which_would_slow_down_every_step_are_refused() -> None:
    for l2 in (1.5, 0, -1, float("nan")):
        with pytest.raises(RequestError, match="l2"):
            Steps(l2=l2)


def test_directions_that_examples_do_not_tell_apart_do_not_hide_the_constant() -> None:
    """Columns of bins add up to the constant, so the matrix is singular."""
    made = np.random.default_rng(2)
    x = np.zeros((UNITS, 5))
    x[:, 0] = x[np.arange(UNITS), 1 + made.integers(0, 4, UNITS)] = 1
    exact = moments.clipped_moments(Few([(row[None].astype(np.float32), np.zeros(1)) for row in x], 5), 2.0)
    matrix = seen_columns.seen(exact, Released(float(UNITS)), 1e-3, [range(1, 5)]).whitening
    scores = x @ matrix @ constant_direction(matrix, 5)
    assert scores == pytest.approx(np.full(UNITS, scores[0]), rel=1e-3)
    assert abs(scores[0]) == pytest.approx(1, rel=1e-3)


def test_outputs_are_held_down_one_by_one() -> None:
    penalty = ScorePenalty(l2=2.0, constant=constant_direction(None, 2))
    assert penalty.gradient(np.array([5.0, 1.0, 7.0, -3.0])).tolist() == [0, 2, 0, -6]


@pytest.mark.parametrize("steps", [Steps(l2=0.5), Steps(class_weights=[1, 9])])
def test_it_costs_nothing(steps: Steps) -> None:
    plain, asked = (Plan(epsilon=2, delta=1e-6, stages={"m": task(steps=own)}) for own in (Steps(), steps))
    assert plain.all_mechanisms() == asked.all_mechanisms()
    assert plain.digest != asked.digest


@pytest.mark.parametrize("compiles", [True, False])
def test_a_fitted_model_is_held_down_and_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    monkeypatch.setattr(of_task, "compiles", lambda: compiles)
    spreads, errors = [], []
    features = {"x": Number(column="x", min_value=0, max_value=1, edges=[0.25, 0.5, 0.75])}
    for l2 in (None, 0.05, 1.0):
        asked = task(features=features, steps=Steps(steps=20, l2=l2))
        plan = Plan(epsilon=30, delta=1e-5, stages={"model": asked})
        found = fitted(examples(), tmp_path / f"of {l2}", InMemory(), plan).artefact
        spreads.append(float(np.std(found.scores(examples()))))
        assert found.weight_stddevs is not None
        errors.append(float(np.linalg.norm(found.weight_stddevs)))
    assert spreads[0] > 1.2 * spreads[1] > 2 * spreads[2]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("steps", [Steps(steps=30, l2=0.2), Steps(steps=30, class_weights=[1, 5])])
def test_error_bars_of_weights_know_of_it(tmp_path: pathlib.Path, steps: Steps) -> None:
    """With 40 fits, each with moments of its own, a deviation is off by a factor of 2.5 with a probability below 1e-9."""
    made, count = np.random.default_rng(3), 2 * UNITS
    x = made.random(count)
    # Some examples have each column, so that no fit takes one for another.
    column = pa.array(x, mask=made.random(count) < 0.2)
    table = pa.table({"who": np.arange(count), "x": column, "y": made.random(count) < 0.2 + 0.3 * x})
    asked = TrainModel(
        privacy_unit="who",
        label=BinaryLabel(column="y"),
        features={"x": Number(column="x", min_value=0, max_value=1, edges=[0.25, 0.5, 0.75])},
        steps=steps,
        max_examples_per_unit=1,
    )
    plan = Plan(epsilon=6, delta=1e-5, stages={"model": asked})
    found = [fitted(table, tmp_path / str(turn), InMemory(), plan).artefact for turn in range(40)]
    weights = np.array([each.linear_table()["weight"].to_numpy() for each in found])
    said = np.mean([each.weight_stddevs[:, 0] for each in found if each.weight_stddevs is not None], axis=0)
    assert 0.4 < np.mean(said / np.std(weights, axis=0, ddof=1)) < 2.5


def test_a_saved_model_keeps_them_and_one_without_them_is_as_earlier_versions_read_it(tmp_path: pathlib.Path) -> None:
    from dp_pipelines.training import description
    from dp_pipelines.training.features.encoder import Encoder

    plain, asked = task(), task(steps=Steps(l2=0.5, class_weights=[1, 2]))
    for each in (plain, asked):
        assert description.task_from_json(description.task_to_json(each), Encoder.skeleton(each)) == each
    assert not {"l2", "class_weights"} & set(description.task_to_json(plain)["steps"])
    assert dataclasses.replace(asked.steps, l2=None, class_weights=None) == Steps()
