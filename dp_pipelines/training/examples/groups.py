"""Examples by group of units: the only place that decides which stage may read which.

In: the stored examples of all units, the stage of a release. Out: the rows of the one group that all records of that
stage name. Holds: tables are divided in one place, `_Divided.rows_for`, by `split`, which sees only the columns of the
unit; a stage gets rows only if each of its mechanism records names their group (docs/proofs/accounting.md, lemma 7);
encoded examples keep their group. Not covered: what a release does with its rows.
"""

import abc
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels.columns import gather
from dp_pipelines.plan_stages.training_parts import HELD_OUT, TRAINING
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.training.examples.coded import CodedExamples, Multiply, WritesCodes
from dp_pipelines.training.examples.split import answers_of, groups
from dp_pipelines.training.examples.store import Encodes, Examples

Tables = Callable[[], Iterator[pa.Table]]
Flags = NDArray[np.bool_]
Stored = Examples | CodedExamples


def refuse_other(stage: StagePlan, group: str) -> None:
    """Refuse a stage unless it has records and each of them names this group.

    Raises:
        AssertionError: a record names another group, or none. The message says nothing about rows.
    """
    named = {record.group for record in stage.mechanisms}
    if named != {group}:
        raise AssertionError(f"the records of {stage.name!r} do not all name the {group} units")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AllUnits:
    """The stored examples, undivided. They cannot be read, only divided.

    Args:
        tables: gives all examples, each time it is called; each table holds whole units.
        unit: the columns of the privacy unit.
        key: divides the units; the same for all runs of a plan, and not secret.
        held_out: the share of units that is held out.
    """

    tables: Tables
    unit: tuple[str, ...]
    key: bytes
    held_out: float

    def divided(self) -> "tuple[TrainingUnits, HeldOutUnits]":
        """The two groups: each unit is in one of them, independently of all other units."""
        return TrainingUnits(self), HeldOutUnits(self)


@dataclasses.dataclass(frozen=True, eq=False)
class _Divided(abc.ABC):
    """The examples of one group of units."""

    group: ClassVar[str]
    _all: AllUnits

    @staticmethod
    @abc.abstractmethod
    def _own(held_out: Flags) -> Flags:
        """Which rows belong to this group, given which are held out."""

    def rows_for(self, stage: StagePlan) -> Iterator[pa.Table]:
        """The rows of this group, for a stage whose records name it; each table holds whole units.

        Raises:
            AssertionError: a record of the stage does not name this group.
        """
        refuse_other(stage, self.group)
        return self._rows()

    def _rows(self) -> Iterator[pa.Table]:
        for table in self._all.tables():
            held_out = answers_of(table, self._all.unit, key=self._all.key, held_out=self._all.held_out)
            yield gather.filter_rows(table, self._own(held_out))


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingUnits(_Divided):
    """The examples of the units that a model is made from."""

    group: ClassVar[str] = TRAINING

    @staticmethod
    def _own(held_out: Flags) -> Flags:
        return ~held_out

    def encoded(
        self,
        stage: StagePlan,
        folder: str | os.PathLike[str],
        name: str,
        encoder: Encodes,
        group_of: Callable[[pa.Table], NDArray[np.int64]] | None = None,
    ) -> "TrainingExamples":
        """These examples as numbers.

        Args:
            stage: the one that will read them. If its sums take units by turns, units are divided into so many groups.
            folder, name, encoder, group_of: as for `Examples.write`.
        """
        separation = next((vectors.separation for vectors in stage.sums), None)
        if separation is not None:
            group_of = functools.partial(self._group_of, separation)
        return TrainingExamples(Examples.write(folder, name, self.rows_for(stage), encoder, self._all.unit, group_of))

    def _group_of(self, separation: int, table: pa.Table) -> NDArray[np.int64]:
        return groups([table.column(name) for name in self._all.unit], key=self._all.key, count=separation)

    def coded(
        self, stage: StagePlan, folder: str | os.PathLike[str], name: str, encoder: WritesCodes
    ) -> "TrainingExamples":
        """These examples as codes. Arguments as for `encoded`."""
        return TrainingExamples(CodedExamples.write(folder, name, self.rows_for(stage), encoder, self._all.unit))


@dataclasses.dataclass(frozen=True, eq=False)
class HeldOutUnits(_Divided):
    """The examples of the units that a model is evaluated on."""

    group: ClassVar[str] = HELD_OUT

    @staticmethod
    def _own(held_out: Flags) -> Flags:
        return held_out


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingExamples:
    """Encoded examples of the training units. Their number is private, and nothing here reveals it."""

    group: ClassVar[str] = TRAINING
    _examples: Stored

    def rows_for(self, stage: StagePlan) -> Stored:
        """The examples, for a stage whose records name the training units.

        Raises:
            AssertionError: a record of the stage does not name them.
        """
        refuse_other(stage, self.group)
        return self._examples

    def times(self, folder: str | os.PathLike[str], name: str, matrix: NDArray[np.float64]) -> "TrainingExamples":
        """The same encoded examples, each row of features times a matrix: see `Examples.times`."""
        assert isinstance(self._examples, Examples)
        return TrainingExamples(self._examples.times(folder, name, matrix))

    def with_products(self, folder: str | os.PathLike[str], name: str, multiply: Multiply) -> "TrainingExamples":
        """The same coded examples, each unit with the products of its rows: see `CodedExamples.with_products`."""
        assert isinstance(self._examples, CodedExamples)
        return TrainingExamples(self._examples.with_products(folder, name, multiply))
