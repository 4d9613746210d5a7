"""Synthetic rows made from public facts, for tuning without looking at the real ones.

In: assumptions (how many users and partitions, how their contributions and values are spread), types of columns. Out: a
table with the columns of units, partitions and values. Holds: the same assumptions and types give the same table,
because nothing is random: the words come from SplitMix64 with public constants; the assumptions can be put into words.
Not covered: whether real rows are like that; dependence between who, where, how often and how much, since there is none
here.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import hashing

SPREAD = 1.0
"""The standard deviation of the logarithm of all lognormal numbers here: 16% lie above e times the median."""

MOST_OF_A_TYPE = 2**31
SECONDS_OF_A_DAY = 86_400
MOST_DATES = 2**20
"""Days from 1970 that every reader of dates knows."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PARTITIONS, _PLACES, _ROWS, _VALUES = range(1, 5)
"""The purposes of words; those of the value columns follow."""

_QUANTILES = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Values:
    """How the values of a column are spread.

    Args:
        low, high: their declared range; they are not clipped to it.
        middle: their median.

    >>> Values(low=0, high=20, middle=10).words("price")
    'values of price: lognormal with median 10, spread 1'
    >>> Values(low=-4, high=4, middle=0).words("balance")
    'values of balance: normal with mean 0, standard deviation 2'
    """

    low: float
    high: float
    middle: float

    @property
    def lognormal(self) -> bool:
        """Whether they have a long upper tail, as amounts that cannot be negative do."""
        return self.low >= 0

    @property
    def stddev(self) -> float:
        """The standard deviation of values that may be negative: a quarter of the range, so about one in twenty is outside."""
        return (self.high - self.low) / 4

    def words(self, column: str) -> str:
        """The assumption."""
        if not self.lognormal:
            return f"values of {column}: normal with mean {self.middle:.6g}, standard deviation {self.stddev:.6g}"
        above = f"{self.low:.6g} and a lognormal" if self.low else "lognormal"
        return f"values of {column}: {above} with median {self.middle - self.low:.6g}, spread {SPREAD:g}"

    def made(self, normal: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values from standard normal numbers."""
        if self.lognormal:
            return self.low + (self.middle - self.low) * np.exp(SPREAD * normal)
        return self.middle + self.stddev * normal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assumptions:
    """The assumptions about the rows.

    Args:
        users: the number of privacy units.
        partitions: the number of partitions.
        listed: whether they come from a public list.
        partitions_of_user: the median number of partitions of a user.
        rows_each: the median number of rows of a user in one of them.
        values: by column.
    """

    users: int
    partitions: int
    listed: bool
    partitions_of_user: float
    rows_each: float
    values: Mapping[str, Values]

    @property
    def rows(self) -> float:
        """Roughly how many rows follow from this."""
        return self.users * mean(self.partitions_of_user, self.partitions) * mean(self.rows_each)

    @property
    def words(self) -> tuple[str, ...]:
        """All of them, one a sentence."""
        law = f"lognormal, spread {SPREAD:g}, rounded, at least 1"
        public = "from the public list, the first one most popular" if self.listed else "all with made-up names"
        return (
            f"{self.users:,} users, each a privacy unit",
            f"{self.partitions:,} partitions, {public}; popularity is one over the rank",
            f"partitions of a user: median {self.partitions_of_user:.6g}, {law}, at most all",
            f"rows of a user in a partition: median {self.rows_each:.6g}, {law}",
            *(values.words(column) for column, values in self.values.items()),
            "all of these are independent of each other, and nothing is null",
        )


def mean(median: float, most: float = math.inf) -> float:
    """The mean number of partitions or rows for a given median.

    >>> mean(0.01), round(mean(100.0)), mean(1e9, most=5)
    (1.0, 165, 5.0)
    """
    from scipy import special

    places = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    return float(_counts(median, most, special.ndtri(places)).mean())


def most(kinds: Iterable[pa.DataType]) -> int:
    """How many different keys this module can make for columns of some types.

    >>> most([pa.bool_(), pa.int8()])
    256
    """
    return min(math.prod(_different(keys.plain_type(kind)) for kind in kinds), MOST_OF_A_TYPE)


def made_keys(number: int, kinds: Iterable[pa.DataType]) -> list[pa.Array]:
    """Different keys.

    Args:
        number: how many; at most `most` of the types.
        kinds: of the columns.

    >>> [column.to_pylist() for column in made_keys(3, [pa.bool_(), pa.string()])]
    [[False, True, False], ['0', '0', '1']]
    """
    columns, rest = [], np.arange(number)
    for kind in map(keys.plain_type, kinds):
        different = _different(kind)
        columns.append(_keys(kind, rest % different))
        rest = rest // different
    return columns


def table(
    assumed: Assumptions,
    units: Mapping[str, pa.DataType],
    partitions: Mapping[str, pa.Array],
    values: Mapping[str, pa.DataType],
) -> pa.Table:
    """The rows.

    Args:
        assumed: what is assumed of them.
        units: types of the columns of the unit.
        partitions: by partition column, the value of each partition, the most popular first.
        values: types of the columns of values; something is assumed of each.
    """
    user, place = _pairs(assumed)
    rows = _counts(assumed.rows_each, math.inf, _normal(_ROWS, len(user)))
    user, place = np.repeat(user, rows), np.repeat(place, rows)
    found: dict[str, pa.Array] = {}
    for number, (name, kind) in enumerate(values.items()):
        numbers = assumed.values[name].made(_normal(_VALUES + number, len(user)))
        found[name] = _numbers(keys.plain_type(kind), numbers)
    for name, column in zip(units, made_keys(assumed.users, units.values()), strict=True):
        found[name] = column.take(pa.array(user))
    for name, column in partitions.items():
        found[name] = column.take(pa.array(place))
    return pa.table(found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfAKind:
    """Numbers of one type.

    Args:
        kind: the type of their column, or of the items of its lists.
        values: how they are spread.
        size: how many of them each row has, as a list; 0 where each has one.
    """

    kind: pa.DataType
    values: Values
    size: int = 0


def independent(
    users: int, rows_each: float, units: Mapping[str, pa.DataType], columns: Mapping[str, pa.Array | OfAKind]
) -> pa.Table:
    """Rows whose columns know nothing of each other.

    Args:
        users: the number of privacy units.
        rows_each: the median number of rows of a user.
        units: types of the columns of the unit.
        columns: of each other column the values that it can have, the most popular first, or numbers.

    >>> independent(2, 1.0, {"u": pa.int64()}, {"c": pa.array(["x"])}).column("c").unique().to_pylist()
    ['x']
    """
    user = np.repeat(np.arange(users), _counts(rows_each, math.inf, _normal(_ROWS, users)))
    found = {
        name: column.take(pa.array(user)) for name, column in zip(units, made_keys(users, units.values()), strict=True)
    }
    for number, (name, column) in enumerate(columns.items()):
        purpose = _VALUES + number
        if isinstance(column, OfAKind):
            drawn = column.values.made(_normal(purpose, len(user) * max(column.size, 1)))
            made = _numbers(keys.plain_type(column.kind), drawn)
            ends = np.arange(len(user) + 1, dtype=np.int32) * column.size
            found[name] = pa.ListArray.from_arrays(pa.array(ends), made) if column.size else made
        else:
            popular = np.cumsum(1 / np.arange(1, len(column) + 1))
            place = np.searchsorted(popular, _uniform(purpose, len(user)) * popular[-1]).clip(0, len(column) - 1)
            found[name] = column.take(pa.array(place))
    return pa.table(found)


def _pairs(assumed: Assumptions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Users and their partitions, each pair once."""
    own = _counts(assumed.partitions_of_user, assumed.partitions, _normal(_PARTITIONS, assumed.users))
    user = np.repeat(np.arange(assumed.users), own)
    popular = np.cumsum(1 / np.arange(1, assumed.partitions + 1))
    wanted = np.searchsorted(popular, _uniform(_PLACES, len(user)) * popular[-1]).clip(0, assumed.partitions - 1)
    wanted = wanted[np.lexsort((wanted, user))]
    # If another choice of the same user already has a place, take the next free one below it; at the end of the list,
    # all move up. After subtracting each choice's index, that is a running maximum for each user.
    before = np.arange(len(user)) - np.repeat(np.cumsum(own) - own, own)
    apart = user * (2 * assumed.partitions)
    place = np.maximum.accumulate(wanted - before + apart) - apart + before
    return user, np.minimum(place, assumed.partitions - np.repeat(own, own) + before)


def _counts(median: float, most: float, normal: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.clip(np.rint(median * np.exp(SPREAD * normal)), 1, most).astype(np.int64)


def _uniform(purpose: int, number: int) -> NDArray[np.float64]:
    """Numbers strictly between 0 and 1, from SplitMix64 with a different start for each purpose. Nothing is random."""
    start = hashing.mix(np.array([purpose], np.uint64))
    steps = np.arange(1, number + 1, dtype=np.uint64)
    return ((hashing.mix(start + steps * _GOLDEN) >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**52


def _normal(purpose: int, number: int) -> NDArray[np.float64]:
    from scipy import special

    return np.asarray(special.ndtri(_uniform(purpose, number)), np.float64)


def _different(kind: pa.DataType) -> int:
    """How many keys of a plain type are made."""
    if pa.types.is_null(kind):
        return 1
    if pa.types.is_boolean(kind):
        return 2
    if pa.types.is_integer(kind):
        return min(1 << int(kind.bit_width - pa.types.is_signed_integer(kind)), MOST_OF_A_TYPE)
    if pa.types.is_floating(kind):
        return 2**24
    if pa.types.is_decimal(kind):
        return int(min(10**kind.precision, MOST_OF_A_TYPE))
    if pa.types.is_fixed_size_binary(kind):
        return min(1 << int(8 * kind.byte_width), MOST_OF_A_TYPE)
    if pa.types.is_date(kind):
        return MOST_DATES
    return SECONDS_OF_A_DAY if pa.types.is_time(kind) else MOST_OF_A_TYPE


def _keys(kind: pa.DataType, codes: NDArray[np.int64]) -> pa.Array:
    """Keys of a plain type, equal where codes are."""
    if pa.types.is_null(kind):
        return pa.nulls(len(codes))
    if pa.types.is_binary(kind):
        return pa.array(codes).cast(pa.string()).cast(kind)
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_temporal(kind):
        scaled = codes * (1000 * SECONDS_OF_A_DAY) if pa.types.is_date64(kind) else codes
        width = kind.bit_width // 8
        held = np.zeros((len(codes), width), np.uint8)
        held[:, : min(width, 8)] = scaled.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
        return pa.Array.from_buffers(kind, len(codes), [None, pa.py_buffer(held)])
    return pa.array(codes).cast(kind)


def _numbers(kind: pa.DataType, array: NDArray[np.float64]) -> pa.Array:
    """Numbers in the type of their column: rounded, and within what it can hold."""
    if pa.types.is_null(kind):
        return pa.nulls(len(array))
    if pa.types.is_boolean(kind):
        return pa.array(array > 0.5)
    if pa.types.is_integer(kind):
        bits = kind.bit_width - pa.types.is_signed_integer(kind)
        largest = 2.0 ** min(bits, 53) - 1
        smallest = -largest if pa.types.is_signed_integer(kind) else 0
        return pa.array(np.clip(np.rint(array), smallest, largest).astype(kind.to_pandas_dtype()))
    if pa.types.is_decimal(kind):
        largest = (10.0 ** min(kind.precision, 15) - 1) * 10.0**-kind.scale
        most_digits = pa.decimal256(76, kind.scale) if kind.bit_width > 128 else pa.decimal128(38, kind.scale)
        return pa.array(np.clip(array, -largest, largest)).cast(most_digits).cast(kind)
    return pa.array(array).cast(kind)
