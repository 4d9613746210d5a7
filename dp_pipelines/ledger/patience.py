"""Waiting for a ledger's server that does not answer: for how long, and who is informed.

In: seconds, a listener. Out: another try, or the failure after all. Holds: only temporary failures are waited for: a lost
connection, a standby that takes no writes, a lock. All other refusals of a server are reported at once, unless something is
charged already. Not covered: the effect of a write whose answer was lost (`journal` reads it back); files, whose writers wait
for each other.
"""

import re
import time
from collections.abc import Callable

from dp_pipelines.errors import LedgerError

A_MOMENT = 2.0
"""Seconds that a command waits for a locked ledger that it only reads, and does not need."""

A_MINUTE = 60.0
"""Seconds that a command waits for a server."""

TEN_MINUTES = 600.0
"""Seconds that a command waits if it has a finished release."""

PAUSE_SECONDS = 1.0
"""Seconds between two tries."""

REMINDER_SECONDS = 60.0
"""Seconds between two reports that the wait goes on."""


NO_ANSWER = "the server does not answer"


class Unreachable(LedgerError):
    """The server of a ledger does not answer, hung up, or takes no writes now.

    The current write happened completely or not at all.

    Args:
        message: for the caller who gives up.
        reason: of the wait, for its reports.
    """

    def __init__(self, message: str, reason: str = NO_ANSWER) -> None:
        super().__init__(message)
        self.reason = reason


PASSING = {
    "25006": (
        "the server takes no writes now, as a standby or in maintenance",
        "the server takes no writes, as a standby or in maintenance; run the same command again when it does, or name the server "
        "that does; if this user may only read, give it write permission",
    ),
    "55P03": (
        "another session has locked the ledger's tables",
        "another process has been writing to it or has locked it for too long; run the same command again",
    ),
}
"""Temporary refusals of a server by SQLSTATE: the reason for the wait, and the message if it takes too long."""


REFUSALS = {
    "certificate": "the server's certificate is not accepted; correct the certificate, or the options of the URL",
    "authentication failed": "the server rejects the user or the password",
    "no password supplied": "the server asks for a password; set PGPASSWORD, or write a password file (~/.pgpass)",
    r"pg_hba\.conf": "the server lets this user, database and machine not in; correct the URL, or its pg_hba.conf",
    'role ".*" does not exist': "the server knows no user of this name; correct the URL",
    'role ".*" is not permitted to log in': "the server does not let this user log in; permit it, or name another user",
    'database ".*" does not exist': "the server has no database of this name; correct the URL, or create the database",
    "permission denied": "this user may not use the database; give it the permission, or name another user",
    "is not currently accepting connections": "the server takes no connections to this database; ask who runs it",
    "name or service not known": "no machine has this name; correct the URL",
    "nodename nor servname": "no machine has this name; correct the URL",
}
"""Permanent failures of a server, or of the system that looks up its name: regular expressions and their meanings.

The first match counts. "too many connections for role" is temporary, and so is everything that is not listed.
"""


_BEFORE = re.compile(r"^.*?(?:port \S+|on socket \"[^\"]*\") failed: |^.*?resolve host '[^']*': ", re.MULTILINE)
"""The part of a failure's text that names the server: any words may be in its name."""

_NAMES = re.compile(r'"[^"]*"')
"""Names of users, databases and machines in the text."""


def refusal(text: str) -> str:
    """Return the meaning of a server's refusal; empty if it is temporary.

    Args:
        text: of the failure, as the database driver reports it.

    >>> refusal('FATAL: role "ann" does not exist')
    'the server knows no user of this name; correct the URL'
    >>> refusal('FATAL: too many connections for role "ann"')
    ''
    >>> refusal('connection to server at "certificate-db.example", port 5432 failed: Connection refused')
    ''
    """
    plain = _NAMES.sub('""', _BEFORE.sub("", text))
    return next((meaning for sign, meaning in REFUSALS.items() if re.search(sign, plain, re.IGNORECASE)), "")


class Refused(LedgerError):
    """The server of a ledger, or its name, is wrong. This is permanent, unless it was right a moment ago.

    Args:
        message: for the caller who gives up.
        reason: of the wait, for its reports.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def _unheard(text: str) -> None:
    """Ignore a report of a wait."""


class Patience:
    """The time for which lost connections are tried again.

    Args:
        seconds: from the first failure on; 0 gives up at once.
        tell: is called with a text on the wait and its reason.
        locked: seconds that a file may be locked by another process, at each try; None: as long as a writer waits.

    >>> heard = []
    >>> patience = Patience(1e-9, heard.append)
    >>> patience.again(Unreachable("the server cannot be reached"), "ledger postgresql://host/budget")
    >>> heard
    ['ledger postgresql://host/budget: the server does not answer; trying again for a moment']
    >>> patience.answered("ledger postgresql://host/budget")
    >>> heard[-1]
    'ledger postgresql://host/budget: the server answers again'
    """

    def __init__(
        self, seconds: float = 0.0, tell: Callable[[str], None] = _unheard, *, locked: float | None = None
    ) -> None:
        self.seconds, self.locked = seconds, locked
        # True after a charge: a name that was known then may be moving to another machine.
        self.refusals = False
        self._tell = tell
        self._since: float | None = None
        self._told = 0.0

    def again(self, lost: Unreachable | Refused, place: str) -> None:
        """Wait a moment before the next try, or raise if it took too long.

        Args:
            lost: why it is needed.
            place: which ledger, without a password.

        Raises:
            Unreachable: `lost`; it has lasted too long.
            Refused: as above, or refusals are not waited for.
        """
        now = time.monotonic()
        told_at_once = isinstance(lost, Refused) and not self.refusals
        if told_at_once or self.seconds <= 0 or (self._since is not None and now >= self._since + self.seconds):
            self._since = None
            raise lost
        if self._since is None or now >= self._told + REMINDER_SECONDS:
            self._since = now if self._since is None else self._since
            self._told = now
            left = self._since + self.seconds - now
            self._tell(f"{place}: {lost.reason}; trying again for {_in_words(left)}")
        time.sleep(min(PAUSE_SECONDS, self.seconds))

    def answered(self, place: str) -> None:
        """Note that the last try succeeded, and report it after a wait."""
        if self._since is not None:
            self._since = None
            self._tell(f"{place}: the server answers again")


def _in_words(seconds: float) -> str:
    """Format a time for people.

    >>> _in_words(600.0), _in_words(59.7), _in_words(31)
    ('10 minutes', '60 seconds', '31 seconds')
    """
    if seconds < 0.5:
        return "a moment"
    return f"{round(seconds / 60)} minutes" if seconds > 90 else f"{round(seconds)} seconds"
