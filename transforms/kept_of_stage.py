"""What the bounds of a stage cut off, released beside the stage itself.

In: a PCollection of events, two stages of one plan. Out: shares with their standard deviations, as JSON. Holds: what is released
is the noisy sum of one clipped vector for each unit (`steps.unit_rows`). Not covered: filters before the input, of which nothing
is known here.
"""

import dataclasses
import functools
import json
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.plan_stages import kept_counts
from dp_pipelines.plan_stages.reads import UnitFacts
from dp_pipelines.planning import resolve
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.query import Query
from dp_pipelines.release import kept_shares
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.unit_rows import FactsOfTables, units_released, units_to_shards
from dp_pipelines.transforms.beam_flow import BeamFlow
from dp_pipelines.transforms.private_aggregate import PrivateAggregate
from dp_pipelines.transforms.release_transform import ReleaseTransform
from dp_pipelines.transforms.rows.input_tables import Types, input_tables
from dp_pipelines.transforms.shard_counts import shards_of


@dataclasses.dataclass(eq=False)
class UnitsOfAPlan(PrivateAggregate):
    """Release the sum of the vectors of units that `steps.unit_rows.units_to_shards` has brought together.

    Args:
        stage, num_shards, salt: as for `PrivateAggregate`.
        query: with `kept`, and with all bounds as numbers.
    """

    query: Query | None = None
    made_of_units = True

    def _wired(self, tables: Flow, num_shards: int) -> Any:
        assert self.query is not None
        assert self.salt is not None
        return units_released(tables, self.query, self.stage, num_shards, self.salt)


@dataclasses.dataclass(eq=False)
class KeptShares(ReleaseTransform):
    """Release what the bounds of a stage cut off, beside the stage itself.

    Args:
        of: the stage, whose query has `kept`: `plan["name"]`.
        kept: the stage that pays for it: `plan["name.kept"]`.
        num_shards, salt, types: as for `PrivateAggregate`.

    Input: as for `PrivateAggregate`. Output: a PCollection of one text: JSON with the shares and their standard deviations,
    as a stage has in the `kept.json` of a job (`release.kept_shares`).

    >>> from dp_pipelines import *
    >>> query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()}, kept=Kept(share=0.1),
    ...               bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1))
    >>> plan = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query})
    >>> rows = pa.table({"customer": range(1000), "region": ["north", "south"] * 500})
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     events = pipeline | beam.Create([rows]).with_output_types(pa.Table)
    ...     shares = events | KeptShares(plan["weekly"], plan["weekly.kept"])
    """

    of: StagePlan
    kept: StagePlan
    num_shards: int | None = None
    salt: int | None = None
    types: Types | None = None

    def __post_init__(self) -> None:
        super().__init__()
        if not self._of_one_plan():
            message = "must be the stage of the same plan that says what the bounds of the other one cut off"
            raise RequestError(field="kept", message=message, hint='write KeptShares(plan["name"], plan["name.kept"])')
        if resolve.is_open(self.of):
            message = "has bounds that another pipeline must release first"
            hint = "run it with `dp-pipelines run`, or write the bounds as numbers"
            raise RequestError(field=f"stage {self.of.name!r}", message=message, hint=hint)
        self._release = UnitsOfAPlan(self.kept, num_shards=self.num_shards, salt=self.salt, query=self.of.query)

    def _of_one_plan(self) -> bool:
        if not (isinstance(self.of, StagePlan) and isinstance(self.kept, StagePlan)):
            return False
        plans = {None if stage.payment is None else stage.payment.plan for stage in (self.of, self.kept)}
        return self.kept.reads == UnitFacts(of=self.of.name) and len(plans) == 1

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[str]:
        """One vector of each unit, one noisy sum, shares."""
        query, salt = self.of.query, self._release.salt
        tables, _ = input_tables(pcoll, self.types, query.columns, self.of.layout)
        assert salt is not None
        shards = shards_of(pcoll.pipeline, self.num_shards)
        rows = BeamFlow(tables)
        facts = rows.each("Facts", FactsOfTables(query, salt))
        wiring = functools.partial(units_to_shards, query=query, num_shards=shards, salt=salt)
        units = facts.inside("Units", wiring, rows).pcoll
        return (
            units | "Release" >> self._release | "Shares" >> beam.Map(_shares, query, self.kept).with_output_types(str)
        )


def _shares(table: pa.Table, query: Query, stage: StagePlan) -> str:
    noisy = np.array(table.column(kept_counts.UNITS).to_pylist()[0], np.float64)
    return json.dumps(kept_shares.of_stage(noisy, stage, query, query.metrics))
