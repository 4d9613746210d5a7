"""Estimates from reports of devices that answered at random, in a pipeline.

In: a PCollection of reports. Out: a PCollection of one table. Holds: the graph of a job's collected stage
(`steps.collected`). Not covered: a central guarantee: what is promised is promised by the devices, for one report.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.collect.question import Question
from dp_pipelines.collected.collected_stage import CollectedStage
from dp_pipelines.noise import entropy
from dp_pipelines.steps.collected import estimated, one_of_each
from dp_pipelines.transforms.beam_flow import Wired
from dp_pipelines.transforms.release_transform import ReleaseTransform
from dp_pipelines.transforms.rows.input_tables import Types, input_tables
from dp_pipelines.transforms.shard_counts import check_shards, shards_of


@dataclasses.dataclass(eq=False)
class CollectedEstimates(ReleaseTransform):
    """Estimate how many people have each value, or the mean, from reports under local differential privacy.

    Args:
        question: what the devices were asked.
        columns: the columns of its reports, in the order of `question.randomizer.fields`, whose names they have if left out.
        by: a second question to the same people, answered in the same rows: pairs of values are estimated.
        by_columns: the columns of its reports.
        privacy_unit: the columns that name a sender, of whom one row counts; left out: who collected has seen to that.
        num_shards: into how many groups of units the rows are cut; left out, as for `PrivateAggregate`.
        salt: a 64-bit number for the hash of units; drawn at random by default.
        types: of the columns, where elements bring none.

    Input: as for `PrivateAggregate`. Output: one table, as `CollectedStage.published` gives it.

    >>> import pyarrow as pa
    >>> from dp_pipelines.collect.domain import Choices
    >>> question = Question("visited", Choices(("yes", "no")), epsilon=1)
    >>> rows = pa.table({"phone": [1, 2, 2], "value": [0, 1, 1]})
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     reports = pipeline | beam.Create([rows]).with_output_types(pa.Table)
    ...     tables = reports | CollectedEstimates(question, privacy_unit="phone")
    """

    question: Question
    columns: Sequence[str] | str | None = None
    by: Question | None = None
    by_columns: Sequence[str] | str | None = None
    privacy_unit: Sequence[str] | str = ()
    num_shards: int | None = None
    salt: int | None = None
    types: Types | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self._stage = CollectedStage(self.question, self.columns, self.by, self.by_columns)
        self._unit = checks.names(self.privacy_unit, "privacy_unit") if self.privacy_unit else ()
        check_shards(self.num_shards)
        if self.salt is None:
            self.salt = entropy.salt_number()

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[pa.Table]:
        """Count, add up, estimate."""
        columns = list(dict.fromkeys((*self._unit, *self._stage.reads)))
        tables, known = input_tables(pcoll, self.types, columns)
        if known:
            self._stage.check_types(pa.schema(known.items()))
        if self._unit:
            assert self.salt is not None
            kept = functools.partial(
                one_of_each,
                unit=self._unit,
                reads=columns,
                num_shards=shards_of(pcoll.pipeline, self.num_shards),
                salt=self.salt,
            )
            tables = tables | "OneOfEach" >> Wired(kept)
        return tables | "Estimates" >> Wired(functools.partial(estimated, stage=self._stage))
