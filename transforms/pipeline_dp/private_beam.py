"""PipelineDP's transforms of private collections, implemented with dp_pipelines.

In: a PCollection, a budget accountant, a function that gives the privacy id. Out: a `PrivatePCollection`, from which only
released numbers come out. How: `Map` and `FlatMap` add no step to the pipeline; their functions run where rows become tables.
Holds: as `dp_engine`; the names of steps depend on the pipeline alone, not on what ran before in the process. Not covered:
`CombinePerKey`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pipeline_dp as original
from apache_beam.transforms import ptransform
from pipeline_dp.private_beam import CombinePerKeyParams as CombinePerKeyParams
from pipeline_dp.private_beam import PrivateCombineFn as PrivateCombineFn

from dp_pipelines.transforms.pipeline_dp import metrics
from dp_pipelines.transforms.pipeline_dp.budget_accounting import BudgetAccountant, refuse_foreign
from dp_pipelines.transforms.pipeline_dp.extract import RowReader, Step
from dp_pipelines.transforms.pipeline_dp.private_collection import PrivatePCollection as PrivatePCollection
from dp_pipelines.transforms.pipeline_dp.private_collection import PrivatePTransform as PrivatePTransform
from dp_pipelines.transforms.pipeline_dp.private_collection import PrivateRows, WrongTypeError, free_label
from dp_pipelines.transforms.pipeline_dp.public_partitions import listed
from dp_pipelines.transforms.pipeline_dp.release_rows import ReleaseRows, check_batch
from dp_pipelines.transforms.pipeline_dp.report_generator import Explanation


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
        super().__init__(free_label(budget_accountant, label or type(self).__name__))
        self._accountant, self._extractor = budget_accountant, privacy_id_extractor

    def __rrshift__(self, label: str) -> "MakePrivate":
        self.label = free_label(self._accountant, label)
        return self

    def expand(self, pcoll: Any) -> Any:
        """A private collection; no step in the pipeline."""
        return PrivatePCollection.of(PrivateRows(pcoll, self._accountant, self._extractor))


class _Metric(PrivatePTransform):
    """A transform that releases one number for each partition."""

    takes: Any

    def __init__(self, field: str, params: Any, label: str | None, public_partitions: Any, report: Any) -> None:
        super().__init__(True, label)
        if not isinstance(params, self.takes):
            raise WrongTypeError(
                field=field,
                message=f"must be {self.takes.__name__}",
                hint=f"write pipeline_dp.{self.takes.__name__}(...)",
            )
        self._params, self._public, self._report = params, public_partitions, report

    def of_rows(self, rows: PrivateRows) -> beam.PCollection[Any]:
        """Pairs of partition key and number."""
        params = self._params.to_aggregate_params()
        public = None if self._public is None else listed(self._public)
        asked = dataclasses.replace(metrics.asked(params, public=public, has_ids=True), single=True)
        value = self._params.value_extractor if asked.reads_value else None
        reader = RowReader(unit=rows.unit, steps=rows.steps, partition=self._params.partition_extractor, value=value)
        return _released(rows, self.label, asked, reader, params, public is not None, self._report)


class Variance(_Metric):
    """The variance of values by partition.

    Args:
        variance_params: VarianceParams.
        label: of the step.
        public_partitions: the partitions that are released, as an iterable; None: they are selected privately.
        out_explain_computaton_report: gets the report.
    """

    takes = original.VarianceParams

    def __init__(
        self,
        variance_params: original.VarianceParams,
        label: str | None = None,
        public_partitions: Any = None,
        out_explain_computaton_report: Any = None,
    ) -> None:
        super().__init__("variance_params", variance_params, label, public_partitions, out_explain_computaton_report)


class Mean(_Metric):
    """The mean of values by partition.

    Args:
        mean_params: MeanParams.
        label: of the step.
        public_partitions: the partitions that are released, as an iterable; None: they are selected privately.
        out_explain_computaton_report: gets the report.
    """

    takes = original.MeanParams

    def __init__(
        self,
        mean_params: original.MeanParams,
        label: str | None = None,
        public_partitions: Any = None,
        out_explain_computaton_report: Any = None,
    ) -> None:
        super().__init__("mean_params", mean_params, label, public_partitions, out_explain_computaton_report)


class Sum(_Metric):
    """The sum of values by partition.

    Args:
        sum_params: SumParams.
        label: of the step.
        public_partitions: the partitions that are released, as an iterable; None: they are selected privately.
        out_explain_computaton_report: gets the report.
    """

    takes = original.SumParams

    def __init__(
        self,
        sum_params: original.SumParams,
        label: str | None = None,
        public_partitions: Any = None,
        out_explain_computaton_report: Any = None,
    ) -> None:
        super().__init__("sum_params", sum_params, label, public_partitions, out_explain_computaton_report)


class Count(_Metric):
    """The number of rows by partition.

    Args:
        count_params: CountParams.
        label: of the step.
        public_partitions: the partitions that are released, as an iterable; None: they are selected privately.
        out_explain_computaton_report: gets the report.
    """

    takes = original.CountParams

    def __init__(
        self,
        count_params: original.CountParams,
        label: str | None = None,
        public_partitions: Any = None,
        out_explain_computaton_report: Any = None,
    ) -> None:
        super().__init__("count_params", count_params, label, public_partitions, out_explain_computaton_report)


class PrivacyIdCount(_Metric):
    """The number of privacy ids by partition.

    Args:
        privacy_id_count_params: PrivacyIdCountParams.
        label: of the step.
        public_partitions: the partitions that are released, as an iterable; None: they are selected privately.
        out_explain_computaton_report: gets the report.
    """

    takes = original.PrivacyIdCountParams

    def __init__(
        self,
        privacy_id_count_params: original.PrivacyIdCountParams,
        label: str | None = None,
        public_partitions: Any = None,
        out_explain_computaton_report: Any = None,
    ) -> None:
        super().__init__(
            "privacy_id_count_params", privacy_id_count_params, label, public_partitions, out_explain_computaton_report
        )


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
        super().__init__(True, label)
        self._params, self._extractor = select_partitions_params, partition_extractor

    def of_rows(self, rows: PrivateRows) -> beam.PCollection[Any]:
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
        super().__init__(False, label)
        self._step: Step = ("map", fn)

    def of_rows(self, rows: PrivateRows) -> PrivatePCollection:
        """A private collection of what the function gives."""
        return PrivatePCollection.of(dataclasses.replace(rows, steps=(*rows.steps, self._step)))


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

    def of_rows(self, rows: PrivateRows) -> Any:
        """Never reached."""
        raise NotImplementedError


def _released(
    rows: PrivateRows,
    label: str,
    asked: metrics.Asked,
    reader: RowReader,
    params: Any,
    public: bool | None,
    report: Any = None,
) -> beam.PCollection[Any]:
    check_batch(rows.pcoll)
    planned = rows.accountant.register(asked.query, params.budget_weight)
    Explanation(params, public, planned, rows.accountant, report)
    release = ReleaseRows(planned, reader, asked, params, original.BeamBackend())
    return rows.pcoll | free_label(rows.pcoll.pipeline, label) >> release
