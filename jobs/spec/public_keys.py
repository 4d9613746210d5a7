"""Public keys of a job file that are not written out: the product of lists and ranges of values, one for each column.

In: values by column. Out: the keys as columns of Arrow, which are those of the same keys written one by one. Holds: a product is
counted before it is made, and has at most as many keys as a list in memory. Not covered: keys in files (`jobs.request.queries`).
"""

import datetime
import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Discriminator, Field, Tag, WithJsonSchema, model_validator

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.base_models import JobModel, Scalar
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.column_types import arrow_values
from dp_pipelines.kernels.columns.listed_keys import ListedKeys, described
from dp_pipelines.report.key_text import visible

MOST_PUBLIC = 10_000_000
"""Keys of a public list that is held in memory."""

WRITE_RANGE = 'write e.g. {range: [0, 23]} or {range: ["2026-01-05", "2026-03-30"], step: 7}'


class RangeModel(JobModel):
    """Whole numbers, or days, from the first to the last; both are listed."""

    range: Annotated[
        list[Scalar],
        Field(description="The first and the last value: whole numbers, or days such as 2026-01-05. Both are listed."),
        WithJsonSchema({"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 2, "maxItems": 2}),
    ]
    step: Annotated[int, Field(ge=1, le=2**62, description="How far values are apart; of days, a number of days.")] = 1

    @model_validator(mode="after")
    def _check_ends(self) -> "RangeModel":
        first, last = self._ends
        if last < first:
            message = "ends before it begins, so that it is empty"
            raise RequestError(
                field="range", message=message, hint=f"write {{range: [{self.range[1]}, {self.range[0]}]}}"
            )
        if (last - first) % self.step:
            before = self._text_of(last - (last - first) % self.step)
            message = f"ends with a value that steps of {self.step:,} do not reach, and both ends are listed"
            raise RequestError(field="range", message=message, hint=f"end with {before}, or change step")
        return self

    @property
    def _ends(self) -> tuple[int, int]:
        """Both ends as whole numbers: of days, their numbers."""
        whole = [end for end in self.range if type(end) is int]
        if len(self.range) == len(whole) == 2:
            first, last = whole
            if min(first, last) < -(2**63) or max(first, last) >= 2**63:
                raise RequestError(field="range", message="must have ends of 64 bits", hint=WRITE_RANGE)
            return first, last
        try:
            first, last = (_day(end) for end in self.range)
        except ValueError:
            message = "must have two whole numbers, or two days, as its ends"
            raise RequestError(field="range", message=message, hint=WRITE_RANGE) from None
        return first, last

    @property
    def is_of_days(self) -> bool:
        """Whether the values are days."""
        return isinstance(self.range[0], str)

    def _text_of(self, number: int) -> str:
        return datetime.date.fromordinal(number).isoformat() if self.is_of_days else str(number)

    @property
    def count(self) -> int:
        """How many values there are, which may be more than memory holds."""
        first, last = self._ends
        return (last - first) // self.step + 1

    @property
    def array(self) -> pa.Array:
        """The values, as an array of the type that they would have if they were written one by one."""
        first, last = self._ends
        if not self.is_of_days:
            return pa.array(np.arange(self.count, dtype=np.int64) * self.step + first)
        return pa.array([self._text_of(number) for number in range(first, last + 1, self.step)], pa.string())


class ProductModel(JobModel):
    """All combinations of the values of several columns."""

    product: Annotated[
        dict[
            str,
            Annotated[
                Annotated[RangeModel, Tag("mapping")] | Annotated[list[Scalar], Field(min_length=1), Tag("list")],
                Discriminator(lambda value: "mapping" if isinstance(value, (dict, RangeModel)) else "list"),
            ],
        ],
        Field(min_length=1, description="For each column of partition_by its values: a list, or a range."),
    ]

    @model_validator(mode="after")
    def _check_values(self) -> "ProductModel":
        for column, values in self.product.items():
            if isinstance(values, RangeModel):
                continue
            for index, value in enumerate(values):
                if not (value is None or isinstance(value, (str, int, float, bool))):
                    hint = "write plain values, or {range: [first, last]}"
                    raise RequestError(field=f"product.{column}.{index}", message="must be a plain value", hint=hint)
            times = Counter(described(values))
            twice = next((text for text in times if times[text] > 1), None)
            if twice is not None:
                named = visible(twice.partition(":")[2], most=100)
                raise RequestError(
                    field=f"product.{column}", message=f"lists a value twice: {named}", hint="list each value once"
                )
        count = math.prod(v.count if isinstance(v, RangeModel) else len(v) for v in self.product.values())
        if count > MOST_PUBLIC:
            message = f"has {count:,} keys, and at most {MOST_PUBLIC:,} are held in memory"
            raise RequestError(field="product", message=message, hint="list fewer values, or use public_sorted_file")
        return self

    def keys(self, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Return all keys, without a tuple for each.

        Args:
            columns: of a key, in order.

        Raises:
            RequestError: the product has other columns.

        >>> made = ProductModel(product={"hour": RangeModel(range=[7, 8]), "country": ["DE", "FR"]})
        >>> made.keys(["country", "hour"])
        (('DE', 7), ('DE', 8), ('FR', 7), ('FR', 8))
        """
        if set(columns) != set(self.product):
            listed = ", ".join(columns)
            raise RequestError(
                field="public.product",
                message=f"must have the columns of partition_by: [{listed}]",
                hint=f"it has {', '.join(self.product)}; give each column of partition_by its values",
            )
        arrays = [self._array(column) for column in columns]
        sizes, places = [len(array) for array in arrays], np.arange(math.prod(map(len, arrays)))
        strides = [math.prod(sizes[number + 1 :]) for number in range(len(sizes))]
        taken = [gather.take(a, places // stride % len(a)) for a, stride in zip(arrays, strides, strict=True)]
        return ListedKeys.of_arrays(taken)

    def _array(self, column: str) -> pa.Array:
        values = self.product[column]
        if isinstance(values, RangeModel):
            return values.array
        try:
            return arrow_values(values)
        except (pa.ArrowException, OverflowError, UnicodeError):
            message = "lists values of different kinds, or numbers of more than 64 bits"
            raise RequestError(
                field=f"public.product.{column}", message=message, hint="use one kind of value"
            ) from None


PublicKeys = Annotated[
    Annotated[ProductModel, Tag("mapping")] | Annotated[list[list[Scalar]], Tag("list")],
    Discriminator(lambda value: "mapping" if isinstance(value, (dict, ProductModel)) else "list"),
]
"""Keys one by one, or a product of the values of each column."""


def _day(end: object) -> int:
    """Return the number of a day that is written as 2026-01-05. Raises: ValueError."""
    day = datetime.date.fromisoformat(end if isinstance(end, str) else "")
    if day.isoformat() != end:  # Python takes other forms too
        raise ValueError(end)
    return day.toordinal()
