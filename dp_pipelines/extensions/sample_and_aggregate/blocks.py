"""Sample and aggregate: a user's function on disjoint blocks of units, and a private mean or median of its results.

In: the number of blocks, the range of a result, a default. Out: `Blocks`, whose `query` is a stage of a plan; `run`,
which runs the function on one block. Holds: whatever the function does with its rows, one unit changes at most one
result, within the range (docs/sample_and_aggregate.md). Not covered: what the function's running time reveals;
functions that depend on more than their rows (say, on a file that another block writes).
"""

# One unit is in one block, so its rows change one result, which is clamped to [low, high]. To the plan, a block is a
# unit with one row. Replacing a row means removing one and adding one, so the query bounds two rows per unit. The
# exception is
# a statistic proven for a replaced row: a median with noise by smooth sensitivity.
#
# A block that is empty, fails, takes too long or gives no finite number gets the default.

import bisect
import contextlib
import dataclasses
import functools
import io
import json
import math
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.sample_and_aggregate import child_process
from dp_pipelines.kernels import keys, shard, sizes
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.lattice import Lattice
from dp_pipelines.kernels.statistics import Statistic, ValueSum
from dp_pipelines.metrics.base import Basis, Metric, Noisy, ReleasedValues
from dp_pipelines.metrics.quantile import Quantile
from dp_pipelines.metrics.smooth_median import SmoothMedian
from dp_pipelines.query.query import ContributionBounds, PublicPartitions, Query

Function = Callable[[pa.Table], float]
Aggregate = Literal["mean", "median"]
Method = Literal["ranks", "smooth_sensitivity"]

BLOCKS, OUTPUT = "blocks", "result_of_block"
"""Columns of the stage's own rows: the number of blocks (its one partition), and the result of one of them."""

LOADING = 60.0
"""The seconds that a child has to load the function when we try it beforehand."""

CANDIDATES = 1000
"""The number of even steps of the range among which a median is chosen."""


@dataclasses.dataclass(frozen=True)
class BlockMean(Metric):
    """The mean of the results of all blocks, whose number is public. Made by `Blocks`.

    >>> BlockMean(blocks=10, low=0.0, high=1.0).statistics(Basis(centred=False, nullable=True))[0].kind
    'sum'
    """

    blocks: int = dataclasses.field(kw_only=True)
    low: float = dataclasses.field(kw_only=True)
    high: float = dataclasses.field(kw_only=True)
    column: str = dataclasses.field(default=OUTPUT, init=False)  # type: ignore[misc]  # narrows the class variable

    @property
    def value_range(self) -> tuple[float, float]:
        """The range of a result."""
        return self.low, self.high

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        lattice = Lattice.for_values(self.low, self.high, centred=True)
        return (ValueSum(column=self.column, lattice=lattice),)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        (statistic,) = self.statistics(basis)
        assert statistic.lattice is not None
        total = noisy[statistic]
        means = np.clip(statistic.lattice.offset + total.values / self.blocks, self.low, self.high)
        return means, np.full(len(means), total.stddev / self.blocks)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blocks:
    """How a function's results on blocks of units are aggregated.

    Args:
        privacy_unit: the column(s) of the privacy unit, as in the other stages of the plan.
        blocks: how many blocks, fixed in the plan; start with about the square root of the number of units.
        low, high: the range of a result; values outside are clamped.
        default: the result of an empty or failed block; by default the middle of the range.
        aggregate: `mean`, or `median` (its standard deviation is null).
        method: of a median: `ranks` chooses among a thousand even steps of the range by exact ranks;
            `smooth_sensitivity` adds noise that is small if the results around the median are close together, and uses
            part of delta.
        name: of the published column.

    Raises:
        RequestError: an argument is out of its range.

    >>> Blocks(privacy_unit="customer", blocks=50, low=0.0, high=1.0).default
    0.5
    """

    privacy_unit: str | Sequence[str]
    blocks: int
    low: float
    high: float
    default: float | None = None
    aggregate: Aggregate = "mean"
    method: Method = "ranks"
    name: str = "value"

    def __post_init__(self) -> None:
        object.__setattr__(self, "privacy_unit", checks.names(self.privacy_unit, "privacy_unit"))
        object.__setattr__(self, "blocks", checks.whole(self.blocks, "blocks", low=2, high=sizes.MOST_SHARDS))
        for field in ("low", "high"):
            object.__setattr__(self, field, checks.number(getattr(self, field), field, above=-1e300, below=1e300) + 0.0)
        if not self.low < self.high:
            raise RequestError(field="low", message="must be below high", hint="declare the range of a result")
        middle = self.low / 2 + self.high / 2
        default = middle if self.default is None else checks.number(self.default, "default") + 0.0
        if not self.low <= default <= self.high:
            raise RequestError(field="default", message="must be from low to high")
        object.__setattr__(self, "default", default)
        if self.aggregate not in get_args(Aggregate):
            raise RequestError(field="aggregate", message="must be one of " + ", ".join(get_args(Aggregate)))
        if self.method not in get_args(Method):
            raise RequestError(field="method", message="must be one of " + ", ".join(get_args(Method)))
        if self.aggregate != "median" and self.method != "ranks":
            raise RequestError(
                field="method", message="applies to a median", hint='write aggregate="median", or leave it out'
            )
        if {BLOCKS, OUTPUT} & set(self.units):
            raise RequestError(field="privacy_unit", message=f"must not be {BLOCKS!r} or {OUTPUT!r}", hint="rename it")
        self._metric()

    @property
    def units(self) -> tuple[str, ...]:
        """The columns of the privacy unit."""
        return tuple(self.privacy_unit)

    @property
    def query(self) -> Query:
        """The stage for a plan. One unit has two rows in one partition, since replacing a row changes two.

        A median with smooth sensitivity is proven for a replaced value, and reads one row per unit.
        """
        rows = 1 if self.method == "smooth_sensitivity" else 2
        return Query(
            privacy_unit=self.units,
            partition_by=BLOCKS,
            partitions=PublicPartitions(keys=[[self.blocks]]),
            bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=rows),
            metrics={self.name: self._metric()},
        )

    def _metric(self) -> Metric:
        if self.aggregate == "mean":
            metric = BlockMean(blocks=self.blocks, low=self.low, high=self.high)
            metric.statistics(Basis(centred=True, nullable=False))
            return metric
        if self.method == "smooth_sensitivity":
            return SmoothMedian(column=OUTPUT, blocks=self.blocks, low=self.low, high=self.high)
        return Quantile(OUTPUT, quantile=0.5, candidates=_steps(self.low, self.high), method="exponential")

    def result(self, value: float | None) -> float:
        """The value that counts for a block, whatever the function gave: in range, and a step for a median by ranks."""
        assert self.default is not None
        if value is None or not math.isfinite(value):
            value = self.default
        kept = min(max(value, self.low), self.high)
        if self.aggregate == "mean" or self.method != "ranks":
            return kept
        # If all results were between two steps, ranks could not tell one step from another.
        steps = _steps(self.low, self.high)
        after = min(max(bisect.bisect_left(steps, kept), 1), len(steps) - 1)
        before = steps[after - 1]
        return before if kept / 2 - before / 2 <= steps[after] / 2 - kept / 2 else steps[after]

    def row(self, block: int, value: float | None) -> pa.Table:
        """The row of the stage for a block."""
        columns = {name: pa.array([block], pa.int64()) for name in self.units}
        return pa.table({**columns, BLOCKS: pa.array([self.blocks], pa.int64()), OUTPUT: [self.result(value)]})

    def types(self) -> pa.Table:
        """An empty table with the types of `row`."""
        return self.row(0, None).slice(0, 0)

    def cut(self, table: pa.Table, columns: Sequence[str], salt: int) -> list[tuple[int, pa.Table]]:
        """A table of events by block, in wire form: u0.. (unit), c0.. (the columns that the function reads).

        Block 0 learns the types even if there are no rows: columns whose types hash differently are refused there.

        Raises:
            RequestError: a column is missing, a duplicate, or of a type that cannot be read here (all public).
        """
        for name in (*self.units, *columns):
            if len(table.schema.get_all_field_indices(name)) != 1:
                raise RequestError(
                    field=f"column {name!r}", message="is not a column of the input, or occurs more than once"
                )
            keys.check_key_type(table.schema.field(name).type, name, partition=False)
        wire = {f"u{i}": keys.plain_unit(table.column(name)) for i, name in enumerate(self.units)}
        wire |= {f"c{i}": keys.plain(table.column(name)) for i, name in enumerate(columns)}
        whole = pa.table(wire)
        names = [f"u{i}" for i in range(len(self.units))]
        for name in names:
            if whole.column(name).null_count:
                whole = gather.filter_rows(whole, pc.is_valid(whole.column(name)))
        return [(0, whole.slice(0, 0)), *shard.slices(whole, names, salt, self.blocks)]


@functools.lru_cache(maxsize=16)
def _steps(low: float, high: float) -> tuple[float, ...]:
    """The steps among which a median is chosen by ranks."""
    return tuple(np.unique(np.linspace(low, high, CANDIDATES)).tolist())


def ordered(tables: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    """The rows of a block, in an order and with types that depend only on these rows.

    Otherwise, the result of a function that depends on the order of its rows would change with the rows of other
    blocks.
    """
    table = shard.joined(tables)
    for index, field in enumerate(table.schema):
        if pa.types.is_integer(field.type) and not pa.types.is_uint64(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.int64()))
    table = table.combine_chunks().sort_by([(name, "ascending") for name in table.column_names])
    return table.select([f"c{i}" for i in range(len(columns))]).rename_columns(list(columns)).combine_chunks()


def check_function(function: object) -> bytes:
    """The function in a form that a child process can load.

    Raises:
        RequestError: it is not a function, or not defined at the top of a module.
    """
    hint = "define it at the top of a module that workers can import"
    if not callable(function):
        raise RequestError(field="function", message="must be a function of one pyarrow table", hint=hint)
    try:
        pickled = pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError):
        raise RequestError(field="function", message="cannot be sent to another process", hint=hint) from None
    if getattr(function, "__module__", None) == "__main__" or b"__main__" in pickled:
        raise RequestError(field="function", message="is defined in the script that is run", hint=hint)
    if _in_child(pickled, b"", memory_mb=4096, seconds=LOADING) is None:
        # Otherwise every block would get the default, and nobody would know why.
        raise RequestError(field="function", message="cannot be imported by another process", hint=hint)
    return pickled


def run(function: bytes, rows: pa.Table, *, memory_mb: int, seconds: float) -> float | None:
    """The function's result on the rows of one block, in its own process; None if it gives no number in time.

    Args:
        function: from `check_function`.
        rows: of the block; without rows nothing runs.
        memory_mb: the limit on its address space.
        seconds: the limit on its wall-clock time, and on its processor time.
    """
    if rows.num_rows == 0:
        return None
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(rows)
    return _in_child(function, stream.getvalue(), memory_mb=memory_mb, seconds=seconds)


def _in_child(function: bytes, rows: bytes, *, memory_mb: int, seconds: float) -> float | None:
    head = child_process.LENGTH.pack(memory_mb << 20, math.ceil(seconds), len(function))
    reading, writing = os.pipe()
    code = (
        f"import json, sys; sys.path[:] = json.loads({json.dumps(json.dumps(sys.path))});"
        f"import runpy; runpy.run_path({child_process.__file__!r}, run_name='__main__')"  # the whole package would be slow
    )
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writing],
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        os.close(writing)
        writing = -1
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(head + function + rows, timeout=seconds)
        _end(process)
        os.set_blocking(reading, False)
        return _number(reading)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the child and everything it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    process.wait()


def _number(pipe: int) -> float | None:
    try:
        answer = os.read(pipe, child_process.RESULT.size + 1)
    except BlockingIOError:
        return None
    size: Any = child_process.RESULT.size
    return float(child_process.RESULT.unpack(answer)[0]) if len(answer) == size else None
