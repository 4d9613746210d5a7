"""The text of a first job file, with comments, from names and types of columns alone.

In: a source, a privacy unit, a dataset. Out: YAML that `plan` takes as it stands. Holds: the same schema gives the same text;
what cannot be known from types (clamps, the account) has a sound default, and a comment on how to choose it; bounds are chosen by
each run. Not covered: whether it suits the rows, which are not read.
"""

import json
import re
from collections.abc import Sequence

import pyarrow as pa

from dp_pipelines.auto_bounds import joint_bounds, partition_bound, value_bounds
from dp_pipelines.jobs.init.data_files import FirstSource
from dp_pipelines.query import kept

MOST_SUMS, MOST_LISTED = 3, 8

MOST_NAMED = 400
"""Columns that a comment names, on as many lines as they need."""

WIDTH = 118
"""Characters of a line of such a comment."""

NARROW = 16
"""Bits of whole numbers that may be codes: these have too few values for ids."""

NO_AMOUNTS = re.compile(
    r"(^|_)(ids?|keys?|[a-z]*key|pk|fk|sku|uuid|guid|hash|code|zip|postcode|phone|number|num|no|nr|row|rows?_?(no|num|number)"
    r"|rownum|rowid|rn|rank|seq|sequence|idx|index|position|lat|latitude|lon|lng|longitude|flag|type|status|category|class"
    r"|level|grade|segment|cluster|version|year|month|week|day|hour|minute|date|time|timestamp)$"
    r"|^(is|has|was|id|flag)_|^unnamed"
)
"""Names of numbers whose sum says nothing: ids, keys, numbers of rows, codes, flags, parts of dates."""

AMOUNTS = re.compile(
    r"(^|_)(amounts?|prices?|costs?|fees?|revenue|turnover|sales|income|wages?|salary|spend|spent|paid|total|sum|balance|tips?"
    r"|fares?|tax|taxes|discount|quantity|qty|counts?|visits|clicks|views|orders|items|units|pieces|passengers|points|minutes"
    r"|seconds|hours|days|duration|distance|miles|km|weight|bytes|size|volume|value|delay)$"
    r"|^(n|num|number_of|total|sum)_"
)
"""Names of whole numbers that are amounts; other whole numbers may be codes."""

NO_GROUPS = re.compile(
    r"(^|_)(ids?|key|uuid|guid|hash|name|email|mail|phone|address|street|ip|comment|note|notes|description|text|message"
    r"|url|token|password|receipt|invoice|order|ticket|basket|session|transaction|serial|at|date|datetime|time|timestamp)$"
)
"""Names of texts that differ from row to row, that name people, or that are times: no group of such a column is large."""

BOUNDS = (
    "    # How much one person may count; what is above is left out at random. For up to 9% of the budget each run chooses it",
    "    # from noisy numbers, and measures how much it cuts off: then the report has ranges for the true numbers. Bounds you",
    "    # know cost nothing. Take them from what you know of the business, never from the rows: a bound read off the rows",
    "    # reveals something about the people in them. For example:",
)
"""The comment in place of the bounds, which are left out."""

OF_RUNS = (partition_bound.COLUMN, joint_bounds.COLUMN, value_bounds.COLUMN, kept.COLUMN)
"""Columns that a run adds where it chooses bounds: a stage that reads one of its own with such a name is refused."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NOT_TEXT = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def text(source: FirstSource, unit: Sequence[str], dataset: str, name: str) -> str:
    """The job file.

    Args:
        source: what it reads.
        unit: the columns of the privacy unit; none where each row is a person.
        dataset: the account.
        name: how a shell names the job file, for the commands in its head.
    """
    fields = [field for field in source.schema if field.name not in unit]
    times = [field.name for field in fields if _is_time(field.type)]
    unread = [field.name for field in fields if field.name in OF_RUNS]
    fields = [field for field in fields if field.name not in OF_RUNS]
    groups = [field.name for field in fields if _is_group(field)]
    groups += [field.name for field in fields if _is_code(field)]
    amounts = [field.name for field in fields if _is_amount(field)]
    no_amounts = [field.name for field in fields if _is_number(field.type) and field.name not in amounts]
    week = _free("week", source.schema.names)
    by = [week] if times else groups[:1]
    lines = [
        "# Written by `dp-pipelines init` from names and types of columns. No row was read.",
        "# Next:",
        f"#   dp-pipelines plan {name}                                  (noise and cost; reads no row)",
        f"#   dp-pipelines run {name} --synthetic --output out/made-up  (the whole report, of made-up rows; costs nothing)",
        "",
        "# The account that these releases are charged to: one name for each group of people, whatever the files.",
        f"dataset: {scalar(dataset)}",
        *_unit(unit),
        "# Smaller numbers protect more and need more noise. `runs: 52` would share this budget among 52 weekly reports.",
        "budget: {epsilon: 1.0, delta: 1.0e-6}",
        *_source(source),
    ]
    if times:
        lines += [
            "columns:",
            f"  {scalar(week)}: {_week(times[0])}",
            *(f"  {line}" for line in _also("other times", times[1:])),
        ]
    stage = "weekly" if times else "groups" if by else "total"
    lines += ["stages:", f"  {stage}:", "    kind: aggregate"]
    if by:
        lines += [
            "    # One row of the report for each group. Groups of few people are left out; `plan` says how many are needed.",
            f"    partition_by: {listed(by)}",
            *(f"    {line}" for line in _also("can be added", [name for name in groups if name not in by])),
            *(
                [*BOUNDS, "    # bounds: {max_partitions_contributed: 8, max_contributions_per_partition: 4}"]
                if unit
                else []
            ),
        ]
    else:
        lines += [
            "    # No column to group by: one total. To have groups, list columns here.",
            "    partition_by: []",
            *([*BOUNDS, "    # bounds: {max_contributions_per_partition: 16}"] if unit else []),
        ]
    lines += [
        "    metrics:",
        *_metrics([*by, *source.schema.names], amounts, has_unit=bool(unit)),
        *(f"      {line}" for line in _also("not summed, since they may be ids, codes or flags", no_amounts)),
        *(f"      {line}" for line in _also("not read, since runs that choose bounds add such columns", unread)),
    ]
    return "\n".join(lines) + "\n"


def scalar(value: str) -> str:
    """A text as YAML takes it, in one line.

    >>> scalar("customer_id"), scalar("sold at"), scalar("no")
    ('customer_id', '"sold at"', '"no"')
    """
    plain = _PLAIN.match(value) and value.lower() not in _NOT_TEXT
    return value if plain else json.dumps(value, ensure_ascii=not value.isprintable())


def listed(values: Sequence[str]) -> str:
    """Texts as a list in one line.

    >>> listed(["region", "sold at"])
    '[region, "sold at"]'
    """
    return f"[{', '.join(scalar(value) for value in values)}]"


def _source(source: FirstSource) -> list[str]:
    hive = f"{{{', '.join(f'{scalar(name)}: {kind}' for name, kind in source.hive.items())}}}"
    if not source.types:
        more = f", hive: {hive}" if source.hive else ""
        return [f"source: {{parquet: {json.dumps(source.pattern, ensure_ascii=False)}{more}}}"]
    return [
        "source:",
        f"  {source.file_format}: {json.dumps(source.pattern, ensure_ascii=False)}",
        *([f"  hive: {hive}"] if source.hive else []),
        *(f"  {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in source.written.items()),
        *_about_types(source.fill_in),
        "  types:",
        *(f"    {scalar(name)}: {kind}" for name, kind in source.types.items()),
    ]


def _about_types(fill_in: bool) -> list[str]:
    fits = "A cell that does not match the type of its column is null."
    if not fill_in:
        return [f"  # {fits}"]
    return [
        "  # TO FILL IN: all columns are text here. Write int64, double, bool, date or timestamp where a column is one, and take",
        "  # out columns that nobody needs. Then sums and weeks are possible.",
        f"  # {fits}",
    ]


def _also(what: str, names: Sequence[str]) -> list[str]:
    """A comment that lists further columns."""
    if not names:
        return []
    listed = [f"{scalar(name)}," for name in names[:MOST_NAMED]]
    listed[-1] = listed[-1].removesuffix(",")
    if len(names) > MOST_NAMED:  # `and N more` alone would leave people without the names
        listed.append(f"and {len(names) - MOST_NAMED} more; for all: duckdb -c \"DESCRIBE FROM 'FILE'\"")
    lines, line = [], f"# {what}:"
    for text in listed:
        if len(line) + 1 + len(text) > WIDTH and line != "#  ":
            lines.append(line)
            line = "#  "
        line += f" {text}"
    return [*lines, line]


def _week(column: str) -> str:
    """The week of a time as YAML takes it: the name in quotes, since it may be a word of SQL."""
    quoted = '"' + column.replace('"', '""') + '"'
    sql = f"CAST(date_trunc('week', {quoted}) AS DATE)"
    return json.dumps(sql, ensure_ascii=False) if re.search(r":|#", sql) or not sql.isprintable() else sql


def _unit(unit: Sequence[str]) -> list[str]:
    """Return the lines of the privacy unit."""
    if not unit:
        return [
            "# Whom the guarantee protects: each row, which is a person. Somebody with several rows is protected less: then name",
            "# the column that says whose row it is, e.g. privacy_unit: customer_id.",
            "privacy_unit: {row: true}",
        ]
    return [
        f"# Whom the guarantee protects: all rows with one value of {scalar(' and '.join(unit))}, together.",
        f"privacy_unit: {scalar(unit[0]) if len(unit) == 1 else listed(unit)}",
    ]


def _metrics(taken: Sequence[str], amounts: Sequence[str], *, has_unit: bool) -> list[str]:
    names = list(taken)

    def free(wanted: str) -> str:
        names.append(_free(wanted, names))
        return names[-1]

    lines = [f"      {free('rows' if has_unit else 'people')}: {{kind: count}}"]
    if has_unit:
        lines.append(f"      {free('units')}: {{kind: privacy_id_count}}")
    if amounts:
        lines += [
            "      # The run chooses max_value within a range, for a tenth of the budget. If you know how large a value can be,",
            "      # write it and drop `within`: max_value: 500. Negative values count as 0; where they matter, write",
            "      # min_value: auto, max_value: auto, within: [-1000000, 1000000].",
        ]
    for number, column in enumerate(amounts):
        name = free("total_" + (re.sub(r"\W+", "_", column).strip("_") or "value"))
        line = f"{scalar(name)}: {{kind: sum, column: {scalar(column)}, min_value: 0, max_value: auto, within: [0, 1000000]}}"
        if number < MOST_SUMS:
            lines.append(f"      {line}")
        elif number < MOST_SUMS + MOST_LISTED:
            lines.append(f"      # {line}")
    return lines + [f"      {line}" for line in _also("can be summed too", amounts[MOST_SUMS + MOST_LISTED :])]


def _free(wanted: str, taken: Sequence[str]) -> str:
    """A name that no column has, in capitals or not."""
    known, name = {other.casefold() for other in taken}, wanted
    while name.casefold() in known:
        name += "_"
    return name


def _words(name: str) -> str:
    """A column's name in small letters with underscores: `CustomerId` as `customer_id`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_group(field: pa.Field) -> bool:
    kind, words = field.type, _words(field.name)
    named = (
        NO_GROUPS.search(words) or AMOUNTS.search(words) or _counts_rows(field.name)
    )  # amounts are text until declared
    return bool(pa.types.is_string(kind) or pa.types.is_boolean(kind)) and not named


def _is_code(field: pa.Field) -> bool:
    """Whether a column of whole numbers has few values by its declared width, and is no amount by its name."""
    narrow = pa.types.is_integer(field.type) and field.type.bit_width <= NARROW
    return bool(narrow) and not AMOUNTS.search(_words(field.name)) and not _counts_rows(field.name)


def _counts_rows(name: str) -> bool:
    return re.search(r"(^|_)(row|rn|seq|idx|index|position)(_?(no|num|number))?$", _words(name)) is not None


def _is_amount(field: pa.Field) -> bool:
    kind, words = field.type, _words(field.name)
    if not _is_number(kind) or NO_AMOUNTS.search(words):
        return False
    return not pa.types.is_integer(kind) or AMOUNTS.search(words) is not None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
