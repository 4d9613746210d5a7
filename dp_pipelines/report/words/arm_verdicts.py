"""The verdict on a test of arms: which comparisons show a difference, and how small a one the others would have found.

In: the entry `compare` of a stage in a manifest (any part of it may be missing or wrong). Out: sentences. Holds: computed from
released intervals and public constants alone, so it costs nothing; the power of a test is that of its own released interval.
Not covered: comparisons of several stages; whether a difference that was found is as large as it looks.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.report.compare_text import FINDS, UNKNOWN, cells, comparisons, shown_name, smallest_found
from dp_pipelines.report.numbers import finite, public_number

MOST_SENTENCES = 10
"""Comparisons that get a sentence of their own. The table has all."""

SIZED = ("difference", "low", "high")
"""A difference and the ends of its interval, in a comparison."""

CHANCE = 0.05
"""The part of tests of equal arms whose 95% interval does not hold 0."""


def lines(compare: object) -> list[str]:
    """Return the verdict on the comparisons of a stage; several get a count first.

    Args:
        compare: what the manifest says.

    >>> row = {"arm": "B", "metric": "revenue", "value": 80.21, "baseline": 65.17, "difference": 15.04, "low": 11.97,
    ...        "high": 18.11, "ratio": 1.2308, "ratio_low": 1.1792, "ratio_high": 1.2849}
    >>> other = {**row, "arm": "C", "difference": 1.04, "low": -2.03, "high": 4.11, "ratio": 1.016}
    >>> for line in lines({"baseline": "A", "intervals": "population", "rows": [row, other, {"arm": "D", "metric": "revenue"}]}):
    ...     print(line.replace("a smaller or a rare one ", "..."))
    1 of 3 comparisons shows a difference; of 2 tests of equal arms 0.1 would by chance
    revenue of B is higher than that of A: by 15.0 (12.0 … 18.1), which is 23% (18% … 28%)
    revenue of C: no difference was found; such a test finds one of about 6.7% (4.4) in 80 of 100 cases, ...less often
    revenue of D: too few units to tell
    """
    rows = comparisons(compare)
    if not rows or not isinstance(compare, Mapping):
        return []
    baseline, of_noise = shown_name(compare.get("baseline")), compare.get("intervals") == "noise"
    clear = [row for row in rows if _is_clear(row)]
    count = _counted(rows, len(clear), of_noise=of_noise)
    if len(rows) == 1:
        return [_sentence(rows[0], baseline, of_noise=of_noise)]
    named = rows if len(rows) <= MOST_SENTENCES else clear[:MOST_SENTENCES]
    left_out = [f"the table has the other {len(rows) - len(named):,}"] if len(named) < len(rows) else []
    return [count, *(_sentence(row, baseline, of_noise=of_noise) for row in named), *left_out]


def _counted(rows: Sequence[Mapping[str, Any]], clear: int, *, of_noise: bool) -> str:
    """Return how many of several comparisons show a difference, and how many of equal arms would."""
    known = sum(cells(row)["difference"] != UNKNOWN for row in rows)
    shows = f"{clear:,} of {len(rows):,} comparisons {'shows' if clear == 1 else 'show'} a difference"
    if of_noise:
        return f"{shows} beyond the noise; none of them is a test"
    tests = f"{known:,} test{'' if known == 1 else 's'}"
    return f"{shows}; of {tests} of equal arms {public_number(round(CHANCE * known, 2))} would by chance"


def _sentence(row: Mapping[str, Any], baseline: str, *, of_noise: bool) -> str:
    """Return the verdict on one comparison."""
    texts, metric, arm = cells(row), shown_name(row.get("metric")), shown_name(row.get("arm"))
    if texts["difference"] == UNKNOWN:
        return f"{metric} of {arm}: too few units to tell"
    if _is_clear(row):
        among = " among these units" if of_noise else ""
        return f"{metric} of {arm} is {texts['reading']} than that of {baseline}{among}: by {_by(row)}"
    smallest = smallest_found(row)
    if of_noise:
        words = f"no difference beyond the noise, which lets one of about {smallest} through in {FINDS} cases"
        return f"{metric} of {arm}: {words}, a smaller one less often; other units may well differ by more"
    words = f"such a test finds one of about {smallest} in {FINDS} cases, a smaller or a rare one less often"
    return f"{metric} of {arm}: no difference was found; {words}"


def _by(row: Mapping[str, Any]) -> str:
    """Return by how much two arms differ, with the interval; as a part of the baseline too, where that is above zero."""
    baseline, *ratio = (finite(row.get(key)) for key in ("baseline", "ratio", "ratio_low", "ratio_high"))
    sign = -1 if (row.get("difference") or 0) < 0 else 1
    ends = ("low", "high")[::sign]
    by = cells({name: sign * (row.get(key) or 0.0) for name, key in zip(SIZED, ("difference", *ends), strict=True)})
    if baseline is None or baseline <= 0 or any(end is None for end in ratio):
        return by["difference"]
    value, low, high = (sign * 100 * (end - 1) for end in ratio if end is not None)
    low, high = (low, high)[::sign]
    decimals = max(0, min(6, -math.floor(math.log10(max(high - low, 1e-9)))))
    return f"{by['difference']}, which is {value:.{decimals}f}% ({low:.{decimals}f}% … {high:.{decimals}f}%)"


def _is_clear(row: Mapping[str, Any]) -> bool:
    """Return True if the interval of the difference does not hold 0."""
    return cells(row)["reading"] in ("higher", "lower")
