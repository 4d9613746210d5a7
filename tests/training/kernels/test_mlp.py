"""Networks: clipped sums beside gradients by JAX, exactness, sensitivity, and independence of place, bit by bit."""

import collections
import dataclasses
import functools
import hashlib
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import DpError
from dp_pipelines.query.train_model import MLP, BinaryLabel, ClassLabel, Label, Number, NumberLabel, TrainModel
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels import grids, mlp, network
from dp_pipelines.training.kernels.loops import BLOCK
from dp_pipelines.training.kernels.mlp import MOST_PAIRED, SIZES, MLPKernel
from dp_pipelines.training.kernels.of_task import kernel_of
from dp_pipelines.training.kernels.passes import Desk
from dp_pipelines.training.kernels.unit_blocks import blocks
from tests.training.few import Few, Unit, adversarial, ordinary

WIDTH = 5
LABELS: dict[str, Label] = {
    "binary": BinaryLabel(column="y"),
    "classes": ClassLabel(column="y", classes=["a", "b", "c"]),
    "number": NumberLabel(column="y", min_value=-2, max_value=6),
}
KERNELS = {name: MLPKernel(width=WIDTH, hidden=(7, 4), label=label, key=b"test") for name, label in LABELS.items()}
# Of a small network all layers are on the fine grid; here the first two have more than 2**12 parameters.
LARGE = MLPKernel(width=WIDTH, hidden=(700, 6), label=LABELS["classes"], key=b"test")


def parameters(kernel: MLPKernel, name: bytes = b"parameters") -> np.ndarray:
    return network.uniform(kernel.size, name) * 0.7


def all_of(few: Few) -> Chunk:
    return few.take(np.arange(few.units))


def units_of(sizes: list[int], labels: int, name: int = 0) -> list[Unit]:
    made = np.random.default_rng(name)
    return [
        (made.normal(size=(size, WIDTH)).astype(np.float32), made.integers(0, labels, size).astype(float))
        for size in sizes
    ]


@functools.cache
def gradient_by_jax(name: str):
    """The gradient of a unit's loss in float64, of at most 300 rows."""
    jax = pytest.importorskip("jax")
    jnp, kernel = jax.numpy, KERNELS[name]

    def loss(flat, features, labels, there):
        values, begin = features, 0
        for number, (rows, columns) in enumerate(kernel.shapes):
            layer = flat[begin : begin + rows * columns].reshape(rows, columns)
            begin += rows * columns
            values = values @ layer[:-1] + layer[-1]
            values = jnp.tanh(values) if number + 1 < len(kernel.shapes) else values
        if name == "number":
            return jnp.sum(there * (values[:, 0] - (labels + 2) / 8) ** 2) / 2
        if name == "classes":
            chosen = jnp.take_along_axis(jax.nn.log_softmax(values), labels.astype(int)[:, None], axis=1)
            return -jnp.sum(there * chosen[:, 0])
        return jnp.sum(there * (jax.nn.softplus(values[:, 0]) - labels * values[:, 0]))

    return jax.jit(jax.grad(loss))


def by_jax(name: str, at: np.ndarray, chunk: Chunk, clip_norm: float) -> np.ndarray:
    """The same sum from whole gradients in float64: one backward pass and one explicit clip for each unit."""
    gradient = gradient_by_jax(name)
    import jax

    total = np.zeros(len(at))
    with jax.enable_x64(True):
        for begin, end in zip(chunk.starts, chunk.starts[1:], strict=False):
            rows, labels, there = np.zeros((300, WIDTH)), np.zeros(300), np.arange(300) < end - begin
            rows[there], labels[there] = chunk.features[begin:end], chunk.labels[begin:end]
            one = np.asarray(gradient(at, rows, labels, there))
            total += one * min(1, clip_norm * (1 - 1e-6) / np.linalg.norm(one))
    return total


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("clip_norm", [0.05, 1.7, 30.0])
def test_the_sum_is_that_of_gradients_by_jax_clipped_one_by_one(name: str, clip_norm: float) -> None:
    kernel = KERNELS[name]
    chunk = all_of(Few(units_of([1] * 40 + [2, 3, 5, 8, 9, 33, 64, 65, 300], 3 if name == "classes" else 2), WIDTH))
    expected = by_jax(name, parameters(kernel), chunk, clip_norm)
    found = kernel.clipped_sum(parameters(kernel), chunk, clip_norm)
    assert np.linalg.norm(found - expected) < 1e-5 * clip_norm * chunk.units
    if clip_norm < 1:
        other = by_jax(name, parameters(kernel), chunk, clip_norm * 1.001)
        assert np.linalg.norm(found - other) > 1e-4 * clip_norm, "a clip norm 0.1 % larger would pass too"


def test_the_features_own_size_is_not_lost() -> None:
    name, kernel = "binary", KERNELS["binary"]
    for factor in (1e-6, 1e3, 1e6):
        units = [(features * np.float32(factor), labels) for features, labels in units_of([1, 1, 1, 4], 2)]
        expected = by_jax(name, parameters(kernel), all_of(Few(units, WIDTH)), 1.0)
        found = kernel.clipped_sum(parameters(kernel), all_of(Few(units, WIDTH)), 1.0)
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_the_sum_of_no_units_is_zero() -> None:
    kernel = KERNELS["binary"]
    none = Chunk(np.zeros((0, WIDTH), np.float32), np.zeros(0), np.zeros(1, np.int64))
    assert not kernel.clipped_sum(parameters(kernel), none, 1.0).any()


@given(st.permutations(range(60)), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_the_order_of_units_changes_no_bit(order: list[int], name: int) -> None:
    kernel, few = KERNELS["classes"], Few(ordinary(60, WIDTH, np.random.default_rng(name), rows=9, labels=3), WIDTH)
    found = kernel.clipped_sum(parameters(kernel), few.take(np.array(order)), 0.3)
    assert found.tobytes() == kernel.clipped_sum(parameters(kernel), all_of(few), 0.3).tobytes()


def test_what_threads_do_beside_is_done_to_its_end_and_changes_no_bit() -> None:
    few = Few(units_of([1] * (3 * BLOCK), 3), WIDTH)
    kernel = MLPKernel(width=WIDTH, hidden=(7, 4), label=LABELS["classes"], key=b"test", threads=2)
    left, done = collections.deque(range(100)), []

    def beside() -> bool:
        try:
            one = left.popleft()
        except IndexError:
            return False
        time.sleep(0.001)
        done.append(one)
        return True

    with_work = kernel.clipped_sum(parameters(kernel), all_of(few), 1.0, beside=beside)
    assert sorted(done) == list(range(100))
    assert with_work.tobytes() == kernel.clipped_sum(parameters(kernel), all_of(few), 1.0).tobytes()


def test_after_a_sum_that_was_broken_off_its_threads_are_at_rest_and_its_kernel_adds_no_more() -> None:
    few = Few(units_of([1] * (3 * BLOCK), 3), WIDTH)
    kernel = MLPKernel(width=WIDTH, hidden=(7, 4), label=LABELS["classes"], key=b"test", threads=2)
    kernel.check_places()
    main, busy = threading.current_thread(), threading.Event()
    done = []

    def beside() -> bool:
        if threading.current_thread() is main:
            assert busy.wait(60)
            raise OSError("no more words")
        busy.set()
        time.sleep(0.2)
        done.append(True)
        return False

    with pytest.raises(OSError, match="words"):
        kernel.clipped_sum(parameters(kernel), all_of(few), 1.0, beside=beside)
    assert done == [True], "nobody is still at work"
    with pytest.raises(AssertionError, match="not come to its end"):
        kernel.clipped_sum(parameters(kernel), all_of(few), 1.0)


def test_threads_and_chunks_change_no_bit() -> None:
    sizes = [1] * 700 + [2, 7, 64, 65, 513] * 3 + [4] * 100
    few = Few(units_of(sizes, 2), WIDTH)
    whole = KERNELS["binary"].clipped_sum(parameters(KERNELS["binary"]), all_of(few), 0.3)
    for threads in (1, 3):
        kernel = MLPKernel(width=WIDTH, hidden=(7, 4), label=LABELS["binary"], key=b"other", threads=threads)
        assert kernel.clipped_sum(parameters(kernel), all_of(few), 0.3).tobytes() == whole.tobytes()
        parts = [kernel.clipped_sum(parameters(kernel), part, 0.3) for part in few.chunks(97)]
        assert sum(parts).tobytes() == whole.tobytes()


def exact_square(vector: np.ndarray) -> Fraction:
    parts, powers = np.frexp(vector[vector != 0])
    least = int(powers.min(initial=0))
    whole = zip((parts * 2.0**53).astype(np.int64).tolist(), (powers - least).tolist(), strict=True)
    return sum(part * part << 2 * power for part, power in whole) * Fraction(4) ** (least - 53)


@pytest.mark.parametrize("name", [*LABELS, "large"])
@given(data=st.data(), clip_norm=st.sampled_from([1e-3, 0.7, 1.0, 40.0]), wild=st.booleans())
@settings(max_examples=40, deadline=None)
def test_without_a_unit_the_sum_is_less_by_that_unit_alone_and_never_by_more_than_the_norm(
    name: str, data: st.DataObject, clip_norm: float, wild: bool
) -> None:
    kernel = LARGE if name == "large" else KERNELS[name]
    at = parameters(kernel) * (1e9 if wild else 1)
    few = Few(data.draw(adversarial(WIDTH, [0.0, 1.0])), WIDTH)
    place = data.draw(st.integers(0, few.units - 1))
    whole = kernel.clipped_sum(at, all_of(few), clip_norm)
    rest = kernel.clipped_sum(at, all_of(few.without(place)), clip_norm)
    alone = kernel.clipped_sum(at, few.take(np.array([place])), clip_norm)
    assert np.isfinite(whole).all()
    assert (rest + alone).tobytes() == whole.tobytes()
    assert exact_square(alone) <= Fraction(clip_norm) ** 2


def rounded_as(change: Callable[[grids.Grid], grids.Grid]) -> MLPKernel:
    """The large network, its units of one row rounded otherwise."""
    kernel = MLPKernel(width=WIDTH, hidden=(700, 6), label=LABELS["classes"], key=b"test", threads=1)
    for desk in kernel._desks:
        desk._coarse = change(desk._coarse)
    return kernel


def test_coarse_rounding_is_right_on_average_and_rounding_to_the_nearest_would_lose_what_is_small() -> None:
    fine, coarse = rounded_as(lambda grid: grids.fine(LARGE.shapes)), rounded_as(lambda grid: grid)
    chunks = [all_of(Few(units_of([1] * 2000, seed), WIDTH)) for seed in range(3, 9)]

    def part_found(clip_norm: float) -> tuple[float, float]:
        """How much of the sum on the fine grid there is in the coarse one, and what else: means over chunks."""
        found = []
        for chunk in chunks:
            exact, rounded = (each.clipped_sum(parameters(each) / 3, chunk, clip_norm) for each in (fine, coarse))
            along = float(rounded @ exact / (exact @ exact))
            found.append((along, float(np.linalg.norm(rounded - along * exact) / np.linalg.norm(exact))))
        along, rest = np.mean(found, axis=0).tolist()
        return along, rest

    # With the largest clip a chunk has .2 too much or too little, as the last digits of a processor's products fall.
    for clip_norm, near, beside in ((0.03, 2e-3, 0.01), (1.0, 2e-3, 0.01), (3000.0, 0.2, 1.5)):
        along, rest = part_found(clip_norm)
        assert abs(along - 1) < near
        assert rest < beside
    for desk in coarse._desks:
        desk._spread = 0.0
    along, rest = part_found(3000.0)
    assert abs(along - 1) > 0.3


def test_float32_gives_the_bits_of_float64_where_it_is_taken_and_would_not_where_it_is_not() -> None:
    wide = rounded_as(lambda grid: dataclasses.replace(grid, singles=(False,) * 3))
    narrow = rounded_as(lambda grid: grid)
    at = parameters(narrow) / 3
    chunk = all_of(Few(units_of([1] * 1024, 3), WIDTH))

    def sums(clip_norm: float) -> tuple[bytes, bytes]:
        return narrow.clipped_sum(at, chunk, clip_norm).tobytes(), wide.clipped_sum(at, chunk, clip_norm).tobytes()

    def held() -> list[bool]:
        return narrow._desks[0]._held.tolist()

    one, other = sums(1.0)
    assert one == other
    assert held() == [True, True, False], "the comparison never saw float32"
    # Gradients that are long in one coordinate alone: sums that float32 cannot hold.
    chunk.features[:, 1:] = 0
    at[: 6 * 700] = 0
    at[6 * 700 : 6 * 700 + 701 * 6].reshape(701, 6)[:] *= 100 * (np.arange(701) == 0)[:, None]
    one, other = sums(1e-3)
    assert one == other
    assert not all(held()[:2]), "the comparison never saw sums that float32 does not hold"
    for desk in narrow._desks:
        desk._coarse.rooms[:2] = np.inf
    one, other = sums(1e-3)
    assert one != other


def test_a_weight_that_is_too_large_makes_no_unit_longer_than_the_clip_norm() -> None:
    kernel = rounded_as(lambda grid: grid)
    at, few = parameters(kernel) / 3, Few(units_of([1] * 10, 3), WIDTH)
    for aim in (1.0, 1.01, 3.0):
        for desk in kernel._desks:
            desk._aim = aim
        for place in range(few.units):
            alone = kernel.clipped_sum(at, few.take(np.array([place])), 0.03)
            assert Fraction(0.02) ** 2 < exact_square(alone) <= Fraction(0.03) ** 2


def test_a_larger_norm_than_the_clip_norm_would_be_seen() -> None:
    kernel = KERNELS["binary"]
    alone = kernel.clipped_sum(parameters(kernel), all_of(Few(units_of([5], 2), WIDTH)), 1e-3)
    assert exact_square(alone) > Fraction(1e-3 * (1 - 1e-5)) ** 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("rows", [1, 6, 200])
def test_a_unit_with_a_number_that_is_none_adds_nothing_and_changes_no_bit(bad: float, rows: int) -> None:
    kernel = KERNELS["number"]
    at = parameters(kernel) * (10 if bad == 3e38 else 1)
    units = units_of([1, 3, 1, rows, 2, 100], 2)
    units[3][0][rows // 2, 1] = bad
    units[3][0][rows // 2, 2] = -bad
    if bad == 3e38:
        # Finite, but its first layer adds up to infinity less infinity, or to a gradient that is clipped.
        units[3][0][rows // 2] = bad
    few = Few(units, WIDTH)
    found = kernel.clipped_sum(at, all_of(few), 1.0)
    alone = kernel.clipped_sum(at, few.take(np.array([3])), 1.0)
    if bad != 3e38:
        assert not alone.any()
    assert np.linalg.norm(alone) <= 1
    assert (kernel.clipped_sum(at, all_of(few.without(3)), 1.0) + alone).tobytes() == found.tobytes()


@pytest.mark.parametrize("bad", [np.nan, -1.0, 3.0, 0.5])
def test_a_label_that_is_no_class_adds_nothing(bad: float) -> None:
    kernel, units = KERNELS["classes"], units_of([1, 2, 1], 3)
    units[1][1][0] = bad
    few = Few(units, WIDTH)
    assert not kernel.clipped_sum(parameters(kernel), few.take(np.array([1])), 1.0).any()


def test_a_unit_a_million_times_larger_adds_the_clip_norm() -> None:
    kernel, units = KERNELS["number"], units_of([1, 4], 2)
    for place in (0, 1):
        large = [(units[place][0] * np.float32(1e6), units[place][1] * 1e6)]
        alone = kernel.clipped_sum(parameters(kernel), all_of(Few(large, WIDTH)), 2.5)
        assert 2.5 * (1 - 1e-5) < np.linalg.norm(alone) <= 2.5


def test_rows_that_cancel_add_what_is_left_of_them() -> None:
    name, kernel = "number", KERNELS["number"]
    rows = np.ones((2, WIDTH), np.float32)
    at = parameters(kernel)
    score = (kernel.scores(at, rows)[0] + 2) / 8
    labels = np.array([score + 0.5, score - 0.5 + 1e-3]) * 8 - 2
    chunk = Chunk(rows, labels, np.array([0, 2]))
    np.testing.assert_allclose(kernel.clipped_sum(at, chunk, 1.0), by_jax(name, at, chunk, 1.0), atol=1e-5)


def test_parameters_that_are_none_give_zero() -> None:
    kernel = KERNELS["binary"]
    chunk = all_of(Few(units_of([1, 3, 100], 2), WIDTH))
    for bad in (np.nan, np.inf, 1e300):
        assert np.isfinite(kernel.clipped_sum(np.full(kernel.size, bad), chunk, 1.0)).all()


def test_a_chunk_that_float64_would_round_is_refused() -> None:
    many = Few(units_of([1] * (MLPKernel.units_per_chunk + 1), 2), WIDTH)
    with pytest.raises(ValueError, match="exactly"):
        KERNELS["binary"].clipped_sum(parameters(KERNELS["binary"]), all_of(many), 1.0)


@pytest.mark.parametrize("width", [WIDTH - 1, WIDTH + 1])
def test_rows_of_another_width_are_refused_where_compiled_loops_would_read_on_in_other_units(width: int) -> None:
    chunk = Chunk(np.ones((3, width), np.float32), np.ones(3), np.array([0, 1, 3]))
    with pytest.raises(ValueError, match="width"):
        KERNELS["binary"].clipped_sum(parameters(KERNELS["binary"]), chunk, 1.0)


class DependsOnPlace(Desk):
    """A machine on which some rows of a product meet other instructions, each others."""

    others: slice

    def _pass(self, *arguments):
        super()._pass(*arguments)
        derivative = self._derivatives[1][:, self.others]
        derivative *= (1 + 2.0**-20 * np.arange(1, derivative.shape[1] + 1)).astype(np.float32)


def with_other_places(others: slice) -> MLPKernel:
    """A kernel on such a machine."""
    kernel = MLPKernel(width=WIDTH, hidden=(7, 4), label=LABELS["binary"], key=b"test")
    for number in range(len(kernel._desks)):
        kernel._desks[number] = DependsOnPlace(kernel.shapes, kernel.label)
        kernel._desks[number].others = others
    return kernel


def test_this_machine_has_places_at_which_it_computes_the_same() -> None:
    MLPKernel(width=64, hidden=(256, 64), label=LABELS["classes"], key=b"test").check_places()


def test_places_at_which_a_machine_computes_otherwise_are_left_empty() -> None:
    few = Few(units_of([1] * 700 + [2, 7, 64] * 9, 2), WIDTH)
    at, whole = (
        parameters(KERNELS["binary"]),
        KERNELS["binary"].clipped_sum(parameters(KERNELS["binary"]), all_of(few), 0.3),
    )
    kernel = with_other_places(slice(-5, None))
    assert kernel.clipped_sum(at, all_of(few), 0.3).tobytes() == whole.tobytes()
    assert not kernel._places[1][-5:].any()
    assert kernel._places[64].tolist() == [True] * 3 + [False]
    for size in SIZES:
        kernel._places[size][:] = True
    assert kernel.clipped_sum(at, all_of(few), 0.3).tobytes() != whole.tobytes(), "the places made no difference"


def test_a_machine_on_which_each_unit_meets_another_place_is_refused() -> None:
    kernel = with_other_places(slice(None))
    with pytest.raises(DpError, match="depend on the place"):
        kernel.clipped_sum(parameters(kernel), all_of(Few(units_of([1], 2), WIDTH)), 1.0)


def test_whether_a_machine_can_train_a_network_is_told_before_a_unit_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    features = {"x": Number(column="x", min_value=0, max_value=1, bins=4)}
    task = TrainModel(privacy_unit="who", label=LABELS["binary"], features=features, model=MLP(hidden=(7, 4)))
    assert kernel_of(task, b"test").size == task.size
    monkeypatch.setattr(DependsOnPlace, "others", slice(None), raising=False)
    monkeypatch.setattr(mlp, "Desk", DependsOnPlace)
    with pytest.raises(DpError, match="depend on the place"):
        kernel_of(task, b"test")


COMPILED_WITHOUT_UNITS = """
import numpy as np
from dp_pipelines.query.train_model import BinaryLabel
from dp_pipelines.training.kernels import loops
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels.mlp import MLPKernel

programs = [loops.forward_and_back, loops.weigh, loops.add_products]
kernel = MLPKernel(width=2, hidden=(3,), label=BinaryLabel(column="y"), key=b"key", threads=1)
kernel.check_places()
print(*(len(program.signatures) for program in programs))
rows, labels = np.ones((80, 2), np.float32), np.ones(80)
rows.flags.writeable = labels.flags.writeable = False
kernel.clipped_sum(kernel.initial(), Chunk(rows, labels, np.array([0, 1, 4, 80])), 1.0)
print(*(len(program.signatures) for program in programs))
"""


def test_all_is_compiled_before_a_unit_comes_and_nothing_again_for_one() -> None:
    found = subprocess.run(
        [sys.executable, "-c", COMPILED_WITHOUT_UNITS], capture_output=True, text=True, check=True, timeout=300
    )
    assert found.stdout.splitlines() == ["1 1 1"] * 2


AN_OVERFLOW = """
import numpy as np
from dp_pipelines.query.train_model import BinaryLabel
from dp_pipelines.training.kernels import passes

desk = passes.Desk([(2, 1), (2, 1)], BinaryLabel(column="y"))
rows, labels = np.full((passes.BLOCK, 1), -3, np.float32), np.ones(passes.BLOCK)
at = np.array([1, 0, 1000, 0], np.float32)
with np.errstate(all="ignore"):
    desk.add(1, at, rows, labels, np.ones(passes.BLOCK, np.bool_), 0.75, 1.0)
print(desk.vector(1.0).tobytes().hex())
"""


def test_a_row_decides_no_error_where_numba_is_told_not_to_compile_and_no_bit_differs() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", AN_OVERFLOW],
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for disabled in ("0", "1")
    ]
    assert found[0] == found[1] != ""


class DependsOnPlaceAtTimes(Desk):
    """A machine on which the places at both ends meet other roundings, which give other bits for half of all rows."""

    def _pass(self, *arguments):
        super()._pass(*arguments)
        derivative = self._derivatives[1]
        changed = (derivative[0].view(np.uint32) & 1 == 1) & (
            np.abs(np.arange(BLOCK) - (BLOCK - 1) / 2) > BLOCK / 2 - 8
        )
        derivative[:, changed] *= np.float32(1 + 2.0**-20)


@pytest.mark.parametrize("key", [b"a", b"b", b"c", b"d", b"e", b"f"])
def test_places_are_left_empty_too_that_give_other_bits_for_some_units_alone(key: bytes) -> None:
    kernel = MLPKernel(width=WIDTH, hidden=(7, 4), label=LABELS["binary"], key=key, threads=1)
    kernel._desks[0] = DependsOnPlaceAtTimes(kernel.shapes, kernel.label)
    kernel.check_places()
    assert np.flatnonzero(~kernel._places[1]).tolist() == [*range(8), *range(BLOCK - 8, BLOCK)]


ON_AVX2_ALONE = """
import numpy as np
from dp_pipelines.query.train_model import BinaryLabel
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels.mlp import MLPKernel

made = np.random.default_rng(0)
rows, labels = made.normal(size=(512, 700)).astype(np.float32) / 26, made.integers(0, 2, 512).astype(float)
for key in range(5):
    kernel = MLPKernel(width=700, hidden=(12,), label=BinaryLabel(column="y"), key=b"k%d" % key, threads=1)
    at = made.normal(size=kernel.size)
    def of(begin, end):
        return kernel.clipped_sum(at, Chunk(rows[begin:end], labels[begin:end], np.arange(end - begin + 1)), 1.0)
    print("alike" if (of(0, 1) + of(1, 512)).tobytes() == of(0, 512).tobytes() else "otherwise")
"""


@pytest.mark.slow
def test_on_processors_with_avx2_alone_no_unit_changes_what_others_add() -> None:
    processor = pathlib.Path("/proc/cpuinfo")
    if not processor.exists() or " avx2 " not in processor.read_text():
        pytest.skip("this processor has no AVX2")
    # Its products differ at the same number of places from both ends; one unit in two shows it.
    found = subprocess.run(
        [sys.executable, "-c", ON_AVX2_ALONE],
        env={**os.environ, "OPENBLAS_CORETYPE": "Haswell"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert found.stdout.split() == ["alike"] * 5


def test_first_parameters_are_those_of_the_key_on_every_machine() -> None:
    first = [MLPKernel(width=3, hidden=(4,), label=LABELS["binary"], key=key).initial() for key in (b"a", b"b")]
    assert hashlib.sha256(first[0].astype("<f8").tobytes()).hexdigest()[:16] == "3049c0f741103d8f"
    assert (first[0] != first[1]).any()
    assert not first[0][16:].any(), "the last layer begins at zero"
    assert np.abs(first[0][:12]).max() <= 1
    assert not first[0][12:16].any()


def test_a_kernel_has_the_parameters_that_the_plan_counts() -> None:
    for label in LABELS.values():
        kernel = MLPKernel(width=9, hidden=(8, 3), label=label, key=b"")
        assert kernel.size == MLP(hidden=(8, 3)).size(9, label.outputs) == len(kernel.initial())


@pytest.mark.parametrize(("name", "shape"), [("binary", (3,)), ("classes", (3, 3)), ("number", (3,))])
def test_scores_are_logits_or_values_in_the_range_of_the_label(name: str, shape: tuple[int, ...]) -> None:
    kernel = KERNELS[name]
    rows = np.ones((3, WIDTH), np.float32)
    assert kernel.scores(parameters(kernel), rows).shape == shape
    assert kernel.scores(parameters(kernel), rows[:0]).shape == (0, *shape[1:])
    assert (kernel.scores(kernel.initial(), rows) == (-2 if name == "number" else 0)).all()


@given(st.lists(st.integers(1, 80), max_size=60))
def test_each_unit_is_in_one_block_with_all_of_its_rows(sizes: list[int]) -> None:
    starts = np.cumsum([0, *sizes])
    found: dict[int, int] = {}
    for block in blocks(starts, SIZES, lambda size: BLOCK // size):
        assert block.rows.shape == block.used.shape == (BLOCK // block.size, block.size)
        for rows, used in zip(block.rows, block.used, strict=True):
            if used.any():
                own = rows[used].tolist()
                assert own == list(range(own[0], own[0] + len(own)))
                assert own[0] not in found
                assert block.size < 2 * len(own)
                found[own[0]] = len(own)
    assert found == {b: s for b, s in zip(starts.tolist(), sizes, strict=False) if s <= MOST_PAIRED}
