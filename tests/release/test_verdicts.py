"""Verdicts: how many numbers stand out of the noise, counted by hand; and what noise alone makes of them.

In: released tables. Out: counts and words. Holds: the statistical test raises a false alarm with a probability of at most 1e-9,
and its twin finds bars that are a tenth too short. Not covered: where the words are shown.
"""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import Metric
from dp_pipelines.planning.noise_levels.passing_noise import ENTRY
from dp_pipelines.release import verdicts

RANGE = (-30.0, 120.0)
NUMBERS = st.lists(st.tuples(st.floats(allow_nan=True), st.floats(0, 1e300)), min_size=1, max_size=30)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def table(values: Any, stddevs: Any) -> pa.Table:
    return pa.table({"k": list(range(len(values))), "m": values, "m_stddev": stddevs})


def stage(kind: str = "sum", selection: Any = None, **entry: Any) -> dict[str, Any]:
    return {"metrics": {"m": {"kind": kind, **entry}}, "selection": selection or {"strategy": "public"}}


def verdict(values: Any, stddevs: Any, entry: dict[str, Any]) -> verdicts.Verdict:
    return verdicts.of_stage(table(values, stddevs), entry)["m"]


@given(NUMBERS)
def test_sums_that_differ_from_zero_are_counted_beside_those_that_noise_alone_would_make(
    numbers: list[tuple[float, float]],
) -> None:
    known = [(value, stddev) for value, stddev in numbers if math.isfinite(value)]
    found = verdicts.of_stage(table(*zip(*numbers, strict=True)), stage()).get("m")
    if not known:
        assert found is None
        return
    assert found is not None
    clear = sum(abs(value) > 1.96 * stddev for value, stddev in known)
    assert (found.numbers, found.clear) == (len(known), clear)
    assert found.by_chance == round(0.05 * len(known), 2)
    assert ("more budget" in found.words) == (clear < len(known) - clear)


def test_home_runs_of_which_none_exceeds_its_bar_are_said_to_be_noise() -> None:
    words = verdict([625.0] * 12 + [2500.0], [998.0] * 13, stage()).words
    advice = "ask for fewer partitions, a wider window or more budget"
    assert words == f"1 of 13 differs from zero; 0.7 would by chance: {advice}"


def test_advice_names_nulls_and_clamps_only_where_they_matter() -> None:
    def said(kind: str, statistic: str, clear: bool = False, **more: Any) -> str:
        numbers = table([100.0 if clear else 0.1], [1.0 if kind == "sum" or clear else 100.0])
        return verdicts.told(numbers, stage(kind, statistics={statistic: {}}, **more))["m"].words

    clamp, null = "or a narrower clamp of its values", "a null adds nothing"
    total = said("sum", "sum(price in [0.0, 60.0], values)")
    assert clamp in total
    assert null in total
    assert clamp not in said("sum", "sum(price in [0.0, 60.0], values)", bounds=[0.0, 60.0]), "the run chose it"
    mean = said("mean", "sum(price in [0.0, 60.0], values)", range=list(RANGE))
    assert (clamp in mean, null in mean) == (False, True)
    orders = said("count", "rows")
    assert (clamp in orders, null in orders) == (False, False)
    assert orders.endswith("more budget")
    fine = said("sum", "sum(price in [0.0, 60.0], values)", clear=True)
    assert (clamp in fine, null in fine) == (False, False)


def test_the_manifest_has_the_advice_on_the_stage_alone() -> None:
    entry = stage("sum", statistics={"sum(price in [0.0, 60.0], values)": {}})
    assert verdicts.of_stage(table([0.1], [1.0]), entry)["m"].words.endswith("more budget")


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=30))
def test_means_are_judged_by_the_length_of_their_bars(stddevs: list[float]) -> None:
    found = verdict([0.0] * len(stddevs), stddevs, stage("mean", range=list(RANGE)))
    assert found.clear == sum(2 * 1.96 * stddev < 150 / 4 for stddev in stddevs)
    assert found.by_chance is None
    assert "a quarter of the range -30 … 120" in found.words


@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), count=st.integers(1, 9))
def test_a_bar_is_narrow_exactly_where_four_of_them_fit_into_the_range(low: float, width: float, count: int) -> None:
    high = low + width
    at_most = (high - low) / 4 / (2 * 1.96)
    for factor, clear in ((0.999, count), (1.001, 0)):
        found = verdict([low] * count, [factor * at_most] * count, stage("mean", range=[low, high]))
        assert (found.numbers, found.clear) == (count, clear)


@pytest.mark.parametrize(
    ("published", "by_noise", "clear"), [(3000, 1349.5, 1650), (10, 9.01, 0), (10, 9.0, 1), (5, 5.2, 0), (0, 0.0, 0)]
)
def test_of_a_large_list_those_are_clear_that_are_more_than_noise_puts_there(
    published: int, by_noise: float, clear: int
) -> None:
    entry = {"keys": 10**6, "by_noise": by_noise, "having": "m >= 30", "metrics": ["m", "other"]}
    rows = table([40.0] * published, [5.0] * published)
    found = verdicts.of_stage(rows, stage("count") | {ENTRY: entry})
    assert list(found) == ["m"]
    assert (found["m"].numbers, found["m"].clear, found["m"].by_chance) == (published, clear, round(by_noise, 2))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_a_deviation_that_is_capped_at_half_the_range_changes_no_verdict_and_no_dash(stddevs: list[float]) -> None:
    capped = [min(stddev, 75.0) for stddev in stddevs]
    entry, zeros = stage("mean", range=list(RANGE)), [0.0] * len(stddevs)
    assert verdict(zeros, stddevs, entry) == verdict(zeros, capped, entry)
    dashes = [verdicts.covers(np.array(listed), RANGE).tolist() for listed in (stddevs, capped)]
    assert dashes[0] == dashes[1] == [2 * 1.96 * stddev >= 150 for stddev in stddevs]


def beyond(shorter: float) -> float:
    """How many standard deviations the numbers that stand out are off what chance says, where noise is all there is."""
    count = 400_000
    noise = np.random.default_rng(16).normal(0.0, 3.0, count)  # fixed: a test that fails by chance is no test
    found = verdict(noise, np.full(count, 3.0 * shorter), stage())
    assert found.by_chance is not None
    return (found.clear - found.by_chance) / math.sqrt(0.05 * 0.95 * count)


def test_of_pure_noise_as_many_numbers_stand_out_as_the_chance_figure_says() -> None:
    assert abs(beyond(1.0)) < 6.2  # normal to five digits: 1e-9 for new noise


def test_bars_that_are_a_tenth_too_short_are_found() -> None:
    assert beyond(0.9) > 6.2


def test_each_place_of_a_list_is_a_number() -> None:
    lists, stddevs = pa.array([[9.0, 1.0], [8.0, None]]), pa.array([[1.0, 1.0], [1.0, 1.0]])
    found = verdict(lists, stddevs, stage("histogram"))
    assert (found.numbers, found.clear) == (3, 2)
    found = verdict(lists, stddevs, stage("quantiles", range=[0, 100]))
    assert (found.numbers, found.clear) == (3, 3)


def test_where_partitions_were_selected_the_chance_figure_says_what_it_is() -> None:
    selected = {"strategy": "gaussian", "compares_released_count": True, "half_keep_users": 65.2}
    orders = stage("count", selected, statistics={"rows": {}})
    found = verdicts.of_stage(table([9.0, 8.0], [1.0, 1.0]), orders)
    assert found["m"].words == "2 of 2 differ from zero; 0.1 would by chance"
    assert verdicts.note(found, orders) == verdicts.SELECTED
    # The very number that was compared with the threshold is never small.
    buyers = stage("privacy_id_count", selected, statistics={"units": {}})
    found = verdicts.of_stage(table([90.0, 80.0], [1.0, 1.0]), buyers)
    assert found["m"].by_chance is None
    assert "only groups where this number is large are published" in found["m"].words
    assert verdicts.note(found, buyers) == ""
    assert verdicts.note(verdicts.of_stage(table([1.0], [1.0]), stage()), stage()) == ""


def test_a_stage_that_published_nothing_says_how_large_a_group_must_be() -> None:
    said = f"no group was published: a group needs about 66 units. {verdicts.WHAT_HELPS}"
    assert verdicts.nothing_published(stage(selection={"strategy": "laplace", "half_keep_users": 65.2})) == said
    assert verdicts.nothing_published({}) == "no group was published"


def test_a_release_of_an_older_version_is_judged_by_what_its_manifest_says() -> None:
    both = {"metrics": {"m": {"kind": "mean"}}}  # version 0.1.0 names no range
    assert verdicts.of_stage(table([1.0], [1.0]), both) == {}
    assert verdicts.of_stage(table([1.0], [1.0]), {"metrics": {"m": {"kind": "second_moment"}}})["m"].clear == 0


def test_no_verdict_is_given_on_a_choice_or_on_what_nobody_knows() -> None:
    nothing = pa.nulls(2, pa.float64())
    assert verdicts.of_stage(table([1.0, 2.0], nothing), stage("quantile")) == {}
    assert verdicts.of_stage(table([1.0, 2.0], nothing), stage("sum")) == {}
    assert verdicts.of_stage(table([1.0], [1.0]), stage("no_such")) == {}


@given(ANYTHING, ANYTHING, ANYTHING)
def test_no_manifest_is_too_odd(entry: Any, selection: Any, within: Any) -> None:
    for kind in ("mean", "sum"):
        for metrics in (entry, {"m": entry}, {"m": {"kind": kind, "range": within, "statistics": entry}}):
            odd = {"metrics": metrics, "selection": selection}
            found = verdicts.of_stage(table([1.0, 5.0], [1.0, 1.0]), odd)
            assert all(0 <= verdict.clear <= verdict.numbers for verdict in found.values())
            assert verdicts.nothing_published(odd).startswith("no group was published")
            assert verdicts.note(found, odd) in ("", verdicts.SELECTED)


@pytest.mark.parametrize("kind", registry.metrics())
def test_each_metric_says_how_it_is_judged_or_that_it_has_no_bar(kind: str) -> None:
    metric = registry.metrics()[kind]
    assert (metric.judged is None) == (not metric.has_stddev)
    assert metric.judged is None or metric.judged in verdicts.JUDGES
    # What adds up can be zero; what lies in a range is judged by it.
    assert (metric.judged == "range") == (metric.value_range is not Metric.value_range)
