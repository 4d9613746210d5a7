"""How likely it is that bounding keeps something of a unit: a uniform choice without replacement.

In: how many partitions or rows a unit has, how many are kept, how many are asked about. Out: probabilities over the salt of a
run. Holds: the keyed hash of a run is taken for a uniform choice. Not covered: equal rows of a unit, which tie.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def some_kept(total: ArrayLike, kept: ArrayLike, of: ArrayLike) -> Floats:
    """The probability that at least one of `of` things is among `kept` of `total` that are chosen.

    1 - C(total - of, kept) / C(total, kept): the hypergeometric law, none drawn.

    Args:
        total: how many there are, from 1.
        kept: how many are chosen, from 1; all where it is more than there are.
        of: how many are asked about, from 1 to `total`.

    >>> some_kept([4, 4, 4, 2], [1, 2, 2, 5], [1, 1, 2, 1]).round(4).tolist()
    [0.25, 0.5, 0.8333, 1.0]
    """
    from scipy import special

    whole, chosen, asked = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in (total, kept, of)))
    rest = whole - asked
    possible = rest >= chosen  # that none of them is chosen
    safe = np.where(possible, chosen, 0.0)
    none = np.exp(
        special.gammaln(rest + 1)
        - special.gammaln(rest - safe + 1)
        - special.gammaln(whole + 1)
        + special.gammaln(np.maximum(whole - safe, 0) + 1)
    )
    none = np.minimum(none, 1.0)  # the terms are so large that they cancel only almost
    single = np.minimum(chosen / whole, 1.0)
    return np.asarray(np.where(asked == 1, single, np.where(possible, 1.0 - none, 1.0)), np.float64)
