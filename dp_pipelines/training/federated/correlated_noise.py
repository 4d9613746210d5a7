"""Noise that is correlated over rounds: what earlier noise counts in a round, and the memory that this needs.

In: coefficients from the plan, the noise of earlier rounds in fine steps. Out: whole fine steps to take from what a round draws;
bytes of a memory. Holds: all of it is arithmetic of whole numbers that no machine does differently and that cannot overflow
(`NoiseSeries` proves it); bytes begin with 32 of their own, drawn anew, so that their digest tells nothing of the noise once they
are gone. Not covered: what the rounds cost (docs/proofs/correlated_noise.md), and where the memory lies (`kept_draws`).
"""

import dataclasses
import hashlib
import io
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.errors import DpError
from dp_pipelines.kernels.clipped_vectors import COEFFICIENT_BITS, ClippedVectors
from dp_pipelines.noise import correlation, entropy
from dp_pipelines.training.gaussian_noise import SCALE
from dp_pipelines.training.kept_draws import Draws

Integers = NDArray[np.int64]

LARGEST_DRAW = 2.0**28
"""No draw of a round has more fine steps."""

LARGEST = 2.0**62
"""No number on the way has more."""

SALT_WORDS = 4
"""Words at the beginning of a memory."""


class LostMemory(DpError):
    """The memory of noise is gone, or another one: no later round of the series can be drawn."""


@dataclasses.dataclass(frozen=True)
class NoiseSeries:
    """How the noise of the rounds before counts in that of a round.

    Args:
        coefficients: of the last round's noise first, in 2**-16.
        rounds: how many there are.

    Raises:
        AssertionError: with these coefficients noise could grow beyond 64 bits.

    >>> series = NoiseSeries((1 << 15,), 3)
    >>> series.carried([np.array([3, -3, 4])]).tolist()
    [2, -1, 2]
    """

    coefficients: tuple[int, ...]
    rounds: int

    def __post_init__(self) -> None:
        # n = C^-1 (drawn + rounding), rounding at most half a step: so |n| is at most the largest draw times the sum of the
        # magnitudes of the inverse. A sum of products is at most that times the sum of the coefficients.
        grown = (LARGEST_DRAW + 1) * math.fsum(np.abs(correlation.inverse(self.rounds, self.coefficients)).tolist())
        if not 2 * grown * (sum(self.coefficients) + (1 << COEFFICIENT_BITS)) < LARGEST:
            raise AssertionError("noise with these coefficients could grow too large")

    @classmethod
    def of(cls, vectors: ClippedVectors) -> "NoiseSeries | None":
        """That of sums as a plan pays for them; None where each draws its noise by itself."""
        return cls(vectors.coefficients, vectors.times) if vectors.coefficients else None

    def carried(self, memory: Sequence[Integers]) -> Integers | int:
        """What earlier noise counts in the next round, rounded to whole fine steps, halves upwards.

        Args:
            memory: the noise of the last rounds, the last one first.
        """
        if not memory:
            return 0
        total = np.full(len(memory[0]), 1 << (COEFFICIENT_BITS - 1), np.int64)
        for coefficient, noise in zip(self.coefficients, memory, strict=False):
            total += coefficient * noise
        total >>= COEFFICIENT_BITS  # rounds down, for negative numbers too
        return total

    def remembered(self, memory: Sequence[Integers], noise: Integers) -> list[Integers]:
        """The memory after a round: no more of it than later rounds need."""
        return [noise, *memory][: len(self.coefficients)]


def to_bytes(memory: Sequence[Integers]) -> bytes:
    """A memory as bytes, which no other memory has, not even one of the same noise."""
    file = io.BytesIO()
    file.write(entropy.salt(8 * SALT_WORDS))
    np.lib.format.write_array(file, np.stack(memory), allow_pickle=False)
    return file.getvalue()


def recalled(draws: Draws, name: str, digest: bytes, shape: tuple[int, int]) -> list[Integers]:
    """The memory that a kept round names.

    Args:
        draws: where it lies.
        name: of the stage.
        digest: of the memory, as the round was kept with it.
        shape: how many rounds it holds, of how many coordinates.

    Raises:
        LostMemory: it is gone, or is not that one.
    """
    content = draws.recall(name, digest.hex())
    if content is None or hashlib.sha256(content).digest() != digest:
        gone = "is gone" if content is None else "is not the one that its last round was kept with"
        raise LostMemory(
            f"the memory of noise of {name!r} {gone}: its rounds cannot go on, since their noise takes back some of that of "
            "earlier rounds; what was charged stays; put its file back where it lay, beside the ledger or (with a ledger on a "
            "server) in the state of the user who began the run, or give the run up with `dp-pipelines runs --abandon`"
        )
    file = io.BytesIO(content)
    file.seek(8 * SALT_WORDS)
    held: Integers = np.lib.format.read_array(file, allow_pickle=False)
    if held.shape != shape or held.dtype != np.int64 or int(np.abs(held).max()) > SCALE * 2**20:
        raise LostMemory(f"the memory of noise of {name!r} is of another size than its rounds")
    return list(held)
