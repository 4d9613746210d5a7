r"""How databases write what an expression is made of: numbers, texts, dates, names of columns.

In: a released or declared value. Out: SQL that stands for exactly that value. Holds: whatever a text holds, it stays a
value: quotes are doubled, and backslashes and everything that is not printed (line breaks, marks of direction) are written
as `chr(n)`, so that no setting of a database and no editor reads it otherwise; a double is read back bit for bit. Not
covered: whether a column exists.
"""

import dataclasses
import datetime
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.training.features.category_values import DATE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dialect:
    r"""The SQL of one database.

    Args:
        title: the database, as people write it.
        double: how a number is written so that it is a double, with the place of its digits; they have an exponent.
        holds_zero: whether a text may hold the sign of number 0.
        longest_name: bytes of the name of a column; more are cut off. None: no limit.
        date_or_text: how a column that may be of dates becomes text such as 2026-01-31, with the place of the column.
        folds_names: whether names that differ in upper and lower case alone are the same.

    >>> DUCKDB.number(-0.5), POSTGRESQL.number(-0.5), DUCKDB.number(1e-07)
    ('(-0.5e0)', "(float8 '-0.5e0')", '1e-07')
    >>> print(DUCKDB.text("O'Hara\n"), DUCKDB.column('a"b'))
    ('O''Hara' || chr(10)) "a""b"
    """

    title: str
    double: str
    holds_zero: bool
    longest_name: int | None = None
    folds_names: bool = False
    date_or_text: str = "CAST({} AS TEXT)"

    def number(self, value: float) -> str:
        """A double."""
        digits = repr(float(value) + 0.0)  # no minus before a zero
        shown = self.double.format(digits if "e" in digits else f"{digits}e0")
        return f"({shown})" if value < 0 else shown

    @property
    def not_a_number(self) -> str:
        """NaN, which these databases call equal to itself."""
        return "CAST('NaN' AS DOUBLE PRECISION)"

    def text(self, value: str) -> str:
        """A text that `can_hold` allows."""
        parts: list[str] = []
        for plain, signs in itertools.groupby(value, key=lambda sign: sign.isprintable() and sign != "\\"):
            run = "".join(signs)
            parts += ["'" + run.replace("'", "''") + "'"] if plain else [f"chr({ord(sign)})" for sign in run]
        joined = " || ".join(parts or ["''"])
        return f"({joined})" if len(parts) > 1 else joined

    def value(self, value: Any) -> str:
        """A category or a class that `can_hold` allows."""
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, int):
            return f"({value})" if value < 0 else str(value)
        if isinstance(value, datetime.date):
            return f"DATE '{value.isoformat()}'"
        return self.text(value) if isinstance(value, str) else self.number(value)

    def can_hold(self, value: Any) -> bool:
        r"""Whether a column of this database can hold such a value.

        >>> [POSTGRESQL.can_hold(value) for value in ("a", "a\0", 2**63, 2**70)]
        [True, False, True, False]
        """
        if isinstance(value, str):
            return not any("\ud800" <= sign <= "\udfff" for sign in value) and (self.holds_zero or "\0" not in value)
        return isinstance(value, bool) or not isinstance(value, int) or -(2**63) <= value < 2**64

    def as_text(self, column: str, listed: Iterable[str]) -> str:
        """A column, compared by code points with what is listed: days of a column of dates are listed as text too."""
        days = all(DATE.fitting(value) is not None for value in listed)
        shown = self.date_or_text.format(column) if days else f"CAST({column} AS TEXT)"
        return f'({shown}) COLLATE "C"'

    def column(self, name: str) -> str:
        """The name of a column."""
        return '"' + name.replace('"', '""') + '"'

    def refuse_columns(self, names: Iterable[str]) -> None:
        """Refuse columns that this database cannot tell apart.

        Raises:
            RequestError: which.
        """
        folded: dict[str, str] = {}
        for name in names:
            if self.longest_name is not None and len(name.encode()) > self.longest_name:
                message = f"is a name of more than {self.longest_name} bytes, which {self.title} cuts off"
                raise RequestError(field=f"column {name!r}", message=message, hint="rename it in the job's columns")
            other = folded.setdefault(name.casefold() if self.folds_names else name, name)
            if other != name:
                message = (
                    f"differs from {other!r} in upper and lower case alone, which {self.title} does not tell apart"
                )
                raise RequestError(field=f"column {name!r}", message=message, hint="rename it in the job's columns")


DUCKDB = Dialect(title="DuckDB", double="{}", holds_zero=True, folds_names=True)
POSTGRESQL = Dialect(
    title="PostgreSQL",
    double="float8 '{}'",
    holds_zero=False,
    longest_name=63,
    # Unlike a cast, JSON writes dates as ISO does, whatever the setting DateStyle.
    date_or_text="CASE WHEN pg_typeof({0}) = CAST('date' AS regtype) THEN to_json({0}) #>> '{{}}' ELSE CAST({0} AS TEXT) END",
)

DIALECTS: Mapping[str, Dialect] = {"duckdb": DUCKDB, "postgresql": POSTGRESQL}
