"""Where the releases of a run are kept on which later steps depend.

In: bytes under a name. Out: the same bytes for ever. Holds: the first content under a name stays. Not covered: a place that
outlives the process, which is the ledger's (jobs.run.ledgered_run).
"""

from typing import NewType, Protocol

Released = NewType("Released", float)
"""A number that was released: what later steps may divide by. `statistics.Sizes.of` makes it, from a released table."""


class Draws(Protocol):
    """Keeps what earlier steps of a run have released."""

    def get(self, name: str) -> bytes | None:
        """What was kept under a name, or None."""
        ...

    def keep(self, name: str, content: bytes) -> None:
        """Keep it, for ever."""
        ...


class InMemory:
    """Draws of a run that no ledger remembers: a run that fails draws all of them again, and none was seen.

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
        """Keep it while this process lives, unless something is kept already."""
        self._kept.setdefault(name, content)
