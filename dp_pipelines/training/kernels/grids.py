"""How finely inputs and weighted derivatives of a network are rounded, layer by layer.

In: the shapes of the layers. Out: fractional bits. Holds: they depend only on shapes, which are public. Whatever they
are, sums are exact and no unit adds more than the clip norm (docs/proofs/training_mlp.md): they only decide how far a
unit's vector is from its gradient, and how often float32 can hold a sum. Not covered: the sums themselves.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Shapes = Sequence[tuple[int, int]]

INPUT_BITS, DERIVATIVE_BITS = 18, 23
"""The bits of the fine grid: float64 holds every sum of its products."""

COARSE_BITS = 7
"""The bits of inputs on the coarse grid; derivatives have this many more than an evenly spread gradient of the clip norm
needs."""

SMALL = 2**12
"""A layer with fewer parameters is rounded finely, which costs nothing."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The fractional bits of each layer.

    Args:
        inputs: of inputs; the first layer's are divided by a power of two above their length.
        derivatives: of weighted derivatives, relative to a power of two above the clip norm.
        singles: whether float32 may hold the sums.
    """

    inputs: tuple[int, ...]
    derivatives: tuple[int, ...]
    singles: tuple[bool, ...]

    @functools.cached_property
    def large(self) -> NDArray[np.float32]:
        """Adding these to inputs up to 1 removes finer bits: (layers,)."""
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
        """Limits on the product of two squared lengths below which float32 holds a sum of products; 0 if it never does."""
        return np.array([
            2.0 ** (47 - 2 * bits) if single else 0.0 for bits, single in zip(self.inputs, self.singles, strict=True)
        ])  # fmt: skip


def fine(shapes: Shapes) -> Grid:
    """The grid for units of several rows, which may cancel.

    >>> fine([(5, 2)])
    Grid(inputs=(18,), derivatives=(23,), singles=(False,))
    """
    layers = len(shapes)
    return Grid((INPUT_BITS,) * layers, (DERIVATIVE_BITS,) * layers, (False,) * layers)


def coarse(shapes: Shapes) -> Grid:
    """The grid for units of one row: so coarse that float32 holds the sums of most blocks.

    >>> coarse([(65, 256), (257, 64), (65, 2)])
    Grid(inputs=(11, 7, 18), derivatives=(11, 14, 23), singles=(True, True, False))
    """
    inputs, derivatives, singles = [], [], []
    for number, (rows, columns) in enumerate(shapes):
        large = rows * columns >= SMALL
        # The inputs of the first layer have a length near 1, those of other layers near the root of their number.
        spread = rows if number == 0 else 1
        inputs.append(COARSE_BITS + math.ceil(math.log2(spread) / 2) if large else INPUT_BITS)
        evenly = columns if number == 0 else rows * columns
        derivatives.append(COARSE_BITS + round(math.log2(evenly) / 2) if large else DERIVATIVE_BITS)
        singles.append(large)
    return Grid(tuple(inputs), tuple(derivatives), tuple(singles))
