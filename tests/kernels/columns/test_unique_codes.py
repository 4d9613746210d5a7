"""The different ones of many integers are those that NumPy finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dp_pipelines.kernels.columns.unique_codes import unique_codes


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32])
def test_they_are_those_of_numpy_for_every_type(kind: type) -> None:
    @given(npst.arrays(kind, st.integers(0, 50), elements=npst.from_dtype(np.dtype(kind))))
    def check(codes: np.ndarray) -> None:
        before = codes.copy()
        found = unique_codes(codes)
        assert found.dtype == codes.dtype
        assert np.array_equal(found, np.unique(codes))
        assert np.array_equal(codes, before)

    check()


@given(st.lists(st.integers(0, 5), max_size=40))
def test_few_values_that_come_often_are_each_there_once(codes: list[int]) -> None:
    assert unique_codes(np.array(codes, np.int64)).tolist() == sorted(set(codes))
