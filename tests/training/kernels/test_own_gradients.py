"""Gradients that somebody's own code computes: clipped and added up exactly, one unit at a time, whatever the code does."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import BinaryLabel, Number, RequestError, TrainModel
from dp_pipelines.query.train_model import JaxModel
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels import of_task
from dp_pipelines.training.kernels.linear import LinearKernel
from dp_pipelines.training.kernels.own_gradients import GradientKernel
from tests.training.few import Few, adversarial, ordinary

WIDTH = 4
LINEAR = LinearKernel(width=WIDTH, label=BinaryLabel(column="y"))


class Logistic:
    """Logistic regression, written down by somebody else."""

    size = WIDTH

    def initial(self):
        return np.zeros(WIDTH)

    def gradient(self, parameters, features, labels):
        with np.errstate(all="ignore"):
            return features.astype(np.float64).T @ (1 / (1 + np.exp(-(features @ parameters))) - labels)

    def scores(self, parameters, features):
        return features @ parameters


class Failing(Logistic):
    """Fails on a row that it does not like, gives nonsense for another, and writes into what it was given."""

    def gradient(self, parameters, features, labels):
        if features[0, 1] > 1:
            raise ValueError(str(features[0])) if features[0, 1] < 9 else KeyboardInterrupt(str(features[0]))
        if features[0, 1] < -1:
            return np.ones(2)
        found = super().gradient(parameters, features, labels)
        features[:], labels[:], parameters[:] = np.nan, np.nan, np.nan
        return found


class Wrong(Logistic):
    """Of another size."""

    def gradient(self, parameters, features, labels):
        return np.zeros(WIDTH + 1)


class Blind(Logistic):
    """Cannot be asked for scores."""

    scores = None


class Unsound(Logistic):
    """Fails on rows of zeros."""

    def gradient(self, parameters, features, labels):
        raise ZeroDivisionError("of zeros")


logistic, failing, wrong, blind, unsound = Logistic(), Failing(), Wrong(), Blind(), Unsound()


def of(model: object) -> GradientKernel:
    return GradientKernel(model=model, size=WIDTH)


@pytest.mark.parametrize("norm", [0.05, 30.0])
def test_it_gives_what_the_kernel_of_linear_models_gives(norm: float) -> None:
    chunk = Few(ordinary(30, WIDTH, np.random.default_rng(1)), WIDTH).take(np.arange(30))
    at = np.random.default_rng(2).normal(size=WIDTH)
    assert of(logistic).clipped_sum(at, chunk, norm) == pytest.approx(
        LINEAR.clipped_sum(at, chunk, norm), abs=1e-7 * norm * 30
    )


@settings(max_examples=30)
@given(data=st.data(), norm=st.sampled_from([1e-3, 0.7, 40.0]), model=st.sampled_from([logistic, failing]))
def test_without_a_unit_the_sum_is_less_by_that_unit_alone_and_never_by_more_than_the_norm(
    data: st.DataObject, norm: float, model: object
) -> None:
    few = Few(data.draw(adversarial(WIDTH, [0.0, 1.0, np.nan])), WIDTH)
    place, at, kernel = data.draw(st.integers(0, few.units - 1)), np.linspace(-1, 1, WIDTH), of(model)
    whole = kernel.clipped_sum(at, few.take(np.arange(few.units)), norm)
    alone = kernel.clipped_sum(at, few.take(np.array([place])), norm)
    others = few.without(place)
    assert np.isfinite(whole).all()
    assert (kernel.clipped_sum(at, others.take(np.arange(others.units)), norm) + alone == whole).all()
    assert sum(Fraction(number) ** 2 for number in alone.tolist()) <= Fraction(norm) ** 2


def test_a_unit_on_which_the_code_fails_adds_nothing_and_nothing_is_told() -> None:
    rows = np.array([[1, 0, 0, 0], [1, 5, 0, 0], [1, -5, 0, 0], [1, 9, 0, 0], [1, 0, 0, 0]], np.float32)
    chunk, at = Chunk(rows, np.zeros(5), np.arange(6)), np.zeros(WIDTH)
    assert of(failing).clipped_sum(at, chunk, 9.0).tolist() == [1, 0, 0, 0]
    assert np.isfinite(rows).all()
    assert at.tolist() == [0] * WIDTH


def task(name: str, size: int = WIDTH) -> TrainModel:
    features = {"x": Number(column="x", min_value=0, max_value=1, edges=[0.5])}
    model = JaxModel(name=f"tests.training.kernels.test_own_gradients:{name}", parameters=size)
    return TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features, model=model)


def test_an_object_with_a_gradient_needs_no_loss() -> None:
    pytest.importorskip("jax_privacy")
    assert isinstance(of_task.kernel_of(task("logistic"), b""), GradientKernel)


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [("wrong", WIDTH, "must give 4 numbers"), ("blind", WIDTH, "has no scores"), ("logistic", 5, "is not the size")],
)
def test_an_object_that_cannot_train_is_refused(name: str, size: int, said: str) -> None:
    pytest.importorskip("jax_privacy")
    with pytest.raises(RequestError, match=said):
        of_task.kernel_of(task(name, size), b"")
