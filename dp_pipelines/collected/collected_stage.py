"""A stage over reports: which columns answer which question, what is counted of them, and the table that is published.

In: one question or two, tables of reports. Out: counts that add up over tables, then estimates as a table. Holds: what a report
says decides no error: a number that no device sends, or none, counts nowhere. Not covered: one report a unit (`steps.collected`);
noise, of which the server adds none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.collect.domain import Choices, NumberBins, NumberGrid
from dp_pipelines.collect.question import Question
from dp_pipelines.collected.consistency import norm_sub
from dp_pipelines.collected.cross_table import CrossTable
from dp_pipelines.collected.estimates import PeopleEstimates, estimator_of
from dp_pipelines.collected.support import Counts, Reports, support_of
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys

NO_REPORT = -1
"""Stands for null: no device sends it."""


@dataclass(frozen=True)
class CollectedStage:
    """What is estimated from columns of reports.

    Args:
        question: what people were asked.
        columns: the columns of its reports in the order of `question.randomizer.fields`, whose names they have if left out.
        by: a second question to the same people, in the same rows: the pairs of both are estimated.
        by_columns: the columns of its reports.

    Raises:
        RequestError: columns are missing, too many or shared by both questions; or the two have no cross table.

    >>> from dp_pipelines.collect.domain import Choices
    >>> visited = CollectedStage(Question("visited", Choices(("yes", "no")), epsilon=1), columns="answer")
    >>> counts = visited.count(pa.table({"answer": [0, 0, 1, None, 99]}))
    >>> visited.published(counts).column("reports").to_pylist()
    [3, 3]
    """

    question: Question
    columns: Sequence[str] | str | None = None
    by: Question | None = None
    by_columns: Sequence[str] | str | None = None

    def __post_init__(self) -> None:
        _check_question(self.question, "question")
        object.__setattr__(self, "columns", _columns(self.question, self.columns, "columns"))
        if self.by is None:
            if self.by_columns is not None:
                raise RequestError(field="by_columns", message="is for a second question", hint="name it as by")
            return
        _check_question(self.by, "by")
        object.__setattr__(self, "by_columns", _columns(self.by, self.by_columns, "by_columns"))
        shared = set(self.columns or ()) & set(self.by_columns or ())
        if shared:
            raise RequestError(
                field="by_columns",
                message=f"has column {sorted(shared)[0]!r} of the other question",
                hint="name the columns of each question's reports",
            )
        _ = self.cross_table

    @property
    def questions(self) -> tuple[Question, ...]:
        """One or two."""
        return (self.question,) if self.by is None else (self.question, self.by)

    @property
    def reads(self) -> tuple[str, ...]:
        """All columns of reports."""
        return (*(self.columns or ()), *(self.by_columns or ()))

    @property
    def cross_table(self) -> CrossTable | None:
        """The table of pairs, of two questions."""
        return None if self.by is None else CrossTable(self.question, self.by)

    @property
    def width(self) -> int:
        """How many numbers are counted."""
        if self.by is None:
            return 1 + support_of(self.question).width
        rows, columns = CrossTable(self.question, self.by).shape
        return 1 + rows + columns + rows * columns

    def check_types(self, schema: pa.Schema) -> None:
        """Refuse columns that cannot hold reports.

        Args:
            schema: of the tables, without columns that are missing.

        Raises:
            RequestError: a column is missing or does not hold whole numbers.
        """
        for name in self.reads:
            if name not in schema.names:
                raise RequestError(
                    field=f"column {name!r}",
                    message="is not a column of the rows",
                    hint="name the columns of the reports in the order of the question's fields, in a job file with columns:",
                )
            kind = keys.plain_type(schema.field(name).type)
            if not pa.types.is_integer(kind):
                raise RequestError(
                    field=f"column {name!r}",
                    message=f"has type {kind}, and reports are whole numbers",
                    hint="write them as int64",
                )

    def count(self, table: pa.Table) -> Counts:
        """Sums over the reports of a table, int64 of shape (width,). They add up over tables.

        Args:
            table: with the columns of the reports.
        """
        self.check_types(table.schema)
        reports = _reports(table, self.columns or ())
        if self.cross_table is not None:
            return self.cross_table.count(reports, _reports(table, self.by_columns or ()))
        return support_of(self.question).count(reports)

    def published(self, counts: Counts) -> pa.Table:
        """Estimates with their deviations, as a table in the order of the question's values.

        Args:
            counts: the sum of `count` over all tables.

        Returns:
            For choices a row for each `answer`, for bins for each range from `answer_from` to `answer_to`; of two questions for
            each pair, the second with the names `by`, `by_from`, `by_to`. `people` is unbiased and may be negative, `deviation`
            is its standard deviation; `consistent` is not negative, adds up to `reports`, and has no bar. For a grid one row
            with `mean` and its `deviation`. `reports` is how many were valid.
        """
        if self.cross_table is not None:
            return self._pairs(self.cross_table.estimates(counts))
        found = estimator_of(self.question).estimates(counts)
        if isinstance(self.question.domain, NumberGrid):
            return pa.table({"mean": found.values, "deviation": found.deviations, "reports": [found.reports]})
        places = np.arange(self.question.domain.size)
        return _of_people(_answers(self.question, "answer", places), found)

    def _pairs(self, found: PeopleEstimates) -> pa.Table:
        assert self.by is not None
        rows, columns = np.indices(found.values.shape).reshape(2, -1)
        named = _answers(self.question, "answer", rows) | _answers(self.by, "by", columns)
        flat = PeopleEstimates(found.reports, found.values.ravel(), found.deviations.ravel())
        return _of_people(named, flat)

    def expected(self, reports: int) -> list[dict[str, float]]:
        """The standard deviations before a report is collected, by the share of people with a value.

        For a grid, of the mean by its place in the range. For pairs, where each value of a question is as frequent as it must
        be at least: the share, or that of an even spread.

        Args:
            reports: how many there will be.

        >>> from dp_pipelines.collect.domain import Choices
        >>> stage = CollectedStage(Question("asked", Choices(("yes", "no")), epsilon=1))
        >>> [round(row["deviation"]) for row in stage.expected(1_000_000)]
        [960, 960, 960]
        """
        if self.cross_table is not None:
            table = self.cross_table
            return [{"share": share, "deviation": table.expected_deviation(reports, share)} for share in SHARES]
        estimator = estimator_of(self.question)
        places, name = (PLACES, "place") if isinstance(self.question.domain, NumberGrid) else (SHARES, "share")
        return [{name: place, "deviation": estimator.expected_deviation(reports, place)} for place in places]


SHARES = (0.0, 0.01, 0.1)
"""Shares of people with a value for which errors are predicted."""

PLACES = (0.0, 0.5, 1.0)
"""Places of a mean in its range for which they are."""


def _check_question(question: Any, field: str) -> None:
    if not isinstance(question, Question):
        raise RequestError(field=field, message="must be a Question", hint="write Question.from_json(text)")


def _columns(question: Question, given: Any, field: str) -> tuple[str, ...]:
    fields = question.randomizer.fields
    found = checks.names(fields if given is None else given, field)
    if len(found) != len(fields):
        raise RequestError(
            field=field,
            message=f"must name {len(fields)} columns, not {len(found)}: reports of {question.mechanism} have "
            f"{', '.join(fields[:3])}{', ...' if len(fields) > 3 else ''}",
            hint="name them in this order",
        )
    return tuple(found)


def _reports(table: pa.Table, columns: Sequence[str]) -> Reports:
    found = np.empty((table.num_rows, len(columns)), dtype=np.int64)
    for place, name in enumerate(columns):
        # What no int64 holds becomes negative, which no device sends.
        column = keys.one_array(keys.plain(table.column(name)))
        found[:, place] = column.cast(pa.int64(), safe=False).fill_null(NO_REPORT).to_numpy(zero_copy_only=False)
    return found


def _answers(question: Question, name: str, places: Any) -> dict[str, Any]:
    """The columns that say which value a row is about."""
    if isinstance(question.domain, NumberBins):
        edges = np.array([float(edge) for edge in question.domain.edges])
        return {f"{name}_from": edges[places], f"{name}_to": edges[places + 1]}
    assert isinstance(question.domain, Choices)
    values = question.domain.values
    plain = all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in values)
    listed = pa.array(values, pa.int64()) if plain else pa.array([str(value) for value in values])
    return {name: listed.take(pa.array(places))}


def _of_people(answers: dict[str, Any], found: PeopleEstimates) -> pa.Table:
    return pa.table(
        {
            **answers,
            "people": found.values,
            "deviation": found.deviations,
            "consistent": norm_sub(found.values, found.reports),
            "reports": np.full(len(found.values), found.reports),
        }
    )
