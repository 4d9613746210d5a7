"""Codes are sorted however large they are."""

import numpy as np

from dp_pipelines.steps import unbounded_rows


def test_codes_too_large_for_a_packed_sort_are_sorted_all_the_same() -> None:
    codes = np.array([2**62, 5, 2**62, 1], np.int64)
    order, ordered = unbounded_rows.sorted_codes(codes)
    assert order.tolist() == [3, 1, 0, 2]
    assert ordered.tolist() == sorted(codes.tolist())
