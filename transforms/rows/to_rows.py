"""Rows out: a released table as rows with a schema, which Beam's sinks, SQL and data frames take.

In: the output of a release, whose columns are known when the pipeline is built. Out: a PCollection of rows. Holds: every released
column is in the rows. Not covered: tables that no release has made (`schema_rows`).
"""

import dataclasses
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.private_aggregate import PrivateAggregate
from dp_pipelines.transforms.release_transform import PublicTransform


@dataclasses.dataclass(eq=False)
class ToRows(PublicTransform):
    """Turn the output of `PrivateAggregate`, or of a short form such as `PrivateCount`, into rows with a schema.

    Args:
        times_as_text: whether dates and times become text by ISO 8601, for sinks that take no times of Beam.

    Raises:
        RequestError: when the pipeline is built: the input is no release, or the types of its partition columns are unknown.

    >>> from dp_pipelines import *
    >>> query = Query(privacy_unit="customer", partition_by="region", metrics={"orders": Count()},
    ...               bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1))
    >>> plan = Plan(epsilon=1.0, delta=1e-6, stages={"weekly": query})
    >>> orders = [{"customer": number, "region": "north"} for number in range(1000)]
    >>> with beam.Pipeline("FnApiRunner") as pipeline:
    ...     released = pipeline | beam.Create(orders) | PrivateAggregate(
    ...         plan["weekly"], types={"customer": "int64", "region": "string"})
    ...     rows = released | ToRows()
    >>> rows.element_type
    Row(region=typing.Optional[str], orders=typing.Optional[numpy.float64], orders_stddev=typing.Optional[numpy.float64])
    """

    times_as_text: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pcoll: beam.PCollection[pa.Table]) -> beam.PCollection[Any]:
        """A row for each partition."""
        release = PrivateAggregate.producing(pcoll)
        if release is None:
            raise RequestError(
                field="input", message="is not the output of PrivateAggregate", hint="put ToRows right after it"
            )
        return pcoll | "Rows" >> release.to_rows(times_as_text=self.times_as_text)
