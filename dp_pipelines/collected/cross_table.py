"""Two questions to the same people: how many have each pair of values.

In: both questions and the reports of people who answered both. Out: an unbiased table with deviations. Holds: what a person's two
reports support is independent given the person, so products of unbiased parts are unbiased (docs/proofs/local.md, section 8). The
two answers together cost both epsilons. Not covered: Hadamard response and means.
"""

from dataclasses import dataclass

import numpy as np

from dp_pipelines.collect.question import Question
from dp_pipelines.collected.estimates import ByChance, Floats, PeopleEstimates, estimator_of
from dp_pipelines.collected.support import BLOCK, Counts, Reports, support_of
from dp_pipelines.errors import RequestError

MOST_CELLS = 1_000_000

MOST_SUPPORTS = 1 << 24
"""Values times reports whose supports are held at a time."""


@dataclass(frozen=True)
class CrossTable:
    """Counts and estimates of a pair of questions.

    Args:
        rows: the question whose values are the table's rows.
        columns: the other one.

    Raises:
        RequestError: a question has no table (a mean, or Hadamard response), or the table has more than a million cells.

    >>> from dp_pipelines.collect.domain import Choices
    >>> smokes, coughs = (Question(name, Choices(("yes", "no")), epsilon=1) for name in ("smokes", "coughs"))
    >>> table = CrossTable(smokes, coughs)
    >>> answers = np.array([[0], [0], [1]])
    >>> round(float(table.estimates(table.count(answers, answers)).values.sum()), 6)
    3.0
    """

    rows: Question
    columns: Question

    def __post_init__(self) -> None:
        for field, question in (("rows", self.rows), ("columns", self.columns)):
            if not isinstance(estimator_of(question), ByChance):
                raise RequestError(
                    field=field,
                    message=f"answers by {question.mechanism} have no cross table",
                    hint="take d_ary, unary or local_hashing for both questions",
                )
        if self.rows.domain.size * self.columns.domain.size > MOST_CELLS:
            raise RequestError(
                field="columns", message=f"make a table of more than {MOST_CELLS:,} cells", hint="take fewer values"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Values of both questions."""
        return self.rows.domain.size, self.columns.domain.size

    def count(self, row_reports: Reports, column_reports: Reports) -> Counts:
        """Sums that add up over parts: valid pairs, supports of rows, of columns, and of both together.

        Args:
            row_reports: int64 of shape (n, fields of `rows`).
            column_reports: int64 of shape (n, fields of `columns`), of the same people in the same order.

        Returns:
            int64 of shape (1 + rows + columns + rows * columns,).
        """
        first, second = self.shape
        pairs = np.zeros((first, second), dtype=np.int64)
        margins = [np.zeros(first, dtype=np.int64), np.zeros(second, dtype=np.int64)]
        people = 0
        supports = (support_of(self.rows), support_of(self.columns))
        at_once = max(1, min(BLOCK, MOST_SUPPORTS // max(self.shape)))
        for start in range(0, len(row_reports), at_once):
            blocks = (row_reports[start : start + at_once], column_reports[start : start + at_once])
            valid = supports[0].is_valid(blocks[0]) & supports[1].is_valid(blocks[1])
            one, other = (support.supported(block[valid]) for support, block in zip(supports, blocks, strict=True))
            people += int(valid.sum())
            margins[0] += one.sum(axis=0, dtype=np.int64)
            margins[1] += other.sum(axis=0, dtype=np.int64)
            # Sums of a block stay below 2^24, which float32 counts exactly, and its product is fast.
            pairs += np.rint(one.T.astype(np.float32) @ other.astype(np.float32)).astype(np.int64)
        return np.concatenate(([people], *margins, pairs.ravel()))

    def estimates(self, counts: Counts) -> PeopleEstimates:
        """The number of people with each pair of values, and its deviation, both of shape (rows, columns)."""
        first, second = self.shape
        n = int(counts[0])
        rows = counts[1 : 1 + first].astype(np.float64)[:, None]
        columns = counts[1 + first : 1 + first + second].astype(np.float64)[None, :]
        pairs = counts[1 + first + second :].reshape(first, second)
        (p1, q1), (p2, q2) = (_chances(question) for question in (self.rows, self.columns))
        values = (pairs - q2 * rows - q1 * columns + n * q1 * q2) / ((p1 - q1) * (p2 - q2))
        if not n:
            return PeopleEstimates(0, values, np.zeros_like(values))
        row_share = np.clip((rows / n - q1) / (p1 - q1), 0, 1)
        column_share = np.clip((columns / n - q2) / (p2 - q2), 0, 1)
        both = np.clip(values / n, 0, np.minimum(row_share, column_share))
        square = self._square(row_share, column_share, both)
        return PeopleEstimates(n, values, np.sqrt(n * np.maximum(square - both, 0)))

    def expected_deviation(self, reports: int, share: float) -> float:
        """The standard deviation of one pair's number of people before a report is collected.

        Args:
            reports: how many there will be.
            share: of people with the pair. Each of its two values is as frequent, or as in an even spread where that is more.
        """
        row_share, column_share = (np.array(max(share, 1 / size)) for size in self.shape)
        square = self._square(row_share, column_share, np.array(share))
        return float(np.sqrt(reports * np.maximum(square - share, 0)))

    def _square(self, row_share: Floats, column_share: Floats, both: Floats) -> Floats:
        """The mean square of one report's part of an estimate, given the shares of people with each value and with both."""
        (p1, q1), (p2, q2) = (_chances(question) for question in (self.rows, self.columns))
        a1, b1 = _second_moments(p1, q1)
        a2, b2 = _second_moments(p2, q2)
        found: Floats = (
            both * a1 * a2
            + (row_share - both) * a1 * b2
            + (column_share - both) * b1 * a2
            + np.maximum(1 - row_share - column_share + both, 0) * b1 * b2
        )
        return found


def _chances(question: Question) -> tuple[float, float]:
    estimator = estimator_of(question)
    assert isinstance(estimator, ByChance)
    p, q = estimator.chances
    return float(p), float(q)


def _second_moments(p: float, q: float) -> tuple[float, float]:
    """The mean square of one report's part of an estimate, for a person with the value and for one without it."""
    return tuple((chance * (1 - q) ** 2 + (1 - chance) * q**2) / (p - q) ** 2 for chance in (p, q))  # type: ignore[return-value]
