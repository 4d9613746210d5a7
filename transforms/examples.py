"""From rows to bounded examples on disk: the inputs of training, by the same bounding as the aggregates.

In: a PCollection of Arrow tables of rows. Out: one private file for each shard of units
(`dp_pipelines.training.examples.bounded_examples`), and their paths. Holds: which rows of a unit are kept, and what its examples
are, depends on that unit's rows alone: removing a unit leaves all other units' examples unchanged, bit for bit; order, batches,
files and retries change nothing; the number of shards only decides which file a unit is in. Rows of a unit beyond
`max_rows_per_unit` are dropped before anything looks at several rows. Not covered: cleanup of the files, which the driver does;
workers that do not share the folder.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import sizes
from dp_pipelines.noise import entropy
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.training.examples import bounded_examples
from dp_pipelines.training.examples.split import as_decided, carried, refuse_name, with_answers
from dp_pipelines.transforms.private_aggregate import check_input
from dp_pipelines.transforms.whole_units import (
    MOST_ROWS,
    ToUnitShards,
    UnitColumns,
    bounded,
    canonical,
    whole_units,
    with_digests,
)

_OF_EXAMPLES = 0x6578616D706C6573
"""Tells the choice of examples from that of rows."""


@dataclasses.dataclass
class BoundedExamples(beam.PTransform):
    """Write the examples of a train stage into a private folder. NOT private: for use inside the same trust boundary.

    Args:
        task: names the columns of an example and its unit, and how many examples of a unit are kept.
        folder: an existing, private folder.
        max_rows_per_unit: how many rows of a unit are kept before `unit_columns`, chosen by a keyed hash of the columns read.
        reads: the columns that the unit columns read or that examples have; by default those of an example.
        unit_columns: None if examples are the rows as they are.
        num_shards: the number of groups of units into which the data are split.
        salt: a 64-bit number for the hashes of this run; drawn at random by default. The same salt gives the same examples.
        key: divides the units (`training.examples.split`): the digest of the plan, as `training.fit` takes it. With it, units
            may be text of any length; without it, units with text longer than 256 bytes have no examples.

    Input: a PCollection of pa.Table, bounded and in the global window; rows where a column of the unit is null are dropped.
    Output: the paths of the files, as text.

    >>> from dp_pipelines.query.train_model import BinaryLabel, Category
    >>> task = TrainModel(privacy_unit="customer", label=BinaryLabel(column="returns"),
    ...                   features={"age": Category(column="age", categories=["A", "B"])})
    >>> BoundedExamples(task, folder=".", max_rows_per_unit=100).reads
    ('customer', 'returns', 'age')
    """

    task: TrainModel
    folder: str | os.PathLike[str] = dataclasses.field(kw_only=True)
    max_rows_per_unit: int = dataclasses.field(kw_only=True)
    reads: Sequence[str] | None = dataclasses.field(default=None, kw_only=True)
    unit_columns: UnitColumns | None = dataclasses.field(default=None, kw_only=True)
    num_shards: int = dataclasses.field(default=32, kw_only=True)
    salt: int | None = dataclasses.field(default=None, kw_only=True)
    key: bytes | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__init__()
        checks.whole(self.max_rows_per_unit, "max_rows_per_unit", low=1, high=MOST_ROWS)
        checks.whole(self.num_shards, "num_shards", low=1, high=sizes.MOST_SHARDS)
        self.reads = tuple(dict.fromkeys((*self.task.unit_columns, *(self.reads or self.task.columns))))
        refuse_name(self.reads, "reads")
        self.folder = os.fspath(self.folder)
        if not pathlib.Path(self.folder).is_dir():
            raise RequestError(field="folder", message="does not exist", hint="create a private folder first")
        if self.salt is None:
            self.salt = int(entropy.words(1)[0])

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[str]:
        """Shard, bound, compute, bound, write: one shuffle."""
        check_input(pcoll)
        assert self.salt is not None
        assert self.reads is not None
        cut = _SpillToShards(
            tuple(self.reads),
            self.task.unit_columns,
            self.max_rows_per_unit,
            self.num_shards,
            self.salt,
            folder=str(self.folder),
            key=self.key,
            held_out=self.task.held_out,
        )
        write = _WriteShard(self.task, self.max_rows_per_unit, self.unit_columns, str(self.folder), self.salt)
        return (
            pcoll
            | "ToShards" >> beam.ParDo(cut).with_output_types(tuple[int, pa.Table])
            | "ByShard" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(write).with_output_types(str)
        )


class _SpillToShards(ToUnitShards):
    """As `ToUnitShards`, but the rows go through private files: a shuffle in memory would hold all of them at once."""

    def __init__(
        self,
        reads: tuple[str, ...],
        unit: tuple[str, ...],
        most: int,
        shards: int,
        salt: int,
        *,
        folder: str,
        key: bytes | None,
        held_out: float,
    ) -> None:
        super().__init__(reads, unit, most, shards, salt)
        self._folder, self._key, self._held_out = folder, key, held_out

    def rows(self, table: pa.Table) -> pa.Table:
        """As in the base class; who is held out is decided first, from the unit's own text."""
        if self._key is None:
            return canonical(table, self._reads, self._unit)
        table = with_answers(table.select(self._reads), self._unit, key=self._key, held_out=self._held_out)
        return canonical(with_digests(table, self._unit), (*self._reads, *carried(table)), self._unit)

    def compute(self, element: pa.Table) -> list[tuple[int, pa.Table]]:
        """The position of each part of one table, with its shard."""
        cut = super().compute(element)
        places = bounded_examples.spill([part for _, part in cut], self._folder)
        return [(shard, place) for (shard, _), place in zip(cut, places, strict=True)]


class _WriteShard(beam.DoFn):
    """The examples of a shard's units, in a file."""

    def __init__(self, task: TrainModel, most: int, unit_columns: UnitColumns | None, folder: str, salt: int) -> None:
        super().__init__()
        self._task, self._most, self._unit_columns, self._folder, self._salt = task, most, unit_columns, folder, salt

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[str]:
        number, places = element
        tables = (bounded_examples.spilled(place) for place in places)
        yield bounded_examples.write(
            examples_of(tables, self._task, self._most, self._unit_columns, self._salt), self._folder, number
        )


def examples_of(
    tables: Iterable[pa.Table], task: TrainModel, max_rows_per_unit: int, unit_columns: UnitColumns | None, salt: int
) -> pa.Table:
    """The examples of some whole units.

    Args:
        tables: at least one; canonical rows, all of these units.
        task, max_rows_per_unit, unit_columns, salt: see `BoundedExamples`.
    """
    unit = task.unit_columns
    found = whole_units(tables, unit, max_rows_per_unit, salt)
    columns = [*task.columns, *carried(found)]
    if unit_columns is not None:
        found = unit_columns.apply(found)
    examples = bounded(canonical(found, columns, unit), unit, task.max_examples_per_unit, salt ^ _OF_EXAMPLES)
    return as_decided(examples)
