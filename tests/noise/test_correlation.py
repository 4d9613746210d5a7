"""The choice of correlated noise: its errors by dense matrices, and how near it comes to the best there is.

In: numbers of rounds. Out: coefficients. Holds: what is compared was computed another way: matrices, brute force, the optimisers
of SciPy and of jax-privacy. Not covered: draws (`tests/training/federated/test_correlated_noise.py`).
"""

import itertools

import numpy as np
import pytest
from scipy import linalg, optimize

from dp_pipelines.noise import correlation
from dp_pipelines.noise.correlation import ONE

FORMS = [(40, 5, 0.8), (40, 10, 0.0), (40, 40, 0.8), (7, 3, 0.5), (12, 12, 0.0)]


def matrix(rounds: int, coefficients: tuple[int, ...]) -> np.ndarray:
    column = np.zeros(rounds)
    column[: 1 + len(coefficients)] = np.array([ONE, *coefficients][:rounds]) / ONE
    return linalg.toeplitz(column, np.zeros(rounds))


def published(rounds: int, momentum: float) -> np.ndarray:
    """The models as sums of what rounds release."""
    moved = linalg.toeplitz(momentum ** np.arange(rounds), np.zeros(rounds))
    return np.tril(np.ones((rounds, rounds))) @ moved


@pytest.mark.parametrize(("rounds", "separation", "momentum"), FORMS)
def test_errors_are_those_of_dense_matrices(rounds: int, separation: int, momentum: float) -> None:
    averaged = rounds // 2
    found = correlation.choose(rounds, separation, momentum, averaged)
    errors = {}
    for coefficients in (found.coefficients, ()):
        dense, workload = matrix(rounds, coefficients), published(rounds, momentum)
        moved = max(float((dense[:, at::separation].sum(axis=1) ** 2).sum()) for at in range(separation))
        reached = workload @ np.linalg.inv(dense)
        mean = reached[rounds - averaged :].mean(axis=0)
        errors[coefficients] = moved * float((reached**2).sum()) / rounds, moved * float((mean**2).sum())
        assert correlation.error(rounds, separation, momentum, coefficients) == pytest.approx(errors[coefficients][0])
    (all_of_them, alone), (of_result, result_alone) = zip(errors[found.coefficients], errors[()], strict=True)
    assert found.published == pytest.approx((all_of_them / alone) ** 0.5)
    assert found.result == pytest.approx((of_result / result_alone) ** 0.5)
    assert found.published < 1


@pytest.mark.parametrize("coefficients", [(), (30_000,), (60_000, 50_000)])
def test_sensitivity_is_the_most_of_all_ways_to_take_part(coefficients: tuple[int, ...]) -> None:
    """Of all sets of rounds that lie at least so far apart, by brute force: those of the first group are the worst."""
    rounds, separation = 8, 3
    dense = matrix(rounds, coefficients)
    worst = 0.0
    for size in range(1, 4):
        for turns in itertools.combinations(range(rounds), size):
            if all(later - earlier >= separation for earlier, later in itertools.pairwise(turns)):
                worst = max(worst, float((dense[:, list(turns)].sum(axis=1) ** 2).sum()))
    assert correlation.sensitivity_squared(rounds, separation, coefficients) == pytest.approx(worst)


@pytest.mark.parametrize(("rounds", "separation", "momentum"), [(40, 5, 0.8), (40, 10, 0.0), (30, 15, 0.9)])
def test_the_choice_is_within_one_percent_of_a_free_search(rounds: int, separation: int, momentum: float) -> None:
    chosen = correlation.choose(rounds, separation, momentum, rounds // 2).coefficients

    def loss(free: np.ndarray) -> float:
        column = np.zeros(rounds)
        column[:separation] = [1, *free]
        dense = linalg.toeplitz(column, np.zeros(rounds))
        moved = float((dense[:, ::separation] ** 2).sum())
        inverse = linalg.solve_triangular(dense, np.eye(rounds), lower=True)
        return moved * float(((published(rounds, momentum) @ inverse) ** 2).sum()) / rounds

    start = np.zeros(separation - 1)
    start[: len(chosen)] = np.array(chosen) / ONE
    best = optimize.minimize(loss, start, bounds=[(0, None)] * len(start)).fun
    assert correlation.error(rounds, separation, momentum, chosen) <= 1.01**2 * best


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "separation"), [(20, 5)])
def test_the_choice_is_as_good_as_the_optimisers_of_jax_privacy(rounds: int, separation: int) -> None:
    """Within two percent of the error of sums over rounds."""
    factors = pytest.importorskip("jax_privacy.matrix_factorization")
    from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

    assert factors
    ours = correlation.error(rounds, separation, 0.0, correlation.choose(rounds, separation, 0.0, 1).coefficients)
    banded = np.asarray(toeplitz.optimize_banded_toeplitz(rounds, separation), np.float64)
    whole = tuple(round(float(each) * ONE) for each in banded[1:separation] / banded[0])
    assert ours <= 1.02**2 * correlation.error(rounds, separation, 0.0, whole)
    most = -(-rounds // separation)
    # Its search for the number of buffers ends with two and compiles four programs; after 100 steps nothing changes.
    buffers = {"min_buffers": 2, "max_buffers": 2, "max_optimizer_steps": 150}
    buffered = buffered_toeplitz.optimize(n=rounds, min_sep=separation, max_participations=most, **buffers)
    column = np.asarray(buffered.toeplitz_coefs(rounds), np.float64)
    dense = linalg.toeplitz(column, np.zeros(rounds))
    moved = max(float((dense[:, at::separation].sum(axis=1) ** 2).sum()) for at in range(separation))
    reached = np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(dense)
    assert ours <= 1.02**2 * moved * float((reached**2).sum()) / rounds


@pytest.mark.parametrize(("rounds", "separation"), [(40, 1), (1, 1)])
def test_where_nothing_is_gained_noise_is_independent(rounds: int, separation: int) -> None:
    found = correlation.choose(rounds, separation, 0.8, 1)
    assert (found.coefficients, found.published, found.result) == ((), 1.0, 1.0)


def test_a_frozen_plan_finds_its_coefficients_again() -> None:
    """They are in the digest of plans: another choice would be another plan."""
    assert correlation.choose(12, 4, 0.8, 6).coefficients == (53084, 45387, 39487)
    assert correlation.choose(40, 10, 0.0, 20).coefficients[:4] == (37356, 28390, 23375, 19985)


def test_the_most_rounds_are_chosen_for_in_seconds() -> None:
    found = correlation.choose(1000, 1000, 0.8, 500)
    assert 200 < len(found.coefficients) < 1000
    assert found.published < 0.15
