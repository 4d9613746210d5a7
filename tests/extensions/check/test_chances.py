"""The chance that a uniform choice without replacement takes some of a few things: counted exactly."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.extensions.check.chances import some_kept


@given(st.integers(1, 60), st.integers(1, 80), st.data())
def test_it_is_one_less_the_share_of_choices_that_take_none(total: int, kept: int, data: st.DataObject) -> None:
    of = data.draw(st.integers(1, total))
    chosen = min(kept, total)
    none = math.comb(total - of, chosen) / math.comb(total, chosen)
    assert math.isclose(some_kept(total, kept, of).item(), 1 - none, abs_tol=1e-9)


def test_units_with_millions_of_rows_overflow_nothing() -> None:
    found = some_kept([10_000_000, 10_000_000], [2, 2], [1, 5_000_000])
    assert np.allclose(found, [2e-7, 0.75], rtol=1e-5)


def test_no_chance_is_below_0_however_many_rows_a_unit_has() -> None:
    """Terms of the law cancel only almost: what is below 0 would have no standard deviation."""
    total = np.repeat([1e7, 1e8, 3e8, 1e9, 1e10], 30)
    found = some_kept(total, np.tile(np.arange(1, 31), 5), 2)
    assert ((found >= 0) & (found <= 1)).all()
