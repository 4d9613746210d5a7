"""The rough estimate at many noise levels, for searches that exchange a few of many parts at a time.

In: what mechanisms do at noise level 1, as `estimate.Terms`. Out: the side of a limit on which their epsilon at a level lies.
Holds: it is the side that `estimate.rough` gives. Running totals decide what is clear; near the limit numbers are added in the
order of `rough`, which gives its bits. Not covered: sums over samples, which `estimate.rough` adds.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dp_pipelines.accounting.estimate import WIDTH, Terms, epsilon_of_sums, gaussian_delta
from dp_pipelines.kernels.lattice import Floats

MOST_LEVELS = 512
"""Noise levels whose sums are kept."""

SURE = 1e-9
"""Relative error that running totals stay far below."""

CLEAR = 1e-6
"""Relative error of an epsilon that comes from rounding stays far below this, for shifts from `LEAST_SHIFT` on."""

LEAST_SHIFT = 1e-3

LARGEST_CLEAR = 100.0
"""For a larger limit sums are added anew: `epsilon_of_sums` limits exponents at 700, so it exaggerates epsilons of some 400."""

CANCELLED = 1e-4
"""A running total is not used below this part of the largest that it has been."""

Column = tuple[float, float, bool, bool]
"""A squared shift or a loss; how often it counts; True for a squared shift; True where its noise follows the level."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What a part adds at one noise level.

    Args:
        variances: of the Gaussians that its mechanisms count as, in scales.
        losses: all its losses.
        variance, loss: their sums.
        unbounded: whether it has a squared shift, and so no largest loss.
    """

    variances: tuple[float, ...]
    losses: tuple[float, ...]
    variance: float
    loss: float
    unbounded: bool


@dataclasses.dataclass(frozen=True)
class LevelPart:
    """Some mechanisms that are exchanged together.

    Args:
        columns: in the order in which `estimate.rough` adds them.
        log_not_failed: the logarithm of the probability that nothing fails outright, in all runs.
    """

    columns: tuple[Column, ...] = ()
    log_not_failed: float = 0.0
    _rows: dict[float, Row] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of_terms(cls, terms: Terms, runs: int, *, scaled: bool) -> "LevelPart":
        """Return the part for some mechanisms.

        Args:
            terms: what they do at noise level 1, without samples.
            runs: how often.
            scaled: whether their noise follows the level.
        """
        assert not terms.sampled
        squares = [(terms.squares, float(runs), True, scaled)] if terms.squares else []
        losses = [(loss, float(runs * number), False, scaled) for number, loss in terms.losses]
        return cls((*squares, *losses), runs * terms.log_not_failed)

    def row(self, level: float) -> Row:
        """Return the row that the part adds at a noise level."""
        row = self._rows.get(level)
        if row is None:
            row = self._rows[level] = self._new_row(level)
        return row

    def _new_row(self, level: float) -> Row:
        variances, losses, unbounded = [], [], False
        for number, times, is_square, scaled in self.columns:
            # With noise in proportion to the level a loss falls with the level, and a squared shift with its square.
            shift = number / (level**2 if is_square else level) if scaled else number
            variances.append(times * (shift if is_square else min(shift, shift * shift)))
            losses.append(0.0 if is_square else times * shift)
            unbounded |= is_square and shift > 0
        return Row(tuple(variances), tuple(losses), math.fsum(variances), math.fsum(losses), unbounded)


NOTHING = LevelPart()
"""No mechanism at all."""


class OrderedSums:
    """Sums in the order of places, with the same bits as a loop; a few places can be exchanged.

    NumPy's own `sum` adds in pairs, which gives other last bits. A place that is not filled up holds zeros, which change none.

    Args:
        values: what each place holds.
        width: the most numbers that a place ever holds.

    >>> sums = OrderedSums([[0.1, 0.2], [0.3]], 2)
    >>> sums.total({}) == 0.1 + 0.2 + 0.3, sums.total({0: [0.5]}) == 0.5 + 0.3
    (True, True)
    """

    def __init__(self, values: Sequence[Sequence[float]], width: int) -> None:
        self._width = width
        padded = [(*of_place, *[0.0] * (width - len(of_place))) for of_place in values]
        self._numbers: Floats = np.array(padded, np.float64).reshape(len(values) * width)

    def exchange(self, place: int, values: Sequence[float]) -> None:
        """Replace the numbers of a place."""
        assert len(values) <= self._width
        first, end = place * self._width, place * self._width + len(values)
        self._numbers[first:end] = values
        self._numbers[end : first + self._width] = 0.0

    def total(self, changed: Mapping[int, Sequence[float]]) -> float:
        """Return the sum with other numbers in some places, without changing the places."""
        before = {place: self._numbers[place * self._width : (place + 1) * self._width].copy() for place in changed}
        for place, values in changed.items():
            self.exchange(place, values)
        total = float(np.add.accumulate(self._numbers)[-1]) if len(self._numbers) else 0.0
        for place, own in before.items():
            self._numbers[place * self._width : (place + 1) * self._width] = own
        return total


class _AtLevel:
    """Sums over all parts at one noise level."""

    def __init__(self, rows: Sequence[Row], width: int, exchanged: int) -> None:
        self.rows = list(rows)
        self.exchanged = exchanged
        self._width = width
        self.variance = math.fsum(row.variance for row in rows)
        self.loss = math.fsum(row.loss for row in rows)
        self.unbounded = sum(row.unbounded for row in rows)
        # Errors of the running totals are relative to the largest that they have been.
        self.most_variance, self.most_loss = self.variance, self.loss

    @functools.cached_property
    def variances(self) -> OrderedSums:
        """Return the sums over the variances of all parts."""
        return OrderedSums([row.variances for row in self.rows], self._width)

    @functools.cached_property
    def losses(self) -> OrderedSums:
        """Return the sums over the losses of all parts."""
        return OrderedSums([row.losses for row in self.rows], self._width)

    def exchange(self, place: int, row: Row) -> None:
        """Replace the row of a place."""
        before, self.rows[place] = self.rows[place], row
        for name, numbers in (("variances", row.variances), ("losses", row.losses)):
            if name in self.__dict__:
                self.__dict__[name].exchange(place, numbers)
        self.variance += row.variance - before.variance
        self.loss += row.loss - before.loss
        self.unbounded += row.unbounded - before.unbounded
        self.most_variance, self.most_loss = max(self.most_variance, self.variance), max(self.most_loss, self.loss)


class LevelCosts:
    """Costs of many parts at noise levels, by the rough estimate, on the right side of a limit.

    Args:
        parts: in the order in which `estimate.rough` adds them.
        delta: of all runs.
        against: the limit, above 0.
        width: the most columns that any part has, exchanged ones included.

    >>> one = LevelPart.of_terms(Terms(losses=((1, 3.0),)), 1, scaled=True)
    >>> costs = LevelCosts([one, one], 1e-6, against=1.5, width=1)
    >>> costs.cost({1: NOTHING})(2.0) <= 1.5, costs.cost({})(2.0) <= 1.5
    (True, False)
    """

    def __init__(self, parts: Sequence[LevelPart], delta: float, *, against: float, width: int) -> None:
        self._parts, self._delta, self._against, self._width = list(parts), delta, against, width
        self._failures = OrderedSums([[part.log_not_failed] for part in parts], 1)
        self._exchanged: list[int] = []
        self._levels: dict[float, _AtLevel] = {}

    def exchange(self, changed: Mapping[int, LevelPart]) -> None:
        """Replace the parts of some places, for good."""
        for place, part in changed.items():
            self._parts[place] = part
            self._failures.exchange(place, [part.log_not_failed])
            self._exchanged.append(place)

    def cost(self, changed: Mapping[int, LevelPart]) -> Callable[[float], float]:
        """Return a function from a noise level to an epsilon on the same side of the limit as the one of `estimate.rough`.

        Args:
            changed: parts that are exchanged, by place.
        """
        failed = self._failures.total({place: [part.log_not_failed] for place, part in changed.items()})
        return functools.partial(self._cost, [*changed.items()], self._delta + math.expm1(failed))

    def _cost(self, changed: Sequence[tuple[int, LevelPart]], rest: float, level: float) -> float:
        at = self._at(level)
        variance, loss, unbounded = at.variance, at.loss, at.unbounded
        for place, part in changed:
            row, before = part.row(level), at.rows[place]
            variance += row.variance - before.variance
            loss += row.loss - before.loss
            unbounded += row.unbounded - before.unbounded
        if variance > CANCELLED * at.most_variance and (unbounded or loss > CANCELLED * at.most_loss):
            is_met = self._is_met(variance, math.inf if unbounded else loss, rest)
            if is_met is not None:
                return self._against if is_met else math.inf
        rows = [(place, part.row(level)) for place, part in changed]
        variance = at.variances.total({place: row.variances for place, row in rows})
        loss = math.inf if unbounded else at.losses.total({place: row.losses for place, row in rows})
        return epsilon_of_sums(variance, loss, rest, against=self._against)

    def _is_met(self, variance: float, loss: float, rest: float) -> bool | None:
        """Return True if the limit is met, False if not, None if only exact sums can tell."""
        if rest < 0:
            return False
        if loss < self._against * (1 - SURE):
            return True
        if loss <= self._against * (1 + SURE) or self._against > LARGEST_CLEAR:
            return None
        if rest == 0:
            return False
        mu = math.sqrt(variance)
        if mu < LEAST_SHIFT:
            return None
        if gaussian_delta(mu, self._against * (1 + CLEAR)) > rest:
            return False
        # The search in `epsilon_of_sums` may end above the limit where the epsilon is below it by less than its width.
        return True if gaussian_delta(mu, self._against * (1 - 1.1 * WIDTH)) <= rest else None

    def _at(self, level: float) -> _AtLevel:
        at = self._levels.get(level)
        if at is None:
            if len(self._levels) >= MOST_LEVELS:
                del self._levels[next(iter(self._levels))]
            rows = [part.row(level) for part in self._parts]
            at = self._levels[level] = _AtLevel(rows, self._width, len(self._exchanged))
        if at.exchanged < len(self._exchanged):
            for place in dict.fromkeys(self._exchanged[at.exchanged :]):
                at.exchange(place, self._parts[place].row(level))
            at.exchanged = len(self._exchanged)
        return at
