"""The arms of a test for readers: sentences and the cells of a table of what a stage compares.

In: the entry `compare` of a stage in a manifest (any part of it may be missing or wrong). Out: lines, texts.
Holds: released numbers only; what is not known is a dash. Not covered: the table of the stage itself; the verdict on them
(`words.arm_verdicts`); their plot (`compare_section`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dp_pipelines.planning.power import POWER, smallest_of_interval
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.numbers import MOST_DIGITS, written_out

FILE = "compare"
"""How the name of the file of a comparison ends, after that of the stage."""

COVERS = {
    "population": "95% intervals of noise and of the sampling of units together",
    "noise": "95% intervals of the noise alone: other units of the same arms may well differ by more, so these are no test",
}

UNKNOWN = "–"

FINDS = f"{POWER * 100:.0f} of 100"
"""How often a difference of the smallest size that a test is said to find is found."""


def lines(compare: object) -> list[str]:
    """Sentences about the comparisons of a stage; none where there are none.

    Args:
        compare: what the manifest says.

    >>> row = {"arm": "B", "metric": "revenue", "value": 80.21, "baseline": 65.17, "difference": 15.04, "low": 11.97,
    ...        "high": 18.13, "ratio": 1.2308, "ratio_low": 1.1792, "ratio_high": 1.2849}
    >>> for line in lines({"baseline": "A", "intervals": "population", "rows": [row, {"arm": "C", "metric": "revenue"}]}):
    ...     print(line)
    revenue of B against A: 80.2 against 65.2, difference 15.0 (12.0 … 18.1), ratio 1.231 (1.179 … 1.285)
    revenue of C against A: – (too few units to tell)
    95% intervals of noise and of the sampling of units together
    """
    found = comparisons(compare)
    if not found or not isinstance(compare, Mapping):
        return []
    baseline = shown_name(compare.get("baseline"))
    said = []
    for row in found:
        what = f"{shown_name(row.get('metric'))} of {shown_name(row.get('arm'))} against {baseline}"
        texts = cells(row)
        if texts["difference"] == UNKNOWN:
            said.append(f"{what}: {UNKNOWN} (too few units to tell)")
            continue
        ends = f"difference {texts['difference']}, ratio {texts['ratio']}"
        said.append(f"{what}: {texts['value']} against {texts['baseline']}, {ends}")
    return [*said, COVERS.get(str(compare.get("intervals")), "")]


def hidden_tables(stages: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The tables of comparisons, which are shown with their stages and not as stages of their own.

    >>> sorted(hidden_tables({"test": {"compare": {}}, "weekly": {}}))
    ['test.compare']
    """
    return {f"{name}.{FILE}" for name, stage in stages.items() if "compare" in stage}


def cells(row: Mapping[str, Any]) -> dict[str, str]:
    """The numbers of one comparison as texts, with the digits that the intervals leave certain."""
    difference = [finite_number(row.get(key)) for key in ("difference", "low", "high")]
    ratio = [finite_number(row.get(key)) for key in ("ratio", "ratio_low", "ratio_high")]
    digits = _digits(difference)
    return {
        "value": _number(finite_number(row.get("value")), digits),
        "baseline": _number(finite_number(row.get("baseline")), digits),
        "difference": _interval(difference, digits),
        "ratio": _interval(ratio, _digits(ratio)),
        "reading": _reading(difference, smallest_found(row)),
    }


def smallest_found(row: Mapping[str, Any]) -> str:
    """Return how small a difference a test with this interval finds in 80 of 100 cases; as a part of the baseline too.

    Args:
        row: a comparison. Without an interval of the ratio the baseline may be zero, and there is no part of it.

    >>> row = {"baseline": 65.17, "low": -2.03, "high": 4.11, "ratio": 1.016, "ratio_low": 0.97, "ratio_high": 1.1}
    >>> smallest_found(row), smallest_found({**row, "ratio_low": None}), smallest_found({})
    ('6.7% (4.4)', '4.4', '–')
    """
    baseline, low, high, *of_ratio = (
        finite_number(row.get(key)) for key in ("baseline", "low", "high", "ratio", "ratio_low", "ratio_high")
    )
    if low is None or high is None or not high > low:
        return UNKNOWN
    smallest = smallest_of_interval(low, high)
    if not baseline or None in of_ratio:
        return _rough(smallest)
    return f"{_rough(100 * smallest / abs(baseline))}% ({_rough(smallest)})"


def _rough(value: float) -> str:
    """Return a positive number with two digits.

    >>> _rough(4.389), _rough(1288.0), _rough(0.0123), _rough(3e17)
    ('4.4', '1,300', '0.012', '3e+17')
    """
    rounded = float(f"{value:.1e}")
    return f"{rounded:,.0f}" if 10 <= rounded < MOST_DIGITS else f"{rounded:g}"


def comparison_cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the numbers of a row of a published comparison for a file, with the digits that tables on the page show.

    Args:
        row: a value for each of `query.compare.number_columns`.

    Returns:
        texts without separators, empty where there is no number.

    >>> comparison_cells({"value": 17.4061, "difference": 3.2612, "difference_low": 2.4912, "difference_high": 4.0212})
    {'value': '17.41', 'difference': '3.26', 'difference_low': '2.49', 'difference_high': '4.02'}
    """
    numbers = {name: finite_number(value) for name, value in row.items()}
    digits = {
        contrast: _digits(
            [None, *(_first(numbers, (f"{contrast}{of}_{end}" for of in ("", "_noise"))) for end in ("low", "high"))]
        )
        for contrast in ("difference", "ratio")
    }
    texts = {}
    for name, number in numbers.items():
        certain = digits["ratio" if name.startswith("ratio") else "difference"]
        if number is None:
            texts[name] = ""
        elif abs(number) >= MOST_DIGITS:
            texts[name] = written_out(number, certain)
        else:
            texts[name] = _number(number, certain).replace(",", "")
    return texts


def _first(numbers: Mapping[str, float | None], names: Iterable[str]) -> float | None:
    """Return the number of the first name that has one."""
    return next((number for name in names if (number := numbers.get(name)) is not None), None)


def _interval(parts: Sequence[float | None], digits: int) -> str:
    value, low, high = (_number(part, digits) for part in parts)
    return UNKNOWN if UNKNOWN in (value, low, high) else f"{value} ({low} … {high})"


def _reading(difference: Sequence[float | None], smallest: str) -> str:
    """What the interval of a difference says: nothing is clear where it holds 0, and then the test finds no smaller one."""
    _, low, high = difference
    if low is None or high is None:
        return UNKNOWN
    return "higher" if low > 0 else "lower" if high < 0 else f"no clear difference; finds {smallest}"


def _digits(parts: Sequence[float | None]) -> int:
    """Decimals after which an interval leaves nothing certain."""
    _, low, high = parts
    if low is None or high is None or not high > low:
        return 2
    return min(12, max(0, 2 - math.floor(math.log10(high - low) + 0.3)))


def _number(value: float | None, digits: int) -> str:
    if value is None:
        return UNKNOWN
    text = f"{value:,.{digits}f}" if abs(value) < 1e15 else f"{value:.3e}"
    return text if text.strip("-0.,") else text.removeprefix("-")


def comparisons(compare: object) -> list[Mapping[str, Any]]:
    """Return the comparisons that the entry of a stage has; none where it is damaged."""
    rows = compare.get("rows") if isinstance(compare, Mapping) else None
    listed = rows if isinstance(rows, Sequence) and not isinstance(rows, str) else []
    return [row for row in listed if isinstance(row, Mapping)]


def shown_name(value: object) -> str:
    """Return the name of an arm or a metric as readers see it."""
    return "(null)" if value is None else visible(str(value), most=100)


def finite_number(value: object) -> float | None:
    """Return a number of a comparison; None for anything else."""
    sound = isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300
    return float(value) if sound and isinstance(value, int | float) else None
