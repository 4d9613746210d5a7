"""What the calls of a session are given, checked before anything is opened or spent.

In: arguments of a notebook's calls. Out: the same in the form that jobs have, or an error. Holds: only public facts decide.
Not covered: what a query asks for (`jobs.request`).
"""

import glob
import os
import pathlib
import urllib.parse
from collections.abc import Sequence
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.kernels import keys
from dp_pipelines.query.query import Query


def given_query(
    given: tuple[str | Query, ...], query: Query | None, name: str | None
) -> tuple[Query | None, str | None]:
    """The query and the name among arguments without a keyword, each at most once.

    Raises:
        RequestError: something else stands there.
    """
    names: list[Any] = [one for one in given if isinstance(one, str)]
    queries: list[Query | None] = [one for one in given if isinstance(one, Query)]
    if len(names) + len(queries) < len(given):
        raise RequestError(field="query", message="must be a name, a Query, or both", hint='write query("orders", ...)')
    names += [] if name is None else [name]
    queries += [] if query is None else [query]
    if len(names) > 1 or len(queries) > 1:
        raise RequestError(field="query", message="has two names, or two queries", hint="give one of each")
    if names and not isinstance(names[0], str):
        raise RequestError(field="name", message="must be text", hint='write e.g. "orders-by-region"')
    return (queries or [None])[0], (names or [None])[0]


def refuse_unit(unit: Sequence[str], source: Source) -> None:
    """Refuse a privacy unit that the rows do not have, before an account protects it for ever.

    Raises:
        RequestError: a column is absent, or of a type that cannot be a unit.
    """
    for name in unit:
        if name in source.missing:
            raise source.missing[name]
        if name not in source.schema.names:
            hint = nearest(name, source.schema.names, "columns")
            raise RequestError(field="privacy_unit", message=f"names column {name!r}, which does not exist", hint=hint)
        keys.check_key_type(source.schema.field(name).type, name, partition=False)


def pattern_of(data: str, folder: pathlib.Path) -> str:
    """The pattern of a folder's Parquet files; a file or pattern as it is."""
    if "://" not in data and (folder / data).is_dir():
        return os.path.join(glob.escape(data), "*.parquet")
    return data


def folder_name(dataset: str) -> str:
    """A dataset as the name of one folder."""
    quoted = urllib.parse.quote(dataset, safe=" ")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted
