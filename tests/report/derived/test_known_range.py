"""An interval ends where the true number must end, and holds the truth at least as often as before.

In: formulas over counts and sums; noise that is drawn with a seed. Out: ranges, intervals, coverage. Holds: ranges are compared
with all quotients of random numbers. Not covered: files and pages (tests/jobs/run/test_derived_metrics.py).
"""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines.report.derived import derived_columns, formula
from dp_pipelines.report.derived.known_range import KnownRange, known_range

ENTRIES: dict[str, Any] = {
    "a": {"kind": "count"},
    "b": {"kind": "privacy_id_count"},
    "s": {"kind": "sum", "statistics": {"sum(x in [0.0, 8.0], values)": {}}},
    "d": {"kind": "sum", "statistics": {"sum(x in [-8.0, 8.0], values)": {}}},
    "m_weights": {"kind": "sum", "statistics": {"sum(w (0 to 4) of v in [0.0, 4.0], values)": {}}},
    "m_weighted": {"kind": "sum", "statistics": {"sum(w (0 to 4) * (v (-2 to 10) - 4) in [-24.0, 24.0], values)": {}}},
}
FORMULAS = [
    ("a / b", 0, math.inf), ("a / total(a)", 0, 1), ("100 * a / total(a)", 0, 100), ("a / (a + s)", 0, 1),
    ("(2 * a + s) / (a + s)", 1, 2), ("1 - a / (a + b)", 0, 1), ("1 - a / b", -math.inf, 1), ("a - b", -math.inf, math.inf),
    ("a + s", 0, math.inf), ("-a / b", -math.inf, 0), ("d / a", -math.inf, math.inf), ("a / d", -math.inf, math.inf),
    ("a / (1 + a)", 0, 1), ("4.0 + m_weighted / m_weights", -2, 10), ("m_weights / a", 0, math.inf),
    ("a * b", -math.inf, math.inf),
    ("2 * (4.0 + m_weighted / m_weights)", -4, 20),
]  # fmt: skip


@pytest.mark.parametrize(("text", "low", "high"), FORMULAS)
def test_the_range_is_the_smallest_that_no_numbers_pass(text: str, low: float, high: float) -> None:
    read = formula.read(text)
    known = known_range(read, ENTRIES)
    assert (known.low, known.high) == pytest.approx((low, high))
    random = np.random.default_rng(43)
    numbers = {name: 10.0 ** random.uniform(-6, 6, 4_000) for name in ("a", "b", "s", "m_weights")}
    numbers["d"] = random.normal(size=4_000) * numbers["s"]
    numbers["m_weighted"] = np.clip(random.normal(size=4_000), -1, 1) * 6 * numbers["m_weights"]
    numbers[formula.total_of("a")] = numbers["a"] + numbers["b"]
    values = read.compute({name: numbers[name] for name in read.names}).values
    assert (values >= low - 1e-9).all()
    assert (values <= high + 1e-9).all()
    if math.isfinite(low):
        assert values.min() < low + 0.01 * max(1, abs(low))
    if math.isfinite(high):
        assert values.max() > high - 0.01 * max(1, abs(high))


def table(true: dict[str, float], stddev: float, releases: int) -> pa.Table:
    """Releases of numbers, one a row."""
    random = np.random.default_rng(7)
    columns: dict[str, Any] = {}
    for name, value in true.items():
        columns[name] = value + stddev * random.normal(size=releases)
        columns[f"{name}_stddev"] = np.full(releases, stddev)
    return pa.table(columns)


@pytest.mark.parametrize(
    ("text", "true", "ends"),
    [
        ("4.0 + m_weighted / m_weights", {"m_weighted": 590.0, "m_weights": 100.0}, (-2, 10)),
        ("4.0 + m_weighted / m_weights", {"m_weighted": -600.0, "m_weights": 100.0}, (-2, 10)),
        ("a / (a + b)", {"a": 1.0, "b": 200.0}, (0, 1)),
        ("a / (a + b)", {"a": 0.0, "b": 200.0}, (0, 1)),
        ("1 - a / (a + b)", {"a": 0.0, "b": 200.0}, (0, 1)),
    ],
)
def test_cut_intervals_lie_in_the_range_and_hold_the_truth_as_often(
    text: str, true: dict[str, float], ends: tuple[float, float]
) -> None:
    releases = 2_000
    entries = {
        name: entry
        | {"stddev": 4.0, "statistics": {one: {"noise": "gaussian", "stddev": 4.0} for one in entry.get("statistics", {name: 0})}}
        for name, entry in ENTRIES.items()
        if name in true
    }  # fmt: skip
    (made,) = derived_columns.of_stage({"metrics": entries}, {"x": text}, table(true, 4.0, 1).column_names)
    rows = table(true, 4.0, releases)
    exact = float(formula.read(text).compute({name: np.array([value]) for name, value in true.items()}).values[0])
    value, low, high, *_ = made.columns(rows)
    object.__setattr__(made, "known", KnownRange())
    free, free_low, free_high, *_ = made.columns(rows)
    assert np.isfinite(value).all()
    assert ((low >= ends[0]) & (high <= ends[1]) & (low <= high)).all()
    assert ((free_low < ends[0]) | (free_high > ends[1])).any()  # a twin without the range passes it
    covers = (low <= exact) & (exact <= high)
    assert (covers >= ((free_low <= exact) & (exact <= free_high))).all()
    if "m_weights" in true:
        assert ((value >= ends[0]) & (value <= ends[1])).all()
    else:
        assert (value == free).all()  # shares still add up


@pytest.mark.parametrize(
    ("kind", "statistic", "expected"),
    [
        ("count", "rows", (0, math.inf)),
        ("privacy_id_count", "units", (0, math.inf)),
        ("sum", "sum(x in [0.0, 8.0], values)", (0, math.inf)),
        ("sum", "sum(x in [-1.0, 8.0], values)", (-math.inf, math.inf)),
        ("sum", "clipped_sum(x in [0.0, 8.0])", (0, math.inf)),
        ("sum", "clipped_sum(x in [-0.5, 8.0])", (-math.inf, math.inf)),
    ],
)
def test_what_is_never_negative_follows_from_the_manifest(
    kind: str, statistic: str, expected: tuple[float, float]
) -> None:
    known = known_range(formula.read("x + 0"), {"x": {"kind": kind, "statistics": {statistic: {}}}})
    assert (known.low, known.high) == expected


def test_a_count_of_people_below_zero_is_no_divisor() -> None:
    entries = {"a": ENTRIES["a"], "b": ENTRIES["b"]}
    for name, entry in entries.items():
        entries[name] = entry | {"stddev": 1.0, "statistics": {name: {"noise": "gaussian", "stddev": 1.0}}}
    rows = pa.table({"a": [50.0, 50.0], "a_stddev": [1.0, 1.0], "b": [-5.0, 5.0], "b_stddev": [1.0, 1.0]})
    (made,) = derived_columns.of_stage({"metrics": entries}, {"x": "a / b"}, rows.column_names)
    assert np.isnan(made.columns(rows)[0]).tolist() == [True, False]
