"""Second moments: what one unit may change, exactly, and a matrix that whitens."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.training.features import moments
from tests.training.few import Few, Unit, adversarial, ordinary

WIDTH = 5


def matrix(vector: np.ndarray, width: int = WIDTH) -> np.ndarray:
    """The symmetric matrix of a vector."""
    upper = np.zeros((width, width))
    upper[np.triu_indices(width)] = vector
    upper = (upper + upper.T) / np.where(np.eye(width) == 1, 2, math.sqrt(2))
    return upper


def plain(units: list[Unit]) -> np.ndarray:
    """The sum over units of the mean of x x', by the definition."""
    return sum((rows.T.astype(float) @ rows / len(rows) for rows, _ in units), np.zeros((WIDTH, WIDTH)))


def test_the_moments_are_sums_of_means_over_units() -> None:
    units = ordinary(300, WIDTH, np.random.default_rng(1))
    found = matrix(moments.clipped_moments(Few(units, WIDTH), 10.0))
    assert found == pytest.approx(plain(units), abs=1e-2, rel=1e-3)
    assert found == pytest.approx(found.T)


@settings(max_examples=60)
@given(units=adversarial(WIDTH, [0.0]), row_norm=st.sampled_from([1e-3, 1.0, 2.0000000000000004, 7.5, 1e4]))
def test_one_unit_changes_the_vector_by_at_most_the_norm(units: list[Unit], row_norm: float) -> None:
    few = Few(units, WIDTH)
    whole = moments.clipped_moments(few, row_norm)
    assert np.isfinite(whole).all()
    for place in range(few.units):
        rest = moments.clipped_moments(few.without(place), row_norm)
        change = [Fraction(a) - Fraction(b) for a, b in zip(whole.tolist(), rest.tolist(), strict=True)]
        # Rounding of these few units, against SLACK for 2**31 of them.
        slack = Fraction(moments.SLACK) * few.units / 2**31
        assert sum(x * x for x in change) <= (Fraction(moments.norm(row_norm)) * (1 + 2 * slack)) ** 2


def test_one_row_of_the_full_norm_uses_nearly_all_of_it() -> None:
    rows = np.ones((1, WIDTH), np.float32)
    found = moments.clipped_moments(Few([(rows, np.zeros(1))], WIDTH), math.sqrt(WIDTH))
    assert 0.9999 * WIDTH < np.linalg.norm(found) <= WIDTH
    assert np.linalg.norm(matrix(found)) == pytest.approx(np.linalg.norm(found))


@settings(max_examples=30)
@given(units=adversarial(WIDTH, [0.0], most=30), data=st.data())
def test_the_order_of_units_and_the_size_of_blocks_change_no_bit(units: list[Unit], data: st.DataObject) -> None:
    expected = moments.clipped_moments(Few(units, WIDTH), 3.0).tolist()
    other = Few(data.draw(st.permutations(units)), WIDTH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "UNITS", data.draw(st.integers(1, 8)))
        patch.setattr(moments, "BLOCK", data.draw(st.integers(1, 100)))
        assert moments.clipped_moments(other, 3.0).tolist() == expected


def test_rows_beyond_the_norm_are_scaled_down_and_those_that_are_none_count_as_zero() -> None:
    rows = np.array([[1e6, 0, 0, 0, 0], [math.nan, 1, 1, 1, 1], [math.inf, 0, 0, 0, 0], [0, 2, 0, 0, 0]], np.float32)
    found = matrix(moments.clipped_moments(Few([(rows, np.zeros(4))], WIDTH), 2.0))
    assert found == pytest.approx(np.diag([1, 1, 0, 0, 0]), abs=1e-4)


def correlated(made: np.random.Generator, units: int = 400) -> list[Unit]:
    mixing = made.normal(size=(WIDTH, WIDTH))
    return [((made.normal(size=(3, WIDTH)) @ mixing).astype(np.float32), np.zeros(3)) for _ in range(units)]


def test_without_noise_whitened_rows_have_unit_moments() -> None:
    units = correlated(np.random.default_rng(2))
    vector = moments.clipped_moments(Few(units, WIDTH), 100.0)
    found = moments.directions(vector, len(units), 0.0).whitening
    whitened = [(rows @ found, labels) for rows, labels in units]
    assert plain(whitened) / len(units) == pytest.approx(np.eye(WIDTH), abs=0.01)
    assert moments.directions(vector, len(units), 0.0).effective_width == pytest.approx(WIDTH, abs=1e-4)


def test_columns_that_are_always_zero_do_no_harm() -> None:
    units = correlated(np.random.default_rng(3))
    wide = [(np.concatenate([rows, np.zeros((3, 2), np.float32)], axis=1), labels) for rows, labels in units]
    vectors = [moments.clipped_moments(Few(each, each[0][0].shape[1]), 100.0) for each in (units, wide)]
    narrow, padded = (moments.directions(vector, len(units), 0.0).whitening for vector in vectors)
    assert np.isfinite(padded).all()
    assert padded[:WIDTH, :WIDTH] == pytest.approx(narrow, rel=1e-3, abs=1e-4)
    assert moments.directions(vectors[1], len(units), 0.0).effective_width == pytest.approx(WIDTH, abs=1e-3)


@given(
    noise=st.lists(st.floats(-1e6, 1e6), min_size=15, max_size=15),
    units=st.floats(-100, 1e6),
    stddev=st.floats(0, 1e4),
)
def test_whatever_was_released_the_matrix_is_finite_and_symmetric(
    noise: list[float], units: float, stddev: float
) -> None:
    found = moments.directions(np.array(noise), units, stddev).whitening
    assert found.shape == (WIDTH, WIDTH)
    assert np.isfinite(found).all()
    assert (found == found.T).all()


def test_directions_below_the_noise_are_left_short() -> None:
    made = np.random.default_rng(4)
    width, units, stddev = 60, 1000.0, 50.0
    noise = made.normal(size=moments.size(width)) * stddev
    noise[0] += units  # one direction with a moment of 1
    assert moments.directions(noise, units, stddev).effective_width < width / 2
    found = moments.directions(noise, units, stddev).whitening
    ridge = stddev / units * math.sqrt(width / 2)
    assert np.linalg.norm(found, 2) <= 1 / math.sqrt(ridge) * (1 + 1e-9)


def test_the_same_release_gives_the_same_matrix() -> None:
    noisy = np.random.default_rng(5).normal(size=moments.size(40)) * 100
    assert (
        moments.directions(noisy, 10.0, 1.0).whitening == moments.directions(noisy.copy(), 10.0, 1.0).whitening
    ).all()
