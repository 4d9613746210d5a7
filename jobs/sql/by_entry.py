"""Evaluates an expression over one dictionary-encoded column once per entry instead of once per row.

In: rows, an expression. Out: its values, or None if rows must be evaluated one by one. Holds: the values are the same, since
an expression depends on its own row alone, and reads only the entry of it. A text of one megabyte that a million rows refer to
is read once. Not covered: expressions over several columns, which `row_slices` cuts by bytes.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.sql import row_calculator

MOST_TEXT = 2**30
"""The most bytes that the values of all entries of one chunk may take."""


def values(
    calculator: row_calculator.Calculator, table: pa.Table, item: row_calculator.Item, params: Mapping[str, Value]
) -> pa.ChunkedArray | None:
    """The value in each row; text as a dictionary without duplicates and nulls.

    Args:
        calculator: evaluates expressions.
        table: the rows.
        item: the expression.
        params: the values of the parameters.
    """
    if len(item.columns) != 1 or not table.num_rows:
        return None
    column = table.column(item.columns[0])
    if not pa.types.is_dictionary(column.type) or pa.types.is_nested(column.type.value_type):
        return None
    if any(2 * len(chunk.dictionary) > len(chunk) for chunk in column.chunks):
        return None
    (null,) = calculator.evaluate(pa.table({item.columns[0]: pa.nulls(1, column.type.value_type)}), [item], params)
    chunks = []
    for chunk in column.chunks:
        (found,) = calculator.evaluate(pa.table({item.columns[0]: chunk.dictionary}), [item], params)
        if found.nbytes > MOST_TEXT:
            return None
        chunks.append(_of_rows(pa.concat_arrays([*found.chunks, *null.chunks]), chunk.indices))
    return pa.chunked_array(chunks)


def _of_rows(entries: pa.Array, indices: pa.Array) -> pa.Array:
    """The values of rows; the last entry is the value for null."""
    places = pc.fill_null(indices.cast(pa.int64()), len(entries) - 1)
    if not (pa.types.is_string(entries.type) or pa.types.is_binary(entries.type)):
        return entries.take(places)
    encoded = entries.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(places), encoded.dictionary)
