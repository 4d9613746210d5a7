"""How many bytes a row takes between two steps, by types alone.

In: a layout, the types of columns. Out: bytes. Holds: no row decides it, so that it may be told. Not covered: texts, whose length
is an assumption; lists without a declared size; what rows of one unit are reduced to before they travel.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import pyarrow as pa

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns.long_text import is_text
from dp_pipelines.kernels.layout import Layout

TEXT_BYTES = 40
"""A text with its offset: the 36 letters of a UUID. None is longer than 65, as which a digest travels."""

OTHER_BYTES = 8
"""A value of a type that is not known."""

LISTED = 8
"""Values of a list, where its type does not say how many."""

OFFSET_BYTES = 4

Types: TypeAlias = pa.Schema | Mapping[str, pa.DataType]


def of_type(kind: pa.DataType) -> int:
    """Bytes of a value as it travels.

    Args:
        kind: of its column.

    >>> [of_type(kind) for kind in (pa.bool_(), pa.int64(), pa.string(), pa.list_(pa.float32(), 64))]
    [1, 8, 40, 256]
    """
    kind = keys.plain_type(kind)
    if is_text(kind):
        return TEXT_BYTES
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * of_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return OFFSET_BYTES + LISTED * of_type(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(of_type(kind.field(place).type) for place in range(kind.num_fields))
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return OTHER_BYTES


def of_columns(types: Types, columns: Iterable[str]) -> int:
    """Bytes of a row of some columns.

    Args:
        types: of columns, by name; one that is not there counts `OTHER_BYTES`.
        columns: their names.

    >>> of_columns(pa.schema([("customer", pa.int64()), ("paid", pa.bool_())]), ["customer", "paid"])
    10
    """
    names = list(columns)
    return sum(map(_typed(types), names)) + _flags(len(names))


def of_wire(layout: Layout, types: Types) -> int:
    """Bytes of a row as `Layout.wire` makes it.

    Args:
        layout: which columns play which part.
        types: as for `of_columns`.

    >>> layout = Layout(units=("customer",), partitions=("city",), max_partitions=1)
    >>> of_wire(layout, pa.schema([("customer", pa.int64()), ("city", pa.string())]))
    33
    """
    typed = _typed(types)
    numbers = len(layout.values) + len(layout.cells)
    features = sum(len(moments.columns) for moments in layout.moments)
    size = sum(map(typed, layout.units)) + (typed(layout.row_id) if layout.row_id is not None else 0)
    # A partition is a code, beside a dictionary that holds each key of a piece once.
    size += sum(OFFSET_BYTES + typed(name) // 2 for name in layout.read_partitions) or OFFSET_BYTES
    size += 4 * numbers + 8 * len(layout.summands) + 2 * features
    size += sum(OFFSET_BYTES + typed(column) for column, _ in layout.distinct)
    size += sum(4 * vectors.size for _, vectors in layout.vectors)
    columns = len(layout.units) + len(layout.partitions) + numbers + features
    return size + _flags(columns + len(layout.summands) + len(layout.distinct) + len(layout.vectors))


def _typed(types: Types) -> Callable[[str], int]:
    named = {field.name: field.type for field in types} if isinstance(types, pa.Schema) else types
    return lambda name: of_type(named[name]) if name in named else OTHER_BYTES


def _flags(columns: int) -> int:
    """Which values are null: a bit for each."""
    return -(-columns // 8)
