"""Ranges hold the truth where their assumption holds, follow the rule digit by digit, and are left out where nothing is known."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.kernels import amounts
from dp_pipelines.query.range_columns import range_columns
from dp_pipelines.release import kept_shares, ranges
from dp_pipelines.release.ranges import EVERYTHING, GROUP, TOTAL, KeptShare
from dp_pipelines.release.shown_rows import ShownRows
from dp_pipelines.report import range_text, released_table

ROWS = {"share": 0.9, "stddev": 0.01, "at_most": False, "fewer_than": 512, "unseen": 0.05}


def query(metrics: dict[str, dp.Metric] | None = None, **changes: Any) -> dp.Query:
    """Return a query of counts and people that says what its limits cut off."""
    asked = {
        "privacy_unit": "customer",
        "partition_by": ["product"],
        "bounds": dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3),
        "metrics": metrics or {"orders": dp.Count(), "people": dp.PrivacyIdCount()},
        "kept": dp.Kept(share=0.02),
    }
    return dp.Query(**{**asked, **changes})


def found(asked: dp.Query, rows: dict[str, Any] | None = None, chosen: bool = False, **kept: Any) -> dict[str, Any]:
    """Return from what the ranges of a stage follow."""
    metrics = {name: {"noise": "gaussian"} for name in asked.metrics}
    described = {"kept": {"rows": {**ROWS, **(rows or {})}, **kept}, "metrics": metrics}
    return ranges.of_stage(asked, described, chosen=chosen)


def ends(value: float, bar: float, kept: KeptShare | None, times: float = GROUP) -> tuple[float, float, float]:
    """Return low end, estimate and high end of one number."""
    made = ranges.ranges_of(np.array([value]), np.array([bar]), kept, times)
    return float(made.low[0]), float(made.estimate[0]), float(made.high[0])


def test_the_rule_is_that_of_the_page() -> None:
    """K = .9, s = .02: K_low = .8672, and a group may lose twice .1328."""
    low, estimate, high = ends(1000.0, 50.0, KeptShare(share=0.9, stddev=0.02))
    assert (low, estimate) == (950.0, pytest.approx(1000 / 0.9, rel=1e-4))
    assert high == pytest.approx(max(1050 / (1 - 2 * 0.1328), estimate + 50 / 0.9))
    assert ends(1000.0, 50.0, KeptShare(share=0.9, stddev=0.02), TOTAL)[2] == pytest.approx(1050 / 0.8672)


def test_a_share_that_noise_could_have_made_of_one_counts_as_one_and_the_high_end_keeps_the_doubt() -> None:
    low, estimate, high = ends(1000.0, 50.0, KeptShare(share=0.97, stddev=0.02))
    assert (low, estimate) == (950.0, 1000.0)
    assert high == pytest.approx(1050 / (1 - 2 * (0.03 + 1.64 * 0.02)))


def test_a_number_below_zero_has_a_range_around_its_estimate() -> None:
    low, estimate, high = ends(-30.0, 50.0, KeptShare(share=0.8, stddev=0.0))
    assert estimate == pytest.approx(-37.5)
    assert low == pytest.approx(-87.5)
    assert high == pytest.approx(max(50 / 0.6, -37.5 + 62.5))


def test_there_is_no_high_end_where_too_little_may_be_left_of_a_group() -> None:
    assert ends(1000.0, 50.0, KeptShare(share=0.66, stddev=0.0))[0] == 950.0
    assert all(math.isnan(number) for number in ends(1000.0, 50.0, KeptShare(share=0.66, stddev=0.0))[1:])
    assert ends(1000.0, 50.0, KeptShare(share=0.67, stddev=0.0))[2] == pytest.approx(1050 / 0.34)
    assert ends(1000.0, 50.0, KeptShare(share=0.66, stddev=0.0), TOTAL)[2] == pytest.approx(1050 / 0.66)


SHARES = st.builds(KeptShare, share=st.floats(0, 1), stddev=st.floats(0, 0.25))
NUMBERS = st.floats(-1e9, 1e9)


@given(truth=st.floats(0, 1e9), kept=SHARES, part=st.floats(0, 1), bar=st.floats(1e-6, 1e6), off=st.floats(-1, 1))
def test_a_group_that_loses_at_most_twice_the_average_share_is_in_its_range(truth, kept, part, bar, off) -> None:
    """Whatever the true average is, if it is not below `kept.low` and the noise not beyond the bar."""
    lost = min(GROUP * (1 - kept.low) * part, 1.0)
    low, _, high = ends(truth * (1 - lost) + off * bar, bar, kept)
    assert low <= truth * (1 + 1e-9) + 1e-9
    assert math.isnan(high) or truth <= high * (1 + 1e-9) + 1e-9


@given(value=NUMBERS, bar=st.floats(0, 1e6), kept=SHARES, times=st.sampled_from([GROUP, TOTAL]))
def test_an_estimate_and_what_was_counted_lie_within_the_range(value, bar, kept, times) -> None:
    low, estimate, high = ends(value, bar, kept, times)
    assert low <= value
    assert math.isnan(estimate) == math.isnan(high)
    if not math.isnan(high):
        assert low <= min(value, estimate) <= max(value, estimate) <= high


@settings(max_examples=200)
@given(parts=st.lists(st.integers(-(2**30), 2**30), min_size=1, max_size=50), share=st.floats(0.67, 1))
def test_estimates_of_parts_add_up_exactly(parts, share) -> None:
    kept = KeptShare(share=share, stddev=0.001)
    values = np.array(parts, float) * 2.0**-9
    of_parts = ranges.ranges_of(values, np.zeros(len(parts)), kept, GROUP).estimate
    assert of_parts.sum() == ranges.ranges_of(np.array([values.sum()]), np.zeros(1), kept, TOTAL).estimate[0]


def test_bars_of_laplace_noise_are_longer() -> None:
    table = pa.table({"product": ["a"], "orders": [1000.0], "orders_stddev": [10.0]})
    asked = query({"orders": dp.Count()})
    for law, bar in (("gaussian", 19.6), ("laplace", 10 * math.log(20) / math.sqrt(2)), ("laplace+gaussian", 21.18)):
        described = {"kept": {"rows": ROWS}, "metrics": {"orders": {"noise": law}}}
        made = ranges.with_columns(table, asked, ranges.of_stage(asked, described))
        assert made.column("orders_low")[0].as_py() == pytest.approx(1000 - bar, abs=0.01)


def test_the_group_of_other_keys_has_a_low_end_alone() -> None:
    public = dp.PublicPartitions(keys=[("a",)], other=True)
    asked = query({"orders": dp.Count()}, partitions=public)
    columns = {"product": ["a", None], "product_is_other": [False, True], "orders": [900.0] * 2}
    table = pa.table({**columns, "orders_stddev": [10.0] * 2})
    described = {"kept": {"rows": ROWS}, "metrics": {"orders": {"noise": "gaussian"}}}
    given = ranges.of_stage(asked, described)
    listed, other = ranges.with_columns(table, asked, given).select([4, 5, 6]).to_pylist()
    assert None not in listed.values()
    assert other == {"orders_estimate": None, "orders_low": pytest.approx(880.4, abs=0.01), "orders_high": None}
    assert given["orders"].why == ranges.OTHER_KEYS
    assert given["orders"].to_json(total=False)["divided_by"] is not None


def test_people_in_a_total_and_in_groups_that_all_fit_into_the_bounds_are_cut_by_nothing() -> None:
    assert (
        found(query(partition_by=[], bounds=dp.ContributionBounds(max_contributions=3)))["people"].of_total
        == EVERYTHING
    )
    for listed, kept in ((2, EVERYTHING), (3, None)):
        public = dp.PublicPartitions(keys=[(str(number),) for number in range(listed)])
        people = found(query(partitions=public))["people"]
        assert people.of_groups == kept
        assert (people.why == "") == (kept is not None)
    rows = dp.ContributionBounds(max_contributions=3)
    assert found(query(partitions=dp.PublicPartitions(keys=[("a",)]), bounds=rows))["people"].of_groups is None


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ({"share": None, "stddev": None}, ranges.UNKNOWN),
        ({"at_most": True}, ranges.BEYOND),
        ({"unseen": 0.16}, ranges.HIDDEN),
        ({"share": 0.6}, ranges.LOST),
        ({"unseen": 0.14}, ""),
    ],
)
def test_a_count_has_no_high_end_where_its_share_is_not_known(rows: dict[str, Any], why: str) -> None:
    orders = found(query(), rows)["orders"]
    assert orders.why == why
    table = pa.table(
        {"product": ["a"], "orders": [900.0], "orders_stddev": [0.0], "people": [1.0], "people_stddev": [0.0]}
    )
    made = ranges.with_columns(table, query(), found(query(), rows)).to_pylist()[0]
    assert (made["orders_high"] is None) == (made["orders_estimate"] is None) == bool(why)
    assert made["orders_low"] == 900.0


def test_joined_rows_have_a_low_end_alone() -> None:
    for range_ in found(query(), of="joined rows").values():
        assert (range_.of_groups, range_.of_total, range_.why, range_.sign) == (None, None, ranges.JOINED, 1)


def test_groups_that_were_chosen_by_their_numbers_have_none() -> None:
    top = query(top=dp.Top(k=3, by="orders"))
    for made in (found(top), found(query(), chosen=True)):
        assert {(range_.why, range_.sign) for range_ in made.values()} == {(ranges.CHOSEN, 0)}


def test_rows_that_a_condition_on_numbers_chose_count_as_chosen() -> None:
    keys: dict[str, Any] = {"keys": ("product",), "ranks": ("product",)}
    assert ShownRows(**keys, having="orders > 9", reads=("orders",)).chooses_by_number
    assert ShownRows(**keys, having="orders_stddev > 9", reads=("orders_stddev",)).chooses_by_number
    assert not ShownRows(**keys, having="product <> 'a'", reads=("product",)).chooses_by_number


def test_who_has_nothing_of_a_sum_weighs_nothing_and_a_row_reaches_the_last_cell() -> None:
    """A million units, of whom all but a hundredth have nothing: half of what these have is cut off, and K is a half."""
    cells = amounts.edges(64)
    parts = np.zeros((2, len(cells)))
    parts[0, 0] = 990_000
    parts[:, np.searchsorted(cells, amounts.PARTS_OF_END // 64, side="right") - 1] = 5_000
    assert kept_shares.share_of_sum(parts, cells, 1.0, "gaussian")["share"] == pytest.approx(0.5, abs=1e-6)
    small = np.zeros((2, len(cells)))
    small[:, np.searchsorted(cells, 1, side="right") - 1] = 5_000
    assert kept_shares.share_of_sum(small, cells, 1.0, "gaussian")["share"] == 0.5, "little is more than nothing"
    for most in (1, 64, 10**6):
        (row,) = amounts.of_values(np.array([1e300]), 3.0)
        assert row >= amounts.edges(most)[-1]


def test_a_rollup_says_where_there_is_no_estimate() -> None:
    rolled = query(partition_by=["country", "product"], rollup=[[], ["country"], ["country", "product"]])
    orders = found(rolled, {"share": 0.6})["orders"]
    assert orders.why == ranges.LOST_BELOW
    assert orders.of(*np.array([[1000.0], [1.0]]), np.array([True]), *np.zeros((2, 1), bool)).estimate[0] > 1000
    assert found(rolled, {"share": 0.2})["orders"].why == ranges.LOST


def test_words_say_what_was_measured_and_keys_are_no_ranges() -> None:
    entry = {"share": 0.85, "stddev": 0.095, "divided_by": 1.0, "times": 2.0}
    (said,) = range_text.lines({"kept": {}, "metrics": {"orders": {"kept": entry}}}, "customer")
    assert said.startswith("orders: the limits cut off too little to be told from noise; ")
    keys = {"price_low": [0.0], "price_high": [1.0], "price": [2.0], "price_stddev": [1.0]}
    assert released_table.range_ends(pa.table(keys), "price", ["price_low", "price_high"]) is None


def test_metrics_that_limits_move_both_ways_have_null_columns_and_a_reason() -> None:
    price: dict[str, Any] = {"min_value": 0, "max_value": 9}
    asked = query(
        {"middle": dp.Median("price", **price), "kinds": dp.DistinctCount("product"), "mean": dp.Mean("price", **price)}
    )
    made = found(asked)
    assert all(range_.why and not range_.sign for range_ in made.values())
    table = pa.table(
        {"product": ["a"], **{name: [1.0] for name in (*asked.metrics, *(f"{n}_stddev" for n in asked.metrics))}}
    )
    added = ranges.with_columns(table, asked, made)
    for columns in range_columns(asked).values():
        assert [added.column(column).to_pylist() for column in columns] == [[None]] * 3


def test_a_total_of_a_rollup_loses_the_average_and_other_levels_may_lose_twice_that() -> None:
    asked = query(
        partition_by=["store", "product"],
        rollup=[[], ["store"], ["store", "product"]],
        metrics={"orders": dp.Count(), "people": dp.PrivacyIdCount()},
    )
    numbers = {"orders": [900.0] * 3, "orders_stddev": [0.0] * 3, "people": [50.0] * 3, "people_stddev": [0.0] * 3}
    table = pa.table({"level": [0, 1, 2], "store": [None, "s", "s"], "product": [None, None, "p"], **numbers})
    made = ranges.with_columns(table, asked, found(asked, {"stddev": 0.0})).to_pydict()
    assert made["orders_estimate"] == [made["orders_estimate"][0]] * 3
    assert made["orders_high"] == pytest.approx([1000.0, 1125.0, 1125.0], rel=1e-3)
    assert made["people_high"] == [50.0, None, None]
    assert made["people_low"] == [50.0] * 3
    groups = {**ROWS, "share": 0.8, "stddev": 0.0}
    measured = found(asked, groups=groups)["people"]
    assert (measured.of_groups, measured.of_total, measured.above) == (
        KeptShare(share=0.8, stddev=0.0),
        EVERYTHING,
        None,
    )
    assert measured.why == ranges.ABOVE


def test_a_metric_has_no_ranges_where_another_column_has_their_name() -> None:
    asked = query({"orders": dp.Count(), "Orders_low": dp.PrivacyIdCount()})
    assert list(range_columns(asked)) == ["Orders_low"]
    assert range_columns(query(kept=None)) == {}


def priced(**changes: Any) -> dict[str, dp.Metric]:
    """Return a sum and a mean with a clamp, [0, 9] if nothing else is said."""
    clamp: dict[str, Any] = {"min_value": 0, "max_value": 9, **changes}
    return {"paid": dp.Sum("price", **clamp), "basket": dp.Mean("price", **clamp)}


def test_sums_and_means_have_the_share_of_the_sum_with_their_column_and_end() -> None:
    sums = [
        {"column": column, "end": end, "share": share, "stddev": 0.0, "at_most": False, "unseen": 0.0}
        for column, end, share in (("other", 9.0, 0.7), ("price", 5.0, 0.75), ("price", 9.0, 0.8))
    ]
    made = found(query(priced()), sums=sums)
    assert made["paid"].of_groups == made["basket"].of_groups == KeptShare(share=0.8, stddev=0.0)
    assert made["basket"].rows == KeptShare(share=0.9, stddev=0.01)
    assert made["paid"].below == "4,608 of price"
    assert found(query(priced()))["paid"].why == ranges.SUM
    both_ways = found(query(priced(min_value=1)), sums=sums)
    assert {(range_.why, range_.sign) for range_ in both_ways.values()} == {(ranges.BOTH_WAYS, 0)}


def test_a_sum_below_zero_has_the_range_of_its_negative() -> None:
    sums = [{"column": "price", "end": -9.0, "share": 0.8, "stddev": 0.0, "at_most": False, "unseen": 0.0}]
    asked = query({"paid": dp.Sum("price", min_value=-9, max_value=0)})
    table = pa.table({"product": ["a"], "paid": [-800.0], "paid_stddev": [0.0]})
    (row,) = ranges.with_columns(table, asked, found(asked, sums=sums)).to_pylist()
    assert [row[f"paid_{part}"] for part in ("low", "estimate", "high")] == pytest.approx([-800 / 0.6, -1000, -800])
    (row,) = ranges.with_columns(table, asked, found(asked)).to_pylist()
    assert (row["paid_low"], row["paid_high"]) == (None, -800.0)


MEANS = {
    "truth": st.floats(0.1, 1e6),
    "of_sum": SHARES,
    "of_rows": SHARES,
    "parts": st.tuples(st.floats(0, 1), st.floats(0, 1)),
}


@given(**MEANS)
def test_a_mean_is_in_its_range_if_its_sum_and_its_rows_lose_at_most_twice_the_average_share(
    truth, of_sum, of_rows, parts
) -> None:
    left = [1 - min(GROUP * (1 - kept.low) * part, 1.0) for kept, part in zip((of_sum, of_rows), parts, strict=True)]
    if not left[1]:
        return  # nothing is left to divide by
    made = ranges.ranges_of_means(np.array([truth * left[0] / left[1]]), np.zeros(1), of_sum, of_rows, GROUP)
    low, high = float(made.low[0]), float(made.high[0])
    assert math.isnan(low) == math.isnan(high)
    assert math.isnan(low) or low * (1 - 1e-9) <= truth <= high * (1 + 1e-9)


ABOVE_ZERO = st.builds(KeptShare, share=st.floats(0.05, 1), stddev=st.floats(0, 0.1))


@given(of_sum=ABOVE_ZERO, of_rows=ABOVE_ZERO, truth=st.floats(1, 1e6))
def test_the_estimate_of_a_mean_is_that_of_its_sum_divided_by_that_of_its_rows(of_sum, of_rows, truth) -> None:
    for times in (GROUP, TOTAL):
        counted = truth * of_sum.counted / of_rows.counted  # what is left of a group that loses the average
        made = ranges.ranges_of_means(np.array([counted]), np.array([0.0]), of_sum, of_rows, times)
        assert np.isnan(made.estimate[0]) or made.estimate[0] == pytest.approx(truth)
        assert np.isnan(made.estimate[0]) == (min(of_sum.left(times), of_rows.left(times)) < ranges.LEAST_LEFT)


@pytest.mark.parametrize("total", [False, True])
def test_the_manifest_says_from_which_share_a_range_follows_and_what_lies_below_what_could_be_seen(total: bool) -> None:
    told = found(query({"orders": dp.Count()}), {"hides": 7})["orders"].to_json(total=total)
    assert told == {
        **{"share": 0.9, "stddev": 0.01, "at_least": pytest.approx(0.9 - 1.64 * 0.01), "divided_by": 0.9},
        **{"times": TOTAL if total else GROUP, "below": "512 rows", "hides": 7, "why": None},
    }
    nothing = ranges.MetricRange(why="a reason").to_json(total=total)
    assert (nothing["share"], nothing["below"], nothing["why"]) == (None, None, "a reason")
