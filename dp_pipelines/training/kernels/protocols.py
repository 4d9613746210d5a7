"""What the loop of training asks of a model, and of the examples that it trains on.

In: nothing. Out: protocols; `of_task` makes the kernels, `training.examples` the units. Holds: nothing. Not covered: whether a
kernel clips, which the kernels' own proofs say.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.training.examples.coded import CodedChunk, Singles

Floats = NDArray[np.float64]


class Kernel(Protocol):
    """A model as the loop sees it.

    A kernel may also have `curvature` (the loss of an example bends by at most this times its features' squared norm; the
    default learning rate follows from it), `penalty` (a `ScorePenalty`, whose gradient is added after the noise),
    `units_per_chunk`, `parallel` (if true, several threads work on chunks), and `step`, which is then called instead of
    `clipped_sum`, once for each step.
    """

    @property
    def size(self) -> int:
        """The number of parameters."""
        ...

    @property
    def slack(self) -> float:
        """How far `clipped_sum` of one chunk may be from the exact sum of clipped vectors, in L2, relative to the norm."""
        ...

    def initial(self) -> Floats:
        """The public parameters with which training begins."""
        ...

    def clipped_sum(self, parameters: Floats, chunk: Any, clip_norm: float) -> Floats:
        """The sum over a chunk's units of their summed gradients, each scaled down to the norm if it is longer."""
        ...


@runtime_checkable
class HelpingKernel(Protocol):
    """A kernel whose threads do something else when they have no more work, while others still have."""

    helps: bool

    def clipped_sum(
        self, parameters: Floats, chunk: Any, clip_norm: float, *, beside: Callable[[], bool] = ...
    ) -> Floats:
        """As of a `Kernel`; `beside` is called until it returns false, and no call is left behind."""
        ...


@runtime_checkable
class CodedKernel(Kernel, Protocol):
    """A kernel that reads coded examples (`training.examples.coded`), and whitens what it adds up instead of the rows."""

    def whitened(self, matrix: Floats | None) -> "CodedKernel":
        """The same model of rows times a matrix; None: of rows as they are."""
        ...

    def multiply(self, chunk: CodedChunk) -> tuple[Singles, Singles]:
        """The products of a unit's rows, for `CodedExamples.with_products`."""
        ...


class Summing(Protocol):
    """How a kernel adds up the clipped gradients of one step, in its own kind of sums."""

    def of(self, chunk: Any) -> Any:
        """What the units of a chunk give, added up. Several threads may call this."""
        ...

    def total(self) -> Any:
        """An object with `add`, for what chunks give, and `value`: float64 (size,)."""
        ...


class Units(Protocol):
    """Examples, as the loop sees them: `training.examples.store.Examples` or `training.examples.coded.CodedExamples`."""

    @property
    def units(self) -> int:
        """The number of units with an example."""
        ...

    def chunks(self, units_per_chunk: int) -> Iterator[Any]:
        """All units, this many at a time."""
        ...

    def take(self, units: NDArray[np.int64]) -> Any:
        """Some units, by ascending positions."""
        ...


@runtime_checkable
class GroupedUnits(Units, Protocol):
    """Examples whose units are divided into groups, one for each round of a cycle."""

    def in_group(self, group: int) -> NDArray[np.int64]:
        """The positions of a group's units, ascending."""
        ...
