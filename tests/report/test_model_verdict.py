"""The verdict on a model: beside made-up models whose worth is known, and never more than released numbers hold."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Number, NumberLabel, TrainModel
from dp_pipelines.report.models import model_verdict
from dp_pipelines.training import evaluation

FEATURES = {"visits": Number(column="visits", min_value=0, max_value=60)}
ONCE = {"task": {"max_examples_per_unit": 1}}


def task(label: Any) -> TrainModel:
    return TrainModel(privacy_unit="customer", label=label, features=FEATURES, evaluation_cells=16)


BINARY = task(BinaryLabel(column="y"))


def evaluated(asked: TrainModel, scores: Any, labels: Any, stddev: float = 5.0, seed: int = 1) -> dict[str, Any]:
    """`evaluation.json` of these held-out examples."""
    used = evaluation.cell_count(asked)
    counts = np.bincount(evaluation.cells(asked, scores, labels), minlength=used).astype(float)
    noise = np.random.default_rng(seed).normal(0, stddev, used)
    found: dict[str, Any] = json.loads(evaluation.summary(asked, counts + noise, stddev).text())
    return found


def binary(share: float, strength: float, seed: int = 3, rows: int = 8000, **changed: Any) -> dict[str, Any]:
    """Scores of a calibrated model of a label with this share of true examples; with a strength of 0 they say nothing."""
    made = np.random.default_rng(seed)
    true = made.random(rows) < share
    logits = strength * (made.normal(size=rows) + strength * true) - strength**2 / 2 + np.log(share / (1 - share))
    return evaluated(BINARY, logits, true.astype(float), seed=seed) | changed


def alone(value: float, noise: float) -> dict[str, Any]:
    """The same file with a feature that has this AUC alone."""
    return {"baselines": {"best_feature": {"auc": {"value": value, "noise_stddev": noise}}}, "best_feature": "visits"}


def test_the_base_rate_comes_first_and_a_rare_label_has_it_as_its_accuracy() -> None:
    first, _, accuracy = model_verdict.lines(binary(0.05, 1.5), ONCE, "customer")
    assert first.startswith("the share of held-out examples that are true is 0.05")
    assert "always saying false has an accuracy of 0.9" in first
    assert accuracy.startswith(
        "nothing shows that its classes are right more often than always saying false: its accuracy"
    )
    assert "always saying true" in model_verdict.lines(binary(0.9, 1.5), ONCE, "customer")[0]


@pytest.mark.parametrize(
    ("value", "noise", "words"),
    [
        (0.60, 0.003, "it ranks better than visits alone"),
        (0.85, 0.003, "nothing shows that it ranks better than visits alone"),
        (0.93, 0.003, "it ranks worse than visits alone"),
        (0.93, 0.03, "nothing shows that it ranks better than visits alone"),
        (0.93, 0.2, "it ranks better than chance, whose AUC is 0.5"),
    ],
)
def test_a_model_is_compared_with_its_best_feature(value: float, noise: float, words: str) -> None:
    """The AUC of the model is .855: scores of the two classes are 1.5 standard deviations apart."""
    ranked = model_verdict.lines(binary(0.3, 1.5, **alone(value, noise)), ONCE, "customer")[0]
    assert ranked.startswith(words)
    if value == 0.93 and noise < 0.1:
        assert ("worse" in ranked) or ranked.endswith("which is lower")


def test_where_units_may_have_several_examples_figures_are_said_to_count_differently() -> None:
    found = binary(0.3, 1.5, **alone(0.93, 0.003))
    ranked = model_verdict.lines(found, {"task": {"max_examples_per_unit": 32}}, "customer")[0]
    assert ranked.startswith("the AUC of the model is 0.8")
    assert "below that of visits alone" in ranked
    assert "in the first each customer counts once, in the second all do" in ranked
    assert "worse" not in ranked
    alike = model_verdict.lines(found | {"examples_per_unit": 32}, {"task": {"max_examples_per_unit": 32}}, "customer")[
        0
    ]
    assert alike.startswith("it ranks worse than visits alone")


def test_without_a_feature_it_is_compared_with_chance() -> None:
    assert model_verdict.lines(binary(0.3, 1.5), ONCE, "u")[1].startswith("it ranks better than chance")
    assert model_verdict.lines(binary(0.3, 0.0), ONCE, "u")[1].startswith(
        "nothing shows that it ranks better than chance"
    )


def test_a_model_that_says_nothing_is_called_better_in_at_most_some_of_20_cases() -> None:
    """Scores without any relation to the label: bars are those of two sides, so that 2.5% are expected."""
    made, better = np.random.default_rng(11), 0
    for seed in range(200):
        true = made.random(3000) < 0.5
        found = evaluated(BINARY, made.normal(size=3000), true.astype(float), seed=seed)
        words = model_verdict.lines(found, ONCE, "u")
        better += sum(line.startswith(("it ranks better", "its classes are right more")) for line in words[1:2])
    assert better <= 14  # more than that has a probability below 1e-3, with these draws


def test_classes_are_compared_with_the_most_frequent_one() -> None:
    asked, made = task(ClassLabel(column="y", classes=["a", "b", "c"])), np.random.default_rng(4)
    labels = made.choice(3, 6000, p=[0.6, 0.3, 0.1])
    for lift, words in ((2.0, "its classes are right more often"), (0.0, "its classes are right less often")):
        scores = made.normal(size=(6000, 3))
        scores[np.arange(6000), labels] += lift
        lines = model_verdict.lines(evaluated(asked, scores, labels), ONCE, "u")
        assert lines[0].startswith("always saying a has an accuracy of 0.599")
        assert lines[1].startswith(f"{words} than always saying a")


def test_the_lead_over_a_constant_is_the_difference_of_accuracies() -> None:
    """Without noise: of 100 predicted true 60 are true, so that 20 more are right than by always saying false."""
    cells = [[880.0, 40.0], [20.0, 60.0]]
    confusion = [[{"value": count, "noise_stddev": 0.0} for count in row] for row in cells]
    measures = {"accuracy": {"value": 0.94}, "base_rate": {"value": 0.08}}
    found = {"measures": measures, "confusion": confusion, "examples_per_unit": 1}
    assert "right more often" in model_verdict.lines(found, {}, "u")[0]  # 20 > 1.96 * sqrt(100)
    assert "nothing shows" in model_verdict.lines(found | {"examples_per_unit": 2}, {}, "u")[0]  # 20 < 1.96 * sqrt(200)


def test_a_model_of_a_number_is_compared_with_the_mean() -> None:
    asked, made = task(NumberLabel(column="y", min_value=0, max_value=1)), np.random.default_rng(5)
    truth = made.random(6000)
    good = model_verdict.lines(evaluated(asked, 0.8 * truth + 0.1, truth), ONCE, "u")
    bad = model_verdict.lines(evaluated(asked, 1 - truth, truth), ONCE, "u")
    assert good[0].startswith("it predicts better than always saying the mean")
    assert bad[0].startswith("it predicts worse than always saying the mean")


def test_counts_within_their_noise_have_no_verdict() -> None:
    empty = json.loads(evaluation.summary(BINARY, np.zeros(32), 100.0).text())
    assert model_verdict.lines(empty, ONCE, "u") == []


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just([]) | st.just({})
SOUND = binary(0.3, 1.5, **alone(0.8, 0.01))


@given(data=st.data())
def test_no_file_raises(data: st.DataObject) -> None:
    found = json.loads(json.dumps(SOUND))
    for _ in range(2):
        at: Any = found
        while at:
            key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if not isinstance(at[key], (dict, list)) or not at[key] or data.draw(st.integers(0, 3)) == 0:
                at[key] = data.draw(ODD)
                break
            at = at[key]
    assert all(
        isinstance(words, str) for words in model_verdict.lines(found, data.draw(st.just(ONCE) | st.just({})), "u")
    )
