"""The store of coded examples: whole units, the same wherever they are, and the products of their whitened rows."""

import pathlib
import stat
import warnings

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines.query.train_model import BinaryLabel, Category, Number, TrainModel
from dp_pipelines.training.examples import coded, store
from dp_pipelines.training.examples.coded import CodedExamples
from dp_pipelines.training.examples.store import Examples
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.kernels.coded_linear import CodedLinear

TASK = TrainModel(
    privacy_unit="who",
    label=BinaryLabel(column="y"),
    features={
        "x": Number(column="x", min_value=0, max_value=1, edges=[0.2, 0.5], scaled=True),
        "k": Category(column="k", categories=[f"c{place}" for place in range(300)]),
        "z": Number(column="x", min_value=0, max_value=1, bins=1, scaled=True),
        "few": Category(column="k", categories=[f"c{place}" for place in range(0, 300, 17)]),
        "cuts": Number(column="x", min_value=0, max_value=1, edges=[place / 20 for place in range(1, 20)]),
    },
    pairs=[("x", "few"), ("few", "cuts")],  # of 76 and of 399 columns: in one byte, and in two
)
ENCODER = Encoder.of(TASK)
KERNEL = CodedLinear(layout=ENCODER.layout, label=TASK.label)


def tables(units: int = 40) -> list[pa.Table]:
    """Two tables of whole units of 1 to 40 rows, some rows without label or values."""
    made = np.random.default_rng(3)
    who = np.repeat(np.arange(units), made.integers(1, 41, units))
    size = len(who)
    x = np.where(made.random(size) < 0.1, np.nan, made.random(size) * 1.2 - 0.1)
    table = pa.table({
        "who": who,
        "x": x,
        "k": pa.array([None if place > 290 else f"c{place}" for place in made.integers(0, 300, size)]),
        "y": pa.array(np.where(made.random(size) < 0.1, 7, made.integers(0, 2, size))),
    })  # fmt: skip
    return [table.filter(pa.array(who % 2 == part)) for part in (0, 1)]


def written(folder: pathlib.Path) -> CodedExamples:
    return CodedExamples.write(folder, "rows", tables(), ENCODER, ["who"])


def dense(codes: np.ndarray, scaled: np.ndarray) -> np.ndarray:
    """The rows that codes stand for."""
    layout = ENCODER.layout
    found = np.zeros((len(codes), layout.width + 1))
    found[:, 0] = 1
    for place in range(len(layout.pieces)):
        found[np.arange(len(codes)), layout.columns_of[place, codes[:, layout.byte_of[place]]]] = 1
    found[:, layout.scaled_columns] = scaled / 2**16
    return found[:, :-1]


def test_codes_stand_for_the_same_rows_as_the_dense_store_has(tmp_path: pathlib.Path) -> None:
    plain = Examples.write(tmp_path, "dense", tables(), ENCODER, ["who"])
    (one,), (other,) = plain.chunks(1000), written(tmp_path).chunks(1000)
    assert (one.starts == other.starts).all()
    assert one.labels.tolist() == other.labels.tolist()
    assert (dense(other.codes, other.scaled) == one.features).all()


def test_weighted_rows_are_those_of_the_encoded_ones() -> None:
    weights = np.random.default_rng(1).normal(size=(ENCODER.width, 3))
    for table in tables():
        expected = ENCODER.encode(table).astype(float) @ weights
        found = ENCODER.products(table, weights)
        assert found == pytest.approx(expected)
        assert ENCODER.products(table.slice(7, 5), weights).tobytes() == found[7:12].tobytes()


def test_products_are_those_of_the_whitened_rows_and_bounds_hold(tmp_path: pathlib.Path) -> None:
    made = np.random.default_rng(2).normal(size=(ENCODER.width, ENCODER.width)) / 10
    kernel = KERNEL.whitened(made + made.T + np.eye(len(made)))
    (chunk,) = written(tmp_path).with_products(tmp_path, "products", kernel.multiply).chunks(1000)
    rows = dense(chunk.codes, chunk.scaled) @ kernel.columns.matrix
    for unit in range(chunk.units):
        own = rows[chunk.starts[unit] : chunk.starts[unit + 1]]
        assert chunk.bounds[unit] >= np.linalg.norm(own, axis=1).max()
        products = chunk.products[chunk.product_starts[unit] : chunk.product_starts[unit + 1]]
        if len(own) > coded.MOST_KEPT:
            assert not len(products)
            continue
        expected = own @ own.T * (2 - np.eye(len(own)))
        assert products == pytest.approx(expected[np.tril_indices(len(own))], rel=1e-5, abs=1e-4)


def test_a_selection_and_chunks_of_any_size_hold_the_same_units(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = written(tmp_path).with_products(tmp_path, "products", KERNEL.multiply)
    (whole,) = examples.chunks(1000)
    for resident in (store.RESIDENT, 100):  # a small one reads selections from the files, and lets go of chunks
        monkeypatch.setattr(store, "RESIDENT", resident)
        parts = [*examples.chunks(7), *(examples.take(np.array([unit])) for unit in range(examples.units))]
        for chunks in (parts[: -examples.units], parts[-examples.units :]):
            for name in ("codes", "scaled", "labels", "products", "bounds"):
                joined = np.concatenate([getattr(chunk, name) for chunk in chunks])
                assert joined.tobytes() == getattr(whole, name).tobytes()


def test_files_are_private(tmp_path: pathlib.Path) -> None:
    written(tmp_path).with_products(tmp_path, "products", KERNEL.multiply)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_no_units_are_no_chunks(tmp_path: pathlib.Path) -> None:
    none = CodedExamples.write(tmp_path, "none", [tables()[0].slice(0, 0)], ENCODER, ["who"])
    assert (none.units, none.rows, list(none.chunks(5))) == (0, 0, [])
    empty = none.with_products(tmp_path, "products", KERNEL.multiply)
    assert empty.take(np.zeros(0, np.int64)).units == 0


def test_weights_that_are_infinite_make_no_row_print_a_warning() -> None:
    """A column with infinity and one with minus infinity: the row that has both has no score, and nobody hears of it."""
    weights = np.zeros((ENCODER.width, 1))
    weights[1], weights[5:] = np.inf, -np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(ENCODER.products(tables()[0], weights)).any()
