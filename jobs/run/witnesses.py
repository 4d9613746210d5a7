"""Manifests as witnesses of a ledger: each names an event that the ledger had at release time, and others keep it.

In: the names of manifests; an open ledger. Out: an error that says which releases the ledger does not hold, or how many it does.
Holds: the event stands in the ledger's chain at that place with that hash, and the run is committed there with this very
manifest. Not covered: what the ledger lost after the newest of these manifests; releases without a ledger, which are counted.
"""

import dataclasses
import glob
import hashlib
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from dp_pipelines.errors import LedgerError, RequestError
from dp_pipelines.jobs.spec.validation_errors import raise_all
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.release.manifest import ESTIMATES_FORMAT, FORMAT
from dp_pipelines.report.key_text import visible


@dataclasses.dataclass(frozen=True, kw_only=True)
class Witness:
    """What a manifest says of its ledger.

    Args:
        path: where it lies.
        ledger: the ledger's own name.
        seq, hash: the last event of the ledger when the release was made.
        account, run_id: the run.
        sha256: of the manifest itself.
    """

    path: str
    ledger: str
    seq: int
    hash: str
    account: str
    run_id: str
    sha256: str


def read(names: Sequence[str]) -> list[Witness | None]:
    """What manifests say; None for each of a release that no ledger remembers.

    Args:
        names: files, folders of releases, or patterns of either.

    Raises:
        RequestError: one is not there or is no manifest.
    """
    problems, found = [], list[Witness | None]()
    for path in dict.fromkeys(path for name in names for path in _paths(name)):
        try:
            found.append(_read(path))
        except RequestError as error:
            problems.append(error)
    raise_all(problems)
    return found


def refuse_missing(ledger: Ledger, found: Sequence[Witness | None]) -> int:
    """Refuse a ledger that lacks what manifests have seen; gives how many it was compared with.

    Raises:
        LedgerError: it was rolled back, altered or replaced; a line for each manifest.
    """
    compared = [witness for witness in found if witness is not None]
    lines = [f"{witness.path}: {said}" for witness in compared if (said := _misses(ledger, witness))]
    if lines:
        lines.append(
            f"ledger {ledger.shown}: does not match {len(lines)} of {len(compared)} manifests: it was rolled back, "
            "altered or replaced, unless they belong to another ledger; restore the newest copy"
        )
        raise LedgerError("\n".join(lines))
    return len(compared)


def _misses(ledger: Ledger, witness: Witness) -> str:
    """What a ledger lacks of a manifest, in words; empty where it lacks nothing."""
    if witness.ledger != ledger.state.ledger:
        return f"names the ledger {visible(witness.ledger)}, but this is {ledger.state.ledger}"
    if witness.seq > len(ledger.history):
        return f"has seen event {witness.seq}, but the ledger ends with event {len(ledger.history)}"
    if ledger.history[witness.seq - 1].hash != witness.hash:
        return f"has seen an event {witness.seq} that differs from the one in the ledger"
    run = ledger.run(witness.account, witness.run_id)
    if run is None or not run.committed:
        return f"is the release of run {witness.run_id!r}, which the ledger does not list as released"
    if run.files.get("manifest.json") != witness.sha256:
        return f"is not the manifest that the ledger has for run {witness.run_id!r}"
    return ""


def _paths(name: str) -> list[str]:
    # A shell hands a pattern on as it is where nothing matches it, or where it was quoted.
    listed = [name] if os.path.lexists(name) else sorted(glob.glob(name, recursive=True)) or [name]
    return [os.path.join(path, "manifest.json") if os.path.isdir(path) else path for path in listed]


def _read(path: str) -> Witness | None:
    try:
        raw = pathlib.Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "no such file"
        raise _wrong(path, f"cannot be read: {reason}") from None
    try:
        content: dict[str, Any] = json.loads(raw)
        if content["format"] not in (FORMAT, ESTIMATES_FORMAT):
            raise ValueError
        head = content["ledger"]["head"]
        if head is None:
            return None
        witness = Witness(
            path=path,
            ledger=content["ledger"]["id"],
            seq=head["seq"],
            hash=head["hash"],
            account=content["ledger"]["account"],
            run_id=content["run_id"],
            sha256=hashlib.sha256(raw).hexdigest(),
        )
    except (ValueError, LookupError, TypeError, RecursionError):
        raise _wrong(path, "is not the manifest of a release") from None
    texts = (witness.ledger, witness.hash, witness.account, witness.run_id)
    if type(witness.seq) is not int or witness.seq < 1 or not all(isinstance(text, str) for text in texts):
        raise _wrong(path, "is not the manifest of a release")
    return witness


def _wrong(path: str, message: str) -> RequestError:
    return RequestError(field=f"--against {path}", message=message, hint="name the manifest.json of releases")
