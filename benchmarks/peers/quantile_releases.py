"""What a private system gets and gives in the benchmark of quantiles. For both environments: pyarrow, no Beam.

In: a request, a JSON file, and the rows that are left once contributions are bounded (unit, partition, price), the same for
all. Out: a Parquet file with one row for each variant, run and partition: its quantiles. Holds: each run has the whole budget.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import releases

Released = Sequence[Sequence[float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """Independent releases of quantiles of every partition.

    Args:
        rows: Parquet file of bounded rows; partitions are numbers from 0.
        partitions: how many there are.
        quantiles: which.
        runs: how many releases.
        epsilon, delta: the budget of a release.
        max_partitions, max_rows: contribution bounds; the rows keep them.
        low, high: the range.
    """

    rows: str
    partitions: int
    quantiles: Sequence[float]
    runs: int
    epsilon: float
    delta: float
    max_partitions: int
    max_rows: int
    low: float
    high: float

    def prices(self) -> list[list[float]]:
        """The prices of each partition."""
        table = pq.read_table(self.rows)
        found: list[list[float]] = [[] for _ in range(self.partitions)]
        for partition, price in zip(table["partition"].to_pylist(), table["price"].to_pylist(), strict=True):
            found[partition].append(min(max(price, self.low), self.high))
        return found


def arguments(description: str) -> tuple[Request, pathlib.Path]:
    """The request and the path of the answer, from the command line."""
    return releases.arguments(description, Request)


def write(path: pathlib.Path, answers: Iterator[tuple[str, Released]]) -> None:
    """Write all releases, each with the name of its variant."""
    variants: list[str] = []
    values: list[Released] = []
    for variant, release in answers:
        variants.append(variant)
        values.append([[float(value) for value in of_partition] for of_partition in release])
    pq.write_table(pa.table({"variant": variants, "values": pa.array(values, pa.list_(pa.list_(pa.float64())))}), path)
