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
from collections.abc import Sequence
from typing import Any

import apache_beam as beam

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.noise import entropy
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.steps.whole_units import MOST_ROWS, UnitColumns
from dp_pipelines.steps.write_examples import examples_written
from dp_pipelines.training.examples.split import refuse_name
from dp_pipelines.transforms.beam_flow import BeamFlow, collection_of
from dp_pipelines.transforms.release_transform import PublicTransform
from dp_pipelines.transforms.rows.input_tables import tables_alone
from dp_pipelines.transforms.shard_counts import check_shards, shards_of


@dataclasses.dataclass(eq=False)
class BoundedExamples(PublicTransform):
    """Write the examples of a train stage into a private folder. NOT private: for use inside the same trust boundary.

    Args:
        task: names the columns of an example and its unit, and how many examples of a unit are kept.
        folder: an existing, private folder.
        max_rows_per_unit: how many rows of a unit are kept before `unit_columns`, chosen by a keyed hash of the columns read.
        reads: the columns that the unit columns read or that examples have; by default those of an example.
        unit_columns: None if examples are the rows as they are.
        num_shards: the number of groups of units into which the data are split; left out, as for `PrivateAggregate`.
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
    num_shards: int | None = dataclasses.field(default=None, kw_only=True)
    salt: int | None = dataclasses.field(default=None, kw_only=True)
    key: bytes | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__init__()
        checks.whole(self.max_rows_per_unit, "max_rows_per_unit", low=1, high=MOST_ROWS)
        check_shards(self.num_shards)
        self.reads = tuple(dict.fromkeys((*self.task.unit_columns, *(self.reads or self.task.columns))))
        refuse_name(self.reads, "reads")
        self.folder = os.fspath(self.folder)
        if not pathlib.Path(self.folder).is_dir():
            raise RequestError(field="folder", message="does not exist", hint="create a private folder first")
        if self.salt is None:
            self.salt = entropy.salt_number()

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[str]:
        """Shard, bound, compute, bound, write: one shuffle."""
        pcoll = tables_alone(pcoll)
        assert self.salt is not None
        assert self.reads is not None
        written = examples_written(
            BeamFlow(pcoll),
            self.task,
            folder=str(self.folder),
            max_rows_per_unit=self.max_rows_per_unit,
            reads=tuple(self.reads),
            unit_columns=self.unit_columns,
            num_shards=shards_of(pcoll.pipeline, self.num_shards),
            salt=self.salt,
            key=self.key,
        )
        return collection_of(written)
