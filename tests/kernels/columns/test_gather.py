"""Taking, filtering and joining: Arrow's own results, also where a result would pass the limit of 32-bit offsets."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.training.examples.split import split

VALUES = [None, "", "a", "bc", "d" * 9]

KINDS = {
    "text": (pa.string(), VALUES),
    "bytes": (pa.binary(), [None, b"", b"a", b"\xff" * 9]),
    "large text": (pa.large_string(), VALUES),
    "numbers": (pa.int16(), [None, 0, 7]),
    "codes": (pa.dictionary(pa.int8(), pa.string()), VALUES),
    "lists of text": (pa.list_(pa.string()), [None, [], ["a", None], ["d" * 9, "", "bc"]]),
    "lists of numbers": (pa.list_(pa.int32()), [None, [], [1, 2], [3, None]]),
}


def array_of(kind: pa.DataType, values: list) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


@st.composite
def columns(draw):
    kind, values = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    chunks = draw(st.lists(st.lists(st.sampled_from(values), max_size=6), min_size=1, max_size=3))
    column = pa.chunked_array([array_of(kind, chunk) for chunk in chunks], kind)
    skipped = draw(st.integers(0, len(column)))
    return column.slice(skipped)


@pytest.fixture(params=[1, 4, 2**30], ids=lambda limit: f"limit {limit}")
def limited(request, monkeypatch):
    """From every result passing the limit to none."""
    monkeypatch.setattr(gather, "LIMIT", request.param)
    return request.param


def bytes_in(column: pa.Array) -> int:
    return gather._bytes(column)


@pytest.mark.usefixtures("limited")
@given(column=columns(), data=st.data())
def test_values_taken_are_those_at_the_positions(column, data):
    size = len(column)
    positions = data.draw(st.lists(st.integers(0, size - 1), max_size=12)) if size else []
    values = column.to_pylist()
    expected = [values[position] for position in positions]
    taken = gather.take(column, np.array(positions, np.int64))
    assert taken.to_pylist() == expected
    assert len(positions) <= 1 or bytes_in(taken) <= gather.LIMIT
    rows = gather.take_rows(pa.table({"a": column, "b": pa.array(range(size))}), np.array(positions, np.int64))
    assert rows.to_pydict() == {"a": expected, "b": positions}
    assert rows.schema.field("a").type == column.type or pa.types.is_dictionary(column.type)
    taken.validate(full=True)
    rows.validate(full=True)


@pytest.mark.usefixtures("limited")
@given(column=columns(), data=st.data())
def test_values_filtered_are_those_where_the_mask_is_true(column, data):
    mask = data.draw(st.lists(st.sampled_from([True, False, None]), min_size=len(column), max_size=len(column)))
    expected = [value for value, kept in zip(column.to_pylist(), mask, strict=True) if kept]
    for given_mask in (pa.array(mask, pa.bool_()), pa.chunked_array([pa.array(mask, pa.bool_())])):
        assert gather.filtered(column, given_mask).to_pylist() == expected
        assert gather.filter_rows(pa.table({"a": column}), given_mask).column("a").to_pylist() == expected


@pytest.mark.usefixtures("limited")
@given(columns())
def test_pieces_joined_are_the_column(column):
    joined = gather.one_array(column)
    assert joined.to_pylist() == column.to_pylist()
    assert gather.whole(column).to_pylist() == column.to_pylist()
    if pa.types.is_dictionary(joined.type):
        assert gather.decoded(joined).to_pylist() == column.to_pylist()
    joined.validate(full=True)


@pytest.mark.usefixtures("limited")
@given(
    st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from([None, "x", "yz" * 5])), max_size=9), st.integers(0, 3)
)
def test_values_are_replaced_where_the_mask_is_true(pairs, skipped):
    for kind in (pa.string(), pa.binary()):
        given_values = [None if old is None else old.encode() for old, _ in pairs]
        values = pa.array(given_values, pa.binary()).cast(kind).slice(skipped)
        mask = np.array([new is not None for _, new in pairs[skipped:]], np.bool_)
        new = pa.array([new.encode() for _, new in pairs[skipped:] if new is not None], pa.binary())
        expected = [old if new is None else new for old, new in pairs[skipped:]]
        assert gather.replaced(values, mask, new).cast(pa.large_string()).to_pylist() == expected
        nulled = [None if new is not None else old for old, new in pairs[skipped:]]
        assert gather.replaced(values, mask, None).cast(pa.large_string()).to_pylist() == nulled


@given(st.lists(st.integers(0, 20), max_size=30), st.integers(1, 30))
def test_slices_hold_all_rows_in_order_and_no_more_bytes_than_allowed(lengths, most):
    slices = gather.byte_slices(np.array(lengths, np.int64), most)
    assert [row for begin, end in slices for row in range(begin, end)] == list(range(len(lengths)))
    assert all(end - begin == 1 or sum(lengths[begin:end]) <= most for begin, end in slices)


def far(values: list[str]) -> pa.Array:
    """Texts at the end of a column of 3 GB, of which no byte is touched."""
    size, before = sum(map(len, values)), 3 * 10**9
    data = np.zeros(before + size, np.uint8)
    data[before:] = np.frombuffer("".join(values).encode(), np.uint8)
    offsets = np.concatenate(([0], before + np.cumsum([0, *map(len, values)]))).astype(np.int64)
    return pa.LargeStringArray.from_buffers(len(values) + 1, pa.py_buffer(offsets), pa.py_buffer(data)).slice(1)


def test_texts_far_into_a_column_become_plain():
    values = ["a", "bc", "d" * 100]
    assert gather.narrow(far(values), pa.string()).to_pylist() == values
    assert gather.as_type(far(values), pa.string()).to_pylist() == values
    assert keys.plain(far(values)).to_pylist() == values
    assert keys.plain_unit(far(values)).to_pylist() == keys.plain_unit(pa.array(values)).to_pylist()
    assert keys.encoded(far(values)).dictionary.type == pa.string()
    assert (
        split([far(values)], key=b"k", held_out=0.5).tolist()
        == split([pa.array(values)], key=b"k", held_out=0.5).tolist()
    )


@pytest.mark.slow
def test_two_pieces_that_are_more_than_2_gib_together_are_divided_and_taken_from():
    rows, size = 1100, 2**20
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * size)
    piece = pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(np.zeros(rows * size, np.uint8)))
    column = pa.chunked_array([piece, piece])
    assert len(set(split([column], key=b"k", held_out=0.5).tolist())) == 1
    assert len(set(keys.plain_unit(column).to_pylist())) == 1


@pytest.mark.slow
def test_one_dictionary_value_in_so_many_rows_that_offsets_of_32_bits_would_wrap():
    rows = 2**31 // 2**20 + 8
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["a" * 2**20]))
    decoded = gather.decoded(column)
    assert decoded.type == pa.large_string()
    assert decoded.nbytes > 2**31
    assert decoded[rows - 1].as_py() == "a" * 2**20


@pytest.mark.slow  # it takes more than 2 GiB
def test_arrow_itself_still_wraps_so_that_this_room_is_needed():
    rows = 2**31 // 2**20 + 8
    try:
        taken = pa.array(["a" * 2**20]).take(pa.array(np.zeros(rows, np.int32)))
        offsets = np.frombuffer(taken.buffers()[1], np.int32)
    except pa.ArrowException:
        return  # a later Arrow refuses it, which would decide an exit code
    assert (offsets < 0).any() or offsets[-1] != rows * 2**20
