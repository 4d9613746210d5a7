"""What a release is about, in a line below the title of its page.

In: the sections of its stages. Out: a sentence. Holds: names of stages, metrics and keys, and the first and the last released
time. Not covered: the day of the draw, which stands in the line below.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.report.key_text import visible

MOST_NAMES = 5
"""Names that the line lists; of more it counts the rest."""


def subject_words(stages: Sequence[Mapping[str, Any]]) -> str:
    """Return what a release is about.

    Args:
        stages: the sections of the page, of tables and of models.

    >>> weekly = {"name": "weekly", "file": "weekly.parquet", "metrics": ["orders", "revenue"], "keys": ["city", "week"],
    ...           "period": "weeks from 2026-01-05 to 2026-03-29"}
    >>> subject_words([weekly])
    'orders and revenue by city and week, weeks from 2026-01-05 to 2026-03-29'
    >>> subject_words([weekly, {"name": "returns", "model": True, "file": None}])
    '1 table (weekly) and 1 model (returns), weeks from 2026-01-05 to 2026-03-29'
    """
    tables = [stage for stage in stages if stage.get("file")]
    models = [_title(stage) for stage in stages if stage.get("model")]
    if len(tables) == 1 and not models:
        keys = tables[0].get("keys", [])
        said = in_list(tables[0].get("metrics", [])) or visible(tables[0]["name"])
        said += f" by {in_list(keys)}" if keys else ""
    else:
        counted = [_counted("table", [_title(stage) for stage in tables]), _counted("model", models)]
        said = " and ".join(part for part in counted if part)
    periods = {stage["period"] for stage in tables if stage.get("period")}
    return f"{said}, {periods.pop()}" if len(periods) == 1 else said


def in_list(names: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    >>> in_list(["a"]), in_list(["a", "b", "c"]), in_list(list("abcdefg"))
    ('a', 'a, b and c', 'a, b, c, d, e and 2 more')
    """
    shown = [visible(name) for name in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        shown.append(f"{len(names) - MOST_NAMES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def _title(stage: Mapping[str, Any]) -> str:
    """What the page calls a stage."""
    return str(stage.get("title") or stage["name"])


def _counted(noun: str, names: Sequence[str]) -> str:
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'} ({in_list(names)})" if names else ""
