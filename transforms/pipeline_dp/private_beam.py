"""PipelineDP's transforms of private collections, implemented with dp_pipelines.

In: a PCollection, a budget accountant, a function that gives the privacy id. Out: a `PrivatePCollection`, from which only
released numbers come out. How: `Map` and `FlatMap` add no step to the pipeline; their functions run where rows become tables.
Holds: as `engine`; the names of steps depend on the pipeline alone, not on what ran before in the process. Not covered:
`CombinePerKey`.
"""

import abc
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.transforms import ptransform
from pipeline_dp.private_beam import CombinePerKeyParams as CombinePerKeyParams
from pipeline_dp.private_beam import PrivateCombineFn as PrivateCombineFn

from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.pipeline_dp import metrics
from dp_pipelines.transforms.pipeline_dp.accounting import BudgetAccountant, refuse_foreign
from dp_pipelines.transforms.pipeline_dp.engine import ReleaseRows, listed
from dp_pipelines.transforms.pipeline_dp.extract import RowReader, Step
from dp_pipelines.transforms.pipeline_dp.report_generator import Explanation


@dataclasses.dataclass(frozen=True)
class _Rows:
    """What stands behind a private collection."""

    pcoll: beam.PCollection[Any]
    accountant: BudgetAccountant
    unit: Callable[[Any], Any]
    steps: tuple[Step, ...] = ()


class PrivatePCollection:
    """A collection from which only differentially private numbers can be taken, by the transforms of this module."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows

    def __or__(self, transform: Any) -> Any:
        if not isinstance(transform, PrivatePTransform):
            raise RequestError(
                field="private collection",
                message=f"cannot be passed to {type(transform).__name__}",
                hint="use the transforms of dp_pipelines.transforms.pipeline_dp.private_beam",
            )
        return transform.of(self._rows)


class PrivatePTransform(ptransform.PTransform):
    """Base of the transforms of a private collection.

    Args:
        label: of the step.
    """

    label: str

    def __init__(self, label: str | None = None) -> None:
        super().__init__(label or type(self).__name__)

    def __rrshift__(self, label: str) -> "PrivatePTransform":
        self.label = label
        return self

    @abc.abstractmethod
    def of(self, rows: _Rows) -> Any:
        """What this transform makes of a private collection."""

    def expand(self, pcoll: Any) -> Any:
        """Only private collections have what is needed.

        Raises:
            RequestError: always.
        """
        raise RequestError(
            field=self.label, message="works on private collections", hint="put MakePrivate(...) before it"
        )


class MakePrivate(ptransform.PTransform):
    """Make a collection private.

    Args:
        budget_accountant: pays for all that is released from it.
        privacy_id_extractor: gives the privacy id of a row.
        label: of the step.
    """

    label: str

    def __init__(
        self,
        budget_accountant: BudgetAccountant,
        privacy_id_extractor: Callable[[Any], Any],
        label: str | None = None,
    ) -> None:
        refuse_foreign(budget_accountant)
        super().__init__(_free(budget_accountant, label or type(self).__name__))
        self._accountant, self._extractor = budget_accountant, privacy_id_extractor

    def __rrshift__(self, label: str) -> "MakePrivate":
        self.label = _free(self._accountant, label)
        return self

    def expand(self, pcoll: Any) -> Any:
        """A private collection; no step in the pipeline."""
        return PrivatePCollection(_Rows(pcoll, self._accountant, self._extractor))


class _Metric(PrivatePTransform):
    """A transform that releases one number for each partition.

    Args:
        params: parameters with a partition extractor.
        label: of the step.
        public_partitions: the partitions that are released, as an iterable; None: they are selected privately.
        out_explain_computaton_report: gets the report.
    """

    field = ""

    def __init__(
        self,
        params: Any,
        label: str | None = None,
        public_partitions: Any = None,
        out_explain_computaton_report: Any = None,
    ) -> None:
        super().__init__(label)
        self._params, self._public, self._report = params, public_partitions, out_explain_computaton_report

    def of(self, rows: _Rows) -> beam.PCollection[Any]:
        """Pairs of partition key and number."""
        params = self._params.to_aggregate_params()
        public = None if self._public is None else listed(self._public)
        asked = dataclasses.replace(metrics.asked(params, public=public, has_ids=True), single=True)
        value = self._params.value_extractor if asked.reads_value else None
        reader = RowReader(unit=rows.unit, steps=rows.steps, partition=self._params.partition_extractor, value=value)
        return _released(rows, self.label, asked, reader, params, public is not None, self._report)


class Variance(_Metric):
    """The variance of values by partition; takes VarianceParams."""

    field = "variance"


class Mean(_Metric):
    """The mean of values by partition; takes MeanParams."""

    field = "mean"


class Sum(_Metric):
    """The sum of values by partition; takes SumParams."""

    field = "sum"


class Count(_Metric):
    """The number of rows by partition; takes CountParams."""

    field = "count"


class PrivacyIdCount(_Metric):
    """The number of privacy ids by partition; takes PrivacyIdCountParams."""

    field = "privacy_id_count"


class SelectPartitions(PrivatePTransform):
    """The partitions alone.

    Args:
        select_partitions_params: SelectPartitionsParams.
        partition_extractor: gives the partition key.
        label: of the step.
    """

    def __init__(
        self, select_partitions_params: Any, partition_extractor: Callable[[Any], Any], label: str | None = None
    ) -> None:
        super().__init__(label)
        self._params, self._extractor = select_partitions_params, partition_extractor

    def of(self, rows: _Rows) -> beam.PCollection[Any]:
        """Partition keys."""
        asked = metrics.selected(self._params, has_ids=True)
        reader = RowReader(unit=rows.unit, steps=rows.steps, partition=self._extractor)
        return _released(rows, self.label, asked, reader, self._params, None)


class Map(PrivatePTransform):
    """Change each row; the privacy id stays. A row on which the function raises is dropped.

    Args:
        fn: of one row.
        label: of the step.
    """

    def __init__(self, fn: Callable[[Any], Any], label: str | None = None) -> None:
        super().__init__(label)
        self._step: Step = ("map", fn)

    def of(self, rows: _Rows) -> PrivatePCollection:
        """A private collection of what the function gives."""
        return PrivatePCollection(dataclasses.replace(rows, steps=(*rows.steps, self._step)))


class FlatMap(Map):
    """Make any number of rows of each; the privacy id stays. A row on which the function raises is dropped.

    Args:
        fn: of one row; gives an iterable.
        label: of the step.
    """

    def __init__(self, fn: Callable[[Any], Any], label: str | None = None) -> None:
        super().__init__(fn, label)
        self._step = ("flat_map", fn)


class CombinePerKey(PrivatePTransform):
    """Refused: see docs/pipeline_dp.md."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        metrics.refuse_combiners("CombinePerKey")

    def of(self, rows: _Rows) -> Any:
        """Never reached."""
        raise NotImplementedError


def _released(
    rows: _Rows,
    label: str,
    asked: metrics.Asked,
    reader: RowReader,
    params: Any,
    public: bool | None,
    report: Any = None,
) -> beam.PCollection[Any]:
    planned = rows.accountant.register(asked.query, params.budget_weight)
    Explanation(params, public, planned, rows.accountant, report)
    return rows.pcoll | _free(rows.pcoll.pipeline, label) >> ReleaseRows(planned, reader, asked)


def _free(among: beam.Pipeline | BudgetAccountant, label: str) -> str:
    """A label that no other of these transforms has in a pipeline, or for an accountant."""
    taken: set[str] = among.__dict__.setdefault("_dp_pipelines_labels", set())
    numbered = (f"{label}_{number}" for number in itertools.count(1))
    found = next(name for name in itertools.chain([label], numbered) if name not in taken)
    taken.add(found)
    return found
