"""What a client adds to the sum of a round: its own update, from its own rows, never longer than the norm.

In: clients with few rows, hostile and empty ones among them. Out: sums, compared in whole steps. Holds: nothing is left to
chance. Not covered: noise (`tests/training/test_gaussian_noise.py`) and the rounds around the sums (`test_rounds_of_a_plan.py`).
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Label, NumberLabel
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels import linear
from dp_pipelines.training.kernels.linear import LinearKernel

pytest.importorskip("numba")

from dp_pipelines.training.federated.local_updates import LocalUpdates

Floats = NDArray[np.float64]

WIDTH = 5
BINARY = BinaryLabel(column="y")
CLASSES = ClassLabel(column="y", classes=["a", "b", "c"])
NUMBER = NumberLabel(column="y", min_value=-2.0, max_value=6.0)
KERNELS: dict[str, dict[str, Any]] = {
    "averaging, binary": {"label": BINARY, "epochs": 2, "examples": 2, "rate": 0.5},
    "averaging, classes": {"label": CLASSES, "epochs": 1, "examples": 3, "rate": 0.3},
    "averaging, number": {"label": NUMBER, "epochs": 3, "examples": 1, "rate": 0.1},
    "gradients": {"label": BINARY, "epochs": 0},
    "network": {"label": BINARY, "hidden": (4,), "key": b"a", "epochs": 2, "examples": 2, "rate": 0.5},
    "network of classes": {"label": CLASSES, "hidden": (4, 3), "key": b"b", "epochs": 1, "examples": 4, "rate": 0.5},
    "gradients of a network": {"label": NUMBER, "hidden": (3,), "key": b"c", "epochs": 0},
}


def kernel(name: str) -> LocalUpdates:
    return LocalUpdates(width=WIDTH, **KERNELS[name])


def labels_of(label: Label, rows: int, draw: np.random.Generator) -> Floats:
    most = 3 if isinstance(label, ClassLabel) else 2
    return draw.integers(0, most, rows).astype(np.float64)


def clients(label: Label, sizes: list[int], seed: int) -> Chunk:
    draw = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = int(starts[-1])
    return Chunk(draw.normal(size=(rows, WIDTH)).astype(np.float32), labels_of(label, rows, draw), starts)


def alone(chunk: Chunk, client: int) -> Chunk:
    begin, end = int(chunk.starts[client]), int(chunk.starts[client + 1])
    return Chunk(chunk.features[begin:end].copy(), chunk.labels[begin:end].copy(), np.array([0, end - begin]))


def joined(chunks: list[Chunk]) -> Chunk:
    sizes = [int(size) for chunk in chunks for size in np.diff(chunk.starts)]
    return Chunk(
        np.concatenate([chunk.features for chunk in chunks]),
        np.concatenate([chunk.labels for chunk in chunks]),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )


def published(of: LocalUpdates, seed: int, size: float = 0.5) -> Floats:
    return of.initial() + size * np.random.default_rng(seed).normal(size=of.size)


def in_steps(total: Floats, norm: float) -> list[int]:
    """A sum in whole steps of its lattice: it must be whole."""
    steps = total / math.ldexp(1.0, math.frexp(norm)[1] - linear.CLIP_BITS - 1)
    assert (steps == np.rint(steps)).all()
    return [int(step) for step in steps]


HOSTILE = {
    "not a number": (np.full((2, WIDTH), np.nan), [1.0, 0.0]),
    "infinite": (np.full((1, WIDTH), np.inf), [0.0]),
    "a billion": (np.full((3, WIDTH), 1e9), [0.0, 0.0, 1.0]),
    "the largest float": (np.full((2, WIDTH), 3e38), [0.0, 0.0]),
    "many rows": (np.tile(np.linspace(-9, 9, WIDTH), (3000, 1)), [0.0] * 3000),
    "a label that is none": (np.ones((1, WIDTH)), [np.nan]),
    "a label far away": (np.ones((1, WIDTH)), [1e30]),
    "no rows": (np.zeros((0, WIDTH)), []),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_client_moves_the_integers_of_a_sum_by_at_most_the_norm_and_raises_nothing(
    name: str, hostile: str
) -> None:
    of, norm = kernel(name), 0.75
    rows, labels = HOSTILE[hostile]
    one = Chunk(rows.astype(np.float32), np.array(labels, np.float64), np.array([0, len(rows)]))
    others = clients(of.label, [1, 3, 0, 7], 1)
    for size in (0.0, 0.5, 1e6):
        at = published(of, 2, size)
        without = in_steps(of.clipped_sum(at, others, norm), norm)
        for together in (joined([others, one]), joined([one, others])):
            moved = [a - b for a, b in zip(in_steps(of.clipped_sum(at, together, norm), norm), without, strict=True)]
            step = math.ldexp(1.0, math.frexp(norm)[1] - linear.CLIP_BITS - 1)
            assert math.isqrt(sum(each * each for each in moved)) * step <= norm
            assert moved == in_steps(of.clipped_sum(at, one, norm), norm), "what it adds depends on nobody else"


@pytest.mark.parametrize("name", KERNELS)
@settings(deadline=None, max_examples=12)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=8), seed=st.integers(0, 2**32 - 1))
def test_a_sum_is_that_of_the_clients_one_by_one_to_the_last_bit(name: str, sizes: list[int], seed: int) -> None:
    of, chunk = kernel(name), clients(KERNELS[name]["label"], sizes, seed)
    at = published(of, seed)
    one_by_one = np.zeros(of.size)
    for client in range(chunk.units):
        one_by_one += of.clipped_sum(at, alone(chunk, client), 1.5)
    assert of.clipped_sum(at, chunk, 1.5).tobytes() == one_by_one.tobytes()


@pytest.mark.parametrize("name", KERNELS)
def test_which_clients_are_beside_one_and_in_which_order_changes_no_bit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, chunk = kernel(name), clients(KERNELS[name]["label"], [4, 1, 0, 6, 2, 33], 5)
    at, order = published(of, 6), [3, 0, 5, 2, 4, 1]
    whole = of.clipped_sum(at, chunk, 1.0)
    assert of.clipped_sum(at, joined([alone(chunk, client) for client in order]), 1.0).tobytes() == whole.tobytes()
    monkeypatch.setattr("dp_pipelines.training.federated.local_updates.UPDATES", 1)  # one client in memory at a time
    assert of.clipped_sum(at, chunk, 1.0).tobytes() == whole.tobytes()


@pytest.mark.parametrize("name", ["averaging, binary", "averaging, classes", "averaging, number"])
@pytest.mark.parametrize("rows", [1, 2, 5, 8])
def test_an_update_is_what_the_textbook_says_of_federated_averaging(name: str, rows: int) -> None:
    of, chunk = kernel(name), clients(KERNELS[name]["label"], [rows], rows)
    at = published(of, 9)
    gradients, own = LinearKernel(width=WIDTH, label=of.label), at.copy()
    for _ in range(of.epochs):
        for begin in range(0, rows, of.examples):
            features, labels = chunk.features[begin : begin + of.examples], chunk.labels[begin : begin + of.examples]
            part = Chunk(features, labels, np.array([0, len(labels)]))
            own -= of.rate / len(labels) * gradients.clipped_sum(own, part, 1e4)
    assert of.clipped_sum(at, chunk, 1e4) == pytest.approx(at - own, abs=1e-5)


@pytest.mark.parametrize("label", [BINARY, CLASSES, NUMBER])
def test_gradients_are_the_means_of_those_that_central_training_sums(label: Label) -> None:
    of = LocalUpdates(width=WIDTH, label=label)
    chunk = clients(label, [1, 4], 3)
    at = published(of, 4)
    central = LinearKernel(width=WIDTH, label=label)
    means = sum(central.clipped_sum(at, alone(chunk, each), 1e4) / size for each, size in enumerate((1, 4)))
    assert of.clipped_sum(at, chunk, 1e4) == pytest.approx(means, abs=1e-5)


@pytest.mark.parametrize("label", [BINARY, CLASSES, NUMBER])
def test_gradients_of_networks_are_those_of_the_kernel_of_networks(label: Label) -> None:
    from dp_pipelines.training.kernels.mlp import MLPKernel

    hidden = (4, 3)
    of = LocalUpdates(width=WIDTH, label=label, hidden=hidden, key=b"k")
    central = MLPKernel(width=WIDTH, label=label, hidden=hidden, key=b"k")
    assert of.size == central.size
    assert of.initial().tobytes() == central.initial().tobytes()
    chunk = clients(label, [1, 1, 1], 8)
    at = published(of, 7)
    assert of.clipped_sum(at, chunk, 1e3) == pytest.approx(central.clipped_sum(at, chunk, 1e3), abs=2e-3)


def test_a_long_update_becomes_as_long_as_the_norm_and_a_short_one_stays() -> None:
    of, chunk = kernel("averaging, binary"), clients(BINARY, [4], 1)
    at = published(of, 1)
    free = of.clipped_sum(at, chunk, 1e3)
    length = float(np.linalg.norm(free))
    assert np.linalg.norm(of.clipped_sum(at, chunk, length / 7)) == pytest.approx(length / 7, rel=1e-5)
    assert of.clipped_sum(at, chunk, length * 3) == pytest.approx(free, abs=1e-6)


def test_every_client_counts_the_same_however_many_rows_it_repeats() -> None:
    """Of a mean gradient, five copies of all rows change nothing beyond rounding."""
    of, chunk = LocalUpdates(width=WIDTH, label=BINARY), clients(BINARY, [4], 2)
    more = Chunk(np.tile(chunk.features, (5, 1)), np.tile(chunk.labels, 5), np.array([0, 20]))
    at = published(of, 1)
    assert of.clipped_sum(at, more, 10.0) == pytest.approx(of.clipped_sum(at, chunk, 10.0), abs=1e-9)


def test_rows_of_another_width_are_refused_before_a_loop_reads_on() -> None:
    of = kernel("gradients")
    with pytest.raises(ValueError, match="width"):
        of.clipped_sum(of.initial(), Chunk(np.ones((1, WIDTH - 1), np.float32), np.ones(1), np.array([0, 1])), 1.0)
