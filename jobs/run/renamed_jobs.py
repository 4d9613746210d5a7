"""Refuses to charge a job that differs from a released one only in the names of stages and metrics.

In: a run that would be charged, the jobs of the account that have a release. Out: nothing, or a refusal. Holds: it follows from
the job file and the ledger. A metric is the same if everything but its name is, and so is a stage. Not covered: jobs that name a
metric elsewhere too, such as in `having`; these differ in more than names.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dp_pipelines.accounting.shown_costs import spent_number
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.job_fields import Path, fields_of, to_key, to_path
from dp_pipelines.ledger import release_list
from dp_pipelines.report.key_text import visible

if TYPE_CHECKING:
    from dp_pipelines.jobs.run.ledger_account import ReleasedJob
    from dp_pipelines.jobs.spec.job_file import Job

Fields = Mapping[Path, str]

Content = frozenset[tuple[Path, object]]
"""What a part of a job says, without the names in it."""

MOST_NAMED = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenamedWords:
    """What a refusal calls the request, and what it advises.

    Args:
        request: what has other names.
        hint: the ways that cost nothing, and the one that charges.
        differs: what a note says of a request that is charged although the account has other plans.
        free: what else the note says is free.
        stage_is_draw: True if another name of a stage alone asks for a new draw, which is charged.
    """

    request: str
    hint: str
    differs: str = "this job differs from earlier ones"
    free: str = "label, measure, format, title, description and order_by change what readers see for free"
    stage_is_draw: bool = False


OF_JOB = RenamedWords(
    request="a job file",
    hint="keep the names, write label: or title: for what readers see, and make the page again for free with `dp-pipelines "
    "report FOLDER --job JOB --output page.html`; or give --as-new, which charges it, as other parameters or public "
    "files may need",
)

OF_STATEMENT = RenamedWords(
    request="a statement",
    hint="keep the names, and rename columns of the published table, which is free; or give --as-new, which charges it",
    differs="this statement differs from earlier ones, and from jobs,",
    free="ORDER BY without LIMIT is free, and so are other names of columns in the published table",
)

OF_QUERY = RenamedWords(
    request="a query",
    hint="ask for that release by its own name, which is free, and rename columns of its table; or give as_new=True, which "
    "charges it, as other rows may need",
    stage_is_draw=True,
)


def note_of_charge(epsilon: float, words: RenamedWords = OF_JOB) -> str:
    """Return a note for a request that is charged although its account has other plans.

    Args:
        epsilon: what it costs, for all of its runs.
        words: what the request is called, and what is free.
    """
    cost = f"it costs another epsilon {spent_number(epsilon)} for all of its runs"
    return f"{words.differs} on these data, so {cost}; {words.free}"


def refuse_renamed(job: "Job", released_jobs: Sequence["ReleasedJob"], words: RenamedWords = OF_JOB) -> None:
    """Refuse a charge for names alone.

    Args:
        job: what would be charged.
        released_jobs: the jobs of its account that have a release.
        words: what the request is called, and what is advised.

    Raises:
        RequestError: a released job differs in names alone.
    """
    fields = fields_of(job)
    differences = [(released, names_that_differ(released.fields, fields)) for released in released_jobs]
    differences = [(released, renamed) for released, renamed in differences if renamed]
    if words.stage_is_draw and any(all(len(to_path(old)) == 2 for old, _ in names) for _, names in differences):
        return
    for released, renamed in differences:
        listed = ", ".join(f"{visible(old)} -> {visible(new)}" for old, new in renamed[:MOST_NAMED])
        more = f" and {len(renamed) - MOST_NAMED} more" if len(renamed) > MOST_NAMED else ""
        earlier = f"run {release_list.shown_id(released.run_id)!r} of {released.day}"
        message = (
            f"has {words.request} with only other names than that of {earlier}, and would be charged: {listed}{more}"
        )
        raise RequestError(field="run", message=message, hint=words.hint)


def names_that_differ(before: Mapping[str, str], after: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names by which two jobs differ, old and new; nothing if they are equal, or differ in more than names.

    Args:
        before, after: their fields, as `fields_of` gives them.

    >>> old = {"where": "x", "stages.a.kind": "aggregate", "stages.a.metrics.n.kind": "count"}
    >>> names_that_differ(old, {"where": "x", "stages.b.kind": "aggregate", "stages.b.metrics.m.kind": "count"})
    [('stages.a', 'stages.b'), ('stages.a.metrics.n', 'stages.b.metrics.m')]
    >>> names_that_differ(old, {**old, "where": "y"})
    []
    """
    if dict(before) == dict(after):
        return []
    old, new = ({to_path(key): text for key, text in fields.items()} for fields in (before, after))
    if _outside(old) != _outside(new):
        return []
    stages = _parts(old, "stages"), _parts(new, "stages")
    contents, new_contents = (collections.Counter(map(_of_stage, of.values())) for of in stages)
    return list(_names(*stages)) if contents == new_contents else []


def _outside(fields: Fields) -> dict[Path, str]:
    """Return what a job says outside of its stages."""
    return {path: text for path, text in fields.items() if path[:1] != ("stages",)}


def _parts(fields: Fields, key: str) -> dict[Path, Fields]:
    """Return the fields of each stage or metric, by its path, with the paths below it.

    Args:
        fields: of a job, or of a stage.
        key: `stages` or `metrics`.
    """
    found: dict[Path, dict[Path, str]] = collections.defaultdict(dict)
    for path, text in fields.items():
        if path[:1] == (key,) and len(path) > 1:
            found[path[:2]][path[2:]] = text
    return dict(found)


def _of_metric(metric: Fields) -> Content:
    """Return what a metric says."""
    return frozenset(metric.items())


def _of_stage(stage: Fields) -> Content:
    """Return what a stage says, with its metrics by what they are."""
    counted = collections.Counter(_of_metric(metric) for metric in _parts(stage, "metrics").values())
    rest = {path: text for path, text in stage.items() if path[:1] != ("metrics",) or len(path) < 2}
    return frozenset([*rest.items(), (("metrics",), frozenset(counted.items()))])


def _alike(parts: Mapping[Path, Fields], content: Callable[[Fields], Content]) -> dict[Content, list[Path]]:
    """Return the paths of stages or metrics by what they say, in order."""
    found: dict[Content, list[Path]] = collections.defaultdict(list)
    for path in sorted(parts):
        found[content(parts[path])].append(path)
    return dict(found)


def _names(old: Mapping[Path, Fields], new: Mapping[Path, Fields]) -> Iterator[tuple[str, str]]:
    """Yield the names that differ of stages of which each has its like."""
    of_new = _alike(new, _of_stage)
    for content, paths in _alike(old, _of_stage).items():
        for before, after in zip(paths, of_new[content], strict=True):
            if before != after:
                yield to_key(before), to_key(after)
            metrics = [_alike(_parts(of[path], "metrics"), _of_metric) for of, path in ((old, before), (new, after))]
            for said, names in metrics[0].items():
                for name, other in zip(names, metrics[1][said], strict=True):
                    if name != other:
                        yield to_key((*before, *name)), to_key((*after, *other))
