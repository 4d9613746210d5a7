"""Ranges of released numbers, and what they assume, in words for readers.

In: ends of ranges; the entry of a stage in a manifest (any part of it may be missing or wrong), the privacy unit in words. Out:
texts. Holds: released numbers and public facts only; a range is never called a confidence interval, since it holds the truth
under an assumption about the rows that no private release can do without (docs/ranges.md). Not covered: how ranges are made
(`release.ranges`).
"""

import decimal
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dp_pipelines.report.kept_text import hidden_units, percent
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.numbers import MOST_DECIMALS, MOST_DIGITS, written_out
from dp_pipelines.report.pages import mapping
from dp_pipelines.report.words.number_format import DOWN, NEAREST, UP, NumberFormat

HEADING = "likely"
"""The heading of a column of ranges."""

NOT_MEASURED = "what the limits cut off was not measured"
"""What is said of a stage whose bounds were written by hand, and which has no `kept`."""


def range_in_words(low: float, high: float, *, form: NumberFormat | None = None) -> str:
    """Return a range, rounded outwards to what its width leaves certain.

    Args:
        low, high: the ends; NaN for none.
        form: how the job wants the number to be written; None: as its width asks for.

    >>> range_in_words(1050.4, 1189.2), range_in_words(1050.4, float("nan")), range_in_words(0.04121, 0.04979)
    ('1,050 … 1,190', 'at least 1,050', '0.0412 … 0.0498')
    >>> range_in_words(5.0, 5.0), range_in_words(float("nan"), float("nan"))
    ('5.00', '-')
    >>> range_in_words(0.1201, 0.1302, form=NumberFormat(decimals=0, percent=True))
    '12% … 14%'
    """
    first, last = _ends(low, high, _rounded if form is None else _in_form(form.text))
    if not first or not last:
        return f"at least {first}" if first else "-"
    return first if high == low else f"{first} … {last}"


def range_cells(
    estimate: float, low: float, high: float, *, whole: bool = False, form: NumberFormat | None = None
) -> tuple[str, str, str]:
    """Return an estimate and both ends of its range for a file, rounded as on the page.

    Args:
        estimate: of the true number.
        low, high: the ends; NaN for none.
        whole: whether the true number is whole, such as one of people.
        form: as for `range_in_words`.

    Returns:
        texts without separators, empty where there is no number.

    >>> range_cells(1120.3, 1050.4, 1189.2), range_cells(4.26, 3.91, 4.79, whole=True)
    (('1120', '1050', '1190'), ('4', '3', '5'))
    >>> range_cells(1.2345e16, 1.2344123456e16, 1.2346123456e16)
    ('12345000000000000', '12344100000000000', '12346200000000000')
    """

    def cell(value: float, step: float, to: Callable[[Any], int]) -> str:
        if max(abs(value), step) >= MOST_DIGITS:
            return _large_cell(value, max(step, 1.0) if whole else step, to)
        text = _rounded(value, step, to).replace(",", "")
        return str(to(float(text))) if whole and "." in text else text

    write = cell if form is None else _in_form(form.cell)
    first, last = _ends(low, high, write)
    return _estimate(estimate, low, high, write), first, last


Writer: TypeAlias = Callable[[float, float, Callable[[Any], int]], str]
"""Writes a number, given a step of its digits and how it is rounded to whole steps."""


def _ends(low: float, high: float, write: Writer) -> tuple[str, str]:
    """Return both ends of a range, rounded outwards to what its width leaves certain; empty for none."""
    if not math.isfinite(low):
        return "", ""
    if not math.isfinite(high):
        return write(low, _step(max(abs(low), 1e-300) / 10), math.floor), ""
    step = _step(high - low if high > low else max(abs(low), 1.0) / 10)
    if high == low:
        return write(low, step, round), write(low, step, round)
    return write(low, step, math.floor), write(high, step, math.ceil)


def _estimate(estimate: float, low: float, high: float, write: Writer) -> str:
    """Return an estimate, rounded to what the width of its range leaves certain; empty for none."""
    if not math.isfinite(estimate):
        return ""
    known = math.isfinite(low) and math.isfinite(high) and high > low
    return write(estimate, _step(high - low if known else max(abs(estimate), 1.0) / 10), round)


def estimate_in_words(estimate: float, low: float, high: float, *, form: NumberFormat | None = None) -> str:
    """Return an estimate, rounded to what the width of its range leaves certain. `form` as for `range_in_words`.

    >>> estimate_in_words(1120.3, 1050.4, 1189.2), estimate_in_words(float("nan"), 1.0, 2.0)
    ('1,120', '-')
    """
    return _estimate(estimate, low, high, _rounded if form is None else _in_form(form.text)) or "-"


def _in_form(write: Callable[[float, str], str]) -> Writer:
    """Return a writer whose digits follow from a format instead of the width of a range."""
    rounding = {math.floor: DOWN, math.ceil: UP}

    def written(value: float, step: float, to: Callable[[Any], int]) -> str:
        return write(value, rounding.get(to, NEAREST))

    return written


def assumption(unit: str, below: str, *, hides: object = 0, total: bool = False) -> str:
    """Return the assumption under which ranges hold the truth.

    Args:
        unit: the privacy unit in words.
        below: how much a unit has less than; empty where that does not matter.
        hides: up to how many units that have far more than most the noise would hide; 0 where they do not matter.
        total: whether the numbers are those of a total.

    >>> assumption("customer", "512 rows"), assumption("customer", "", total=True)
    ('if no group loses more than twice the average share and no customer has 512 rows or more', 'whatever the rows are')
    >>> assumption("customer", "512 rows", hides=60, total=True)
    'if no customer has 512 rows or more, or far more than most (the noise would hide up to 60 such customers)'
    """
    seen = f"no {unit} has {below} or more" if below else ""
    if seen and (remark := hidden_units(hides, unit, "such")):
        seen += f", or far more than most{remark}"
    groups = "" if total else "no group loses more than twice the average share"
    both = " and ".join(part for part in (groups, seen) if part)
    return f"if {both}" if both else "whatever the rows are"


def lines(stage: Mapping[str, Any], unit: str) -> list[str]:
    """Return what is said below the numbers of a stage; nothing where no limits are stated.

    Args:
        stage: its entry in the manifest.
        unit: the privacy unit in words.

    >>> known = {"share": 0.88, "stddev": 0.01, "divided_by": 0.88, "times": 2.0, "below": "512 rows", "why": None}
    >>> stage = {"kept": {}, "metrics": {"orders": {"kept": known}}}
    >>> for part in lines(stage, "customer")[0].split("; "):
    ...     print(part[:100])
    orders: about 88% (± 3%) of orders are counted
    the column headed "likely" has a range for the true number: noise, and what the limits cut off, if n
    >>> stage["metrics"]["orders"]["kept"] = {"share": 1.0, "stddev": 0.0, "divided_by": 1.0}
    >>> lines(stage, "customer")
    ['orders: no limit cuts anything off; the range is noise alone']
    >>> lines({"limits": ["at most 2 rows of one customer are counted"], "metrics": {"orders": {}}}, "customer")
    ['what the limits cut off was not measured']
    """
    kept, metrics = stage.get("kept"), mapping(stage.get("metrics"))
    if not isinstance(kept, Mapping):
        return [NOT_MEASURED] if metrics and stage.get("limits") else []
    said, reasons = [], dict[str, list[str]]()
    for name, entry in metrics.items():
        found, shown = mapping(mapping(entry).get("kept")), visible(str(name), most=100)
        if isinstance(why := found.get("why"), str):
            reasons.setdefault(why, []).append(shown)
        if _share(found.get("divided_by")) is not None:
            if cuts_nothing(found):
                said.append(f"{shown}: no limit cuts anything off; the range is noise alone")
                continue
            below = visible(str(found["below"]), most=100) if isinstance(found.get("below"), str) else ""
            held = assumption(unit, below, hides=found.get("hides"), total=found.get("times") == 1)
            ends = f'the column headed "{HEADING}" has a range for the true number: noise, and what the limits cut off'
            said.append(f"{_counted(shown, found)}; {ends}, {held}")
    said += [f"{', '.join(names)}: no estimate and no high end: {why}" for why, names in reasons.items()]
    return said


def counted_share(name: str, entry: Mapping[str, Any]) -> str:
    """Return which part of a metric's numbers is counted, where that is less than all.

    Args:
        name: of the metric.
        entry: what its entry in the manifest says of `kept`.

    >>> counted_share("revenue", {"divided_by": 0.883, "share": 0.883, "stddev": 0.01}), counted_share("orders", {})
    ('about 88% (± 3%) of revenue is counted', '')
    >>> counted_share("orders", {"divided_by": 0.883}), counted_share("orders", {"divided_by": 1.0})
    ('about 88% of orders are counted', '')
    """
    share = _share(entry.get("divided_by"))
    if share is None or share >= 1:
        return ""
    measured = _share(entry.get("stddev")) is not None
    said = percent({"share": share, "stddev": entry.get("stddev")}) if measured else f"{share:.0%}"
    return f"{'' if ' to ' in said else 'about '}{said} of {name} {'are' if name.endswith('s') else 'is'} counted"


def cuts_nothing(entry: Mapping[str, Any]) -> bool:
    """Return True if the limits cannot cut anything off, so that no share had to be measured.

    Args:
        entry: what a metric's entry in the manifest says of `kept`.

    >>> cuts_nothing({"share": 1.0, "stddev": 0.0}), cuts_nothing({"share": 1.0, "stddev": 0.01}), cuts_nothing({})
    (True, False, False)
    """
    return entry.get("share") == 1 and entry.get("stddev") == 0


def _counted(name: str, entry: Mapping[str, Any]) -> str:
    """What part of a metric's numbers is counted."""
    share, rows = _share(entry.get("divided_by")), _share(entry.get("share_of_rows"))
    if rows is not None and share is not None:
        return f"{name}: about {share:.0%} of the sum and {rows:.0%} of the rows are counted"
    if share == 1:
        return f"{name}: the limits cut off too little to be told from noise"
    return f"{name}: {counted_share(name, entry)}"


def _share(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if known and isinstance(value, int | float) else None


def _step(width: float) -> float:
    """A power of ten that leaves two certain digits of a width."""
    return 10.0 ** (math.floor(math.log10(min(max(width, 1e-300), 1e308))) - 1)


def _large_cell(value: float, step: float, to: Callable[[Any], int]) -> str:
    """Return a large number for a file, rounded to whole steps. Floats near it keep the order, so ends stay outside."""
    with decimal.localcontext(prec=400):  # any float by any step
        size = decimal.Decimal(10) ** max(round(math.log10(step)), -MOST_DECIMALS)
        rounded = to(decimal.Decimal(value) / size) * size
    return written_out(rounded, max(0, -round(math.log10(step))))


def _rounded(value: float, step: float, to: Callable[[Any], int]) -> str:
    if abs(value) >= MOST_DIGITS:
        return f"{value:.3e}"
    step = max(step, 1e-12)
    decimals = max(0, -round(math.log10(step)))
    return f"{to(value / step) * step + 0.0:,.{decimals}f}"
