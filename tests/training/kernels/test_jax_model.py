"""JAX models: beside the network's own kernel, exact sums, sensitivity, names, and the settings of the process."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import DpError, RequestError
from dp_pipelines.query.train_model import BinaryLabel, JaxModel, Number, TrainModel
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels import network
from dp_pipelines.training.kernels.jax_model import JaxKernel, resolve
from dp_pipelines.training.kernels.mlp import MLPKernel
from tests.training import jax_models
from tests.training.few import Few, adversarial, ordinary

jax = pytest.importorskip("jax")
pytest.importorskip("jax_privacy")

WIDTH = jax_models.WIDTH
KERNEL = JaxKernel(model=jax_models.net, size=jax_models.Net.size, width=WIDTH, microbatch=8, most_rows=4)
AT = network.uniform(KERNEL.size, b"parameters") * 0.7


def all_of(few: Few) -> Chunk:
    return few.take(np.arange(few.units))


@pytest.mark.parametrize("clip_norm", [0.05, 30.0])
def test_it_agrees_with_the_kernel_of_networks(clip_norm: float) -> None:
    few = Few(ordinary(30, WIDTH, np.random.default_rng(1), rows=9), WIDTH)
    own = MLPKernel(width=WIDTH, hidden=(7, 4), label=BinaryLabel(column="y"), key=b"test")
    found = KERNEL.clipped_sum(AT, all_of(few), clip_norm)
    assert np.linalg.norm(found - own.clipped_sum(AT, all_of(few), clip_norm)) < 3e-6 * clip_norm * few.units
    assert np.linalg.norm(found) > 0.01 * clip_norm
    np.testing.assert_allclose(KERNEL.scores(AT, all_of(few).features), own.scores(AT, all_of(few).features), atol=1e-5)
    np.testing.assert_array_equal(KERNEL.initial(), own.initial())


@given(data=st.data(), clip_norm=st.sampled_from([1e-3, 0.7, 40.0]))
@settings(max_examples=25, deadline=None)
def test_without_a_unit_the_sum_is_less_by_that_unit_alone_and_never_by_more_than_the_norm(
    data: st.DataObject, clip_norm: float
) -> None:
    few = Few(data.draw(adversarial(WIDTH, [0.0, 1.0, np.nan], most=20)), WIDTH)
    place = data.draw(st.integers(0, few.units - 1))
    whole = KERNEL.clipped_sum(AT, all_of(few), clip_norm)
    alone = KERNEL.clipped_sum(AT, few.take(np.array([place])), clip_norm)
    assert np.isfinite(whole).all()
    assert (KERNEL.clipped_sum(AT, all_of(few.without(place)), clip_norm) + alone).tobytes() == whole.tobytes()
    assert sum(Fraction(number) ** 2 for number in alone.tolist()) <= Fraction(clip_norm) ** 2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_unit_with_a_number_that_is_none_adds_nothing(bad: float) -> None:
    units = ordinary(3, WIDTH, np.random.default_rng(2))
    units[1][0][0, 2] = bad
    alone = KERNEL.clipped_sum(AT, Few(units, WIDTH).take(np.array([1])), 1.0)
    assert not alone.any()


def test_the_sum_of_no_units_is_zero() -> None:
    none = Chunk(np.zeros((0, WIDTH), np.float32), np.zeros(0), np.zeros(1, np.int64))
    assert not KERNEL.clipped_sum(AT, none, 1.0).any()


def test_settings_of_the_process_stay() -> None:
    before = jax.config.jax_enable_x64
    few = Few(ordinary(3, WIDTH, np.random.default_rng(1)), WIDTH)
    assert KERNEL.clipped_sum(AT, all_of(few), 1.0).dtype == np.float64
    assert jax.config.jax_enable_x64 == before
    assert jax.numpy.ones(1).dtype == (np.float64 if before else np.float32)


class DependsOnPlace(JaxKernel):
    """A machine on which the last unit of a block meets other instructions."""

    def _block(self, parameters, features, labels, used, clip_norm):
        return super()._block(parameters, features, labels, used, clip_norm) + used[-1].any()


def test_a_machine_whose_gradients_depend_on_the_place_is_refused() -> None:
    kernel = DependsOnPlace(model=jax_models.net, size=jax_models.Net.size, width=WIDTH, microbatch=8, most_rows=1)
    with pytest.raises(DpError, match="depends on its place"):
        kernel.clipped_sum(AT, all_of(Few(ordinary(2, WIDTH, np.random.default_rng(1)), WIDTH)), 1.0)


def task(name: str, parameters: int = jax_models.Net.size) -> TrainModel:
    return TrainModel(
        privacy_unit="who",
        label=BinaryLabel(column="y"),
        features={"x": Number(column="x", min_value=0, max_value=1, edges=[0.5])},
        model=JaxModel(name=name, parameters=parameters),
    )


def test_a_model_is_found_by_its_name() -> None:
    assert resolve(task("tests.training.jax_models:net").model) is jax_models.net
    assert JaxKernel.of(task("tests.training.jax_models:net")).size == jax_models.Net.size


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module_anywhere:net", "cannot be imported"),
        ("tests.training.jax_models:nothing", "has no 'nothing'"),
        ("tests.training.jax_models:WIDTH", "has no initial, loss, scores"),
        ("tests/training:net", "module:attribute"),
        ("tests.training.jax_models:net.loss", "module:attribute"),
        (".training:net", "module:attribute"),
    ],
)
def test_a_name_that_is_no_model_is_refused(name: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        JaxKernel.of(task(name))


def test_a_model_of_another_size_or_without_a_beginning_is_refused() -> None:
    with pytest.raises(RequestError, match="is not the size"):
        JaxKernel.of(task("tests.training.jax_models:net", parameters=3))
    with pytest.raises(RequestError, match="finite numbers"):
        JaxKernel.of(task("tests.training.jax_models:endless")).initial()


def test_more_units_than_can_be_added_up_are_refused() -> None:
    many = Chunk(np.zeros((2**16 + 1, WIDTH), np.float32), np.zeros(2**16 + 1), np.arange(2**16 + 2))
    with pytest.raises(ValueError, match="exactly"):
        KERNEL.clipped_sum(AT, many, 1.0)
