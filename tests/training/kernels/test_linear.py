"""Linear kernels: right gradients, and a sum in which each unit adds its own vector of bounded norm, to the last bit."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Label, NumberLabel
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels import exponentials, linear
from dp_pipelines.training.kernels.linear import LinearKernel
from tests.training.few import Few, Unit, adversarial, ordinary

WIDTH = 37  # no multiple of what any instruction takes at a time
BINARY, CLASSES = BinaryLabel(column="y"), ClassLabel(column="y", classes=["a", "b", "c"])
NUMBER = NumberLabel(column="y", min_value=-1, max_value=3)
LABELS: list[Label] = [BINARY, CLASSES, NUMBER]
VALUES = [0.0, 1.0, 2.0]


def kernel(label: Label, width: int = WIDTH) -> LinearKernel:
    return LinearKernel(width=width, label=label)


def values(label: Label) -> list[float]:
    return [*VALUES[: 2 if label is BINARY else 3], math.nan]


def some(made: LinearKernel, size: float = 1.0) -> np.ndarray:
    return np.random.default_rng(5).normal(size=made.size) * size


def loss(label: Label, logits: np.ndarray, y: float) -> float:
    """Of one example, by the definition."""
    if label is BINARY:
        return float(np.log1p(np.exp(logits[0]))) - y * float(logits[0])
    if label is CLASSES:
        return float(np.log(np.exp(logits).sum())) - float(logits[int(y)])
    return (float(logits[0]) - (y + 1) / 4) ** 2 / 2


@pytest.mark.parametrize("label", LABELS, ids=lambda label: type(label).__name__)
def test_a_gradient_that_is_not_clipped_is_the_derivative_of_the_loss(label: Label) -> None:
    made = kernel(label, 5)
    units = ordinary(7, 5, np.random.default_rng(1), labels=2 if label is BINARY else 3)
    chunk = Few(units, 5).take(np.arange(7))
    parameters = some(made)

    def total(parameters: np.ndarray) -> float:
        weights = parameters.reshape(made.outputs, 5)
        pairs = zip(chunk.features.astype(float), chunk.labels, strict=True)
        return math.fsum(loss(label, weights @ x, y) for x, y in pairs)

    ends = (total(parameters + 1e-5 * unit) - total(parameters - 1e-5 * unit) for unit in np.eye(made.size))
    assert made.clipped_sum(parameters, chunk, 1000.0) == pytest.approx(
        np.array([end / 2e-5 for end in ends]), abs=1e-7
    )


@pytest.mark.parametrize("label", LABELS, ids=lambda label: type(label).__name__)
def test_a_loss_bends_by_no_more_than_the_curvature_says_and_by_nearly_that(label: Label) -> None:
    made, most = kernel(label, 1), 0.0
    for logit in np.linspace(-4, 4, 41):
        logits = np.array([logit, -logit, -50.0])[: made.outputs]
        direction = np.array([1.0, -1.0, 0.0])[: made.outputs]
        direction /= np.linalg.norm(direction)
        three = [loss(label, logits + h * direction, 1.0) for h in (-1e-3, 0, 1e-3)]
        most = max(most, (three[0] - 2 * three[1] + three[2]) / 1e-6)
    assert made.curvature * 0.95 < most < made.curvature * 1.001


def exactly(made: LinearKernel, parameters: np.ndarray, units: list[Unit], norm: float) -> list[Fraction]:
    """The sum of what each unit gives alone, without any rounding."""
    alone = [made.clipped_sum(parameters, Few([unit], made.width).take(np.arange(1)), norm) for unit in units]
    return [sum(map(Fraction, column), Fraction(0)) for column in zip(*map(np.ndarray.tolist, alone), strict=True)]


@settings(max_examples=60)
@given(data=st.data(), label=st.sampled_from(LABELS), norm=st.sampled_from([1e-50, 0.3, 8.0, 1e9]))
def test_a_chunk_is_exactly_the_sum_of_what_its_units_give_alone_in_any_order(
    data: st.DataObject, label: Label, norm: float
) -> None:
    made = kernel(label)
    units = data.draw(adversarial(WIDTH, values(label)))
    parameters = some(made, data.draw(st.sampled_from([0.0, 1.0, 1e8])))
    exact = [float(each) for each in exactly(made, parameters, units, norm)]
    for order in (range(len(units)), data.draw(st.permutations(range(len(units))))):
        chunk = Few([units[place] for place in order], WIDTH).take(np.arange(len(units)))
        assert made.clipped_sum(parameters, chunk, norm).tolist() == exact


@settings(max_examples=60)
@given(data=st.data(), label=st.sampled_from(LABELS), norm=st.sampled_from([1e-50, 0.3, 8.0, 1e9]))
def test_what_one_unit_adds_is_never_longer_than_the_norm_exactly(
    data: st.DataObject, label: Label, norm: float
) -> None:
    made = kernel(label)
    units = data.draw(adversarial(WIDTH, values(label)))
    few, parameters = Few(units, WIDTH), some(made)
    with_all = made.clipped_sum(parameters, few.take(np.arange(few.units)), norm)
    for place in range(few.units):
        rest = few.without(place)
        without = made.clipped_sum(parameters, rest.take(np.arange(rest.units)), norm)
        change = [Fraction(a) - Fraction(b) for a, b in zip(with_all.tolist(), without.tolist(), strict=True)]
        assert sum(x * x for x in change) <= Fraction(norm) ** 2


def test_a_longer_gradient_is_scaled_to_nearly_the_norm_however_long_it_is() -> None:
    made = kernel(BINARY, 3)
    direction = np.array([1.0, 2.0, -2.0])
    for scale in (1.0, 1e6, 1e30, 1e38):
        unit = ((direction * scale / 3).astype(np.float32)[None], np.array([0.0]))
        found = made.clipped_sum(made.initial(), Few([unit], 3).take(np.arange(1)), 0.25)
        assert found == pytest.approx(direction / 12, rel=2e-6)
        assert np.linalg.norm(found) < 0.25
    tiny = (np.full((1, 3), 1e-40, np.float32), np.array([0.0]))
    assert made.clipped_sum(made.initial(), Few([tiny], 3).take(np.arange(1)), 0.25) == pytest.approx(0, abs=1e-12)


def test_a_unit_whose_gradient_overflows_after_many_rows_is_clipped_too() -> None:
    made = LinearKernel(width=2, label=NumberLabel(column="y", min_value=0, max_value=1e-200))
    rows = np.full((3, 2), 3e38, np.float32)
    # Slopes of 1e200 and more: squares overflow, the gradient does not.
    found = made.clipped_sum(np.zeros(2), Chunk(rows, np.full(3, 1.0), np.array([0, 3])), 1.0)
    assert found == pytest.approx(np.full(2, -math.sqrt(0.5)), rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("label", LABELS, ids=lambda label: type(label).__name__)
def test_a_unit_with_a_number_that_is_none_adds_nothing_and_disturbs_nobody(label: Label, bad: float) -> None:
    made, units = kernel(label), ordinary(5, WIDTH, np.random.default_rng(2))
    few = Few(units, WIDTH)
    broken = units[2][0].copy()
    broken[-1, 3] = bad
    units[2] = (broken, units[2][1])
    parameters = some(made)
    expected = made.clipped_sum(parameters, few.without(2).take(np.arange(4)), 1.0)
    assert made.clipped_sum(parameters, Few(units, WIDTH).take(np.arange(5)), 1.0).tolist() == expected.tolist()


@pytest.mark.parametrize("block", [1, 64, 1000, 2**20])
@pytest.mark.parametrize("label", LABELS, ids=lambda label: type(label).__name__)
def test_how_many_rows_are_in_memory_changes_no_bit(label: Label, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = kernel(label)
    units = ordinary(40, WIDTH, np.random.default_rng(3), rows=50)
    chunk, parameters = Few(units, WIDTH).take(np.arange(40)), some(made)
    before = made.clipped_sum(parameters, chunk, 3.0)
    monkeypatch.setattr(linear, "BLOCK", block)
    assert made.clipped_sum(parameters, chunk, 3.0).tolist() == before.tolist()


def bits_change(logits, squares) -> bool:
    """Whether a row's product with weights, or a row's square, depends on where the row stands and on who stands beside it."""
    made, found = np.random.default_rng(4), set()
    for width in (1, 2, 3, 5, 8, 17, 37, 64, 152, 301, 9001):  # einsum alone takes 9,001 numbers in pieces
        weights = made.normal(size=width)
        pool = made.normal(size=(400 if width < 1000 else 20, width))
        alone = np.array([logits(row[None].copy(), weights)[0] for row in pool])
        squared = np.array([squares(row[None].copy())[0] for row in pool])
        for begin, end in ((0, 400), (1, 400), (0, -1), (3, 10), (5, 6), (17, 81)):
            part = pool[begin:end].copy()
            found.add((logits(part, weights) == alone[begin:end]).all())
            found.add((squares(part) == squared[begin:end]).all())
        # The same from memory that begins at any multiple of eight bytes.
        for offset in range(1, 8):
            held = np.empty(pool.size + 8)[offset : offset + pool.size].reshape(pool.shape)
            held[:] = pool
            found.add((logits(held, weights) == alone).all())
            found.add((squares(held) == squared).all())
    return found != {np.True_}


def test_products_and_squares_of_a_row_depend_on_that_row_alone_and_those_by_blas_do_not() -> None:
    assert not bits_change(linear._products, linear.squared_lengths)
    assert bits_change(lambda x, w: x @ w, linear.squared_lengths)
    assert bits_change(lambda x, w: np.einsum("ij,j->i", x, w), linear.squared_lengths)
    assert bits_change(linear._products, lambda x: np.einsum("ij,ij->i", x, x))


@given(st.lists(st.floats(-800, 0), min_size=1, max_size=40))
def test_the_exponential_is_accurate_and_the_same_wherever_a_number_stands(numbers: list[float]) -> None:
    array = np.array(numbers)
    found = exponentials.exponential(array)
    assert found == pytest.approx(np.exp(array), rel=1e-15, abs=1e-303)
    assert found.tolist() == [float(exponentials.exponential(np.array([number]))[0]) for number in numbers]


@pytest.mark.parametrize("label", LABELS, ids=lambda label: type(label).__name__)
def test_scores_are_what_the_loss_sees(label: Label) -> None:
    made = kernel(label, 4)
    parameters, features = some(made), np.random.default_rng(6).normal(size=(9, 4)).astype(np.float32)
    logits = features.astype(float) @ parameters.reshape(made.outputs, 4).T
    expected = {BINARY: logits[:, 0], CLASSES: logits, NUMBER: -1 + 4 * logits[:, 0]}[label]
    assert made.scores(parameters, features) == pytest.approx(expected)


def test_no_units_add_up_to_zero() -> None:
    for label in LABELS:
        made = kernel(label)
        assert made.clipped_sum(some(made), Few([], WIDTH).take(np.arange(0)), 1.0).tolist() == [0.0] * made.size


@pytest.mark.parametrize("norm", [0.0, math.nan, 1e-101, 1e81])
def test_a_norm_that_no_step_fits_is_refused(norm: float) -> None:
    made = kernel(BINARY)
    with pytest.raises(RequestError, match="clip_norm"):
        made.clipped_sum(made.initial(), Few([], WIDTH).take(np.arange(0)), norm)


def test_a_chunk_of_more_units_than_are_added_exactly_is_refused() -> None:
    chunk = Chunk(np.zeros((70_000, 1), np.float32), np.zeros(70_000), np.arange(70_001))
    with pytest.raises(ValueError, match="exactly"):
        kernel(BINARY, 1).clipped_sum(np.zeros(1), chunk, 1.0)
