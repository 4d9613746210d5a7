"""Linear models over coded rows: the sum of the units' clipped gradients, as whole numbers added up by code.

In: parameters, chunks of whole units with the products of their whitened rows, a norm. Out: the sum over units of the
unit's summed gradient, scaled down to the norm if it is longer. Holds: a unit gives one whole number for each row and
output, computed from its own rows and the parameters alone, bit for bit; the whitened vector that they stand for is no
longer than the norm; everything after that is exact, up to one rounding at the end (docs/proofs/training_coded.md). Not
covered: the accuracy of a gradient, on which the guarantee does not depend.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import checks
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Label, NumberLabel
from dp_pipelines.training.examples.coded import CodedChunk, Singles, product_starts
from dp_pipelines.training.examples.store import FEATURE_BITS, whole_numbers
from dp_pipelines.training.features.code_layout import CODES, CodeLayout
from dp_pipelines.training.kernels import coded_loops
from dp_pipelines.training.kernels.coded_loops import MOST_ROWS
from dp_pipelines.training.kernels.linear import LinearKernel
from dp_pipelines.training.kernels.penalty import ScorePenalty

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

SAFETY = 1 - 1e-6
"""The part of the norm that remains: more than all roundings of single operations take."""

ERROR = 2.0**-23
"""How far a unit's computed squared length may be below the exact one, over the square of what its rows' lengths add up
to."""

LEAST = 2.0**-140
"""More than float32 loses by underflow."""

WHOLE_BITS = 30
"""The whole number of a row is at most two to this power."""

DIFFERENCE_BITS = 6
"""The difference between a score and a number label counts as at most 2**6 ranges of the label."""

FINE_BITS = 20
"""How much finer than the norm factors can be, over the longest whitened column."""

SCALES = 2.0**-40, 2.0**40
"""Where the largest entry of a whitening matrix is."""

LOW_HALF = np.int64(2**32 - 1)


class WhitenedColumns:
    """A whitening matrix of whole multiples of a power of two, and what follows from it. It is public.

    Args:
        matrix: (width, width), multiplies rows of features.
    """

    def __init__(self, matrix: Floats) -> None:
        whole, self.exponent = whole_numbers(matrix)
        self.whole = whole.astype(np.int64)
        self.matrix: Floats = np.ldexp(whole, -self.exponent)
        if not SCALES[0] <= np.abs(self.matrix).max() <= SCALES[1]:
            raise ValueError("no released moments lead to such a matrix")
        width = len(matrix)
        self.squares = np.zeros((width + 1, width + 1))
        self.squares[:width, :width] = self.matrix @ self.matrix.T
        self.lengths = np.zeros(width + 1)
        self.lengths[:width] = np.sqrt(np.diag(self.squares)[:width]) * (1 + 2.0**-30)

    @functools.cached_property
    def objects(self) -> NDArray[Any]:
        """The whole numbers as Python's, which never overflow."""
        return self.whole.astype(object)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CodedLinear:
    """A linear model with one of three losses, see `LinearKernel`.

    Args:
        layout: of the codes.
        label: decides the loss.
        whitening: multiplies rows of features; None: they are used as they are.
        class_weights, penalty: as of `LinearKernel`.
    """

    layout: CodeLayout
    label: Label
    whitening: Floats | None = None
    class_weights: tuple[float, ...] | None = None
    penalty: ScorePenalty | None = None

    slack = 0.0
    """The sum over all chunks is exact before its one rounding."""

    parallel = True
    """Several threads may work on several chunks: compiled loops do not hold the interpreter's lock."""

    units_per_chunk = 2**11

    @functools.cached_property
    def columns(self) -> WhitenedColumns:
        """The whitening matrix as it is applied."""
        return WhitenedColumns(np.eye(self.width) if self.whitening is None else self.whitening)

    @property
    def width(self) -> int:
        """The number of columns of features."""
        return self.layout.width

    @property
    def outputs(self) -> int:
        """How many numbers the model computes for an example."""
        return self.label.outputs

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.width * self.outputs

    @property
    def curvature(self) -> float:
        """As of `LinearKernel`."""
        return LinearKernel(width=self.width, label=self.label).curvature

    def initial(self) -> Floats:
        """The parameters with which training begins: zero."""
        return np.zeros(self.size)

    def whitened(self, matrix: Floats | None) -> "CodedLinear":
        """The same model of rows times a matrix."""
        return dataclasses.replace(self, whitening=matrix)

    def compile(self, *, sampled: bool) -> None:
        """Compile what a training calls: no unit may decide whether that succeeds.

        Args:
            sampled: whether steps take samples of units, which are copies; what is read from a file cannot be written to.
        """
        layout, starts = self.layout, np.array([0, 1])
        values, width = len(layout.scaled_columns), self.width
        row = np.zeros((1, layout.bytes), np.uint8), np.zeros((1, values), np.int32), np.zeros(1)
        codes, scaled, labels = _as_in_a_file(row)
        chunk = CodedChunk.of(codes, scaled, labels, starts, self.multiply)
        sums = [
            np.zeros(shape, np.int64)
            for shape in ((width + 1, width + 1), (values, width + 1), *[(values, values)] * 2)
        ]
        coded_loops.add_moments(codes, scaled, starts, *self._layout, 1, *sums)
        arrays = codes, scaled, labels, chunk.products
        codes, scaled, labels, products = map(np.copy, arrays) if sampled else _as_in_a_file(arrays)
        taken = dataclasses.replace(chunk, codes=codes, scaled=scaled, labels=labels, products=products)
        self.step(self.initial(), 1.0).of(taken)

    def multiply(self, chunk: CodedChunk) -> tuple[Singles, Singles]:
        """The products of the whitened rows of each unit, and bounds on their lengths: for `with_products`."""
        starts = product_starts(chunk.starts)
        products, bounds = np.empty(int(starts[-1]), np.float32), np.empty(chunk.units, np.float32)
        coded_loops.multiply(
            chunk.codes, chunk.scaled, chunk.starts, starts, *self._layout,
            self.columns.squares, self.columns.lengths, products, bounds,
        )  # fmt: skip
        return products, bounds

    def weights(self, parameters: Floats) -> Floats:
        """The weights of the columns before whitening: (width, outputs). The same bits at every call."""
        own = parameters.reshape(self.outputs, self.width)
        return np.stack([np.add.reduce(self.columns.matrix * each, axis=1) for each in own], axis=1)

    def clipped_sum(self, parameters: Floats, chunk: CodedChunk, clip_norm: float) -> Floats:
        """The sum over one chunk's units of their clipped gradients, rounded once: (size,)."""
        step = self.step(parameters, clip_norm)
        total = step.total()
        total.add(step.of(chunk))
        return total.value()

    def step(self, parameters: Floats, clip_norm: float) -> "CodedStep":
        """How to add up clipped gradients at some parameters.

        Args:
            parameters: (size,), finite.
            clip_norm: between 1e-100 and 1e80.
        """
        norm = checks.number(clip_norm, "clip_norm", above=1e-100, below=1e80)
        longest = float(self.columns.lengths.max())
        reach = DIFFERENCE_BITS if isinstance(self.label, NumberLabel) else 0
        fine = min(0, math.frexp(norm / longest)[1] + FINE_BITS)
        return CodedStep(kernel=self, weights=self.weights(parameters), norm=norm, reach=reach, fine=fine)

    @property
    def _layout(self) -> tuple[Whole, Whole, Whole]:
        return self.layout.byte_of, self.layout.columns_of, self.layout.scaled_columns


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CodedStep:
    """One step: what units give at some parameters.

    Args:
        kernel: the model.
        weights: (width, outputs), of the columns.
        norm: the clip norm.
        reach: residuals are at most two to this power.
        fine: factors are at most two to this power.
    """

    kernel: CodedLinear
    weights: Floats
    norm: float
    reach: int
    fine: int

    @property
    def exponent(self) -> int:
        """A whole number of 1 stands for a residual of two to this power."""
        return self.reach + self.fine - WHOLE_BITS

    def of(self, chunk: CodedChunk) -> "CodeSums":
        """What the units of a chunk give, added up. Several threads may call this."""
        sums = CodeSums.none(self.kernel)
        for first, last in _runs(chunk.starts):
            self._add(chunk, first, last, sums)
        return sums

    def total(self) -> "CodedTotal":
        """To add up what chunks give."""
        return CodedTotal(self)

    def _residuals(self, codes: NDArray[np.uint8], scaled: NDArray[np.int32], labels: Floats) -> Floats:
        kernel, layout = self.kernel, self.kernel.layout
        found = np.empty((len(labels), kernel.outputs))
        slopes = self.weights[layout.scaled_columns] * 2.0**-FEATURE_BITS
        coded_loops.scores(codes, scaled, self._table, self.weights[0], slopes, found)
        if isinstance(kernel.label, BinaryLabel):
            coded_loops.logistic(found, labels)
        elif isinstance(kernel.label, ClassLabel):
            coded_loops.softmax(found, labels)
        else:
            low, high = kernel.label.min_value, kernel.label.max_value
            coded_loops.differences(found, (labels - low) / (high - low))
        if kernel.class_weights is not None:
            coded_loops.weigh(found, labels, np.array(kernel.class_weights))
        coded_loops.clamp(found, 2.0**self.reach)
        return found

    @functools.cached_property
    def _table(self) -> Floats:
        return self.kernel.layout.tables(self.weights)

    def _add(self, chunk: CodedChunk, first: int, last: int, sums: "CodeSums") -> None:
        kernel, begin, end = self.kernel, int(chunk.starts[first]), int(chunk.starts[last])
        added, codes, scaled = sums.fresh(), chunk.codes[begin:end], chunk.scaled[begin:end]
        coded_loops.add_units(
            self._residuals(codes, scaled, chunk.labels[begin:end]), codes, scaled, chunk.starts[first : last + 1] - begin,
            chunk.products, chunk.product_starts[first : last + 1], chunk.bounds[first:last],
            *kernel._layout, kernel.columns.matrix,
            self.norm * SAFETY, 2.0 ** (self.exponent - 1) * math.sqrt(kernel.outputs) * (1 + 2.0**-40),
            ERROR, LEAST, 2.0**self.fine, 2.0**-self.exponent,
            *added,
        )  # fmt: skip
        sums.fold(added)


class CodeSums:
    """Whole numbers added up by code, in two halves that hold more than 64 bits.

    Args:
        high, low: of the values of bytes, of scaled values, of the constant; the low halves are below 2**32 times what was
            folded in since sums were merged last.
    """

    def __init__(self, high: list[Whole], low: list[Whole]) -> None:
        self.high, self.low = high, low

    @classmethod
    def none(cls, kernel: CodedLinear) -> "CodeSums":
        """Nothing added up yet."""
        shapes = (
            (kernel.layout.bytes, CODES, kernel.outputs),
            (len(kernel.layout.scaled_columns), kernel.outputs),
            (kernel.outputs,),
        )
        return cls(*([np.zeros(shape, np.int64) for shape in shapes] for _ in range(2)))

    def fresh(self) -> list[Whole]:
        """Zeros of the same shapes, for sums that 64 bits hold."""
        return [np.zeros_like(part) for part in self.high]

    def fold(self, added: list[Whole]) -> None:
        """Add sums that 64 bits hold."""
        for high, low, own in zip(self.high, self.low, added, strict=True):
            high += own >> 32
            low += own & LOW_HALF

    def merge(self, other: "CodeSums") -> None:
        """Add other sums. The low halves are below 2**32 again, however many are merged."""
        for mine, theirs in ((self.high, other.high), (self.low, other.low)):
            for own, more in zip(mine, theirs, strict=True):
                own += more
        for high, low in zip(self.high, self.low, strict=True):
            high += low >> 32
            low &= LOW_HALF


class CodedTotal:
    """The running sum of a step."""

    def __init__(self, step: CodedStep) -> None:
        self._step, self._sums = step, CodeSums.none(step.kernel)

    def add(self, part: CodeSums) -> None:
        """Add what a chunk gives."""
        self._sums.merge(part)

    def exact(self) -> NDArray[Any]:
        """The sum by column, in whole numbers: (width, outputs) of Python's, in steps of 2**(exponent - 16)."""
        kernel, found = self._step.kernel, np.zeros((self._step.kernel.width, self._step.kernel.outputs), object)
        for bits, (codes, scaled, constant) in ((32, self._sums.high), (0, self._sums.low)):
            columns = kernel.layout.columns(codes).astype(object) << FEATURE_BITS
            columns[0] = constant.astype(object) << FEATURE_BITS
            columns[kernel.layout.scaled_columns] = scaled.astype(object)
            found = found + (columns << bits)
        return found

    def value(self) -> Floats:
        """The sum of the units' whitened vectors, rounded to float64 once: (size,)."""
        kernel = self._step.kernel
        whole = (kernel.columns.objects.T @ self.exact()).T.ravel()
        exponent = self._step.exponent - FEATURE_BITS - kernel.columns.exponent
        return np.array([math.ldexp(float(number), exponent) for number in whole], np.float64)


def _as_in_a_file(arrays: Iterable[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Copies that cannot be written to."""
    copies = tuple(array.copy() for array in arrays)
    for copy in copies:
        copy.flags.writeable = False
    return copies


def _runs(starts: Whole) -> list[tuple[int, int]]:
    """Whole units with at most MOST_ROWS rows together, or one unit. It changes no result."""
    found, first = [], 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + MOST_ROWS, side="right")) - 1
        last = max(last, first + 1)
        found.append((first, last))
        first = last
    return found
