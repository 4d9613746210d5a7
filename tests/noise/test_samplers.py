"""The samplers: exact over all words, right in law at full size, and never the same draw twice."""

import dataclasses
import itertools
import math
import os
import pickle
import signal
import threading
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dp_pipelines.errors import RequestError
from dp_pipelines.noise import (
    FlooredLaplace,
    Law,
    RoundedGaussian,
    alias_tables,
    entropy,
    interval_arithmetic,
    samplers,
)
from dp_pipelines.noise.laws import DiscreteGaussian
from dp_pipelines.noise.samplers import Sampler

N = 4_000_000
ALPHA = 1e-9
GAUSSIAN_SCALES = [Fraction(1, 2), Fraction(7, 3), Fraction(64), Fraction(1024), Fraction(4096)]
LAPLACE_SCALES = [Fraction(1, 2), Fraction(7, 3), Fraction(64), Fraction(1024), Fraction(100_000)]
LAWS: list[Law] = [*map(RoundedGaussian, GAUSSIAN_SCALES), *map(FlooredLaplace, LAPLACE_SCALES)]


# Exhaustive, at a reduced word size.


def draws_over_all_words(layout: samplers.TableLayout) -> np.ndarray:
    """One draw for every first word and every string of further words for every table."""
    size = 1 << layout.word_bits
    every = np.arange(size, dtype=np.uint64)
    repeats = size ** len(layout.digits)
    calls = itertools.count()

    def words(n: int) -> alias_tables.Words:
        call = next(calls)
        if call == 0:
            assert n == size * repeats
            return np.repeat(every, repeats)
        # Each tied first word stands there `repeats` times; table number `call` gets its own digit of that number.
        string = np.tile(np.repeat(every, size ** (len(layout.digits) - call)), size ** (call - 1))
        assert n % repeats == 0
        return np.tile(string, n // repeats)

    draws = layout.draw(size * repeats, words, chunk=size * repeats)
    assert next(calls) == 1 + len(layout.digits), "every table must have met ties"
    return draws


def counts_over_all_words(layout: samplers.TableLayout) -> dict[int, int]:
    """Return how often each value comes out, over all words."""
    draws = draws_over_all_words(layout)
    least = int(draws.min())
    return {least + above: count for above, count in enumerate(np.bincount(draws - least).tolist()) if count}


def exact_counts(layout: samplers.TableLayout) -> dict[int, int]:
    """How often each value must come out: products of the tables' weights, and one sign bit."""
    digits = [alias_tables.reproduced(table) for _, table in layout.digits]
    bits = [table.column_bits for _, table in layout.digits]
    counts: dict[int, int] = {}
    for combination in itertools.product(*(range(len(digit)) for digit in digits)):
        magnitude = combination[0] + sum(high << bits[0] for high in combination[1:])
        weight = math.prod(digit[value] for digit, value in zip(digits, combination, strict=True))
        for value in (magnitude, -magnitude if layout.mirror else -magnitude - 1):
            counts[value] = counts.get(value, 0) + weight
    return {value: count for value, count in counts.items() if count}


SMALL = {
    "gaussian": samplers.lay_out(RoundedGaussian(Fraction(2)), word_bits=10, further_words=1),
    "gaussian below a step": samplers.lay_out(RoundedGaussian(Fraction(1, 3)), word_bits=10, further_words=1),
    "laplace": samplers.lay_out(FlooredLaplace(Fraction(2)), word_bits=10, further_words=1),
    "laplace in two digits": samplers.lay_out(
        FlooredLaplace(Fraction(1)), word_bits=8, further_words=1, one_digit_columns=4
    ),
}


@pytest.mark.parametrize("layout", SMALL.values(), ids=SMALL)
def test_over_all_words_every_value_comes_out_exactly_as_often_as_its_weight_says(layout: samplers.TableLayout) -> None:
    assert counts_over_all_words(layout) == exact_counts(layout)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "laplace in two digits"])
def test_over_all_words_the_law_is_as_near_as_the_bound_says_and_a_wrong_sign_is_not(name: str) -> None:
    layout = SMALL[name]
    law = RoundedGaussian(Fraction(2)) if layout.mirror else FlooredLaplace(Fraction(1 if "two" in name else 2))

    def distance(layout: samplers.TableLayout) -> float:
        counts = counts_over_all_words(layout)
        every = sum(counts.values())
        return math.fsum(abs(law.pmf(x) - counts.get(x, 0) / every) for x in range(-200, 200)) / 2

    assert 0 < distance(layout) <= layout.total_variation_bound
    assert distance(dataclasses.replace(layout, mirror=not layout.mirror)) > 0.05


def test_the_small_layouts_include_one_with_two_digits() -> None:
    assert [len(layout.digits) for layout in SMALL.values()] == [1, 1, 1, 2]


# At full size.


@pytest.mark.parametrize("further", [0, 1, 2, 3])
@pytest.mark.parametrize("law", [RoundedGaussian(Fraction(1024)), FlooredLaplace(Fraction(1024))], ids=repr)
def test_a_tie_of_a_full_word_is_settled_by_the_further_words(law: Law, further: int) -> None:
    layout = samplers.lay_out(law)
    shift, table = layout.digits[-1]
    mask = np.uint64((1 << table.column_bits) - 1)
    inner = np.all((table.rests > 0) & (table.rests < np.uint64(2**64 - 1)), axis=0)
    column = int(np.flatnonzero(inner & ((table.entries & mask) != np.arange(mask + 1)))[0])
    tied = (table.entries[column] & ~mask) | np.uint64(column)
    # All ones in the field of the low digit, if there is one: no tie there.
    first = (tied << np.uint64(shift)) | np.uint64((1 << shift) - 1)
    rest = table.rests[:, column].tolist()
    step = [-1, 0, 1, 0][further]
    settling = [rest[0], rest[1] + step] if len(rest) == 2 else [rest[0] + step]
    if further == 3:  # the highest word decides alone
        settling = [rest[0] - 1, *[2**64 - 1] * (len(rest) - 1)]
    asked: list[int] = []

    def words(n: int) -> alias_tables.Words:
        asked.append(n)
        return np.array([first] if len(asked) == 1 else settling, dtype=np.uint64)

    drawn = int(layout.draw(1, words)[0]) >> sum(table.column_bits for _, table in layout.digits[:-1])
    assert asked == [1, len(rest)]
    assert drawn == (column if further in (0, 3) else int(table.entries[column] & mask))


def chi_square(law: Law, draws: np.ndarray, *, groups: int = 300) -> float:
    """The p-value of the draws under the law, whose probabilities are written down here once more."""
    scale = float(law.scale)
    reach = math.ceil(scale * 30)
    edges = np.arange(-reach, reach + 1)
    if isinstance(law, RoundedGaussian):
        below = stats.norm.cdf(edges - 0.5, scale=scale)
    else:
        below = np.where(
            edges < 0, np.exp(np.minimum(edges, 0) / scale) / 2, 1 - np.exp(-np.maximum(edges, 0) / scale) / 2
        )
    below[0], below[-1] = 0, 1  # what lies outside is counted in the outermost cells
    probabilities = np.diff(below)
    counts = np.bincount(np.clip(draws, -reach, reach - 1) + reach, minlength=2 * reach)
    middle = (below[:-1] + below[1:]) / 2
    group = np.unique(np.minimum(middle * groups, groups - 1).astype(int), return_inverse=True)[1]
    expected = np.bincount(group, weights=probabilities) * draws.size
    observed = np.bincount(group, weights=counts)
    assert observed.sum() == draws.size
    assert expected.min() > 5
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, expected.size - 1))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_four_million_draws_follow_the_law_and_a_scale_two_percent_off_is_rejected(law: Law) -> None:
    draws = Sampler(law).draw(N)
    assert chi_square(law, draws) > ALPHA
    for factor in (Fraction(98, 100), Fraction(102, 100)):
        assert chi_square(dataclasses.replace(law, scale=law.scale * factor), draws) < ALPHA


@pytest.mark.parametrize("law", [law for law in LAWS if law.scale >= 64], ids=repr)
def test_low_bits_are_uniform_and_neighbouring_draws_are_unrelated(law: Law) -> None:
    draws = Sampler(law).draw(N)
    residues = np.bincount(draws & 7, minlength=8)
    assert stats.chisquare(residues).pvalue > ALPHA
    one_in_fifty_made_odd = draws | (np.arange(N) % 50 == 0)
    assert stats.chisquare(np.bincount(one_in_fifty_made_odd & 7, minlength=8)).pvalue < ALPHA
    y = draws + float(law.offset)

    def score(a: np.ndarray, b: np.ndarray) -> float:
        return abs(float(np.mean(a * b)) / law.stddev**2) * math.sqrt(a.size)

    # Products have a fourth moment of at most 36 stddev^4, so a mean over millions is normal enough for 7 deviations.
    assert score(y[1:], y[:-1]) < 7
    assert score(abs(y[1:]) - abs(y).mean(), abs(y[:-1]) - abs(y).mean()) < 7
    assert score(y[1:] + 0.01 * y[:-1], y[:-1]) > 7


@pytest.mark.parametrize(
    "law",
    [kind(Fraction(scale)) for kind in (RoundedGaussian, FlooredLaplace) for scale in (Fraction(1, 100), 1, 99, 4096)]
    + [RoundedGaussian(Fraction(2**14)), FlooredLaplace(Fraction(2**20))],
    ids=repr,
)
def test_every_draw_is_within_the_promised_distance_of_its_law(law: Law) -> None:
    assert 0 < Sampler(law).total_variation_bound <= samplers.TOTAL_VARIATION_BOUND == Fraction(1, 2**100)


@pytest.mark.parametrize(
    "law",
    [RoundedGaussian(Fraction(2**14 + 1)), DiscreteGaussian(Fraction(2**14 + 1)), FlooredLaplace(Fraction(2**20) + 1)],
    ids=repr,
)
def test_a_scale_that_no_table_holds_is_refused_before_any_draw(law: Law) -> None:
    with pytest.raises(RequestError, match="coarser lattice"):
        Sampler(law)


@pytest.mark.parametrize("law", [None, "gaussian", 3])
def test_what_is_no_law_is_refused(law: object) -> None:
    with pytest.raises(RequestError, match="law"):
        Sampler(law)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [-1, 2**40 + 1, 1.0, True, "3", None, math.nan])
def test_a_number_of_draws_that_is_no_number_is_refused(n: object) -> None:
    with pytest.raises(RequestError, match="n: must"):
        Sampler(LAWS[0]).draw(n)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [0, 1, samplers.CHUNK - 1, samplers.CHUNK, 2 * samplers.CHUNK + 17])
@pytest.mark.parametrize("law", [LAWS[3], LAWS[8]], ids=repr)
def test_the_words_asked_for_depend_on_the_number_of_draws_alone(law: Law, n: int) -> None:
    asked: list[int] = []

    def counted(size: int) -> alias_tables.Words:
        asked.append(size)
        return entropy.words(size)

    draws = Sampler(law, words=counted).draw(n)
    assert draws.shape == (n,)
    assert draws.dtype == np.int64
    # Ties ask for two more words each; more than 20 of them has a chance below 1e-40.
    assert n <= sum(asked) <= n + 40
    assert max(asked, default=0) <= samplers.CHUNK


# Attacks.


def test_no_release_tells_by_its_digits_which_statistic_it_came_from() -> None:
    """The attack of Mironov (2012): floating-point noise has outputs that only one of two neighbours can give."""

    def betrayed(release: np.ndarray) -> float:
        # 1 + noise is a multiple of 2**-53 where it is below 1; 0 + noise can be anything.
        near = release[np.abs(release) < 0.5]
        return float(np.mean(near * 2.0**53 != np.round(near * 2.0**53)))

    law = FlooredLaplace(Fraction(1))
    assert betrayed(Sampler(law).draw(100_000) * 1.0) == 0
    words = entropy.words(100_000)
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    sign = np.where(words & np.uint64(1), 1.0, -1.0)
    assert betrayed(-np.log(uniform) * sign) > 0.2


def test_every_release_of_one_statistic_can_come_from_its_neighbour() -> None:
    for law in (RoundedGaussian(Fraction(3)), FlooredLaplace(Fraction(3))):
        draws = Sampler(law).draw(200_000)
        assert draws.dtype == np.int64
        assert all(law.pmf(x - 1) > 0 and law.pmf(x + 1) > 0 for x in np.unique(draws).tolist())


class BufferedWords:
    """A planted fault: words kept in the process, as generators in user space keep them."""

    def __init__(self) -> None:
        self.kept = entropy.words(0)

    def __call__(self, n: int) -> alias_tables.Words:
        while self.kept.size < n:
            self.kept = np.concatenate([self.kept, entropy.words(65_536)])
        taken, self.kept = self.kept[:n], self.kept[n:]
        return taken


def distinct_draws_after_fork(sampler: Sampler, children: int = 4, draws: int = 50) -> int:
    """Of 200 draws (8 numbers each) made by 4 children of one parent that has drawn before, how many differ."""
    sampler.draw(1000)
    outputs = []
    for _ in range(children):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, np.stack([sampler.draw(8) for _ in range(draws)]).tobytes())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            outputs.append(np.frombuffer(pipe.read(), dtype=np.int64).reshape(draws, 8))
        os.waitpid(child, 0)
    return len({tuple(row) for row in np.concatenate(outputs).tolist()})


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_processes_never_repeat_a_draw_and_a_buffered_source_is_seen() -> None:
    law = RoundedGaussian(Fraction(1024))
    assert distinct_draws_after_fork(Sampler(law)) == 200
    assert distinct_draws_after_fork(Sampler(law, words=BufferedWords())) == 50


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_draws_although_a_thread_of_its_parent_was_building_tables_at_the_fork() -> None:
    held, release = threading.Event(), threading.Event()

    def build() -> None:
        with interval_arithmetic.precision():
            held.set()
            release.wait(60)

    thread = threading.Thread(target=build)
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a child that waits for the lock ends by this signal
        status = 1
        try:
            status = 0 if Sampler(RoundedGaussian(Fraction(778))).draw(5).size == 5 else 1
        finally:
            os._exit(status)
    release.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_a_pickled_sampler_carries_no_state_and_never_repeats_a_draw() -> None:
    sampler = Sampler(RoundedGaussian(Fraction(1024)))
    before = pickle.dumps(sampler)
    sampler.draw(1000)
    assert pickle.dumps(sampler) == before
    assert len(before) < 1000
    one, two = pickle.loads(before), pickle.loads(before)
    assert one == two == sampler
    assert one.draw(8).tolist() != two.draw(8).tolist()
    faulty = Sampler(sampler.law, words=BufferedWords())
    faulty.draw(8)
    kept = pickle.dumps(faulty)
    assert pickle.loads(kept).draw(8).tolist() == pickle.loads(kept).draw(8).tolist()


def test_threads_share_a_sampler_and_build_its_tables_once() -> None:
    law = RoundedGaussian(Fraction(777))
    sampler = Sampler(law)
    misses = samplers.layout_of.cache_info().misses
    rows: list[tuple[int, ...]] = []
    threads = [threading.Thread(target=lambda: rows.append(tuple(sampler.draw(8).tolist()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(rows)) == 8
    assert samplers.layout_of.cache_info().misses == misses + 1
