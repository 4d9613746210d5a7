"""Sample and aggregate in a pipeline: units into blocks, a function on each, a private mean or median of its results.

In: a PCollection of Arrow tables of events, a stage that `Blocks.query` made, a function. Out: a released table with one row,
behind the barrier, as `PrivateAggregate` gives it. Holds: a unit is in one block by a keyed hash of the unit alone; every block
has a result, whatever the data hold; only results leave the function's process. Not covered: timing.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.sample_and_aggregate.blocks import Blocks, Function, check_function, ordered, run
from dp_pipelines.noise import entropy
from dp_pipelines.planning.describe import query_to_json
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.transforms.private_aggregate import PrivateAggregate
from dp_pipelines.transforms.release_transform import ReleaseTransform
from dp_pipelines.transforms.rows.input_tables import tables_alone


@dataclasses.dataclass(eq=False)
class SampleAndAggregate(ReleaseTransform):
    """Release the mean or median of a function's results on disjoint blocks of privacy units.

    Args:
        stage: `plan["name"]`, from a plan whose stage is `blocks.query`.
        blocks: the `Blocks` that the stage was made from.
        function: takes a pyarrow table with `columns` and returns one number. It runs in a child process on each block, so it
            must be defined at the top level of a module. Its rows come in one fixed order, with NaN as null.
        columns: the columns that it reads.
        memory_mb: address space of a child process, in MiB.
        seconds: time limit of a child process, both elapsed and processor time.
        salt: a 64-bit number for the hash of units; drawn at random by default.

    Input: as for `PrivateAggregate`. Output: one table with one row: `blocks`, and the value with its standard deviation.

    >>> from dp_pipelines import Plan
    >>> from dp_pipelines.extensions.sample_and_aggregate.blocks import Blocks
    >>> blocks = Blocks(privacy_unit="customer", blocks=20, low=0.0, high=1.0)
    >>> plan = Plan(epsilon=1.0, stages={"share": blocks.query})
    >>> SampleAndAggregate(plan["share"], blocks, function=len, columns=["amount"]).seconds
    60.0
    """

    stage: StagePlan
    blocks: Blocks
    function: Function
    columns: Sequence[str]
    memory_mb: int = 4096
    seconds: float = 60.0
    salt: int | None = None

    def __post_init__(self) -> None:
        super().__init__()
        if not isinstance(self.blocks, Blocks):
            raise RequestError(field="blocks", message="must be Blocks")
        if not isinstance(self.stage, StagePlan) or query_to_json(self.stage.query) != query_to_json(self.blocks.query):
            raise RequestError(
                field="stage",
                message="was not made from these blocks",
                hint='write Plan(stages={"name": blocks.query}) and plan["name"]',
            )
        self.columns = checks.names(
            list(self.columns) if not isinstance(self.columns, str) else self.columns, "columns"
        )
        self.memory_mb = checks.whole(self.memory_mb, "memory_mb", low=256, high=2**20)
        self.seconds = checks.number(self.seconds, "seconds", above=0, below=86_400)
        self.pickled = check_function(self.function)
        if self.salt is None:
            self.salt = entropy.salt_number()

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[pa.Table]:
        """Cut into blocks, run, release."""
        pcoll = tables_alone(pcoll)
        assert self.salt is not None
        cut = pcoll | "ToBlocks" >> beam.ParDo(_ToBlocks(self.blocks, self.columns, self.salt)).with_output_types(
            tuple[int, pa.Table]
        )
        # Every block has a result, whatever the data hold.
        every = pcoll.pipeline | "Every" >> beam.Create(
            [(block, pa.table({})) for block in range(self.blocks.blocks)], reshuffle=False
        ).with_output_types(tuple[int, pa.Table])
        function = _RunBlock(self.blocks, self.columns, self.pickled, self.memory_mb, self.seconds)
        return (
            (cut, every)
            | "WithEvery" >> beam.Flatten()
            | "ByBlock" >> beam.GroupByKey()
            | "RunBlock" >> beam.ParDo(function).with_output_types(pa.Table)
            | "Aggregate" >> PrivateAggregate(self.stage, num_shards=1, salt=self.salt)
        )


class _ToBlocks(beam.DoFn):
    def __init__(self, blocks: Blocks, columns: Sequence[str], salt: int) -> None:
        super().__init__()
        self._blocks, self._columns, self._salt = blocks, columns, salt

    def process(self, element: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        yield from self._blocks.cut(element, self._columns, self._salt)


class _RunBlock(beam.DoFn):
    def __init__(self, blocks: Blocks, columns: Sequence[str], function: bytes, memory_mb: int, seconds: float) -> None:
        super().__init__()
        self._blocks, self._columns, self._function = blocks, columns, function
        self._memory_mb, self._seconds = memory_mb, seconds

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[pa.Table]:
        block, tables = element
        found = [table for table in tables if table.num_columns]
        value = None
        if found:
            rows = ordered(found, self._columns)
            value = run(self._function, rows, memory_mb=self._memory_mb, seconds=self._seconds)
        yield self._blocks.row(block, value)
