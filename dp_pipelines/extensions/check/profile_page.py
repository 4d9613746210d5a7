"""The page of a check: what the rows of a job are like, in tables, with advice above them. PRIVATE, like raw rows.

In: the JSON values of a profile. Out: an HTML document which, like all our pages (`report.pages`), fetches nothing. Holds: it
says at the top, in its title and at its end that it is private; no value of a row and no key of a partition stands in it. Not
covered: keeping it private.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.extensions.check.advice import percent, remedy, rough
from dp_pipelines.report.numbers import public_number
from dp_pipelines.report.pages import document

MOST_ADVICE = 12
"""Sentences on the page; the JSON file has all."""


def render(profile: Mapping[str, Any]) -> str:
    """The page.

    Args:
        profile: as the JSON file has it.
    """
    advised: Sequence[str] = profile["advice"]
    return document(
        "check.html.j2",
        package="dp_pipelines.extensions.check",
        title=profile["dataset"],
        date=profile["date"],
        advice=advised[:MOST_ADVICE],
        more=max(len(advised) - MOST_ADVICE, 0),
        tables=profile["tables"],
        join=profile["join"],
        stages=profile["stages"],
        percent=percent,
        remedy=remedy,
        rough=rough,
        number=number,
    )


def number(value: float | None) -> str:
    """A number that was counted or expected, for readers.

    >>> number(1234), number(12.345), number(1e-4), number(None)
    ('1,234', '12.3', 'under 0.1', '–')
    """
    if value is None:
        return "–"
    if 0 < value < 0.05:
        return "under 0.1"
    if isinstance(value, int):
        return f"{value:,}"
    return public_number(float(f"{value:.3g}")) if abs(value) < 1000 else f"{value:,.0f}"
