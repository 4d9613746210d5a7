"""A join of two PCollections of private rows on the privacy unit, for pipelines of your own.

In: two PCollections of Arrow tables. Out: one of joined rows, as jobs with `join:` make them. Holds: the joined rows of a unit
are a function of that unit's own rows in both tables (docs/proofs/joins.md), so what bounds them by unit needs no more noise.
Not covered: whether both tables name a person alike; budgets, which what releases something has.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns.type_names import declared_types
from dp_pipelines.noise import entropy
from dp_pipelines.steps.unit_join import JoinSide, UnitJoin, common_type, is_nested, joined_on_unit
from dp_pipelines.steps.whole_units import MOST_ROWS
from dp_pipelines.transforms.beam_flow import BeamFlow, collection_of
from dp_pipelines.transforms.release_transform import PublicTransform
from dp_pipelines.transforms.rows.input_tables import Types, tables_alone
from dp_pipelines.transforms.shard_counts import check_shards, shards_of

Names = str | Sequence[str]


@dataclasses.dataclass(eq=False, kw_only=True)
class JoinByUnit(PublicTransform):
    """Join the rows of two private tables that have the same privacy unit. NOT private: bound the result by that unit.

    Args:
        left, right: names and types of the columns that are read of each table; the names of joined rows must differ.
        unit: the columns of the privacy unit in the left and in the right table: two names, or two lists.
        on: pairs of further columns that must be equal; null and NaN meet nothing.
        max_rows_per_unit: how many rows of a unit are joined of each table, chosen by a keyed hash of the columns that are read.
        keeps_unmatched: whether rows of the left table that meet nothing stay, with nulls.
        row_hash: a name for one more column that tells the joined rows of a unit apart, to be the `row_id` of a query; None:
            there is no such column.
        num_shards: the number of groups of units into which the data are split; left out, as for `PrivateAggregate`.
        salt: a 64-bit number for the hashes of this run; drawn at random by default.

    Input: a tuple of two PCollections of pa.Table, bounded and in the global window. Output: a PCollection of pa.Table with the
    left table's columns and those of the right table, but for its unit.

    >>> orders = {"customer": "int64", "day": "date", "amount": "double"}
    >>> visits = {"user": "int64", "visited": "date", "page": "string"}
    >>> most = (1000, 1000)
    >>> join = JoinByUnit(left=orders, right=visits, unit=("customer", "user"), on=[("day", "visited")], max_rows_per_unit=most)
    >>> join.columns.names
    ['customer', 'day', 'amount', 'visited', 'page']
    """

    left: Types
    right: Types
    unit: tuple[Names, Names]
    max_rows_per_unit: tuple[int, int]
    on: Sequence[tuple[str, str]] = ()
    keeps_unmatched: bool = False
    row_hash: str | None = None
    num_shards: int | None = None
    salt: int | None = None

    def __post_init__(self) -> None:
        super().__init__()
        check_shards(self.num_shards)
        tables = declared_types(self.left), declared_types(self.right)
        units = tuple(checks.names(names, "unit") for names in self.unit)
        compared = list(zip(*units, strict=False)) + [tuple(pair) for pair in self.on]
        if len(units) != len(tables) or len(units[0]) != len(units[1]):
            raise RequestError(field="unit", message="has not as many columns in each table", hint="write two lists")
        kinds = [self._kind_of(tables, pair) for pair in compared]
        sides = []
        for place, (tag, types) in enumerate(zip(("l.", "r."), tables, strict=True)):
            checks.whole(self.max_rows_per_unit[place], "max_rows_per_unit", low=1, high=MOST_ROWS)
            for name, kind in types.items():
                if is_nested(kind):
                    message = f"has type {kind}, which joined rows cannot have"
                    raise RequestError(field=f"column {name!r}", message=message, hint="extract what you need before")
            side = JoinSide(
                tag=tag,
                unit=units[place],
                on=tuple(pair[place] for pair in self.on),
                reads=tuple(types),
                key_types={pair[place]: kind for pair, kind in zip(compared, kinds, strict=True)},
                most=self.max_rows_per_unit[place],
                needs_match=bool(place) or not self.keeps_unmatched,
            )
            sides.append(side)
        self._join = UnitJoin(
            left=sides[0],
            right=sides[1],
            columns=self._columns(tables, sides),
            pair_hash=self.row_hash or "",
            keeps_unmatched=self.keeps_unmatched,
        )
        self._salt = entropy.salt_number() if self.salt is None else self.salt

    @property
    def columns(self) -> pa.Schema:
        """The columns of joined rows."""
        return self._join.columns

    def _kind_of(self, tables: Sequence[Mapping[str, pa.DataType]], pair: Sequence[str]) -> pa.DataType:
        """The type in which a pair of columns is compared."""
        for types, name, side in zip(tables, pair, ("left", "right"), strict=True):
            if name not in types:
                raise RequestError(field=side, message=f"lacks column {name!r}", hint="add it with its type")
        one, other = (types[name] for types, name in zip(tables, pair, strict=True))
        kind = common_type(one, other)
        if kind is None:
            message = f"would be compared with {pair[1]!r} of type {other}, and has type {one}"
            raise RequestError(field=f"column {pair[0]!r}", message=message, hint="give both one type")
        return kind

    def _columns(self, tables: Sequence[Mapping[str, pa.DataType]], sides: Sequence[JoinSide]) -> pa.Schema:
        """Names and types of joined rows."""
        same = {name for name, other in self.on if name == other}
        found = {name: sides[0].key_types.get(name, keys.plain_type(kind)) for name, kind in tables[0].items()}
        added = [name for name in tables[1] if name not in sides[1].unit and name not in same]
        for name in added + ([self.row_hash] if self.row_hash else []):
            if name in found:
                message = f"has column {name!r}, which joined rows have already"
                raise RequestError(field="right", message=message, hint="rename one of the two before")
            found[name] = sides[1].key_types.get(name, keys.plain_type(tables[1].get(name, pa.uint64())))
        return pa.schema(found.items())

    def expand(self, pcolls: tuple[beam.PCollection[Any], beam.PCollection[Any]]) -> beam.PCollection[pa.Table]:
        """Cut both by unit, and join in the shards: one shuffle."""
        left, right = (
            tables_alone(pcoll, f"{side}Tables") for pcoll, side in zip(pcolls, ("Left", "Right"), strict=True)
        )
        shards = shards_of(left.pipeline, self.num_shards)
        return collection_of(joined_on_unit(BeamFlow(left), BeamFlow(right), self._join, shards, self._salt))
