"""Published runs of one plan: what is in their folders, whether they belong together, and in which order they stand.

In: published folders. Out: `ReleasedRun`s in order, and what that order is. Holds: a table is used only if it is byte for byte
the one that its manifest names; runs of other plans, copies and damaged releases are refused. Not covered: whether a manifest is
true; what a plan does not hold, such as a job's source and its `where`: of two runs with the same parameters the page says if
their jobs differ.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.release import manifest
from dp_pipelines.report.compare_text import hidden_tables
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.key_times import days_of
from dp_pipelines.report.pages import mapping, mappings, text

PAGE = "report.html"
"""The page of one release, which holds no number that is not in its tables; it may be missing."""

SAME = {"dataset": "dataset", "plan": "plan", "privacy_unit": "privacy unit"}
"""What all runs on a page have in common, and what it is called."""


WINDOW = "window of event time"
"""The order of runs of which each is about rows of its own."""

MIDNIGHT = " 00:00:00"
"""What some texts of dates end in."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedRun:
    """One published folder.

    Args:
        folder: where it is.
        content: its manifest.
    """

    folder: pathlib.Path
    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The run id, or the name of the folder where it has none."""
        return text(self.content.get("run_id")) or self.folder.name

    @property
    def ledger(self) -> Mapping[str, Any]:
        """What the manifest says of the ledger."""
        return mapping(self.content.get("ledger"))

    @property
    def tables(self) -> dict[str, pathlib.Path]:
        """The published file of each stage that has one."""
        hidden = hidden_tables({text(stage.get("name")): stage for stage in mappings(self.content.get("stages"))})
        return {name: path for name, path in self.every_table.items() if name not in hidden}

    @property
    def every_table(self) -> dict[str, pathlib.Path]:
        """Every published table, those of comparisons too."""
        listed = mapping(self.content.get("files"))
        return {name.removesuffix(".parquet"): self.folder / name for name in listed if _is_table(name)}

    @property
    def models(self) -> dict[str, pathlib.Path]:
        """The folder of each train stage."""
        return {text(name): self.folder / text(name) for name in mapping(self.content.get("models"))}

    @property
    def digests(self) -> tuple[tuple[str, str], ...]:
        """The files with their digests, without the page: what tells a copy."""
        listed = mapping(self.content.get("files"))
        return tuple(sorted((name, text(mapping(listed[name]).get("sha256"))) for name in listed if name != PAGE))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOrder:
    """In which order runs stand on an axis.

    Args:
        words: by what, for readers.
        texts: what each run is called below an axis.
        places: where each stands, rising: days since 1970 where the texts are dates, else 1, 2, 3.
        timed: whether the places are days.
    """

    words: str
    texts: Sequence[str]
    places: Sequence[float]
    timed: bool


def read_run(folder: pathlib.Path) -> ReleasedRun:
    """A published folder, with tables that are as they were published.

    Args:
        folder: of one release.

    Raises:
        RequestError: it is no release, or it was changed.
    """
    field = f"folder {visible(str(folder))!r}"
    if not folder.is_dir():
        missing = "is not a folder" if folder.exists() else "does not exist"
        raise RequestError(field=field, message=missing, hint="name published folders, such as out/*/")
    content = manifest.read_manifest(folder)
    if manifest.read_made_up(folder) is not None:
        message, hint = "is a report of made-up rows (run --synthetic), not a release", "leave it out"
        raise RequestError(field=field, message=message, hint=hint)
    if manifest.read_estimates(folder) is not None:
        message, hint = (
            "holds estimates from reports of devices, which have a page of their own",
            "open its report.html",
        )
        raise RequestError(field=field, message=message, hint=hint)
    if content is None:
        message = (
            "holds a manifest.json that cannot be read" if (folder / "manifest.json").exists() else "is no release"
        )
        inside = any((path / "manifest.json").exists() for path in folder.iterdir())
        hint = (
            f"name what is in it: {visible(str(folder))}/*/"
            if inside
            else "name folders that `dp-pipelines run` published"
        )
        raise RequestError(field=field, message=message, hint=hint)
    listed = mapping(content.get("files"))
    if any(pathlib.PurePath(name).is_absolute() or ".." in pathlib.PurePath(name).parts for name in listed):
        raise RequestError(field=field, message="has a manifest that names files elsewhere", hint="name another folder")
    held = {name: digest for name, digest in listed.items() if name != PAGE}
    if not manifest.holds(folder, held):
        raise RequestError(
            field=field, message="is damaged: its files are not those that its manifest names",
            hint="leave it out, or take the folder from a backup",
        )  # fmt: skip
    return ReleasedRun(folder=folder, content=content)


def check_together(runs: Sequence[ReleasedRun]) -> None:
    """Refuse runs that are not several runs of one plan.

    Args:
        runs: in the order in which they were named.

    Raises:
        RequestError: they are of different plans, or one is there twice.
    """
    first = runs[0]
    for run, (name, words) in itertools.product(runs[1:], SAME.items()):
        if run.content.get(name) != first.content.get(name):
            raise RequestError(
                field=f"folder {visible(str(run.folder))!r}",
                message=f"has {words} {_shown(run, name)}, and {visible(str(first.folder))!r} has {_shown(first, name)}",
                hint="name runs of one job; make a page of its own for each plan",
            )
    seen: dict[tuple[str, str], ReleasedRun] = {}
    for run in runs:
        one = seen.setdefault(_identity(run), run)
        if one is not run:
            raise RequestError(
                field=f"folder {visible(str(run.folder))!r}",
                message=f"holds run {visible(run.name)!r}, which is also in {visible(str(one.folder))!r}",
                hint="name each run once",
            )


def in_order(runs: Sequence[ReleasedRun]) -> tuple[list[ReleasedRun], RunOrder]:
    """The runs in their order in time, as far as they tell it.

    By the window of event time, a parameter whose values are dates, or run ids that are dates; else by the number of the run in
    its plan; else as they were named.

    Args:
        runs: of one plan, each once.
    """
    for words, tell in _told(runs):
        texts = [tell(run).removesuffix(MIDNIGHT) for run in runs]
        days = days_of(pa.array(texts, pa.string()))
        if days is not None and len(np.unique(days)) == len(runs):
            return _sorted(runs, RunOrder(words=words, texts=texts, places=days.tolist(), timed=True))
    rounds = [number for run in runs if isinstance(number := run.ledger.get("round"), int)]
    same_ledger = len({(text(run.ledger.get("id")), text(run.ledger.get("window"))) for run in runs}) == 1
    if same_ledger and len(set(rounds)) == len(runs):
        return _sorted(
            runs,
            RunOrder(
                words="number of the run in its plan", texts=[run.name for run in runs], places=rounds, timed=False
            ),
        )
    names, places = [run.name for run in runs], [float(at) for at in range(1, len(runs) + 1)]
    return list(runs), RunOrder(words="order in which the folders were named", texts=names, places=places, timed=False)


def before(runs: Sequence[ReleasedRun], run: ReleasedRun) -> list[ReleasedRun]:
    """Return the runs that stand before a run: those about an earlier time, in its order; all as they are if nothing tells it.

    Time is told as in `in_order`. Runs with the same window or parameter are told apart by the next one that is a date.

    Args:
        runs: others of its plan.
        run: the run.

    >>> at = lambda name, day: ReleasedRun(folder=pathlib.Path(name), content={"run_id": name, "params": {"day": day}})
    >>> others = [at("b", "2026-01-07"), at("c", "2026-01-06"), at("d", "2026-01-05"), at("e", "2026-01-07")]
    >>> [other.name for other in before(others, at("a", "2026-01-07"))]
    ['d', 'c']
    """
    tells = [tell for _, tell in _told([run]) if day_of(tell(run)) is not None]
    mine, *places = ([_place(tell(each)) for tell in tells] for each in (run, *runs))
    if all(place == mine for place in places):
        return list(runs)
    return [runs[at] for at in sorted(range(len(runs)), key=places.__getitem__) if places[at] < mine]


def day_of(said: str) -> float | None:
    """Return a date, an ISO week, a month or a quarter as days since 1970; None of any other text.

    Args:
        said: the text of a window, a parameter or a run id.

    >>> day_of("1970-01-05"), day_of("north")
    (4.0, None)
    """
    days = days_of(pa.array([said.removesuffix(MIDNIGHT)], pa.string()))
    return None if days is None else float(days[0])


def changed_jobs(runs: Sequence[ReleasedRun]) -> list[str]:
    """The runs, after the first, whose job file differs from that of an earlier run with the same parameters."""
    seen: dict[str, Any] = {}
    changed = []
    for run in runs:
        given = repr(sorted(mapping(run.content.get("params")).items()))
        if seen.setdefault(given, run.content.get("job")) != run.content.get("job"):
            changed.append(run.name)
        seen[given] = run.content.get("job")
    return changed


def stages_of(runs: Sequence[ReleasedRun]) -> dict[str, Mapping[str, Any]]:
    """What manifests say of each stage with a table, by name in the order of the job; of several runs the last."""
    named = [text(stage.get("name")) for run in runs for stage in mappings(run.content.get("stages"))]
    tables = [name for run in runs for name in run.tables]
    found: dict[str, Mapping[str, Any]] = {name: {} for name in dict.fromkeys([*named, *tables]) if name in tables}
    for run in runs:
        found |= {text(s.get("name")): s for s in mappings(run.content.get("stages")) if text(s.get("name")) in found}
    return found


def _identity(run: ReleasedRun) -> tuple[str, str]:
    """What two folders with the same run share: the run id in its ledger; without a ledger the bytes of the tables."""
    head = mapping(run.ledger.get("head"))
    name = run.content.get("run_id")
    return (text(run.ledger.get("id")), text(name)) if head and name else ("", repr(run.digests))


def _sorted(runs: Sequence[ReleasedRun], order: RunOrder) -> tuple[list[ReleasedRun], RunOrder]:
    at = np.argsort(np.asarray(order.places, dtype=np.float64), kind="stable").tolist()
    placed = dataclasses.replace(order, texts=[order.texts[i] for i in at], places=[float(order.places[i]) for i in at])
    return [runs[i] for i in at], placed


def _told(runs: Sequence[ReleasedRun]) -> list[tuple[str, Callable[[ReleasedRun], str]]]:
    """What may tell the time of runs, the first that does so first: what it is called, and the text of a run."""
    params = sorted({text(name) for run in runs for name in mapping(run.content.get("params"))})
    return [
        (WINDOW, lambda run: text(run.ledger.get("window"))),
        *((f"parameter {visible(name)}", _parameter(name)) for name in params),
        ("run id", lambda run: text(run.content.get("run_id"))),
    ]


def _place(said: str) -> float:
    """A text as days; what tells no time stands before all that does."""
    day = day_of(said)
    return -np.inf if day is None else day


def _parameter(name: str) -> Callable[[ReleasedRun], str]:
    return lambda run: text(mapping(run.content.get("params")).get(name))


def _is_table(name: str) -> bool:
    return name.endswith(".parquet") and "/" not in name


def _shown(run: ReleasedRun, name: str) -> str:
    return repr(visible(text(run.content.get(name)), 40))
