"""The account of records: against the integer laws that are drawn, closed forms, dp_accounting and numbers known before."""

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dp_pipelines.accounting.accountant import delta_of, epsilon_of, loss_distribution, tables_delta
from dp_pipelines.accounting.dominating_pairs import Laplace, Response
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import RequestError
from dp_pipelines.noise import FlooredLaplace, Law, RoundedGaussian


def gaussian(scale: int | Fraction, l2_squared: int = 1, l0: int = 1) -> MechanismRecord:
    return MechanismRecord(stage="s", name="g", kind="gaussian", scale=Fraction(scale), l2_squared=l2_squared, l0=l0)


def laplace(scale: int | Fraction, linf: int = 1, l0: int = 1, l1: int | None = None) -> MechanismRecord:
    total = linf * l0 if l1 is None else l1
    return MechanismRecord(stage="s", name="l", kind="laplace", scale=Fraction(scale), linf=linf, l0=l0, l1=total)


def decision(epsilon: float, delta: float, l0: int = 1) -> MechanismRecord:
    return MechanismRecord(stage="s", name="d", kind="approximate_dp", epsilon=epsilon, delta=delta, l0=l0)


def failure(delta: float) -> MechanismRecord:
    return MechanismRecord(stage="s", name="f", kind="delta", delta=delta)


def hockey_stick(laws: list[tuple[Law, int]], epsilon: float) -> float:
    """The delta of releasing integers with these laws, where each is shifted: a sum over all outcomes that matter."""
    p = q = np.ones(())
    for law, shift in laws:
        n = math.ceil(law.scale * (10 if isinstance(law, RoundedGaussian) else 30)) + abs(shift)
        xs = range(-n, n + 1)
        at = {x: law.pmf(x) for x in range(-n - abs(shift), n + abs(shift) + 1)}
        p = np.multiply.outer(p, np.array([at[x] for x in xs]))
        q = np.multiply.outer(q, np.array([at[x - shift] for x in xs]))
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


EPSILONS = [0.0, 0.25, 0.5, 1.0, 1.5, 2.5]


@pytest.mark.parametrize(
    ("records", "laws"),
    [
        ([laplace(2, linf=1, l0=2)], [(FlooredLaplace(2), 1), (FlooredLaplace(2), 1)]),
        ([laplace(2, linf=1, l0=2)], [(FlooredLaplace(2), 1), (FlooredLaplace(2), -1)]),
        ([laplace(3, linf=3, l0=2, l1=4)], [(FlooredLaplace(3), 3), (FlooredLaplace(3), 1)]),
        ([laplace(3, linf=3, l0=2, l1=4)], [(FlooredLaplace(3), 2), (FlooredLaplace(3), -2)]),
        ([laplace(3, linf=3, l0=3, l1=3)], [(FlooredLaplace(3), 1), (FlooredLaplace(3), 1), (FlooredLaplace(3), 1)]),
        ([gaussian(2, l2_squared=8)], [(RoundedGaussian(2), 2), (RoundedGaussian(2), 2)]),
        ([gaussian(2, l2_squared=5)], [(RoundedGaussian(2), 1), (RoundedGaussian(2), 2)]),
        ([gaussian(4), laplace(3, linf=1)], [(RoundedGaussian(4), 1), (FlooredLaplace(3), 1)]),
    ],
    ids=str,
)
def test_the_integer_laws_that_are_drawn_cost_no_more(records: list[MechanismRecord], laws: list[tuple[Law, int]]):
    for epsilon in EPSILONS:
        assert hockey_stick(laws, epsilon) <= delta_of(records, epsilon) + 1e-11


@pytest.mark.parametrize(
    ("wrong", "laws"),
    [
        # One partition instead of two.
        ([laplace(2, linf=1, l0=1)], [(FlooredLaplace(2), 1), (FlooredLaplace(2), 1)]),
        # A change spread evenly, where it can come in one piece.
        ([laplace(3, linf=2, l0=2, l1=4)], [(FlooredLaplace(3), 3), (FlooredLaplace(3), 1)]),
        # The largest shift instead of the norm; one run too few.
        ([gaussian(2, l2_squared=4)], [(RoundedGaussian(2), 2), (RoundedGaussian(2), 2)]),
        ([gaussian(4)], [(RoundedGaussian(4), 1), (FlooredLaplace(3), 1)]),
    ],
    ids=str,
)
def test_a_record_that_says_too_little_is_found_by_that(wrong: list[MechanismRecord], laws: list[tuple[Law, int]]):
    assert any(hockey_stick(laws, epsilon) > delta_of(wrong, epsilon) + 1e-4 for epsilon in EPSILONS)


def test_the_worst_spread_of_a_change_is_in_as_few_pieces_as_possible():
    assert loss_distribution([laplace(4, linf=4, l0=8, l1=11)]).bounded == {
        Laplace(1 + 2**-50): 2,
        Laplace(0.75 * (1 + 2**-50)): 1,
    }
    assert loss_distribution([laplace(4, linf=4, l0=8, l1=4)]).bounded == {Laplace(1 + 2**-50): 1}
    assert loss_distribution([laplace(4, linf=4, l0=8, l1=3)]).bounded == {Laplace(0.75 * (1 + 2**-50)): 1}
    assert loss_distribution([laplace(4, linf=4, l0=8, l1=99)]).bounded == {Laplace(1 + 2**-50): 8}


@settings(max_examples=60)
@given(shifts=st.lists(st.integers(0, 8), min_size=2, max_size=4), linf=st.integers(1, 8), epsilon=st.floats(0, 4))
def test_no_other_spread_of_a_change_costs_more(shifts: list[int], linf: int, epsilon: float):
    shifts = [min(shift, linf) for shift in shifts]
    assume(sum(shifts))
    spread = [laplace(3, linf=shift) for shift in shifts if shift]
    worst = laplace(3, linf=linf, l0=len(shifts), l1=sum(shifts))
    assert delta_of([worst], epsilon, accuracy=1e-5) >= delta_of(spread, epsilon, accuracy=1e-5) * (1 - 1e-3) - 1e-9


def test_an_even_spread_costs_less_so_that_it_would_be_found_as_an_account():
    even, uneven = [laplace(3, linf=2), laplace(3, linf=2)], [laplace(3, linf=3, l0=2, l1=4)]
    for epsilon in (0.0, 0.3, 0.6):
        assert delta_of(even, epsilon) < delta_of(uneven, epsilon) - 0.01
        assert delta_of(even, epsilon) < hockey_stick([(FlooredLaplace(3), 3), (FlooredLaplace(3), 1)], epsilon) - 0.005


@pytest.mark.parametrize(
    ("records", "runs", "delta", "known"),
    [
        # Closed form.
        ([gaussian(4)] * 12, 1, 1e-6, 4.1518167),
        ([gaussian(4)], 12, 1e-6, 4.1518167),
        ([gaussian(4, l2_squared=12)], 1, 1e-6, 4.1518167),
        # 365 daily reports and ten years of them.
        ([gaussian(60)], 365, 1e-6, 1.378),
        ([gaussian(60)], 3650, 1e-6, 4.925),
        # 100 decisions of 0.01.
        ([decision(0.01, 1e-9, l0=100)], 1, 1e-6, 0.394),
    ],
)
def test_numbers_known_before_come_out(records: list[MechanismRecord], runs: int, delta: float, known: float):
    assert epsilon_of(records, delta, runs=runs) == pytest.approx(known, rel=1e-3)


def test_the_floored_laplace_law_costs_what_the_continuous_law_does():
    # 64 releases at scale 1, delta 1e-6: 50.44; the plain discrete law would cost 57.87.
    assert loss_distribution([laplace(1)], runs=64).epsilon(1e-6, 1e-6) == pytest.approx(50.445, abs=0.001)


def test_a_year_of_weekly_reports_is_52_times_the_records():
    week = [laplace(64, linf=2, l0=4), gaussian(50), decision(0.01, 1e-10, l0=4), failure(1e-9)]
    assert epsilon_of(week, 1e-6, runs=52) == pytest.approx(epsilon_of(week * 52, 1e-6), rel=1e-9)
    assert delta_of(week, 1.0, runs=52) == pytest.approx(delta_of(week * 52, 1.0), rel=1e-9)
    assert epsilon_of(week, 1e-6, runs=52) < 0.3 * 52 * epsilon_of(week, 1e-8)


plans = st.tuples(
    st.floats(0.02, 0.6),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), max_size=3),
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 8)), max_size=2),
    st.floats(-9, -3),
)


def by_dp_accounting(
    mu: float, laplaces: list[tuple[int, int]], decisions: list[tuple[int, int]], delta: float
) -> float:
    """The same by Google's library, on a grid that holds decisions of whole 1024ths (others it would round up)."""
    from dp_accounting.pld import common, privacy_loss_distribution

    interval = 2.0**-12
    total = privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)
    for parts, count in laplaces:
        one = privacy_loss_distribution.from_laplace_mechanism(1024 / parts, value_discretization_interval=interval)
        total = total.compose(one.self_compose(count))
    for parts, count in decisions:
        parameters = common.DifferentialPrivacyParameters(parts / 1024, 1e-11)
        one = privacy_loss_distribution.from_privacy_parameters(parameters, value_discretization_interval=interval)
        total = total.compose(one.self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


def by_records(mu: float, laplaces: list[tuple[int, int]], decisions: list[tuple[int, int]], delta: float) -> float:
    scale = 2**30
    records = [gaussian(scale, l2_squared=math.ceil((mu * scale) ** 2))]
    records += [laplace(1024, linf=parts, l0=count) for parts, count in laplaces]
    records += [decision(parts / 1024, 1e-11, l0=count) for parts, count in decisions]
    return epsilon_of(records, delta, accuracy=1e-5)


@settings(max_examples=25)
@given(plan=plans)
def test_dp_accounting_says_the_same(plan: tuple[float, list[tuple[int, int]], list[tuple[int, int]], float]):
    mu, laplaces, decisions, log_delta = plan
    theirs = by_dp_accounting(mu, laplaces, decisions, 10**log_delta)
    assert by_records(mu, laplaces, decisions, 10**log_delta) == pytest.approx(theirs, rel=1e-4)


def test_a_change_of_a_thousandth_is_seen_by_that_comparison():
    theirs = by_dp_accounting(0.3, [(20, 4)], [(10, 2)], 1e-6)
    assert by_records(0.3, [(20, 4)], [(10, 2)], 1e-6) == pytest.approx(theirs, rel=1e-4)
    assert by_records(0.3 * 1.001, [(20, 4)], [(10, 2)], 1e-6) != pytest.approx(theirs, rel=1e-4)


def test_renyi_divergences_give_no_smaller_epsilon():
    import dp_accounting

    for mu, shift, count in ((0.3, 0.05, 16), (0.05, 0.2, 30), (0.5, 0.01, 100)):
        accountant = dp_accounting.rdp.RdpAccountant()
        accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
        accountant.compose(dp_accounting.LaplaceDpEvent(1 / shift), count)
        step = 2**30
        records = [gaussian(step, math.ceil((mu * step) ** 2)), laplace(step, math.ceil(shift * step), count)]
        for delta in (1e-4, 1e-6, 1e-10):
            theirs = accountant.get_epsilon(delta)
            assert 0.7 * theirs < epsilon_of(records, delta) < theirs


@settings(max_examples=30)
@given(
    scales=st.tuples(st.integers(20, 400), st.integers(20, 400)),
    sizes=st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(1, 60)),
    coin=st.tuples(st.floats(1e-4, 0.2), st.floats(1e-12, 1e-9), st.integers(1, 20)),
    fails=st.floats(0, 1e-8),
    runs=st.integers(1, 60),
    delta=st.floats(-6, -2),
)
def test_epsilon_rises_with_everything_but_noise_and_delta(
    scales: tuple[int, int],
    sizes: tuple[int, int, int],
    coin: tuple[float, float, int],
    fails: float,
    runs: int,
    delta: float,
):
    def cost(
        gauss: int = scales[0],
        lap: int = scales[1],
        square: int = sizes[2],
        linf: int = sizes[0],
        l0: int = sizes[1],
        epsilon: float = coin[0],
        fail: float = coin[1],
        coins: int = coin[2],
        threshold: float = fails,
        times: int = runs,
        at: float = 10**delta,
    ) -> float:
        records = [gaussian(gauss, square), laplace(lap, linf, l0), decision(epsilon, fail, coins), failure(threshold)]
        return epsilon_of(records, at, runs=times)

    # An answer is above its truth by at most a part in 10^4.
    here = cost() * (1 - 2e-4)
    assert cost(square=sizes[2] + 1) >= here
    assert cost(linf=sizes[0] + 1) >= here
    assert cost(l0=sizes[1] + 1) >= here
    assert cost(epsilon=coin[0] * 1.1) >= here
    assert cost(fail=coin[1] * 2) >= here
    assert cost(coins=coin[2] + 1) >= here
    assert cost(threshold=fails + 1e-9) >= here
    assert cost(times=runs + 1) >= here
    assert cost(at=10**delta / 2) >= here
    assert cost(gauss=scales[0] + 1) * (1 - 2e-4) <= cost()
    assert cost(lap=scales[1] + 1) * (1 - 2e-4) <= cost()


def test_order_names_and_merging_do_not_matter():
    records = [gaussian(30), laplace(64, 2, 4), decision(0.01, 1e-10, 4), failure(1e-9), laplace(64, 2, 4)]
    known = epsilon_of(records, 1e-6)
    for order in itertools.islice(itertools.permutations(records), 0, 120, 17):
        assert epsilon_of(order, 1e-6) == pytest.approx(known, rel=1e-12)
    merged = [gaussian(30), laplace(64, 2, 8), decision(0.01, 1e-10, 4), failure(1e-9)]
    assert epsilon_of(merged, 1e-6) == pytest.approx(known, rel=1e-9)


def test_pure_records_at_delta_zero_cost_their_sum_and_a_little_delta():
    records = [laplace(64, 16, 4), laplace(128, 32, 2), decision(0.25, 0.0, 2)]
    delta = tables_delta(records, epsilon=2.0 * (1 + 1e-9))
    assert 6 * (1 + math.exp(2)) * 2**-100 == pytest.approx(delta)
    assert epsilon_of(records, delta) == pytest.approx(2.0, rel=1e-9)
    assert delta_of(records, 2.0 * (1 + 1e-9)) == pytest.approx(delta, rel=1e-6)
    assert math.isinf(epsilon_of(records, 0.0))
    assert math.isinf(epsilon_of(records, delta / 2))
    assert epsilon_of([decision(0.25, 0.0, 2)], 0.0) == pytest.approx(0.5)


def test_tables_count_each_draw_that_one_unit_can_change():
    assert (
        tables_delta([gaussian(3, l0=5), laplace(3, l0=7), decision(1.0, 0.1, 9), failure(0.1)], epsilon=0.0)
        == 24 * 2**-100
    )
    assert tables_delta([gaussian(3, l0=5)], runs=3, epsilon=0.0) == 30 * 2**-100


def test_where_the_tables_end_no_epsilon_is_claimed():
    # At a shift of 60 scales the ideal law is (60, 0)-DP; what is drawn from a table is not known to be (60, 1e-9)-DP.
    assert math.isinf(epsilon_of([laplace(1, linf=60)], 1e-9))
    assert math.isinf(epsilon_of([laplace(1, linf=60)], tables_delta([laplace(1)], epsilon=60.0)))
    assert delta_of([laplace(1, linf=60)], 60.0) > 0.9
    assert epsilon_of([laplace(1, linf=30)], 1e-9) == pytest.approx(30)
    assert epsilon_of([decision(60.0, 0.0)], 1e-9) == pytest.approx(60)
    assert delta_of([gaussian(1)], 1e6) <= 1e-11


def test_what_fails_for_certain_costs_everything():
    assert epsilon_of([failure(0.01)], 0.011) == 0
    assert math.isinf(epsilon_of([failure(0.01)], 0.009))
    assert math.isinf(epsilon_of([failure(0.01)], 0.5, runs=100))
    assert delta_of([failure(0.5)], 0.0, runs=10**6) == 1
    assert epsilon_of([], 0.0) == 0


@pytest.mark.parametrize("delta", [math.nan, -1e-9, 1, 2.0, True, "1e-6", None])
def test_a_delta_that_is_no_probability_is_refused(delta: object):
    with pytest.raises(RequestError, match="delta"):
        epsilon_of([gaussian(1)], delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [math.nan, -1e-9, math.inf, True, "1", None])
def test_an_epsilon_that_is_no_number_is_refused(epsilon: object):
    with pytest.raises(RequestError, match="epsilon"):
        delta_of([gaussian(1)], epsilon)  # type: ignore[arg-type]


@pytest.mark.parametrize("runs", [0, -1, 1.5, True, math.nan, "2", None])
def test_a_number_of_runs_that_is_none_is_refused(runs: object):
    with pytest.raises(RequestError, match="runs"):
        epsilon_of([gaussian(1)], 1e-6, runs=runs)  # type: ignore[arg-type]


def test_decisions_of_all_sizes_are_counted_in():
    assert loss_distribution([decision(0.5, 0.0, 3), decision(0.0, 0.25)]).bounded == {Response(0.5): 3}
    assert loss_distribution([decision(0.5, 0.25, 3)]).failure == pytest.approx(1 - 0.75**3)


def test_importing_the_accountant_loads_neither_scipy_nor_dp_accounting():
    code = (
        "import sys; import dp_pipelines.accounting.accountant, dp_pipelines.selection;"
        "import dp_pipelines.planning.noise_levels.noise_search;"
        "print([m for m in ('scipy', 'dp_accounting') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_as_many_runs_as_can_be_are_taken_and_one_more_is_refused():
    assert tables_delta([laplace(3)], runs=10**9, epsilon=0.0) == pytest.approx(2e9 * 2**-100)
    assert loss_distribution([laplace(1000)], runs=10**9).bounded == {Laplace(1 / 1000 * (1 + 2.0**-50)): 10**9}
    with pytest.raises(RequestError, match="runs"):
        loss_distribution([laplace(1000)], runs=10**9 + 1)
    with pytest.raises(RequestError, match="runs"):
        delta_of([laplace(1000)], 1.0, runs=10**9 + 1)


@given(st.lists(st.tuples(st.floats(1e-300, 0.99), st.integers(1, 40)), min_size=1, max_size=4))
def test_what_fails_is_rounded_up_and_never_below_the_exact_probability(parts: list[tuple[float, int]]):
    records = [decision(0.5, delta, l0) for delta, l0 in parts]
    stays = math.prod((1 - Fraction(delta)) ** l0 for delta, l0 in parts)
    found = Fraction(loss_distribution(records).failure)
    assert 1 - stays <= found <= (1 - stays) * (1 + Fraction(1, 2**40))
