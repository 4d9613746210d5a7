"""Second moments of codes: those of the dense rows, from whole numbers that one unit hardly changes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.training.features import coded_moments, moments
from tests.training.coded_units import LAYOUT, STEPS, Coded, FewCoded, adversarial, dense, unit

ROW_NORM = float(np.nextafter(np.sqrt(1 + len(LAYOUT.hot) + len(LAYOUT.scaled_columns)), np.inf))


def few(units: list[Coded]) -> FewCoded:
    return FewCoded(units, lambda chunk: (chunk.products, chunk.bounds))


def whole_numbers(units: list[Coded]) -> list[np.ndarray]:
    """The sums as Python's whole numbers."""
    return [(high.astype(object) << 32) + low.astype(object) for high, low in coded_moments.sums_of(few(units))]


def test_they_are_the_sums_of_the_means_of_the_rows_products() -> None:
    made = np.random.default_rng(1)
    units = [unit(made, int(rows), [0.0]) for rows in made.integers(1, 40, 50)]
    expected = np.zeros((LAYOUT.width, LAYOUT.width))
    for each in units:
        rows = dense([each])
        expected += rows.T @ rows / len(rows)
    found = coded_moments.matrix_of(few(units))
    assert found == pytest.approx(np.triu(expected), rel=1e-7)
    upper = np.triu_indices(LAYOUT.width)
    weights = np.where(upper[0] == upper[1], 1, np.sqrt(2))
    assert moments.clipped_moments(few(units), ROW_NORM) == pytest.approx(weights * expected[upper], rel=1e-7)


def exact_square(matrix: np.ndarray) -> Fraction:
    """The square of the norm of a symmetric matrix of which the upper half is given, without rounding."""
    ratios = [[number.as_integer_ratio() for number in row] for row in matrix.tolist()]
    whole = max(below for row in ratios for _, below in row)  # all are powers of two
    squares = (
        (above * (whole // below)) ** 2 * (1 if first == second else 2)
        for first, row in enumerate(ratios)
        for second, (above, below) in enumerate(row)
    )
    return Fraction(sum(squares), whole**2)


@settings(max_examples=25)
@given(data=st.data())
def test_one_unit_changes_the_matrix_by_at_most_the_norm_and_by_what_it_gives_alone(data: st.DataObject) -> None:
    units = data.draw(adversarial([0.0], most=4))
    whole = whole_numbers(units)
    for place, each in enumerate(units):
        assert exact_square(coded_moments.matrix_of(few([each]))) <= Fraction(moments.norm(ROW_NORM)) ** 2
        rest = whole_numbers([other for nth, other in enumerate(units) if nth != place])
        for all_, others, own in zip(whole, rest, whole_numbers([each]), strict=True):
            assert (all_ - others == own).all()


def test_the_longest_rows_reach_the_norm() -> None:
    one = unit(np.random.default_rng(2), 1, [0.0])
    one.scaled[:] = STEPS
    found = np.linalg.norm(moments.clipped_moments(few([one]), ROW_NORM))
    assert moments.norm(ROW_NORM) * (1 - 1e-12) < found <= moments.norm(ROW_NORM)


def test_chunks_and_the_order_of_units_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = np.random.default_rng(3)
    units = [unit(made, int(rows), [0.0]) for rows in made.integers(1, 9, 30)]
    whole = coded_moments.matrix_of(few(units)).tobytes()
    monkeypatch.setattr(coded_moments, "UNITS", 4)
    assert coded_moments.matrix_of(few(units[::-1])).tobytes() == whole


def test_no_units_have_no_moments() -> None:
    assert not coded_moments.matrix_of(few([])).any()


def test_low_halves_stay_low_however_many_chunks_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """So they never overflow, and float64 holds them exactly: the rows of a training set may be any number."""
    made = np.random.default_rng(4)
    units = [unit(made, int(rows), [0.0]) for rows in made.integers(1, 9, 60)]
    whole = coded_moments.matrix_of(few(units))
    monkeypatch.setattr(coded_moments, "UNITS", 1)
    for _, low in coded_moments.sums_of(few(units)):
        assert ((low >= 0) & (low < 2**32)).all()
    assert coded_moments.matrix_of(few(units)).tobytes() == whole.tobytes()
