"""Plain advice about a profile: what stands out, in sentences, what weighs most first.

In: the JSON values of `findings`. Out: sentences. Holds: what is advised names a column, a key of the job file or a public
table, and gives a share; no value of a row and no key of a partition stands in it. NOT private: shares depend on rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dp_pipelines.extensions.check import late_rows

Advice = tuple[float, str]
"""How much it weighs, from 0 to 1, and the sentence."""

NULLS, MATCHES, UNITS, OUTSIDE = 0.2, 0.01, 0.01, 0.05
"""Shares from which on nulls, rows without a match, rows without a unit, and values beyond a clamp are worth a sentence."""

KEPT, ENOUGH, ALL = 0.8, 0.95, 0.999
"""A bound that keeps less than the first share of rows is told, with one that keeps the second; one that is as good as without
effect is told where a smaller one would keep the third."""

LARGE, TIMES = 0.02, 10
"""A unit with this share of all rows, and so many times the rows of the average unit, is worth a sentence."""

HALF_BARS = 1.0
"""So many halves of an error bar that limits cut off are worth a sentence: then the bar misses the true number on average."""

PUBLISHED = 0.5
"""Below so large a share of groups that are likely to be published, that is told."""


def advice(profile: Mapping[str, Any]) -> list[str]:
    """What stands out.

    Args:
        profile: as the JSON file has it: `tables`, `join` and `stages`, and `released` of a window.
    """
    found: list[Advice] = []
    all_of_them = "joined rows" if profile["join"] is not None else "rows of all tables"
    for table in profile["tables"]:
        others = all_of_them if len(profile["tables"]) > 1 else "rows"
        found += _of_table(table, f"rows of {table['table']}" if table["table"] else others)
    if profile.get("released") is not None:
        found += late_rows.sentences(profile["released"])
    if profile["join"] is not None:
        found += _of_join(profile["join"])
    for stage in profile["stages"]:
        of_kind = _of_aggregate if "bounds" in stage else _of_examples
        found += of_kind(stage)
        found += _of_units(stage)
    return [text for _, text in sorted(found, key=lambda each: -each[0])]


def percent(part: float | None) -> str:
    """A share for readers.

    >>> percent(0.371), percent(0.9999), percent(0.00001), percent(None)
    ('37.1%', '99.9%', 'under 0.1%', '–')
    """
    if part is None:
        return "–"
    if 0 < part < 0.001:
        return "under 0.1%"
    return "99.9%" if 0.999 <= part < 1 else f"{100 * part:.3g}%"


def _share(fact: Mapping[str, Any] | None) -> float:
    return 0.0 if fact is None or fact["share"] is None else float(fact["share"])


def _of_table(table: Mapping[str, Any], rows: str) -> Iterator[Advice]:
    if not table["rows"]:
        yield 1.0, f"There are no {rows}."
        return
    where, window = table.get("where"), table.get("in_window")
    if window is not None and not window["number"]:
        yield 1.0, "No row is in the run's window: check the parameter and the type of the window's column."
        return
    if where is not None and _share(where) < OUTSIDE:
        kept = "no row" if not where["number"] else f"only {percent(where['share'])} of {rows}"
        yield 1 - _share(where), f"where keeps {kept}."
    if where is not None and _share(where["null"]) >= MATCHES:
        share = where["null"]["share"]
        text = (
            f"where is neither true nor false for {percent(share)} of {rows}, which are dropped: a column that it names is "
            "null there, or an expression fails."
        )
        yield share, text
    for lookup in table["lookups"]:
        share, no_key = _share(lookup["without_match"]), _share(lookup["null_key"])
        if share >= MATCHES:
            on = ", ".join(lookup["on"])
            why = f" For {percent(no_key)}, {on} is null." if no_key >= MATCHES else ""
            text = (
                f"{percent(share)} of {rows} have no match in lookup {lookup['table']}: its columns are null there.{why} "
                f"Compare type, spelling and leading zeros of {on} in both."
            )
            yield share, text
    yield from _of_columns(table["columns"], rows)
    share = _share(table["without_unit"])
    if share >= UNITS:
        text = (
            f"{percent(share)} of {rows} have no privacy unit ({', '.join(table['without_unit']['unit'])} is null): they are "
            "nobody's, and count nowhere."
        )
        yield share, text
    share = _share(table.get("without_on"))
    if share >= MATCHES:
        yield share, f"{percent(share)} of {rows} meet nothing, since {', '.join(table['without_on']['on'])} is null."


def _of_columns(columns: Sequence[Mapping[str, Any]], rows: str) -> Iterator[Advice]:
    for column in columns:
        share, name = _share(column["nulls"]), column["column"]
        made = column["of"] != "source"
        if column["rows"] and share == 1:
            why = "its expression fails on each row, or what it reads is null" if made else "check its type and format"
            yield 1.0, f"Column {name} is null in all {rows}: {why}."
        elif share >= NULLS:
            why = (
                "where an expression fails, it is null" if made else "metrics leave nulls out; as a group they are one"
            )
            yield share, f"Column {name} is null in {percent(share)} of {rows}: {why}."


def _of_join(join: Mapping[str, Any]) -> Iterator[Advice]:
    for table in join["tables"]:
        share, both = _share(table["without_match"]), _share(table["units_in_both"])
        if share >= MATCHES:
            why = ""
            if table["units"] and both < 1 - MATCHES:
                why = f" {percent(1 - both)} of its units are not in the other table at all: are units spelled alike in both?"
            yield share, f"{percent(share)} of rows of {table['table']} meet no row of the other table.{why}"
        if table["kept_by_cap"]["share"] is not None and _share(table["kept_by_cap"]) < ENOUGH:
            share = _share(table["kept_by_cap"])
            text = f"join.max_rows_per_unit: {table['max_rows_per_unit']} keeps {percent(share)} of the rows of {table['table']}."
            yield 1 - share, text


def _of_units(stage: Mapping[str, Any]) -> Iterator[Advice]:
    """What a look at whole units costs."""
    unit = stage.get("unit_columns")
    if unit is None:
        return
    kept = unit["kept_by_cap"]["share"]
    if kept is not None and kept < ENOUGH:
        yield (
            1 - kept,
            f"{stage['stage']}: max_rows_per_unit: {unit['max_rows_per_unit']} keeps {percent(kept)} of the rows.",
        )
    if "where" in unit and _share(unit["where"]) < OUTSIDE:
        yield 1 - _share(unit["where"]), f"{stage['stage']}: where keeps {percent(unit['where']['share'])} of the rows."
    yield from _of_columns(unit["columns"], f"rows of stage {stage['stage']}")


def _of_aggregate(stage: Mapping[str, Any]) -> Iterator[Advice]:
    name = stage["stage"]
    if not stage["units"]:
        yield 1.0, f"{name}: no row of a unit reaches this stage."
        return
    share = _share(stage.get("unlisted"))
    if share >= OUTSIDE:
        yield share, f"{name}: {percent(share)} of the rows are in no listed partition, and count nowhere."
    share = _share(stage["largest_unit"])
    if share >= LARGE and share * stage["units"] >= TIMES:
        remedy = "If it is nobody in particular, such as one id for all guests, leave it out with where."
        yield share, f"{name}: one unit has {percent(share)} of all rows. {remedy}"
    losses: Sequence[Mapping[str, Any]] = stage.get("losses", ())
    compared = {loss["metric"] for loss in losses}
    yield from _of_losses(name, losses)
    for bound in stage["bounds"]:
        yield from _of_bound(name, bound, compared=bool(compared))
    for clip in stage["clips"]:
        if clip["metric"] not in compared:
            yield from _of_clip(name, clip)
    for level in stage["levels"]:
        yield from _of_level(name, level)


def _of_losses(name: str, losses: Sequence[Mapping[str, Any]]) -> Iterator[Advice]:
    """What limits cut off that noise does not hide, with the limit to change and its price; smaller losses are harmless."""
    for loss in losses:
        bars = loss["bars"]
        if bars < HALF_BARS:
            continue
        text = (
            f"{name}: the limits cut off {percent(loss['share'])} of {loss['metric']}, about {rough(loss['missing'])} of "
            f"{rough(loss['each'])} in a group of average size, and the noise there is ± {rough(loss['noise'])}: the bar misses "
            f"the true number. {remedy(loss)}"
        )
        yield bars / (1 + bars), text.rstrip()


def remedy(loss: Mapping[str, Any]) -> str:
    """Return which limit to change, and what that costs; empty where no limit cuts off anything by itself.

    >>> loss = {"limit": "max_partitions_contributed", "value": 4, "keeps": 0.9, "instead": 8, "would_keep": 0.99}
    >>> remedy({**loss, "noise_times": 2**0.5})
    'max_partitions_contributed: 4 keeps 90% of the rows; 8 would keep 99%, with 1.4 times the noise.'
    """
    if loss["limit"] is None:
        return ""
    if loss["limit"] == "clamp":
        return f"Its clamp keeps {percent(loss['keeps'])} of the sum; the noise grows as much as the clamp does."
    text = f"{loss['limit']}: {loss['value']} keeps {percent(loss['keeps'])} of the rows"
    if "instead" not in loss:
        return f"{text}."
    return f"{text}; {loss['instead']} would keep {percent(loss['would_keep'])}, with {loss['noise_times']:.2g} times the noise."


def rough(number: float) -> str:
    """Return a number that is not negative with three digits.

    >>> rough(1234.5), rough(0.01234), rough(0)
    ('1,230', '0.0123', '0')
    """
    return f"{float(f'{number:.3g}'):,.10g}"


def _of_bound(name: str, bound: Mapping[str, Any], *, compared: bool) -> Iterator[Advice]:
    """What a bound keeps of the rows, unless the losses of metrics say it, and whether a smaller one would do."""
    kept, others = _share(bound["rows_kept"]), bound["others"]
    if kept < KEPT:
        if compared:
            return
        larger = [other for other in others if other["value"] > bound["value"]]
        good = next((other for other in larger if _share(other["rows_kept"]) >= ENOUGH), larger[-1] if larger else None)
        instead = f" {good['value']} would keep {percent(_share(good['rows_kept']))}, with more noise." if good else ""
        yield 1 - kept, f"{name}: {bound['bound']}: {bound['value']} keeps {percent(kept)} of the rows.{instead}"
        return
    smaller = [other for other in others if other["value"] < bound["value"] and _share(other["rows_kept"]) >= ALL]
    if smaller:
        least = smaller[0]
        text = (
            f"{name}: {bound['bound']}: {bound['value']} is wider than these rows need: {least['value']} would keep "
            f"{percent(_share(least['rows_kept']))}, with less noise."
        )
        yield 0.01, text


def _of_clip(name: str, clip: Mapping[str, Any]) -> Iterator[Advice]:
    what = "units' sums" if clip["of_sums"] else "values"
    for side, key in (("below", "low"), ("above", "high")):
        share = _share(clip[side])
        if share >= OUTSIDE:
            end = f", {clip[key]:g}" if key in clip else ""
            field = ("min" if side == "below" else "max") + ("_sum_per_partition" if clip["of_sums"] else "_value")
            yield (
                share,
                f"{name}: {percent(share)} of the {what} of {clip['column']} are {side} {field} of {clip['metric']}{end}.",
            )


def _of_level(name: str, level: Mapping[str, Any]) -> Iterator[Advice]:
    by = ", ".join(level["partition_by"]) or "everything"
    share = level["published"]["share"]
    if share is not None and share < PUBLISHED:
        text = (
            f"{name}: of {level['groups']:,} groups by {by} about {_round(level['published']['number'])} are likely to be "
            f"published, with {percent(level['published_rows']['share'])} of the rows. Coarser groups, or a public list, "
            "would show more."
        )
        yield 1 - share, text
    if level.get("empty") and level["empty"] >= PUBLISHED * level["listed"]:
        yield (
            0.1,
            f"{name}: {level['empty']:,} of {level['listed']:,} listed partitions by {by} have no row: what they show is noise.",
        )


def _round(number: float) -> str:
    return f"{number:,.0f}" if number >= 1 else "none"


def _of_examples(stage: Mapping[str, Any]) -> Iterator[Advice]:
    name = stage["stage"]
    if not stage["examples"]:
        yield 1.0, f"{name}: no example is left."
        return
    kept = _share(stage["examples_kept"])
    if kept < KEPT:
        text = (
            f"{name}: max_examples_per_unit: {stage['max_examples_per_unit']} keeps {percent(kept)} of the examples; "
            f"{percent(_share(stage['units_cut']))} of the units have more."
        )
        yield 1 - kept, text
    share = _share(stage["label"]["none"])
    if share >= OUTSIDE:
        yield share, f"{name}: {percent(share)} of the examples have no label that it declares, and are left out."
    for about, facts in (("the label", stage["label"]), *((f["feature"], f) for f in stage["features"])):
        for side in ("below", "above"):
            share = _share(facts.get(side))
            if share >= OUTSIDE:
                yield share, f"{name}: {percent(share)} of the values of {about} are {side} the declared range."
        for fact, words in (("nulls", "null"), ("others", "none of the declared categories")):
            share = _share(facts.get(fact))
            if share >= NULLS:
                yield share, f"{name}: {percent(share)} of the values of {about} are {words}."
