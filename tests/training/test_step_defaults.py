"""The learning rate and the averaging that a job leaves open: what they follow from, and what they gain.

In: made-up moments and noise; a small logistic regression. Out: chosen steps, and the loss of the models that they lead to.
Holds: noise is the real one where models are trained; what is asserted there is far from chance. Not covered: real data.
"""

import dataclasses
import itertools
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import MLP, BinaryLabel, Number, Plan, Steps, TrainModel
from dp_pipelines.query.train_model import ClassLabel, NumberLabel
from dp_pipelines.training import fit, step_defaults, weight_errors
from dp_pipelines.training.features import moments, seen_columns
from dp_pipelines.training.kept_draws import InMemory, Released
from tests.training.test_fit import STATEMENT

LABELS: dict[str, Any] = {
    "binary": BinaryLabel(column="y"),
    "classes": ClassLabel(column="y", classes=["a", "b", "c"]),
    "numbers": NumberLabel(column="y", min_value=0, max_value=10),
}
WIDTH = 7
LARGEST = {"binary": 4.0, "classes": 2.0, "numbers": 1.0}
EVERY = step_defaults.GUESSES[BinaryLabel]


def task(kind: str = "binary", **changed: Any) -> TrainModel:
    features = {"a": Number(column="a", min_value=0, max_value=1, bins=5)}
    return TrainModel(privacy_unit="u", label=LABELS[kind], features=features, **changed)


def seen() -> seen_columns.SeenColumns:
    """Columns that are as they are, each in a part of the examples."""
    upper = np.diag([1.0, 0.4, 0.3, 0.2, 0.05, 0.05, 0.02])[np.triu_indices(WIDTH)] * 1e4
    assert len(upper) == moments.size(WIDTH)
    return seen_columns.seen(upper, Released(1e4), 1.0)


def chosen(noise: float, kind: str = "binary", examples: float = 1.0, **changed: Any) -> step_defaults.StepDefaults:
    """With a noise of the mean gradient of this deviation at the usual clip norm, 3."""
    return step_defaults.step_defaults(
        task(kind, **changed),
        seen(),
        typical=2.0,
        noise=noise / 3,
        largest_rate=LARGEST[kind],
        examples_of_unit=examples,
    )


@pytest.mark.parametrize("kind", LABELS)
def test_with_hardly_any_noise_the_defaults_are_those_without(kind: str) -> None:
    found = chosen(1e-9, kind)
    assert (found.clip_norm, found.learning_rate) == (3.0, LARGEST[kind])


@pytest.mark.parametrize("kind", LABELS)
def test_the_more_noise_the_less_of_it_is_let_in(kind: str) -> None:
    """The share of the noise that reaches the scores falls, step by step and never back."""
    shares = []
    for noise in 10.0 ** np.arange(-5.0, 2.0):
        found = chosen(noise, kind)
        bends = step_defaults.GUESSES[type(LABELS[kind])].curvature * np.linspace(0.1, 1, WIDTH)
        taken = found.taken(Steps())
        shares.append(found.clip_norm**2 * weight_errors.noise_shares(taken, found.learning_rate, bends).sum())
    assert all(later <= before * 1.5 for before, later in itertools.pairwise(shares))
    assert shares[-1] < 0.01 * shares[0]


def test_where_noise_is_large_the_clip_norm_follows_the_number_of_examples_of_a_unit() -> None:
    norms = [chosen(0.3, examples=examples).clip_norm for examples in (0.0, 1.0, 2.25, 4.0, 100.0)]
    assert norms == pytest.approx([1.5, 1.5, 2.25, 3.0, 3.0])


def test_of_what_the_job_says_nothing_is_changed() -> None:
    asked = Steps(clip_norm=9.0, learning_rate=0.7, average=0.25)
    assert chosen(1.0, steps=asked).taken(Steps()) == asked
    assert chosen(1.0, steps=Steps(learning_rate=0.7)).learning_rate == 0.7
    assert chosen(1.0, steps=Steps(clip_norm=9.0)).clip_norm == 9.0
    assert chosen(1.0, steps=Steps(average=0.25)).averaged == 10
    assert chosen(1.0, steps=Steps(average=0.25)).learning_rate < 4.0


def test_what_is_no_linear_model_of_whitened_features_keeps_its_defaults() -> None:
    usual = step_defaults.StepDefaults(clip_norm=3.0, learning_rate=4.0, averaged=20)
    assert chosen(1.0, model=MLP(hidden=[4])) == usual
    plain = step_defaults.step_defaults(task(whiten=False), None, typical=2.0, noise=1.0, largest_rate=4.0)
    assert plain == usual
    assert chosen(1.0, steps=Steps(steps=5000)).learning_rate == 4.0


@pytest.mark.parametrize("rate", [1e-20, 1e5, 1e20, 1e25])
@pytest.mark.parametrize("noise", [0.0, 1e-300, 1e200])
def test_no_number_is_too_large_or_too_small(rate: float, noise: float) -> None:
    assert chosen(noise, steps=Steps(learning_rate=rate)).learning_rate == rate
    assert 0 < chosen(noise).learning_rate <= 4.0


@pytest.mark.parametrize("average", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rate", [0.3, 4.0])
def test_what_is_above_the_least_loss_is_that_of_steps_on_a_quadratic(average: float, rate: float) -> None:
    """Each step's noise alone, and the distance alone, followed through the steps: their squares add up."""
    steps, noise = Steps(steps=9, average=average), 0.3
    spread = np.array([0.05, 0.4, 1.0])
    bends = EVERY.curvature * spread

    def followed(start: np.ndarray, noisy: int) -> np.ndarray:
        at, momentum, summed = start.copy(), np.zeros(3), np.zeros(3)
        for step in range(1, steps.steps + 1):
            momentum = steps.momentum * momentum + bends * at + noise * (step == noisy)
            at -= rate * momentum
            summed += at * (step > steps.steps - steps.averaged)
        return summed / steps.averaged

    first = np.full(3, np.sqrt(EVERY.signal / spread.sum()))
    above = bends @ followed(first, 0) ** 2 / 2
    above += sum(bends @ followed(np.zeros(3), noisy) ** 2 for noisy in range(1, steps.steps + 1)) / 2
    above += (
        EVERY.curvature
        * EVERY.middle
        * step_defaults.distances_left(steps, rate, np.array([EVERY.curvature]), [steps.averaged])[0][0] ** 2
        / 2
    )
    assert step_defaults.excess(steps, rate, spread, noise, EVERY, [steps.averaged])[1] == pytest.approx([above])


FORMERLY = 1.5 * 91**0.5
"""About the default of a model with 91 columns that are told apart, without noise."""


def rows(units: int) -> pa.Table:
    """Ten features, some of which move the odds; three examples in ten are true."""
    made = np.random.default_rng(3)
    x = made.random((units, 10))
    score = 4 * (x[:, 0] - 0.5) - 3 * (x[:, 1] - 0.5) + 2 * np.abs(x[:, 2] - 0.5) - 1.4
    y = made.random(units) < 1 / (1 + np.exp(-score))
    return pa.table({"who": np.arange(units), "y": y, **{f"x{n}": x[:, n] for n in range(10)}})


def loss(rows: pa.Table, steps: Steps, epsilon: float, folder: pathlib.Path) -> float:
    """The mean log loss of a fitted model, over all examples."""
    edges = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    features = {f"x{n}": Number(column=f"x{n}", min_value=0, max_value=1, edges=edges) for n in range(10)}
    asked = TrainModel(
        privacy_unit="who", label=BinaryLabel(column="y"), features=features, steps=steps, max_examples_per_unit=1
    )
    plan = Plan(epsilon=epsilon, delta=1e-6, stages={"model": asked})
    fitted = fit.Fit(
        name="model", task=asked, stages=plan.round(1).stages, tables=lambda: iter([rows]), folder=folder,
        draws=InMemory(), key=b"key", salt=7, tell=lambda text: None,
    ).run(STATEMENT)  # fmt: skip
    scores, y = fitted.artefact.scores(rows), rows.column("y").to_numpy()
    return float(np.mean(np.logaddexp(0, scores) - y * scores))


def test_where_noise_is_large_the_model_is_better_than_with_the_defaults_of_little_noise(
    tmp_path: pathlib.Path,
) -> None:
    made = rows(8000)
    formerly, now = Steps(learning_rate=4.0, average=0.5, clip_norm=FORMERLY), Steps()
    found = {}
    for name, steps in (("formerly", formerly), ("now", now)):
        of = []
        for run in range(4):
            folder = tmp_path / f"{name}{run}"
            folder.mkdir()
            of.append(loss(made, steps, 0.3, folder))
        found[name] = np.mean(of)
    assert found["now"] < found["formerly"]


def test_where_noise_is_small_the_model_is_as_good(tmp_path: pathlib.Path) -> None:
    made = rows(4000)
    losses = []
    for name, steps in (("a", Steps(learning_rate=4.0, average=0.5, clip_norm=FORMERLY)), ("b", Steps())):
        (tmp_path / name).mkdir()
        losses.append(loss(made, steps, 30.0, tmp_path / name))
    assert losses[1] == pytest.approx(losses[0], abs=0.01)


def test_taken_steps_say_what_was_chosen() -> None:
    for averaged in range(1, 8):
        defaults = step_defaults.StepDefaults(clip_norm=2.0, learning_rate=0.5, averaged=averaged)
        taken = defaults.taken(Steps(steps=7))
        assert (taken.averaged, taken.learning_rate) == (averaged, 0.5)
        assert dataclasses.replace(taken, clip_norm=None, learning_rate=None, average=None) == Steps(steps=7)
