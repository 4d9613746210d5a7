"""Which ledger this user's runs have opened an account in, where none was named: to warn of a second one.

In: a dataset and its files. Out: another ledger that was opened for them before, or nothing. Holds: nothing is refused for it,
since two people's datasets may have one name; a place that cannot be written is no error. Not covered: other users, other
machines, copies of the files.

May import ledger.anchor.
"""

import contextlib
import hashlib
import json
import pathlib

from dp_pipelines.ledger.anchor import default_anchor, put, read_object


def remember(dataset: str, source: str, ledger: str, shown: str, option: str) -> str | None:
    """Write down the ledger of a dataset and its files; a warning if another one was written down before.

    Args:
        dataset: the account.
        source: the pattern of its files.
        ledger: the ledger's own name.
        shown: its place.
        option: how a ledger is named.
    """
    name = hashlib.sha256(json.dumps([dataset, source]).encode()).hexdigest()[:32]
    path = pathlib.Path(default_anchor()) / f"source-{name}.json"
    held = read_object(path) or {}
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        put(path, {"ledger": ledger, "shown": shown})
    if "shown" not in held or held.get("ledger") == ledger:
        return None
    return (
        f"the dataset {dataset!r} with these files was charged before, in the ledger {held['shown']}: what was spent there "
        f"is not counted here; if it still stands, name it with {option}"
    )
