"""What a shuffler makes of a local promise: reports without names, in no order, of at least so many honest people.

In: the local epsilon, a delta, a lower bound of the number of honest reports. Out: an upper bound of the central epsilon. Holds:
docs/proofs/shuffling.md; ball arithmetic, rounded up. Not covered: whether the shuffler strips names, and whether people are
honest.
"""

from decimal import Decimal

import flint

from dp_pipelines import checks
from dp_pipelines.accounting.shown_costs import number
from dp_pipelines.errors import RequestError

PRECISION = 120
"""Bits of ball arithmetic."""

PLACES = 4
"""Decimal places to which the largest local epsilon is found."""


def most_local_epsilon(reports: int, delta: float) -> Decimal:
    """The largest local epsilon for which the bound is proven: log(n / (16 log(2 / delta))), rounded down.

    Source: Feldman, McMillan, Talwar, FOCS 2021, theorem 3.1 (condition).

    >>> most_local_epsilon(1_000_000, 1e-6)
    Decimal('8.3681')
    """
    with _precision():
        ratio = reports / (16 * (2 / _arb(delta)).log())
        if not ratio > 1:
            return Decimal(0)
        return Decimal(int((ratio.log().lower() * 10**PLACES).floor().unique_fmpz())).scaleb(-PLACES)


def amplified(local: Decimal, *, reports: int, delta: float) -> float:
    """The epsilon, at `delta`, of what a shuffler hands on.

    Source: Feldman, McMillan, Talwar, SODA 2023, theorem 3.1, under the condition of FOCS 2021, theorem 3.1.

    Args:
        local: the epsilon of one report.
        reports: at least how many people report honestly, the person in question among them.
        delta: above 0, below 1.

    Returns:
        An upper bound, at most `local`.

    Raises:
        RequestError: so few reports that nothing is proven.

    >>> round(amplified(Decimal(1), reports=1_000_000, delta=1e-6), 4)
    0.0195
    """
    checks.whole(reports, "reports", low=1, high=10**12)
    checks.number(delta, "delta", above=0, below=1)
    most = most_local_epsilon(reports, delta)
    if local > most:
        raise RequestError(
            field="epsilon",
            message=f"must be at most {most} for {reports:,} honest reports at delta {number(delta)}: nothing is proven beyond",
            hint="take a smaller epsilon, or declare more reports where there are more",
        )
    with _precision():
        e = flint.arb(flint.fmpq(*local.as_integer_ratio())).exp()
        log_term = (4 / _arb(delta)).log()
        bound = (1 + (e - 1) * (4 * (2 * log_term).sqrt() / ((e + 1) * reports).sqrt() + flint.arb(4) / reports)).log()
        return min(_up(bound), float(local))


def local_epsilon_for(central: float, *, reports: int, delta: float) -> Decimal:
    """The largest local epsilon, to four places, whose amplified epsilon is at most `central`.

    >>> local_epsilon_for(1.0, reports=1_000_000, delta=1e-6)
    Decimal('8.3681')
    """
    low, high = 0, int(most_local_epsilon(reports, delta).scaleb(PLACES))
    while low < high:
        middle = (low + high + 1) // 2
        if amplified(Decimal(middle).scaleb(-PLACES), reports=reports, delta=delta) <= central:
            low = middle
        else:
            high = middle - 1
    return Decimal(low).scaleb(-PLACES)


def _arb(value: float) -> flint.arb:
    return flint.arb(flint.fmpq(*value.as_integer_ratio()))


def _up(value: flint.arb) -> float:
    """A float that is at least the number."""
    text = value.upper().str(20, radius=False)
    return float(Decimal(text) * (1 + Decimal(10) ** -15))


class _precision:
    """Ball arithmetic at our precision, and the caller's after it."""

    def __enter__(self) -> None:
        self.before, flint.ctx.prec = flint.ctx.prec, PRECISION

    def __exit__(self, *_: object) -> None:
        flint.ctx.prec = self.before
