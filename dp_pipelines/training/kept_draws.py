"""Keeps those releases of a run that later steps depend on.

In: bytes under a name. Out: the same bytes, forever. Holds: the first content under a name stays. Beside them stands a private
memory, which is destroyed as soon as no later step needs it. Not covered: storage that outlives the process, which is the
ledger's job (jobs.run.ledgered_run).
"""

import hashlib
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

    def remember(self, name: str, content: bytes) -> None:
        """Keep a private memory until it is forgotten: durably, before a content is kept that names its digest.

        Args:
            name: of the stage whose memory it is.
            content: what nobody may ever see.
        """
        ...

    def recall(self, name: str, digest: str) -> bytes | None:
        """The memory with this digest, in hexadecimal digits; None where it is gone. The caller checks the digest."""
        ...

    def forget(self, name: str, but: str = "") -> None:
        """Destroy all memories of a stage, but for the one with a digest."""
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
        self._memories: dict[tuple[str, str], bytes] = {}

    def get(self, name: str) -> bytes | None:
        """What was kept under a name, or None."""
        return self._kept.get(name)

    def keep(self, name: str, content: bytes) -> None:
        """Keep it for the life of this process, unless something is already kept."""
        self._kept.setdefault(name, content)

    def remember(self, name: str, content: bytes) -> None:
        """Keep a memory for the life of this process, unless it is forgotten."""
        self._memories[name, hashlib.sha256(content).hexdigest()] = content

    def recall(self, name: str, digest: str) -> bytes | None:
        """The memory with a digest, or None."""
        return self._memories.get((name, digest))

    def forget(self, name: str, but: str = "") -> None:
        """Destroy the memories of a stage, but for the one with a digest."""
        self._memories = {key: held for key, held in self._memories.items() if key[0] != name or key[1] == but}
