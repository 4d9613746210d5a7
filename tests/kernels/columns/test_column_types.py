"""Tables of files under readable types: the same values, whatever their layout."""

from typing import Any

import pyarrow as pa
import pytest

from dp_pipelines.kernels.columns import column_types


def viewed(kind: type[Any]) -> pa.Array:
    """Views of lists that are out of order, overlap, leave gaps and are null with a size."""
    index = pa.int32() if kind is pa.ListViewArray else pa.int64()
    return kind.from_arrays(
        pa.array([4, 0, 2, 1, 0], index), pa.array([1, 2, 0, 2, 1], index), pa.array(["a", "b", "c", "d", "e"]),
        mask=pa.array([False, True, False, False, False]),
    )  # fmt: skip


def around(views: pa.Array) -> list[pa.Array]:
    """Nested values, five each, that have the views inside."""
    missing = pa.array([False, False, True, False, False])
    offsets = pa.array([0, 1, 1, 3, 4, 5], pa.int32())
    return [
        views,
        pa.StructArray.from_arrays([views], ["x"], mask=missing),
        pa.ListArray.from_arrays(offsets, views, mask=missing),
        pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), views),
        pa.FixedSizeListArray.from_arrays(pa.concat_arrays([views, views]), 2),
        pa.MapArray.from_arrays(offsets, pa.array(list("vwxyz")), views),
        pa.ListViewArray.from_arrays(
            pa.array([3, 1, 0, 2, 0], pa.int32()), pa.array([2, 0, 3, 1, 1], pa.int32()), views
        ),
    ]


@pytest.mark.parametrize("kind", [pa.ListViewArray, pa.LargeListViewArray])
def test_views_of_lists_keep_their_values_at_any_depth(kind: type[Any]) -> None:
    for values in around(viewed(kind)):
        for part in (values, values.slice(1), values.slice(2, 2), values.slice(3, 0)):
            made = column_types.readable(pa.table({"x": part}))
            made.validate(full=True)
            assert made.schema == column_types.readable_schema(pa.schema({"x": values.type}))
            assert made["x"].to_pylist() == part.to_pylist(), values.type
