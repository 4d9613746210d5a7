"""DPEngine: PipelineDP's engine, implemented with dp_pipelines.

In: a collection of rows (a PCollection, or an iterable with LocalBackend), parameters, extractors. Out: a collection of pairs
(partition key, MetricsTuple), as PipelineDP gives them. Holds: see `extract`, `metrics`, `budget_accounting`, `local_result`.
Not covered: Spark, data frames, pre-aggregated data, bounds that are computed from the data.
"""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import pipeline_dp as original
from pipeline_dp.data_extractors import MultiValueDataExtractors

from dp_pipelines.errors import RequestError
from dp_pipelines.transforms.pipeline_dp import keys, metrics
from dp_pipelines.transforms.pipeline_dp.budget_accounting import BudgetAccountant, refuse_foreign
from dp_pipelines.transforms.pipeline_dp.extract import KEY_HINT, RowReader
from dp_pipelines.transforms.pipeline_dp.later_imports import is_pcollection
from dp_pipelines.transforms.pipeline_dp.local_result import LocalResult
from dp_pipelines.transforms.pipeline_dp.metrics import Asked
from dp_pipelines.transforms.pipeline_dp.public_partitions import listed
from dp_pipelines.transforms.pipeline_dp.report_generator import Explanation
from dp_pipelines.transforms.pipeline_dp.submodules import refuse_name


class DPEngine:
    """Performs differentially private aggregations.

    Args:
        budget_accountant: one of this package.
        backend: BeamBackend or LocalBackend.

    >>> from dp_pipelines.transforms.pipeline_dp import NaiveBudgetAccountant
    >>> accountant = NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
    >>> engine = DPEngine(accountant, original.LocalBackend())
    >>> params = original.AggregateParams(metrics=[original.Metrics.COUNT], max_partitions_contributed=1,
    ...                                   max_contributions_per_partition=1)
    >>> visits = [{"who": number, "where": "north"} for number in range(1000)]
    >>> counts = engine.aggregate(visits, params, original.DataExtractors(
    ...     privacy_id_extractor=lambda visit: visit["who"], partition_extractor=lambda visit: visit["where"]))
    >>> accountant.compute_budgets()
    >>> [(where, 950 < metrics.count < 1050) for where, metrics in counts]
    [('north', True)]
    """

    def __init__(self, budget_accountant: BudgetAccountant, backend: Any) -> None:
        refuse_foreign(budget_accountant)
        if not isinstance(backend, (original.BeamBackend, original.LocalBackend)):
            raise RequestError(
                field="backend",
                message="must be BeamBackend or LocalBackend",
                hint="run it as a Beam pipeline; Beam has a Spark runner (docs/runners.md)",
            )
        self._budget_accountant, self._backend = budget_accountant, backend
        self._report_generators: list[Explanation] = []

    def aggregate(
        self,
        col: Any,
        params: Any,
        data_extractors: Any,
        public_partitions: Any = None,
        out_explain_computation_report: Any = None,
    ) -> Any:
        """Release metrics for each partition.

        Args:
            col: a PCollection of rows, or with LocalBackend an iterable.
            params: AggregateParams.
            data_extractors: DataExtractors.
            public_partitions: the partitions that are released: an iterable, `beam.Create` of constants, or with LocalBackend
                what `select_partitions` has released for another accountant; None: they are selected privately.
            out_explain_computation_report: gets the report.

        Raises:
            RequestError: what is asked has no counterpart here; see docs/pipeline_dp.md.
        """
        partition, unit, value = _extractors(data_extractors)
        public = None if public_partitions is None else listed(public_partitions)
        asked = metrics.asked(params, public=public, has_ids=unit is not None)
        if asked.reads_value and value is None:
            raise RequestError(
                field="value_extractor", message="is required by the metrics", hint="add it to DataExtractors"
            )
        reader = RowReader(
            unit=unit,
            partition=partition,
            value=value if asked.reads_value else None,
            size=asked.vector_size,
        )
        return self._released(col, asked, reader, params, public is not None, out_explain_computation_report)

    def select_partitions(self, col: Any, params: Any, data_extractors: Any) -> Any:
        """Release the partitions alone. Arguments and errors as for `aggregate`; params are SelectPartitionsParams."""
        partition, unit, _ = _extractors(data_extractors)
        asked = metrics.selected(params, has_ids=unit is not None)
        return self._released(col, asked, RowReader(unit=unit, partition=partition), params, None)

    def _released(
        self, col: Any, asked: Asked, reader: RowReader, params: Any, public: bool | None, report: Any = None
    ) -> Any:
        local = isinstance(self._backend, original.LocalBackend)
        if hasattr(col, "__arrow_c_stream__") or hasattr(col, "__dataframe__"):
            raise RequestError(
                field="col",
                message=f"is a {type(col).__name__}, which is no collection of rows",
                hint="pass its rows, as dictionaries for instance, or give the data frame to dp_pipelines.Session",
            )
        if local == is_pcollection(col) or not (is_pcollection(col) or isinstance(col, Iterable)):
            raise RequestError(
                field="col",
                message=f"cannot be processed by {type(self._backend).__name__}",
                hint="pass a PCollection to BeamBackend, an iterable to LocalBackend",
            )
        if not local:
            from dp_pipelines.transforms.pipeline_dp.release_rows import ReleaseRows, check_batch

            check_batch(col)
        planned = self._budget_accountant.register(asked.query, params.budget_weight)
        self._report_generators.append(Explanation(params, public, planned, self._budget_accountant, report))
        if local:
            result = LocalResult(col, planned, reader, asked)
            return self._backend.annotate(result, "annotation", params=params, budget=planned.budgets)
        label = self._backend.unique_lable_generator.unique(self._report_generators[-1].method)
        return col | label >> ReleaseRows(planned, reader, asked, params, self._backend)

    def explain_computations_report(self) -> list[str]:
        """The reports of all aggregations, in order."""
        return [explanation.report() for explanation in self._report_generators]

    def add_dp_noise(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused: how far one person moves numbers that were aggregated elsewhere, nobody can check."""
        raise RequestError(
            field="add_dp_noise",
            message="adds noise to sums whose sensitivity nobody has enforced",
            hint="aggregate the rows with aggregate()",
        )

    def calculate_private_contribution_bounds(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused here: `dp-pipelines run` has it, under the plan's budget."""
        raise RequestError(
            field="calculate_private_contribution_bounds",
            message="spends budget outside the accountant",
            hint="write max_partitions_contributed: auto in a job file (docs/guide.md), or declare the bound",
        )


def _extractors(given: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    if not isinstance(given, original.DataExtractors):
        raise RequestError(
            field="data_extractors", message="must be DataExtractors", hint="write pipeline_dp.DataExtractors(...)"
        )
    if isinstance(given, MultiValueDataExtractors):
        raise RequestError(
            field="data_extractors",
            message="returns several values for a row, but a metric reads only one",
            hint="aggregate once for each value, or use dp_pipelines.Query, whose metrics name their columns",
        )
    if given.partition_extractor is None:
        raise RequestError(field="partition_extractor", message="is missing", hint="add it to DataExtractors")
    return given.partition_extractor, given.privacy_id_extractor, given.value_extractor


def check_row(data_extractors: Any, row: Any) -> tuple[Any, Any, Any]:
    """Try extractors on an invented row: id, key and value. In a pipeline what they raise is not heard of.

    Raises:
        RequestError: the id or the key is of a type that cannot be one. What extractors raise, as it is.

    >>> of_row = original.DataExtractors(
    ...     partition_extractor=lambda row: row["day"], privacy_id_extractor=lambda row: row["who"])
    >>> check_row(of_row, {"who": "ann", "day": 3})
    ('ann', 3, None)
    """
    partition, unit, value = _extractors(data_extractors)
    found: dict[str, Any] = {"partition_extractor": partition(row)}
    if unit is not None:
        found["privacy_id_extractor"] = unit(row)
    for field, key in found.items():
        try:
            keys.encode(key)
        except keys.NoKeyError as error:
            raise RequestError(
                field=field,
                message=f"returns a {type(key).__name__}, which {error}",
                hint=KEY_HINT,
            ) from None
    return (
        found.get("privacy_id_extractor"),
        found["partition_extractor"],
        None if value is None else value(row),
    )


def __getattr__(name: str) -> NoReturn:
    refuse_name("dp_engine", name)
