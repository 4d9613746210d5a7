"""The place of a ledger, from `--ledger`: a path, or a SQLite or PostgreSQL URL, and its text without secrets.

In: text. Out: a URL. Holds: an error never repeats the text, which may contain a password. Not covered: whether a ledger
exists there (`database`).
"""

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from dp_pipelines.errors import RequestError


def parse(url: str) -> sa.URL:
    """Read a path or a URL.

    Raises:
        RequestError: the text is neither a path nor a URL of SQLite or PostgreSQL.

    >>> parse("ledger.sqlite").get_backend_name(), parse("postgresql://db/budget").drivername
    ('sqlite', 'postgresql+psycopg')
    """
    hint = "write a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
    if "://" not in url:
        if not url:
            raise RequestError(field="--ledger", message="is empty", hint=hint)
        if url.startswith(("postgres:", "postgresql:", "postgresql+psycopg:", "sqlite:")) or "\0" in url:
            raise RequestError(field="--ledger", message="is neither a path nor a URL", hint=hint)
        return sa.URL.create("sqlite", database=url)
    try:
        parsed = sa.make_url(url)
    except (SQLAlchemyError, ValueError):
        raise RequestError(field="--ledger", message="is not a valid URL", hint=hint) from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise RequestError(field="--ledger", message="must be SQLite or PostgreSQL", hint=hint)
    if parsed.drivername == "sqlite" and (parsed.database in (None, "", ":memory:") or parsed.query):
        message = "must be a file, without options: an in-memory ledger would forget"
        raise RequestError(field="--ledger", message=message, hint=hint)
    return parsed


def shown(url: sa.URL) -> str:
    """Return the URL without its secrets: a password may follow the user or be among the options."""
    host = url.host or url.query.get("host") or ""
    return sa.URL.create(
        "postgresql", username=url.username, host=str(host) or None, port=url.port, database=url.database
    ).render_as_string()
