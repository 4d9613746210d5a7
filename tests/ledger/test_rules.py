"""What fits into an account: against dp-accounting's accountant and our own, full to the brim and never above."""

import math
import re
from collections.abc import Sequence
from fractions import Fraction

import dp_accounting
import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.accounting import accountant, record_kinds, renyi
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.ledger import export, rules, units
from dp_pipelines.ledger.entries import FILTER, RESERVED, Account, Cost
from dp_pipelines.ledger.ledger import Ledger
from tests.helpers import ledgers


def account(rule: str = FILTER, epsilon: float = 1.0, delta: float = 1e-6) -> Account:
    cap, order = rules.cap_of(rule, epsilon, delta)
    return Account(
        name="a", unit=("u",), words="one u", epsilon=epsilon, delta=delta, cap=cap, rule=rule, order=order
    )  # fmt: skip


def gaussian(sigma: int) -> MechanismRecord:
    return MechanismRecord(stage="s", name="g", kind="gaussian", scale=Fraction(sigma), l2_squared=1, l0=1)


def laplace(scale: int) -> MechanismRecord:
    return MechanismRecord(stage="s", name="l", kind="laplace", scale=Fraction(scale), linf=1, l0=1, l1=1)


def threshold(delta: float) -> MechanismRecord:
    return MechanismRecord(stage="s", name="t", kind="delta", delta=delta)


def coins(epsilon: float, delta: float) -> MechanismRecord:
    return MechanismRecord(stage="s", name="c", kind="approximate_dp", epsilon=epsilon, delta=delta, l0=1)


def training(sigma: int, group: str | None = None) -> MechanismRecord:
    scale = Fraction(sigma)
    return MechanismRecord(
        stage="t", name="t", kind="sampled_gaussian", scale=scale, l2_squared=1, l0=1, rate=0.1, times=50, group=group
    )


def event_of(record: MechanismRecord) -> dp_accounting.DpEvent:
    """The same for dp-accounting, without failures."""
    if record.kind == "gaussian":
        return dp_accounting.GaussianDpEvent(float(record.scale) / math.sqrt(record.l2_squared))
    if record.kind == "sampled_gaussian":
        step = dp_accounting.GaussianDpEvent(float(record.scale) / math.sqrt(record.l2_squared))
        return dp_accounting.SelfComposedDpEvent(dp_accounting.PoissonSampledDpEvent(record.rate, step), record.times)
    if record.kind == "laplace":
        shifts = record_kinds.worst_shifts(record)
        return dp_accounting.ComposedDpEvent(
            [dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(1 / float(s)), n) for s, n in shifts]
        )
    assert record.kind == "delta", "their accountant has no coins for added and removed units"
    return dp_accounting.NoOpDpEvent()


def theirs(records: Sequence[MechanismRecord], delta: float, order: float) -> float:
    """Epsilon by dp-accounting at the account's own order."""
    judge = dp_accounting.rdp.RdpAccountant(orders=[order])
    for record in records:
        judge.compose(event_of(record))
    return float(judge.get_epsilon(delta))


def fill(owner: Account, runs: Sequence[Sequence[MechanismRecord]]) -> list[Sequence[MechanismRecord]]:
    """Admit runs in turn, each as long as it fits."""
    taken = []
    for records in runs:
        cost = rules.run_cost(owner, records)
        try:
            rules.refuse_above(owner, "", cost)
        except BudgetError:
            continue
        owner.spent[""] = owner.spent.get("", Cost()) + cost
        taken.append(records)
    return taken


def failures(runs: Sequence[Sequence[MechanismRecord]]) -> float:
    return math.fsum(renyi.failure(records, 1.0) for records in runs)


KNOWN_TO_THEM = st.one_of(
    st.integers(3, 200).map(gaussian), st.integers(2, 200).map(laplace), st.floats(1e-9, 4e-7).map(threshold)
)
COINS = st.builds(coins, st.floats(0.01, 0.5), st.floats(0, 1e-7))


def plans(
    records: st.SearchStrategy[MechanismRecord], fewest: int, most: int
) -> st.SearchStrategy[list[list[MechanismRecord]]]:
    return st.lists(st.lists(records, min_size=1, max_size=3), min_size=fewest, max_size=most)


@settings(max_examples=60)
@given(plans(KNOWN_TO_THEM, 5, 60), st.sampled_from([(1.0, 1e-6), (0.5, 1e-8), (4.0, 1e-5)]))
def test_a_filled_filter_is_never_above_its_account_by_dp_accounting(runs, limits) -> None:
    owner = account(FILTER, *limits)
    taken = fill(owner, runs)
    records = [record for one in taken for record in one]
    failed = failures(taken)
    assert failed <= owner.delta * 0.75 * (1 + 1e-9)
    assert theirs(records, owner.delta - failed, float(Fraction(owner.order))) <= owner.epsilon


@settings(max_examples=10)
@given(plans(KNOWN_TO_THEM | COINS, 20, 40))
def test_a_filled_filter_is_never_above_its_account_by_our_own_accountant(runs) -> None:
    owner = account()
    taken = fill(owner, runs)
    assert accountant.epsilon_of_rounds([(records, 1) for records in taken], owner.delta) <= owner.epsilon


def test_a_filter_of_gaussians_is_full_to_the_brim_and_one_more_is_above() -> None:
    owner = account()
    taken = fill(owner, [[gaussian(60)]] * 3000)
    order = float(Fraction(owner.order))
    quarter = owner.delta / 4
    records = [record for one in taken for record in one]
    assert theirs(records, quarter, order) <= 1.0 < theirs([*records, gaussian(60)], quarter, order)
    assert len(taken) == owner.cap.epsilon // rules.run_cost(owner, [gaussian(60)]).epsilon


def test_a_filter_that_lets_more_in_would_be_found() -> None:
    """The twin of the tests above: a cap that is a tenth too high."""
    owner = account()
    wrong = Account(**{**vars(owner), "cap": Cost(epsilon=owner.cap.epsilon * 11 // 10, delta=owner.cap.delta)})
    records = [record for one in fill(wrong, [[gaussian(60)]] * 3000) for record in one]
    assert theirs(records, owner.delta / 4, float(Fraction(owner.order))) > 1.0


def test_a_filter_of_trainings_over_samples_is_full_and_never_above_its_account() -> None:
    owner = account(epsilon=3.0)
    taken = fill(owner, [[training(20)]] * 400)
    order = float(Fraction(owner.order))
    known = theirs([record for run in taken for record in run], rules.conversion(owner.delta), order)
    assert 10 < len(taken) < 400
    assert 0.95 * owner.epsilon <= known <= owner.epsilon


def test_a_unit_that_is_in_the_dearest_group_of_every_plan_is_charged_for_all_of_them() -> None:
    owner, plans = account(), [[training(20, "a"), training(30, "b")], [training(30, "a"), training(25, "b")]]
    charged = [rules.run_cost(owner, records) for records in plans]
    assert charged[0] == rules.run_cost(owner, [training(20)])
    assert charged[1] == rules.run_cost(owner, [training(25)])
    # Whichever groups somebody is in, no less is charged than what both plans do to them.
    for of_units in ([20, 30], [20, 25], [30, 30], [30, 25]):
        true = rules.run_cost(owner, [training(sigma) for sigma in of_units])
        assert true.epsilon <= charged[0].epsilon + charged[1].epsilon
        assert true.delta <= charged[0].delta + charged[1].delta
    # The names joined over both plans would charge too little: b of the first may be a of the second.
    assert rules.run_cost(owner, plans[0] + plans[1]).epsilon < charged[0].epsilon + charged[1].epsilon


def test_failures_have_a_purse_of_three_quarters_of_delta() -> None:
    owner = account()
    assert len(fill(owner, [[threshold(1e-7)]] * 20)) == 7
    assert account().cap.delta == units.delta_cap(0.75e-6)


def test_a_plan_with_the_delta_of_its_account_fits_a_filter() -> None:
    """It spends half of its delta on selection, and a little on the samplers' tables."""
    made = ledgers.plan(0.3, 1e-6)
    assert renyi.failure(made.mechanisms, 1.0) > 0.5e-6 or any(r.kind == "delta" for r in made.mechanisms)
    assert fill(account(), [made.mechanisms]) == [made.mechanisms]


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9), (8.0, 1e-5), (30.0, 1e-12)])
def test_the_order_is_the_best_for_gaussians_and_depends_on_the_cap_alone(epsilon: float, delta: float) -> None:
    owner = account(FILTER, epsilon, delta)
    chosen = owner.cap.epsilon / float(Fraction(owner.order))
    for order in [1.1, 1.5, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377]:
        allowed = renyi.from_epsilon(epsilon, order, delta / 4)
        assert allowed / order * 1e12 <= chosen * 1.01


def test_the_filter_s_cap_is_the_largest_divergence_that_meets_epsilon() -> None:
    owner = account()
    order = float(Fraction(owner.order))
    held = renyi.to_epsilon(float(owner.cap.epsilon * units.EPSILON_UNIT), order, owner.delta / 4)
    assert 1 - 1e-8 < held < 1


def test_a_filter_without_room_is_refused_when_it_is_opened() -> None:
    with pytest.raises(RequestError, match="no room"):
        rules.cap_of(FILTER, 1e-10, 1e-30)


def test_reserved_blocks_add_up_to_the_cap_and_no_further() -> None:
    owner = account(RESERVED)
    cost = rules.plan_cost(owner, 0.1, 1e-7)
    for _ in range(10):
        rules.refuse_above(owner, "", cost)
        owner.spent[""] = owner.spent.get("", Cost()) + cost
    assert owner.left("") == Cost()
    with pytest.raises(BudgetError):
        rules.refuse_above(owner, "", Cost(epsilon=1))
    with pytest.raises(BudgetError):
        rules.refuse_above(owner, "", Cost(delta=1))


def test_each_rule_charges_its_own_and_never_what_looks_better() -> None:
    small = [gaussian(10**6)]  # by Renyi divergence it costs next to nothing
    assert rules.plan_cost(account(FILTER), 0.9, 1e-7) == Cost()
    assert rules.run_cost(account(FILTER), small).epsilon > 0
    assert rules.plan_cost(account(RESERVED), 0.9, 1e-7) == Cost(epsilon=9 * 10**11, delta=10**53)
    assert rules.run_cost(account(RESERVED), small) == Cost()


@given(st.floats(1e-12, 0.9), st.floats(1e-12, 1))
def test_what_is_said_to_fit_does_fit_and_what_is_needed_is_not_understated(spent: float, wanted: float) -> None:
    owner = account(RESERVED)
    owner.spent[""] = Cost(epsilon=units.epsilon_charge(spent))
    cost = Cost(epsilon=units.epsilon_charge(wanted))
    if cost.within(owner.left("")):
        return
    with pytest.raises(BudgetError) as refused:
        rules.refuse_above(owner, "", cost)
    needs, fits = (re.search(p, str(refused.value)) for p in [r"needs epsilon (\S+)", r"at most epsilon ([\d.e-]+)"])
    if needs and re.fullmatch(r"[\d.e-]+", needs[1]):
        assert Fraction(needs[1]) >= Fraction(cost.epsilon, 10**12)
    if fits:
        assert Cost(epsilon=units.epsilon_charge(float(fits[1]))).within(owner.left(""))


def test_a_refusal_says_what_is_left_and_what_would_fit() -> None:
    owner = account(RESERVED)
    owner.spent[""] = Cost(epsilon=units.epsilon_charge(0.75), delta=1)
    with pytest.raises(BudgetError) as refused:
        rules.refuse_above(owner, "", rules.plan_cost(owner, 1 / 3, 1e-7))
    said = str(refused.value)
    assert "needs epsilon 0.333334 and delta 1e-07" in said
    assert "only epsilon 0.25 and delta just under 1e-06 of epsilon 1 and delta 1e-06 are left" in said
    assert "what would fit: a plan with at most epsilon 0.25" in said
    owner.spent[""] = owner.cap
    with pytest.raises(BudgetError, match="nothing more fits"):
        rules.refuse_above(owner, "", Cost(epsilon=1))


def test_a_refused_run_under_a_filter_fits_with_the_noise_that_is_named() -> None:
    owner = account()
    for records in ([gaussian(1)], [laplace(1)], [coins(2.0, 0.0)]):
        with pytest.raises(BudgetError) as refused:
            rules.refuse_above(owner, "", rules.run_cost(owner, records))
        times = re.search(r"the same run with ([\d.]+) times the noise", str(refused.value))
        assert times is not None
        if records[0].kind != "approximate_dp":
            scale = math.ceil(float(times[1]))
            mended = [gaussian(scale) if records[0].kind == "gaussian" else laplace(scale)]
            rules.refuse_above(owner, "", rules.run_cost(owner, mended))
    with pytest.raises(BudgetError, match="selection may fail with a probability of at most 7.5e-07"):
        rules.refuse_above(owner, "", rules.run_cost(owner, [threshold(1e-6)]))


def test_the_refusal_of_a_window_names_it() -> None:
    with pytest.raises(BudgetError, match="account 'a', window 2026-01-05"):
        rules.refuse_above(account(RESERVED), "2026-01-05", Cost(epsilon=2 * 10**12))


def test_what_is_shown_of_a_filter_is_within_its_cap(sqlite: str) -> None:
    ledger = ledgers.with_account(sqlite, rule=FILTER)
    shown = export.budget_of(ledger.account(ledgers.ACCOUNT), "")
    assert shown["spent"] == {"epsilon": 0.0, "delta": 0.0}
    admitted = _fill(ledger)
    shown = export.budget_of(ledger.account(ledgers.ACCOUNT), "")
    order = float(Fraction(ledger.account(ledgers.ACCOUNT).order))
    records = list(ledgers.plan(0.1, 1e-7, 3).mechanisms) * admitted  # Gaussians and a threshold
    assert theirs(records, 0.25e-6, order) <= shown["spent"]["epsilon"] * (1 + 1e-9) <= 1.0 + 1e-9
    assert renyi.failure(records, 1.0) <= shown["spent"]["delta"] <= 1e-6
    assert 0.9 < shown["used"] <= 1


def _fill(ledger: Ledger) -> int:
    for number in range(1000):
        try:
            ledgers.admit(ledger, f"r{number}", ledgers.plan(0.1, 1e-7, 3), asked=f"{number}")
        except BudgetError:
            return number
    raise AssertionError("the account has no end")


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9), (4.0, 1e-5), (2.5, 1e-7)])
def test_a_filter_may_spend_the_whole_units_that_lie_a_billionth_below_the_exact_divergence(
    epsilon: float, delta: float
) -> None:
    owner = account(epsilon=epsilon, delta=delta)
    with mpmath.workdps(50):
        order = mpmath.mpf(Fraction(owner.order).numerator) / Fraction(owner.order).denominator
        logs = mpmath.log(mpmath.mpf(delta) / 4) + mpmath.log(order)
        exact = epsilon - mpmath.log1p(-1 / order) + logs / (order - 1)
        over = exact - mpmath.mpf(10) ** -9 - owner.cap.epsilon * mpmath.mpf(10) ** -12
    assert -1e-14 <= over < 1e-12 + 1e-14


def test_a_filter_that_may_spend_no_unit_at_all_is_refused_and_one_with_a_unit_is_not() -> None:
    # Here the allowed divergence is half a unit above the safety; a unit more of epsilon is a unit more of it.
    epsilon, delta = 1.9842141884812955e-09 + 5e-13, 1e-30
    with pytest.raises(RequestError, match="no room"):
        rules.cap_of(FILTER, epsilon, delta)
    assert rules.cap_of(FILTER, epsilon + 1e-12, delta)[0].epsilon == 1
