"""PeopleEstimates from reports: unbiased, with the deviations that are printed, from any parts of the reports.

In: simulated devices with a seed. Out: estimates beside the truth. Holds: each statistical test's false alarm rate is stated,
and a twin shows that it finds a wrong chance. Not covered: speed (benchmarks/collected.py).
"""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.collect.d_ary import DAry
from dp_pipelines.collect.domain import Choices, NumberGrid
from dp_pipelines.collect.question import FOR_CHOICES, FOR_NUMBERS, Question
from dp_pipelines.collected.consistency import norm_sub
from dp_pipelines.collected.cross_table import CrossTable
from dp_pipelines.collected.estimates import OfDAry, estimator_of
from dp_pipelines.collected.support import support_of
from dp_pipelines.errors import RequestError
from tests.collect.enumerated import Replayed
from tests.collected.devices import coins_of, reports_of

PEOPLE = 100_000


def question(mechanism: str, epsilon: float, size: int = 20) -> Question:
    domain = Choices(tuple(range(size))) if mechanism in FOR_CHOICES else NumberGrid(0, 24)
    return Question("asked", domain, epsilon=epsilon, mechanism=mechanism)


def truth(asked: Question, people: int) -> np.ndarray[Any, Any]:
    """Values of people, unevenly spread: index 0 is common, the last one nobody's."""
    last = asked.domain.size - 1
    return (np.arange(people) ** 2 % 1009 * last // 1009) % last


ALL = [(mechanism, epsilon) for mechanism in (*FOR_CHOICES, *FOR_NUMBERS) for epsilon in (0.5, 1, 4)]


@pytest.mark.parametrize(("mechanism", "epsilon"), ALL)
def test_simulated_devices_answer_as_the_client_does_coin_by_coin(mechanism: str, epsilon: float) -> None:
    asked = question(mechanism, epsilon, size=40)
    chance = np.random.default_rng(5)
    indices = chance.integers(0, asked.domain.size, 200)
    coins = coins_of(asked.randomizer, 200, chance)
    found = reports_of(asked.randomizer, indices, coins)
    for index, thrown, report in zip(indices.tolist(), coins.tolist(), found.tolist(), strict=True):
        assert list(asked.randomizer.respond(index, Replayed(thrown))) == report


@pytest.mark.parametrize(("mechanism", "epsilon"), ALL)
def test_estimates_lie_within_seven_of_their_deviations(mechanism: str, epsilon: float) -> None:
    # Sums of 100,000 independent reports; by Bernstein's inequality seven deviations are left with a chance below 1e-9 for
    # each of the at most 20 values, and the seed is fixed.
    asked = question(mechanism, epsilon)
    indices = truth(asked, PEOPLE)
    reports = reports_of(asked.randomizer, indices, coins_of(asked.randomizer, PEOPLE, np.random.default_rng(11)))
    found = estimator_of(asked).estimates(support_of(asked).count(reports))
    assert found.reports == PEOPLE
    if mechanism in FOR_CHOICES:
        exact = np.bincount(indices, minlength=asked.domain.size).astype(float)
        place = exact[0] / PEOPLE
    else:
        exact = np.array([indices.mean() / 1024 * 24])
        place = float(exact[0]) / 24
    assert np.all(np.abs(found.values - exact) < 7 * found.deviations)
    # `expected_deviation` takes people to be alike: spread evenly over blocks, or at one place of the range.
    expected = estimator_of(asked).expected_deviation(PEOPLE, place)
    rough = {"hadamard": 0.25, "piecewise": 0.4}.get(mechanism, 0.04)
    assert found.deviations[0] == pytest.approx(expected, rel=rough)


@pytest.mark.parametrize(("mechanism", "epsilon"), ALL)
def test_deviations_are_those_of_repeated_collections(mechanism: str, epsilon: float) -> None:
    # 400 collections of 500 people: the empirical variance of a value is right within a factor of 1 +- 7 * sqrt(2 / 399) for
    # sums that are nearly normal; the seed is fixed.
    asked = question(mechanism, epsilon, size=6)
    indices = truth(asked, 500)
    chance = np.random.default_rng(3)
    support, estimator = support_of(asked), estimator_of(asked)
    found = [
        estimator.estimates(
            support.count(reports_of(asked.randomizer, indices, coins_of(asked.randomizer, 500, chance)))
        )
        for _ in range(400)
    ]
    values = np.array([one.values for one in found])
    variance = values.var(axis=0, ddof=1)
    claimed = np.mean([one.deviations**2 for one in found], axis=0)
    spread = 7 * math.sqrt(2 / 399)
    assert np.all(variance < claimed * (1 + spread))
    if mechanism != "one_bit":
        assert np.all(variance > claimed * (1 - spread))


def test_a_wrong_chance_is_found() -> None:
    asked = question("d_ary", 1)
    indices = truth(asked, PEOPLE)
    reports = reports_of(asked.randomizer, indices, coins_of(asked.randomizer, PEOPLE, np.random.default_rng(11)))

    class Wrong(OfDAry):
        @property
        def chances(self) -> Any:
            p, q = super().chances
            return p, q * 120 / 100

    assert isinstance(asked.randomizer, DAry)
    found = Wrong(asked, asked.randomizer).estimates(support_of(asked).count(reports))
    exact = np.bincount(indices, minlength=20)
    assert not np.all(np.abs(found.values - exact) < 7 * found.deviations)


@given(data=st.data(), mechanism=st.sampled_from([*FOR_CHOICES, *FOR_NUMBERS]))
def test_counts_add_up_over_parts_and_reports_outside_their_alphabet_count_nowhere(
    data: st.DataObject, mechanism: str
) -> None:
    asked = question(mechanism, 1, size=40)
    fields = len(asked.randomizer.fields)
    any_number = st.one_of(st.integers(-2, 70), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**33))
    rows = data.draw(st.lists(st.lists(any_number, min_size=fields, max_size=fields), max_size=20))
    reports = np.array(rows, dtype=np.int64).reshape(-1, fields)
    support = support_of(asked)
    cut = data.draw(st.integers(0, len(rows)))
    whole = support.count(reports)
    assert whole.tolist() == (support.count(reports[:cut]) + support.count(reports[cut:])).tolist()
    assert whole[0] == support.is_valid(reports).sum()
    found = estimator_of(asked).estimates(whole)
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.deviations).all()


@pytest.mark.parametrize("mechanism", ["unary", "d_ary", "local_hashing"])
def test_sums_are_those_of_the_supported_values(mechanism: str) -> None:
    asked = question(mechanism, 1, size=70)
    reports = reports_of(asked.randomizer, truth(asked, 500), coins_of(asked.randomizer, 500, np.random.default_rng(2)))
    support = support_of(asked)
    assert support.supported(reports).sum(axis=0).tolist() == support.sums(reports).tolist()


def test_the_first_table_of_the_docs_holds() -> None:
    def deviation(mechanism: str, size: int) -> int:
        return round(estimator_of(question(mechanism, 1, size)).expected_deviation(1_000_000, 0))

    assert deviation("d_ary", 2) == 960
    assert deviation("unary", 32) == 1919
    assert deviation("d_ary", 32) == 3329
    assert deviation("local_hashing", 1000) == pytest.approx(1919, rel=0.005)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1e6))
def test_consistent_estimates_are_the_nearest_numbers_of_people(estimates: list[float], total: float) -> None:
    given_now = np.array(estimates)
    found = norm_sub(given_now, total)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total, rel=1e-9, abs=1e-6)
    # The same amount is taken from all that stay above 0, and more than what was there from the others: optimality.
    taken = given_now - found
    above = found > 1e-6
    if above.any():
        assert np.ptp(taken[above]) < 1e-6
        assert (given_now[~above] <= taken[above].mean() + 1e-5).all()


@pytest.mark.parametrize(("first", "second"), [("d_ary", "unary"), ("local_hashing", "d_ary"), ("unary", "unary")])
def test_cross_tables_lie_within_seven_of_their_deviations(first: str, second: str) -> None:
    # 100,000 people and at most 54 cells; as above.
    chance = np.random.default_rng(17)
    asked = (question(first, 2, size=6), question(second, 2, size=9))
    rows = truth(asked[0], PEOPLE)
    columns = (rows + chance.integers(0, 3, PEOPLE)) % 9
    reports = [
        reports_of(one.randomizer, indices, coins_of(one.randomizer, PEOPLE, chance))
        for one, indices in zip(asked, (rows, columns), strict=True)
    ]
    table = CrossTable(*asked)
    counts = table.count(reports[0][:5000], reports[1][:5000]) + table.count(reports[0][5000:], reports[1][5000:])
    found = table.estimates(counts)
    exact = np.zeros((6, 9))
    np.add.at(exact, (rows, columns), 1)
    assert np.all(np.abs(found.values - exact) < 7 * found.deviations)
    errors = (found.values - exact) / found.deviations
    # 54 cells, weakly dependent: their mean square is near 1.
    assert 0.4 < float((errors**2).mean()) < 2.2


def test_means_and_hadamard_response_have_no_cross_table() -> None:
    for wrong in ("hadamard", "one_bit"):
        with pytest.raises(RequestError, match=r"^columns: answers by"):
            CrossTable(question("d_ary", 1), question(wrong, 1))
    with pytest.raises(RequestError, match="million|1,000,000"):
        CrossTable(question("unary", 1, size=2000), question("unary", 1, size=2000))


def test_a_question_without_reports_has_estimates_that_are_numbers() -> None:
    for mechanism in (*FOR_CHOICES, *FOR_NUMBERS):
        asked = question(mechanism, 1)
        fields = len(asked.randomizer.fields)
        found = estimator_of(asked).estimates(support_of(asked).count(np.zeros((0, fields), dtype=np.int64)))
        assert np.isfinite(found.values).all()
        assert dataclasses.astuple(found)[0] == 0
