"""Checks of public arguments: positive logic, so that NaN, bool and text never pass.

In: one argument and its name, or a dataclass whose fields declare their ranges. Out: the argument as a plain Python number or
text. Holds: what is not plainly allowed is refused with a `RequestError` that names the field, what is wrong with it and a hint.
May be imported by every room above errors.
"""

import dataclasses
import functools
import inspect
import math
import numbers
import re
import typing
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType, UnionType
from typing import Any

from dp_pipelines.errors import RequestError


def number(
    value: Any,
    field: str,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    also: tuple[float, ...] = (),
    hint: str = "",
) -> float:
    """A finite real number strictly between `above` and `below`, or one of these ends, where `also` names it.

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
    if not (math.isfinite(result) and (above < result < below or result in also)):
        ends = []
        if above > -math.inf:
            ends.append(f"{'no less than' if above in also else 'above'} {above:g}")
        if below < math.inf:
            ends.append(f"{'at most' if below in also else 'below'} {below:g}")
        raise RequestError(
            field=field, message=" ".join(["must be a finite number", " and ".join(ends)]).strip(), hint=hint
        )
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
    if type(value) is int and low <= value <= high:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not low <= int(value) <= high:
        raise RequestError(field=field, message=f"must be a whole number from {low} to {high}", hint=hint)
    return int(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whole:
    """The range of a whole number, both ends included, as a part of a field's type: `Annotated[int, Whole(low=1, high=9)]`."""

    low: int
    high: int
    hint: str = ""

    def check(self, value: Any, field: str) -> int:
        """The number. Errors as for `whole`."""
        return whole(value, field, low=self.low, high=self.high, hint=self.hint)

    def to_json(self) -> dict[str, int]:
        """As a JSON schema says it."""
        return {"minimum": self.low, "maximum": self.high}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Real:
    """The range of a number between two ends, as a part of a field's type; `also` names the ends that belong to it.

    >>> Real(above=0, below=1, also=(1,)).check(1, "average")
    1.0
    >>> Real(above=0, below=1, also=(1,)).to_json()
    {'exclusiveMinimum': 0, 'maximum': 1}
    """

    above: float
    below: float
    also: tuple[float, ...] = ()
    hint: str = ""

    def check(self, value: Any, field: str) -> float:
        """The number. Errors as for `number`."""
        return number(value, field, above=self.above, below=self.below, also=self.also, hint=self.hint)

    def to_json(self) -> dict[str, float]:
        """As a JSON schema says it."""
        low = "minimum" if self.above in self.also else "exclusiveMinimum"
        high = "maximum" if self.below in self.also else "exclusiveMaximum"
        return {low: self.above, high: self.below}


@dataclasses.dataclass(frozen=True)
class NotEmpty:
    """What a mapping or a list must not be, as a part of a field's type: schemas say it; the dataclass checks it itself."""


def declared(instance: Any, prefix: str = "") -> None:
    """Check the fields of a frozen dataclass whose types declare a range, and make plain numbers of them.

    What a field may be besides, as None or `auto`, is left alone.

    Args:
        instance: of the dataclass.
        prefix: stands before the names of fields in messages.

    Raises:
        RequestError: a number is none, or outside of its range.
    """
    for field, (range_, others) in _ranges(instance.__class__).items():
        value = getattr(instance, field)
        if not ((value is None or isinstance(value, str)) and value in others):
            object.__setattr__(instance, field, range_.check(value, f"{prefix}{field}"))


@functools.cache
def _ranges(kind: type) -> Mapping[str, tuple[Whole | Real, tuple[Any, ...]]]:
    """Of each field that declares a range the range, and the texts and None that it may be besides."""
    found: dict[str, tuple[Whole | Real, tuple[Any, ...]]] = {}
    # Not `typing.get_type_hints`: a metric of somebody's own may have annotations that are text and cannot be read here.
    hints = [item for above in reversed(kind.__mro__) for item in inspect.get_annotations(above).items()]
    for field, hint in hints:
        parts = list(_parts(hint))
        ranges = [part for part in parts if isinstance(part, Whole | Real)]
        if ranges:
            found[field] = (ranges[0], tuple(part for part in parts if part is None or isinstance(part, str)))
    return MappingProxyType(found)


def _parts(hint: Any) -> Iterator[Any]:
    """The ranges, texts and None of a type or of the members of a union; not those of what it holds, as items of a list."""
    if typing.get_origin(hint) is typing.Annotated:
        yield from hint.__metadata__
    elif typing.get_origin(hint) is typing.Literal:
        yield from typing.get_args(hint)
    elif typing.get_origin(hint) in (UnionType, typing.Union):
        for member in typing.get_args(hint):
            yield from _parts(member)
    elif hint is type(None):
        yield None


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
        raise RequestError(field=field, message="must be a name: non-empty text")
    if value.startswith("__"):
        raise RequestError(field=field, message="must not start with two underscores", hint="rename it")
    if any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in value):
        raise RequestError(field=field, message="must not contain line breaks or control characters", hint="rename it")
    return value


def plain(value: str, field: str) -> str:
    r"""A text that people choose and terminals show: nothing in it is a command, a line break or another direction of writing.

    >>> plain("grocery", "dataset")
    'grocery'
    >>> plain("a\x1b[2J", "dataset")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: dataset: must not contain line breaks, control characters or direction marks; rename it
    """
    if any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") and sign not in JOINERS for sign in value):
        message = "must not contain line breaks, control characters or direction marks"
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
    dp_pipelines.errors.RequestError: stages: must not be 'Report': a release has a file of that name; rename it
    """
    if isinstance(value, str) and len(value) > LONGEST_STAGE:
        message = f"must be a name of at most {LONGEST_STAGE} characters"
        raise RequestError(field=field, message=message, hint="shorten it")
    plain(name(value, field), field)
    message = ""
    if value.casefold() in PUBLISHED:
        message = f"must not be {value!r}: a release has a file of that name"
    elif "/" in value or "\\" in value or value.startswith("."):
        message = "must not start with a dot or contain a slash: files are named after stages"
    elif _DEVICES.fullmatch(value):
        message = f"must not be {value!r}: some systems use this name for a device, and files are named after stages"
    if message:
        raise RequestError(field=field, message=message, hint="rename it")
    return str(value)


def stage_names(values: Iterable[Any], field: str) -> None:
    """The names of all stages of a plan, whose files lie in one folder: on every system they are different files.

    >>> stage_names(["weekly", "Weekly"], "stages")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: stages: contain 'weekly' and 'Weekly', whose files some systems treat as one; rename one
    """
    taken: dict[str, str] = {}
    for value in values:
        for file in (stage_name(value, field), f"{value}.parquet"):  # a model's folder, a table's file
            other = taken.setdefault(file.casefold(), value)
            if other != value:
                message = f"contain {other!r} and {value!r}, whose files some systems treat as one"
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
