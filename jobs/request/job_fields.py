"""The keys of a job file with what they say, as short texts that a ledger can note and two of which can be compared.

In: a job, or the fields of two jobs. Out: text by key, differences. Holds: they are made of the job file alone; what only readers
see, guesses about the rows and the order of lists that mean no order are left out; no text is long, and different ones stay
different; names with dots stay apart. Not covered: what a difference costs.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.jobs.request.list_order import without_order
from dp_pipelines.jobs.spec import presentation
from dp_pipelines.report.key_text import visible

if TYPE_CHECKING:
    from dp_pipelines.jobs.spec.job_file import Job

ABSENT = "(not there)"

LONGEST = 80
"""Characters of a text that is noted as it is; of a longer one, its beginning and its digest."""

LONGEST_KEY = 120
"""Characters of a key that people see; of a longer one, its beginning and its end."""

Path = tuple[str, ...]
"""The parts of a key from the outside in."""

_PART = re.compile(r'(?:^|\.)("(?:[^"\\]|\\.)*"(?=\.|\Z)|[^.]*)', re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldChange:
    """A key that two jobs do not share, or that says something else.

    Args:
        key: its path, such as `stages.weekly.metrics.revenue.max_value`. A part that one job lacks as a whole, such as a stage or
            a metric, is one key. So is a part that is a mapping in one job and a single value in the other.
        before, after: what it says; empty for a part that one job lacks.
    """

    key: str
    before: str = ""
    after: str = ""
    is_new: bool = False

    @property
    def words(self) -> str:
        r"""The change for people, on one line.

        >>> FieldChange(key="where", before="a > 0", after="a > 0\nAND b").words
        'where: a > 0 -> a > 0\\u000aAND b'
        """
        key = visible(self.key, most=len(self.key))
        if len(key) > LONGEST_KEY:
            key = f"{key[: LONGEST_KEY // 2]}…{key[-LONGEST_KEY // 2 :]}"
        if self.before or self.after:
            return f"{key}: {_shown(self.before)} -> {_shown(self.after)}"
        return f"{key} is {'new' if self.is_new else 'gone'}"


def fields_of(job: "Job") -> dict[str, str]:
    """Return the keys of a job, with what they say.

    Args:
        job: the job.
    """
    dump = presentation.without(job.model_dump(mode="json", exclude={"expect"}, exclude_defaults=True))
    return {key: _short(text) for key, text in flat_fields(without_order(dump))}


def flat_fields(value: Any, path: Path = ()) -> Iterator[tuple[str, str]]:
    """Yield the keys of the dump of a job with what they say, as text. A part with a dot or a quote is quoted, as JSON.

    >>> dict(flat_fields({"budget": {"epsilon": 1.0}, "stages": {"a": {"partition_by": ["x", "y"]}}}))
    {'budget.epsilon': '1.0', 'stages.a.partition_by': '[x, y]'}
    >>> dict(flat_fields({"columns": {"price.net": "price / 1.2"}}))
    {'columns."price.net"': 'price / 1.2'}
    """
    if isinstance(value, Mapping) and value:
        for key, entry in value.items():
            yield from flat_fields(entry, (*path, str(key)))
    else:
        yield to_key(path), f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def to_key(path: Path) -> str:
    """Return the parts of a key as one text. Different paths give different texts.

    >>> to_key(("columns", "price.net"))
    'columns."price.net"'
    """
    return ".".join(
        json.dumps(part, ensure_ascii=False) if not part or set(part) & {".", '"'} else part for part in path
    )


def to_path(key: str) -> Path:
    """Return the parts of a key: the inverse of `to_key`. Any other text gives parts too.

    >>> to_path('columns."price.net"')
    ('columns', 'price.net')
    """
    return tuple(_unquoted(part) for part in _PART.findall(key)) if key else ()


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[FieldChange]:
    """Return how the fields of a job differ from those of an earlier one; nothing if they are equal.

    >>> old = {"stages.a.metrics.n.kind": "sum", "stages.a.metrics.n.max_value": "20"}
    >>> new = {"stages.a.metrics.m.kind": "sum", "stages.a.metrics.m.max_value": "20"}
    >>> [change.words for change in changes(old, new)]
    ['stages.a.metrics.m is new', 'stages.a.metrics.n is gone']
    >>> [change.words for change in changes(old, {**old, "stages.a.metrics.n.max_value": "40"})]
    ['stages.a.metrics.n.max_value: 20 -> 40']
    >>> [change.words for change in changes({"max_value": "20"}, {"max_value.lookup": "cap", "max_value.default": "20"})]
    ['max_value: 20 -> {lookup: cap, default: 20}']
    """
    old, new = ({to_path(key): text for key, text in fields.items()} for fields in (before, after))
    old_parts, new_parts = _parts(old), _parts(new)
    listed: dict[Path, FieldChange] = {}
    for path in (*new, *(path for path in old if path not in new)):
        if path in old and path in new:
            part = path
            if old[path] == new[path]:
                continue
        else:
            part = _changed_part(path, *((new, new_parts) if path in old else (old, old_parts)))
        if part in listed:
            continue
        key = to_key(part)
        if part != path and (part not in old_parts or part not in new_parts):
            listed[part] = FieldChange(key=key, is_new=part in new_parts)
        else:
            listed[part] = FieldChange(key=key, before=_text_of(old, part), after=_text_of(new, part))
    return list(listed.values())


def shares_a_stage(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Return True if a stage of a job has the name of one of an earlier job."""
    names = [
        {path[1] for path in map(to_path, fields) if path[0:1] == ("stages",) and path[1:]}
        for fields in (before, after)
    ]
    return not names[0].isdisjoint(names[1])


def _unquoted(part: str) -> str:
    """Return the name that a part of a key stands for. Text that `to_key` has not quoted stays unchanged."""
    if len(part) > 1 and part.startswith('"') and part.endswith('"'):
        with contextlib.suppress(ValueError):
            return str(json.loads(part))
    return part


def _parts(fields: Iterable[Path]) -> set[Path]:
    """Return all paths, and all mappings that hold one."""
    return {()} | {part for path in fields for part in _prefixes(path)}


def _prefixes(path: Path) -> list[Path]:
    """Return the mappings that hold a path, the largest first, and the path itself last."""
    return [path[:length] for length in range(len(path) + 1)]


def _changed_part(path: Path, other: Mapping[Path, str], other_parts: set[Path]) -> Path:
    """Return the largest part around a path that another job lacks, or where it has a single value instead of a mapping.

    Args:
        path: of a field that the other job lacks.
        other, other_parts: the fields of the other job, and their `_parts`.
    """
    return next(part for part in _prefixes(path) if part not in other_parts or part in other or part == path)


def _text_of(fields: Mapping[Path, str], part: Path) -> str:
    """Return what a part says: the text of a field, or the fields of a mapping in braces."""
    if part in fields:
        return fields[part]
    inner = [f"{to_key(path[len(part) :])}: {text}" for path, text in fields.items() if path[: len(part)] == part]
    return f"{{{', '.join(inner)}}}" if inner else ABSENT


def _shown(text: str) -> str:
    """Return a value on one line, with its line breaks as escapes; of a long one, with these, its beginning."""
    return visible(visible(text, most=LONGEST), most=LONGEST)


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]})"
