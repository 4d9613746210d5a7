"""The exception tree: every error that this project raises on purpose.

In: public facts. Out: an error that names the field (a column, a file, a line of the job file, an argument), what is wrong
with it and a hint. Holds: it never has a value from the rows: what stands in an error is public.
"""

# DpError
#   RequestError       the request is wrong by public facts (exit code 2; nothing was read, nothing is spent)
#     BudgetError      the budget refuses (exit code 3)
#   DamagedInputError  a file turned out to be damaged while it was read (exit code 1)
#   PublishError       a release could not be made visible (exit code 1)
#   DiskError          a disk is full, read-only or failing (exit code 1; in `disk_errors`)
#   GateError          a draw is not what the plan pays for: a fault of ours (exit code 1; nothing is staged)
#   LedgerError        the ledger cannot be used or trusted (exit code 1; nothing was charged by this step)

import difflib
from collections.abc import Iterable
from typing import Any


class DpError(Exception):
    """Base of all errors that this project raises on purpose."""


class RequestError(DpError, ValueError):
    """The request is wrong by public facts alone.

    Args:
        field: what is wrong: an argument, a column, a file or `file:line`.
        message: the rule that it breaks, as a clause that follows the field.
        hint: what to write instead, as an imperative; may be empty.

    >>> str(RequestError(field="epsilon", message="must be a finite number above 0", hint="write e.g. epsilon: 1.0"))
    'epsilon: must be a finite number above 0; write e.g. epsilon: 1.0'
    """

    def __init__(self, *, field: str, message: str, hint: str = "") -> None:
        self.field = field
        self.message = message
        self.hint = hint
        super().__init__(f"{field}: {message}" + (f"; {hint}" if hint else ""))

    def __reduce__(self) -> tuple[object, tuple[object, ...], dict[str, str]]:
        # Errors cross process borders on portable runners; keyword-only arguments need telling how.
        return (_rebuild, (type(self),), {"field": self.field, "message": self.message, "hint": self.hint})

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        RequestError.__init__(self, **(state or {}))


class BudgetError(RequestError):
    """The budget does not allow what is asked."""


class DamagedInputError(DpError):
    """A file turned out to be damaged while it was read. The message names file and rule, never a value."""


class PublishError(DpError):
    """A release could not be made visible; nothing half-written is left."""


class GateError(DpError):
    """The gate refuses a draw that a frozen record does not pay for: a fault of the library, not of the request.

    Args:
        rule: what is wrong, in public words.
        stage, record: names; `record` is empty if the rule is about all records of the stage.

    >>> str(GateError("a draw without a record", "weekly", "rows")).partition(";")[0]
    "a draw without a record: record 'rows' of stage 'weekly'"
    """

    def __init__(self, rule: str, stage: str, record: str) -> None:
        self.rule, self.stage, self.record = rule, stage, record
        what = f"record {record!r} of stage {stage!r}" if record else f"stage {stage!r}"
        super().__init__(f"{rule}: {what}; this is a fault of dp_pipelines, please report it; nothing was published")

    def __reduce__(self) -> tuple[object, tuple[str, str, str]]:
        return type(self), (self.rule, self.stage, self.record)


class LedgerError(DpError):
    """The ledger cannot be reached, written or trusted. What failed was not charged; what was charged before stays."""


def _rebuild(cls: type[RequestError]) -> RequestError:
    return cls.__new__(cls)


LONGEST_NAME = 60
"""Characters of a name in a list; of a longer one, its beginning."""


def _on_one_line(name: str) -> str:
    """Return a name for a list: control and direction characters as escapes, cut to a length."""
    text = name if name.isprintable() else repr(name)[1:-1]
    return text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + "…"


def nearest(name: str, known: Iterable[str], what: str = "") -> str:
    r"""A hint that names the nearest known name, or the first of them where none is near, on one line.

    >>> nearest("colum", ["column", "kind"])
    "did you mean 'column'?"
    >>> nearest("x", ["column", "kind"], "known keys")
    'known keys: column, kind'
    >>> print(nearest("x", ["a\nb", "long" * 50], "columns"))
    columns: a\nb, longlonglonglonglonglonglonglonglonglonglonglonglonglonglong…
    """
    listed = [str(item) for item in known]
    folded = {item.casefold(): item for item in listed}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    shown = ", ".join(map(_on_one_line, listed[:12])) + (", ..." if len(listed) > 12 else "")
    return f"{what or 'known'}: {shown}" if listed else ""
