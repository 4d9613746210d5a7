"""What a session's query gives: the released table with its error bars, in the form that a notebook wants.

In: a published folder of one stage, what is left of the account. Out: tables of Arrow, pandas and Polars, one plot, texts. Holds:
everything is read from the published files; what is left is always shown. Not covered: what a report shows beyond that
(`report.html` in the folder).
"""

import importlib
import io
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import escape

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.session.session_account import SessionBudget
from dp_pipelines.jobs.terminal import released_rows, summary
from dp_pipelines.release import verdicts
from dp_pipelines.report import chart_choices, released_table
from dp_pipelines.report.words import arm_verdicts, presented
from dp_pipelines.report.words.number_format import FormOf

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ReleaseTable:
    """One table of a release. Made by `Session.query` and `read_release`.

    Args:
        name: of the stage.
        folder: where it is published: the Parquet file, `report.html`, `manifest.json`.
        manifest: what its manifest says.
    """

    def __init__(self, *, name: str, folder: pathlib.Path, manifest: Mapping[str, Any]) -> None:
        self.name, self.folder, self.manifest = name, folder, manifest
        path = folder / f"{name}.parquet"
        stage = next(entry for entry in manifest["stages"] if entry["name"] == name)
        self._entries: Mapping[str, Mapping[str, Any]] = stage["metrics"]
        self._compared: object = stage.get("compare")
        self._published = released_table.read_published(path, stage["partition_by"], released_table.laws_of(stage))
        self._plotted = chart_choices.finest(self._published, stage)
        form_of = presented.read_stage(manifest, name).form_of
        unit = str(manifest.get("privacy_unit") or "unit")
        self._first = released_rows.first_rows(path, stage, form_of=form_of, unit=unit)
        self._notes = released_rows.notes_of(manifest, name)
        self._console_text = _text_of(path, stage, self._notes, form_of, unit)

    @property
    def verdict(self) -> tuple[str, ...]:
        """What a test of arms shows, a sentence for each comparison, as the page says it; empty for other tables."""
        return tuple(arm_verdicts.lines(self._compared))

    def to_arrow(self, *, bars: bool = False) -> pa.Table:
        """The released table: partition columns, and for each metric its value and `<metric>_stddev`.

        Args:
            bars: adds `<metric>_from` and `<metric>_to`, between which the value without noise lies in 95 of 100 cases, for
                metrics that are one number; neither lies outside of the declared range of a mean.
        """
        table = self._published.table
        if bars:
            for metric in self._published.metrics:
                half = pc.multiply(table.column(f"{metric.name}_stddev"), metric.deviations)
                values = table.column(metric.name)
                low, high = verdicts.range_of(self._entries.get(metric.name, {})) or (-math.inf, math.inf)
                ends = {
                    "from": pc.max_element_wise(pc.subtract(values, half), low, skip_nulls=False),
                    "to": pc.min_element_wise(pc.add(values, half), high, skip_nulls=False),
                }
                for end, drawn in ends.items():
                    _refuse_taken(table, f"{metric.name}_{end}")
                    table = table.append_column(f"{metric.name}_{end}", drawn)
        return table

    def to_pandas(self, *, bars: bool = False) -> Any:
        """The same as a pandas DataFrame. Arguments as for `to_arrow`.

        Raises:
            RequestError: pandas is not installed.
        """
        _installed("pandas")
        return self.to_arrow(bars=bars).to_pandas()

    def to_polars(self, *, bars: bool = False) -> Any:
        """The same as a Polars DataFrame. Arguments as for `to_arrow`.

        Raises:
            RequestError: Polars is not installed.
        """
        return _installed("polars").DataFrame(self.to_arrow(bars=bars))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The released table by Arrow's own protocol, which most libraries of tables take."""
        return self._published.table.__arrow_c_stream__(requested_schema)

    def plot(self, metric: str | None = None) -> "Figure":
        """One metric with error bars that cover 95% of the noise: over time where a partition column is a time, else as bars.

        Of a metric that is a list (quantiles, a histogram, a vector) a line over its places for each of the largest groups.

        Args:
            metric: its name; left out, the one by which the report ranks groups.

        Returns:
            a figure of matplotlib, which a notebook shows.

        Raises:
            RequestError: there is no such metric, or matplotlib is not installed.
        """
        from dp_pipelines.jobs.session import plotting

        return plotting.plot(self._plotted, metric, self._entries, self.name)

    def __repr__(self) -> str:
        """The first rows with error bars."""
        return self._console_text

    def _repr_html_(self) -> str:
        return self._html()

    def _html(self, *more: str) -> str:
        """The first rows as HTML, with more lines below them."""
        first = self._first
        heads = "".join(f"<th>{escape(name)}</th>" for name in (*first.keys, *first.metrics))
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>" for cells in first.cells)
        lines = [f"{name}: {words}" for name, words in first.said]
        lines += [*first.chosen, *([first.remark] if first.remark else []), *self._notes, *more]
        said = "".join(f"<div>{escape(line)}</div>" for line in lines)
        return (
            f"<b>{escape(self.name)}</b> · {first.title}<table><thead><tr>{heads}</tr></thead>"
            f"<tbody>{rows}</tbody></table><div>{escape(first.note)}</div>{said}"
        )


class Release(ReleaseTable):
    """A release of a session. Made by `Session.query`.

    Args:
        name: of the query.
        folder: where it is published: the Parquet file, `report.html`, `manifest.json`.
        manifest: what its manifest says.
        again: whether it had been released before, and nothing was charged now.
        budget: `cap`, `spent` and `left` of the account after it.
    """

    def __init__(
        self,
        *,
        name: str,
        folder: pathlib.Path,
        manifest: Mapping[str, Any],
        again: bool,
        budget: Mapping[str, SessionBudget],
    ) -> None:
        super().__init__(name=name, folder=folder, manifest=manifest)
        self.again = again
        self.left = budget["left"]
        self._budget = dict(budget)

    @property
    def cost(self) -> SessionBudget:
        """What this release costs by itself, as its plan accounts for it."""
        said = self.manifest["accounted"]
        return SessionBudget(epsilon=said["epsilon"], delta=said["delta"])

    def __repr__(self) -> str:
        """The first rows with error bars, what it cost, what is left."""
        return f"{self._console_text}\n{self._told()}"

    def _repr_html_(self) -> str:
        return self._html(self._told())

    def _told(self) -> str:
        spent = f"epsilon {summary.spent_number(self.cost.epsilon)}, delta {summary.spent_number(self.cost.delta)}"
        paid = f"stored release: nothing charged now, {spent} when it was made" if self.again else f"cost {spent}"
        return f"{paid}; {left_in_words(self._budget)}"


def left_in_words(budget: Mapping[str, SessionBudget]) -> str:
    """What is left of an account, never more than it is."""
    left, cap = budget["left"], budget["cap"]
    return (
        f"left: epsilon {summary.left_number(left.epsilon)} of {summary.spent_number(cap.epsilon)}, "
        f"delta {summary.left_number(left.delta)} of {summary.spent_number(cap.delta)}"
    )


def _text_of(path: pathlib.Path, stage: Mapping[str, Any], notes: Sequence[str], form_of: FormOf, unit: str) -> str:
    out = io.StringIO()
    released_rows.print_stage(path, summary.console(out), stage, notes, form_of=form_of, unit=unit)
    return out.getvalue().rstrip()


def _refuse_taken(table: pa.Table, name: str) -> None:
    if name in table.column_names:
        raise RequestError(field="bars", message=f"would add column {name!r}, which is there", hint="leave bars out")


def _installed(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError:
        message, hint = "is not installed here", f"pip install {library}, or take to_arrow()"
        raise RequestError(field=library, message=message, hint=hint) from None
