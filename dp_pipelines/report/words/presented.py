"""How a job wants its release to be shown: titles, descriptions, names, units of measure and formats of numbers.

In: the entry of a manifest (any part of it may be missing or wrong). Out: texts, and a stage with its metrics renamed. Holds: no
number changes; a name that would meet another column's is left out. Not covered: keys of groups, sentences of the release itself.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.metrics.base import RAW, Metric
from dp_pipelines.query.range_columns import ENDS
from dp_pipelines.release import verdicts
from dp_pipelines.report.derived.derived_columns import ENTRY as DERIVED
from dp_pipelines.report.derived.derived_columns import NOISE_ENDS
from dp_pipelines.report.pages import mapping, text
from dp_pipelines.report.words.number_format import NumberFormat, NumberStyle

ENTRY = "presentation"
"""The entry of a manifest."""

PARTS = (
    "",
    RAW,
    *(f"{raw}_{part}" for raw in ("", RAW) for part in ("stddev", *ENDS)),
    *(f"_{end}" for end in NOISE_ENDS),
)
"""What follows the name of a metric in the names of its columns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Presented:
    """How a stage is shown.

    Args:
        title, description: for readers; empty if there is none.
        labels: by metric, its name on the page with its unit of measure.
        measures: by metric and by its name on the page, its unit of measure.
        formats: by metric and by its name on the page, how its numbers are written.
        usual: how all other numbers are written; None: in the digits that their error bars leave certain.
    """

    title: str
    description: str
    labels: Mapping[str, str]
    measures: Mapping[str, str] = FrozenMapping({})
    formats: Mapping[str, NumberFormat] = FrozenMapping({})
    usual: NumberFormat | None = None

    def form_of(self, name: str) -> NumberFormat | None:
        """Return how the numbers of a metric are written, by its name or its name on the page, also with `_raw` behind it.

        >>> counts = NumberFormat(decimals=0)
        >>> presented = Presented(title="", description="", labels={}, formats={"n": counts})
        >>> presented.form_of("n") == presented.form_of("n_raw") == counts, presented.form_of("revenue")
        (True, None)
        """
        return self.formats.get(name, self.formats.get(name.removesuffix(RAW), self.usual))

    def number_style(self, name: str, entry: Mapping[str, Any], kind: type[Metric] | None) -> NumberStyle:
        """Return how the numbers of a metric are written, on axes too.

        Args:
            name: of the metric, or its name on the page.
            entry: what the manifest says of it.
            kind: of the metric, where it is known.
        """
        return NumberStyle(
            whole=kind is not None and kind.whole, measure=self.measures.get(name, ""), form=self.form_of(name),
            within=verdicts.range_of(entry),
        )  # fmt: skip

    def columns(self, table: pa.Table, keys: Collection[str]) -> dict[str, str]:
        """Return the names that columns of a table get; empty if two would be the same.

        Args:
            table: of the stage.
            keys: its partition columns, which keep their names, also where they are called like a part of a metric.

        >>> presented = Presented(title="", description="", labels={"n": "Orders"})
        >>> presented.columns(pa.table({"n_low": ["a"], "n": [1.0], "n_stddev": [1.0]}), ["n_low"])
        {'n': 'Orders', 'n_stddev': 'Orders_stddev'}
        """
        new = {f"{name}{part}": f"{label}{part}" for name, label in self.labels.items() for part in PARTS}
        found = {name: new[name] for name in table.column_names if name in new and name not in keys}
        names = [found.get(name, name) for name in table.column_names]
        return found if len(set(names)) == len(names) else {}


def read_title(content: Mapping[str, Any]) -> tuple[str, str]:
    """Return title and description of a release; empty where it has none.

    Args:
        content: the manifest.
    """
    entry = mapping(content.get(ENTRY))
    return text(entry.get("title")), text(entry.get("description"))


def read_stage(content: Mapping[str, Any], stage: str) -> Presented:
    """Return how a stage is shown.

    Args:
        content: the manifest.
        stage: its name.

    >>> metrics = {"revenue": {"label": "Revenue", "measure": "EUR"}, "hours": {"measure": "h"}, "n": {}}
    >>> read_stage({"presentation": {"stages": {"weekly": {"title": "Weeks", "metrics": metrics}}}}, "weekly").labels
    {'revenue': 'Revenue (EUR)', 'hours': 'hours (h)'}
    >>> stages = {"weekly": {"format": ".2f", "metrics": {"n": {"format": ",.0f", "label": "Orders"}}}, "other": {}}
    >>> shown = {"presentation": {"format": ".1%", "stages": stages}}
    >>> weekly, other = read_stage(shown, "weekly"), read_stage(shown, "other")
    >>> [one.text(0.5) for one in (weekly.form_of("Orders"), weekly.form_of("revenue"), other.form_of("n"))]
    ['0', '0.50', '50.0%']
    """
    entry = mapping(mapping(mapping(content.get(ENTRY)).get("stages")).get(stage))
    labels: dict[str, str] = {}
    measures: dict[str, str] = {}
    formats: dict[str, NumberFormat] = {}
    for name, said in mapping(entry.get("metrics")).items():
        label, measure = text(mapping(said).get("label")), text(mapping(said).get("measure"))
        if label or measure:
            labels[str(name)] = (label or str(name)) + (f" ({measure})" if measure else "")
        if measure:
            measures |= {str(name): measure, labels[str(name)]: measure}
        if (form := NumberFormat.read(mapping(said).get("format"))) is not None:
            formats |= {str(name): form, labels.get(str(name), str(name)): form}
    of_job = mapping(content.get(ENTRY)).get("format")
    return Presented(
        title=text(entry.get("title")),
        description=text(entry.get("description")),
        labels=labels,
        measures=measures,
        formats=formats,
        usual=NumberFormat.read(entry.get("format")) or NumberFormat.read(of_job),
    )


def renamed_stage(stage: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """Return a stage's entry in the manifest with its metrics renamed.

    Args:
        stage: the entry.
        columns: the new names of columns.
    """
    entries = {}
    for name, entry in mapping(stage.get("metrics")).items():
        raw_of = mapping(entry).get("raw_of")
        entries[columns.get(name, name)] = {**entry, "raw_of": columns.get(raw_of, raw_of)} if raw_of else entry
    derived = {columns.get(name, name): entry for name, entry in mapping(stage.get(DERIVED)).items()}
    return {**stage, "metrics": entries} | ({DERIVED: derived} if derived else {})
