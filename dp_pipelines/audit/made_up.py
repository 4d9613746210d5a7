"""Made-up examples for a model: no file is read, nothing is random.

In: the task of a model. Out: whole units; each row depends only on its unit, its number and a variant. Holds: each
group has some units, by the rule of the split; rows are in no order. Not covered: whether real examples look like these.
"""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels.columns import hashing
from dp_pipelines.query.train_model import BinaryLabel, Category, ClassLabel, Label, Number, TrainModel
from dp_pipelines.training.examples.split import split

Words = NDArray[np.uint64]

TRAINING, HELD_OUT = 24, 12
"""The numbers of units in each group."""

SEARCHED = 2**16
"""The number of units to search for these: enough for a share of one in a thousand."""

ROWS = 3
"""The most rows of a unit."""

FOUND = 6
"""Made-up values of a category whose values are selected."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MadeUp:
    """Some made-up units.

    Args:
        task: of the model.
        units: their numbers.
        variant: a different variant gives each unit different values.
    """

    task: TrainModel
    units: tuple[int, ...]
    variant: int = 0

    def table(self) -> pa.Table:
        """Return all their examples."""
        most = min(ROWS, self.task.max_examples_per_unit)
        unit = np.repeat(np.array(self.units, np.int64), most)
        row = np.tile(np.arange(most), len(self.units))
        # Every second unit has all rows; the others have one less, if that leaves any.
        there = (row == 0) | (row < most - 1) | (unit % 2 == 0)
        unit, row = unit[there], row[there]
        words = hashing.mix(
            unit.view(np.uint64) * np.uint64(ROWS) + row.view(np.uint64) + np.uint64(self.variant << 32)
        )
        order = np.argsort(hashing.mix(words ^ np.uint64(1)))
        columns: dict[str, pa.Array] = {name: _text(unit[order]) for name in self.task.unit_columns}
        for place, (name, kind) in enumerate(_columns(self.task).items()):
            columns.setdefault(name, _values(kind, hashing.mix(words[order] + np.uint64(place + 2)), self.variant))
        return pa.table(columns)

    def without(self, unit: int) -> "MadeUp":
        """Return the same examples without one unit."""
        return dataclasses.replace(self, units=tuple(each for each in self.units if each != unit))

    def alone(self, unit: int) -> "MadeUp":
        """Return the examples of one unit."""
        return dataclasses.replace(self, units=(unit,))


def some(task: TrainModel, key: bytes, most: int = 2) -> tuple[MadeUp, tuple[int, ...], tuple[int, ...]]:
    """Return units of both groups, and some of each group, the first two with different numbers of rows if possible.

    Args:
        task: of the model.
        key: divides the units.
        most: how many of each group.
    """
    everybody = np.arange(SEARCHED)
    held_out = split([_text(everybody)] * len(task.unit_columns), key=key, held_out=task.held_out)
    of_group = [np.flatnonzero(flags)[:most].tolist() for flags, most in ((~held_out, TRAINING), (held_out, HELD_OUT))]
    units = tuple(sorted(unit for group in of_group for unit in group))
    training, evaluation = (
        tuple(next((u for u in group if u % 2 == odd), group[0]) for odd in (0, 1) if group) for group in of_group
    )
    training, evaluation = (
        tuple(dict.fromkeys((*two, *group)))[: max(most, len(two))]
        for two, group in zip((training, evaluation), of_group, strict=True)
    )
    return MadeUp(task=task, units=units), training, evaluation


def _text(units: NDArray[np.int64]) -> pa.Array:
    return pa.array([f"unit {unit}" for unit in units.tolist()], pa.string())


def _columns(task: TrainModel) -> dict[str, Number | Category | Label]:
    """Return the kind of content of each column."""
    columns: dict[str, Number | Category | Label] = {task.label.column: task.label}
    for feature in task.features.values():
        columns.setdefault(feature.column, feature)
    if (by := task.evaluation_by) is not None:
        columns.setdefault(by.column, Category(column=by.column, categories=by.groups))
    return columns


def _values(kind: Number | Category | Label, words: Words, variant: int) -> pa.Array:
    share = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    if isinstance(kind, BinaryLabel):
        return pa.array(share < 0.5)
    if isinstance(kind, (ClassLabel, Category)):
        return _listed(kind, share)
    low, high = float(kind.min_value), float(kind.max_value)
    values = low * (1 - share) + high * share
    if isinstance(kind, Number) and variant:  # a value outside every range
        values[share < 0.1], values[share > 0.9] = np.nan, 1e308
    return pa.array(values)


def _listed(kind: ClassLabel | Category, share: NDArray[np.float64]) -> pa.Array:
    declared: Any = kind.classes if isinstance(kind, ClassLabel) else kind.categories
    values = list(declared) if declared is not None else [f"value {number}" for number in range(FOUND)]
    first = type(values[0])
    values = [value for value in values if type(value) is first]
    return pa.array([values[place] for place in (share * len(values)).astype(int).tolist()], pa.array(values).type)
