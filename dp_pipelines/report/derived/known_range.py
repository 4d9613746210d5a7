"""The range in which a formula over released numbers must lie, whatever the rows are: intervals of its noise end there.

In: a formula, the entries of its metrics in a manifest. Out: the ends of the range. Holds: a function of public facts alone. It
holds for the numbers without noise; noise may take a released one out of it. Not covered: products of two metrics.
"""

# Write numerator and denominator as sums of numbers that are never negative. Their quotient is a weighted mean of the quotients
# of their factors (the mediant inequality), with a constant as one more number, and a total as a row's number plus the rest.
# Of a weighted mean the sum W of weight times distance is within h S and -h S, where S is the sum of weights: W + h S and
# h S - W are never negative, and W = (W + h S) / 2 - (h S - W) / 2, S = ((W + h S) + (h S - W)) / 2 h.

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from dp_pipelines.kernels.lattice import Floats
from dp_pipelines.metrics import registry
from dp_pipelines.metrics.weighted_mean import SumPair, released_pairs
from dp_pipelines.report.derived import formula, part_noise
from dp_pipelines.report.derived.formula import Formula, WeightedSum
from dp_pipelines.report.pages import mapping

_CLIPPED_FROM_ZERO = re.compile(r"clipped_sum\(.* in \[0\.0, [^\[\],]+\]\)\Z", re.DOTALL)
"""The name of a sum (`kernels.statistics`) of which a unit adds nothing below zero."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownRange:
    """What is known of a formula before anything is released.

    Args:
        low, high: the ends; infinite where there is none.
        below: the denominator, if it is never negative; None: it may be, or there is none.
        moves: whether a number beyond the range is moved to its end, as a mean is. Shares are not, so that they add up.
    """

    low: float = -math.inf
    high: float = math.inf
    below: WeightedSum | None = None
    moves: bool = False

    def cut(self, values: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
        """Return numbers and their intervals, which end at the range.

        The interval of a number beyond the range is that of the nearest end of it. No end of an interval moves away from the
        range, so it holds the truth at least as often.

        Args:
            values, low, high: numbers with both ends of their intervals; NaN for none.

        >>> [part.tolist() for part in KnownRange(low=0.0).cut(np.array([-3.0]), np.array([-5.0]), np.array([-1.0]))]
        [[-3.0], [0.0], [2.0]]
        """
        nearest = np.clip(values, self.low, self.high)
        shift = nearest - values
        low = np.clip(np.minimum(low, low + shift), self.low, self.high)
        high = np.clip(np.maximum(high, high + shift), self.low, self.high)
        return (nearest if self.moves else values), low, high


def known_range(read: Formula, entries: Mapping[str, Any]) -> KnownRange:
    """Return the range of a formula.

    Args:
        read: the formula.
        entries: of the metrics of its stage in the manifest.

    >>> entries = {"a": {"kind": "count"}, "b": {"kind": "privacy_id_count"}}
    >>> texts = ("a / b", "a / (a + b)", "a / total(a)", "1 - a / b", "a * b")
    >>> [(known.low, known.high) for known in (known_range(formula.read(one), entries) for one in texts)]
    [(0.0, inf), (0.0, 1.0), (0.0, 1.0), (-inf, 1.0), (-inf, inf)]
    """
    parts = read.quotient()
    if parts is None:
        return KnownRange()
    pair = next((one for one in released_pairs(entries) if {one.weighted, one.weights} <= {*read.names}), None)
    above, below = (_never_negative(part, entries, pair) for part in parts)
    if above is None or below is None or not any(below.values()):
        return KnownRange()
    if all(factor <= 0 for factor in below.values()):
        above, below = ({name: -factor for name, factor in part.items()} for part in (above, below))
        parts = parts[0].times(-1.0), parts[1].times(-1.0)
    if any(factor < 0 for factor in below.values()):
        return KnownRange()
    ends = [float(f"{above.get(name, 0.0) / factor:.14g}") for name, factor in below.items() if factor]
    beyond = [factor for name, factor in above.items() if not below.get(name)]
    return KnownRange(
        low=-math.inf if any(factor < 0 for factor in beyond) else min(ends),
        high=math.inf if any(factor > 0 for factor in beyond) else max(ends),
        below=parts[1] if parts[1].factors else None,
        moves=pair is not None,
    )


def _never_negative(part: WeightedSum, entries: Mapping[str, Any], pair: SumPair | None) -> dict[str, float] | None:
    """Return the factors of a sum of numbers that are never negative; None where it has another number."""
    found: dict[str, float] = {"": part.constant} if part.constant else {}

    def add(name: str, factor: float) -> None:
        found[name] = found.get(name, 0.0) + factor

    for name, factor in part.factors.items():
        plain = formula.plain(name)
        if pair is not None and name in (pair.weighted, pair.weights):
            both = (0.5, -0.5) if name == pair.weighted else (1 / (pair.high - pair.low),) * 2
            for place, share in zip(("over its low end", "under its high end"), both, strict=True):
                add(f"{pair.name} {place}", factor * share)
        elif not _is_never_negative(mapping(entries.get(plain))):
            return None
        else:
            add(plain, factor)
            if name != plain:
                add(f"rest of {plain}", factor)
    return found


def _is_never_negative(entry: Mapping[str, Any]) -> bool:
    """Return True if the true numbers of a metric are 0 or more."""
    kind, bounds = registry.of_kind(entry.get("kind")), part_noise.sum_bounds(entry)
    if (kind is not None and kind.whole) or (bounds is not None and bounds[0] >= 0):
        return True
    return any(_CLIPPED_FROM_ZERO.match(str(name)) is not None for name in mapping(entry.get("statistics")))
