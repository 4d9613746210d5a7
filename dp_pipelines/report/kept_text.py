"""What the limits of a stage cut off, and how sound its rows are, in sentences for readers.

In: the entry `kept` of a stage in a manifest (any part of it may be missing or wrong), the privacy unit in words. Out: lines.
Holds: released numbers and public facts only; a share that does not stand out of the noise is said to be unknown. Not covered:
what the limits are (`planning.limits`).
"""

import math
from collections.abc import Mapping
from typing import Any

from dp_pipelines.metrics.error_bars import LAPLACE_BAR
from dp_pipelines.release.kept_shares import JOINED
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.pages import mapping, mappings
from dp_pipelines.report.words.unit_name import plural, unit_name

FEW = 0.05
"""Below so large a share of values that are not null, and none beyond its error bar, a column looks wholly null."""

SAID = {"where": "pass `where`", "lookup": "are found in the lookup table"}
"""What is said of a row by its name in the manifest."""


def lines(kept: object, unit: str) -> list[str]:
    """Sentences about one stage; none where nothing was released.

    Args:
        kept: what the manifest says.
        unit: the privacy unit in words.

    >>> known = {"share": 0.46, "stddev": 0.015}
    >>> rows = {"share": 0.51, "stddev": 0.02, "at_most": False, "fewer_than": 512}
    >>> fact = {"fact": "not_null", "column": "c", **known}
    >>> whole, values = lines({"whole": known, "rows": rows, "values": [], "facts": [fact]}, "customer")
    >>> for part in (*whole.split("; "), values):
    ...     print(part)
    about 46% (± 4%) of customers fall wholly within the limits
    about 51% (± 5%) of the rows of customers with fewer than 512 rows are counted
    of one row of each customer, not null: c 46% (± 4%)
    """
    if not isinstance(kept, Mapping):
        return []
    rows = mapping(kept.get("rows"))
    many, one, row = plural(unit), unit_name(unit), "joined row" if kept.get("of") == JOINED else "row"
    about = "at most" if rows.get("at_most") is True else "about"
    said = [
        _sentence("about", mapping(kept.get("whole")), f"of {many} fall wholly within the limits")
        + "; "
        + _sentence(about, rows, f"of {_whose(rows, many, row)} are counted{hidden_units(rows.get('hides'), unit)}")
    ]
    for entry in mappings(kept.get("values")):
        said.append(_of_values(entry, f"counted {row} of each {one}"))
    facts = mappings(kept.get("facts"))
    passed = [f"{percent(fact)} {SAID[name]}" for fact in facts if (name := fact.get("fact")) in SAID]
    if passed:
        said.append(f"of one {row} of each {one}, {' and '.join(passed)}")
    columns = [fact for fact in facts if fact.get("fact") == "not_null"]
    if columns:
        listed = ", ".join(f"{_name(fact)} {percent(fact)}" for fact in columns)
        said.append(f"of one {row} of each {one}, not null: {listed}")
    said += [f"{_name(fact)} looks wholly null: check its type and format" for fact in columns if _looks_empty(fact)]
    return said


def percent(known: Mapping[str, Any]) -> str:
    """Return a share with its error bar, which never passes 100%, or that it is unknown.

    Manifests do not say which law the noise of a share has, so that the bar is the longer one, of Laplace noise.

    >>> percent({"share": 0.97, "stddev": 0.001}), percent({"share": None})
    ('97.0% (± 0.3%)', 'an unknown share')
    >>> percent({"share": 0.998, "stddev": 0.01}), percent({"share": 1.0, "stddev": 0.0})
    ('97% to 100%', '100%')
    """
    share, stddev = _finite(known.get("share")), _finite(known.get("stddev"))
    if share is None or stddev is None:
        return "an unknown share"
    if share == 1 and stddev == 0:
        return "100%"
    bar = 100 * LAPLACE_BAR * stddev
    digits = 0 if bar >= 1 else 1 if bar >= 0.1 else 2
    # Rounded up: nothing is more exact than it is.
    middle, half = round(100 * share, digits), math.ceil(bar * 10**digits - 1e-9) / 10**digits
    if middle + half > 100 + 1e-9:
        low = math.floor((100 * share - bar) * 10**digits + 1e-9) / 10**digits
        return f"{max(0.0, low):.{digits}f}% to 100%"
    return f"{middle:.{digits}f}% (± {half:.{digits}f}%)"


def _whose(rows: Mapping[str, Any], many: str, row: str) -> str:
    """Which rows a share is of.

    Units beyond the last cell of the histogram are counted together, however many rows each has. Where some are seen, the
    share is an upper bound for all rows; where none stands out of the noise, there may still be a few that it leaves out.
    """
    end = rows.get("fewer_than")
    if rows.get("at_most") is True or not isinstance(end, int) or isinstance(end, bool):
        return f"{row}s"
    return f"the {row}s of {many} with fewer than {end:,} {row}s"


def hidden_units(hides: object, unit: str, such: str = "") -> str:
    """Return a remark on how many units that have far more rows than most the noise would hide; empty where they do not matter.

    Args:
        hides: what the manifest says, as `release.kept_shares` wrote it.
        unit: the privacy unit in words.
        such: "such" where the sentence has said already which units are meant.

    >>> hidden_units(60, "customer"), hidden_units(0, "customer"), hidden_units(None, "customer")
    (' (the noise would hide up to 60 customers with far more than most)', '', '')
    >>> hidden_units(1, "customer", "such")
    ' (the noise would hide up to 1 such customer)'
    """
    count = _hidden_count(hides)
    noun = unit_name(unit) if count == 1 else plural(unit)
    named = f"{such} {noun}" if such else f"{noun} with far more than most"
    return f" (the noise would hide up to {count:,} {named})" if count else ""


def _hidden_count(hides: object) -> int:
    """Return a number of units that a manifest states, or 0 where it states none.

    >>> _hidden_count(60), _hidden_count(-1), _hidden_count(True), _hidden_count("60")
    (60, 0, 0, 0)
    """
    return hides if isinstance(hides, int) and not isinstance(hides, bool) and 0 < hides < 10**15 else 0


def _sentence(about: str, known: Mapping[str, Any], what: str) -> str:
    if _finite(known.get("share")) is None:
        return f"an unknown share {what}"
    said = percent(known)
    if said.endswith(" to 100%"):
        about, said = ("at most", "100%") if about == "at most" else ("", said)
    return f"{about} {said} {what}".lstrip()


def _of_values(entry: Mapping[str, Any], row: str) -> str:
    low, high = (_finite(entry.get(end)) for end in ("low", "high"))
    ends = {"below": low, "above": high}
    parts = [f"{percent(mapping(entry.get('within')))} within its range"]
    for side, end in ends.items():
        share = mapping(entry.get(side))
        said = "none measurably" if _covers_zero(share) else percent(share)
        parts.append(f"{said} {side} {'its range' if end is None else f'{end:,.6g}'}")
    return f"{_name(entry)} of one {row}: " + ", ".join(parts)


def _covers_zero(known: Mapping[str, Any]) -> bool:
    """Return True if the error bar of a share is short and reaches 0."""
    share, stddev = _finite(known.get("share")), _finite(known.get("stddev"))
    return share is not None and stddev is not None and share <= LAPLACE_BAR * stddev <= FEW


def _looks_empty(fact: Mapping[str, Any]) -> bool:
    share, stddev = _finite(fact.get("share")), _finite(fact.get("stddev"))
    return share is not None and stddev is not None and share < FEW and share < 2 * stddev * LAPLACE_BAR


def _name(entry: Mapping[str, Any]) -> str:
    return visible(str(entry.get("column")), most=100)


def _finite(value: object) -> float | None:
    sound = isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300
    return float(value) if sound and isinstance(value, int | float) else None
