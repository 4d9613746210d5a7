"""Privacy ids and partition keys as bytes: equal keys and no others have equal bytes, whatever stands beside them."""

import collections
import datetime
import decimal
import enum
import fractions
import math
import uuid
import zoneinfo
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pipeline_dp", reason="needs the extra pipeline-dp: Python 3.11 to 3.13")

from dp_pipelines.transforms.pipeline_dp import keys
from tests.helpers.work import calls_of, most_memory_of

PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(),
    st.text(st.characters()),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(datetime.timezone(datetime.timedelta(hours=3)))),
)
KEYS = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=6)


def same(one: object, other: object) -> bool:
    """Whether two keys are one key: of one type and equal, NaN being equal to itself."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


@given(KEYS)
def test_a_key_comes_back_as_it_was(key: object) -> None:
    assert same(keys.decoded(keys.encode(key)), key)


@given(st.lists(KEYS))
def test_the_bytes_of_a_key_do_not_depend_on_the_keys_beside_it(found: list[object]) -> None:
    assert keys.encoded(found).to_pylist() == [keys.encode(key) for key in found]


@given(st.one_of(*(st.lists(kind, min_size=1) for kind in (st.integers(), st.text(), st.binary(), st.booleans()))))
def test_a_column_of_one_type_has_the_bytes_of_its_keys_one_by_one(found: list[object]) -> None:
    pairs = [(key, "north") for key in found]
    assert keys.encoded(found).to_pylist() == [keys.encode(key) for key in found]
    assert keys.encoded(pairs).to_pylist() == [keys.encode(key) for key in pairs]


@given(KEYS, KEYS)
def test_two_keys_have_equal_bytes_only_if_they_are_one_key(one: object, other: object) -> None:
    assert (keys.encode(one) == keys.encode(other)) == same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(np.int64(3), 3), (np.str_("a"), "a"), (np.float64(2.5), 2.5), (-0.0, 0.0), (np.bool_(True), True)],
)
def test_two_ways_to_write_a_key_are_one_key(one: object, other: object) -> None:
    assert keys.encode(one) == keys.encode(other)


class Colour(enum.Enum):
    """A key by its class and name."""

    RED = 1
    CRIMSON = 1
    BLUE = 2


class Other(enum.Enum):
    """Has members of the same names."""

    RED = 1


class Rights(enum.Flag):
    """Its members combine, so that some have no name."""

    READ = 1
    WRITE = 2


class Loud(str):
    """A text that raises when it is read."""

    def encode(self, *arguments: object) -> bytes:  # type: ignore[override]
        raise RuntimeError("secret")


@pytest.mark.parametrize(
    "key",
    [
        uuid.UUID(int=7), decimal.Decimal("2.5"), decimal.Decimal("-12e30"), decimal.Decimal("Infinity"), Colour.RED, Colour.BLUE,
        frozenset({1, "a", (2, None)}), frozenset(), (uuid.UUID(int=7), frozenset({Colour.RED})),
    ],
)  # fmt: skip
def test_keys_of_other_classes_come_back_equal(key: Any) -> None:
    assert keys.decoded(keys.encode(key)) == key
    assert type(keys.decoded(keys.encode(key))) is type(key)
    assert keys.encoded([7, key, "a"], units=True).null_count == 0


def test_equal_keys_of_other_classes_are_one_key_and_others_are_not() -> None:
    one = [decimal.Decimal("2.50"), decimal.Decimal("2.5"), decimal.Decimal("0.25e1")]
    assert len({keys.encode(key) for key in one}) == 1
    assert (
        len({keys.encode(key) for key in (decimal.Decimal(0), decimal.Decimal("-0.00"), decimal.Decimal("0e9"))}) == 1
    )
    exact = [decimal.Decimal("1." + "0" * 40 + digit) for digit in "12"]
    assert len({keys.encode(key) for key in exact}) == 2
    assert keys.encode(Colour.RED) == keys.encode(Colour.CRIMSON)
    different = [
        Colour.RED,
        Colour.BLUE,
        Other.RED,
        1,
        "RED",
        frozenset({1}),
        (1,),
        uuid.UUID(int=1),
        decimal.Decimal(1),
    ]
    assert len({keys.encode(key) for key in different}) == len(different)
    names = [frozenset(("a", "b", "c")[place:] + ("a", "b", "c")[:place]) for place in range(3)]
    assert len({keys.encode(key) for key in names}) == 1
    moment = datetime.datetime(2026, 1, 5, 10)
    assert keys.encode(pd.Timestamp(moment)) == keys.encode(moment)


class Plain:
    """An object that no key is made of."""


@pytest.mark.parametrize("value", [Plain(), Plain, 1j, fractions.Fraction(1, 2), datetime.time(1), Rights.READ, len])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_value_of_a_class_without_keys_costs_its_row_alone(value: object, wrapped: bool) -> None:
    found = [7, (1, value) if wrapped else value, "a"]
    assert keys.encoded(found).to_pylist() == [keys.encode(7), None, keys.encode("a")]
    assert keys.encoded(found, units=True).null_count == 1


@pytest.mark.parametrize(
    ("cls", "is_one"),
    [
        (str, True),
        (pd.Timestamp, True),
        (np.int8, True),
        (Colour, True),
        (object, True),
        (Hashable, True),
        (np.floating, True),
        (np.datetime64, True),
        (np.str_, True),
        (np.longdouble, False),
        (np.timedelta64, False),
        (np.complex128, False),
        (np.void, False),
        (Plain, False),
    ],
)
def test_a_class_has_keys_if_a_value_of_it_may_be_one(cls: type, is_one: bool) -> None:
    assert keys.has_keys(cls) == is_one


class Strange(type):
    """Its classes have no hash."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return cls is other


def test_a_class_without_a_hash_costs_its_row_alone() -> None:
    value: Any = Strange("Nameless", (), {})()
    assert keys.encoded([7, value, "a"]).to_pylist() == [keys.encode(7), None, keys.encode("a")]


Odd = enum.Enum("Odd", {"http:80": 1, "a:b:c": 2})  # type: ignore[misc]


@pytest.mark.parametrize("member", list(Odd))
def test_a_member_whose_name_has_colons_comes_back(member: Any) -> None:
    assert keys.decoded(keys.encode(member)) is member


def test_a_member_that_nobody_could_import_costs_its_row_alone() -> None:
    """Else the error would come after the draw, when the key is written back."""
    hidden: Any = enum.Enum("Hidden", "RED")
    elsewhere: Any = enum.Enum("Elsewhere", "RED", module="no.such.module")
    shadow: Any = enum.Enum("Colour", "RED", module=__name__)
    found = [7, hidden.RED, elsewhere.RED, shadow.RED, Colour.RED]
    assert keys.encoded(found).to_pylist() == [keys.encode(7), None, None, None, keys.encode(Colour.RED)]


def test_a_decimal_with_thousands_of_zeros_takes_few_steps_and_no_memory_to_speak_of() -> None:
    long = [decimal.Decimal("1" + "0" * zeros) for zeros in (16_000, 10**6)]
    assert keys.encoded(long).to_pylist() == [keys.encode(decimal.Decimal("1e16000")), None]
    assert calls_of(lambda: keys.encoded(long)) < 10**5  # one for each zero would be ten times as many
    assert most_memory_of(lambda: keys.encoded(long)) < 2**26


class Moment(datetime.datetime):
    """A time of a class of its own."""


class Day(datetime.date):
    """A day of a class of its own."""


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (np.datetime64("2026-01-05T10:00", "ns"), datetime.datetime(2026, 1, 5, 10)),
        (np.datetime64("2026-01-05T10:00", "s"), datetime.datetime(2026, 1, 5, 10)),
        (np.datetime64("2026-01-05"), datetime.datetime(2026, 1, 5)),
        (np.datetime64("2026"), datetime.datetime(2026, 1, 1)),
        (Moment(2026, 1, 5, 10), datetime.datetime(2026, 1, 5, 10)),
        (Day(2026, 1, 5), datetime.date(2026, 1, 5)),
    ],
)
def test_times_of_numpy_and_of_other_classes_are_those_of_python(value: Any, key: Any) -> None:
    assert same(keys.decoded(keys.encode(value)), key)
    assert keys.encoded([value], units=True).equals(keys.encoded([key], units=True))


@pytest.mark.parametrize(
    "value",
    [
        np.datetime64("2026-01-05T10:00:00.000000001"),
        np.datetime64("20000-01-01", "s"),
        np.datetime64(2**63 // 7 * 2 + 2**61, "W"),
        np.datetime64("NaT"),
        np.timedelta64(5, "ns"),
        np.longdouble(1),
        np.complex128(1),
        np.void(b"a"),
        pd.Timestamp("2026-01-05T10:00:00.000000001"),
        pd.Timestamp(np.datetime64("20000-01-01", "s")),
    ],
)
def test_times_that_python_does_not_have_are_no_keys(value: Any) -> None:
    assert keys.encoded([7, value]).to_pylist() == [keys.encode(7), None]


@pytest.mark.parametrize(
    "value", [object(), [1], {1: 2}, {1}, frozenset({(1, None, "a" * 2**14)}), pd.NaT, "a" * 2**14]
)
def test_what_cannot_be_a_key_is_null_beside_keys_that_stay(value: object) -> None:
    assert keys.encoded([7, value, "a"]).to_pylist() == [keys.encode(7), None, keys.encode("a")]
    with pytest.raises(keys.NoKeyError, match=r"^(cannot be a key|is too long for a key)$"):
        keys.encode(value)


def test_a_text_of_a_class_of_its_own_is_its_text() -> None:
    assert keys.encoded([Loud("a")]).to_pylist() == [keys.encode("a")]


def test_a_long_privacy_id_is_known_by_its_digest_and_a_missing_one_is_null() -> None:
    found = keys.encoded(["a" * 2**15, "b" * 2**15, "a" * 2**15, None, float("nan"), 0.0], units=True).to_pylist()
    assert found[0] == found[2] != found[1]
    assert len(found[0]) == 33
    assert [len(cell) for cell in keys.encoded(["a" * 63, "a" * 64], units=True).to_pylist()] == [64, 33]
    assert found[3:] == [None, None, keys.encode(0)]


def test_the_column_has_one_type_whatever_the_rows_hold() -> None:
    columns = [keys.encoded(found) for found in ([], [1], ["a"], [None], [object()], [(1, "a")])]
    assert {str(column.type) for column in columns} == {"binary"}


class Size(enum.IntEnum):
    """A number."""

    LARGE = 1


class Hue(str, enum.Enum):  # noqa: UP042 - programs have both
    """A text."""

    RED = "a"


class Tone(enum.StrEnum):
    """A text."""

    RED = "a"


class Feast(datetime.date, enum.Enum):
    """A day."""

    EPIPHANY = 2026, 1, 6


class Share(decimal.Decimal, enum.Enum):
    """A number."""

    HALF = "0.5"


Pair = collections.namedtuple("Pair", "one other")
DAY, MOMENT = datetime.date(2026, 1, 6), datetime.datetime(2026, 1, 6, 2, 30)
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
OVER = datetime.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)  # an hour that comes twice


class NoOffset(datetime.tzinfo):
    """A zone that says nothing, so that a time in it has none."""

    def utcoffset(self, when: datetime.datetime | None) -> None:
        return None


ONE = [
    1,
    1.0,
    True,
    np.int8(1),
    np.uint64(1),
    np.float16(1),
    np.float64(1),
    np.bool_(True),
    Size.LARGE,
    decimal.Decimal("1.0"),
]
EQUAL: dict[str, tuple[list[Any], int]] = {
    "ones": (ONE, 4),
    "zeros": ([0, False, 0.0, -0.0, decimal.Decimal("-0.0"), decimal.Decimal("0e99999")], 4),
    "halves": ([0.5, np.float32(0.5), decimal.Decimal("0.50"), Share.HALF], 2),
    "large numbers": ([2**70, 2.0**70, decimal.Decimal(2**70), np.float64(2**70)], 3),
    "text": (["a", np.str_("a"), Hue.RED, Tone.RED], 1),
    "text with a zero": (["a\0", np.str_("a\0")], 1),
    "bytes with a zero": ([b"a\0", np.bytes_(b"a\0")], 1),
    "days of NumPy": (
        [pd.Timestamp(DAY), datetime.datetime(2026, 1, 6)]
        + [np.datetime64("2026-01-06", unit) for unit in ("D", "h", "m", "s", "ms", "us", "ns")], 1),
    "years": ([np.datetime64("2026-01-01", unit) for unit in ("Y", "M", "D", "ns", "15s")], 1),
    "moments": ([MOMENT, MOMENT.replace(fold=1), MOMENT.replace(tzinfo=NoOffset()), pd.Timestamp(MOMENT), np.datetime64(MOMENT),
                 np.datetime64(MOMENT, "m"), pd.Timestamp(MOMENT).as_unit("s")], 1),
    "moments in zones": ([MOMENT.replace(tzinfo=datetime.UTC), MOMENT.replace(tzinfo=datetime.UTC).astimezone(BERLIN),
                          pd.Timestamp(MOMENT, tz="UTC"), pd.Timestamp(MOMENT, tz="UTC").tz_convert("Asia/Tokyo")], 1),
    "an hour that comes twice": ([OVER, OVER.replace(fold=1)], 2),
    "days": ([DAY, Feast.EPIPHANY], 1),
    "tuples": ([("a", 1), Pair("a", 1), (np.str_("a"), 1.0), Pair(Hue.RED, True)], 3),
    "sets": ([frozenset({1, "a"}), frozenset({"a", 1.0}), frozenset({True, Tone.RED})], 3),
    "sets of days": ([frozenset({np.datetime64("2026-01-06", unit)}) for unit in ("D", "s")], 1),
}  # fmt: skip


@pytest.mark.parametrize(("alike", "keys_of_beam"), EQUAL.values(), ids=EQUAL)
def test_values_that_are_one_key_of_a_dict_are_one_privacy_id(alike: list[Any], keys_of_beam: int) -> None:
    """Else one person would be bounded as several. Partition keys are the same values of one class, as on Beam."""
    assert all(alike[0] == value for value in alike)
    together = keys.encoded([*alike, "b", 7.5, ("a", 2)], units=True).to_pylist()
    alone = [cell for value in alike for cell in keys.encoded([value], units=True).to_pylist()]
    assert len({*together[: len(alike)], *alone}) == 1
    assert len(set(together)) == 4
    assert None not in together
    assert len({keys.encode(value) for value in alike}) == keys_of_beam


def test_different_values_are_different_privacy_ids() -> None:
    values = [1, 0, 2, "1", b"1", "a", "a\0", 0.1, np.float32(0.1), decimal.Decimal("0.1"), DAY, DAY.replace(day=7), MOMENT, OVER,
              MOMENT.replace(tzinfo=datetime.UTC), uuid.UUID(int=1), Colour.RED, Other.RED, (1,), (1, 1)]  # fmt: skip
    assert len(set(keys.encoded(values, units=True).to_pylist())) == len(set(values)) == len(values)


def test_a_date_is_the_same_privacy_id_as_its_day_of_numpy() -> None:
    """They are equal, and whether their hashes are depends on the version of NumPy."""
    days = [DAY, np.datetime64(DAY), np.datetime64(DAY, "ns")]
    assert len(set(keys.encoded(days, units=True).to_pylist())) == 1
    assert keys.encode(DAY) != keys.encode(np.datetime64(DAY))


def test_a_number_of_thousands_of_digits_is_no_key() -> None:
    assert keys.encoded([10**5000, 7]).to_pylist() == [None, keys.encode(7)]
    with pytest.raises(keys.NoKeyError, match=r"^is too large for a key$"):
        keys.encode(10**5000)
