"""Places for ledgers, on SQLite and PostgreSQL, and a state folder for each test."""

from tests.ledger.conftest import own_state, postgres, quick, server, sqlite, url  # noqa: F401 - fixtures
