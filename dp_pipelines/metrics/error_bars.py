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
