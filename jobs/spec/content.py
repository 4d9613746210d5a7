"""What a job says, as plain data, wherever it was said: in a file, or in the arguments of a program.

In: the data of a file, or the values that a program gives. Out: mappings, lists, texts, numbers, booleans and None, and how
messages name a place in them. Holds: what no file could say is refused. Not covered: what the keys mean (`job_file`).
"""

import dataclasses
import datetime
import decimal
import json
from collections.abc import Mapping
from typing import Any

from dp_pipelines.errors import RequestError

Path = tuple[str | int, ...]
"""Keys and indices, from the outside in."""

JOB_RUN = "job_run"
"""The kind of feature that runs jobs with a key of its name, in the table of extensions (`jobs.cli.job_runs`)."""

MOST_DEPTH = 50

MOST_BITS = 10_000
"""Of a whole number: about three thousand digits, as many as a file can say."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Content:
    """What a job says.

    Args:
        data: plain Python data.
    """

    data: Any

    @property
    def in_file(self) -> bool:
        """Whether a job file says it, which a command can be given."""
        return False

    def holds(self, path: Path) -> bool:
        """Whether something stands at a path.

        >>> Content(data={"stages": [1, 2]}).holds(("stages", 1)), Content(data={}).holds(("stages",))
        (True, False)
        """
        held = self.data
        for step in path:
            known = held if isinstance(held, Mapping) else dict(enumerate(held)) if isinstance(held, list) else {}
            if step not in known:
                return False
            held = known[step]
        return True

    def named(self, path: Path, field: str) -> str:
        """How a message names a field at a path.

        Args:
            path: where it stands, or should.
            field: the path in words.
        """
        return field

    def inside(self, path: Path, field: str, offset: int | None, words: str) -> str:
        """How a message names a place inside of a text.

        Args:
            path: where the text stands.
            field: the path in words.
            offset: of a character of the text, counted from 0; None is the whole text.
            words: the same as line and column of the text, with a space before; empty for the whole text.
        """
        return self.named(path, field) + words

    def delimiter(self, mark: str) -> str:
        """How somebody declares what separates the cells of the source.

        >>> Content(data={}).delimiter(";")
        'delimiter: ";"'
        """
        return f"delimiter: {json.dumps(mark)}"

    def takes_table(self, name: str) -> str:
        """What is wrong with a name behind FROM; empty where it means the rows of the job."""
        return "" if name.lower() == "source" else "write FROM source: the files stand under source: of the job"


def plain(value: Any, path: Path = ()) -> Any:
    """A value of a program as a file would say it: days and times as text, numbers of NumPy as Python's, tuples as lists.

    Args:
        value: what is said.
        path: where it stands.

    Raises:
        RequestError: no file can say it.

    >>> plain({"day": datetime.date(2026, 1, 5), "range": (0, decimal.Decimal("1.50"))})
    {'day': '2026-01-05', 'range': [0, '1.50']}
    """
    if len(path) > MOST_DEPTH:  # a list may hold itself
        raise RequestError(field=str(path[0]), message=f"is nested more than {MOST_DEPTH} levels deep")
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, held in value.items():
            name = _key(key, path)
            if name in found:  # 1 and "1" are one key of a file
                hint = "write it once"
                raise RequestError(field=".".join(map(str, (*path, name))), message="is given twice", hint=hint)
            found[name] = plain(held, (*path, name))
        return found
    if isinstance(value, list | tuple):
        return [plain(held, (*path, index)) for index, held in enumerate(value)]
    if isinstance(value, datetime.date):  # times are days too
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if value is None or isinstance(value, bool):
        return value
    return _scalar(value, path)


def _key(key: Any, path: Path) -> str:
    if isinstance(key, int) and not isinstance(key, bool):  # of YAML that was read by somebody else
        return str(key)
    if not isinstance(key, str):
        raise _unspeakable(path)
    return str.__str__(key)


def _scalar(value: Any, path: Path) -> Any:
    """A text or a number, of Python's own types and not of one that inherits from them."""
    if isinstance(value, str) and not any("\ud800" <= sign <= "\udfff" for sign in value):
        return str.__str__(value)
    if isinstance(value, int) and value.bit_length() <= MOST_BITS:
        return int(value)
    if isinstance(value, float):
        return float(value)
    if not isinstance(value, str | int) and hasattr(value, "item"):  # of NumPy
        try:
            return plain(value.item(), path)
        except (TypeError, ValueError):
            raise _unspeakable(path) from None
    raise _unspeakable(path)


def _unspeakable(path: Path) -> RequestError:
    message, hint = "holds a value that no job file can hold", "use numbers, texts and dates of Python"
    return RequestError(field=".".join(map(str, path)) or "query", message=message, hint=hint)


def stage_kinds(document: Content) -> dict[str, Any]:
    """The kind of each stage that is a mapping."""
    stages = document.data.get("stages") if isinstance(document.data, Mapping) else None
    listed = stages if isinstance(stages, Mapping) else {}
    return {str(name): stage.get("kind") for name, stage in listed.items() if isinstance(stage, Mapping)}
