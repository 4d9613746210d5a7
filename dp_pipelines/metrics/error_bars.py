"""How long error bars are: the one rule for all that is called 95%.

In: the law of some noise. Out: half the length of its error bar, in standard deviations. Holds: the bar covers 95% of the noise,
or more. Not covered: what the limits cut off (`release.ranges`); the variance of samples.
"""

import math

NORMAL_POINT = 1.959963984540054
"""The 97.5% point of the normal law, in standard deviations."""

ERROR_BAR = round(NORMAL_POINT, 2)
"""An error bar covers 95% of the noise: of normal noise that many standard deviations to each side."""

LAPLACE_BAR = math.log(20) / math.sqrt(2)
"""The same of Laplace noise, whose 97.5% point it is. No sum of independent normal and Laplace noise needs a longer one."""


def deviations_in_bar(law: str) -> float:
    """Return half the length of an error bar of one law of noise, in standard deviations.

    Args:
        law: as manifests and plans name it; of several laws, joined by +, the longer bar counts.

    >>> deviations_in_bar("gaussian"), round(deviations_in_bar("laplace"), 3), round(deviations_in_bar("gaussian+laplace"), 3)
    (1.96, 2.118, 2.118)
    """
    return LAPLACE_BAR if "laplace" in law else ERROR_BAR


def cut_at_range(value: float, low: float, high: float, within: tuple[float, float]) -> tuple[float, float]:
    """Return an interval that ends where the true number must end; of a number beyond that, the interval of the nearest end.

    Args:
        value: the released number.
        low, high: the ends of the interval of its noise.
        within: the range of the true number; infinite ends for none.

    >>> cut_at_range(-3.0, -5.0, -1.0, (0.0, math.inf)), cut_at_range(11.5, 10.5, 12.5, (0.0, 12.0))
    ((0.0, 2.0), (10.5, 12.0))
    """
    least, most = within
    shift = min(max(value, least), most) - value
    ends = min(low, low + shift), max(high, high + shift)
    return min(max(ends[0], least), most), min(max(ends[1], least), most)
