"""The job file that `dp-pipelines tune` suggests, with other values, ready to be planned in its folder.

In: a job file, what to set, what to say above it. Out: YAML text. Holds: it parses to the job with these values and nothing else
changed, but for paths of files, which are written whole; comments and layout stay where every value that changes stands in the
file already, else the job is written anew without them. Not covered: whether the comments still fit the new values.
"""

import copy
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.spec import yaml_lines
from dp_pipelines.jobs.spec.content import Path
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.spec.source_models import SourceModel


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes all text, so that no reader takes it for something else."""


_Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def text_with(
    file: JobFile,
    original: str,
    changes: Mapping[Path, Any],
    header: Sequence[str],
    tuned: Mapping[str, str] | None = None,
) -> str:
    """The job with other values.

    Args:
        file: the job.
        original: its text.
        changes: values by their places.
        header: lines of a comment above it.
        tuned: the look at raw rows that chose the values, which the job is to name; None where there was none.
    """
    changes = {**paths(file), **changes}
    wanted = copy.deepcopy(file.document.data)
    for path, value in changes.items():
        around = wanted
        for step in path[:-1]:
            if isinstance(around, dict) and not isinstance(around.get(step), (dict, list)):
                around[step] = {}
            around = around[step]
        around[path[-1]] = value
    known = wanted.get("tuned") or []
    named = {"tuned": [*known, dict(tuned)]} if tuned is not None and tuned not in known else {}
    above = "".join(f"# {line}".rstrip() + "\n" for line in header)
    edited = _edited(original, changes)
    if edited is not None and named:
        edited = f"tuned: {json.dumps(named['tuned'], ensure_ascii=False)}\n{edited}"
    wanted = {**named, **{name: value for name, value in wanted.items() if name not in named}}
    if edited is None or not _says(edited, wanted):
        return above + yaml.dump(wanted, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return above + edited


def _says(text: str, wanted: Any) -> bool:
    try:
        return bool(yaml_lines.parse(text, "suggested.yaml").data == wanted)
    except RequestError:  # a value was the anchor of another
        return False


def paths(file: JobFile) -> dict[Path, str]:
    """The files that a job names relative to its own folder, with that folder before them."""
    folder, found = file.path.parent.resolve(), {}
    tables: dict[Path, int] = {("tables", name): len(table.lookups) for name, table in (file.job.tables or {}).items()}
    parts: list[Path] = [("source",), *tables]
    places: list[Path] = [(*part, name, key.path_key) for part in parts for name, key in SourceModel.readers.items()]
    for place, number in {(): len(file.job.lookups), **tables}.items():
        parts += [(*place, "lookup"), *((*place, "lookup", each) for each in range(number))]
    places += [(*part, kind) for part in parts for kind in SourceModel.formats_of_files]
    places += [("stages", name, "partitions", "public_file") for name in file.job.stages]
    for path in places:
        held: Any = file.document.data
        for step in path:
            if isinstance(step, int):
                held = held[step] if isinstance(held, list) else None
            else:
                held = held.get(step) if isinstance(held, Mapping) else None
        if isinstance(held, str) and "://" not in held and not pathlib.Path(held).is_absolute():
            # A public list is one file; the others are globs, in which a folder's own name stands for itself.
            found[path] = str(
                folder / held if path[-1] in ("public_file", "path") else source_files.glob_under(folder, held)
            )
    return found


def _edited(original: str, changes: Mapping[Path, Any]) -> str | None:
    """The text with other values in their places, or None where one has no place."""
    try:
        spans = yaml_lines.spans(original)
    except yaml.YAMLError:
        return None
    if not set(changes) <= set(spans):
        return None
    for path in sorted(changes, key=lambda path: spans[path], reverse=True):
        begin, end = spans[path]
        original = original[:begin] + json.dumps(changes[path], ensure_ascii=False) + original[end:]
    return original
