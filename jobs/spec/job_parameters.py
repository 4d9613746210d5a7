"""Parameters of a job: `--param week=2026-W01`, usable in `source` and in `where` and nowhere else.

In: the declared types and the texts of the command line. Out: typed values; the source's pattern with them; SQL in which each
is a prepared parameter. Holds: a value never becomes part of SQL text, of a glob's wildcards or of a path's folders, so no
value changes what is asked; `{name}` inside quotes in SQL is refused, since it would stay text. Not covered: what a value
means.
"""

import datetime
import glob
import math
import re
from collections.abc import Iterable, Mapping

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.validation_errors import nearest, raise_all

Value = str | int | float | datetime.date

_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_INT = re.compile(r"[-+]?[0-9]{1,19}\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_EXAMPLES = {"string": "2026-W01", "int": "7", "float": "0.5", "date": "2026-01-05"}

_SQL_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", datetime.date: "DATE"}

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
    for name, kind in declared.items():
        if name not in texts:
            hint = f"add --param {name}={_EXAMPLES[kind]}"
            problems.append(RequestError(field=f"--param {name}", message="is missing", hint=hint))
            continue
        try:
            values[name] = _typed(texts[name], kind)
        except ValueError:
            message = f"must be {'an' if kind == 'int' else 'a'} {kind}"
            hint = f"write e.g. --param {name}={_EXAMPLES[kind]}"
            problems.append(RequestError(field=f"--param {name}", message=message, hint=hint))
    raise_all(problems)
    return values


def _typed(text: str, kind: str) -> Value:
    if kind == "int" and _INT.match(text):
        number = int(text)
        if -(2**63) <= number < 2**63:
            return number
    if kind == "float" and _FLOAT.match(text) and math.isfinite(float(text)):
        return float(text)
    if kind == "date" and _DATE.match(text):
        return datetime.date.fromisoformat(text)
    if kind == "string" and "\0" not in text and text.isprintable():
        return text
    raise ValueError


def into_source(pattern: str, values: Mapping[str, Value]) -> str:
    """The source's glob with the parameters in it, each a piece of one name without wildcards.

    Raises:
        RequestError: a placeholder is not declared, or a value would leave its folder.

    >>> into_source("data/{week}/*.parquet", {"week": "2026-W*"})
    'data/2026-W[*]/*.parquet'
    """

    def piece(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            raise RequestError(
                field="source",
                message=f"uses {{{name}}}, which params does not declare",
                hint=nearest(name, values, "declared") or f"add params: {{{name}: {{type: string}}}}",
            )
        text = str(values[name])
        if text in ("", ".", "..") or any(sign in text for sign in "/\\\0"):
            raise RequestError(
                field=f"--param {name}",
                message="stands in the source as part of a file's name and must not be empty, '.', '..' or hold a slash",
                hint="use one parameter for each folder",
            )
        return glob.escape(text)

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


def undeclared(text: str, declared: Iterable[str]) -> list[str]:
    """The placeholders in a text that no parameter is declared for."""
    known = set(declared)
    return [name for name in dict.fromkeys(_PLACEHOLDER.findall(text)) if name not in known]
