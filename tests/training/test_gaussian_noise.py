"""Noise on the fine lattice: its law, what its two parts add up to, and that rounding is paid for."""

import concurrent.futures
import itertools
import math
import os
import subprocess
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dp_pipelines.errors import RequestError
from dp_pipelines.noise import alias_tables, entropy, interval_arithmetic, magnitudes, samplers
from dp_pipelines.training import gaussian_noise, libraries, threads
from dp_pipelines.training.gaussian_noise import NoisySum
from dp_pipelines.training.kernels import noise_loops

N = 2_000_000
ALPHA = 1e-9


def of_size(size: int, multiplier: Fraction = Fraction(4), norm: float = 1.0, slack: float = 0.0) -> NoisySum:
    return NoisySum(size=size, norm=norm, multiplier=multiplier, slack=slack)


def p_value(draws: np.ndarray, scale: float) -> float:
    """Of draws under a normal law, by 400 cells of equal probability."""
    cells = np.clip(np.floor(stats.norm.cdf(draws / scale) * 400), 0, 399).astype(int)
    return float(stats.chisquare(np.bincount(cells, minlength=400)).pvalue)


@pytest.mark.parametrize("compiles", [True, False])
def test_two_million_coordinates_have_the_gaussian_law_and_one_percent_less_noise_is_rejected(
    compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "compiles", lambda: compiles)
    made = of_size(N, norm=3.0)
    drawn = made.release(np.zeros(N))
    assert made.stddev == pytest.approx(12, rel=0.01)
    assert p_value(drawn, made.stddev) > ALPHA
    for factor in (0.99, 1.01):
        assert p_value(drawn, made.stddev * factor) < ALPHA


def test_the_low_bits_of_the_integers_are_uniform_and_the_coarse_part_alone_is_rejected() -> None:
    made = of_size(N)
    integers = np.rint(made.release(np.zeros(N)) * made.steps).astype(np.int64)
    assert stats.chisquare(np.bincount(integers % gaussian_noise.RATIO, minlength=gaussian_noise.RATIO)).pvalue > ALPHA
    coarse, _ = gaussian_noise._parts(made.words)
    alone = coarse.draw(N) * gaussian_noise.RATIO
    assert stats.chisquare(np.bincount(alone % gaussian_noise.RATIO, minlength=gaussian_noise.RATIO)).pvalue < ALPHA


@given(st.integers(0, 2**32 - 1), st.integers(1, 300))
def test_compiled_draws_are_those_that_numpy_makes_of_the_same_words_and_ties_of_the_same_further_words(
    seed: int, n: int
) -> None:
    for place in range(2):
        made = np.random.default_rng(seed)
        entries = gaussian_noise._parts(entropy.words)[place].entries
        columns, signs = made.integers(0, len(entries), 2 * n), made.integers(0, 2, 2 * n, np.uint32)
        tied = entries[columns] & ~np.uint32(len(entries) - 1) & np.uint32(2**31 - 1) | columns.astype(np.uint32)
        tied |= signs << np.uint32(31)
        chosen = np.where(made.random(2 * n) < 0.5, tied, made.integers(0, 2**32, 2 * n, np.uint32)).astype(np.uint32)
        further = made.integers(0, 2**64, 4 * n, np.uint64)  # as many as all ties need, and more

        def again(first: np.ndarray = chosen, then: np.ndarray = further) -> alias_tables.WordSource:
            left = [first.view(np.uint64), then]
            return lambda asked: left.pop(0)[:asked]

        by_numpy, compiled = (gaussian_noise._parts(again())[place] for _ in range(2))
        drawn = compiled.draw_compiled(n)
        assert drawn.tolist() == by_numpy.draw(n).tolist()
        untied = np.flatnonzero(
            (chosen[:n] ^ entries[chosen[:n] & (len(entries) - 1)]) & ~np.uint32(2**31) >= len(entries)
        )
        wrong = gaussian_noise._parts(again(chosen, ~further))[place].draw_compiled(n)
        assert np.array_equal(wrong[untied], drawn[untied]), "only a tie looks at further words"


def test_each_coordinate_of_a_large_sum_has_its_own_words_whatever_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    own = entropy.words

    def words(n: int) -> alias_tables.Words:
        asked.append(n)
        return own(n)

    size = 25 * samplers.CHUNK + 17
    for workers in (1, 2, 5):
        monkeypatch.setattr(threads, "processors", lambda workers=workers: workers)
        monkeypatch.setattr(entropy, "words", words)  # so that these words pass for the operating system's
        asked.clear()
        made = NoisySum(size=size, norm=1.0, multiplier=Fraction(1), slack=0.0, words=words)
        begun = made.begin()
        for _ in range(workers):
            assert begun.draw_a_block()
        drawn = made.release(np.zeros(size), begun) * made.steps
        assert 2 * size <= 2 * sum(asked) <= 2 * size * 1.01 + 100, "a word for two halves, and a few for ties"
        assert np.count_nonzero(np.rint(drawn)) > 0.999 * size, "no coordinate is left out"
        assert len(np.unique(np.rint(drawn))) > 0.98 * size, "no piece repeats another"


def test_noise_that_was_begun_is_taken_once_and_only_when_all_of_it_is_drawn() -> None:
    made = of_size(2 * samplers.CHUNK)
    begun = made.begin()
    made.release(np.zeros(made.size), begun)
    with pytest.raises(AssertionError, match="once"):
        made.release(np.zeros(made.size), begun)

    inside, leave = threading.Event(), threading.Event()

    def slow(n: int) -> alias_tables.Words:
        if not inside.is_set():
            inside.set()
            assert leave.wait(60)
        return entropy.words(n)

    begun = gaussian_noise.Begun(2 * samplers.CHUNK, slow)
    thread = threading.Thread(target=begun.draw_a_block)
    thread.start()
    assert inside.wait(60)
    with pytest.raises(AssertionError, match="all of it"):
        made.release(np.zeros(made.size), begun)
    leave.set()
    thread.join()


def test_a_fork_between_begin_and_release_releases_in_the_process_that_has_begun_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = of_size(2 * samplers.CHUNK)
    begun, child = made.begin(), os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    with pytest.raises(AssertionError, match="process"):
        made.release(np.zeros(made.size), begun)


@pytest.mark.parametrize("size", [3, 2 * samplers.CHUNK])
def test_a_source_with_too_few_words_gives_no_noise(size: int) -> None:
    made = NoisySum(
        size=size, norm=1.0, multiplier=Fraction(4), slack=0.0, words=lambda n: np.arange(n - 1, dtype=np.uint64)
    )
    with pytest.raises(AssertionError, match="as many words"):
        made.release(np.zeros(size))


def test_where_no_thread_can_be_started_one_draws_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*ignored: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "processors", lambda: 4)
    monkeypatch.setattr(concurrent.futures.ThreadPoolExecutor, "submit", refused)
    made = of_size(9 * samplers.CHUNK)
    assert np.count_nonzero(np.rint(made.release(np.zeros(made.size)) * made.steps)) > 0.999 * made.size


def test_where_loops_cannot_be_compiled_numpy_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncompilable(*ignored: object) -> None:
        raise ImportError("Numba needs NumPy 2.4 or less")

    monkeypatch.setattr(noise_loops, "draws", uncompilable)
    gaussian_noise._loop.cache_clear()
    try:
        made = of_size(gaussian_noise.LARGE)
        assert made.begin() is None
        assert np.count_nonzero(made.release(np.zeros(made.size))) > 0.999 * made.size
    finally:
        gaussian_noise._loop.cache_clear()


def test_small_sums_those_of_a_tests_words_and_all_without_a_compiler_are_drawn_in_one_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = gaussian_noise.LARGE
    assert of_size(large).begin() is not None
    assert of_size(large - 1).begin() is None
    assert NoisySum(size=large, norm=1.0, multiplier=Fraction(4), slack=0.0, words=fixed).begin() is None
    monkeypatch.setattr(libraries, "compiles", lambda: False)
    assert of_size(large).begin() is None


FORKED = """
import os
from fractions import Fraction
import numpy as np
from dp_pipelines.training import threads
from dp_pipelines.training.gaussian_noise import NoisySum
threads.processors = lambda: 3
made = NoisySum(size=2**16, norm=1.0, multiplier=Fraction(1), slack=0.0)
made.release(np.zeros(2**16))
reading, writing = os.pipe()
child = os.fork()
drawn = made.release(np.zeros(2**16))
if child == 0:
    os.write(writing, drawn[:100].tobytes())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert len(np.unique([*np.frombuffer(os.read(reading, 800)), *drawn[:100]])) > 190
"""


def test_a_fork_of_a_process_that_has_drawn_in_threads_draws_anew_in_threads_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


FORKED_WHILE_BUILDING = """
import os, threading, time
from fractions import Fraction
import numpy as np
from dp_pipelines.training import gaussian_noise
from dp_pipelines.training.gaussian_noise import NoisySum
right, inside = gaussian_noise.lay_out, threading.Event()
def slow(*given, **more):
    inside.set()
    time.sleep(2)
    return right(*given, **more)
gaussian_noise.lay_out = slow
made = NoisySum(size=16, norm=1.0, multiplier=Fraction(1), slack=0.0)
thread = threading.Thread(target=made.release, args=(np.zeros(16),))
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    gaussian_noise.lay_out = right
    made.release(np.zeros(16))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""


def test_a_child_draws_although_a_thread_of_its_parent_was_building_the_tables() -> None:
    command = [sys.executable, "-c", FORKED_WHILE_BUILDING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_coordinates_and_releases_are_unrelated_and_a_repeated_draw_is_seen() -> None:
    made = of_size(N)
    one, two = (made.release(np.zeros(N)) / made.stddev for _ in range(2))

    def score(a: np.ndarray, b: np.ndarray) -> float:
        return abs(float(np.mean(a * b))) * math.sqrt(len(a))

    # A mean of millions of products is normal enough for 7 deviations.
    assert score(one[1:], one[:-1]) < 7
    assert score(one, two) < 7
    assert score(one, 0.99 * two + 0.14 * one) > 7


def unlike(coarse: int, fine: int, ratio: int) -> float:
    """The largest |log| of the density of ratio * R + N(0, fine^2) over that of one Gaussian, up to a constant factor.

    By completing the square (docs/proofs/training.md, lemma 2) the quotient at y is a sum over x of
    exp(-(x - c y)^2 / (2 v^2)), which has period 1 in c y. At most half of the spread between places is how far one constant
    factor leaves them.
    """
    with interval_arithmetic.precision(1024):
        wide = (arb(coarse * ratio) ** 2 + arb(fine) ** 2).sqrt()
        v = arb(coarse) * fine / wide
        far = int(30 * float(v)) + 30

        def theta(place: Fraction) -> arb:
            return sum(
                (
                    (-((arb(x) - interval_arithmetic.ball(place)) ** 2) / (2 * v * v)).exp()
                    for x in range(-far, far + 1)
                ),
                arb(0),
            )

        values = [theta(Fraction(i, 16)).log() for i in range(9)]
        return float(max((values[0] - value).upper() for value in values)) / 2


def test_both_parts_add_up_to_one_gaussian_to_within_what_is_stated_and_a_narrower_fine_part_would_not() -> None:
    stated = float(gaussian_noise.UNLIKE)
    # Whole weights far out are below 2**-600 and change nothing here.
    assert 0 < unlike(gaussian_noise.COARSE, gaussian_noise.FINE, gaussian_noise.RATIO) <= stated
    assert unlike(gaussian_noise.COARSE, gaussian_noise.FINE * 9 // 10, gaussian_noise.RATIO) > stated
    # The formula that lemma 2 states, a little rounded up.
    v = gaussian_noise.COARSE * gaussian_noise.FINE / math.hypot(gaussian_noise.SCALE, gaussian_noise.FINE)
    assert 2 * math.exp(-2 * math.pi**2 * v**2) * (1 + 2.0**-20) <= stated


def test_a_coordinate_is_within_the_distance_that_the_accountant_counts_for_one_draw() -> None:
    assert 0 < of_size(3).total_variation_bound <= samplers.TOTAL_VARIATION_BOUND == Fraction(1, 2**100)


def test_half_a_word_gives_the_draw_of_its_exact_weights_and_the_other_half_is_for_another_draw() -> None:
    part, _ = gaussian_noise._parts(lambda n: np.arange(n, dtype=np.uint64) << np.uint64(32) | np.uint64(7))
    halves = part._halves(7).tolist()
    assert sorted(halves) == [0, 1, 2, 7, 7, 7, 7], "no half is used twice"
    for part in gaussian_noise._parts(entropy.words):
        ((_, table),) = part.tables.digits
        assert (table.word_bits, table.field_bits, len(table.rests)) == (32, 31, gaussian_noise.FURTHER)
        tails = magnitudes.tails(part.law, 31 + 32 * gaussian_noise.FURTHER)
        weights = [
            before - after for before, after in itertools.pairwise([1 << 31 + 32 * gaussian_noise.FURTHER, *tails])
        ]
        assert alias_tables.reproduced(table)[: len(weights)] == weights


@given(
    size=st.integers(1, 2**24),
    norm=st.floats(1e-6, 1e6),
    multiplier=st.fractions(Fraction(1, 64), 500, max_denominator=1000),
    slack=st.floats(0, 1e-3),
)
def test_norm_slack_and_rounding_are_within_the_sensitivity_and_no_larger_lattice_is_chosen(
    size: int, norm: float, multiplier: Fraction, slack: float
) -> None:
    made = of_size(size, multiplier, norm, slack)

    def moved(steps: float) -> Fraction:
        """What one unit changes on the lattice, at most: norm and slack on both sides, and rounding by half a step twice."""
        return Fraction(norm) * (1 + 2 * Fraction(slack)) * Fraction(steps) + Fraction(math.isqrt(size))

    assert moved(made.steps) <= gaussian_noise.SCALE / multiplier
    most = Fraction(gaussian_noise.SCALE) / multiplier
    assert moved(made.steps * (1 + 1e-12)) + 1 + Fraction(1, 2**20) > most * (1 - Fraction(1, 10**12))
    # The noise in units of the sum is at least what the plan says of the norm, and rounding costs as much as it must.
    assert made.stddev >= float(multiplier) * norm
    cost = (1 + 2 * slack) / (1 - (math.sqrt(size) + 1) * float(multiplier) / gaussian_noise.SCALE)
    assert made.stddev <= float(multiplier) * norm * cost * (1 + 1e-6)


def fixed(n: int) -> alias_tables.Words:
    """Words for tests that look at all but the noise."""
    return np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1, 1)), min_size=1, max_size=20),
    st.fractions(Fraction(1, 2), 50, max_denominator=10),
)
def test_under_the_same_noise_neighbours_differ_by_no_more_than_the_accounted_sensitivity(
    pairs: list[tuple[float, float]], multiplier: Fraction
) -> None:
    total, change = np.array(pairs).T
    change = change / max(1.0, float(np.linalg.norm(change)))
    # Sums of 1e6 units: rounding the sum and its product with `steps` moves each by 2**-53 of it, twice.
    made = NoisySum(size=len(pairs), norm=1.0, multiplier=multiplier, slack=1e-9, words=fixed)
    before, after = (made.release(one) * made.steps for one in (total, total + change))
    assert np.linalg.norm(np.rint(before) - np.rint(after)) <= gaussian_noise.SCALE / multiplier


def test_a_release_is_the_rounded_sum_and_the_noise() -> None:
    made = NoisySum(size=5, norm=1.0, multiplier=Fraction(3), slack=0.0, words=fixed)
    total = np.array([0.0, 1.0, -2.5, 1e6, 1e-9])
    assert (made.release(total) - made.release(np.zeros(5))) == pytest.approx(total, abs=1 / made.steps)


def test_the_noise_of_a_release_is_a_coarse_draw_in_steps_of_the_ratio_and_a_fine_draw_from_further_words() -> None:
    def words() -> alias_tables.WordSource:
        return np.random.default_rng(8).bit_generator.random_raw  # the same again in each source, and no word twice

    total = np.linspace(-3.0, 3.0, 1000)
    made = NoisySum(size=1000, norm=1.0, multiplier=Fraction(3), slack=0.0, words=words())
    coarse, fine = gaussian_noise._parts(words())
    expected = np.rint(total * made.steps) + gaussian_noise.RATIO * coarse.draw(1000) + fine.draw(1000)
    assert np.array_equal(np.rint(made.release(total) * made.steps), expected)


@pytest.mark.parametrize("total", [np.array([np.nan, 0]), np.array([np.inf, 0]), np.array([1e300, 0]), np.zeros(3)])
def test_what_is_no_sum_of_clipped_vectors_is_not_released(total: np.ndarray) -> None:
    with pytest.raises(ValueError, match="sum"):
        of_size(2).release(total)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0},
        {"norm": 0.0},
        {"norm": math.nan},
        {"slack": -1.0},
        {"slack": math.nan},
        {"multiplier": Fraction(0)},
        {"multiplier": 4.0},
        {"multiplier": Fraction(1, 65)},
    ],
    ids=str,
)
def test_what_is_no_noise_is_refused(wrong: dict) -> None:
    with pytest.raises(RequestError, match=next(iter(wrong))):
        NoisySum(**{"size": 2, "norm": 1.0, "multiplier": Fraction(1), "slack": 0.0} | wrong)


def test_so_many_coordinates_that_rounding_would_be_half_of_the_sensitivity_are_refused() -> None:
    with pytest.raises(RequestError, match="smaller model"):
        of_size(2**20, Fraction(4096))
    assert of_size(2**20, Fraction(512)).stddev < 512 * 1.15


def test_no_release_repeats_another() -> None:
    made = of_size(100)
    released = np.stack([made.release(np.zeros(100)) for _ in range(50)])
    assert len(np.unique(released)) > 4990
