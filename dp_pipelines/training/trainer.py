"""The loop: noisy gradient steps with momentum, and the average of the last parameters.

In: a kernel, examples, how to step, the noise that the plan has accounted for, a store of draws. Out: parameters, and
the norms of the noisy gradients. Holds: each step is one release of the sum of clipped gradients over all units, or
over a fresh Poisson sample of them, with noise drawn for this sum only; it looks at nothing else in the data. The plan
fixes the number of steps and when the state is kept. A killed run continues from the last kept state: nobody saw what
it lost, and that is drawn again with new samples (docs/proofs/training.md, 5). Not covered: what the plan accounts for
(`planning.noise_levels.training_noise`), and where the state is kept.
"""

import dataclasses
import hashlib
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines import checks
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.noise.poisson_samples import PoissonSampler
from dp_pipelines.query.federate_model import Rounds
from dp_pipelines.query.train_model import Steps
from dp_pipelines.training import threads
from dp_pipelines.training.federated import correlated_noise
from dp_pipelines.training.federated.correlated_noise import NoiseSeries
from dp_pipelines.training.gaussian_noise import Begun, NoisySum
from dp_pipelines.training.kept_draws import Draws, Released
from dp_pipelines.training.kernels.exact_sums import MOST_UNITS, SLACK, Total
from dp_pipelines.training.kernels.penalty import ScorePenalty
from dp_pipelines.training.kernels.protocols import GroupedUnits, HelpingKernel, Kernel, Summing, Units

Floats = NDArray[np.float64]

UNITS_PER_CHUNK = 1024
"""How many units a kernel takes at a time, unless it says otherwise."""

CHECKPOINTS = 10
"""The most times that the state is kept."""

RADIUS = 2.0**40
"""Parameters are kept within this distance from zero, so no step can overflow, whatever the noise and the learning
rate."""


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """What training releases.

    Args:
        parameters: (size,), finite.
        path: public numbers of each step, by name: `gradient_norm`, of the noisy sum over the divisor.
    """

    parameters: Floats
    path: Mapping[str, tuple[float, ...]]


@dataclasses.dataclass(eq=False)
class TrainingState:
    """The state of training, all of it released.

    Args:
        parameters, momentum: (size,), after the last step.
        summed: (size,), the sum of the parameters that are averaged.
        norms: of the noisy gradients so far.
        averaged: how many parameters are in the sum; None: the file does not say.
        memory: the SHA-256 of the memory of noise with which the next step goes on; empty where it needs none.
    """

    parameters: Floats
    momentum: Floats
    summed: Floats
    norms: list[float]
    averaged: int | None = None
    memory: bytes = b""

    def to_bytes(self) -> bytes:
        """The state as consecutive arrays in NumPy's format.

        >>> state = TrainingState(np.ones(2), np.zeros(2), np.ones(2), [0.5], 1)
        >>> again = TrainingState.from_bytes(state.to_bytes())
        >>> again.norms, again.averaged
        ([0.5], 1)
        """
        file = io.BytesIO()
        arrays = [self.parameters, self.momentum, self.summed, np.array(self.norms, np.float64)]
        if self.averaged is not None:
            arrays.append(np.array([self.averaged], np.float64))
        for array in arrays:
            np.lib.format.write_array(file, array, allow_pickle=False)
        return file.getvalue() + self.memory

    @classmethod
    def from_bytes(cls, content: bytes) -> "TrainingState":
        """What `to_bytes` wrote."""
        file = io.BytesIO(content)
        parameters, momentum, summed, norms = (np.lib.format.read_array(file, allow_pickle=False) for _ in range(4))
        averaged = None  # as versions wrote it of which the job alone decided that
        if file.tell() < len(content):
            averaged = int(np.lib.format.read_array(file, allow_pickle=False)[0])
        return cls(parameters, momentum, summed, norms.tolist(), averaged, file.read())


def train(
    kernel: Kernel,
    examples: Units,
    steps: Steps,
    *,
    clip_norm: float,
    multiplier: Fraction | Sequence[Fraction],
    divisor: Released,
    draws: Draws,
    name: str,
    tell: Callable[[int], None] = lambda step: None,
    averaged: int | None = None,
    sums: ClippedVectors | None = None,
    noisy_sum: Callable[..., NoisySum] = NoisySum,
    sampler: Callable[[float], PoissonSampler] = PoissonSampler,
) -> Trained:
    """Fit a model.

    Args:
        kernel: the model.
        examples: the training units, fewer than 2**31.
        steps: how many, how large (without a rate: that of whitened features), over which share of units.
        clip_norm: of one unit's summed gradient.
        multiplier: standard deviation of the noise of one sum over `clip_norm`, as the plan accounts it; of each sum, where
            they differ.
        divisor: a released number, at least 1, that divides the sum of gradients: about the number of examples or
            units.
        draws: keeps the state.
        name: the name of the stage; states are kept as `name.step-40`.
        tell: is told the number of each finished step.
        averaged: how many of the last steps are averaged, if not `steps.averaged`.
        sums: as the plan pays for them: which of them take a unit, and how the noise of one counts in later ones. None: all take
            all units, and noise is independent.
        noisy_sum, sampler: make the objects that draw noise and samples; see `training.drawing`.

    Returns:
        the average of the parameters after the last steps.
    """
    each = [multiplier] if isinstance(multiplier, Fraction) else multiplier
    made = {
        of: noisy_sum(size=kernel.size, norm=clip_norm, multiplier=of, slack=_slack(kernel))
        for of in dict.fromkeys(each)
    }
    noise = [made[of] for of in each] * (steps.steps if len(each) == 1 else 1)
    every = sampler(steps.sampling_rate)
    return fit(kernel, examples, steps, noise, every, divisor, draws, name, tell, averaged, sums)


def default_rate(kernel: Kernel, reach: float) -> float:
    """The inverse of how far the mean loss of examples can bend in any direction (docs/proofs/training.md, 5).

    Args:
        kernel: the model.
        reach: a public bound on the mean square of examples in any direction of their features: 1 if they are whitened,
            otherwise the square of the largest norm.
    """
    penalty = getattr(kernel, "penalty", None)
    return 1 / (float(getattr(kernel, "curvature", 1.0)) * reach + (0.0 if penalty is None else penalty.l2))


def scale_of(divisor: Released, steps: Steps) -> float:
    """What sums of gradients are divided by: about how many examples are in one."""
    separation = steps.separation if isinstance(steps, Rounds) else None
    return max(1.0, checks.number(divisor, "divisor")) * steps.sampling_rate / (separation or 1)


def fit(
    kernel: Kernel,
    examples: Units,
    steps: Steps,
    noise: NoisySum | Sequence[NoisySum],
    sampler: PoissonSampler,
    divisor: Released,
    draws: Draws,
    name: str,
    tell: Callable[[int], None],
    averaged: int | None = None,
    sums: ClippedVectors | None = None,
) -> Trained:
    """The loop itself, see `train`. INTERNAL: tests hand it noise and samples whose words they know."""
    scale = scale_of(divisor, steps)
    rate = steps.learning_rate or default_rate(kernel, 1.0)
    penalty: ScorePenalty | None = getattr(kernel, "penalty", None)
    noises = [noise] * steps.steps if isinstance(noise, NoisySum) else noise
    if len(noises) != steps.steps:  # the plan pays for each of them once
        raise AssertionError("there is noise for another number of sums than the plan pays for")
    done, state = _kept(kernel, steps, draws, name)
    carry = _Carried.after(done, state, None if sums is None else NoiseSeries.of(sums), draws, name)
    separation = None if sums is None else sums.separation
    for step in range(done + 1, steps.steps + 1):
        own = noises[step - 1]
        group = None if separation is None else (step - 1) % separation
        begun = own.begin()
        exact = _sum(kernel, examples, state.parameters, own.norm, sampler, group, begun)
        gradient = carry.release(own, exact, begun) / scale
        state.momentum = steps.momentum * state.momentum + gradient
        if penalty is not None:
            state.momentum = state.momentum + penalty.gradient(state.parameters)
        state.parameters = _inside(state.parameters - rate * state.momentum)
        if step > steps.steps - (averaged or steps.averaged):
            state.summed, state.averaged = state.summed + state.parameters, (state.averaged or 0) + 1
        state.norms.append(_length(gradient))
        if step in kept_after(steps):
            state = carry.keep(step, state)
        tell(step)
    assert state.averaged
    return Trained(parameters=state.summed / state.averaged, path={"gradient_norm": tuple(state.norms)})


def kept_after(steps: Steps) -> range:
    """The steps after which the state is kept: every federated round, since its clients see what the one before has led to.

    >>> kept_after(Steps(steps=30))
    range(3, 31, 3)
    """
    return range(1, steps.steps + 1) if isinstance(steps, Rounds) else checkpoints(steps.steps)


def checkpoints(steps: int) -> range:
    """The steps after which the state is kept: every tenth of all, and the last.

    >>> list(checkpoints(25)), list(checkpoints(3))
    ([1, 4, 7, 10, 13, 16, 19, 22, 25], [1, 2, 3])
    """
    every = -(-steps // CHECKPOINTS)
    return range((steps - 1) % every + 1, steps + 1, every)


def _kept(kernel: Kernel, steps: Steps, draws: Draws, name: str) -> tuple[int, TrainingState]:
    """The last kept state, and after which step it was kept."""
    for step in reversed(kept_after(steps)):
        content = draws.get(f"{name}.step-{step}")
        if content is not None:
            state = TrainingState.from_bytes(content)
            if state.averaged is None:
                state.averaged = max(0, step - (steps.steps - steps.averaged))
            return step, state
    start = np.array(kernel.initial(), np.float64)
    return 0, TrainingState(start, np.zeros(kernel.size), np.zeros(kernel.size), [], 0)


@dataclasses.dataclass(eq=False)
class _Carried:
    """What is carried from step to step beside what is released: nothing, or the memory of noise."""

    series: NoiseSeries | None
    draws: Draws
    name: str
    memory: list[NDArray[np.int64]]

    @classmethod
    def after(cls, done: int, state: TrainingState, series: NoiseSeries | None, draws: Draws, name: str) -> "_Carried":
        """What a step goes on with, after the last one that was kept; what was remembered for no kept step is destroyed."""
        carried = cls(series, draws, name, [])
        if series is not None:
            if 0 < done < series.rounds:
                carried.recall(done, state)
            draws.forget(name, but=state.memory.hex())
        return carried

    def recall(self, done: int, state: TrainingState) -> None:
        """Take up the memory that a kept step names."""
        assert self.series is not None
        shape = min(done, len(self.series.coefficients)), len(state.parameters)
        self.memory = correlated_noise.recalled(self.draws, self.name, state.memory, shape)

    def release(self, noise: NoisySum, exact: Floats, begun: Begun | None) -> Floats:
        """The sum of a step with its noise."""
        if self.series is None:
            return noise.release(exact, begun)
        released, drawn = noise.release_in_series(exact, self.series.carried(self.memory), begun)
        self.memory = self.series.remembered(self.memory, drawn)
        return released

    def keep(self, step: int, state: TrainingState) -> TrainingState:
        """Keep a state, together with the memory that the next step needs. If two runs keep one, both continue from the first."""
        own = b""
        if self.series is not None and step < self.series.rounds:
            content = correlated_noise.to_bytes(self.memory)
            self.draws.remember(self.name, content)  # durable before the state that names it
            own = hashlib.sha256(content).digest()
        self.draws.keep(f"{self.name}.step-{step}", dataclasses.replace(state, memory=own).to_bytes())
        kept = self.draws.get(f"{self.name}.step-{step}")
        assert kept is not None
        first = TrainingState.from_bytes(kept)
        if self.series is not None:
            if first.memory != own:
                self.recall(step, first)
            self.draws.forget(self.name, but=first.memory.hex())
        return first


def _slack(kernel: Kernel) -> float:
    """How far the sum over all chunks may be from the exact one."""
    return kernel.slack * -(-MOST_UNITS // _units_per_chunk(kernel)) + SLACK


def _units_per_chunk(kernel: Kernel) -> int:
    return int(getattr(kernel, "units_per_chunk", UNITS_PER_CHUNK))


def _sum(
    kernel: Kernel,
    examples: Units,
    parameters: Floats,
    clip_norm: float,
    sampler: PoissonSampler,
    group: int | None = None,
    begun: Begun | None = None,
) -> Floats:
    """The sum of the clipped gradients of all units, of a group of them, or of a fresh sample: not yet released."""
    summing: Summing = _Floats(kernel, parameters, clip_norm, begun)
    if (step := getattr(kernel, "step", None)) is not None:
        summing = step(parameters, clip_norm)
    total, size = summing.total(), _units_per_chunk(kernel)
    many = None if getattr(kernel, "parallel", False) else 1
    for part in threads.in_order(summing.of, _chunks(examples, size, sampler, group), many):
        total.add(part)
    result: Floats = total.value()
    return result


@dataclasses.dataclass(frozen=True, eq=False)
class _Floats:
    """The sums of a kernel that gives float64 vectors."""

    kernel: Kernel
    parameters: Floats
    clip_norm: float
    begun: Begun | None

    def of(self, chunk: Any) -> Floats:
        if self.begun is not None and isinstance(self.kernel, HelpingKernel) and self.kernel.helps:
            return self.kernel.clipped_sum(self.parameters, chunk, self.clip_norm, beside=self.begun.draw_a_block)
        return self.kernel.clipped_sum(self.parameters, chunk, self.clip_norm)

    def total(self) -> Total:
        return Total(self.kernel.size)


def _chunks(examples: Units, size: int, sampler: PoissonSampler, group: int | None) -> Iterator[Any]:
    if group is not None:
        assert isinstance(examples, GroupedUnits)
        places = examples.in_group(group)
    elif sampler.rate == 1:
        yield from examples.chunks(size)
        return
    else:
        places = sampler.draw(examples.units)
    for begin in range(0, len(places), size):
        yield examples.take(places[begin : begin + size])


def _inside(parameters: Floats) -> Floats:
    """The parameters, or the nearest ones within RADIUS of zero."""
    length = _length(parameters)
    return parameters if length <= RADIUS else parameters * (RADIUS / length)


def _length(vector: Floats) -> float:
    """The L2 norm, without BLAS: its threads would go on waiting for work beside the kernel's, for half of the processor time."""
    return math.sqrt(np.einsum("i,i->", vector, vector))
