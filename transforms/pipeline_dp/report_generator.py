"""Describes a planned aggregation in words.

In: parameters, a planned stage. Out: text. Holds: public numbers only.
"""

from typing import Any, NoReturn

from pipeline_dp.aggregate_params import parameters_to_readable_string

from dp_pipelines.accounting.shown_costs import spent_number
from dp_pipelines.transforms.pipeline_dp.budget_accounting import BudgetAccountant, Planned
from dp_pipelines.transforms.pipeline_dp.submodules import refuse_name


class ExplainComputationReport:
    """Pass one to an aggregation as `out_explain_computation_report`; read it after `compute_budgets()`."""

    def __init__(self) -> None:
        self._generator: Explanation | None = None

    def _set_report_generator(self, generator: "Explanation") -> None:
        self._generator = generator

    def text(self) -> str:
        """The report.

        Raises:
            RequestError: the budgets are not computed yet.
            ValueError: no aggregation was given this object.
        """
        if self._generator is None:
            raise ValueError("this report was not passed to an aggregation: pass it as out_explain_computation_report")
        return self._generator.report()


class Explanation:
    """The report of one aggregation.

    Args:
        params: what was asked.
        public: whether the partitions are public; None for a selection.
        planned: the stage.
        accountant: whose plan it is part of.
        report: what the program reads it from, if anything.
    """

    def __init__(
        self, params: Any, public: bool | None, planned: Planned, accountant: BudgetAccountant, report: Any = None
    ) -> None:
        self._params, self._public, self._planned, self._accountant = params, public, planned, accountant
        if report is not None:
            report._set_report_generator(self)

    @property
    def method(self) -> str:
        """Of the engine."""
        return "select_partitions" if self._public is None else "aggregate"

    def report(self) -> str:
        """The text. Errors as for `Planned.stage`."""
        stage = self._planned.stage
        bounds = stage.query.bounds
        lines = [f"DPEngine method: {self.method}", parameters_to_readable_string(self._params, self._public)]
        lines.append("Computation graph (dp_pipelines):")
        if bounds.max_contributions is not None:
            steps = [f"Rows kept of a privacy id, by a keyed hash: {bounds.max_contributions}"]
        else:
            rows = f"; rows in each: {bounds.max_rows_per_partition}" if bounds.bounds_rows else ""
            steps = [f"Partitions kept of a privacy id, by a keyed hash: {bounds.max_partitions}{rows}"]
        if stage.selection is not None:
            half = stage.half_keep_users
            steps.append(
                f"Private partition selection by {stage.selection.strategy}: a partition with {half:.4g} privacy ids is kept "
                "with probability 1/2"
            )
        for statistic, noise in zip(stage.statistics, stage.noises, strict=True):
            if noise is not None:
                law = type(noise.law).__name__
                steps.append(f"{statistic.name}: {law} noise of standard deviation {noise.stddev:.6g}")
        lines += [f" {number}. {step}" for number, step in enumerate(steps, 1)]
        accounted = self._accountant.plan.accounted
        total = f"({spent_number(accounted['epsilon'])}, {spent_number(accounted['delta'])})-differentially private"
        lines.append(
            f"All aggregations of this accountant together: {total}, accounted with privacy loss distributions"
        )
        return "\n".join(lines)


def __getattr__(name: str) -> NoReturn:
    refuse_name("report_generator", name)
