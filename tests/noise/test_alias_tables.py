"""Alias tables: they hold their integer weights exactly, and the integers hold the law."""

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.noise import FlooredLaplace, Law, RoundedGaussian, alias_tables, interval_arithmetic, magnitudes

GAUSSIANS = [RoundedGaussian(Fraction(s)) for s in (Fraction(1, 2), 3, 50, 1024)]
LAPLACES = [FlooredLaplace(Fraction(t)) for t in (Fraction(1, 2), 3, 50)]


def counts_over_all_words(table: alias_tables.AliasTable) -> list[int]:
    """How often each value comes out, over every field and every string of further words."""
    further_words = table.rests.shape[0]
    fields = np.arange(1 << table.field_bits, dtype=np.uint64)
    strings = np.array(
        list(itertools.product(range(1 << table.word_bits), repeat=further_words)), dtype=np.uint64
    ).reshape(-1)
    repeats = strings.size // further_words
    field = np.repeat(fields, repeats)
    out, tied = np.empty_like(field), np.empty(field.size, dtype=np.bool_)

    def every_string(n: int) -> alias_tables.Words:
        # A tied field comes `repeats` times in a row; each time it gets another string.
        assert n % strings.size == 0
        return np.tile(strings, n // strings.size)

    table.look_up(field, every_string, out, np.empty((2, field.size), dtype=np.uint64), tied)
    assert tied.any()
    return [int(count) for count in np.bincount(out.astype(np.int64), minlength=1 << table.column_bits)]


@st.composite
def small_tables(draw: st.DrawFn) -> tuple[list[int], dict[str, int]]:
    """Falling integers for tables that read 5 to 8 bits of words of 3 to 5 bits."""
    shape = {
        "word_bits": draw(st.integers(3, 5)),
        "field_bits": draw(st.integers(5, 8)),
        "further_words": draw(st.integers(1, 2)),
    }
    total = 1 << (shape["field_bits"] + shape["word_bits"] * shape["further_words"])
    tails = draw(st.lists(st.integers(0, total), max_size=15))
    return [*sorted(tails, reverse=True), 0], shape


@settings(max_examples=60, deadline=None)
@given(small_tables())
def test_every_table_gives_its_weights_over_all_words(case: tuple[list[int], dict[str, int]]) -> None:
    tails, shape = case
    table = alias_tables.build(tails, **shape)
    total = 1 << (shape["field_bits"] + shape["word_bits"] * shape["further_words"])
    weights = [before - after for before, after in itertools.pairwise([total, *tails])]
    weights += [0] * ((1 << table.column_bits) - len(weights))
    assert counts_over_all_words(table) == weights == alias_tables.reproduced(table)


def test_a_cut_or_an_alias_that_is_off_by_one_is_seen_by_both_checks() -> None:
    table = alias_tables.build([3000, 2000, 900, 500, 499, 0], word_bits=5, field_bits=8, further_words=1)
    weights = alias_tables.reproduced(table)
    column = int(np.flatnonzero((table.rests[0] > 0) & (table.rests[0] < 31))[0])
    rests = table.rests.copy()
    rests[0, column] += np.uint64(1)
    entries = table.entries.copy()
    entries[column] ^= np.uint64(1)
    for broken in (dataclasses.replace(table, rests=rests), dataclasses.replace(table, entries=entries)):
        assert alias_tables.reproduced(broken) != weights
        assert counts_over_all_words(broken) == alias_tables.reproduced(broken)


@pytest.mark.parametrize(
    "tails", [[], [5, 1], [1, 5, 0], [2**12 + 1, 0], [2**11, -1, 0], list(range(256, -1, -1))], ids=str
)
def test_tails_that_do_not_fall_to_zero_or_do_not_fit_are_refused(tails: list[int]) -> None:
    with pytest.raises(ValueError, match=r"tails|field"):
        alias_tables.build(tails, word_bits=4, field_bits=8, further_words=1)


def furthest_from_truth(law: Law, bits: int, every: int = 1) -> float:
    """The largest distance, in units, of the tails from the law's definition at 400 bits."""
    tails = magnitudes.tails(law, bits)
    with interval_arithmetic.precision(400):
        checked = range(0, len(tails), every)
        return max(float(abs(2 * law.upper_tail(m + 1) * arb(2) ** bits - tails[m]).upper()) for m in checked)


@pytest.mark.parametrize("law", [*GAUSSIANS, *LAPLACES], ids=repr)
def test_tails_are_within_one_unit_of_the_law(law: Law) -> None:
    assert furthest_from_truth(law, 127, every=1 if law.scale <= 50 else 17) < 1


def test_too_few_taylor_terms_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(magnitudes, "_TAYLOR_TERMS", 20)
    assert furthest_from_truth(GAUSSIANS[-1], 127, every=17) > 1


def test_a_ball_that_is_too_wide_for_an_integer_raises() -> None:
    with interval_arithmetic.precision():
        assert interval_arithmetic.units([arb(1) / 3], 127) == [(2**127 + 1) // 3]
        with pytest.raises(ArithmeticError, match="precision"):
            interval_arithmetic.units([arb(1, arb(2) ** -100)], 127)
    with interval_arithmetic.precision(64), pytest.raises(ArithmeticError, match="precision"):
        interval_arithmetic.units([GAUSSIANS[1].upper_tail(1)], 127)


@pytest.mark.parametrize("law", [*GAUSSIANS[:3], *LAPLACES], ids=repr)
@pytest.mark.parametrize("bits", [12, 20])
def test_a_table_is_as_near_to_its_law_as_it_says(law: Law, bits: int) -> None:
    field_bits, word_bits = bits, 7
    total = 1 << (field_bits + word_bits)
    table = alias_tables.build(
        magnitudes.tails(law, field_bits + word_bits), word_bits=word_bits, field_bits=field_bits, further_words=1
    )
    weights = alias_tables.reproduced(table)
    with interval_arithmetic.precision(400):
        true = [1 - 2 * law.upper_tail(1)]
        true += [2 * (law.upper_tail(m) - law.upper_tail(m + 1)) for m in range(1, len(weights))]
        differences = [abs(p - arb(w) / total) for p, w in zip(true, weights, strict=True)]
        distance = (sum(differences, arb(0)) + 2 * law.upper_tail(len(weights))) / 2
        bound = table.total_variation_bound
        assert distance < arb(bound.numerator) / bound.denominator
        assert distance > 0


@pytest.mark.parametrize("law", LAPLACES, ids=repr)
def test_the_digits_of_a_geometric_magnitude_multiply_to_its_law(law: FlooredLaplace) -> None:
    columns, bits = 8, 120
    low = [1 << bits, *magnitudes.low_digit_tails(law, columns, bits)]
    high = [1 << bits, *magnitudes.high_digit_tails(law, columns, bits)]
    with interval_arithmetic.precision(400):
        for (d0, (a, b)), (d1, (c, d)) in itertools.product(
            enumerate(itertools.pairwise(low)), enumerate(itertools.pairwise(high))
        ):
            m = d0 + columns * d1
            true = 2 * (law.upper_tail(m) - law.upper_tail(m + 1))
            drawn = arb(a - b) * arb(c - d) / arb(2) ** (2 * bits)
            assert abs(true - drawn) < arb(2) ** (3 - bits)


def test_support_is_the_first_magnitude_that_carries_less_than_a_unit() -> None:
    for law in (*GAUSSIANS, *LAPLACES):
        n = magnitudes.support(law, 127)
        assert law.tail(n) * 2 < 2.0**-127
        assert n == 1 or law.tail(n - 1) * 2 >= 2.0**-127


def test_only_our_laws_have_tables() -> None:
    class Other(RoundedGaussian.__base__):  # type: ignore[misc, name-defined]
        def upper_tail(self, x: int) -> arb:
            return arb(2) ** (-x - 1)

        stddev = 1.0

    with pytest.raises(TypeError, match="tables"):
        magnitudes.tails(Other(Fraction(1)), 20)
