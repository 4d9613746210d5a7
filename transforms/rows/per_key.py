"""Per key: (key, (unit, value)) pairs in, (key, released value) pairs out, as Beam's own CombinePerKey has them.

In: a PCollection of pairs with declared types. Out: pairs, or rows with a standard deviation beside each value. Holds: the engine
is that of `PrivateAggregate`; each transform is a separate plan, whose budget adds to that of any other release about the same
people; a pair that is not of its declared type is dropped, or its value null, by itself. Not covered: several metrics under one
budget, for which `PrivateAggregate` takes rows.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints import native_type_compatibility, typehints

from dp_pipelines import interrupts
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns import gather
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.counts import Count
from dp_pipelines.metrics.sums import Mean, Sum
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.query import UNSAID, ContributionBounds, PrivatePartitions, PublicPartitions, Query
from dp_pipelines.transforms.private_aggregate import PrivateAggregate
from dp_pipelines.transforms.release_transform import ReleaseTransform
from dp_pipelines.transforms.rows import cell_values
from dp_pipelines.transforms.rows.input_tables import check_batch
from dp_pipelines.transforms.rows.row_batches import GatherRows, with_types
from dp_pipelines.transforms.rows.schema_rows import arrow_type, cells_of
from dp_pipelines.transforms.rows.to_tables import BATCH_ROWS

KEY, UNIT, VALUE = "key", "unit", "value"

_DECLARE = ".with_output_types(tuple[str, tuple[int, float]])"


@dataclasses.dataclass(kw_only=True, eq=False)
class PrivateCountPerKey(ReleaseTransform):
    """Count pairs per key.

    Args:
        bounds: how much one unit may contribute; keys are the partitions.
        epsilon, delta: the budget of this release alone.
        partitions: how keys are selected; left out, privately from the data.
        public_keys: the keys that are released, whatever the data hold; they must not come from the data.
        as_rows: whether the output is rows with the columns `key` (or `key0`, `key1`, ...), the value and its standard deviation.

    Input: a bounded PCollection in the global window of `(key, (unit, value))`, of which types are declared, by type hints of
    the function before it or by `with_output_types(tuple[str, tuple[int, float]])`; to be counted also `(key, unit)`. The
    key may be a tuple. Output: a PCollection of (key, float).

    Raises:
        RequestError: when the pipeline is built: types are not declared, or cannot be those of a key, a unit or a value.

    >>> visits = [("north", customer) for customer in range(1000)]
    >>> bounds = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     counts = pipeline | beam.Create(visits) | PrivateCountPerKey(bounds=bounds, epsilon=1.0, delta=1e-6)
    >>> counts.element_type
    Tuple[<class 'str'>, <class 'float'>]
    """

    bounds: ContributionBounds
    epsilon: float
    delta: float = 0.0
    partitions: PrivatePartitions | PublicPartitions = UNSAID
    public_keys: Sequence[Any] | None = None
    as_rows: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        if self.public_keys is not None:
            if self.partitions is not UNSAID:
                message = "stands beside partitions, which says the same"
                raise RequestError(field="public_keys", message=message, hint="drop one of the two")
            keys = [key if isinstance(key, tuple) else (key,) for key in self.public_keys]
            self.partitions = PublicPartitions(keys=keys)

    def metric(self) -> Metric:
        """The metric that is released."""
        return Count()

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """Pairs to tables, the release, tables to pairs."""
        check_batch(pcoll)
        pairs = PairType.of(pcoll.element_type, with_value=bool(self.metric().reads))
        name = type(self.metric()).__name__.lower()
        query = Query(
            privacy_unit=UNIT,
            partition_by=pairs.key_names,
            bounds=self.bounds,
            partitions=self.partitions,
            metrics={name: self.metric()},
        )
        plan = Plan(epsilon=self.epsilon, delta=self.delta, stages={"release": query})
        made = pcoll | "ToTables" >> beam.ParDo(_PairsToTables(pairs)).with_output_types(pa.Table)
        release = PrivateAggregate(plan["release"], types=pairs.types, as_rows=self.as_rows)
        released = with_types(made, [pairs.table([])]) | "PrivateAggregate" >> release
        if self.as_rows:
            return released
        out = tuple[pairs.key_hint, float]  # type: ignore[name-defined]  # made while the program runs
        return released | "ToPairs" >> beam.ParDo(_ToPairs(pairs.key_names, name, pairs.is_tuple)).with_output_types(
            out
        )


@dataclasses.dataclass(kw_only=True, eq=False)
class PrivateSumPerKey(PrivateCountPerKey):
    """Sum values per key; further arguments as for `Sum`, the others as for `PrivateCountPerKey`."""

    min_value: float | None = None
    max_value: float | None = None
    min_sum_per_partition: float | None = None
    max_sum_per_partition: float | None = None

    def metric(self) -> Metric:
        """The metric that is released."""
        return Sum(
            VALUE,
            min_value=self.min_value,
            max_value=self.max_value,
            min_sum_per_partition=self.min_sum_per_partition,
            max_sum_per_partition=self.max_sum_per_partition,
        )


@dataclasses.dataclass(kw_only=True, eq=False)
class PrivateMeanPerKey(PrivateCountPerKey):
    """Average values per key; further arguments as for `Mean`, the others as for `PrivateCountPerKey`."""

    min_value: float | None = None
    max_value: float | None = None
    nullable: bool = True

    def metric(self) -> Metric:
        """The metric that is released."""
        return Mean(VALUE, min_value=self.min_value, max_value=self.max_value, nullable=self.nullable)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairType:
    """What pairs are by their type hint.

    Args:
        key_hint: of the key.
        paths: where the value of each column stands in a pair, by column.
        types: of the columns.
        always: columns of keys that may not be null: a pair without such a value is dropped.
        is_tuple: whether the key is a tuple.
    """

    key_hint: Any
    paths: dict[str, tuple[int, ...]]
    types: dict[str, pa.DataType]
    always: tuple[str, ...]
    is_tuple: bool

    @classmethod
    def of(cls, hint: Any, *, with_value: bool) -> "PairType":
        """Those of a hint.

        Args:
            hint: of the elements.
            with_value: whether values are read.

        Raises:
            RequestError: it says not enough, or types that cannot be read.
        """
        pair = _parts(hint)
        if pair is None or len(pair) != 2:
            raise _undeclared(hint)
        key, rest = pair
        inner = _parts(rest)
        if (inner is None and with_value) or (inner is not None and len(inner) != 2):
            raise _undeclared(hint)
        keys = _parts(key)
        columns: dict[str, tuple[Any, tuple[int, ...]]] = {}
        if keys is None:
            columns[KEY] = key, (0,)
        else:
            columns |= {f"{KEY}{place}": (kind, (0, place)) for place, kind in enumerate(keys)}
        names = tuple(columns)
        columns[UNIT] = (rest, (1,)) if inner is None else (inner[0], (1, 0))
        if with_value:
            assert inner is not None
            columns[VALUE] = inner[1], (1, 1)
        types = {name: arrow_type(kind) for name, (kind, _) in columns.items()}
        for name, found in types.items():
            if found is None:
                raise RequestError(
                    field=name,
                    message=f"has type {columns[name][0]}, which cannot be read here",
                    hint=f"declare plain types, e.g. {_DECLARE}",
                )
        return cls(
            key_hint=key,
            paths={name: path for name, (_, path) in columns.items()},
            types={name: found for name, found in types.items() if found is not None},
            always=tuple(name for name in names if not _may_be_null(columns[name][0])),
            is_tuple=keys is not None,
        )

    @property
    def key_names(self) -> list[str]:
        """The columns of the key."""
        return [name for name in self.types if name not in (UNIT, VALUE)]

    def table(self, pairs: list[Any]) -> pa.Table:
        """A table of pairs."""
        columns = {
            name: cell_values.column([_at(pair, path) for pair in pairs], self.types[name])
            for name, path in self.paths.items()
        }
        for name in self.always:  # without a key, and so without a unit, a pair is dropped
            missing = columns[name].is_null().to_numpy(zero_copy_only=False)
            if missing.any():
                columns[UNIT] = gather.replaced(columns[UNIT], missing, None)
        return pa.table(columns)


def _parts(hint: Any) -> tuple[Any, ...] | None:
    """The types of the values of a tuple; None: it is none of a known length."""
    hint = native_type_compatibility.convert_to_beam_type(hint)
    return tuple(hint.tuple_types) if isinstance(hint, typehints.TupleHint.TupleConstraint) else None


def _may_be_null(hint: Any) -> bool:
    hint = native_type_compatibility.convert_to_beam_type(hint)
    return isinstance(hint, typehints.UnionConstraint) and type(None) in hint.union_types


def _undeclared(hint: Any) -> RequestError:
    return RequestError(
        field="input",
        message=f"holds elements of type {hint}, and (key, (unit, value)) pairs with declared types are read here",
        hint=f"say their types in the step before, e.g. beam.Map(...){_DECLARE}",
    )


def _at(pair: Any, path: tuple[int, ...]) -> Any:
    """Return the value at a place of a pair; None where it is none: text has places too."""
    try:
        for place in path:
            if not issubclass(type(pair), (tuple, list)):
                return None
            pair = pair[place]
    except BaseException:  # what an element raises must not be seen, and costs that element only
        interrupts.end_if_asked()
        return None
    return pair


class _PairsToTables(GatherRows):
    def __init__(self, pairs: PairType) -> None:
        super().__init__(None, BATCH_ROWS)
        self._pairs = pairs

    def tables(self, rows: list[Any]) -> Iterable[pa.Table]:
        return (self._pairs.table(rows),)


class _ToPairs(beam.DoFn):
    def __init__(self, keys: Sequence[str], value: str, is_tuple: bool) -> None:
        super().__init__()
        self._keys, self._value, self._is_tuple = tuple(keys), value, is_tuple

    def process(self, element: pa.Table) -> Iterator[tuple[Any, float]]:
        columns = [cells_of(element.column(name)) for name in self._keys]
        keys = zip(*columns, strict=True) if self._is_tuple else columns[0]
        yield from zip(keys, element.column(self._value).to_pylist(), strict=True)
