"""Comparisons of the privacy loss seen in replays with the accounted one: hockey-stick divergences in both directions.

In: a score of each replay with the unit and without it, larger if the unit seems to be there; the accounted delta at
some epsilons. Out: for each epsilon and direction P(score >= t) - exp(epsilon) Q(score >= t), with its error, and the
evidence that it exceeds the accounted delta. Holds: one half of the replays chooses t and the other half is counted, so
the choice costs nothing; any score and any t make a fair test. Not covered: a divergence that the score does not show.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.audit import evidence

Floats = NDArray[np.float64]

EPSILONS = (0.0, 0.5, 1.0)
"""The epsilons at which divergences are compared; they are small, because there many replays count."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Divergence:
    """One comparison.

    Args:
        epsilon: the epsilon.
        removed: True if P is the release with the unit and Q the one without it; otherwise the reverse.
        replayed: the divergence found.
        error: its standard error.
        accounted: the delta that the accountant gives.
        evidence: see `evidence.excess`.
    """

    epsilon: float
    removed: bool
    replayed: float
    error: float
    accounted: float
    evidence: float


def compare(with_unit: Floats, without: Floats, accounted: Mapping[float, float]) -> list[Divergence]:
    """Return all comparisons of one score.

    Args:
        with_unit, without: the score of each replay; as many of each.
        accounted: delta by epsilon.

    >>> even = np.arange(1000) % 500 / 500
    >>> found = compare(even + 0.5, even, {0.0: 0.5})
    >>> [round(each.replayed, 1) for each in found]
    [0.5, 0.5]
    """
    events = []
    for epsilon, delta in accounted.items():
        for removed in (True, False):
            p, q = (with_unit, without) if removed else (-without, -with_unit)
            half = len(p) // 2
            t = threshold(p[:half], q[:half], epsilon)
            n = len(p) - half
            hits_p, hits_q = (int(np.count_nonzero(scores[half:] >= t)) for scores in (p, q))
            share_p, share_q, growth = hits_p / n, hits_q / n, math.exp(epsilon)
            variance = (share_p * (1 - share_p) + growth**2 * share_q * (1 - share_q)) / n
            events.append(
                Divergence(
                    epsilon=epsilon,
                    removed=removed,
                    replayed=share_p - growth * share_q,
                    error=math.sqrt(variance),
                    accounted=delta,
                    evidence=evidence.excess(hits_p, hits_q, n, epsilon=epsilon, delta=delta),
                )
            )
    return events


def threshold(p: Floats, q: Floats, epsilon: float) -> float:
    """Return the score above which P most exceeds exp(epsilon) times Q; infinite if it never does.

    Args:
        p, q: scores of replays under P and Q, float64 of shape (replays,).
        epsilon: of the comparison.
    """
    scores = np.concatenate([p, q])
    weights = np.concatenate([np.ones(len(p)), np.full(len(q), -math.exp(epsilon))])
    order = np.argsort(-scores, kind="stable")
    falling, gains = scores[order], np.cumsum(weights[order])
    # A threshold takes all replays with one score, or none of them.
    last = np.append(falling[1:] < falling[:-1], True)
    best = int(np.argmax(gains[last]))
    return float(falling[last][best]) if gains[last][best] > 0 else math.inf
