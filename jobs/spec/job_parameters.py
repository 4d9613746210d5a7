"""Parameters of a job: `--param week=2026-W01`, usable in `source` and in `where` and nowhere else.

In: the declared types and the texts of the command line. Out: typed values; the source's pattern with them; SQL in which each
is a prepared parameter. Holds: a value never becomes part of SQL text, of a glob's wildcards or of a path's folders, so no
value changes what is asked; `{name}` inside quotes in SQL is refused, since it would stay text. Not covered: what a value
means.
"""

import dataclasses
import datetime
import glob
import math
import re
from collections.abc import Callable, Iterable, Mapping

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.validation_errors import nearest, raise_all

Value = str | int | float | datetime.date

_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_INT = re.compile(r"[-+]?[0-9]{1,19}\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SQL_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", datetime.date: "DATE"}


def _string(text: str) -> str | None:
    return text if "\0" not in text and text.isprintable() else None


def _int(text: str) -> int | None:
    number = int(text) if _INT.match(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _float(text: str) -> float | None:
    return float(text) if _FLOAT.match(text) and math.isfinite(float(text)) else None


def _date(text: str) -> datetime.date | None:
    return datetime.date.fromisoformat(text) if _DATE.match(text) else None


@dataclasses.dataclass(frozen=True)
class _ParameterType:
    """A type that parameters may have.

    Args:
        read: the value of a text; None where it is no text of the type. A date that no calendar has is a ValueError.
        example: a text of the type.
        words: the type with its article.
    """

    read: Callable[[str], Value | None]
    example: str
    words: str


_TYPES = {
    "string": _ParameterType(_string, "2026-W01", "a string"),
    "int": _ParameterType(_int, "7", "an int"),
    "float": _ParameterType(_float, "0.5", "a float"),
    "date": _ParameterType(_date, "2026-01-05", "a date"),
}

SQL_PREFIX = "dp_param_"
"""A parameter `week` is the prepared parameter `$dp_param_week`."""


def take(declared: Mapping[str, str], given: Iterable[str]) -> dict[str, Value]:
    """The values of all declared parameters.

    Args:
        declared: type of each parameter: string, int, float or date.
        given: `NAME=VALUE`, as on the command line.

    Raises:
        RequestError: one is missing, unknown, given twice or of another type; all of that at once.

    >>> take({"week": "string", "top": "int"}, ["week=2026-W01", "top=3"])
    {'week': '2026-W01', 'top': 3}
    """
    texts: dict[str, str] = {}
    problems = []
    for item in given:
        name, equals, text = item.partition("=")
        field = f"--param {name}" if name else "--param"
        if not equals or not name:
            problems.append(
                RequestError(field=field, message="must be NAME=VALUE", hint="write e.g. --param week=2026-W01")
            )
        elif name not in declared:
            hint = nearest(name, declared, "declared") or "the job file declares no params"
            problems.append(RequestError(field=field, message="is not declared in the job file's params", hint=hint))
        elif name in texts:
            problems.append(RequestError(field=field, message="is given twice", hint="give it once"))
        else:
            texts[name] = text
    values: dict[str, Value] = {}
    for name, declared_type in declared.items():
        known = _TYPES[declared_type]
        field, example = f"--param {name}", f"--param {name}={known.example}"
        if name not in texts:
            problems.append(RequestError(field=field, message="is missing", hint=f"add {example}"))
        elif (value := _read(texts[name], known)) is None:
            problems.append(RequestError(field=field, message=f"must be {known.words}", hint=f"write e.g. {example}"))
        else:
            values[name] = value
    raise_all(problems)
    return values


def examples(declared: Mapping[str, str]) -> dict[str, Value]:
    """Return a value of the declared type for each parameter, for checks that no value decides.

    Args:
        declared: type of each parameter.

    >>> examples({"week": "string", "top": "int"})
    {'week': '2026-W01', 'top': 7}
    """
    return take(declared, [f"{name}={_TYPES[kind].example}" for name, kind in declared.items()])


def _read(text: str, known: _ParameterType) -> Value | None:
    try:
        return known.read(text)
    except ValueError:
        return None


def into_source(pattern: str, values: Mapping[str, Value]) -> str:
    """The source's glob with the parameters in it, each a piece of one name without wildcards.

    Raises:
        RequestError: a placeholder is not declared, or a value would leave its folder.

    >>> into_source("data/{week}/*.parquet", {"week": "2026-W*"})
    'data/2026-W[*]/*.parquet'
    """
    return _filled(pattern, values, glob.escape, "source")


def into_path(path: str, values: Mapping[str, Value], field: str = "source") -> str:
    """The path of a table with the parameters in it, as `into_source`; `field` is what messages call it.

    >>> into_path("tables/{shop}/orders[1]", {"shop": "a*"})
    'tables/a*/orders[1]'
    """
    return _filled(path, values, str, field)


def refuse_variables(pattern: str, field: str = "source") -> None:
    """Refuse a variable of a shell, which a path here would take for a parameter.

    Args:
        pattern: what a job names.
        field: what messages call it.

    Raises:
        RequestError: as said.
    """
    if variable := re.search(r"\$\{(\w+)\}", pattern):
        message = f"uses {variable[0]}: variables of a shell are none here"
        hint = f"write the path, or {{{variable[1]}}} with params: {{{variable[1]}: {{type: string}}}}"
        raise RequestError(field=field, message=message, hint=hint)


def _filled(pattern: str, values: Mapping[str, Value], written: Callable[[str], str], field: str) -> str:
    refuse_variables(pattern, field)

    def piece(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            raise RequestError(
                field=field,
                message=f"uses {{{name}}}, which params does not declare",
                hint=nearest(name, values, "declared") or f"add params: {{{name}: {{type: string}}}}",
            )
        text = str(values[name])
        if text in ("", ".", "..") or text.startswith("~") or any(sign in text for sign in "/\\\0"):
            raise RequestError(
                field=f"--param {name}",
                message=f"is part of a name in {field} and must not be empty, '.', '..', begin with ~ or hold a slash",
                hint="use one parameter for each folder",
            )
        return written(text)

    return _PLACEHOLDER.sub(piece, pattern)


def into_sql(text: str, values: Mapping[str, Value]) -> tuple[str, dict[str, int]]:
    """SQL with prepared parameters of fixed types instead of placeholders, and how often each stands there.

    The caller compares the numbers with the parameters that the parser sees: a placeholder inside quotes is none.

    >>> into_sql("week = {week}", {"week": "2026-W01"})
    ('week = CAST($dp_param_week AS VARCHAR)', {'week': 1})
    """
    found: dict[str, int] = {}

    def parameter(match: re.Match[str]) -> str:
        if match[1] not in values:
            return match[0]
        found[match[1]] = found.get(match[1], 0) + 1
        return f"CAST(${SQL_PREFIX}{match[1]} AS {_SQL_TYPES[type(values[match[1]])]})"

    return _PLACEHOLDER.sub(parameter, text), found


def sql_text(text: str) -> str:
    """Return a text as SQL writes it.

    >>> sql_text("Joe's")
    "'Joe''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def into_words(text: str, values: Mapping[str, Value]) -> str:
    """SQL with the values of its parameters, for readers: what was asked, and not what is carried out.

    >>> into_words("views >= {least} AND week = {week}", {"least": 90, "week": "2026-W01"})
    "views >= 90 AND week = '2026-W01'"
    """

    def value(match: re.Match[str]) -> str:
        given = values.get(match[1], match[0])
        quoted = match[1] in values and not isinstance(given, int | float)
        return sql_text(str(given)) if quoted else str(given)

    return _PLACEHOLDER.sub(value, text)


def undeclared(text: str, declared: Iterable[str]) -> list[str]:
    """The placeholders in a text that no parameter is declared for."""
    known = set(declared)
    return [name for name in dict.fromkeys(_PLACEHOLDER.findall(text)) if name not in known]
