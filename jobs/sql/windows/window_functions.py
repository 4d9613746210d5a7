"""The window functions that unit columns may use, over places and frames.

In: a `SqlWindow`, the layout of its rows, the values of the expressions that it names. Out: one value for each row of the table.
Holds: each value is made from the rows of one unit by integer arithmetic, by counting, or by taking the value of a row; only
`avg` ends with one division of the nearest floats; so nothing about other units, batches or the order of rows shows, and
nothing that a row holds makes it fail. Not covered: which rows are in a frame (`frames`); what is allowed (`window_whitelist`).
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.jobs.sql.row_expressions import Expression
from dp_pipelines.jobs.sql.windows.frame_sums import Sums, digits_of, divisor_of, running
from dp_pipelines.jobs.sql.windows.frames import (
    Codes,
    Flags,
    Frame,
    FrameLayout,
    Places,
    codes_of,
    sorted_places,
    starts_of,
    valid_of,
)

MOST_TEXT = 256
"""The most bytes of a text that may be the value of a window; a longer one counts as null."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrderBy:
    """One item of ORDER BY."""

    expression: Expression
    descending: bool
    nulls_first: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class SqlWindow:
    """A window function and its OVER clause, checked. It is also partitioned by the privacy unit.

    Args:
        function: its name.
        argument: its argument; None for `count(*)` and row numbers.
        condition: its FILTER.
        default: the default of `lag` and `lead`, of the argument's type.
        number: how far `lag` and `lead` go, or which row `nth_value` takes.
        distinct: whether `count` counts each value once.
        ignore_nulls: whether rows with a null argument are skipped.
        partitions, orders, frame: the parts of OVER.
        type: the type of its values.
    """

    function: str
    argument: Expression | None
    condition: Expression | None
    default: Expression | None
    number: int
    distinct: bool
    ignore_nulls: bool
    partitions: tuple[Expression, ...]
    orders: tuple[OrderBy, ...]
    frame: Frame
    type: pa.DataType

    @property
    def read(self) -> tuple[Expression, ...]:
        """All expressions that it names."""
        named = (self.argument, self.condition, self.default, *self.partitions, *(o.expression for o in self.orders))
        return tuple(expression for expression in named if expression is not None)

    @property
    def layout(self) -> tuple[object, ...]:
        """Windows with an equal key share one layout."""
        ordered = tuple((order.expression.sql, order.descending, order.nulls_first) for order in self.orders)
        return (tuple(expression.sql for expression in self.partitions), ordered)


def evaluate(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> pa.Array:
    """The window's value for each row of the table.

    Args:
        window: the function.
        layout: the layout for its partition and order.
        values: the values of each expression that it names, by SQL; one for each row of the table.
    """
    found = _FUNCTIONS[window.function](window, layout, values)
    places = np.empty(len(layout.rows), np.int64)
    places[layout.rows] = np.arange(len(layout.rows))
    return found.take(pa.array(places))


def shortened(found: pa.Array) -> pa.Array:
    """Texts that a window reads: a long one is replaced by `MOST_TEXT` + 1 bytes that differ for different texts.

    They begin like the text, so that ORDER BY still goes by its first bytes, and end with a digest. So rows with a megabyte of
    text each are ordered in little memory, and equal texts stay equal.
    """
    if not (pa.types.is_string(found.type) or pa.types.is_binary(found.type)):
        return found
    long = pc.fill_null(pc.greater(pc.binary_length(found), MOST_TEXT), False)
    if not pc.any(long).as_py():
        return found
    short = [_head_and_digest(value.as_buffer()) for value in found.filter(long)]
    return pc.replace_with_mask(found, long, pa.array(short, pa.binary()).cast(found.type))


def _head_and_digest(text: pa.Buffer) -> bytes:
    digest = hashlib.blake2b(text, digest_size=32).hexdigest().encode()
    room = MOST_TEXT + 1 - len(digest)
    return memoryview(text)[:room].tobytes().decode(errors="ignore").encode().ljust(room) + digest


def _argument(window: SqlWindow, values: Mapping[str, pa.Array]) -> pa.Array:
    """The argument's values. Long texts become null if a window would copy them, so that no row can fill the memory."""
    assert window.argument is not None
    found = values[window.argument.sql]
    if window.function != "count" and (pa.types.is_string(found.type) or pa.types.is_binary(found.type)):
        return pc.if_else(pc.less_equal(pc.binary_length(found), MOST_TEXT), found, pa.scalar(None, found.type))
    return found


def _counted(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> Flags:
    """Whether the row at each place counts: its argument is not null, and FILTER holds."""
    counts = np.ones(len(layout.rows), np.bool_)
    if window.argument is not None:
        counts &= valid_of(_argument(window, values))[layout.rows]
    if window.condition is not None:
        held = pc.fill_null(values[window.condition.sql], False).to_numpy(zero_copy_only=False)
        counts &= held.astype(np.bool_)[layout.rows]
    return counts


def _count(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> pa.Array:
    counts = _counted(window, layout, values)
    low, high = layout.frame(window.frame)
    if window.distinct:
        return pa.array(_distinct(codes_of(_argument(window, values))[layout.rows], counts, layout, low, high))
    return pa.array(_between(counts, low, high))


def _between(counts: Flags, low: Places, high: Places) -> Places:
    """How many places of each frame count."""
    totals = running(counts.astype(np.int64))
    return totals[high] - totals[low]


def _distinct(codes: Codes, counts: Flags, layout: FrameLayout, low: Places, high: Places) -> Places:
    """The number of distinct codes in each frame: places whose value did not appear earlier in the frame."""
    size = len(codes)
    order = sorted_places([layout.start, (~counts).astype(np.int64), np.where(counts, codes, np.int64(0))])
    again = ~starts_of([layout.start[order], counts[order].astype(np.int64), codes[order]])
    again &= counts[order]
    before = np.full(size, -1, np.int64)
    before[order[1:]] = np.where(again[1:], order[:-1], -1)
    if (low == layout.start).all():
        return _between(counts & (before < 0), low, high)  # the same, sooner
    # Where the value stood before, counted from 1 in its partition; 0 where it did not.
    since = np.where(before >= 0, before - layout.start + 1, 0)
    longest = int((layout.end - layout.start).max()) + 1 if size else 1
    since[~counts] = longest + 1
    return _fewer(since, (longest + 1).bit_length(), low, high, low - layout.start + 1)


def _fewer(numbers: Codes, bits: int, low: Places, high: Places, than: Codes) -> Places:
    """For each frame, how many of its numbers are below the frame's limit: a wavelet matrix, one bit of the numbers at a time."""
    low, high, total = low.copy(), high.copy(), np.zeros(len(low), np.int64)
    for bit in reversed(range(bits)):
        zero = (numbers >> bit) & 1 == 0
        zeros = running(zero.astype(np.int64))
        low_zero, high_zero = zeros[low], zeros[high]
        one = (than >> bit) & 1 == 1
        total += np.where(one, high_zero - low_zero, 0)
        low = np.where(one, zeros[-1] + low - low_zero, low_zero)
        high = np.where(one, zeros[-1] + high - high_zero, high_zero)
        numbers = np.concatenate([numbers[zero], numbers[~zero]])
    return total


def _sum(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> pa.Array:
    argument = _argument(window, values)
    sums, counted = _sums(window, layout, values)
    if pa.types.is_floating(argument.type):
        return pa.array(sums.floats() / divisor_of(argument.type), mask=counted == 0)
    return sums.decimals(window.type, counted > 0)


def _average(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> pa.Array:
    argument = _argument(window, values)
    sums, counted = _sums(window, layout, values)
    return pa.array(sums.floats() / (np.maximum(counted, 1) * divisor_of(argument.type)), mask=counted == 0)


def _sums(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> tuple[Sums, Places]:
    """The sum of each frame, and how many numbers it includes."""
    digits, finite = digits_of(_argument(window, values))
    counts = _counted(window, layout, values) & finite[layout.rows]
    low, high = layout.frame(window.frame)
    added = [np.where(counts, digit[layout.rows], 0) for digit in digits]
    return Sums(added, low, high), _between(counts, low, high)


def _extreme(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> pa.Array:
    """`min` and `max`: the place of the extreme value, from tables of the extremes of 2, 4, 8, .. consecutive places."""
    argument = _argument(window, values)
    counts = _counted(window, layout, values)
    low, high = layout.frame(window.frame)
    codes = codes_of(argument)[layout.rows]
    codes = ~codes if window.function == "max" else codes
    # Only places that count are searched: their numbers, from `totals`, in frames of their own.
    totals, places = running(counts.astype(np.int64)), np.flatnonzero(counts)
    low, high = totals[low], totals[high]
    codes = codes[places]
    level = np.frexp(np.maximum(high - low, 1).astype(np.float64))[1] - 1
    best, found = np.arange(len(places)), np.zeros(len(low), np.int64)
    for power in range(int(level.max(initial=0)) + 1):
        size = 1 << power
        here = np.flatnonzero((level == power) & (high > low))
        found[here] = _better(codes, best[low[here]], best[high[here] - size])
        best = _better(codes, best[: max(len(best) - size, 0)], best[size:])
    return _taken(argument, layout, _at(places, found), high <= low)


def _better(codes: Codes, one: Places, other: Places) -> Places:
    return np.where(codes[one] <= codes[other], one, other)


def _at(places: Places, numbers: Places) -> Places:
    """`places[numbers]`; arbitrary values if there are no places."""
    return places[np.clip(numbers, 0, len(places) - 1)] if len(places) else np.zeros(len(numbers), np.int64)


def _taken(argument: pa.Array, layout: FrameLayout, places: Places, null: Flags) -> pa.Array:
    """The argument's values at places, null where told."""
    return argument.take(pa.array(_at(layout.rows, places), mask=null))


def _nth(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> pa.Array:
    """`first_value`, `last_value` and `nth_value`."""
    argument = _argument(window, values)
    low, high = layout.frame(window.frame)
    if window.ignore_nulls:
        counts = _counted(window, layout, values)
        totals, places = running(counts.astype(np.int64)), np.flatnonzero(counts)
        low, high = totals[low], totals[high]
    wanted = high - 1 if window.function == "last_value" else low + (window.number - 1)
    null = (wanted < low) | (wanted >= high)
    return _taken(argument, layout, _at(places, wanted) if window.ignore_nulls else wanted, null)


def _shifted(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> pa.Array:
    """`lag` and `lead`, which ignore the frame and look at the whole partition."""
    argument = _argument(window, values)
    here = np.arange(len(layout.rows))
    low, high = layout.start, layout.end
    back = window.function == "lag"
    if window.ignore_nulls:
        counts = _counted(window, layout, values)
        totals, places = running(counts.astype(np.int64)), np.flatnonzero(counts)
        low, high = totals[low], totals[high]
        wanted = totals[here] - window.number if back else totals[here + 1] + (window.number - 1)
    else:
        wanted = here - window.number if back else here + window.number
    outside = (wanted < low) | (wanted >= high)
    found = _taken(argument, layout, _at(places, wanted) if window.ignore_nulls else wanted, outside)
    if window.default is None:
        return found
    return pc.if_else(pa.array(outside), values[window.default.sql].take(pa.array(layout.rows)), found)


def _row_number(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> pa.Array:
    return pa.array(np.arange(len(layout.rows)) - layout.start + 1)


def _rank(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> pa.Array:
    return pa.array(layout.peer_start - layout.start + 1)


def _dense_rank(window: SqlWindow, layout: FrameLayout, values: Mapping[str, pa.Array]) -> pa.Array:
    groups = np.cumsum(layout.peer_start == np.arange(len(layout.rows)))
    return pa.array(groups - _at(groups, layout.start) + 1 if len(groups) else groups)


_FUNCTIONS: Mapping[str, Callable[[SqlWindow, FrameLayout, Mapping[str, pa.Array]], pa.Array]] = {
    "count": _count,
    "sum": _sum,
    "avg": _average,
    "min": _extreme,
    "max": _extreme,
    "first_value": _nth,
    "last_value": _nth,
    "nth_value": _nth,
    "lag": _shifted,
    "lead": _shifted,
    "row_number": _row_number,
    "rank": _rank,
    "dense_rank": _dense_rank,
}
