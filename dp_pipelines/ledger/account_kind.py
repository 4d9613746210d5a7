"""The protocols of a kind of account that an extension adds to the ledger, and how kinds are found: by the kinds of their events.

In: the kind of an event. Out: the rules that apply it. Holds: the core has the rules of accounts of tables alone; of a
ledger with an event whose rules are not installed the chain is verified, and nothing is added to it. Not covered: accounts of
tables (`state`).
"""

import functools
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError
from dp_pipelines.ledger.events import Event

if TYPE_CHECKING:
    from dp_pipelines.ledger.entries import Run
    from dp_pipelines.ledger.ledger import Ledger
    from dp_pipelines.ledger.state import State

KIND = "account"
"""The kind of these features in the table of extensions. A feature has the name of a kind of event."""


class OtherAccount(Protocol):
    """An account of a kind that an extension adds. It is a frozen value.

    Args:
        name: the `dataset` of job files.
        sources: patterns of files that belong to it.
        file_hint: the advice for a job that reads these files and charges another account.
        charge_stays: the reason why an abandoned run gives nothing back.
    """

    @property
    def name(self) -> str: ...
    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def file_hint(self) -> str: ...
    @property
    def charge_stays(self) -> str: ...

    def with_sources(self, sources: tuple[str, ...]) -> Self:
        """Return the account with other patterns of files."""

    def not_of_tables(self, shown: str) -> RequestError:
        """Return the error for a job over tables that names this account.

        Args:
            shown: the place of the ledger.
        """

    def to_json(self) -> dict[str, Any]:
        """Return the account as JSON values."""

    def run_to_json(self, run: "Run") -> dict[str, Any]:
        """Return a run of the account as `dp-pipelines runs --json` lists it."""

    def spent_json(self, ledger: "Ledger", run: "Run") -> dict[str, Any]:
        """Return the entry about the ledger for the manifest of a run."""


@runtime_checkable
class AccountKind(Protocol):
    """The events and rules of one kind of account. Its accounts are in `State.others`.

    Args:
        events: its kinds of events. Each has a line in the table of extensions.
    """

    events: tuple[str, ...]

    def apply(self, state: "State", event: Event) -> None:
        """Change the state by an event of this kind.

        Raises:
            LookupError, ValueError, TypeError: it could not have happened here.
        """
        ...


@functools.cache
def rules_of(event: str) -> AccountKind:
    """Return the rules of a kind of event.

    Raises:
        RequestError: no installed extension has them.
    """
    lacks = "does not offer the events and rules of a kind of account"
    return extensions.load_checked(
        KIND, event, lambda found: found if isinstance(found, AccountKind) and event in found.events else None, lacks
    )


def refuse_missing(state: "State", shown: str) -> None:
    """Refuse to add to a ledger that has an account whose rules are not installed.

    Args:
        state: of the ledger.
        shown: its place.

    Raises:
        RequestError: names the account and its extension.
    """
    for name, error in state.missing.items():
        message = f"nothing can be added: its account {name!r} {error.message}"
        raise RequestError(field=f"ledger {shown}", message=message, hint=error.hint)
