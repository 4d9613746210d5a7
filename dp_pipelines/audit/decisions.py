"""Replays of decisions: kept partitions, chosen candidates, medians, thresholds.

In: a frozen stage. Out: scores for replays; how often each outcome occurred, and its probability. Holds: coins,
thresholds and choices are drawn by the code that runs, `release.draw` and `selection.exponential`. Not covered:
failures as rare as those of a threshold are computed from the law of the noise (which is replayed) instead of observed;
the best partitions are chosen among only two.
"""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.audit import aggregates, worst
from dp_pipelines.kernels.cells import Around, Points
from dp_pipelines.kernels.statistics import WEIGHT_BITS, UnitWeights
from dp_pipelines.mechanisms import rank_choice, smooth_median
from dp_pipelines.mechanisms.best_choice import BestChoice
from dp_pipelines.noise import smooth_sensitivity
from dp_pipelines.planning.stage import Selection, StagePlan
from dp_pipelines.release import unit_reach
from dp_pipelines.selection import exponential, thresholds, truncated_geometric

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

ASIDE = 1.5
"""Replays are this many scales below a threshold: there, the frequency of passing tells most about the scale."""

SURELY_NOT = 1e-300

MOST_AT_A_TIME = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decisions:
    """Replays of one kind of decision.

    Args:
        scores: of each replay, with the unit and without it.
        counts: how often each of two outcomes occurred, for each situation that was tried.
        claimed: their probabilities.
    """

    with_unit: Floats
    without: Floats
    counts: tuple[tuple[int, int], ...]
    claimed: tuple[tuple[float, float], ...]


def coins(stage: StagePlan, selection: Selection, replays: int) -> Decisions:
    """Replay the coins of selection, for the number of units at which one more unit makes the greatest difference.

    Args:
        stage: the frozen stage.
        selection: of it; its noise is not published.
        replays: how many.
    """
    if selection.noise is None:
        first, second, at = _totals_of_coins(selection)
        pieces = unit_reach.DeclaredBounds.of(stage.query.bounds).partitions
        probabilities = (at(first), at(second))
        tried = [first, second]
    else:
        statistic, noise = stage.statistics[selection.statistic], selection.noise
        moved = worst.change(stage, statistic, noise, least=0)
        pieces = moved.pieces
        middle = selection.threshold - (moved.steps_after - moved.steps_before) / 2
        aside = aggregates.total_at(selection, selection.threshold - ASIDE * float(noise.law.scale))
        first = max(selection.min_users, aggregates.total_at(selection, middle))
        second = first + moved.after - moved.before
        tried = [first, second, max(selection.min_users, aside)]
        laws = [worst.coarse(np.array([total]), noise).item() for total in tried]
        tails = [noise.law.tail(selection.threshold - steps) for steps in laws]
        probabilities = (tails[0], tails[1])

    def draw(total: int) -> Flags:
        users = max(selection.min_users, total) if _weighted(stage, selection) else total
        return aggregates.kept(stage, users, total, replays * pieces)

    drawn = [draw(total) for total in tried]
    claimed = [*probabilities, *([tails[2]] if len(tried) > 2 else [])]
    scores = [_score(outcomes, *probabilities).reshape(replays, pieces).sum(axis=1) for outcomes in drawn[:2]]
    return Decisions(
        with_unit=scores[1],
        without=scores[0],
        counts=tuple(_two(outcomes) for outcomes in drawn),
        claimed=tuple((share, 1 - share) for share in claimed),
    )


def _weighted(stage: StagePlan, selection: Selection) -> bool:
    return isinstance(stage.statistics[selection.statistic], UnitWeights)


def _totals_of_coins(selection: Selection) -> tuple[int, int, Callable[[int], float]]:
    table = truncated_geometric.keep_table(selection.epsilon, selection.delta)
    shares = np.append(table.astype(np.float64) / 2.0**64, 1.0)
    place = int(np.argmax(np.diff(shares)))
    shift = selection.min_users - 1

    def at(total: int) -> float:
        return float(shares[total - shift])

    return place + shift, place + 1 + shift, at


def hides(selection: Selection, stage: StagePlan) -> float:
    """Return the largest probability, over all numbers of partitions, that noise alone reveals a unit alone in its partitions.

    Args:
        selection: of the stage.
        stage: the frozen stage.
    """
    noise, most = selection.noise, unit_reach.DeclaredBounds.of(stage.query.bounds).partitions
    assert noise is not None
    if not _weighted(stage, selection):
        first = worst.coarse(np.array([selection.min_users]), noise).item()
        return _any(noise.law.tail(selection.threshold - first), most)
    several = {1, most, *(min(most, 2**power) for power in range(most.bit_length()))}
    worst_case = 0.0
    for number in several:
        moved = -(-thresholds.weight(number, 1 << WEIGHT_BITS) // noise.step)
        worst_case = max(worst_case, _any(noise.law.tail(selection.threshold - moved), number))
    return worst_case


def _any(probability: float, times: int) -> float:
    return -math.expm1(times * math.log1p(-min(probability, 1 - 2**-53)))


def best(stage: StagePlan, asked: BestChoice, replays: int) -> Decisions:
    """Replay the choice of the better of two partitions that differ only by the unit.

    Args:
        stage: the frozen stage.
        asked: the choice of the stage.
        replays: how many.
    """
    epsilon, spread = Fraction(stage.choices.selection_epsilon), asked.spread
    draw = exponential.CHOICES[asked.mechanism]
    flipped = asked.mechanism == "permute_and_flip"

    def chosen(gap: int) -> Flags:
        left, places = replays * asked.k, []
        while left:
            rows = np.tile(np.array([gap, 0], np.int64), (min(left, MOST_AT_A_TIME), 1))
            places.append(draw(rows, spread=spread, epsilon=epsilon))
            left -= len(rows)
        better: Flags = np.concatenate(places) == 0
        return better

    return _choices(chosen, spread, _first(epsilon, flipped), replays, asked.k)


def ranks(stage: StagePlan, place: int, replays: int) -> Decisions:
    """Replay the choice between two candidates, one of which the unit makes better.

    Args:
        stage: the frozen stage.
        place: of the statistic.
        replays: how many.
    """
    around, rows = stage.statistics[place].cells, unit_reach.DeclaredBounds.of(stage.query.bounds).rows_of_partition
    assert isinstance(around, Around)
    epsilon = stage.calibration(place).decision_epsilon
    pieces = unit_reach.DeclaredBounds.of(stage.query.bounds).partitions
    # Rows between two equal candidates separate their scores by `whole` each, if the quantile is far on one side.
    below = around.whole > around.part
    aside = -(-around.part * rows // (around.whole - around.part)) if below else 1

    def chosen(between: int) -> Flags:
        counts = np.tile(
            np.array([aside if below else 0, 0, between, 0, 0 if below else aside], np.int64), (replays * pieces, 1)
        )
        picked: Flags = aggregates.ranks(stage, place, counts) == (0 if below else 1)
        return picked

    part = Fraction(around.whole * rows, rank_choice.spread(around, rows))
    return _choices(chosen, rows, _first(epsilon * part, True), replays, pieces)


def medians(stage: StagePlan, place: int, replays: int) -> Decisions:
    """Replay smooth medians: an outcome is that one is published above the midpoint of two medians that are one value apart.

    Args:
        stage: the frozen stage.
        place: of the statistic.
        replays: how many.
    """
    points, pieces = stage.statistics[place].cells, unit_reach.DeclaredBounds.of(stage.query.bounds).partitions
    assert isinstance(points, Points)
    numbers, smoothing = points.numbers, smooth_median.smoothing(stage.calibration(place))
    upper = [(numbers - 1) // 2, (numbers - 1) // 2 + 1]
    # Twice the medians, of values 0 and 1: 0, then 1 or 2. Half of their distance, in steps of the release.
    middle = smooth_sensitivity.FINER * (1 + numbers % 2) // 2
    drawn, claimed = [], []
    for high in upper:
        values = np.repeat(np.array([0, 1], np.int64), [numbers - high, high])
        counts = np.tile(np.array([numbers - high, high], np.int64), (replays * pieces, 1))
        drawn.append(aggregates.medians(stage, place, counts) * 2 * smooth_sensitivity.FINER > middle)
        law = smooth_sensitivity.NoisyMedian.of(values, 1, smoothing)
        away = (middle + 0.5 - law.centre) / float(law.scale)
        claimed.append(math.exp(-away) / 2 if away > 0 else 1 - math.exp(away) / 2)
    scores = [_score(each, *claimed).reshape(replays, pieces).sum(axis=1) for each in drawn]
    return Decisions(
        with_unit=scores[1],
        without=scores[0],
        counts=tuple(_two(each) for each in drawn),
        claimed=tuple((share, 1 - share) for share in claimed),
    )


def _first(epsilon: Fraction, flipped: bool) -> float:
    """Return the probability of the better of two candidates."""
    other = math.exp(-float(epsilon))
    return 1 - other / 2 if flipped else 1 / (1 + other)


def _choices(chosen: Callable[[int], Flags], unit: int, share: float, replays: int, times: int) -> Decisions:
    drawn = [chosen(0), chosen(unit)]
    scores = [_score(each, 0.5, share).reshape(replays, times).sum(axis=1) for each in drawn]
    return Decisions(
        with_unit=scores[1],
        without=scores[0],
        counts=tuple(_two(each) for each in drawn),
        claimed=((0.5, 0.5), (share, 1 - share)),
    )


def _score(happened: Flags, without: float, with_unit: float) -> Floats:
    yes = math.log(max(with_unit, SURELY_NOT) / max(without, SURELY_NOT))
    no = math.log(max(1 - with_unit, SURELY_NOT) / max(1 - without, SURELY_NOT))
    return np.where(happened, yes, no)


def _two(happened: Flags) -> tuple[int, int]:
    times = int(np.count_nonzero(happened))
    return times, len(happened) - times
