"""Warns the owner of a job that its budget promises little: a delta that allows to show somebody's rows, a very large epsilon.

In: a budget, the name of the privacy unit, how many units the job expects. Out: sentences. Holds: they follow from public
numbers alone, and refuse nothing. Not covered: what an attacker can do with a small budget (`report.attack_odds`).
"""

from dp_pipelines.accounting.shown_costs import left_number, spent_number
from dp_pipelines.report.attack_odds import factor, one_in
from dp_pipelines.report.words.unit_name import plural, unit_name

MOST_DELTA = 1e-4
"""Above it a delta is named, however many units there are."""

MOST_EPSILON = 10.0
"""Above it an epsilon is named."""


def budget_notes(epsilon: float, delta: float, unit: str, expected_units: float | None = None) -> list[str]:
    """Return a sentence for a large delta and one for a large epsilon; nothing for a usual budget.

    Args:
        epsilon: of all runs together.
        delta: of all runs together.
        unit: the privacy unit as a manifest has it.
        expected_units: how many units the job expects in its rows; None if it does not say.

    >>> for note in budget_notes(12.0, 1e-3, "value of customer_id"):
    ...     print(note)
    delta 0.001 is large: it would allow to publish all rows of 1 in 1,000 customers as they are; 1e-06 is usual
    epsilon 12 is large: what is published may be 162,755 times as likely with one customer as without, which hides little
    >>> budget_notes(1.0, 1e-4, "value of customer_id", 10_000), budget_notes(10.0, 1e-5, "customer", 20_000)
    ([], [])
    >>> budget_notes(1.0, 1e-5, "customer", 200_000)[0]
    'delta 1e-05 is large for 200,000 customers (expect): it would allow to publish all rows of 2 as they are; stay below 5e-06'
    """
    return [*_of_delta(delta, unit, expected_units), *_of_epsilon(epsilon, unit)]


def _of_delta(delta: float, unit: str, expected_units: float | None) -> list[str]:
    allows = "it would allow to publish all rows of"
    if expected_units is not None and delta * expected_units > 1:
        large = f"delta {spent_number(delta)} is large for {expected_units:,.0f} {plural(unit)} (expect)"
        shown = f"{allows} {delta * expected_units:,.3g} as they are"
        return [f"{large}: {shown}; stay below {left_number(1 / expected_units)}"]
    if delta > MOST_DELTA:
        return [
            f"delta {spent_number(delta)} is large: {allows} 1 in {one_in(delta)} {plural(unit)} as they are; 1e-06 is usual"
        ]
    return []


def _of_epsilon(epsilon: float, unit: str) -> list[str]:
    if epsilon <= MOST_EPSILON:
        return []
    times = f"{factor(epsilon)} times as likely with one {unit_name(unit)} as without"
    return [f"epsilon {spent_number(epsilon)} is large: what is published may be {times}, which hides little"]
