"""What single features would do, from weights and moments: beside the features themselves."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from dp_pipelines import BinaryLabel, Category, Number, Steps, TrainModel
from dp_pipelines.query.train_model import ClassLabel
from dp_pipelines.training import evaluation, single_features, weight_errors
from dp_pipelines.training.features import moments, seen_columns
from dp_pipelines.training.kept_draws import Released

WIDTH = 13
GROUPS = [range(1, 7), range(7, 13)]
ROWS = 40_000


def task(**changed: Any) -> TrainModel:
    features = {
        "a": Number(column="a", min_value=0, max_value=1, edges=[0.2, 0.4, 0.6, 0.8]),
        "b": Category(column="b", categories=["p", "q", "r", "s", "t"]),
    }
    return TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features={**features}, **changed)


def examples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of two related features of five values, both values, and a label that follows them: (columns, values, label)."""
    made = np.random.default_rng(6)
    a = made.choice(5, ROWS, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    b = np.where(made.random(ROWS) < 0.3, a, made.choice(5, ROWS))
    columns = np.zeros((ROWS, WIDTH))
    columns[:, 0] = columns[np.arange(ROWS), 1 + a] = columns[np.arange(ROWS), 7 + b] = 1
    score = 0.9 * a - 0.5 * b - 1
    y = made.random(ROWS) < 1 / (1 + np.exp(-score))
    return columns, np.stack([a, b]), y


def fitted(weights: tuple[float, float] = (1, 1)) -> tuple[seen_columns.SeenColumns, np.ndarray]:
    """Exact moments, and the parameters of a logistic regression without noise, of examples that count by their class."""
    columns, _, y = examples()
    counted = np.where(y, weights[1], weights[0])
    exact = np.zeros((WIDTH, WIDTH))
    exact[:] = columns.T @ columns
    rows, across = np.triu_indices(WIDTH)
    seen = seen_columns.seen(
        exact[rows, across] * np.where(rows == across, 1, np.sqrt(2)), Released(float(ROWS)), 1e-3, GROUPS
    )
    white = columns @ seen.whitening
    parameters = np.zeros(WIDTH)
    for _ in range(100):
        parameters -= 4 * white.T @ (counted * (1 / (1 + np.exp(-white @ parameters)) - y)) / ROWS
    return seen, parameters


def ranked_by(values: np.ndarray, y: np.ndarray) -> float:
    """The AUC of the share of true examples among those with a value."""
    shares = np.array([y[values == value].mean() for value in range(5)])[values]
    true, false = np.sort(shares[y]), np.sort(shares[~y])
    below, up_to = np.searchsorted(false, true, "left"), np.searchsorted(false, true, "right")
    return float((below + up_to).mean() / 2 / len(false))


def noise_of(seen: seen_columns.SeenColumns, parameters: np.ndarray, stddev: float) -> weight_errors.WeightNoise:
    empty = evaluation.summary(task(), np.zeros(evaluation.cell_count(task())), 1.0)
    found = weight_errors.weight_noise(
        task(steps=Steps(average=0.5)), parameters, seen, empty, gradient_stddev=stddev, learning_rate=4.0
    )
    assert found is not None
    return found


def test_features_rank_as_they_do_by_themselves() -> None:
    seen, parameters = fitted()
    _, values, y = examples()
    found = single_features.areas(task(), parameters, seen, noise_of(seen, parameters, 1e-6))
    assert list(found) == ["a", "b"]
    for place, name in enumerate(found):
        assert found[name].value == pytest.approx(ranked_by(values[place], y), abs=0.025)
    assert ranked_by(values[0], y) > ranked_by(values[1], y) + 0.05


@pytest.mark.parametrize("weights", [(0.2, 1.0), (1.0, 0.2)])
def test_class_weights_leave_the_rank_of_a_feature_as_it_is(weights: tuple[float, float]) -> None:
    asked, (seen, parameters) = task(steps=Steps(class_weights=weights)), fitted(weights)
    _, values, y = examples()
    found = single_features.areas(asked, parameters, seen, noise_of(seen, parameters, 1e-6))
    assert found["a"].value == pytest.approx(ranked_by(values[0], y), abs=0.015)


def test_the_slope_is_that_of_the_area() -> None:
    made = np.random.default_rng(2)
    shares, scores = made.random(6), made.normal(0, 1.5, 6)
    value, slopes = single_features.area(shares, scores, 0.8)
    for place in range(6):
        moved = scores.copy()
        moved[place] += 1e-6
        assert (single_features.area(shares, moved, 0.8)[0] - value) / 1e-6 == pytest.approx(slopes[place], abs=1e-5)


def test_its_error_is_that_of_weights_with_such_noise() -> None:
    seen, parameters = fitted()
    noise = noise_of(seen, parameters, 2e-3)
    said = single_features.areas(task(), parameters, seen, noise)
    made = np.random.default_rng(3)
    inverse = np.linalg.pinv(seen.whitening)
    found: dict[str, list[float]] = {"a": [], "b": []}
    for _ in range(300):
        drawn = noise.of_columns @ (np.sqrt(noise.variances[:, 0]) * made.normal(size=noise.variances.shape[0]))
        of = single_features.areas(task(), parameters + inverse @ drawn, seen, noise)
        for name, area in of.items():
            assert area.value is not None
            found[name].append(area.value)
    for name, values in found.items():
        assert np.std(values) == pytest.approx(said[name].noise, rel=0.4)


def test_a_straight_line_and_other_labels_have_none() -> None:
    seen, parameters = fitted()
    noise = noise_of(seen, parameters, 1e-3)
    features = {"a": Number(column="a", min_value=0, max_value=1, bins=1, scaled=True), "b": task().features["b"]}
    line = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features)
    assert list(single_features.areas(line, parameters, seen, noise)) == ["b"]
    classes = TrainModel(privacy_unit="u", label=ClassLabel(column="y", classes=["p", "q"]), features=task().features)
    assert single_features.areas(classes, parameters, seen, noise) == {}
    assert single_features.areas(task(), parameters, seen, None) == {}


def test_a_model_without_moments_or_weights_gives_no_error() -> None:
    nothing = seen_columns.seen(np.zeros(moments.size(WIDTH)), Released(0.0), 1.0, GROUPS)
    found = single_features.areas(task(), np.zeros(WIDTH), nothing, noise_of(nothing, np.zeros(WIDTH), 1.0))
    assert found == {}
    seen, _ = fitted()
    flat = single_features.areas(task(), np.zeros(WIDTH), seen, noise_of(seen, np.zeros(WIDTH), 1e-3))
    assert [area.value for area in flat.values()] == pytest.approx(
        [0.5, 0.5], abs=1e-12
    )  # of other processors the last digit is another


@pytest.mark.parametrize("scores", [[50.0, 60.0], [-800.0, -900.0]])
def test_where_the_model_gives_all_examples_one_class_nothing_is_ranked(scores: list[float]) -> None:
    """Steps as large as a job may declare lead to such scores, after the charge."""
    value, slopes = single_features.area(np.array([0.5, 1e-9]), np.array(scores), 0.0)
    assert np.isnan(value) or value == pytest.approx(0.5, abs=0.5)
    assert slopes.shape == (2,)
    seen, parameters = fitted()
    far = np.linalg.pinv(seen.whitening)[:, 0] * scores[0]
    found = single_features.areas(task(), parameters + far, seen, noise_of(seen, parameters, 1e-3))
    assert all(0 <= area.value <= 1 for area in found.values() if area.value is not None)


def test_the_best_stands_beside_the_model() -> None:
    seen, parameters = fitted()
    asked, found = task(), single_features.areas(task(), parameters, seen, noise_of(seen, parameters, 1e-3))
    plain = evaluation.summary(asked, np.full(evaluation.cell_count(asked), 50.0), 1.0)
    beside = plain.beside(found)
    assert beside.best_feature == "a"
    assert beside.baselines["best_feature"]["auc"] == found["a"]
    assert beside.baselines["majority"] == plain.baselines["majority"]
    assert beside.measures == plain.measures
    assert plain.beside({}) == plain


def test_features_of_a_model_with_pairs_are_ranked_and_its_pairs_are_not() -> None:
    seen, parameters = fitted()
    noise, pairs = noise_of(seen, parameters, 1e-3), [("a", "b")]
    alone = single_features.areas(task(), parameters, seen, noise)
    wider = dataclasses.replace(seen, one_of=[*GROUPS, range(1, 13)])
    assert single_features.areas(task(pairs=pairs), parameters, wider, noise) == alone
    assert list(alone) == ["a", "b"]
    assert single_features.areas(task(pairs=pairs), parameters, seen, noise) == {}


@pytest.mark.parametrize("stddev", [0.01, 0.03, 0.1])
def test_weights_of_noise_alone_hardly_ever_make_a_feature_look_better_than_chance(stddev: float) -> None:
    """What a verdict allows for: three deviations of the noise, and the .02 to which the formula holds."""
    seen, _ = fitted()
    noise, made = noise_of(seen, np.zeros(WIDTH), stddev), np.random.default_rng(31)
    inverse, above = np.linalg.pinv(seen.whitening), 0
    for _ in range(100):
        drawn = noise.of_columns @ (np.sqrt(noise.variances[:, 0]) * made.normal(size=noise.variances.shape[0]))
        weights = inverse @ drawn
        found = single_features.areas(task(), weights, seen, noise_of(seen, weights, stddev))
        best = max(found.values(), key=lambda area: area.value or 0.0)
        assert best.value is not None
        assert best.noise is not None
        above += best.value - 3 * best.noise - 0.02 > 0.5
    assert above <= 3
