"""Rules that decide whether a charge still fits into an account. An account's rule is fixed when it is opened.

In: a plan, an account. Out: its cost in whole units, and a refusal if it does not fit. Holds: admission never chooses
the better rule: `reserved` or `filter` is fixed with the account, and the order depends only on the cap.
"""

# The two rules:
# * `reserved`: each frozen plan holds the (epsilon, delta) that the privacy loss distribution of all of its runs gives, as one
#   block; blocks add up. Sound for plans chosen after seeing results (basic composition holds with a filter that adds up:
#   Rogers, Roth, Ullman, Vadhan 2016, theorem 3.6), and cheap where few plans run often.
# * `filter`: each run is charged its own Renyi divergence of one order, which is fixed when the account is opened, and its own
#   probability of failing. Sound for any plans chosen after seeing results (Feldman and Zrnic 2021, theorem 4.3; with failures
#   Whitehouse, Ramdas, Rogers, Wu 2023, theorem 1), and cheap where many different plans run. A quarter of delta pays for turning
#   the divergence into (epsilon, delta); three quarters are the purse for failures, since a plan uses half of its own delta for
#   selection, and with the tables of noise that would not fit into half.
#
# If the records of a plan have groups of units, both rules charge the most expensive group of each plan, and these charges
# add up: a unit may be in one group of this plan and in another of the next, and loses at most that group's cost in each.
#
# The order is the one at which Gaussian noise fits in most often.

import decimal
import math
from collections.abc import Sequence
from fractions import Fraction

from dp_pipelines.accounting import renyi
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.ledger import refusals, units
from dp_pipelines.ledger.entries import FILTER, RESERVED, Account, Cost

SAFETY = Fraction(1, 10**9)
"""The relative amount by which the allowed divergence is lowered, to outweigh the rounding of its formula."""


def cap_of(rule: str, epsilon: float, delta: float) -> tuple[Cost, str]:
    """Return the cap of an account in whole units, and the order of its filter (empty for `reserved`).

    Raises:
        RequestError: a filter cannot keep this (epsilon, delta) at any order.

    >>> cap_of("reserved", 1.0, 1e-6)[0].epsilon
    1000000000000
    >>> cap_of("filter", 1.0, 1e-6)[1]
    '49/2'
    """
    if rule == RESERVED:
        return Cost(epsilon=units.epsilon_cap(epsilon), delta=units.delta_cap(delta)), ""
    quarter = conversion(delta)
    order = _best_order(epsilon, quarter)
    allowed = math.floor((Fraction(renyi.from_epsilon(epsilon, float(order), quarter)) - SAFETY) / units.EPSILON_UNIT)
    if allowed <= 0:
        raise RequestError(
            field="rule",
            message=f"filter has no room under epsilon {epsilon:g} and delta {delta:g}",
            hint="use rule reserved",
        )
    return Cost(epsilon=allowed, delta=units.delta_cap(delta) * 3 // 4), str(order)


def check_cap(rule: str, epsilon: float, delta: float) -> tuple[Cost, str]:
    """Check that both parts are above 0 and within what an account can hold, and return `cap_of`.

    Raises:
        RequestError: one is not.
    """
    return cap_of(rule, refusals.above(epsilon, "epsilon"), refusals.above(delta, "delta"))


def conversion(delta: float) -> float:
    """Return the part of an account's delta that turns the divergence of its filter into an epsilon."""
    return delta / 4


def plan_cost(account: Account, accounted_epsilon: float, accounted_delta: float) -> Cost:
    """Return the cost of freezing a plan: everything under `reserved`, nothing under `filter`."""
    if account.rule == FILTER:
        return Cost()
    return Cost(epsilon=units.epsilon_charge(accounted_epsilon), delta=units.delta_charge(accounted_delta))


def run_cost(account: Account, records: Sequence[MechanismRecord]) -> Cost:
    """Return the cost of one run besides its plan: nothing under `reserved`."""
    if account.rule == RESERVED:
        return Cost()
    divergence = renyi.divergence(records, float(Fraction(account.order)))
    failure = renyi.failure(records, account.epsilon)
    return Cost(
        epsilon=units.charge(divergence, units.EPSILON_UNIT), delta=units.charge(min(failure, 1.0), units.DELTA_UNIT)
    )


def refuse_above(account: Account, window: str, cost: Cost) -> None:
    """Refuse a charge that does not fit.

    Raises:
        BudgetError: names what is left and what would fit.
    """
    left = account.left(window)
    if cost.within(left):
        return
    field = f"account {account.name!r}" + (f", window {window}" if window else "")
    described = _reserved if account.rule == RESERVED else _filter
    needs, rest, fits = described(account, left, cost)
    message = f"this needs {needs}, but only {rest} are left"
    nothing = left.epsilon <= 0 or left.delta <= 0
    look = "`dp-pipelines ledger show` lists all releases"
    if account.rule == RESERVED:  # the cap of a filter is fixed
        look += ", `dp-pipelines ledger raise` raises the cap"
    hint = "nothing more fits" if nothing else f"what would fit: {fits}"
    raise BudgetError(field=field, message=message, hint=f"{hint}; {look}")


def _reserved(account: Account, left: Cost, cost: Cost) -> tuple[str, str, str]:
    needs = f"epsilon {epsilon_text(cost.epsilon, up=True)} and delta {delta_text(cost.delta, up=True)}"
    room = f"epsilon {epsilon_text(left.epsilon)} and delta {delta_text(left.delta)}"
    cap = f"epsilon {epsilon_text(account.cap.epsilon)} and delta {delta_text(account.cap.delta)}"
    return needs, f"{room} of {cap}", f"a plan with at most {room} for all its runs together"


def _filter(account: Account, left: Cost, cost: Cost) -> tuple[str, str, str]:
    at = f"a Renyi divergence (order {account.order}) of"
    needs = f"{at} {epsilon_text(cost.epsilon, up=True)} and a failure of {delta_text(cost.delta, up=True)}"
    cap = account.cap
    rest = f"{epsilon_text(left.epsilon)} of {epsilon_text(cap.epsilon)}"
    rest += f" and {delta_text(left.delta)} of {delta_text(cap.delta)}"
    fits = []
    if cost.epsilon > left.epsilon > 0:
        # The divergence of each law falls at least as fast as its noise grows (it is convex in the shift, or its square, and
        # 0 at 0).
        fits.append(
            f"the same run with {_text(Fraction(cost.epsilon, left.epsilon), up=True, digits=3)} times the noise"
        )
    if cost.delta > left.delta > 0:
        fits.append(f"a plan whose selection may fail with a probability of at most {delta_text(left.delta)}")
    return needs, rest, " and ".join(fits)


def _best_order(epsilon: float, delta: float) -> Fraction:
    """Return the order above 1 at which most Gaussian noise fits, from a fixed grid."""
    grid, n = [Fraction(n, 20) for n in range(21, 200)], 20
    while n < 2**40:
        grid.append(Fraction(n, 2))
        n += max(1, n // 50)
    return max(grid, key=lambda order: renyi.from_epsilon(epsilon, float(order), delta) / float(order))


def epsilon_text(amount: int, *, up: bool = False) -> str:
    """Format whole units of epsilon with a few digits, rounded down, or up."""
    return _text(amount * units.EPSILON_UNIT, up=up)


def delta_text(amount: int, *, up: bool = False) -> str:
    """Format whole units of delta with a few digits, rounded down, or up."""
    return _text(amount * units.DELTA_UNIT, up=up)


def _text(value: Fraction, *, up: bool = False, digits: int = 6) -> str:
    """Format a number with a few digits, rounded down or up, so that an amount that is said to fit does fit.

    >>> _text(Fraction(1)), _text(Fraction(1, 3)), _text(Fraction(1, 3), up=True), _text(1 - Fraction(1, 10**9))
    ('1', '0.333333', '0.333334', 'just under 1')
    """
    if value <= 0:
        return "0"
    down, over = (_rounded(value, way, digits) for way in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING))
    near, far, word = (over, down, "just over") if up else (down, over, "just under")
    return f"{word} {far}" if len(far) < len(near) - 2 else near


def _rounded(value: Fraction, way: str, digits: int) -> str:
    context = decimal.Context(prec=digits, rounding=way)
    number = context.divide(decimal.Decimal(value.numerator), decimal.Decimal(value.denominator))
    return f"{float(number):.{digits}g}"
