"""Computes what stages ask of whole units as a run does, and notes what becomes of rows and examples.

In: the rows of a shard's units. Out: the rows as the stage sees them (of an aggregate), and notes. Holds: the rows are those of a
run. NOT private. Not covered: which units are held out.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dp_pipelines.extensions.check.notes import Notes
from dp_pipelines.extensions.check.null_counts import nulls_of
from dp_pipelines.jobs.request.train_tasks import Task, Unit
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.lattice import numbers_and_nulls
from dp_pipelines.kernels.layout import LARGEST_BATCH
from dp_pipelines.query.train_model import Category, Number, NumberLabel
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.step import Step
from dp_pipelines.steps.whole_units import ToUnitShards, canonical, whole_units
from dp_pipelines.training.features import category_values
from dp_pipelines.training.features.encoder import Encoder

if TYPE_CHECKING:
    from dp_pipelines.jobs.sql.windows.unit_columns import UnitExpressions


def by_unit(rows: Flow, unit: Unit, names: tuple[str, ...], num_shards: int, salt: int) -> Flow:
    """The rows of whole units, by shard.

    Args:
        rows: as stages see them.
        unit: what is computed of them.
        names: the columns of the unit.
        num_shards, salt: as for `whole_units.with_unit_columns`.
    """
    reads = tuple(dict.fromkeys((*names, *unit.columns)))
    return rows.each("ToShards", ToUnitShards(reads, names, unit.max_rows_per_unit, num_shards, salt)).by_key("ByShard")


class CountUnitColumns(Step):
    """The rows of a shard's units with their unit columns, and notes.

    Args:
        name: of the stage.
        unit: the windows, and which rows stay.
        names: the columns of the unit.
        salt: as for `whole_units.bounded`.
    """

    def __init__(self, name: str, unit: Unit, names: tuple[str, ...], salt: int) -> None:
        self._name, self._unit, self._names, self._salt = name, unit, names, salt

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """The notes, then the rows in several tables, the first without rows, so that types are known."""
        notes = Notes("stage", self._name)
        found = _shaped(element[1], self._unit, self._names, self._salt, notes)
        yield notes.table()
        yield found.slice(0, 0)
        for begin in range(0, found.num_rows, LARGEST_BATCH):
            yield found.slice(begin, LARGEST_BATCH)


class CountExamples(Step):
    """Notes about the examples of a shard's units.

    Args:
        name: of the stage.
        task: what is learnt.
        salt: as for `whole_units.bounded`.
    """

    def __init__(self, name: str, task: Task, salt: int) -> None:
        self._name, self._task, self._salt = name, task, salt

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """The notes."""
        notes, model = Notes("stage", self._name), self._task.model
        names = model.unit_columns
        found = canonical(_shaped(element[1], self._task.unit, names, self._salt, notes), model.columns, names)
        sizes = np.bincount(keys.dense([gather.one_array(found.column(name)) for name in names]).codes)
        notes.add("examples", found.num_rows)
        notes.add("units", len(sizes))
        notes.add("kept", "examples", int(np.minimum(sizes, model.max_examples_per_unit).sum()))
        notes.add("cut", "units", int((sizes > model.max_examples_per_unit).sum()))
        notes.add("label", "none", int(np.isnan(Encoder.skeleton(model).labels(found)).sum()))
        if isinstance(model.label, NumberLabel):
            _note_range(found.column(model.label.column), model.label, notes, ("label",))
        for name, feature in model.features.items():
            column = found.column(feature.column)
            notes.add("feature", name, "nulls", nulls_of(column))
            if isinstance(feature, Number):
                _note_range(column, feature, notes, ("feature", name))
            elif feature.categories is not None:
                _note_others(column, feature, notes, name)
        yield notes.table()


def _shaped(tables: Iterable[pa.Table], unit: Unit, names: tuple[str, ...], salt: int, notes: Notes) -> pa.Table:
    """The rows of whole units as their stage sees them."""
    expressions: UnitExpressions = unit.expressions
    whole = whole_units(tables, names, unit.max_rows_per_unit, salt)
    notes.add("rows_of_units", whole.num_rows)
    found = dataclasses.replace(expressions, where=None).apply(whole)
    for item in expressions.defined:
        notes.add("nulls", item.name, nulls_of(found.column(item.name)))
    if expressions.where is not None:
        found = dataclasses.replace(expressions, defined=()).apply(found)
    notes.add("rows_kept", found.num_rows)
    return found


def _note_range(column: pa.ChunkedArray, declared: Number | NumberLabel, notes: Notes, about: tuple[str, ...]) -> None:
    """How many values lie outside of a declared range."""
    numbers, nulls = numbers_and_nulls(keys.plain(column))
    known = np.ones(len(numbers), np.bool_) if nulls is None else ~nulls
    notes.add(*about, "below", int((numbers[known] < declared.min_value).sum()))
    notes.add(*about, "above", int((numbers[known] > declared.max_value).sum()))


def _note_others(column: pa.ChunkedArray, feature: Category, notes: Notes, name: str) -> None:
    """How many values are none of the declared categories."""
    places = category_values.places(gather.one_array(column), feature.categories or ())
    notes.add("feature", name, "others", int((places < 0).sum()) - nulls_of(column))
