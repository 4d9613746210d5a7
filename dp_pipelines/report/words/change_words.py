"""A change between two runs in words: of what noise may have made, nobody reads that it is a change.

In: two released numbers with the deviations of their noise, which is drawn anew in each run. Out: a phrase. Holds: a change is
told as one only where it is longer than three deviations of the noise of the difference. Not covered: what the limits cut off,
which may differ between runs.
"""

import math

from dp_pipelines.report.numbers import rounded_parts

CLEAR = 3.0
"""A difference of so many deviations of its noise is a change: noise alone makes one in 400, or of Laplace noise one in 90."""


def change_words(now: tuple[float, float], before: tuple[float, float], since: str, *, whole: bool) -> str:
    """Return how much a number has changed since another run; nothing where nobody can tell.

    Args:
        now, before: the numbers and the standard deviations of their noise.
        since: what the other run is called.
        whole: whether the true numbers are whole.

    >>> change_words((1500.0, 20.0), (1200.0, 20.0), "run 2026-W11", whole=True)
    '300 ± 55 more than in run 2026-W11'
    >>> change_words((1250.0, 20.0), (1200.0, 20.0), "run 2026-W11", whole=True)
    'no clear change since run 2026-W11: 50 ± 55 more, which noise alone may make'
    >>> change_words((1100.0, 20.0), (1200.0, 20.0), "run 2026-W11", whole=True)
    '100 ± 55 less than in run 2026-W11'
    >>> change_words((1100.0, math.nan), (1200.0, 20.0), "run 2026-W11", whole=True)
    ''
    """
    difference, stddev = now[0] - before[0], math.hypot(now[1], before[1])
    parts = rounded_parts(abs(difference), stddev, whole=whole)
    if parts is None or not stddev > 0:
        return ""
    amount = f"{parts[0]} ± {parts[1]} {'more' if difference >= 0 else 'less'}"
    if abs(difference) > CLEAR * stddev:
        return f"{amount} than in {since}"
    return f"no clear change since {since}: {amount}, which noise alone may make"
