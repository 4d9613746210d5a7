"""What notes say as JSON values: shares of nothing are null, and buckets name their ends."""

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.extensions.check import findings
from dp_pipelines.extensions.check.bound_shares import ProfiledClip, bucket_of
from dp_pipelines.extensions.check.findings import ProfiledTable
from dp_pipelines.steps.unbounded_rows import size_of

ANY = st.floats() | st.sampled_from([5e-324, -1e-310, 1e308, -1e308, math.inf, -math.inf])


def test_without_rows_shares_are_null_and_everything_is_json() -> None:
    table = ProfiledTable(
        name="t", unit=["u"], read=["a"], defined=["b"], lookups=[("l", ["k"])], has_where=True, on=["d"]
    )
    found = findings.of_table({}, table)
    assert found["where"]["share"] is None
    assert found["columns"][1] == {"column": "b", "of": "columns", "rows": 0, "nulls": {"number": 0, "share": None}}
    json.dumps(found, allow_nan=False)


def test_sums_beyond_all_numbers_are_null() -> None:
    facts = {("rows", "", "read"): 2.0, ("rows", "", "in_window"): 2.0, ("rows", "", "shaped"): math.inf}
    found = findings._part(math.inf, 2.0)
    assert found == {"number": None, "share": None}
    assert findings.share(facts["rows", "", "read"], facts["rows", "", "shaped"]) is None


@given(st.lists(ANY, min_size=7, max_size=7), st.booleans())
def test_whatever_rows_add_up_to_a_clip_is_json(sums: list[float], of_sums: bool) -> None:
    """What cannot be written fails the command, by what the rows add up to: so there must be nothing of the kind."""
    names = ("values", "nulls", "below", "above", "sum", "clamped", "kept")
    facts = {("clip", "total", name): number for name, number in zip(names, sums, strict=True)}
    clip = ProfiledClip(metric="total", column="x", low=5.0, high=20.0, of_sums=of_sums)
    found = findings._clip(clip, lambda *fact: facts.get(fact, 0.0))
    json.dumps(found, allow_nan=False)
    assert found["sum_clamped"]["share"] is None or math.isfinite(found["sum_clamped"]["share"])


def test_each_number_of_units_lies_between_the_ends_of_its_bucket() -> None:
    for units in [*range(1, 200), 999, 1000, 31_622, 31_623, 10**9, 10**12]:
        bucket = int(size_of(np.array([units]))[0])
        low, high = findings._size(bucket)
        assert low <= units
        assert high is None or units < high


def test_each_number_of_rows_lies_in_its_bucket() -> None:
    numbers = np.array([*range(1, 600), 2**20, 2**20 + 1])
    for number, bucket in zip(numbers.tolist(), bucket_of(numbers).tolist(), strict=True):
        assert (2 ** (bucket - 1) if bucket else 0) < number <= 2**bucket
