"""Renyi divergences of single mechanisms, in closed form.

In: what one unit changes, in units of the noise, or the epsilon of a decision; an order above 1. Out: the Renyi
divergence of that order between neighbours, in both directions. Holds: multiplied by `UP`, it is never below the truth.
Not covered: Gaussian sums over samples (`accounting.subsampled_gaussian`); which mechanisms a record stands for
(`accounting.record_kinds`).
"""

# Formulas: Mironov 2017, proposition 7 (Gaussian) and proposition 6 (Laplace); randomized response from its two outcomes;
# bounded range, docs/proofs/exponential.md, lemma 6.

import math

UP = 1 + 2.0**-40
"""Outweighs the relative rounding error of a few dozen operations on positive floats."""


def gaussian(square: float, order: float) -> float:
    """Return the Renyi divergence of Gaussian noise of standard deviation 1 that is shifted.

    Args:
        square: the square of the shift.
        order: above 1.
    """
    return order * square / 2


def laplace(shift: float, order: float) -> float:
    """Return the Renyi divergence of Laplace noise that is shifted by `shift` scales."""
    whole = 2 * order - 1
    return _capped(shift, order, (order / whole, (order - 1) / whole), -order * shift)


def response(epsilon: float, order: float) -> float:
    """Return the Renyi divergence of an answer that is true with probability e^epsilon / (1 + e^epsilon)."""
    lie = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    return _capped(epsilon, order, (1 / (1 + math.exp(-epsilon)), lie), (1 - order) * epsilon)


def bounded_range(epsilon: float, order: float) -> float:
    """Return the Renyi divergence of a choice whose privacy losses lie in an interval of length epsilon."""
    return min(epsilon, order * epsilon * epsilon / 8)


def _capped(loss: float, order: float, weights: tuple[float, float], low: float) -> float:
    """Return the log of the weighted mean of exp((order - 1) loss) and exp(low), over order - 1, capped by what the loss allows.

    A mechanism whose loss is at most `loss` has a divergence of at most `loss`, and of at most order loss^2 / 2 (Bun
    and Steinke 2016, proposition 3.3). The latter is tighter if the loss is so small that the two exponentials cancel.
    """
    high, (heavy, light) = (order - 1) * loss, weights
    if high < 1:
        up, down = heavy * math.expm1(high), light * math.expm1(low)
        total = math.log1p(up + down) + 2.0**-48 * (up - down)
    else:
        total = high + math.log(heavy + light * math.exp(low - high)) + 2.0**-48 * (1 + high)
    return min(loss, order * loss * loss / 2, total / (order - 1))
