"""Commands about accounts of kinds that extensions add: `ledger init`, `ledger raise` and `ledger show`, and their options.

In: the table of extensions, parsed arguments. Out: the commands of one kind of account. Holds: an extension's module is imported
with the parser, so it must be quick. Not covered: accounts of tables (`ledger_commands`); charges (`dp_pipelines.ledger`).
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.job_kinds import OtherJobFile

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger

KIND = "account_commands"
"""The kind of these features in the table of extensions."""


class NewAccount(Protocol):
    """An account that somebody wants to open."""

    @property
    def name(self) -> str:
        """The name of the account."""

    @property
    def patterns(self) -> Sequence[str]:
        """The patterns of its files."""

    def open(self, book: "Ledger", files: Sequence[str]) -> str:
        """Open it, and return the message for the user.

        Args:
            book: the ledger.
            files: the files that match the patterns now.
        """


@runtime_checkable
class AccountCommands(Protocol):
    """The commands about the accounts of an extension.

    Args:
        kinds: the values of `--kind` that open such an account.
        kind_help: the help of `--kind`.
        init_help, raise_help: more text for the help of `ledger init` and `ledger raise`.
    """

    kinds: tuple[str, ...]
    kind_help: str
    init_help: str
    raise_help: str

    def add_limits(self, parser: argparse.ArgumentParser, *, new: bool) -> None:
        """Add the options that limit such an account.

        Args:
            parser: of `ledger init` or of `ledger raise`.
            new: whether it is that of `ledger init`.
        """
        ...

    def refuse_options(self, given: argparse.Namespace) -> None:
        """Refuse the options of such an account, for one of tables.

        Raises:
            RequestError: one is given.
        """
        ...

    def is_charged_by(self, file: OtherJobFile) -> bool:
        """Return True if a job charges such an account."""
        ...

    def new_account(self, given: argparse.Namespace, file: OtherJobFile | None) -> NewAccount:
        """Return the account that `ledger init` is to open.

        Args:
            given: the options.
            file: the job that the command names, or None.

        Raises:
            RequestError: something is missing or wrong, or the job is over tables.
        """
        ...

    def owns(self, book: "Ledger", name: str) -> bool:
        """Return True if a ledger has such an account under a name."""
        ...

    def raise_limits(self, given: argparse.Namespace, book: "Ledger", name: str) -> str:
        """Raise the limits of an account, and return the message for the user.

        Raises:
            RequestError: no limit is given, one would be lowered, or is wrong.
        """
        ...

    def lines(self, account: Mapping[str, Any]) -> Iterable[str]:
        """Return an account for people to read: its heading, then its lines.

        Args:
            account: its JSON values, as an export of the ledger has them.
        """
        ...


def installed() -> list[AccountCommands]:
    """Return the commands of all installed extensions. One that cannot be used is left out."""
    usable = []
    for name in extensions.built_in(KIND):
        try:
            usable.append(cast(AccountCommands, extensions.load(KIND, name)))
        except RequestError:
            continue
    return usable
