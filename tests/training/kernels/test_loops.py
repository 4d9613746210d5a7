"""The compiled loops: what they compute is what a few lines of NumPy say, and each row's numbers are its own."""

import os
import pathlib
import shutil
import subprocess
import sys

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.query.train_model import ClassLabel
from dp_pipelines.training.kernels import compiled, loops, network
from dp_pipelines.training.kernels.loops import BLOCK
from dp_pipelines.training.kernels.mlp import MLPKernel
from dp_pipelines.training.kernels.passes import Desk

KERNEL = MLPKernel(width=6, hidden=(9, 5), label=ClassLabel(column="y", classes=["a", "b", "c"]), key=b"test")
AT = network.in_float32(network.uniform(KERNEL.size, b"parameters"))


def block(name: int) -> tuple[np.ndarray, np.ndarray]:
    made = np.random.default_rng(name)
    return made.normal(size=(BLOCK, 6)).astype(np.float32), made.integers(0, 3, BLOCK).astype(float)


def test_forward_and_back_give_the_rounded_inputs_and_the_derivatives_of_the_loss() -> None:
    desk, (rows, labels) = Desk(KERNEL.shapes, KERNEL.label), block(1)
    used = np.arange(BLOCK) % 7 != 0
    desk._pass(AT, rows, labels, used, desk._fine)
    layers, values, inputs = network.layers(KERNEL.shapes, AT.astype(float)), rows.astype(float), []
    for number, layer in enumerate(layers):
        inputs.append(np.hstack([values, np.ones((BLOCK, 1))]))
        values = inputs[-1] @ layer
        values = np.tanh(values) if number < 2 else values
    shares = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    derivative = (shares - (labels[:, None] == np.arange(3))) * used[:, None]
    expected = [derivative]
    for layer, after in zip(layers[:0:-1], inputs[:0:-1], strict=True):
        expected.insert(0, (expected[0] @ layer[:-1].T) * (1 - after[:, :-1] ** 2))
    stretch = 2.0 ** np.ceil(np.log2((inputs[0] ** 2).sum(axis=1)) / 2)
    np.testing.assert_allclose(desk._rounded[0].T * stretch[:, None], inputs[0], atol=1e-4)
    for found, exact in zip(desk._rounded[1:], inputs[1:], strict=True):
        np.testing.assert_allclose(found.T, exact, atol=1e-5)
        assert (found * 2.0**18 == np.rint(found * 2.0**18)).all()
    for found, exact in zip(desk._derivatives, expected, strict=True):
        np.testing.assert_allclose(found.T, exact, atol=1e-5)
    for squares, parts in ((desk._input_squares, desk._rounded), (desk._derivative_squares, desk._derivatives)):
        for found, part in zip(squares, parts, strict=True):
            np.testing.assert_allclose(found, (part.astype(float) ** 2).sum(axis=0), rtol=1e-5)


def test_tanh_is_right_flat_where_it_is_flat_and_none_of_what_is_none() -> None:
    numbers = np.concatenate(
        [np.linspace(-12, 12, 10 * BLOCK - 8), [np.nan, np.inf, -np.inf, 3e38, -3e38, 0, 1e-40, 8.1]]
    )
    slopes = numbers.astype(np.float32).reshape(10, BLOCK).copy()
    hidden = np.full((11, BLOCK), 7, np.float32)
    loops._bend(slopes, hidden)
    found, exact = hidden[:-1].reshape(-1), np.tanh(numbers.astype(np.float32).astype(float))
    np.testing.assert_allclose(found, exact, atol=3e-7)
    assert np.nanmax(np.abs(found)) == 1
    assert (slopes.reshape(-1)[np.abs(numbers) > 8] == 0).all()
    assert (hidden[-1] == 7).all()


@given(st.integers(0, 100), st.integers(0, BLOCK - 1), st.sampled_from([np.nan, np.inf, 1e20, 0.0]))
@settings(max_examples=30, deadline=None)
def test_what_stands_in_one_row_changes_no_bit_of_another(name: int, place: int, other: float) -> None:
    """Weighted derivatives and all, for a row that is no number, huge or empty in the place of an ordinary one."""
    found = []
    for value in (None, other):
        desk, (rows, labels) = Desk(KERNEL.shapes, KERNEL.label), block(name)
        if value is not None:
            rows[place] = value
        with np.errstate(all="ignore"):
            desk.add(1, AT, rows, labels, np.ones(BLOCK, np.bool_), 0.75, 1.0)
        rest = np.arange(BLOCK) != place
        found.append([part[:, rest].tobytes() for part in (*desk._rounded, *desk._derivatives)])
    assert found[0] == found[1]


def test_a_row_that_is_no_number_leaves_nothing_behind_for_the_next_block() -> None:
    rows, labels = block(3)
    totals = []
    for first in (np.zeros_like(rows), np.full_like(rows, np.nan)):
        desk = Desk(KERNEL.shapes, KERNEL.label)
        with np.errstate(all="ignore"):
            desk.add(1, AT, first, labels, np.ones(BLOCK, np.bool_), 0.75, 1.0)
            desk.clear()
            desk.add(1, AT, rows, labels, np.ones(BLOCK, np.bool_), 0.75, 1.0)
        totals.append(desk.vector(1.0).tobytes())
    assert totals[0] == totals[1]


def test_the_longest_row_is_found_and_one_that_is_no_number_is_longer_than_any() -> None:
    columns = np.random.default_rng(0).normal(size=(5, BLOCK)).astype(np.float32)
    exact = (columns.astype(float) ** 2).sum(axis=1).max()
    assert abs(loops._longest(columns) / exact - 1) < 1e-5
    for place in (0, 2, 4):
        bad = columns.copy()
        bad[place, 3] = np.nan
        assert loops._longest(bad) == np.inf


A_SUM = """
import numpy as np
from dp_pipelines.training.kernels import loops

made = np.ones((2, 3), np.float32)
print(loops._longest(made), sum(loops._longest.stats.cache_hits.values()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_half_a_file_of_what_was_compiled_before_stops_no_training_and_is_replaced(
    kind: str, tmp_path: pathlib.Path
) -> None:
    def summed() -> list[str]:
        found = subprocess.run(
            [sys.executable, "-c", A_SUM],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        return found.stdout.split()

    assert [summed(), summed()] == [["3.0", "0"], ["3.0", "1"]]
    for path in tmp_path.rglob(f"*.{kind}"):
        path.write_bytes(path.read_bytes()[:10])
    assert [summed(), summed()] == [["3.0", "0"], ["3.0", "1"]]


def test_a_cache_that_cannot_be_written_stops_no_training(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    program = compiled.compiled(loops._longest.py_func)
    shutil.rmtree(tmp_path)
    tmp_path.write_bytes(b"no folder")
    assert program(np.ones((2, 3), np.float32)) == 3
