"""The keys of a job file with what they say, as short texts that a ledger can note and two of which can be compared.

In: a job, or the fields of two jobs. Out: text by key, differences. Holds: they are made of the job file alone; what only readers
see, guesses about the rows and the order of lists that mean no order are left out; no text is long, and different ones stay
different. Not covered: what a difference costs.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.jobs.request.list_order import without_order
from dp_pipelines.jobs.spec import presentation

if TYPE_CHECKING:
    from dp_pipelines.jobs.spec.job_file import Job

ABSENT = "(not there)"

LONGEST = 80
"""Characters of a text that is noted as it is; of a longer one, its beginning and its digest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldChange:
    """A key that two jobs do not share, or that says something else.

    Args:
        key: its path, such as `stages.weekly.metrics.revenue.max_value`. A part that one job lacks as a whole, such as a stage or
            a metric, is one key.
        before, after: what it says; empty for a part.
    """

    key: str
    before: str = ""
    after: str = ""
    is_new: bool = False

    @property
    def words(self) -> str:
        """The change for people."""
        if self.before or self.after:
            return f"{self.key}: {self.before} -> {self.after}"
        return f"{self.key} is {'new' if self.is_new else 'gone'}"


def fields_of(job: "Job") -> dict[str, str]:
    """Return the keys of a job, with what they say.

    Args:
        job: the job.
    """
    dump = presentation.without(job.model_dump(mode="json", exclude={"expect"}, exclude_defaults=True))
    return {key: _short(text) for key, text in flat_fields(without_order(dump))}


def flat_fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of the dump of a job with what they say, as text.

    >>> dict(flat_fields({"budget": {"epsilon": 1.0}, "stages": {"a": {"partition_by": ["x", "y"]}}}))
    {'budget.epsilon': '1.0', 'stages.a.partition_by': '[x, y]'}
    """
    if isinstance(value, Mapping) and value:
        for key, entry in value.items():
            yield from flat_fields(entry, f"{path}.{key}" if path else str(key))
    else:
        yield path, f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[FieldChange]:
    """Return how the fields of a job differ from those of an earlier one.

    >>> old = {"stages.a.metrics.n.kind": "sum", "stages.a.metrics.n.max_value": "20"}
    >>> new = {"stages.a.metrics.m.kind": "sum", "stages.a.metrics.m.max_value": "20"}
    >>> [change.words for change in changes(old, new)]
    ['stages.a.metrics.m is new', 'stages.a.metrics.n is gone']
    >>> [change.words for change in changes(old, {**old, "stages.a.metrics.n.max_value": "40"})]
    ['stages.a.metrics.n.max_value: 20 -> 40']
    """
    listed: dict[str, FieldChange] = {}
    parts_before, parts_after = _parts(before), _parts(after)
    for key in (*after, *(key for key in before if key not in after)):
        old, new = before.get(key, ABSENT), after.get(key, ABSENT)
        if old == new:
            continue
        missing = parts_before if key not in before else parts_after if key not in after else None
        part = key if missing is None else next(one for one in _prefixes(key) if one not in missing)
        if part == key:
            listed[key] = FieldChange(key=key, before=old, after=new)
        else:
            listed.setdefault(part, FieldChange(key=part, is_new=key in after))
    return list(listed.values())


def shares_a_stage(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Return True if a stage of a job has the name of one of an earlier job."""
    names = [{key.split(".")[1] for key in fields if key.startswith("stages.")} for fields in (before, after)]
    return not names[0].isdisjoint(names[1])


def _parts(fields: Mapping[str, str]) -> set[str]:
    """Return all keys, and all parts that hold one."""
    return {part for key in fields for part in _prefixes(key)}


def _prefixes(key: str) -> list[str]:
    """Return the parts that hold a key, the largest first, and the key itself last."""
    names = key.split(".")
    return [".".join(names[:length]) for length in range(1, len(names) + 1)]


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]})"
