"""What notes say, as JSON values: a profile of tables, of the join and of each stage.

In: notes, and what is public of what was counted. Out: dicts and lists. Holds: what was counted of nothing is 0, a share of
nothing is null. NOT private. Not covered: what to make of it (`advice`).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.extensions.check import late_rows
from dp_pipelines.extensions.check.bound_shares import ProfiledClip, ProfiledStage
from dp_pipelines.extensions.check.late_rows import EarlierRuns
from dp_pipelines.extensions.check.notes import Fact
from dp_pipelines.steps.unbounded_rows import SIZES

Facts = Mapping[Fact, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfiledTable:
    """What is public of rows that were looked at.

    Args:
        name: of the table in the job; empty for the rows that stages read.
        unit: columns of the privacy unit.
        read: columns whose nulls were counted as they were read.
        defined: columns that the job defines.
        lookups: the public tables, by what the job calls their files, and their keys.
        has_where: whether rows are filtered.
        has_window: whether only rows of a window count.
        on: columns by which rows meet those of another table.
    """

    name: str
    unit: Sequence[str]
    read: Sequence[str]
    defined: Sequence[str]
    lookups: Sequence[tuple[str, Sequence[str]]] = ()
    has_where: bool = False
    has_window: bool = False
    on: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfiledUnits:
    """What is public of a stage that looks at whole units.

    Args:
        name: of the stage.
        max_rows_per_unit: that its columns see.
        defined: its unit columns.
        has_where: whether its rows are filtered.
    """

    name: str
    max_rows_per_unit: int
    defined: Sequence[str]
    has_where: bool


def share(part: float, whole: float) -> float | None:
    """A part of a whole; None where there is nothing, or the whole is so small that no number says the share.

    >>> share(1, 4), share(0, 0), share(5, 1e-310)
    (0.25, None, None)
    """
    if not whole or not math.isfinite(whole):
        return None
    found = part / whole
    return found if math.isfinite(found) else None


def of_table(facts: Facts, table: ProfiledTable) -> dict[str, Any]:
    """What became of the rows of a table.

    Args:
        facts: the notes.
        table: what is public of it.
    """

    def number(*fact: str) -> float:
        return facts.get(("rows", table.name, *fact), 0.0)

    inside, kept, shaped = number("in_window"), number("kept"), number("shaped")
    columns = [_column(name, "source", inside, number("nulls", name)) for name in table.read]
    columns += [_column(name, "columns", kept, number("nulls_of_defined", name)) for name in table.defined]
    found: dict[str, Any] = {"table": table.name, "rows": _whole(number("read"))}
    if table.has_window:
        found["in_window"] = _part(inside, number("read"))
    if table.has_where:
        found["where"] = _part(kept, inside) | {"null": _part(number("where_null"), inside)}
    found["lookups"] = [
        {
            "table": name,
            "on": list(on),
            "without_match": _part(number("lookup", str(at), "without_match"), number("lookup", str(at), "rows")),
            "null_key": _part(number("lookup", str(at), "null_key"), number("lookup", str(at), "rows")),
        }
        for at, (name, on) in enumerate(table.lookups)
    ]
    found["shaped"] = _whole(shaped)
    found["without_unit"] = {"unit": list(table.unit)} | _part(number("without_unit"), shaped)
    if table.on:
        found["without_on"] = {"on": list(table.on)} | _part(number("without_on"), shaped)
    return found | {"columns": columns}


def of_released(facts: Facts, found: EarlierRuns) -> dict[str, Any]:
    """Say which releases the window of a run has, and how many rows came after them.

    Args:
        facts: the notes.
        found: what is public of it.
    """

    def counted(table: str) -> float:
        return facts.get(("rows", table, "shaped"), 0.0) - facts.get(("rows", table, "without_unit"), 0.0)

    files = None if found.names is None else list(found.names)
    said = {"run": found.run, "day": found.day, "runs": found.runs, "files": files}
    return {**said, "rows": _part(counted(late_rows.NAME), counted(""))}


def of_join(facts: Facts, names: Sequence[str], most: Sequence[int]) -> dict[str, Any]:
    """How the rows and units of two tables meet.

    Args:
        facts: the notes.
        names: of the left and the right table.
        most: for each of them, how many rows of a unit are joined.
    """
    both = facts.get(("join", "units_of_both"), 0.0)
    tables = []
    for side, name, cap in zip(("left", "right"), names, most, strict=True):

        def number(fact: str, side: str = side) -> float:
            return facts.get(("join", side, fact), 0.0)

        candidates = sum(
            facts.get(("rows", name, fact), 0.0) * sign
            for fact, sign in (("shaped", 1), ("without_unit", -1), ("without_on", -1))
        )
        capped = number("capped")
        tables.append(
            {
                "table": name,
                "max_rows_per_unit": cap,
                "kept_by_cap": _part(capped, candidates),
                "without_match": _part(capped - number("matched"), capped),
                "units": _whole(number("units")),
                "units_in_both": _part(both, number("units")),
            }
        )
    return {"tables": tables, "pairs": _whole(facts.get(("join", "pairs"), 0.0))}


def of_units(facts: Facts, unit: ProfiledUnits, rows: float) -> dict[str, Any]:
    """What a stage's look at whole units keeps.

    Args:
        facts: the notes.
        unit: what is public of it.
        rows: with a unit, before it.
    """

    def number(*fact: str) -> float:
        return facts.get(("stage", unit.name, *fact), 0.0)

    seen, kept = number("rows_of_units"), number("rows_kept")
    found: dict[str, Any] = {
        "max_rows_per_unit": unit.max_rows_per_unit,
        "kept_by_cap": _part(seen, rows),
        "columns": [_column(name, "unit_columns", seen, number("nulls", name)) for name in unit.defined],
    }
    return found | ({"where": _part(kept, seen)} if unit.has_where else {})


def of_stage(facts: Facts, stage: ProfiledStage, level_columns: Sequence[Sequence[str]]) -> dict[str, Any]:
    """What the bounds of an aggregate stage keep, and how large its groups are.

    Args:
        facts: the notes.
        stage: what was counted.
        level_columns: for each level, the columns of its partitions.
    """

    def number(*fact: object) -> float:
        return facts.get(("stage", stage.name, *map(str, fact)), 0.0)

    rows, units, pairs = number("counted"), number("units"), number("pairs")
    largest = max((int(fact[3]) for fact in facts if fact[:3] == ("stage", stage.name, "largest_unit")), default=0)
    bounds = []
    for name, value in _bounds(stage).items():
        per_pair = name == "max_contributions_per_partition"
        others = stage.other_rows if per_pair or name == "max_contributions" else stage.other_partitions
        bounds.append(
            {
                "bound": name,
                "value": value,
                "rows_kept": _part(number("bound", name, "rows"), rows),
                "pairs_cut" if per_pair else "units_cut": _part(
                    number("bound", name, "cut"), pairs if per_pair else units
                ),
                "others": [
                    {"value": other, "rows_kept": _part(number("other", name, other), rows)} for other in others
                ],
            }
        )
    found: dict[str, Any] = {
        "stage": stage.name,
        "kind": "aggregate",
        "rows": _whole(number("rows")),
        "without_unit": _part(number("without_unit"), number("rows")),
    }
    if stage.layout.public is not None and stage.layout.partitions:
        found["unlisted"] = _part(number("unlisted"), number("rows"))
    return found | {
        "units": _whole(units),
        "pairs": _whole(pairs),
        "largest_unit": _part(largest, rows),
        "bounds": bounds,
        "rows_kept": _part(number("kept", "rows"), rows),
        "pairs_kept": _part(number("kept", "pairs"), pairs),
        "units_cut": _part(number("units_cut"), units),
        "groups_of_units": _histogram(facts, stage, "groups_of_units"),
        "rows_of_pairs": _histogram(facts, stage, "rows_of_pairs"),
        "clips": [_clip(clip, number) for clip in stage.clips],
        "levels": [_level(facts, stage, place, columns) for place, columns in enumerate(level_columns)],
    }


def of_examples(facts: Facts, name: str, most: int, features: Sequence[str], *, ranged: bool) -> dict[str, Any]:
    """What becomes of the examples of a train stage.

    Args:
        facts: the notes.
        name: of the stage.
        most: examples of a unit that are kept.
        features: their names.
        ranged: whether the label has a range.
    """

    def number(*fact: str) -> float:
        return facts.get(("stage", name, *fact), 0.0)

    examples, units = number("examples"), number("units")
    label: dict[str, Any] = {"none": _part(number("label", "none"), examples)}
    if ranged:
        label |= {side: _part(number("label", side), examples) for side in ("below", "above")}
    return {
        "stage": name,
        "kind": "train",
        "examples": _whole(examples),
        "units": _whole(units),
        "max_examples_per_unit": most,
        "examples_kept": _part(number("kept", "examples"), examples),
        "units_cut": _part(number("cut", "units"), units),
        "label": label,
        "features": [
            {"feature": feature}
            | {
                fact: _part(number("feature", feature, fact), examples)
                for fact in ("nulls", "below", "above", "others")
                if ("stage", name, "feature", feature, fact) in facts
            }
            for feature in features
        ],
    }


def _bounds(stage: ProfiledStage) -> dict[str, int]:
    layout = stage.layout
    if layout.max_rows is not None:
        return {"max_contributions": layout.max_rows}
    of_rows = {"max_contributions_per_partition": layout.max_rows_per_partition} if stage.bounds_rows else {}
    return {"max_partitions_contributed": layout.max_partitions} | of_rows


def _clip(clip: ProfiledClip, number: Any) -> dict[str, Any]:
    values, summed = number("clip", clip.metric, "values"), number("clip", clip.metric, "sum")
    found: dict[str, Any] = {"metric": clip.metric, "column": clip.column, "of_sums": clip.of_sums}
    if not clip.by_partition:
        found |= {"low": clip.low, "high": clip.high}
    found |= {side: _part(number("clip", clip.metric, side), values) for side in ("below", "above")}
    if not clip.of_sums:
        found["nulls"] = _part(number("clip", clip.metric, "nulls"), values + number("clip", clip.metric, "nulls"))
    if clip.adds_up and not clip.by_partition:
        found["sum"] = _number(summed)
        found["sum_clamped"] = _part(number("clip", clip.metric, "clamped"), summed)
        found["sum_kept"] = _part(number("clip", clip.metric, "kept"), summed)
    return found


def _level(facts: Facts, stage: ProfiledStage, place: int, columns: Sequence[str]) -> dict[str, Any]:
    """The groups of a level, by size."""
    about = ("stage", stage.name, "level", str(place), "size")
    buckets = sorted({int(fact[len(about)]) for fact in facts if fact[: len(about)] == about})
    sizes: list[dict[str, Any]] = []
    for bucket in buckets:
        low, high = _size(bucket)
        numbers = {name: facts.get((*about, str(bucket), name), 0.0) for name in ("groups", "rows", "published")}
        sizes.append({"units_from": low, "units_below": high, **numbers})
    groups, rows = (sum(size[name] for size in sizes) for name in ("groups", "rows"))
    shown = sum(facts.get((*about, str(bucket), "published_rows"), 0.0) for bucket in buckets)
    level = stage.levels[place]
    found: dict[str, Any] = {
        "partition_by": list(columns),
        "groups": _whole(groups),
        "published": _part(sum(size["published"] for size in sizes), groups),
        "published_rows": _part(shown, rows),
        "sizes": sizes,
    }
    return found | ({"listed": level.listed, "empty": max(level.listed - _whole(groups), 0)} if level.listed else {})


def _size(bucket: int) -> tuple[int, int | None]:
    """The numbers of units of a bucket: from, and below.

    >>> _size(1), _size(3)
    ((1, 4), (10, 32))
    """
    ends = [1, *map(math.ceil, SIZES)]
    return ends[bucket - 1], ends[bucket] if bucket < len(ends) else None


def _histogram(facts: Facts, stage: ProfiledStage, name: str) -> list[dict[str, Any]]:
    """How many units, or pairs, have how much: from and to, both in it."""
    about = ("stage", stage.name, name)
    buckets = sorted(int(fact[3]) for fact in facts if fact[:3] == about)
    return [
        {
            "from": 2 ** (bucket - 1) + 1 if bucket else 1,
            "to": 2**bucket,
            "number": _whole(facts[(*about, str(bucket))]),
        }
        for bucket in buckets
    ]


def _column(name: str, where: str, rows: float, nulls: float) -> dict[str, Any]:
    return {"column": name, "of": where, "rows": _whole(rows), "nulls": _part(nulls, rows)}


def _part(part: float, whole: float) -> dict[str, Any]:
    """A number and its share."""
    return {"number": _number(part), "share": share(part, whole)}


def _number(number: float) -> float | int | None:
    """A number for JSON, which has no infinity; a whole one without a point."""
    if not math.isfinite(number):
        return None
    return number if number % 1 else _whole(number)


def _whole(number: float) -> int:
    return round(number)
