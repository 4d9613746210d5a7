"""Keeps those releases of a run that later steps depend on.

In: bytes under a name. Out: the same bytes, forever. Holds: the first content under a name stays. Not covered: storage
that outlives the process, which is the ledger's job (jobs.run.ledgered_run).
"""

from typing import NewType, Protocol

Released = NewType("Released", float)
"""A released number, by which later steps may divide. `statistics.Sizes.of` makes it from a released table."""


class Draws(Protocol):
    """Keeps what earlier steps of a run have released."""

    def get(self, name: str) -> bytes | None:
        """What was kept under a name, or None."""
        ...

    def keep(self, name: str, content: bytes) -> None:
        """Keep it forever."""
        ...


class InMemory:
    """Draws of a run without a ledger: if the run fails, the next one draws all of them again, and nobody saw the first.

    >>> draws = InMemory()
    >>> draws.keep("bins", b"first")
    >>> draws.keep("bins", b"second")
    >>> draws.get("bins")
    b'first'
    """

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        """What was kept under a name, or None."""
        return self._kept.get(name)

    def keep(self, name: str, content: bytes) -> None:
        """Keep it for the life of this process, unless something is already kept."""
        self._kept.setdefault(name, content)
