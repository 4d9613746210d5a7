"""A sum that nobody sees in parts, released with our noise: twenty clients, of whom three drop out.

In: nothing; the clients' updates are made up. Out: printed lines. Holds: an update is clipped and rounded towards zero on a
lattice, so that a client moves the opened sum by at most the clip norm; the exact sum is opened, and what is shown has noise.
Not covered: a real network. Run: make .venv-secure-sums/installed, then .venv/bin/python examples/secure_sums/sums.py
"""

import json
import pathlib
import subprocess
import tempfile
from fractions import Fraction

import numpy as np

from dp_pipelines.accounting.accountant import epsilon_of_rounds
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.noise.laws import RoundedGaussian
from dp_pipelines.noise.samplers import Sampler

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOWER = ROOT / ".venv-secure-sums" / "bin" / "python"
CLIENTS, NUMBERS, DROPPED = 20, 50, (3, 7, 19)
EPSILON, DELTA = 1.0, 1e-6
STEPS = 2**11
"""Lattice steps of the clip norm, which is 1."""


def on_lattice(updates: np.ndarray) -> np.ndarray:
    """Whole numbers whose L2 norm is at most `STEPS` for each client, whatever its update was."""
    updates = np.nan_to_num(updates, nan=0.0, posinf=0.0, neginf=0.0)
    largest = np.maximum(np.abs(updates).max(axis=1, keepdims=True), 1.0)  # squares of what is left cannot overflow
    norms = np.linalg.norm(updates / largest, axis=1, keepdims=True) * largest
    # A little less than the bound, so that no rounding of floats comes above it; towards zero, which only shortens.
    return np.trunc(updates / np.maximum(norms, 1.0) * (STEPS * (1 - 1e-6))).astype(np.int64)


def scale() -> Fraction:
    """The smallest noise, in 64ths of a step, by which one client's whole update is (EPSILON, DELTA)-private."""
    low, high = 64, 64 * 2**14
    while high - low > 1:
        middle = (low + high) // 2
        record = MechanismRecord(
            stage="round", name="update", kind="gaussian", scale=Fraction(middle, 64), l2_squared=STEPS**2, l0=NUMBERS
        )
        low, high = (low, middle) if epsilon_of_rounds([([record], 1)], DELTA) <= EPSILON else (middle, high)
    return Fraction(high, 64)


def opened(numbers: np.ndarray, dropped: tuple[int, ...] = DROPPED) -> np.ndarray:
    """The sum over the clients that stayed, by Flower's SecAgg+ in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        given, sums = pathlib.Path(folder, "numbers.npz"), pathlib.Path(folder, "sums.npz")
        np.savez(given, numbers=numbers)
        command = [FLOWER, pathlib.Path(__file__).with_name("secagg.py"), given, sums, *map(str, dropped)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        cost = json.loads(done.stdout.splitlines()[-1])
        print(
            f"a client sends {cost['bytes']:,.0f} bytes and computes {cost['seconds']:.2f} s for {numbers.shape[1]} numbers"
        )
        return np.load(sums)["sums"]


def main() -> None:
    """Print the released mean of the updates beside the noise."""
    made = np.random.default_rng(7)
    updates = made.normal(0.1, 0.1, (CLIENTS, NUMBERS))
    updates[5] = 1e9  # a client that sends what it likes counts as any other
    numbers = on_lattice(updates)
    sums, law = opened(numbers), RoundedGaussian(scale())
    stayed = np.delete(np.arange(CLIENTS), DROPPED)
    assert (sums == numbers[stayed].sum(axis=0)).all(), "SecAgg+ did not open the exact sum"
    released = sums + Sampler(law).draw(NUMBERS)
    # The divisor is the number of clients that were asked, which is public.
    print(f"the exact sum of {len(stayed)} of {CLIENTS} clients was opened to whoever adds the noise")
    print(
        f"released: mean update {released.mean() / STEPS / CLIENTS:+.4f}, noise {law.stddev / STEPS / CLIENTS:.4f} in each number"
    )
    print(f"(epsilon, delta) of one client: ({EPSILON}, {DELTA})")


if __name__ == "__main__":
    main()
