"""What `plan` says of a train stage before a row is read: beside what measures of made-up examples say of themselves."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from dp_pipelines import BinaryLabel, Number, Plan, RequestError, TrainModel
from dp_pipelines.planning import training_usefulness
from dp_pipelines.query.expectation import Expectation
from dp_pipelines.query.train_model import EvaluationGroups, NumberLabel
from dp_pipelines.training import evaluation, measures


def task(**changed: Any) -> TrainModel:
    features = {"x": Number(column="x", min_value=0, max_value=1)}
    return TrainModel(**{"privacy_unit": "u", "label": BinaryLabel(column="y"), "features": features, **changed})


def told(expect: Expectation | None, epsilon: float = 1.0, **changed: Any) -> Any:
    plan = Plan(epsilon=epsilon, delta=1e-6, stages={"m": task(**changed)}, expect=expect)
    (found,) = (stage["expected_auc"] for stage in plan.to_json()["stages"] if stage["name"] == "m")
    return found


@pytest.mark.parametrize("cells", [16, 64])
@pytest.mark.parametrize("stddev", [1.0, 20.0])
def test_the_noise_is_about_that_of_an_auc_of_scores_that_fill_their_cells_or_somewhat_more(
    cells: int, stddev: float
) -> None:
    """True scores rise, false ones fall over cells: an AUC of 5/6, where the formula takes even cells for both."""
    across = np.arange(cells) + 0.5
    false, true = 4000 * (cells - across) / cells**2 * 2, 1000 * across / cells**2 * 2
    counts = measures.Counts(values=np.concatenate([false, true]), stddev=stddev, per_unit=1)
    found, _ = measures.auc(counts, np.linspace(0, 1, cells + 1))
    assert found.value == pytest.approx(5 / 6, abs=0.01)
    assert found.noise is not None
    said = training_usefulness.auc_noise(stddev, cells, 4000.0, 1000.0, 5 / 6)
    assert 1 <= said / found.noise <= 1.4


def test_the_sample_is_that_of_many_samples() -> None:
    """Exponential scores, of which Hanley and McNeil's formula is exact: an AUC of 3/4 if true ones are thrice as long."""
    made = np.random.default_rng(8)
    found = []
    for _ in range(2000):
        false, true = np.sort(made.exponential(1, 150)), made.exponential(3, 50)
        found.append(np.searchsorted(false, true).mean() / 150)
    assert np.mean(found) == pytest.approx(0.75, abs=0.01)
    assert training_usefulness.auc_sampling(150, 50, 0.75) == pytest.approx(np.std(found), rel=0.1)


def test_a_plan_says_how_wide_the_bar_of_the_auc_will_be() -> None:
    few, many = told(Expectation(units=10_000)), told(Expectation(units=1_000_000))
    assert many["noise"] == pytest.approx(few["noise"] / 100)
    assert few["noise"] < few["both"] < 1
    noise = Plan(epsilon=1.0, delta=1e-6, stages={"m": task()}).stages["m.evaluation"].noises[0]
    assert noise is not None
    deviation = training_usefulness.auc_noise(noise.stddev, 16, 1000, 1000, 0.75)  # a fifth of the units is held out
    assert few["noise"] == pytest.approx(1.96 * deviation, rel=1e-3)
    assert "with 10,000 units" in few["words"]
    assert told(Expectation(units=10_000), weighting="examples")["noise"] == pytest.approx(8 * few["noise"], rel=0.1)
    assert "will not stand out" in told(Expectation(units=10), 0.1)["words"]


def test_rare_true_examples_make_the_bar_wider_and_the_plan_says_what_no_model_reaches() -> None:
    half, rare = told(Expectation(units=1e6)), told(Expectation(units=1e6, positives=0.05))
    noise = Plan(epsilon=1.0, delta=1e-6, stages={"m": task()}).stages["m.evaluation"].noises[0]
    assert noise is not None
    deviation = training_usefulness.auc_noise(noise.stddev, 16, 190_000, 10_000, 0.75)
    assert rare["noise"] == pytest.approx(1.96 * deviation, rel=1e-3)
    assert rare["noise"] > 5 * half["noise"]
    assert "if 5% of the examples are true; always saying false has an accuracy of 0.95" in rare["words"]
    assert "always saying true has an accuracy of 0.9" in told(Expectation(units=1e6, positives=0.9))["words"]
    assert "if half of the examples are true" in half["words"]
    assert "will not stand out" in told(Expectation(units=10_000, positives=0.001))["words"]
    assert training_usefulness.FEW == measures.FEW


@pytest.mark.parametrize(("share", "stddev"), [(0.05, 10.0), (0.2, 10.0), (0.05, 1.0), (0.95, 4.0)])
def test_both_bars_are_those_of_many_evaluations_of_rare_labels(share: float, stddev: float) -> None:
    """Scores of a calibrated model with an AUC of .75, in 16 cells: held-out examples and noise anew each time."""
    asked, held_out, made = task(evaluation_cells=16), 6000, np.random.default_rng(17)
    bins, apart = np.array(evaluation.edges(asked)), 0.6744897501960817 * math.sqrt(2)
    found = []
    for _ in range(300):
        true = made.random(held_out) < share
        logits = apart * (made.normal(size=held_out) + apart * true) - apart**2 / 2 + math.log(share / (1 - share))
        cells = np.clip(np.searchsorted(bins, 1 / (1 + np.exp(-logits)), side="right") - 1, 0, 15)
        counts = np.bincount(true * 16 + cells, minlength=32) + made.normal(size=32) * stddev
        found.append(evaluation.summary(asked, counts, stddev).measures["auc"].value)
    known = [value for value in found if value is not None]
    assert len(known) > 290
    false, trues = held_out * (1 - share), held_out * share
    noise = training_usefulness.auc_noise(stddev, 16, false, trues, 0.75)
    said = math.hypot(noise, training_usefulness.auc_sampling(false, trues, 0.75))
    assert np.std(known) == pytest.approx(said, rel=0.25)


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan"), "few", True])
def test_a_share_of_positives_is_between_0_and_1(share: Any) -> None:
    with pytest.raises(RequestError, match="expect.positives"):
        Expectation(positives=share)


def test_without_a_guess_it_says_what_to_declare_and_of_other_labels_nothing() -> None:
    for expect in (None, Expectation(users=500)):
        assert "expect: {units: 30000, positives: 0.05}" in told(expect)["words"]
    assert told(Expectation(units=1e4), label=NumberLabel(column="y", min_value=0, max_value=1)) is None


@pytest.mark.parametrize("units", [1e-300, 1.0, 1e160, 1e300])
def test_no_guess_is_too_large_or_too_small(units: float) -> None:
    assert 0 <= told(Expectation(units=units))["noise"] < float("inf")


def test_a_guess_decides_no_release() -> None:
    plans = [Plan(epsilon=1.0, delta=1e-6, stages={"m": task()}, expect=e) for e in (None, Expectation(units=1e6))]
    assert plans[0].digest == plans[1].digest


@pytest.mark.parametrize("units", [0, -1.0, float("nan"), "many"])
def test_a_number_of_units_is_a_number_above_zero(units: Any) -> None:
    with pytest.raises(RequestError, match="expect.units"):
        dataclasses.replace(Expectation(), units=units)


def test_the_number_of_examples_has_as_many_times_the_noise_as_a_unit_may_have_examples() -> None:
    asked = task(max_examples_per_unit=16)
    stages = Plan(epsilon=1.0, delta=1e-6, stages={"m": asked}).stages
    sizes = stages["m.users"]
    noises = {
        s.name: noise.stddev for s, noise in zip(sizes.statistics, sizes.noises, strict=True) if noise is not None
    }
    found = training_usefulness.cost_of_examples(sizes, asked)
    assert found is not None
    assert noises["rows"] > 2 * noises["units"]
    assert found["stddev"] == noises["rows"]
    assert found["stddev"] / found["stddev_with_one"] == 16
    assert f"noise of {noises['rows']:,.0f}, since a unit may have 16" in found["words"]
    assert training_usefulness.cost_of_examples(sizes, task(max_examples_per_unit=1)) is None


@pytest.mark.parametrize("groups", [["a"], ["a", "b", "c"]])
def test_an_overall_count_has_the_noise_of_all_groups_and_that_of_a_group_its_own(groups: list[str]) -> None:
    by = EvaluationGroups(column="area", groups=groups)
    cells = Plan(epsilon=1.0, delta=1e-6, stages={"m": task(evaluation_by=by)}).stages["m.evaluation"]
    found = training_usefulness.price_of_groups(cells, by)
    assert (found["column"], found["groups"]) == ("area", by.count)
    noise = cells.noises[0]
    assert noise is not None
    assert found["stddev"] == noise.stddev
    assert found["stddev_overall"] ** 2 == pytest.approx(by.count * noise.stddev**2)
    assert by.count > 1
