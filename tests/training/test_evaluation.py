"""Measures from noisy counts: equal to their definitions without noise, with error bars that cover, whatever the counts are."""

import json
import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dp_pipelines.auto_bounds import value_bounds
from dp_pipelines.errors import RequestError
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Number, NumberLabel, TrainModel
from dp_pipelines.training import evaluation, evaluation_cells
from dp_pipelines.training.evaluation import Evaluation, cells, summary
from dp_pipelines.training.measures import EstimatedMeasure

Floats = NDArray[np.float64]

FALSE_ALARM = 1e-9
FEATURES = {"visits": Number(column="visits", min_value=0, max_value=60)}
LABELS = {
    "binary": BinaryLabel(column="y"),
    "classes": ClassLabel(column="y", classes=["a", "b", "c"]),
    "confidence": ClassLabel(column="y", classes=list(range(12))),
    "numbers": NumberLabel(column="y", min_value=-10, max_value=30),
}


def task(kind: str = "binary", **changed: Any) -> TrainModel:
    arguments: dict[str, Any] = {"privacy_unit": "u", "label": LABELS[kind], "features": FEATURES}
    return TrainModel(**{**arguments, "evaluation_cells": 32, "evaluation_examples": 4, **changed})


def counted(asked: TrainModel, scores: Any, labels: Any) -> Floats:
    """The counts without noise."""
    found = cells(asked, np.asarray(scores, float), np.asarray(labels, float))
    return np.bincount(found[found >= 0], minlength=evaluation.cell_count(asked)).astype(float)


def examples(made: np.random.Generator, rows: int, base: float = 0.3, spread: float = 1.1) -> tuple[Floats, Floats]:
    """Logits, and labels that follow them."""
    logits = made.normal(math.log(base / (1 - base)), spread, rows)
    return logits, (made.random(rows) < 1 / (1 + np.exp(-logits))).astype(float)


def exact_auc(scores: Floats, labels: Floats) -> float:
    """Pairs of a true and a false example, compared one by one."""
    true, false = scores[labels == 1], scores[labels == 0]
    above = (true[:, None] > false[None, :]).mean()
    return float(above + (true[:, None] == false[None, :]).mean() / 2)


def value(found: Evaluation, name: str) -> float:
    number = found.measures[name].value
    assert number is not None
    return number


def test_the_query_counts_every_cell_over_one_partition() -> None:
    asked = evaluation.query(task("classes", evaluation_examples=3))
    assert asked.columns == ("u", value_bounds.COLUMN, evaluation.CELL)
    assert asked.bounds.max_rows == 3


def test_every_kind_of_cells_is_tried_here_and_every_task_has_one() -> None:
    assert {kind.name for kind in evaluation_cells.KINDS} == set(LABELS)
    for name in LABELS:
        assert [kind.name for kind in evaluation_cells.KINDS if kind.fits(task(name))] == [name]


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("count", [2, 3, 32, 300])
def test_there_are_as_many_cells_as_the_query_counts(kind: str, count: int) -> None:
    asked = task(kind, evaluation_cells=count)
    number, bins = evaluation.cell_count(asked), evaluation.edges(asked)
    (counted_cells,) = evaluation.query(asked).metrics.values()
    assert number <= len(counted_cells.edges) - 1  # type: ignore[attr-defined]
    assert list(bins) == sorted(set(bins))
    made = np.random.default_rng(5)
    outputs = asked.label.outputs
    scores = made.normal(0, 50, (500, outputs)) if outputs > 1 else made.normal(0, 50, 500)
    labels = made.uniform(-10, 30, 500) if kind == "numbers" else made.integers(0, max(2, outputs), 500)
    found = cells(asked, scores, labels.astype(float))
    assert 0 <= found.min() <= found.max() < number


@pytest.mark.parametrize("count", [2, 3, 31, 32])
def test_one_half_is_an_edge(count: int) -> None:
    assert 0.5 in evaluation.edges(task(evaluation_cells=count))


@pytest.mark.parametrize("kind", LABELS)
def test_a_cell_is_a_function_of_its_own_example(kind: str) -> None:
    made, asked = np.random.default_rng(6), task(kind)
    scores = made.normal(0, 3, (200, asked.label.outputs))
    scores = scores if asked.label.outputs > 1 else scores[:, 0]
    labels = made.integers(0, 2, 200).astype(float)
    whole = cells(asked, scores, labels)
    order = made.permutation(200)
    assert (cells(asked, scores[order], labels[order]) == whole[order]).all()
    assert [int(cells(asked, scores[at : at + 1], labels[at : at + 1])[0]) for at in range(200)] == whole.tolist()


@pytest.mark.parametrize("kind", LABELS)
def test_scores_that_are_no_numbers_are_counted_and_missing_labels_are_not(kind: str) -> None:
    asked = task(kind)
    scores = np.array([np.nan, np.inf, -np.inf, 1e308, 0.0])
    labels = np.array([0.0, 1.0, 0.0, 1.0, np.nan])
    if asked.label.outputs > 1:
        scores = np.stack([scores] * asked.label.outputs, axis=1)
    found = cells(asked, scores, labels)
    assert found[-1] == -1
    assert (found[:-1] >= 0).all()
    assert len(cells(asked, scores[:0], labels[:0])) == 0


@pytest.mark.parametrize(("base", "most"), [(0.5, 0.002), (0.3, 0.002), (0.01, 0.01)])
def test_without_noise_the_auc_is_the_exact_one_up_to_its_bins(base: float, most: float) -> None:
    scores, labels = examples(np.random.default_rng(1), 8000, base)
    found = summary(task(), counted(task(), scores, labels), 0.0)
    exact = exact_auc(scores, labels)
    assert found.ties is not None
    assert abs(value(found, "auc") - exact) <= found.ties / 2 + 1e-12
    noise = math.sqrt(1 / (8000 * base))  # of the exact one, by which bins may lose more or less than on average
    assert abs(value(found, "auc") - exact) <= most + 0.1 * noise


@pytest.mark.parametrize("base", [0.5, 0.05, 0.002])
def test_the_bar_of_the_auc_covers_what_its_bins_hide(base: float) -> None:
    """Scores far from even odds share few bins: without noise, the whole error of the AUC is theirs."""
    asked = task(evaluation_cells=8)
    scores, labels = examples(np.random.default_rng(21), 60_000, base, 0.6)
    auc = summary(asked, counted(asked, scores, labels), 0.0).measures["auc"]
    exact = exact_auc(scores[:6000], labels[:6000]) if base > 0.01 else exact_auc(scores, labels)
    assert auc.value is not None
    assert auc.noise == 0.0
    assert auc.hidden is not None
    assert abs(auc.value - exact) <= auc.hidden + (0.02 if base > 0.01 else 1e-12)
    if base < 0.01:
        assert auc.hidden > 0.1  # nearly all scores are in one bin
        assert abs(auc.value - exact) > 0.03
    assert auc.to_json()["hidden_by_bins"] == auc.hidden


def test_what_bins_hide_is_little_where_they_tell_the_odds_apart() -> None:
    """Scores around even odds: within a bin hardly anything is left to rank, and the bar says no more than that."""
    asked = task(evaluation_cells=16)
    scores, labels = examples(np.random.default_rng(24), 8000, 0.5)
    found = summary(asked, counted(asked, scores, labels), 0.0)
    auc = found.measures["auc"]
    assert found.ties is not None
    assert auc.value is not None
    assert auc.hidden is not None
    assert abs(auc.value - exact_auc(scores, labels)) <= auc.hidden < 0.3 * found.ties / 2
    # Also of a model whose log odds are half of what they should be.
    timid = summary(asked, counted(asked, scores / 2, labels), 0.0).measures["auc"]
    assert timid.value is not None
    assert timid.hidden is not None
    assert abs(timid.value - exact_auc(scores, labels)) <= timid.hidden


def test_of_thresholds_recall_precision_and_lift_are_those_of_the_definition() -> None:
    scores, labels = examples(np.random.default_rng(22), 4000)
    found = summary(task(), counted(task(), scores, labels), 0.0)
    said = 1 / (1 + np.exp(-scores))
    assert len(found.thresholds) == 31
    for threshold in found.thresholds:
        above = said >= threshold.above
        assert threshold.part.value == pytest.approx(above.mean())
        assert threshold.recall.value == pytest.approx(above[labels == 1].mean())
        if above.any():
            assert threshold.precision.value == pytest.approx(labels[above].mean())
            assert threshold.lift.value == pytest.approx(labels[above].mean() / labels.mean())


def test_baselines_are_the_larger_class_and_the_mean() -> None:
    made = np.random.default_rng(23)
    scores, labels = examples(made, 4000, 0.8)
    found = summary(task(), counted(task(), scores, labels), 0.0)
    assert found.baselines["majority"]["accuracy"].value == pytest.approx(max(labels.mean(), 1 - labels.mean()))
    labels = made.choice(3, 4000, p=[0.2, 0.5, 0.3]).astype(float)
    found = summary(task("classes"), counted(task("classes"), made.normal(size=(4000, 3)), labels), 0.0)
    assert found.baselines["majority"]["accuracy"].value == pytest.approx((labels == 1).mean())
    asked = task("numbers", evaluation_cells=1024)
    labels = np.clip(made.normal(8, 8, 6000), -10, 30)
    found = summary(asked, counted(asked, made.normal(8, 1, 6000), labels), 0.0)
    assert found.baselines["mean"]["rmse"].value == pytest.approx(labels.std(), rel=0.01)


def test_of_scores_in_the_middles_of_bins_everything_is_exact() -> None:
    asked = task()
    made = np.random.default_rng(2)
    middle = evaluation_cells.middles(np.array(evaluation.edges(asked)))
    said = middle[made.integers(0, len(middle), 3000)]
    labels = (made.random(3000) < said).astype(float)
    found = summary(asked, counted(asked, np.log(said / (1 - said)), labels), 0.0)
    assert value(found, "auc") == pytest.approx(exact_auc(said, labels), abs=1e-12)
    assert value(found, "accuracy") == pytest.approx(((said >= 0.5) == (labels == 1)).mean())
    assert value(found, "base_rate") == pytest.approx(labels.mean())
    assert value(found, "brier") == pytest.approx(((said - labels) ** 2).mean())
    assert value(found, "log_loss") == pytest.approx(
        -np.where(labels == 1, np.log(said), np.log(1 - said)).mean(), rel=1e-9
    )
    assert [[count.value for count in row] for row in found.confusion] == [
        [((labels == t) & ((said >= 0.5) == s)).sum() for s in (0, 1)] for t in (0, 1)
    ]
    inside = [labels[(said >= point.low) & (said < point.high)] for point in found.calibration]
    assert [point.observed.value for point in found.calibration] == pytest.approx([part.mean() for part in inside])
    assert sum(len(part) for part in inside) == 3000
    assert len(found.roc) == asked.evaluation_cells - 1


def test_classes_have_a_confusion_matrix_and_both_accuracies() -> None:
    asked, made = task("classes"), np.random.default_rng(3)
    scores, labels = made.normal(0, 1, (2000, 3)), made.integers(0, 3, 2000)
    scores[np.arange(2000), labels] += 1
    found = summary(asked, counted(asked, scores, labels), 0.0)
    said = scores.argmax(axis=1)
    assert value(found, "accuracy") == pytest.approx((said == labels).mean())
    recalls = [(said == which)[labels == which].mean() for which in range(3)]
    assert value(found, "balanced_accuracy") == pytest.approx(np.mean(recalls))
    assert found.confusion[1][2].value == ((labels == 1) & (said == 2)).sum()


def test_many_classes_have_an_accuracy_and_a_calibration() -> None:
    asked, made = task("confidence"), np.random.default_rng(3)
    scores, labels = made.normal(0, 1, (5000, 12)), made.integers(0, 12, 5000)
    scores[np.arange(5000), labels] += 2
    found = summary(asked, counted(asked, scores, labels), 0.0)
    assert value(found, "accuracy") == pytest.approx((scores.argmax(axis=1) == labels).mean())
    assert len(found.calibration) > 5
    assert found.confusion == ()


def test_numbers_are_measured_up_to_the_width_of_their_bins() -> None:
    asked, made = task("numbers", evaluation_cells=1024), np.random.default_rng(4)
    labels = np.clip(made.normal(8, 8, 6000), -10, 30)
    scores = 0.5 * labels + 4 + made.normal(0, 3, 6000)
    found = summary(asked, counted(asked, scores, labels), 0.0)
    width = 40 / 32
    missed = np.clip(scores, -10, 30) - labels
    assert value(found, "rmse") == pytest.approx(math.sqrt((missed**2).mean()), abs=width)
    assert value(found, "rmse") == pytest.approx(math.sqrt((missed**2).mean()), rel=0.02)
    assert value(found, "mae") == pytest.approx(np.abs(missed).mean(), abs=width)
    assert value(found, "r2") == pytest.approx(1 - (missed**2).sum() / ((labels - labels.mean()) ** 2).sum(), abs=0.02)
    assert all(-10 <= point.predicted <= 30 for point in found.calibration)


def every_estimate(found: Evaluation) -> dict[str, EstimatedMeasure]:
    """Measures, those of baselines, and those of the threshold at even odds."""
    listed = dict(found.measures)
    listed |= {f"{of} {name}": one for of, each in found.baselines.items() for name, one in each.items()}
    for threshold in found.thresholds:
        if threshold.above == 0.5:
            listed |= {name: getattr(threshold, name) for name in ("part", "recall", "precision", "lift")}
    return listed


def noisy_errors(kind: str, stddev: float, claimed: float, runs: int = 1000) -> dict[str, Floats]:
    """How many claimed standard deviations of noise each measure is off, over many draws of the noise."""
    made, asked = np.random.default_rng(11), task(kind)
    rows = 20_000
    if kind == "binary":
        scores, labels = examples(made, rows)
    elif kind == "numbers":
        labels = np.clip(made.normal(8, 8, rows), -10, 30)
        scores = 0.5 * labels + 4 + made.normal(0, 3, rows)
    else:
        labels = made.integers(0, asked.label.outputs, rows).astype(float)
        scores = made.normal(0, 1, (rows, asked.label.outputs))
        scores[np.arange(rows), labels.astype(int)] += 1.5
    counts = counted(asked, scores, labels)
    exact = every_estimate(summary(asked, counts, 0.0))
    found: dict[str, list[float]] = {name: [] for name in exact}
    for _ in range(runs):
        drawn = summary(asked, counts + made.normal(0, stddev, len(counts)), claimed)
        for name, estimate in every_estimate(drawn).items():
            right = exact[name].value
            assert estimate.value is not None
            assert estimate.noise is not None
            assert right is not None
            found[name].append((estimate.value - right) / estimate.noise)
    return {name: np.array(errors) for name, errors in found.items()}


def too_wide(errors: Floats) -> bool:
    """Whether errors that should have a variance of 1 surely have more: with 2% room for the delta method."""
    return float((errors**2).sum()) / 1.04 > scipy.stats.chi2.isf(FALSE_ALARM, len(errors))


@pytest.mark.parametrize("kind", LABELS)
def test_error_bars_cover_the_noise(kind: str) -> None:
    errors = noisy_errors(kind, 10.0, 10.0)
    assert errors
    for name, of in errors.items():
        assert not too_wide(of), name
        # Bars are not longer than need be either.
        assert float((of**2).sum()) * 1.04 > scipy.stats.chi2.ppf(FALSE_ALARM, len(of)), name


@pytest.mark.parametrize("kind", LABELS)
def test_error_bars_that_are_a_fifth_too_short_are_found(kind: str) -> None:
    assert all(too_wide(of) for of in noisy_errors(kind, 10.0, 8.0).values())


def resampled(per_unit: int) -> Floats:
    """How many claimed standard deviations the AUC and accuracy move with other units, whose four examples are alike."""
    made, asked = np.random.default_rng(12), task(evaluation_examples=per_unit)
    errors = []
    exact = summary(asked, counted(asked, *examples(made, 400_000)), 0.0)
    for _ in range(400):
        scores, labels = examples(made, 1500)
        found = summary(asked, counted(asked, np.repeat(scores, 4), np.repeat(labels, 4)), 0.0)
        for name in ("auc", "accuracy"):
            sampling = found.measures[name].sampling
            assert sampling
            errors.append((value(found, name) - value(exact, name)) / sampling)
    return np.array(errors)


def test_the_second_error_covers_the_choice_of_units() -> None:
    assert not too_wide(resampled(4))


def test_examples_of_a_unit_taken_for_independent_are_found() -> None:
    assert too_wide(resampled(1))


@pytest.mark.parametrize("kind", LABELS)
def test_without_examples_no_measure_has_a_value(kind: str) -> None:
    asked = task(kind)
    for stddev in (0.0, 12.0):
        found = summary(asked, np.zeros(evaluation.cell_count(asked)), stddev)
        assert all(estimate.value is None for estimate in found.measures.values())
        assert found.calibration == ()


def test_with_one_class_there_is_no_auc_but_an_accuracy() -> None:
    found = summary(task(), counted(task(), np.linspace(-3, 3, 1000), np.ones(1000)), 1.0)
    assert found.measures["auc"].value is None
    assert value(found, "accuracy") == pytest.approx(0.5, abs=0.01)
    assert found.ties is None


def test_few_units_under_much_noise_give_none_rather_than_a_wild_number() -> None:
    made = np.random.default_rng(8)
    scores, labels = examples(made, 40)
    counts = counted(task(), scores, labels)
    drawn = [summary(task(), counts + made.normal(0, 20, len(counts)), 20.0).measures["auc"] for _ in range(100)]
    assert all(estimate.value is None or 0 <= estimate.value <= 1 for estimate in drawn)
    assert sum(estimate.value is None for estimate in drawn) > 95


@settings(max_examples=150, deadline=None)
@given(data=st.data(), kind=st.sampled_from(sorted(LABELS)))
def test_whatever_the_counts_are_the_summary_is_json(data: st.DataObject, kind: str) -> None:
    asked = task(kind, evaluation_cells=data.draw(st.integers(2, 6)))
    numbers = st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e3, 1e3) | st.just(0.0)
    count = evaluation.cell_count(asked)
    counts = data.draw(st.lists(numbers, min_size=count, max_size=count))
    stddev = data.draw(st.sampled_from([0.0, 1e-300, 1.0, 50.0, 1e300]))
    found = json.loads(summary(asked, counts, stddev).text())
    assert found["cells"] == counts
    for name in ("auc", "accuracy", "base_rate", "balanced_accuracy"):
        shown = found["measures"].get(name, {"value": None})["value"]
        assert shown is None or 0 <= shown <= 1


@pytest.mark.parametrize("counts", [[1.0], [math.nan] * 64, [math.inf] * 64, []])
def test_counts_that_are_none_are_refused(counts: list[float]) -> None:
    with pytest.raises(RequestError, match="64 finite numbers"):
        summary(task(), counts, 1.0)
