"""Least squares on a tree, projections and whole numbers: against dense algebra and the conditions of optimality."""

import dataclasses

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dp_pipelines.release import consistent
from tests.helpers.examples import examples

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tree:
    """Noisy numbers on a tree whose nodes above the last level all have parts."""

    values: list[Floats]
    variances: list[float]
    parents: list[Codes]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes, parents = [draw(st.integers(1, 3))], []
    for _ in range(draw(st.integers(1, 3))):
        fan_out = random.integers(1, 5, sizes[-1])
        parents.append(random.permutation(np.repeat(np.arange(sizes[-1]), fan_out)))
        sizes.append(int(fan_out.sum()))
    scale = 10.0 ** draw(st.integers(-3, 6))
    values = [random.normal(size=size) * scale for size in sizes]
    variances = (10.0 ** random.uniform(-2, 2, len(sizes))).tolist()
    return Tree(values=values, variances=variances, parents=parents)


def leaves_of(tree: Tree) -> Floats:
    """Of every node, from the coarsest level, which leaves it holds: one row for each node."""
    below = np.eye(len(tree.values[-1]))
    rows = [below]
    for values, parents in zip(tree.values[-2::-1], tree.parents[::-1], strict=True):
        above = np.zeros((len(values), below.shape[1]))
        np.add.at(above, parents, below)
        rows.insert(0, above)
        below = above
    return np.concatenate(rows)


@settings(max_examples=examples(100, 300))
@given(trees())
def test_the_estimates_are_the_least_squares_of_the_whole_tree(tree: Tree) -> None:
    found = consistent.least_squares(tree.values, tree.variances, tree.parents)
    design, measured = leaves_of(tree), np.concatenate(tree.values)
    root = np.repeat(1 / np.sqrt(tree.variances), [len(values) for values in tree.values])
    leaves, *_ = np.linalg.lstsq(design * root[:, None], measured * root, rcond=None)
    assert np.allclose(np.concatenate(found.values), design @ leaves, rtol=1e-9, atol=1e-9 * np.abs(measured).max())


@settings(max_examples=examples(100, 300))
@given(trees())
def test_the_variances_are_those_of_the_least_squares(tree: Tree) -> None:
    found = consistent.least_squares(tree.values, tree.variances, tree.parents)
    design = leaves_of(tree)
    weights = np.repeat(1 / np.array(tree.variances), [len(values) for values in tree.values])
    of_leaves = np.linalg.inv(design.T * weights @ design)
    assert np.allclose(np.concatenate(found.variances), np.einsum("ij,jk,ik->i", design, of_leaves, design))


def test_wrong_variances_show_in_a_comparison_with_dense_algebra() -> None:
    tree = Tree(values=[np.zeros(1), np.zeros(3)], variances=[1.0, 2.0], parents=[np.zeros(3, np.int64)])
    found = consistent.least_squares(tree.values, [1.05, 2.0], tree.parents)
    right = consistent.least_squares(tree.values, tree.variances, tree.parents)
    assert not np.allclose(found.variances[0], right.variances[0], rtol=1e-3)


@st.composite
def groups(draw: st.DrawFn) -> tuple[Floats, Floats, Codes, Floats]:
    """Numbers, weights, groups, the totals of groups."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    number = draw(st.integers(1, 4))
    parents = random.permutation(np.repeat(np.arange(number), random.integers(1, 8, number)))
    scale = 10.0 ** draw(st.integers(-2, 5))
    parts = random.normal(size=len(parents)) * scale
    if draw(st.booleans()):
        parts = np.rint(parts)  # with ties
    totals = np.maximum(random.normal(size=number) * scale * 3, 0.0)
    return parts, 10.0 ** random.uniform(-1, 1, len(parents)), parents, totals


@settings(max_examples=examples(200, 500))
@given(groups(), st.booleans())
def test_the_projection_meets_the_conditions_of_optimality(
    given_groups: tuple[Floats, Floats, Codes, Floats], at_most: bool
) -> None:
    parts, weights, parents, totals = given_groups
    found = consistent.not_negative(parts, weights, parents, totals, at_most=at_most)
    near = 1e-9 * max(1.0, np.abs(parts).max(), totals.max())
    assert (found >= 0).all()
    for group, total in enumerate(totals):
        mine = parents == group
        left = total - found[mine].sum()
        assert left >= -near
        assert at_most or left <= near
        pulls = ((parts - found) / weights)[mine]
        above = found[mine] > 0
        # One multiplier for all numbers above 0, no more for those at 0; none where the limit is not reached.
        if above.any():
            one = pulls[above].mean()
            assert np.ptp(pulls[above]) <= 1e-6 * max(1.0, np.abs(pulls).max())
            assert (pulls[~above] <= one + 1e-6 * max(1.0, np.abs(pulls).max())).all()
            assert not at_most or one >= -near
            assert not at_most or left <= near or abs(one) <= near


@settings(max_examples=examples(200, 500))
@given(groups(), st.booleans())
def test_numbers_of_units_stay_within_their_group_and_cover_it(
    given_groups: tuple[Floats, Floats, Codes, Floats], all_parts: bool
) -> None:
    parts, _, parents, totals = given_groups
    found = consistent.within_parents(parts, parents, totals, all_parts=all_parts)
    near = 1e-9 * max(1.0, totals.max())
    assert (found >= 0).all()
    assert (found <= totals[parents]).all()
    if all_parts:
        assert (np.bincount(parents, found, minlength=len(totals)) >= totals - near).all()
    fits = np.bincount(parents, np.clip(parts, 0, totals[parents]), minlength=len(totals)) >= totals
    mine = fits[parents] | (not all_parts)
    assert np.array_equal(found[mine], np.clip(parts, 0, totals[parents])[mine])


@settings(max_examples=examples(200, 500))
@given(groups())
def test_whole_parts_add_up_exactly_and_are_less_than_a_step_away(
    given_groups: tuple[Floats, Floats, Codes, Floats],
) -> None:
    parts, _, parents, _ = given_groups
    sums = np.bincount(parents, parts)
    for totals in (np.floor(sums + 1e-9), np.ceil(sums - 1e-9)):
        found = consistent.whole_parts(parts, parents, totals.astype(np.int64))
        added = np.zeros(len(totals), np.int64)
        np.add.at(added, parents, found)
        assert np.array_equal(added, totals)
        assert (np.abs(found - parts) <= 1 + 1e-6).all()


@settings(max_examples=examples(50, 200))
@given(st.floats(1e-6, 1e6), st.floats(0, 1e18))
def test_a_step_is_a_power_of_two_of_which_sums_are_exact(unit: float, largest: float) -> None:
    step = consistent.step_below(unit, largest)
    assert np.frexp(step)[0] == 0.5
    assert largest / step <= 2**52
    hypothesis.assume(largest < unit * 2**50)
    assert unit / 2 < step <= unit


def test_a_group_without_a_number_above_zero_has_zeros() -> None:
    found = consistent.not_negative(
        np.array([-4.0, -1.0]), np.ones(2), np.zeros(2, np.int64), np.zeros(1), at_most=False
    )
    assert found.tolist() == [0.0, 0.0]


@settings(max_examples=examples(200, 500))
@given(groups())
def test_the_parts_that_are_rounded_up_are_those_with_the_largest_remainders(
    given_groups: tuple[Floats, Floats, Codes, Floats],
) -> None:
    parts, _, parents, _ = given_groups
    totals = np.rint(np.bincount(parents, parts)).astype(np.int64)
    found = consistent.whole_parts(parts, parents, totals)
    remainders, up = parts - np.floor(parts), found > np.floor(parts)
    for group in range(len(totals)):
        mine = parents == group
        assert remainders[mine & up].min(initial=1.0) >= remainders[mine & ~up].max(initial=0.0)


@pytest.mark.parametrize(
    ("parts", "totals", "found"),
    [
        ([[3.0, 1.0, 1.0]], [4], [[2, 1, 1]]),
        ([[0.0, 5.0, 0.0]], [4], [[0, 4, 0]]),
        ([[2.0, 9.0], [7.5, 8.0, 0.0]], [10, 14], [[2, 8], [7, 7, 0]]),
        ([[2.0, 9.0], [1.75, 1.25]], [10, 3], [[2, 8], [2, 1]]),
    ],
)
def test_where_floats_add_up_to_a_step_too_much_the_largest_part_has_it_taken_off(
    parts: list[list[float]], totals: list[int], found: list[list[int]]
) -> None:
    parents = np.repeat(np.arange(len(parts)), [len(each) for each in parts])
    apart = np.random.default_rng(len(parents)).permutation(len(parents))  # parts of a group need not stand together
    whole = consistent.whole_parts(np.concatenate(parts)[apart], parents[apart], np.array(totals))
    assert whole.tolist() == np.concatenate(found)[apart].tolist()
