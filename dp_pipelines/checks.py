"""Checks of public arguments: positive logic, so that NaN, bool and text never pass.

In: one argument and its name. Out: the argument as a plain Python number or text. Holds: what is not plainly allowed is
refused with a `RequestError` that names the field, what is wrong with it and a hint. May be imported by every room above errors.
"""

import math
import numbers
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from dp_pipelines.errors import RequestError


def number(value: Any, field: str, *, above: float = -math.inf, below: float = math.inf, hint: str = "") -> float:
    """A finite real number strictly between `above` and `below`.

    >>> number(0.5, "share", above=0)
    0.5
    >>> number(True, "share")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: share: must be a number, not bool
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise RequestError(field=field, message=f"must be a number, not {type(value).__name__}", hint=hint)
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not (math.isfinite(result) and above < result < below):
        message = "must be a finite number"
        if above > -math.inf:
            message += f" above {above:g}"
        if below < math.inf:
            message += (" and" if above > -math.inf else "") + f" below {below:g}"
        raise RequestError(field=field, message=message, hint=hint)
    return result


LONGEST_STAGE = 100
"""Characters of a stage's name: files are named after stages."""


def whole(value: Any, field: str, *, low: int, high: int, hint: str = "") -> int:
    """A whole number from `low` to `high`, both included.

    >>> whole(3, "runs", low=1, high=10)
    3
    >>> whole(2.5, "runs", low=1, high=10)
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: runs: must be a whole number from 1 to 10
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not low <= int(value) <= high:
        raise RequestError(field=field, message=f"must be a whole number from {low} to {high}", hint=hint)
    return int(value)


MOST_DEFINED = 500
"""Columns that a job or a model defines of each kind at most: each is parsed and typed before a row is read, in some 20 ms."""

JOINERS = "\u200c\u200d"
"""Parts of words and of emoji, which do no more than join."""

PUBLISHED = ("manifest", "manifest.json", "report", "report.html")
"""Names that the files of a release have, or that a reader takes for them."""

_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE | re.DOTALL)


def name(value: Any, field: str) -> str:
    """The name of a column: text of one line, not empty, not one of ours (two leading underscores).

    >>> name("amount", "column")
    'amount'
    """
    if not isinstance(value, str) or not value:
        raise RequestError(field=field, message="must be a name: text that is not empty")
    if value.startswith("__"):
        raise RequestError(field=field, message="must not start with two underscores", hint="rename it")
    if any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in value):
        raise RequestError(field=field, message="must not hold line breaks or control characters", hint="rename it")
    return value


def plain(value: str, field: str) -> str:
    r"""A text that people choose and terminals show: nothing in it is a command, a line break or another direction of writing.

    >>> plain("grocery", "dataset")
    'grocery'
    >>> plain("a\x1b[2J", "dataset")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: dataset: must not hold line breaks, control characters or signs of direction; rename it
    """
    if any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") and sign not in JOINERS for sign in value):
        message = "must not hold line breaks, control characters or signs of direction"
        raise RequestError(field=field, message=message, hint="rename it")
    return value


def metric_name(value: Any, field: str) -> str:
    """The name of a metric: as that of a column, and nothing in it moves other signs."""
    return plain(name(value, field), field)


def stage_name(value: Any, field: str) -> str:
    """The name of a stage: as other names, and one that can name files beside those of every release.

    >>> stage_name("weekly", "stages")
    'weekly'
    >>> stage_name("w" * 101, "stages")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: stages: must be a name of at most 100 characters; shorten it
    >>> stage_name("Report", "stages")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: stages: must not be 'Report': so a release calls a file of its own; rename it
    """
    if isinstance(value, str) and len(value) > LONGEST_STAGE:
        message = f"must be a name of at most {LONGEST_STAGE} characters"
        raise RequestError(field=field, message=message, hint="shorten it")
    plain(name(value, field), field)
    message = ""
    if value.casefold() in PUBLISHED:
        message = f"must not be {value!r}: so a release calls a file of its own"
    elif "/" in value or "\\" in value or value.startswith("."):
        message = "must not start with a dot or hold a slash: files are named after stages"
    elif _DEVICES.fullmatch(value):
        message = f"must not be {value!r}: so some systems call a device, and files are named after stages"
    if message:
        raise RequestError(field=field, message=message, hint="rename it")
    return str(value)


def stage_names(values: Iterable[Any], field: str) -> None:
    """The names of all stages of a plan, whose files lie in one folder: on every system they are different files.

    >>> stage_names(["weekly", "Weekly"], "stages")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: stages: hold 'weekly' and 'Weekly', whose files some systems take for the same; rename one
    """
    taken: dict[str, str] = {}
    for value in values:
        for file in (stage_name(value, field), f"{value}.parquet"):  # a model's folder, a table's file
            other = taken.setdefault(file.casefold(), value)
            if other != value:
                message = f"hold {other!r} and {value!r}, whose files some systems take for the same"
                raise RequestError(field=field, message=message, hint="rename one")


def names(value: Any, field: str) -> tuple[str, ...]:
    """One name or a list of different names, as a tuple.

    >>> names("customer", "privacy_unit")
    ('customer',)
    """
    listed = (value,) if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not listed:
        raise RequestError(field=field, message="must be a column name or a list of column names, at least one")
    result = tuple(name(item, field) for item in listed)
    if len(set(result)) != len(result):
        raise RequestError(field=field, message="names a column twice", hint="name each column once")
    return result
