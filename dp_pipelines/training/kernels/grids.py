"""How finely inputs and weighted derivatives of a network are rounded, layer by layer.

In: the shapes of the layers. Out: bits behind the point. Holds: they depend on shapes alone, which are public; whatever they
are, sums are exact and no unit adds more than the clip norm (docs/proofs/training_mlp.md): they decide how far a unit's vector
is from its gradient, and how often float32 can hold a sum. Not covered: the sums themselves.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Shapes = Sequence[tuple[int, int]]

INPUT_BITS, DERIVATIVE_BITS = 18, 23
"""Of the fine grid: float64 holds every sum of its products."""

COARSE_BITS = 7
"""Of inputs on the coarse grid; derivatives have as many more than a gradient of the clip norm, spread evenly, needs."""

SMALL = 2**12
"""A layer with fewer parameters is rounded finely: it costs nothing."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """Bits behind the point, of each layer.

    Args:
        inputs: of inputs, the first layer's divided by a power of two above their length.
        derivatives: of weighted derivatives as a part of a power of two above the clip norm.
        singles: whether float32 may hold the sums.
    """

    inputs: tuple[int, ...]
    derivatives: tuple[int, ...]
    singles: tuple[bool, ...]

    @functools.cached_property
    def large(self) -> NDArray[np.float32]:
        """What inputs up to 1 are added to so that finer bits have no place: (layers,)."""
        return np.array([1.5 * 2.0 ** (23 - bits) for bits in self.inputs], np.float32)

    @functools.cached_property
    def steps(self) -> NDArray[np.float64]:
        """The steps of derivatives: (layers,).

        >>> fine([(5, 2)]).steps.tolist() == [2.0**-23]
        True
        """
        return np.array([2.0**-bits for bits in self.derivatives])

    @functools.cached_property
    def rooms(self) -> NDArray[np.float64]:
        """Below what the product of two squared lengths must be for float32 to hold a sum of products; 0 where it never may."""
        return np.array([
            2.0 ** (47 - 2 * bits) if single else 0.0 for bits, single in zip(self.inputs, self.singles, strict=True)
        ])  # fmt: skip


def fine(shapes: Shapes) -> Grid:
    """For units of several rows, whose rows may cancel.

    >>> fine([(5, 2)])
    Grid(inputs=(18,), derivatives=(23,), singles=(False,))
    """
    layers = len(shapes)
    return Grid((INPUT_BITS,) * layers, (DERIVATIVE_BITS,) * layers, (False,) * layers)


def coarse(shapes: Shapes) -> Grid:
    """For units of one row: so coarse that float32 holds the sums of most blocks.

    >>> coarse([(65, 256), (257, 64), (65, 2)])
    Grid(inputs=(11, 7, 18), derivatives=(11, 14, 23), singles=(True, True, False))
    """
    inputs, derivatives, singles = [], [], []
    for number, (rows, columns) in enumerate(shapes):
        large = rows * columns >= SMALL
        # The first layer's inputs have a length near 1, those of others near the root of their number.
        spread = rows if number == 0 else 1
        inputs.append(COARSE_BITS + math.ceil(math.log2(spread) / 2) if large else INPUT_BITS)
        evenly = columns if number == 0 else rows * columns
        derivatives.append(COARSE_BITS + round(math.log2(evenly) / 2) if large else DERIVATIVE_BITS)
        singles.append(large)
    return Grid(tuple(inputs), tuple(derivatives), tuple(singles))
