"""How many small changes of each module tests find, as the page for reviewers shows it.

In: small_changes.yaml, which `run.py --every MODULE --figures` writes. Out: one entry for each module. Not covered: whether a
module has changed since; the same command writes its entry anew.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import yaml

LISTED = Path(__file__).with_name("small_changes.yaml")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """What became of the changes of one module.

    Args:
        module: its name.
        mutants: how many small changes it has.
        planted: how many of them were drawn: all, or the first by their ranks.
        found: how many of those a test found.
        argued: how many of those change nothing that matters, for the reasons in equivalent.yaml.
        open: the names of the others.
    """

    module: str
    mutants: int
    planted: int
    found: int
    argued: int
    open: tuple[str, ...] = ()


def listed() -> list[Figures]:
    """Return the figures of all modules, by name."""
    rows = yaml.safe_load(LISTED.read_text()) if LISTED.exists() else []
    return [Figures(**{**row, "open": tuple(row["open"])}) for row in rows or []]


def update(new: Iterable[Figures]) -> None:
    """Replace the figures of some modules."""
    every = {one.module: one for one in (*listed(), *new)}
    rows = [{**dataclasses.asdict(every[name]), "open": list(every[name].open)} for name in sorted(every)]
    LISTED.write_text(yaml.safe_dump(rows, sort_keys=False, width=10**6))


def lines() -> list[str]:
    """Return the table in Markdown."""
    made = ["| module | small changes | planted | found | argued | open |", "|---|---|---|---|---|---|"]
    every = listed()
    for one in every:
        name = one.module.removeprefix("dp_pipelines.")
        made.append(f"| `{name}` | {one.mutants} | {one.planted} | {one.found} | {one.argued} | {len(one.open)} |")
    sums = [sum(getattr(one, field) for one in every) for field in ("mutants", "planted", "found", "argued")]
    made.append(f"| all | {' | '.join(map(str, sums))} | {sum(len(one.open) for one in every)} |")
    return made
