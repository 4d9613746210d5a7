"""Linear models over codes: what the dense kernel computes, and each unit's own whole numbers of bounded length, exactly."""

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Label, NumberLabel
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.features import moments, seen_columns
from dp_pipelines.training.kept_draws import Released
from dp_pipelines.training.kernels import coded_linear, coded_loops, exponentials
from dp_pipelines.training.kernels.coded_linear import CodedLinear
from dp_pipelines.training.kernels.linear import LinearKernel
from tests.training.coded_units import LAYOUT, STEPS, Coded, adversarial, chunk_of, dense, unit

BINARY, CLASSES = BinaryLabel(column="y"), ClassLabel(column="y", classes=["a", "b", "c"])
NUMBER = NumberLabel(column="y", min_value=-1, max_value=3)
LABELS: list[Label] = [BINARY, CLASSES, NUMBER]
WIDTH = LAYOUT.width
FIRST = 1 + np.cumsum([0, *(hot + scaled for hot, scaled in zip(LAYOUT.hot, LAYOUT.scaled, strict=True))])[:-1]
ONE_OF = [range(first, first + hot) for first, hot in zip(FIRST, LAYOUT.hot, strict=True)]
"""The columns of each feature of which a row has exactly one."""


def released(seed: int, least: float) -> np.ndarray:
    """A whitening matrix of moments between 1 and `least`, with the smallest ridge there is."""
    made = np.random.default_rng(seed)
    vectors, _ = np.linalg.qr(made.normal(size=(WIDTH, WIDTH)))
    matrix = (vectors * np.geomspace(1, least, WIDTH)) @ vectors.T
    upper = np.triu_indices(WIDTH)
    noisy = matrix[upper] * np.where(upper[0] == upper[1], 1, math.sqrt(2))
    return moments.directions(noisy, 1.0, 0.0).whitening


def with_dropped_columns(seed: int) -> np.ndarray:
    """What `seen_columns` makes of released moments where a third of the columns is within its noise."""
    made = np.random.default_rng(seed)
    units = [unit(made, 1, [0.0]) for _ in range(2000)]
    rows = dense(units) * np.where(np.arange(WIDTH) % 3 < 2, 1.0, 0.0)
    rows[:, 0] = 1
    upper, stddev = np.triu_indices(WIDTH), 2.0
    weights = np.where(upper[0] == upper[1], 1, math.sqrt(2))
    noisy = (rows.T @ rows)[upper] * weights + made.normal(0, stddev, len(upper[0]))
    return seen_columns.seen(noisy, Released(2000.0), stddev, ONE_OF).whitening


MATRICES: dict[str, np.ndarray | None] = {
    "as it is": None,
    "even": released(1, 1e-2),
    "uneven": released(2, 1e-9),
    "one direction": released(3, 1e-9) * 1e-6 + 1.0,
    "dropped columns": with_dropped_columns(9),
}


def kernel(label: Label, matrix: str = "even") -> CodedLinear:
    return CodedLinear(layout=LAYOUT, label=label).whitened(MATRICES[matrix])


def values(label: Label) -> list[float]:
    return [0.0, 1.0] if label is BINARY else [0.0, 1.0, 2.0]


def some(made: CodedLinear, size: float = 1.0) -> np.ndarray:
    return np.random.default_rng(5).normal(size=made.size) * size


def exact(made: CodedLinear, parameters: np.ndarray, units: list[Coded], norm: float) -> np.ndarray[Any, Any]:
    """The whole numbers by column that units give, before the whitening matrix."""
    step = made.step(parameters, norm)
    total = step.total()
    total.add(step.of(chunk_of(units, made.multiply)))
    return total.exact()


def squared_length(made: CodedLinear, parameters: np.ndarray, units: list[Coded], norm: float) -> Fraction:
    """Of the whitened vector that units give, without any rounding."""
    vector = made.columns.objects.T @ exact(made, parameters, units, norm)
    exponent = made.step(parameters, norm).exponent - 16 - made.columns.exponent
    return sum(number**2 for number in vector.ravel()) * Fraction(2) ** (2 * exponent)


@pytest.mark.parametrize("matrix", ["as it is", "even"])
@pytest.mark.parametrize("norm", [1.0, 1e6])
@pytest.mark.parametrize("label", LABELS, ids=lambda label: type(label).__name__)
def test_sums_are_those_of_the_kernel_of_dense_rows(label: Label, norm: float, matrix: str) -> None:
    made, generator = kernel(label, matrix), np.random.default_rng(1)
    units = [unit(generator, rows, values(label)) for rows in (1, 2, 3, 10, 32, 33, 70)]
    chunk, parameters = chunk_of(units, made.multiply), some(made, 0.1)
    rows = (dense(units) @ made.columns.matrix).astype(np.float32)
    expected = LinearKernel(width=WIDTH, label=label).clipped_sum(
        parameters, Chunk(rows, chunk.labels, chunk.starts), norm
    )
    found = made.clipped_sum(parameters, chunk, norm)
    # Rows of numbers cancel, and what float32 may hide of their length is taken off.
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


@settings(max_examples=40)
@given(
    data=st.data(),
    label=st.sampled_from(LABELS),
    matrix=st.sampled_from(sorted(MATRICES)),
    norm=st.sampled_from([1e-50, 0.3, 8.0, 1e9]),
    size=st.sampled_from([0.0, 1.0, 1e8]),
)
def test_a_chunk_is_exactly_the_sum_of_what_its_units_give_alone_in_any_order(
    data: st.DataObject, label: Label, matrix: str, norm: float, size: float
) -> None:
    made = kernel(label, matrix)
    units, parameters = data.draw(adversarial(values(label))), some(made, size)
    alone = sum((exact(made, parameters, [each], norm) for each in units), np.zeros((WIDTH, made.outputs), object))
    for order in (range(len(units)), data.draw(st.permutations(range(len(units))))):
        assert (exact(made, parameters, [units[place] for place in order], norm) == alone).all()


@settings(max_examples=40)
@given(
    data=st.data(),
    label=st.sampled_from(LABELS),
    matrix=st.sampled_from(sorted(MATRICES)),
    norm=st.sampled_from([1e-50, 0.3, 8.0, 1e9]),
    size=st.sampled_from([0.0, 1.0, 1e8]),
)
def test_what_one_unit_adds_is_never_longer_than_the_norm_exactly(
    data: st.DataObject, label: Label, matrix: str, norm: float, size: float
) -> None:
    made = kernel(label, matrix)
    parameters = some(made, size)
    for each in data.draw(adversarial(values(label), most=3)):
        assert squared_length(made, parameters, [each], norm) <= Fraction(norm) ** 2


def test_units_whose_columns_were_all_dropped_give_less_than_the_norm_and_dropped_columns_get_no_weight() -> None:
    """Rows and columns of zeros in the matrix: those columns' own length is zero, and no bound is made of them."""
    made, matrix = kernel(CLASSES, "dropped columns"), MATRICES["dropped columns"]
    assert matrix is not None
    gone = np.flatnonzero(~matrix.any(axis=1))
    assert len(gone) > WIDTH / 4
    assert not matrix[:, gone].any()
    assert not made.columns.lengths[gone].any()
    assert not made.weights(some(made, 1e6))[gone].any()
    first = np.array([next((column for column in own if column in gone), own[0]) for own in ONE_OF]) - FIRST
    for rows in (1, 3, 33):
        one = Coded(np.repeat(first[:, None], rows, axis=1), np.zeros((rows, 2), np.int32), np.zeros(rows))
        for norm in (1e-50, 0.3, 8.0, 1e9):
            assert 0 < squared_length(made, some(made), [one], norm) <= Fraction(norm) ** 2


@pytest.mark.parametrize("matrix", sorted(MATRICES))
@pytest.mark.parametrize("label", LABELS, ids=lambda label: type(label).__name__)
def test_rows_along_the_worst_direction_reach_the_norm_and_no_more(label: Label, matrix: str) -> None:
    """All rows of a unit equal, among them those whose columns the matrix stretches most."""
    made, generator = kernel(label, matrix), np.random.default_rng(3)
    parameters = made.initial()
    units = [unit(generator, 1, values(label)) for _ in range(20)]
    lengths = [float(np.linalg.norm(dense([each]) @ made.columns.matrix)) for each in units]
    one, norm = units[int(np.argmax(lengths))], max(lengths) / 5
    for rows in (1, 2, 20, 32, 33, 60):
        places, scaled = np.repeat(one.places, rows, axis=1), np.repeat(one.scaled, rows, axis=0)
        reached = squared_length(made, parameters, [Coded(places, scaled, np.repeat(one.labels, rows))], norm)
        assert reached <= Fraction(norm) ** 2
        assert math.sqrt(reached) > norm * (1 - 2e-5)


def test_rows_that_cancel_are_as_long_as_what_is_left_of_them() -> None:
    """Equal rows with opposite labels: their whole numbers cancel, and rounding hides no length."""
    made, generator = kernel(BINARY, "uneven"), np.random.default_rng(4)
    one = unit(generator, 1, [0.0])
    both = Coded(np.repeat(one.places, 2, axis=1), np.repeat(one.scaled, 2, axis=0), np.array([0.0, 1.0]))
    parameters = np.zeros(made.size)
    assert not exact(made, parameters, [both], 1e-3).any()
    other = Coded(both.places.copy(), both.scaled.copy(), both.labels)
    other.places[2, 1] = (other.places[2, 0] + 1) % 4
    assert 0 < squared_length(made, parameters, [other], 1e-3) <= Fraction(1e-3) ** 2


@pytest.mark.parametrize("rows", [2, 32, 64])
def test_rows_that_almost_cancel_hide_no_length_in_what_float32_rounds_off(rows: int) -> None:
    """Equal codes, opposite labels, scaled values a step apart: float32 cannot tell the products of such rows."""
    made, generator, half = kernel(BINARY, "even"), np.random.default_rng(8), rows // 2
    for norm in (1e-7, 1e-5, 1e-4):
        for _ in range(10):
            one = unit(generator, 1, [0.0])
            scaled = np.repeat(one.scaled, rows, axis=0)
            scaled[:half, 0], scaled[half:, 0] = 30_000, 30_001
            both = Coded(np.repeat(one.places, rows, axis=1), scaled, np.repeat([0.0, 1.0], half))
            assert squared_length(made, made.initial(), [both], norm) <= Fraction(norm) ** 2


@pytest.mark.parametrize("label", LABELS, ids=lambda label: type(label).__name__)
def test_the_longest_units_overflow_nothing_and_still_longer_ones_add_nothing(label: Label) -> None:
    made = CodedLinear(layout=LAYOUT, label=label)
    generator, rows = np.random.default_rng(6), coded_loops.MOST_ROWS
    one = unit(generator, 1, [0.0])
    one.scaled[:] = STEPS

    def many(count: int) -> list[Coded]:
        places, scaled = np.repeat(one.places, count, axis=1), np.repeat(one.scaled, count, axis=0)
        return [Coded(places, scaled, np.zeros(count))]

    parameters = np.full(made.size, 1e6)
    parameters[0] = -1e12 if label is CLASSES else 1e12  # residuals as large as they can be
    single, whole = (exact(made, parameters, many(count), 1e70) for count in (1, rows))
    assert np.abs(single).max() == 2**46
    assert (whole == rows * single).all()
    assert not exact(made, parameters, many(rows + 1), 1e70).any()


@pytest.mark.parametrize("most", [1, 7, 64])
def test_how_many_rows_are_added_up_at_a_time_changes_no_bit(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, generator = kernel(CLASSES), np.random.default_rng(7)
    units = [unit(generator, int(rows), values(CLASSES)) for rows in generator.integers(1, 50, 30)]
    before = exact(made, some(made), units, 3.0)
    monkeypatch.setattr(coded_linear, "MOST_ROWS", most)
    assert (exact(made, some(made), units, 3.0) == before).all()


@given(st.lists(st.floats(-800, 0), min_size=1, max_size=40))
def test_the_exponential_has_the_same_bits_as_elsewhere(numbers: list[float]) -> None:
    array = np.array(numbers)
    expected = exponentials.exponential(array)
    coded_loops._exponentials(array, np.empty(len(array), np.int64))
    assert array.tolist() == expected.tolist()


def test_a_residual_that_is_no_number_counts_as_none_and_a_huge_one_as_the_limit() -> None:
    found = np.array([[math.nan, math.inf], [-1e30, 3.0]])
    coded_loops.clamp(found, 64.0)
    assert found.tolist() == [[0.0, 64.0], [-64.0, 3.0]]


def test_no_units_add_up_to_zero() -> None:
    for label in LABELS:
        made = kernel(label)
        assert made.clipped_sum(some(made), chunk_of([], made.multiply), 1.0).tolist() == [0.0] * made.size


def test_a_matrix_that_no_release_leads_to_is_refused() -> None:
    for factor in (2.0**-60, 2.0**60):
        with pytest.raises(ValueError, match="matrix"):
            CodedLinear(layout=LAYOUT, label=BINARY).whitened(np.eye(WIDTH) * factor).step(np.zeros(WIDTH), 1.0)


def test_low_halves_stay_low_however_many_chunks_are_merged() -> None:
    made, generator = kernel(CLASSES), np.random.default_rng(11)
    units = [unit(generator, int(rows), values(CLASSES)) for rows in generator.integers(1, 40, 40)]
    step = made.step(some(made), 3.0)
    total = step.total()
    for each in units:
        total.add(step.of(chunk_of([each], made.multiply)))
    for low in total._sums.low:
        assert ((low >= 0) & (low < 2**32)).all()
    assert (total.exact() == exact(made, some(made), units, 3.0)).all()


def test_derivatives_of_few_rows_are_in_memory_at_a_time_however_many_a_chunk_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So no unit's rows decide whether memory is enough."""
    made, generator, seen = kernel(CLASSES), np.random.default_rng(12), list[int]()
    clamp = coded_loops.clamp
    monkeypatch.setattr(coded_linear, "MOST_ROWS", 64)
    monkeypatch.setattr(coded_loops, "clamp", lambda found, most: seen.append(len(found)) or clamp(found, most))
    units = [unit(generator, 30, values(CLASSES)) for _ in range(20)]
    made.clipped_sum(some(made), chunk_of(units, made.multiply), 3.0)
    assert seen == [60] * 10


def test_products_that_are_there_are_read_and_no_others() -> None:
    """A bound on kept products that another version has compiled into the loops would let them read past the end."""
    made, generator = kernel(BINARY), np.random.default_rng(13)
    units = [unit(generator, rows, [0.0, 1.0]) for rows in (3, 20)]
    chunk = chunk_of(units, made.multiply)
    step = made.step(some(made), 3.0)
    # As if products were kept of shorter units alone: the long one is measured by its columns.
    fewer = dataclasses.replace(chunk, products=chunk.products[:6], product_starts=np.array([0, 6, 6]))
    bounds = np.empty(2, np.float32)
    products = np.full(6, np.nan, np.float32)
    coded_loops.multiply(
        fewer.codes, fewer.scaled, fewer.starts, fewer.product_starts, *made._layout,
        made.columns.squares, made.columns.lengths, products, bounds,
    )  # fmt: skip
    assert products.tolist() == chunk.products[:6].tolist()
    assert bounds.tolist() == chunk.bounds.tolist()
    kept, measured = (step.total(), step.total())
    kept.add(step.of(chunk))
    measured.add(step.of(fewer))
    assert measured.value() == pytest.approx(kept.value(), rel=1e-4, abs=1e-6)
