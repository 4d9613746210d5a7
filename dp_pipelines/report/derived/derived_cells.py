"""The cells of numbers that are computed from released ones, for pages and terminals.

In: a published table and its stage's entry in the manifest. Out: for each formula values with the interval of their noise, and
ranges, as texts. Holds: what is no number is a dash; digits are those that the interval leaves certain. Not covered: charts.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels.keys import Codes
from dp_pipelines.report.derived import derived_columns
from dp_pipelines.report.range_text import estimate_in_words, range_in_words
from dp_pipelines.report.words.number_format import FormOf


@dataclasses.dataclass(frozen=True, kw_only=True)
class DerivedCells:
    """The cells of one formula.

    Args:
        name: of its column.
        values: the numbers; "-" for none.
        intervals: what noise may have changed; empty for no number.
        unsure: whether the interval holds zero.
        estimates, ranges: of the true numbers, where the stage says what its limits cut off; else None.
    """

    name: str
    values: list[str]
    intervals: list[str]
    unsure: list[bool]
    estimates: list[str] | None
    ranges: list[str] | None


def cells_of(
    table: pa.Table,
    stage: Mapping[str, Any],
    rows: Codes,
    form_of: FormOf = lambda name: None,
) -> Iterator[DerivedCells]:
    """Yield the cells of each formula of a stage, in the order of the table.

    Args:
        table: the published one.
        stage: its entry in the manifest.
        rows: the places of the rows that are shown.
        form_of: how the job wants the numbers of a column to be written.

    >>> table = pa.table({"basket": [10.0, None], "basket_noise_low": [9.5, None], "basket_noise_high": [10.6, None]})
    >>> stage = {"derived": {"basket": {"formula": "revenue / orders"}}}
    >>> for cells in cells_of(table, stage, np.arange(2)):
    ...     print(cells.values, cells.intervals, cells.ranges)
    ['10.0', '-'] ['9.5 … 10.6', ''] None
    """
    for name in derived_columns.names_in(stage, table.column_names):
        columns = derived_columns.column_names(name, ranged=True)
        found, truth = (_triples(table, three, rows) for three in (columns[:3], columns[3:]))
        form = form_of(name)
        ranged = any(math.isfinite(estimate) for estimate, _, _ in truth)
        yield DerivedCells(
            name=name,
            values=[estimate_in_words(*three, form=form) for three in found],
            intervals=["" if math.isnan(value) else range_in_words(low, high, form=form) for value, low, high in found],
            unsure=[low <= 0 <= high for _, low, high in found],
            estimates=[estimate_in_words(*three, form=form) for three in truth] if ranged else None,
            ranges=[range_in_words(low, high, form=form) for _, low, high in truth] if ranged else None,
        )


def _triples(table: pa.Table, columns: Sequence[str], rows: Codes) -> list[tuple[float, float, float]]:
    """Return three columns row by row, NaN for null; nothing where the table does not have them all."""
    if not {*columns} <= {*table.column_names}:
        return []
    numbers = np.array([np.asarray(table.column(column).to_numpy(), np.float64)[rows] for column in columns])
    return [(value, low, high) for value, low, high in numbers.T.tolist()]
