"""Replays of training: `trainer.train` itself, and the release of second moments, with and without one worst-case unit.

In: a frozen stage of sums of clipped vectors, the model. Out: for many replays, the information that all released
parameters give. Holds: samples, sums, noise, steps and kept states are those of a run. Not covered: what a kernel
does with other units (tests/training), and the statements of `fit` around the release of moments, which are repeated
here.
"""

# How it works: the model has as many parameters as there are replays. For each parameter there is one unit whose
# vector, of the full clip norm, lies along it. Each unit has its own coin in each step and its own noise, so each
# coordinate is a training run with one parameter and one unit, which is there or not. Noisy sums are computed back from
# the parameters that the loop shows, from public numbers only: a divisor other than the given one shows as too little or
# too much noise.
# There are also units whose vectors are zero, so that each step has some unit to sample.
#
# The length of the vectors that the model's own kernel lets through is measured on extreme units; vectors of this length
# are added.

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.kernels.clipped_vectors import COEFFICIENT_BITS, ClippedVectors
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Label, Steps, TrainModel
from dp_pipelines.training import trainer
from dp_pipelines.training.examples.coded import CodedChunk, Multiply
from dp_pipelines.training.examples.store import FEATURE_BITS, Chunk
from dp_pipelines.training.features import moments
from dp_pipelines.training.features.code_layout import CodeLayout
from dp_pipelines.training.features.encoder import layout_of
from dp_pipelines.training.gaussian_noise import NoisySum
from dp_pipelines.training.kept_draws import InMemory, Released
from dp_pipelines.training.kernels.of_task import kernel_of
from dp_pipelines.training.kernels.protocols import CodedKernel, Kernel
from dp_pipelines.training.libraries import compiles

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

ACROSS = 4096
"""Replays that are trained together; with more, rounding to the lattice would be a larger share of the noise."""

MOST_NUMBERS = 2**24
"""The most noisy sums in memory."""

OTHERS = 64
"""Units without a vector that a step samples on average: a step without any happens once in 10^27 steps."""

DIVISOR = Released(4096.0)
"""Replaces the released number of examples: any public number will do."""

EXTREME = 1e6
"""The factor by which the features of extreme units are too long."""

UNEVEN = 1000.0
"""The factor by which one direction of whitened features is longer than the others, or shorter."""

MANY = 1, 2, 64
"""Rows of coded extreme units: those of the longest are not multiplied with each other beforehand."""

REACHED = 1 - 2e-6
"""The least share of the norm that a worst unit's vector has: kernels clip to a little less than the norm."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """Replays that were trained together.

    Args:
        sums: (steps, replays), the noisy sums over the clip norm.
        drawn: (steps,), the standard deviation of the noise that is drawn for each, over the clip norm: a little above the
            multiplier.
        inside: in how many steps each replay's unit was sampled; without the unit None.
        sizes: how many units each step sampled.
        units: how many there were.
    """

    sums: Floats
    drawn: Floats
    inside: Places | None
    sizes: Places
    units: int


@dataclasses.dataclass(eq=False)
class _OneEach:
    """A kernel whose parameters belong to one unit each. It notes the parameters with which each step begins."""

    size: int
    vector: float
    others: int
    slack: float
    units_per_chunk: int
    seen: list[Floats] = dataclasses.field(default_factory=list)
    last: Floats | None = None
    inside: Places = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    sizes: list[int] = dataclasses.field(default_factory=list)

    def initial(self) -> Floats:
        self.inside = np.zeros(self.size, np.int64)
        return np.zeros(self.size)

    def clipped_sum(self, parameters: Floats, chunk: Chunk, clip_norm: float) -> Floats:
        if self.last is not parameters:
            self.last = parameters
            self.seen.append(parameters.copy())
            self.sizes.append(0)
        self.sizes[-1] += chunk.units
        places = chunk.labels.astype(np.int64) - self.others
        places = places[places >= 0]
        np.add.at(self.inside, places, 1)
        result = np.zeros(self.size)
        result[places] = self.vector * clip_norm
        return result


@dataclasses.dataclass(frozen=True)
class _Places:
    """Units that consist only of their place. Those without a vector are spread over the groups; all others are in the first."""

    units: int
    others: int = 0
    separation: int = 1

    def chunks(self, units_per_chunk: int) -> Iterator[Chunk]:
        for begin in range(0, self.units, units_per_chunk):
            yield self.take(np.arange(begin, min(self.units, begin + units_per_chunk)))

    def in_group(self, group: int) -> Places:
        places = np.arange(self.units, dtype=np.int64)
        members: Places = places[np.where(places < self.others, places % self.separation, 0) == group]
        return members

    def take(self, units: Places) -> Chunk:
        return Chunk(np.zeros((len(units), 1), np.float32), units.astype(np.float64), np.arange(len(units) + 1))


class KeptInMemory(InMemory):
    """A store in memory for the states on which later steps depend, which an audit can read."""

    def __init__(self) -> None:
        super().__init__()
        self._digests: list[bytes] = []

    def remember(self, name: str, content: bytes) -> None:
        self._digests.append(hashlib.sha256(content).digest())
        super().remember(name, content)

    @property
    def content(self) -> dict[str, bytes]:
        """Return everything that is stored for good, without the digests of memories.

        These begin with words that are drawn for nothing else.
        """
        return {name: self._without_digest(content) for name, content in self._kept.items()}

    def _without_digest(self, content: bytes) -> bytes:
        ends = (digest for digest in self._digests if content.endswith(digest))
        return content[: -len(next(ends, b"")) or None]


def trials(
    asked: Steps,
    multipliers: Sequence[Fraction],
    vector: float,
    kernel: "Kernel | None",
    replays: int,
    *,
    vectors: ClippedVectors,
    with_unit: bool,
) -> Iterator[Trial]:
    """Train models, some replays at a time, and yield each trial.

    Args:
        asked: the steps of the task.
        multipliers: of the noise of each step, as a run takes them from the plan.
        vector: the length of the unit's vector, over the clip norm.
        kernel: the task's own, whose slack and chunks are taken.
        replays: how many.
        vectors: the sums, as the plan pays for them.
        with_unit: whether each has its unit.
    """
    steps = dataclasses.replace(asked, learning_rate=asked.learning_rate or 1.0)
    clip_norm = steps.clip_norm or 1.0
    apart = vectors.separation or 1
    others = apart if steps.sampling_rate == 1 else math.ceil(OTHERS / steps.sampling_rate)
    across = max(64, min(ACROSS, MOST_NUMBERS // steps.steps))
    for begin in range(0, replays, across):
        each = _OneEach(
            size=min(across, replays - begin),
            vector=vector,
            others=others,
            slack=0.0 if kernel is None else kernel.slack,
            units_per_chunk=getattr(kernel, "units_per_chunk", trainer.UNITS_PER_CHUNK),
        )
        memory = KeptInMemory()
        units = others + (each.size if with_unit else 0)
        trainer.train(
            each,
            _Places(units, others, apart),
            steps,
            clip_norm=clip_norm,
            multiplier=multipliers,
            divisor=DIVISOR,
            draws=memory,
            name="replay",
            sums=vectors,
        )
        slack = trainer._slack(each)
        drawn = [
            NoisySum(size=each.size, norm=clip_norm, multiplier=of, slack=slack).stddev / clip_norm
            for of in multipliers
        ]
        last = trainer.TrainingState.from_bytes(memory.content[f"replay.step-{steps.steps}"])
        yield Trial(
            sums=_noisy_sums([*each.seen, last.parameters], steps, DIVISOR) / clip_norm,
            drawn=np.array(drawn),
            inside=each.inside if with_unit else None,
            sizes=np.array(each.sizes),
            units=units,
        )


def _noisy_sums(path: list[Floats], steps: Steps, divisor: float) -> Floats:
    """Compute the noisy sums that lead from parameters to parameters, as anyone who sees all parameters can."""
    if len(path) != steps.steps + 1:
        raise AssertionError("the loop took another number of steps than it was asked for")
    momentum, sums = np.zeros(len(path[0])), np.empty((steps.steps, len(path[0])))
    for step, (before, after) in enumerate(itertools.pairwise(path)):
        moved = (before - after) / (steps.learning_rate or 1.0)
        sums[step] = (moved - steps.momentum * momentum) * trainer.scale_of(Released(divisor), steps)
        momentum = moved
    return sums


def pattern(vectors: ClippedVectors) -> Floats:
    """Return 1 for the sums that the unit is in, else 0; float64 of shape (sums, 1)."""
    included: Floats = (np.arange(vectors.times) % (vectors.separation or 1) == 0).astype(np.float64)[:, None]
    return included


def drawn_anew(sums: Floats, vectors: ClippedVectors) -> Floats:
    """Remove from noisy sums (sums, replays) the part of earlier noise that each took back, as anyone who sees all sums can.

    The result is a weighted sum of the units' vectors, with noise that is drawn for each sum independently.
    """
    redrawn = sums.copy()
    for later, coefficient in enumerate(vectors.coefficients, 1):
        redrawn[later:] += sums[:-later] * (coefficient / 2**COEFFICIENT_BITS)
    return redrawn


def score(sums: Floats, multipliers: Floats, rate: float, shifts: Floats | float = 1.0) -> Floats:
    """Compute for each replay the log-likelihood ratio of its noisy sums (steps, replays) with the unit against without it.

    Args:
        sums: over the norm, with independent noise (`drawn_anew`).
        multipliers: of that noise.
        rate: with which a step takes the unit.
        shifts: how far the unit moves each sum, over the norm: (steps, 1).
    """
    mu = shifts / multipliers[:, None]
    loss = sums / multipliers[:, None] * mu - mu * mu / 2
    if rate < 1:
        loss = np.logaddexp(math.log1p(-rate), math.log(rate) + loss)
    result: Floats = loss.sum(axis=0)
    return result


def moments_trials(multiplier: Fraction, vector: float, replays: int, *, with_unit: bool) -> Iterator[Floats]:
    """Yield noisy sums of second moments over their norm, each coordinate for a different unit, released as in `fit`."""
    for begin in range(0, replays, ACROSS):
        size = min(ACROSS, replays - begin)
        noise = NoisySum(size=size, norm=1.0, multiplier=multiplier, slack=moments.SLACK)
        yield noise.release(np.full(size, vector if with_unit else 0.0))


def reach_of_moments(width: int) -> float:
    """Return the length of the longest vector that `moments` lets an extreme unit add, over the norm."""
    norms = [float(np.linalg.norm(moments.clipped_moments(_Rows(rows), 1.0))) for rows in _extreme_rows(width)]
    if compiles():
        norms += _coded_moments(width)
    return max(norms)


def _coded_moments(width: int) -> list[float]:
    """Return the lengths of the vectors of coded extreme units, over the norm."""
    layout = CodeLayout(hot=(width - 1,) * (width > 1), scaled=(False,) * (width > 1))
    norm = moments.norm(math.sqrt(1 + len(layout.hot)))
    return [float(np.linalg.norm(moments.clipped_moments(_CodedRows(layout, rows), 1.0))) / norm for rows in MANY]


@dataclasses.dataclass(frozen=True)
class _CodedRows:
    """One unit with equal rows."""

    layout: CodeLayout
    rows: int

    @property
    def width(self) -> int:
        return self.layout.width

    def chunks(self, units_per_chunk: int) -> Iterator[CodedChunk]:
        yield self.unit(0.0, lambda chunk: (chunk.products, chunk.bounds))

    def unit(self, label: float, multiply: Multiply) -> CodedChunk:
        codes = np.zeros((self.rows, self.layout.bytes), np.uint8)
        scaled = np.full((self.rows, len(self.layout.scaled_columns)), 2**FEATURE_BITS, np.int32)
        return CodedChunk.of(codes, scaled, np.full(self.rows, label), np.array([0, self.rows]), multiply)


@dataclasses.dataclass(frozen=True)
class _Rows:
    """One unit."""

    features: NDArray[np.float32]

    @property
    def width(self) -> int:
        return int(self.features.shape[1])

    def chunks(self, units_per_chunk: int) -> Iterator[Chunk]:
        yield _unit(self.features, 1.0)


def reach_of_kernel(task: TrainModel, kernel: Kernel) -> float:
    """Return the length of the longest vector that a model's kernel lets an extreme unit add, over the clip norm.

    Tries units with one row and with many, with ordinary features and with ones far beyond an encoder's range, and both
    ends of the labels, at three settings of the parameters.
    """
    clip_norm = task.steps.clip_norm or 1.0
    start = np.array(kernel.initial(), np.float64)
    wave = np.where(np.arange(len(start)) % 2, 1.0, -1.0)
    longest = 0.0
    for label in _labels(task.label):
        for kernel_of_unit, unit in _extreme_units(task, kernel, label):
            for parameters in (start, start + wave, start - EXTREME * wave):
                added = kernel_of_unit.clipped_sum(parameters, unit, clip_norm)
                longest = max(longest, float(np.linalg.norm(added)))
    return longest / clip_norm


def _extreme_units(task: TrainModel, kernel: Kernel, label: float) -> Iterator[tuple[Kernel, Any]]:
    """Yield extreme units with their kernels: one that reads codes whitens them evenly or unevenly."""
    if not isinstance(kernel, CodedKernel):
        yield from ((kernel, _unit(rows, label)) for rows in _extreme_rows(task.width))
        return
    even = np.eye(task.width)
    for matrix in (None, even + UNEVEN / task.width, even / UNEVEN + 1 / task.width):
        whitened = kernel.whitened(matrix)
        for rows in MANY:
            yield whitened, _CodedRows(layout_of(task.features, task.pairs), rows).unit(label, whitened.multiply)


def kernel_for(task: TrainModel) -> Kernel:
    """Return the kernel of a task, from public bytes.

    Raises:
        RequestError: it needs a library that is not installed.
    """
    return kernel_of(task, b"audit")


def _unit(rows: NDArray[np.float32], label: float) -> Chunk:
    return Chunk(rows, np.full(len(rows), label), np.array([0, len(rows)]))


def _extreme_rows(width: int) -> list[NDArray[np.float32]]:
    one = np.zeros((1, width), np.float32)
    one[0, 0] = 1
    rows = [one, np.ones((1, width), np.float32), np.ones((64, width), np.float32)]
    return [scale * each for each in rows for scale in (np.float32(1), np.float32(EXTREME))]


def _labels(label: Label) -> tuple[float, ...]:
    if isinstance(label, BinaryLabel):
        return 0.0, 1.0
    if isinstance(label, ClassLabel):
        return 0.0, float(len(label.classes) - 1)
    return label.min_value, label.max_value
