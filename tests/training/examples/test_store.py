"""The private store of examples: the same rows in the same places, in little memory, and products that no position changes."""

import os
import stat
import subprocess
import sys
import tempfile
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.training.examples import store as examples
from dp_pipelines.training.examples.store import FEATURE_BITS, Examples, whole_numbers


class Plain:
    """Columns a and b as features, y as the label."""

    width = 2

    def encode(self, table):
        columns = [table.column(name).to_numpy(zero_copy_only=False) for name in ("a", "b")]
        return np.stack(columns, axis=1).astype(np.float32)

    def labels(self, table):
        return table.column("y").cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)


def rows_of(units, labels=None):
    """A table whose features tell rows apart."""
    labels = [1.0] * len(units) if labels is None else labels
    features = np.arange(len(units)) / 2**10
    kind = pa.float64()
    return pa.table({"who": pa.array(units, pa.int64()), "a": features, "b": features / 4, "y": pa.array(labels, kind)})


def expected(tables):
    """Unit by unit, in order of appearance: the features a and the labels of its rows that have a label."""
    found = []
    for table in tables:
        of_unit = {}
        for row in table.to_pylist():
            if row["who"] is not None and row["y"] is not None:
                of_unit.setdefault(row["who"], []).append((row["a"], row["b"], row["y"]))
        found += of_unit.values()
    return found


def unit_lists(chunk):
    """A chunk as such a list."""
    whole = np.column_stack([chunk.features.astype(np.float64), chunk.labels]).tolist()
    return [
        [tuple(row) for row in whole[begin:end]] for begin, end in zip(chunk.starts[:-1], chunk.starts[1:], strict=True)
    ]


tables_of_units = st.lists(
    st.lists(st.tuples(st.integers(0, 3) | st.none(), st.sampled_from([0.0, 1.0, None])), max_size=12).map(
        lambda rows: rows_of([unit for unit, _ in rows], [label for _, label in rows])
    ),
    max_size=4,
)


@pytest.mark.parametrize("resident", [0, 100, 2**28], ids=["never mapped", "let go", "mapped"])
@given(tables_of_units, st.integers(1, 5), st.data())
def test_chunks_and_choices_hold_each_units_rows_and_nothing_else(resident, tables, units_per_chunk, data):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(examples, "RESIDENT", resident)
        store = Examples.write(folder, "training", tables, Plain(), ["who"])
        wanted = expected(tables)
        assert (store.units, store.rows, store.width) == (len(wanted), sum(map(len, wanted)), 2)
        chunks = list(store.chunks(units_per_chunk))
        assert [chunk.units for chunk in chunks[:-1]] == [units_per_chunk] * (len(chunks) - 1)
        assert [unit for chunk in chunks for unit in unit_lists(chunk)] == wanted
        chosen = sorted(data.draw(st.sets(st.integers(0, max(len(wanted) - 1, 0)), max_size=len(wanted))))
        chunk = store.take(np.array(chosen, np.int64))
        assert unit_lists(chunk) == [wanted[unit] for unit in chosen]
        assert (chunk.features.dtype, chunk.labels.dtype, chunk.starts.dtype) == (np.float32, np.float64, np.int64)


def test_rows_without_a_unit_are_nobodys_example(tmp_path):
    store = Examples.write(tmp_path, "x", [rows_of([None, 1, None])], Plain(), ["who"])
    assert (store.units, store.rows) == (1, 1)


@pytest.mark.parametrize("tables", [[], [rows_of([])], [rows_of([1, 2], [None, None])]])
def test_no_examples_are_examples_too(tables, tmp_path):
    store = Examples.write(tmp_path, "x", tables, Plain(), ["who"])
    assert (store.units, store.rows, list(store.chunks(3))) == (0, 0, [])
    assert store.take(np.zeros(0, np.int64)).features.shape == (0, 2)
    assert store.times(tmp_path, "y", np.ones((2, 3))).width == 3


def test_a_large_table_is_encoded_in_portions_with_the_same_result(tmp_path, monkeypatch):
    tables = [rows_of([1, 2, 1, 3, 2, 1])]
    wanted = expected(tables)
    monkeypatch.setattr(examples, "PORTION", 4)
    store = Examples.write(tmp_path, "x", tables, Plain(), ["who"])
    assert [unit for chunk in store.chunks(2) for unit in unit_lists(chunk)] == wanted


def test_files_are_private_and_an_encoder_that_fails_leaves_none(tmp_path):
    class Fails(Plain):
        def encode(self, table):
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - any
        Examples.write(tmp_path, "failed", [rows_of([1])], Fails(), ["who"])
    assert list(tmp_path.iterdir()) == []
    Examples.write(tmp_path, "x", [rows_of([1])], Plain(), ["who"]).times(tmp_path, "white", np.eye(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["white.rows", "x.labels", "x.rows"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def exactly(features, whole, exponent):
    """The products in rational numbers, rounded once to float64 and then to float32."""
    product = [
        [sum(Fraction(float(x)) * int(w) for x, w in zip(row, column, strict=True)) for column in whole.T]
        for row in features
    ]
    return np.array([[float(value / Fraction(2) ** exponent) for value in row] for row in product]).astype(np.float32)


def a_matrix(width, columns, spread=8.0):
    numbers = np.random.default_rng(7)
    return numbers.standard_normal((width, columns)) * np.exp(spread * numbers.standard_normal(columns))


def some_features(rows, width):
    numbers = np.random.default_rng(8)
    return (numbers.integers(-(2**FEATURE_BITS), 2**FEATURE_BITS + 1, (rows, width)) / 2**FEATURE_BITS).astype(
        np.float32
    )


class Given:
    """Hands out given features."""

    def __init__(self, features):
        self.features, self.width = features, features.shape[1]

    def encode(self, table):
        return self.features[table.column("a").to_numpy()]

    def labels(self, table):
        return np.zeros(table.num_rows)


def stored(folder, name, features, order):
    table = pa.table({"who": np.arange(len(order)), "a": np.array(order)})
    return Examples.write(folder, name, [table], Given(features), ["who"])


def products(store):
    return np.concatenate([chunk.features for chunk in store.chunks(1000)])


@pytest.mark.parametrize(("width", "columns", "rows"), [(1, 1, 5), (151, 151, 67), (1024, 3, 9), (3, 1024, 9)])
def test_a_product_is_the_exact_one_wherever_its_row_stands(width, columns, rows, tmp_path, monkeypatch):
    features, matrix = some_features(rows, width), a_matrix(width, columns)
    wanted = exactly(features[:5], *whole_numbers(matrix))
    first = products(stored(tmp_path, "a", features, range(rows)).times(tmp_path, "aw", matrix))
    np.testing.assert_array_equal(first[:5], wanted)
    order = np.random.default_rng(1).permutation(rows)
    monkeypatch.setattr(examples, "PORTION", 7 * max(width, columns))
    other = products(stored(tmp_path, "b", features, order).times(tmp_path, "bw", matrix))
    assert first[order].tobytes() == other.tobytes()


def test_the_check_of_exact_products_finds_a_matrix_of_floats(tmp_path, monkeypatch):
    features, matrix = some_features(67, 151), a_matrix(151, 151)
    matrix[0, 0] = 1e30  # so large that the sum of what stands beside it is lost
    monkeypatch.setattr(examples, "whole_numbers", lambda matrix: (np.ldexp(matrix, 40), 40))
    found = products(stored(tmp_path, "a", features, range(67)).times(tmp_path, "aw", matrix))
    scaled = np.ldexp(matrix, 40)
    assert not np.array_equal(found[:5], exactly(features[:5], np.rint(scaled), 40))


@given(st.integers(1, 1024), st.floats(1e-300, 1e300), st.floats(0, 1))
@settings(max_examples=50)
def test_whole_numbers_leave_room_for_every_sum_and_lose_little(width, largest, other):
    matrix = np.full((width, 2), largest * other)
    matrix[0, 0] = largest
    whole, exponent = whole_numbers(matrix)
    assert np.array_equal(whole, np.rint(whole))
    assert int(np.abs(whole).sum(axis=0).max()) * 2**FEATURE_BITS < 2**53
    assert np.abs(np.ldexp(whole, -exponent) - matrix).max() <= largest * 2.0**-26


def test_a_matrix_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="finite"):
        whole_numbers(np.array([[np.nan]]))


MEMORY = """
import contextlib, sys, numpy as np, pyarrow as pa
from dp_pipelines.training.examples import store as examples
with contextlib.suppress(ImportError):
    import pandas  # Arrow does, once, where it is installed
examples.RESIDENT, examples.PORTION = int(sys.argv[2]), 2**19
class Wide:
    width = 100
    def encode(self, table): return np.ones((table.num_rows, 100), np.float32)
    def labels(self, table): return np.zeros(table.num_rows)
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096
tables = (pa.table({"who": np.arange(first, first + 2000)}) for first in range(0, 200_000, 2000))
before = resident()
store = examples.Examples.write(sys.argv[1], "x", tables, Wide(), ["who"])
most = 0
for chunk in store.chunks(1000):
    assert chunk.features.sum() == 100_000
    most = max(most, resident())
for first in range(100):
    store.take(np.arange(first, 200_000, 100))
    most = max(most, resident())
print((most - before) // 2**20)
"""


def megabytes(folder, resident):
    """By how much a process grows that reads 80 MB of examples in order and at random."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(folder), str(resident)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
def test_memory_does_not_grow_with_the_number_of_examples(tmp_path):
    assert megabytes(tmp_path, 2**23) < 40


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
def test_the_measure_of_memory_finds_files_that_are_never_let_go(tmp_path):
    assert megabytes(tmp_path, 2**40) > 70
