"""Canonical keys: equal codes for equal keys and no others, whatever the type, the encoding and the cut of a column."""

import datetime
import decimal
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import hashing

SALT = 77
ZONE = datetime.UTC
UTF8 = st.text(st.characters(codec="utf-8"), max_size=20)
TEXTS = st.sampled_from(["", "a", "a\0", "a\0b", "ä", "ä", "eight by", "nine byte", "x" * 40]) | UTF8
BYTES = st.sampled_from([b"", b"\0", b"\0\0", b"a", b"eight by", b"\xff\xfe"]) | st.binary(max_size=20)


def whole(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.sampled_from([low, high, high - 1, 0, 1]) | st.integers(low, high)


def decimals(digits: int, places: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**digits - 1
    units = st.sampled_from([0, 1, -1, most, -most]) | st.integers(-most, most)
    # scaleb rounds to the precision of the context, 28 digits; exponents in a tuple do not.
    return units.map(lambda u: decimal.Decimal((int(u < 0), tuple(map(int, str(abs(u)))), -places)))


def floats(width: int) -> st.SearchStrategy[float]:
    special = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, {16: 6e-8, 32: 1e-45, 64: 5e-324}[width]]
    return st.sampled_from(special) | st.floats(width=width)


TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    **{f"int{b}": (getattr(pa, f"int{b}")(), whole(b)) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (getattr(pa, f"uint{b}")(), whole(b, signed=False)) for b in (8, 16, 32, 64)},
    "float16": (pa.float16(), floats(16)),
    "float32": (pa.float32(), floats(32)),
    "float64": (pa.float64(), floats(64)),
    "bool": (pa.bool_(), st.booleans()),
    "decimal32": (pa.decimal32(7, 2), decimals(7, 2)),
    "decimal64": (pa.decimal64(16, 4), decimals(16, 4)),
    "decimal128": (pa.decimal128(38, 10), decimals(38, 10)),
    "decimal256": (pa.decimal256(70, 3), decimals(70, 3)),
    "string": (pa.string(), TEXTS),
    "large_string": (pa.large_string(), TEXTS),
    "string_view": (pa.string_view(), TEXTS),
    "binary": (pa.binary(), BYTES),
    "large_binary": (pa.large_binary(), BYTES),
    "binary_view": (pa.binary_view(), BYTES),
    "fixed_binary": (pa.binary(5), st.binary(min_size=5, max_size=5) | st.just(b"\0\0\0\0\0")),
    "empty_binary": (pa.binary(0), st.just(b"")),
    "uuid": (pa.uuid(), st.binary(min_size=16, max_size=16)),
    "date32": (pa.date32(), st.dates()),
    "date64": (pa.date64(), st.dates()),
    "time32": (pa.time32("ms"), st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    "time64": (pa.time64("us"), st.times()),
    "timestamp[s]": (pa.timestamp("s"), st.datetimes().map(lambda t: t.replace(microsecond=0))),
    "timestamp[us]": (pa.timestamp("us"), st.datetimes()),
    "timestamp[us, tz]": (
        pa.timestamp("us", "Europe/Berlin"),
        st.datetimes(datetime.datetime(1970, 1, 2), datetime.datetime(2200, 1, 1), timezones=st.just(ZONE)),
    ),
    "duration": (pa.duration("us"), st.timedeltas(datetime.timedelta(-9999), datetime.timedelta(9999))),
    "null": (pa.null(), st.none()),
}

DICTIONARIES = [
    name for name, (kind, _) in TYPES.items() if name not in ("null", "uuid", "decimal32", "decimal64", "float16")
]


def array_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if pa.types.is_float16(kind):
        values = [None if value is None else np.float16(value) for value in values]
    return pa.array(values, kind)


def canonical(value: Any) -> Any:
    """What identity means, in Python: NaN is no value, and minus zero is zero."""
    if isinstance(value, (float, np.floating)):
        return None if math.isnan(value) else float(value) + 0.0
    return value


Encoding = Callable[[pa.DataType, list[Any]], pa.Array | pa.ChunkedArray]


def sliced(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """The values between others, so that offsets of buffers and of bits are not zero."""
    return array_of(kind, [*values[::-1], None, *values, None, *values]).slice(len(values) + 1, len(values))


def chunked(kind: pa.DataType, values: list[Any]) -> pa.ChunkedArray:
    middle = len(values) // 2
    parts = [values[:middle], [], values[middle:]]
    return pa.chunked_array([array_of(kind, part) for part in parts], kind)


def no_chunks(kind: pa.DataType, values: list[Any]) -> pa.ChunkedArray:
    return pa.chunked_array([], kind) if not values else chunked(kind, values)


def dictionary(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """A dictionary that holds values twice, a null and values that do not occur; nulls are indices or values in turn."""
    held = array_of(kind, [None, *values, *values])
    indices = [(None if i % 2 else 0) if v is None else 1 + i + len(values) * (i % 2) for i, v in enumerate(values)]
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int16()), held)


def sliced_dictionary(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return dictionary(kind, [None, *values, *values]).slice(1, len(values))


def chunked_dictionary(kind: pa.DataType, values: list[Any]) -> pa.ChunkedArray:
    middle = len(values) // 2
    parts = [dictionary(kind, values[:middle]), dictionary(kind, values[middle:])]
    return pa.chunked_array(parts)


PLAIN: list[Encoding] = [array_of, sliced, chunked, no_chunks]
ENCODED: list[Encoding] = [dictionary, sliced_dictionary, chunked_dictionary]
CASES = [(name, e) for name in TYPES for e in PLAIN] + [(name, e) for name in DICTIONARIES for e in ENCODED]


@pytest.mark.parametrize(("name", "encoding"), CASES, ids=lambda part: getattr(part, "__name__", part))
@settings(max_examples=6)
@given(data=st.data())
def test_codes_are_equal_exactly_where_values_are(name: str, encoding: Encoding, data: st.DataObject) -> None:
    kind, strategy = TYPES[name]
    pool = data.draw(st.lists(strategy | st.none(), min_size=1, max_size=6))
    values = data.draw(st.lists(st.sampled_from(pool), max_size=9))
    expected = [canonical(value) for value in array_of(kind, values).to_pylist()]

    column = keys.plain(encoding(kind, values))
    assert column.type == keys.plain_type(kind)
    if not isinstance(kind, pa.BaseExtensionType):
        assert column.to_pylist() == expected
    found = keys.dense([column])
    codes = found.codes.tolist()
    assert all((codes[i] == codes[j]) == (a == b) for i, a in enumerate(expected) for j, b in enumerate(expected))
    assert found.columns[0].take(pa.array(found.codes)).equals(column)
    # A hash knows values only: neither cut nor encoding.
    hashes = hashing.hash_columns([column], SALT)
    assert hashes.tolist() == found.hashes(SALT)[found.codes].tolist()
    assert hashes.tolist() == hashing.hash_columns([keys.plain(array_of(kind, values))], SALT).tolist()
    assert len(set(hashes.tolist())) == len(set(codes))
    _check_as_unit(encoding(kind, values), values, codes)
    if not pa.types.is_floating(kind):
        _check_as_partition(encoding(kind, values), column)


def _check_as_unit(given_column: pa.Array | pa.ChunkedArray, values: list[Any], codes: list[int]) -> None:
    """A unit's column may change its type, but neither what is equal in it nor what is null nor how it hashes."""
    unit = keys.plain_unit(given_column)
    of_unit = keys.dense([unit]).codes.tolist()
    assert [of_unit.index(code) for code in of_unit] == [codes.index(code) for code in codes]
    assert unit.is_null().to_pylist() == [canonical(value) is None for value in values]
    # A batch may be narrower than another: the hash of a value does not show that.
    parts = [keys.plain_unit(part) for part in (given_column.slice(0, 1), given_column.slice(1))]
    one_by_one = [hash for part in parts for hash in hashing.hash_columns([part], SALT).tolist()]
    assert hashing.hash_columns([unit], SALT).tolist() == one_by_one


def _check_as_partition(given_column: pa.Array | pa.ChunkedArray, column: pa.Array) -> None:
    """A partition's column is the same with a dictionary that holds each value once and no null."""
    encoded = keys.encoded(given_column)
    if pa.types.is_null(column.type):
        assert encoded.type == column.type
        return
    assert encoded.type.value_type == column.type
    assert encoded.dictionary.take(encoded.indices).equals(column)
    assert encoded.dictionary.null_count == 0
    assert len(pc.unique(encoded.dictionary)) == len(encoded.dictionary)


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=6)
@given(data=st.data())
def test_ranks_follow_the_keys_and_not_their_order(name: str, data: st.DataObject) -> None:
    kind, strategy = TYPES[name]
    values = data.draw(st.lists(strategy | st.none(), max_size=6))
    order = data.draw(st.permutations(range(len(values))))
    column = keys.plain(array_of(kind, values))
    shuffled = column.take(pa.array(order, pa.int64()))

    def ranked(of: pa.Array) -> list[Any]:
        found = keys.dense([of])
        assert sorted(found.ranks().tolist()) == list(range(len(found)))
        return found.columns[0].take(pa.array(np.argsort(found.ranks()))).to_pylist()

    assert ranked(column) == ranked(shuffled)


@given(st.lists(st.tuples(st.sampled_from(["", "a", "ab", None]), st.sampled_from(["", "b", "bc", None]), whole(8))))
def test_keys_of_several_columns_are_equal_only_where_all_parts_are(rows: list[tuple[Any, ...]]) -> None:
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate((pa.string(), pa.binary(), pa.int8()))]
    found = keys.dense(columns)
    again = keys.dense([column.dictionary_encode() for column in columns])
    by_key: dict[Any, int] = {}
    for row, code, other in zip(rows, found.codes.tolist(), again.codes.tolist(), strict=True):
        assert by_key.setdefault(row, code) == code
        assert [c.take(pa.array([code])) for c in found.columns] == [c.take(pa.array([other])) for c in again.columns]
    assert len(set(by_key.values())) == len(by_key)
    assert sorted(by_key, key=lambda row: found.ranks()[by_key[row]]) == sorted(by_key, key=_nulls_last)


def _nulls_last(row: tuple[Any, ...]) -> list[Any]:
    return [(value is None, value) for value in row]


def test_many_wide_columns_do_not_overflow_their_codes() -> None:
    size = 40_000
    columns = [pa.array((np.arange(size) * step) % size) for step in (1, 3, 7, 11, 13, 17)]
    found = keys.dense([*columns, pa.array(np.arange(size) // 2)])
    assert sorted(found.codes.tolist()) == list(range(size))
    assert all(c.take(pa.array(found.codes)).equals(column) for c, column in zip(found.columns, columns, strict=False))


def test_a_null_hashes_alike_in_every_type() -> None:
    # A table whose column has no type may be joined with one that has: they must agree on the place of null.
    columns = [keys.plain(array_of(kind, [None])) for kind, _ in TYPES.values()]
    assert len({hashing.hash_columns([column], SALT)[0] for column in columns}) == 1
    with_more = [hashing.hash_columns([column, pa.array([1])], SALT)[0] for column in columns]
    assert len(set(with_more)) == 1


def test_integers_hash_by_their_value_whatever_their_width() -> None:
    kinds = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
    small = [hashing.hash_columns([pa.array([0, 1, None, 127], kind)], SALT).tolist() for kind in kinds]
    assert all(hashes == small[0] for hashes in small)
    negative = [
        hashing.hash_columns([pa.array([-1, -128], kind)], SALT).tolist() for kind in kinds if str(kind)[0] == "i"
    ]
    assert all(hashes == negative[0] for hashes in negative)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.arange(100_000)),
        pa.array([f"user-{i:020}" for i in range(100_000)]),
        pa.array([i.to_bytes(4, "little") for i in range(100_000)], pa.binary(4)),
        pa.array([decimal.Decimal(i) / 100 for i in range(100_000)], pa.decimal256(50, 2)),
    ],
    ids=lambda column: str(column.type),
)
def test_hashes_of_many_like_keys_differ_and_depend_on_the_salt(column: pa.Array) -> None:
    hashes = hashing.hash_columns([column], SALT)
    assert len(np.unique(hashes)) == len(column)
    assert not (hashes == hashing.hash_columns([column], SALT + 1)).any()
    # Each of the 64 bits is set in half of the hashes: 1,000 is six standard deviations of 100,000 fair coins.
    set_bits = np.unpackbits(hashes.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0, dtype=np.int64)
    assert np.abs(set_bits - 50_000).max() < 1_000


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_mix_is_the_finaliser_of_splitmix(words: list[int]) -> None:
    def reference(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        return z ^ (z >> 31)

    assert hashing.mix(np.array(words, np.uint64)).tolist() == [reference(word) for word in words]


def _text(kind: pa.DataType, values: list[bytes | None]) -> pa.Array:
    """Text that says it is UTF-8, as a file may."""
    of_bytes = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    return pa.Array.from_buffers(kind, len(values), pa.array(values, of_bytes[kind]).buffers())


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_that_is_not_utf8_is_null(kind: pa.DataType) -> None:
    array = _text(kind, [b"ok", b"\xff", None, b"a" * 20 + b"\xc3", b"\xc3\xa9", b"\xed\xa0\x80"])
    expected = ["ok", None, None, None, "é", None]
    assert keys.plain(array).to_pylist() == expected
    assert keys.plain(array.slice(1)).to_pylist() == expected[1:]
    assert keys.plain(pa.chunked_array([array, array])).to_pylist() == expected * 2
    encoded = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 4], pa.int8()), array)
    assert keys.plain(encoded).to_pylist() == [None, "ok", None, "é"]
    assert keys.plain(pa.chunked_array([encoded, encoded.slice(1)])).to_pylist() == [
        None, "ok", None, "é", "ok", None, "é",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_that_is_not_utf8_is_a_null_partition_and_a_unit_of_its_own(kind: pa.DataType) -> None:
    values = [b"ok", b"\xff", None, b"\xfe", b"\xff", b"ok"]
    array = _text(kind, values)
    encoded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 3, 4, 5], pa.int8()), array)
    for column in (array, encoded, pa.chunked_array([array.slice(0, 3), array.slice(3)])):
        assert keys.encoded(column).to_pylist() == ["ok", None, None, None, None, "ok"]
        assert keys.encoded(column).dictionary.to_pylist() == ["ok"]
        assert keys.plain_unit(column).to_pylist() == values


FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324]) | st.floats(width=32)


@given(st.lists(FLOATS | st.none(), max_size=8), st.sampled_from([pa.float16(), pa.float32(), pa.float64()]))
def test_floats_are_canonical_with_and_without_what_is_no_number(values: list[float | None], kind: pa.DataType) -> None:
    array = pa.array([None if value is None else np.float64(value) for value in values], pa.float64()).cast(kind)
    wanted = [None if value is None or math.isnan(value) else value + 0.0 for value in array.to_pylist()]
    for column in (array, pa.chunked_array([array[:3], array[3:]]), array[1:] if len(array) else array):
        found = keys.plain(column)
        assert found.type == keys.plain_type(kind)
        expected = wanted[len(wanted) - len(found) :]
        assert list(map(repr, found.to_pylist())) == list(map(repr, expected))


def test_a_nan_unit_is_no_unit_and_minus_zero_is_zero() -> None:
    found = keys.dense([keys.plain(pa.array([0.0, -0.0, math.nan, None, -math.nan], pa.float32()))])
    assert found.codes.tolist() == [0, 0, 1, 1, 1]
    assert found.columns[0].to_pylist() == [0.0, None]


@pytest.mark.parametrize(
    ("kind", "numbers", "expected"),
    [
        (pa.timestamp("s"), [2**62, -(2**63), 2**53, -1, None], [None, None, 2**53, -1, None]),
        (pa.timestamp("s", "UTC"), [2**63 // 1000 + 1, 2**63 // 1000], [None, 2**63 // 1000]),
        (pa.date64(), [-1, 86_400_001, 0, None], [-86_400_000, 86_400_000, 0, None]),
        (pa.date64(), [2**63 - 1, -(2**63), (2**31 - 1) * 86_400_000], [None, None, (2**31 - 1) * 86_400_000]),
    ],
    ids=str,
)
def test_a_time_that_no_file_can_hold_is_null_and_a_date_is_a_whole_day(
    kind: pa.DataType, numbers: list[int | None], expected: list[int | None], tmp_path: pathlib.Path
) -> None:
    """So that the keys that are chosen can be published, each once."""
    column = pa.array([7, *numbers], pa.int64()).view(kind)[1:]
    for each in (column, column.dictionary_encode()):
        found = keys.plain(each)
        assert found.view(pa.int64()).to_pylist() == expected
        partition = keys.encoded(each)
        assert partition.dictionary.take(partition.indices).equals(found)
        pa.parquet.write_table(pa.table({"key": found.unique()}), tmp_path / "keys.parquet")
        assert pa.parquet.read_table(tmp_path / "keys.parquet").num_rows == len(set(expected))


def test_chunks_with_more_values_than_their_indices_can_name_are_put_together() -> None:
    parts = [[f"{part}-{i}" for i in range(100)] for part in range(4)]
    chunks = [pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array(values)) for values in parts]
    whole_column = keys.one_array(pa.chunked_array(chunks))
    assert pa.types.is_dictionary(whole_column.type)
    assert whole_column.to_pylist() == [value for values in parts for value in values]


def test_an_empty_dictionary_column_of_any_type_is_one_array() -> None:
    for kind in (pa.date32(), pa.string(), pa.decimal128(5, 2), pa.bool_()):
        empty = keys.one_array(pa.chunked_array([], pa.dictionary(pa.int16(), kind)))
        assert len(keys.dense([empty])) == 0


NESTED = [
    pa.list_(pa.int8()),
    pa.large_list(pa.int8()),
    pa.list_(pa.int8(), 2),
    pa.struct([("a", pa.int8())]),
    pa.map_(pa.string(), pa.int8()),
    pa.dictionary(pa.int8(), pa.list_(pa.int8())),
    pa.run_end_encoded(pa.int32(), pa.int8()),
    pa.month_day_nano_interval(),
]


@pytest.mark.parametrize("kind", NESTED, ids=str)
@pytest.mark.parametrize("partition", [False, True])
def test_nested_columns_are_refused_as_keys(kind: pa.DataType, partition: bool) -> None:
    with pytest.raises(RequestError, match=r"'c'.*cannot be a (partition|privacy unit); use a plain column"):
        keys.check_key_type(kind, "c", partition=partition)


@pytest.mark.parametrize(
    "kind", [pa.float16(), pa.float32(), pa.float64(), pa.dictionary(pa.int8(), pa.float64())], ids=str
)
def test_floats_are_refused_as_partitions_and_allowed_as_units(kind: pa.DataType) -> None:
    keys.check_key_type(kind, "c", partition=False)
    with pytest.raises(RequestError, match=r"is a float.*cast or bucket it.*CAST\(floor\(c / 10\) AS INTEGER\)"):
        keys.check_key_type(kind, "c", partition=True)


@pytest.mark.parametrize("name", TYPES)
def test_every_other_type_is_a_key(name: str) -> None:
    kind = TYPES[name][0]
    keys.check_key_type(kind, "c", partition=False)
    keys.check_key_type(pa.dictionary(pa.int32(), keys.plain_type(kind)), "c", partition=False)
    if not pa.types.is_floating(kind):
        keys.check_key_type(kind, "c", partition=True)


# Planted faults: what these tests are for.


def test_hashing_the_bits_of_minus_zero_would_be_found() -> None:
    column = pa.array([0.0, -0.0])
    assert len(set(hashing.hash_columns([column], SALT).tolist())) == 2, "hashes look at bits: plain() must come first"
    assert len(set(hashing.hash_columns([keys.plain(column)], SALT).tolist())) == 1


def test_a_dictionary_with_doubles_must_be_decoded_first() -> None:
    doubled = dictionary(pa.string(), ["a", "a"])
    assert len(set(keys.dense([doubled]).codes.tolist())) == 2, (
        "dense() trusts its dictionaries: plain() must come first"
    )
    assert len(set(keys.dense([keys.plain(doubled)]).codes.tolist())) == 1
    assert pc.unique(keys.plain(doubled)).to_pylist() == ["a"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, None, 1], pa.int8()),
        pa.array([2**63, 2**64 - 1, 2**63, 0], pa.uint64()),
        pa.array(["a", None, "", "a"]),
        pa.array([0.5, None, 0.5, 1.5]),
        pa.array([b"a", b"", None, b"a"], pa.binary()),
        pa.array(["a", None, "a", "b"]).dictionary_encode(),
        pa.array([True, None, False, True]),
        pa.array([[1], [1], None, []]),
        pa.nulls(4),
    ],
    ids=lambda column: str(column.type),
)
def test_values_that_are_called_equal_are_equal(column: pa.Array) -> None:
    said = column.to_pylist()
    one, other = (places.ravel() for places in np.meshgrid(range(4), range(4)))
    found = keys.equal_values(column, one, other).tolist()
    expected = [said[a] == said[b] for a, b in zip(one, other, strict=True)]
    assert found == (expected if not pa.types.is_nested(column.type) else [False] * 16)
