"""The file `weights.csv` of a linear model, as it is published.

In: the file; it may be missing or odd. Out: a table, its columns as numbers that can be drawn. Holds: no content makes it
raise but a file that cannot be read. Not covered: whether it is true.
"""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dp_pipelines.report.numbers import LARGEST
from dp_pipelines.report.svg import Floats


def read(path: pathlib.Path) -> pa.Table | None:
    """The weights by feature; None where there are none."""
    if not path.exists():
        return None
    try:
        table = pa.csv.read_csv(path)
    except (pa.ArrowException, ValueError):
        return None
    if table.num_columns < 2 or table.column_names[0] != "feature" or table.num_rows < 2:
        return None
    return table


def numbers(table: pa.Table, column: str) -> Floats | None:
    """A column of numbers that can be drawn; None where there is none.

    >>> numbers(pa.table({"weight": [1.5, float("inf")]}), "weight").tolist()
    [1.5, 0.0]
    """
    if column not in table.column_names:
        return None
    kind = table.column(column).type
    if not pa.types.is_floating(kind) and not pa.types.is_integer(kind):
        return None
    values = np.nan_to_num(table.column(column).cast(pa.float64()).to_numpy(zero_copy_only=False), posinf=0, neginf=0)
    found: Floats = np.where(np.abs(values) < LARGEST, values, 0.0)
    return found
