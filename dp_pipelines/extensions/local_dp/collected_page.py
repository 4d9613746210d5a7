"""The page of collected stages: what reports say of the people who sent them, how surely, and what is promised to these.

In: the content of a manifest and the published tables. Out: HTML. Holds: one file that fetches nothing; the bars are those of
the unbiased estimates, consistent values have none; the promise is the devices', and no epsilon of a release. Not covered:
pages of central releases (`report`).
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.report.numbers import error_bar_parts, public_number
from dp_pipelines.report.pages import document, mappings, sequence, text

MOST_ROWS = 500
"""Rows of a table that a page shows: the most frequent."""

KEYS = ("answer", "answer_from", "answer_to", "by", "by_from", "by_to")


def render(content: Mapping[str, Any], tables: Mapping[str, pathlib.Path]) -> str:
    """The page of a run.

    Args:
        content: the manifest; any part of it may be missing.
        tables: the published Parquet file of each stage.

    Raises:
        OSError, pyarrow.ArrowException: a table cannot be read.

    >>> "<title>visits: estimates from reports</title>" in render({"dataset": "visits"}, {})
    True
    """
    described = {text(stage.get("name")): stage for stage in mappings(content.get("stages"))}
    return document(
        "collected.html.j2",
        package="dp_pipelines.extensions.local_dp",
        title=text(content.get("dataset")) or "Reports",
        run_id=text(content.get("run_id")),
        promise=[text(line) for line in sequence(content.get("guarantee"))],
        stages=[_section(name, described.get(name, {}), path) for name, path in tables.items()],
        not_covered=[text(item) for item in sequence(content.get("not_covered"))],
    )


def _section(name: str, stage: Mapping[str, Any], path: pathlib.Path) -> dict[str, Any]:
    with pa.parquet.ParquetFile(path) as file:
        table = file.read()
    found = {column: table.column(column).to_pylist() for column in table.column_names}
    reports = found["reports"][0] if found["reports"] else 0
    mean = "mean" in found
    if mean:
        order = [0] if found["mean"] else []
    else:
        frequent = np.argsort(-np.array(found["consistent"]), kind="stable")
        order = sorted(int(place) for place in frequent[:MOST_ROWS])
    keys = [key for key in KEYS if key in found]
    return {
        "name": name,
        "asked": [
            f"{text(asked.get('name'))}: {text(asked.get('mechanism'))}, "
            f"local epsilon {public_number(asked.get('local_epsilon'))}"
            for asked in mappings(stage.get("questions"))
        ],
        "reports": f"{reports:,}",
        "mean": mean,
        "keys": keys,
        "more": table.num_rows - len(order),
        "rows": [
            {
                "keys": [text(found[key][place]) for key in keys],
                **_cells(found, place, reports, mean),
            }
            for place in order
        ],
    }


def _cells(found: Mapping[str, list[Any]], place: int, reports: int, mean: bool) -> dict[str, Any]:
    value, deviation = found["mean" if mean else "people"][place], found["deviation"][place]
    parts = error_bar_parts(value, deviation, grouped=True)
    return {
        "value": parts[0] if parts is not None else "-",
        "bar": parts[1] if parts is not None else "",
        "unsure": not mean and abs(value) < 2 * deviation,
        "consistent": None if mean else f"{found['consistent'][place]:,.0f}",
        "share": "" if mean or not reports else f"{found['consistent'][place] / reports:.1%}",
    }
