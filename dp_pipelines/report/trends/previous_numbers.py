"""The headline numbers of the run before, as far as they can be compared with those of a run.

In: the manifests and the published tables of both. Out: numbers with their deviations, by stage and metric, as a manifest keeps
them. Holds: they are released numbers of that run; what is not about the same groups under the same limits is left out, so that
no difference of limits looks like a change. Not covered: which run is the one before (`jobs.run.previous_release`).
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.metrics import registry
from dp_pipelines.report.pages import mapping, mappings, sequence, text
from dp_pipelines.report.released_table import Published, laws_of, of_table, read_published
from dp_pipelines.report.words import headline

MOST_GROUPS = 10_000
"""Groups of a table that are compared one by one."""

LIMITS = ("bounds", "clamp", "within")
"""What an entry of a metric says of limits that a run may have chosen."""


def comparable_numbers(
    content: Mapping[str, Any],
    tables: Mapping[str, pathlib.Path],
    before: Mapping[str, Any],
    tables_before: Mapping[str, bytes],
) -> dict[str, dict[str, list[float]]]:
    """Return the headline numbers of the run before: of each stage and metric the value and the deviation of its noise.

    Args:
        content, tables: the manifest of a run, and its published files by stage.
        before, tables_before: the same of the run before; the content of its files.

    Raises:
        OSError, pyarrow.ArrowException: a table of the run cannot be read.
    """
    entries = {text(stage.get("name")): stage for stage in mappings(before.get("stages"))}
    found: dict[str, dict[str, list[float]]] = {}
    for stage in mappings(content.get("stages")):
        name, entry = text(stage.get("name")), entries.get(text(stage.get("name")))
        if entry is None or name not in tables or name not in tables_before or not _same_limits(stage, entry):
            continue
        keys = [text(key) for key in sequence(stage.get("partition_by"))]
        known = {text(key): registry.of_kind(of.get("kind")) for key, of in _metrics(stage).items()}
        now = read_published(tables[name], keys, laws_of(stage))
        try:
            then = of_table(pa.parquet.read_table(pa.BufferReader(tables_before[name])), keys, laws_of(entry))
        except (OSError, pa.ArrowException):
            continue  # of another version: that there is nothing to compare is no reason to lose a release
        totals = {total.name: total for total in headline.totals(now, stage, known)}
        numbers = {
            old.name: [old.value, old.stddev]
            for old in headline.totals(then, entry, known)
            if old.name in totals and old.is_noisy and (old.published or _same_groups(now, then))
        }
        if numbers:
            found[name] = numbers
    return found


def _metrics(stage: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {text(name): mapping(entry) for name, entry in mapping(stage.get("metrics")).items()}


def _same_limits(stage: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    if any(stage.get(name) != before.get(name) for name in ("limits", "max_partitions_contributed", "partition_by")):
        return False
    ours, theirs = _metrics(stage), _metrics(before)
    return ours.keys() == theirs.keys() and all(
        ours[name].get(limit) == theirs[name].get(limit) for name in ours for limit in LIMITS
    )


def _same_groups(now: Published, then: Published) -> bool:
    if now.table.num_rows != then.table.num_rows or now.table.num_rows > MOST_GROUPS:
        return False
    keys = [key.name for key in now.keys]
    if keys != [key.name for key in then.keys]:
        return False
    rows = [set(map(repr, table.select(keys).to_pylist())) for table in (now.table, then.table)]
    return rows[0] == rows[1]
