"""Bins from released quantiles: no bin is lost to a value that many rows share, and whole numbers are cut between them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dp_pipelines import BinaryLabel, Number, TrainModel
from dp_pipelines.metrics.quantiles import LEAVES
from dp_pipelines.plan_stages import sharing, training_parts
from dp_pipelines.training.features.bin_edges import cut_points
from dp_pipelines.training.features.encoder import Encoder

Floats = NDArray[np.float64]


def quantiles(values: Floats, ranks: int = 100) -> list[float]:
    """Those that a release without noise gives: values of the rows."""
    return np.quantile(values, np.arange(1, ranks) / ranks, method="inverted_cdf").tolist()


def counts(values: Floats, cuts: tuple[float, ...]) -> NDArray[np.int64]:
    """The rows of each bin, as the encoder counts them."""
    return np.bincount(np.searchsorted(np.array(cuts), values, side="right"), minlength=len(cuts) + 1)


def pensions(rows: int, zero: float) -> Floats:
    """Mostly zero, and a long tail."""
    made = np.random.default_rng(3)
    return np.where(made.random(rows) < zero, 0.0, np.minimum(made.lognormal(9.0, 1.0, rows), 1e5))


@pytest.mark.parametrize("zero", [0.5, 0.9, 0.94])
def test_the_mass_beside_zero_is_divided_into_all_other_bins(zero: float) -> None:
    values = pensions(20_000, zero)
    cuts = cut_points(quantiles(values), 10, low=0.0, high=1e5, leaves=LEAVES)
    of_bins = counts(values, cuts)
    assert of_bins[0] >= zero * 0.98 * len(values)  # zero, and next to nothing else
    assert (of_bins[1:] > 0.02 * (1 - zero) * len(values)).all()
    assert of_bins[1:].max() < 0.35 * (1 - zero) * len(values)


def test_cut_evenly_by_rank_the_same_column_has_one_bin_that_says_anything() -> None:
    values = pensions(20_000, 0.94)
    cuts = np.quantile(values, np.arange(1, 10) / 10, method="inverted_cdf")
    assert (counts(values, tuple(cuts.tolist())) > 0).sum() == 1


def test_where_no_value_is_shared_the_bins_are_those_of_their_ranks() -> None:
    values = np.random.default_rng(5).uniform(0, 100, 50_000)
    found = cut_points(quantiles(values), 10, low=0.0, high=100.0, leaves=LEAVES)
    assert found == pytest.approx(np.quantile(values, np.arange(1, 10) / 10, method="inverted_cdf").tolist())


@pytest.mark.parametrize("shared", [[7], [0, 7], [7, 59], [0, 30, 31, 59]])
def test_a_whole_number_that_many_share_has_a_bin_of_its_own(shared: list[int]) -> None:
    made = np.random.default_rng(6)
    values = np.where(made.random(50_000) < 0.8, made.choice(shared, 50_000), made.integers(0, 60, 50_000)).astype(
        float
    )
    cuts = np.array(cut_points(quantiles(values), 12, low=0.0, high=59.0, leaves=LEAVES, whole=True))
    assert len(set(cuts.tolist())) == 11
    for value in shared:
        bin_of = np.searchsorted(cuts, [value - 1, value, value + 1], side="right")
        assert value == 0 or bin_of[0] < bin_of[1]
        assert value == 59 or bin_of[1] < bin_of[2]


@pytest.mark.parametrize("most", [1, 3, 9])
def test_few_whole_numbers_have_a_bin_each(most: int) -> None:
    values = np.random.default_rng(7).integers(0, most + 1, 5000).astype(float)
    cuts = cut_points(quantiles(values), 12, low=0.0, high=float(most), leaves=LEAVES, whole=True)
    assert set(cuts) == {value + 0.5 for value in range(most)}


@settings(max_examples=100, deadline=None)
@given(data=st.data(), whole=st.booleans())
def test_whatever_is_released_there_are_as_many_cuts_as_the_encoder_needs(data: st.DataObject, whole: bool) -> None:
    ends = st.floats(-9e299, 9e299) | st.integers(-(2**70), 2**70).map(float) | st.integers(-50, 50).map(float)
    low, high = sorted((data.draw(ends), data.draw(ends)))
    if not low < low + (high - low) / LEAVES < high - (high - low) / LEAVES < high:
        high = low = 0.0
        high += 1.0
    bins = data.draw(st.integers(2, 100))
    inside = st.floats(low, high) | st.sampled_from([low, high, min(max(0.0, low), high)])
    found = data.draw(st.lists(inside, min_size=bins - 1, max_size=99))
    cuts = cut_points(found, bins, low=low, high=high, leaves=LEAVES, whole=whole)
    assert len(cuts) == bins - 1
    assert low <= min(cuts) <= max(cuts) <= high
    number = Number(column="x", min_value=low, max_value=high, bins=bins)
    task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features={"x": number})
    Encoder.of(task, edges={"x": cuts}).encode(pa.table({"x": [low, high, None]}))


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(0, 30), min_size=1, max_size=60), bins=st.integers(2, 12))
def test_cuts_of_whole_numbers_lie_between_them(values: list[int], bins: int) -> None:
    cuts = cut_points(quantiles(np.array(values, float)), bins, low=0.0, high=30.0, leaves=LEAVES, whole=True)
    assert all(cut % 1 == 0.5 for cut in cuts)


@pytest.mark.parametrize(("bins", "ranks"), [(2, 99), (7, 97), (10, 99), (60, 59), (100, 99)])
def test_the_release_has_the_ranks_that_divide_a_feature_and_as_many_between_them_as_fit(bins: int, ranks: int) -> None:
    features = {"x": Number(column="x", min_value=0, max_value=1, bins=bins)}
    task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features)
    asked = training_parts.parts("m", task, 1.0)["m.bins"].query.metrics["x"].quantiles  # type: ignore[attr-defined]
    assert len(asked) == ranks
    assert set(np.round(np.arange(1, bins) / bins, 12)) <= set(np.round(asked, 12))
    formerly = training_parts.parts("m", task, 1.0, sharing.SECOND)["m.bins"].query.metrics["x"]
    assert len(formerly.quantiles) == bins - 1  # type: ignore[attr-defined]
