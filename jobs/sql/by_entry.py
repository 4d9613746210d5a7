"""Evaluates an expression over one dictionary-encoded column once per entry instead of once per row.

In: rows, an expression. Out: its values, or None where rows must be evaluated one by one. Holds: the same values: an expression
is a function of its own row, and all that it reads of a row is the entry. A text of a megabyte that a file holds once and a
million rows name is read once. Not covered: expressions of several columns, which `row_slices` cuts by bytes.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.sql import row_calculator

MOST_TEXT = 2**30
"""Bytes of the values of all entries of one chunk."""


def values(
    calculator: row_calculator.Calculator, table: pa.Table, item: row_calculator.Item, params: Mapping[str, Value]
) -> pa.ChunkedArray | None:
    """The value in each row; text as a dictionary without doubles and nulls.

    Args:
        calculator: evaluates.
        table: rows.
        item: the expression.
        params: values of the parameters.
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
    """The values of rows, of which the last entry is that of null."""
    places = pc.fill_null(indices.cast(pa.int64()), len(entries) - 1)
    if not (pa.types.is_string(entries.type) or pa.types.is_binary(entries.type)):
        return entries.take(places)
    encoded = entries.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(places), encoded.dictionary)
