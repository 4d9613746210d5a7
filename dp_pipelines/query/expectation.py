"""A guess about a typical partition, as the owner of a job declares it from public knowledge.

In: numbers. Out: a frozen declaration. Holds: it decides no release: errors and powers that `plan` prints refer to it. Not
covered: whether it is true.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from dp_pipelines import checks
from dp_pipelines.errors import RequestError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expectation:
    """A declared guess about a typical partition, from which relative errors are printed. It decides nothing else.

    Args:
        users: units in a typical partition.
        rows_per_partition: rows in it.
        partitions: how many of a large list have rows.
        totals: by metric, mean and standard deviation of what one unit adds to it: for the differences that `compare` finds.
        units: units in all rows: for the error bars of a model.
    """

    users: float | None = None
    rows_per_partition: float | None = None
    partitions: float | None = None
    totals: Mapping[str, Sequence[float]] | None = None
    units: float | None = None

    def __post_init__(self) -> None:
        for name, pair in (self.totals or {}).items():
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                hint = "write [mean, standard deviation], e.g. [50, 120]"
                raise RequestError(field=f"expect.totals.{name}", message="must be two numbers", hint=hint)
            checks.number(pair[0], f"expect.totals.{name}", above=-1e50, below=1e50)
            checks.number(pair[1], f"expect.totals.{name}", above=0, below=1e50, also=(0,))
        for field in ("users", "rows_per_partition", "partitions", "units"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, checks.number(getattr(self, field), f"expect.{field}", above=0))
