"""Shares out of noisy counts: right where noise is small, covered by their bars, and never an error whatever the counts are."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.plan_stages.kept_counts import KeptCounts
from dp_pipelines.query.query import ContributionBounds, Query
from dp_pipelines.release import kept_shares

QUERY = Query(
    privacy_unit="u",
    partition_by="p",
    bounds=ContributionBounds(max_contributions=4),
    metrics={"paid": dp.Sum("x", min_value=0, max_value=10), "middle": dp.Median("x", min_value=-5, max_value=5)},
    kept=dp.Kept(share=0.1, up_to=64, filters=("where",)),
)
COUNTS = KeptCounts.of(QUERY)


def figures(noisy: Any, stddev: float = 1.0, law: str = "gaussian") -> dict[str, Any]:
    return kept_shares.shares(np.asarray(noisy, float), stddev, law, COUNTS, QUERY.metrics)


def exact_counts(sizes: np.ndarray) -> np.ndarray:
    """The sum of the vectors of units with these numbers of rows, of which at most four are kept."""
    cells = COUNTS.cells
    total = np.zeros(cells.width)
    stays = np.minimum(sizes, 4)
    total[:2] = (stays == sizes).sum(), (stays < sizes).sum()
    place = np.searchsorted(cells.edges, sizes, side="right") - 1
    np.add.at(total, 2 + place, stays / sizes)
    np.add.at(total, 2 + len(cells.edges) + place, 1 - stays / sizes)
    units = len(sizes)
    total[cells.before_clamped : cells.before_facts] = 0, 0.9 * units, 0.1 * units, 0, units, 0
    total[cells.before_facts :] = 0.95 * units, 0.05 * units, units, 0, 0.02 * units, 0.98 * units
    return total


def test_without_noise_the_shares_are_the_true_ones() -> None:
    sizes = np.random.default_rng(1).geometric(0.1, 20_000)
    found = figures(exact_counts(sizes), 1e-6)
    assert found["whole"]["share"] == pytest.approx((sizes <= 4).mean())
    assert found["rows"]["share"] == pytest.approx(np.minimum(sizes, 4).sum() / sizes.sum(), rel=0.03)
    assert [entry["above"]["share"] for entry in found["values"]] == pytest.approx([0.1, 0.0])
    assert [(e["column"], e["low"], e["high"]) for e in found["values"]] == [("x", -5.0, 5.0), ("x", 0.0, 10.0)]
    named = [(fact["fact"], fact["column"]) for fact in found["facts"]]
    assert named == [("where", None), ("not_null", "p"), ("not_null", "x")]
    assert [fact["share"] for fact in found["facts"]] == pytest.approx([0.95, 1.0, 0.02])


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_number_of_heavy_units_that_noise_would_hide_is_stated_and_no_larger_one_is_hidden(law: str) -> None:
    def rows(heavy: float) -> dict[str, Any]:
        sizes = np.repeat([1, 40], [4000, int(heavy)])
        found: dict[str, Any] = figures(exact_counts(sizes), 15.0, law)["rows"]
        return found

    true_share = (4000 + 20 * 4) / (4000 + 20 * 40)
    hidden = rows(20)
    assert hidden["share"] == 1.0 > true_share + 0.1
    assert hidden["hides"] >= 20
    assert rows(hidden["hides"] + 1)["share"] < 0.9


def test_units_that_would_not_change_the_share_are_not_stated() -> None:
    few, many = (figures(exact_counts(np.repeat(4, size)), 15.0)["rows"] for size in (5_000, 5_000_000))
    assert (few["share"], many["share"]) == (1.0, 1.0)
    assert few["hides"] == many["hides"] > 20  # all rows are counted, which is said without an error bar
    assert figures(exact_counts(np.repeat([1, 10], 100_000)), 1e-9)["rows"]["hides"] == 1
    assert figures(np.zeros(COUNTS.cells.width), 1.0)["rows"]["hides"] == 0  # there is no share that they could change


@pytest.mark.parametrize("longest", [60, 64, 5000])
def test_units_beyond_the_last_edge_make_the_share_of_rows_an_upper_bound(longest: int) -> None:
    sizes = np.repeat([1, 3, 10, longest], 1000)
    found = figures(exact_counts(sizes), 1.0)["rows"]
    assert found["at_most"] == (longest >= 64)
    true = np.minimum(sizes, 4).sum() / sizes.sum()
    assert true <= found["share"] + 0.01
    assert found["at_most"] or found["share"] == pytest.approx(true, rel=0.2)


def shares_in(found: dict[str, Any]) -> list[tuple[float | None, float | None]]:
    every = [found["whole"], found["rows"], *found["facts"]]
    every += [entry[side] for entry in found["values"] for side in ("below", "within", "above")]
    return [(one["share"], one["stddev"]) for one in every]


@pytest.mark.parametrize("stddev", [10.0, 100.0])
def test_the_bars_cover_what_noise_does_to_a_share(stddev: float) -> None:
    """Of 4,000 draws 95% lie within 1.96 deviations; beyond 7 binomial deviations from that there are fewer than 1e-10."""
    draw, sizes, draws = np.random.default_rng(5), np.random.default_rng(1).geometric(0.1, 20_000), 4000
    exact = exact_counts(sizes)
    whole, where, inside = (sizes <= 4).mean(), 0.95, 0.9
    covered = np.zeros(3)
    for _ in range(draws):
        found = figures(exact + draw.normal(0, stddev, len(exact)), stddev)
        told = [found["whole"], found["facts"][0], found["values"][0]["within"]]
        covered += [
            abs(one["share"] - true) <= 1.96 * one["stddev"]
            for one, true in zip(told, (whole, where, inside), strict=True)
        ]
    assert (abs(covered / draws - 0.95) < 7 * math.sqrt(0.95 * 0.05 / draws)).all()


def test_bars_that_are_too_short_would_be_found() -> None:
    draw, exact, draws = np.random.default_rng(5), exact_counts(np.ones(20_000, int)), 4000
    covered = 0
    for _ in range(draws):
        one = figures(exact + draw.normal(0, 200.0, len(exact)), 100.0)["facts"][0]
        covered += abs(one["share"] - 0.95) <= 1.96 * one["stddev"]
    assert abs(covered / draws - 0.95) > 7 * math.sqrt(0.95 * 0.05 / draws)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_alone_says_nothing(law: str) -> None:
    nothing = figures(np.zeros(COUNTS.cells.width), 50.0, law)
    assert all(share is None and stddev is None for share, stddev in shares_in(nothing))
    assert nothing["rows"]["at_most"] is False


NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from([0.0, -0.0, 1.0, 1e6, -1e6])


@settings(max_examples=300)
@given(
    noisy=st.lists(NUMBERS, min_size=COUNTS.cells.width, max_size=COUNTS.cells.width),
    stddev=st.floats(1e-6, 1e9),
    law=st.sampled_from(["gaussian", "laplace"]),
)
def test_whatever_was_released_every_share_is_one_or_unknown(noisy, stddev, law) -> None:
    for share, bar in shares_in(figures(noisy, stddev, law)):
        assert (share is None) == (bar is None)
        assert share is None or (0 <= share <= 1 and 0 <= bar <= 0.25)


def test_units_that_are_in_no_cell_that_is_seen_are_unseen() -> None:
    cells = np.array([[600.0, 0.3, 0.0], [0.0, -0.2, 100.0]])
    assert kept_shares.unseen(cells, 1000.0, 1.0, "gaussian") == pytest.approx(0.3)
    assert kept_shares.unseen(cells, 500.0, 1.0, "gaussian") == 0.0
    assert kept_shares.unseen(cells, 1000.0, 200.0, "gaussian") == 1.0
    for nobody in (0.0, -7.0):
        assert kept_shares.unseen(cells, nobody, 1.0, "gaussian") == 1.0


def test_a_share_of_rows_is_that_of_the_cells_that_are_seen_each_with_its_middle_and_has_their_bar() -> None:
    # Middles of 1-1, 2-7 and 8 and more rows: 1, the root of 14, and 8.
    edges, kept, cut, stddev = (1, 2, 8), [500.0, 30.0, 0.5], [100.0, 470.0, -0.5], 2.0
    found = kept_shares.share_of_rows(np.array([kept, cut]), edges, stddev, "gaussian")
    weights = np.array([1.0, math.sqrt(14), 0.0])
    total = float(weights @ (np.array(kept) + np.array(cut)))
    share = float(weights @ np.array(kept)) / total
    assert found["share"] == pytest.approx(share)
    # The delta method: each kept number moves the share by its weight (1 - share) / total, each that is cut off by - share.
    slopes = np.concatenate([weights * (1 - share), weights * share]) / total
    assert found["stddev"] == pytest.approx(stddev * np.linalg.norm(slopes))
    assert (found["at_most"], found["fewer_than"]) == (False, 8)
    many = kept_shares.share_of_rows(np.array([kept, [*cut[:2], 90.0]]), edges, stddev, "gaussian")
    assert many["at_most"] is True


@pytest.mark.parametrize("each_metric", [False, True])
def test_the_counts_behind_the_shares_are_the_released_numbers_in_their_places(each_metric: bool) -> None:
    query = QUERY
    if each_metric:
        bounds = ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=2)
        kept = dp.Kept(share=0.1, up_to=64, filters=("where",), each_metric=True)
        metrics = {**QUERY.metrics, "people": dp.PrivacyIdCount()}
        query = dataclasses.replace(QUERY, bounds=bounds, kept=kept, metrics=metrics)
    counts = KeptCounts.of(query)
    noisy = np.arange(counts.cells.width, dtype=float) + 0.5
    found = kept_shares.shares(noisy, 1.0, "gaussian", counts, query.metrics)["counts"]
    of_metrics = ("groups", "sums") if each_metric else ()
    parts = [found[name] for name in ("whole", "rows_kept", "rows_cut_off", "values", *of_metrics, "facts")]
    assert np.concatenate([np.ravel(part) for part in parts]).tolist() == noisy.tolist()
    assert found["edges"] == list(counts.edges)
