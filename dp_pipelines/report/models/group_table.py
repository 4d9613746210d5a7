"""The table of a model's figures by group of held-out examples.

In: the content of `evaluation.json`, which may be odd. Out: what the template shows; nothing where there are no groups. Holds:
released numbers alone; no content makes it raise. Not covered: whether groups differ, of which bars alone tell.
"""

import math
from collections.abc import Mapping
from typing import Any

from dp_pipelines.report.key_text import label
from dp_pipelines.report.numbers import ERROR_BAR, finite, with_error_bar
from dp_pipelines.report.pages import mapping, mappings, text

MOST_SHOWN = 64
"""Groups in the table: more are not declared (`query.evaluation_groups`)."""

MAIN = ("auc", "accuracy", "base_rate", "balanced_accuracy", "rmse", "mae", "r2")
"""The measures that the table shows, those of them that the model has."""


def group_table(evaluation: Mapping[str, Any], called: Mapping[str, tuple[str, str]]) -> dict[str, Any] | None:
    """What the template shows of the groups.

    Args:
        evaluation: the content of the file.
        called: what measures are called, by their names in the file.

    >>> few = {"value": 0.5, "noise_stddev": 0.25, "sampling_stddev": 0.0}
    >>> of_north = {"group": "north", "examples": {"value": 100.0, "noise_stddev": 5.0}, "measures": {"auc": few}}
    >>> found = group_table({"measures": {"auc": few}, "by": {"column": "area", "groups": [of_north]}}, {"auc": ("AUC", "")})
    >>> found["rows"]
    [{'name': 'north', 'examples': '100.0 ± 9.8', 'measures': ['0.50 ± 0.49']}]
    """
    by, known = mapping(evaluation.get("by")), mapping(evaluation.get("measures"))
    groups = mappings(by.get("groups"))[:MOST_SHOWN]
    if not groups:
        return None
    shown = [name for name in MAIN if name in known and name in called]
    return {
        "column": label(text(by.get("column"))),
        "names": [called[name][0] for name in shown],
        "words": text(by.get("words")),
        "rows": [
            {
                "name": label(text(by.get("others")) if of.get("group") is None else text(of["group"])),
                "examples": _shown(mapping(of.get("examples"))),
                "measures": [_shown(mapping(mapping(of.get("measures")).get(name))) for name in shown],
            }
            for of in groups
        ],
    }


def _shown(estimate: Mapping[str, Any]) -> str | None:
    """An estimate with one bar for noise, for the choice of units and for what bins hide; None where there is no number."""
    value, noise, sampling, hidden = (
        finite(estimate.get(key)) for key in ("value", "noise_stddev", "sampling_stddev", "hidden_by_bins")
    )
    if value is None:
        return None
    return with_error_bar(value, math.hypot(noise or 0.0, sampling or 0.0) + (hidden or 0.0) / ERROR_BAR, grouped=True)
