"""Columns that nobody has are dropped, whatever noise says of them; the others are whitened as if those did not exist."""

import itertools
import pathlib

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import BinaryLabel, Category, Number, Plan, Steps, TrainModel
from dp_pipelines.training import fit
from dp_pipelines.training.description import Statement
from dp_pipelines.training.features import moments, seen_columns
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.kept_draws import InMemory, Released
from dp_pipelines.training.kernels import of_task

STDDEV = 20.0


def released(columns: np.ndarray, seed: int = 1) -> np.ndarray:
    """Moments of columns of zeros and ones, with noise."""
    width = columns.shape[1]
    exact = (columns.T @ columns)[np.triu_indices(width)] * moments._weights(width)
    return exact + np.random.default_rng(seed).normal(0, STDDEV, len(exact))


def columns(rows: int = 4000) -> np.ndarray:
    """A constant, two common columns, one that nobody has."""
    made = np.random.default_rng(2)
    common = made.integers(0, 2, rows)
    return np.stack([np.ones(rows), common, 1 - common, np.zeros(rows)], axis=1)


def test_a_column_that_nobody_has_is_dropped_and_those_that_many_have_are_not() -> None:
    found = seen_columns.seen(released(columns()), Released(4000.0), STDDEV)
    assert found.columns.tolist() == [True, True, True, False]
    assert not found.whitening[3].any()
    assert not found.whitening[:, 3].any()
    alone = released(columns())[[0, 1, 2, 4, 5, 7]]  # the same noise, without the last column
    assert np.array_equal(found.whitening[:3, :3], moments.directions(alone, Released(4000.0), STDDEV).whitening)


def test_with_its_true_noise_hardly_any_empty_column_is_taken_for_one() -> None:
    """3 standard deviations: 1 in 741. Of 4,000 more than 30 are seen with a probability below 1e-13."""
    empty = np.zeros((1, 401))
    drawn = [seen_columns.standing_out(released(empty, seed), STDDEV)[1:].sum() for seed in range(10)]
    assert sum(drawn) <= 30
    # And with noise that is said to be half of what it is, a fifteenth are seen.
    assert seen_columns.standing_out(released(empty), STDDEV / 2)[1:].sum() > 5


@pytest.mark.parametrize("above", [True, False])
def test_noise_moves_no_weights_in_directions_that_no_example_tells_apart(above: bool) -> None:
    """More on both columns of a feature and less on the constant: the same score for every example.

    Nobody has the third, and its noise says no more than that, whether it is above zero or below.
    """
    drawn = (released(columns(), seed) for seed in range(50))
    noisy = next(of for of in drawn if (of[-1] > 0) == above and of[-1] <= 3 * STDDEV)
    found = seen_columns.seen(noisy, Released(4000.0), STDDEV, [[1, 2, 3]])
    assert found.whitening @ np.array([-1.0, 1.0, 1.0, 0.0]) == pytest.approx(np.zeros(4), abs=1e-12)
    if not above:
        plain = seen_columns.seen(noisy, Released(4000.0), STDDEV)
        assert np.abs(plain.whitening @ np.array([-1.0, 1.0, 1.0, 0.0])).max() > 1
    # What examples tell apart is whitened as well as before.
    rows = columns() @ found.whitening
    assert np.linalg.eigvalsh(rows.T @ rows / 4000)[-2:] == pytest.approx([1.0, 1.0], abs=0.1)


def test_the_constant_stays_whatever_the_noise_is() -> None:
    assert seen_columns.standing_out(np.full(6, -1e9), STDDEV).tolist() == [True, False, False]
    found = seen_columns.seen(np.full(6, -1e9), Released(0.0), STDDEV)
    assert np.isfinite(found.whitening).all()
    assert found.typical == 1.0


def test_of_a_trained_model_the_weights_of_empty_columns_are_zero(tmp_path: pathlib.Path) -> None:
    """Places of categories that were not found, bins beyond the last value, and values that are never missing."""
    task = TrainModel(
        privacy_unit="who",
        label=BinaryLabel(column="y"),
        features={
            "x": Number(column="x", min_value=0, max_value=100, edges=[1, 2, 50, 60, 70]),
            "kind": Category(column="kind", most=5),
        },
        steps=Steps(steps=5),
    )
    made = np.random.default_rng(5)
    x = made.integers(0, 4, 3000)
    rows = pa.table({"who": np.arange(3000), "x": x, "kind": made.choice(["a", "b"], 3000), "y": x > 1})
    fitted = fit.Fit(
        name="model",
        task=task,
        stages=Plan(epsilon=8, delta=1e-5, stages={"model": task}).round(1).stages,
        tables=lambda: iter([rows]),
        folder=tmp_path,
        draws=InMemory(),
        key=b"key",
        salt=7,
        tell=lambda text: None,
    ).run(Statement(unit="who", epsilon=1.0, delta=1e-6, plan=""))
    listed = fitted.artefact.linear_table()
    weights = dict(zip(listed.column("feature").to_pylist(), listed.column("weight").to_pylist(), strict=True))
    stddevs = dict(zip(listed.column("feature").to_pylist(), listed.column("stddev").to_pylist(), strict=True))
    empty = [
        "x in [50, 60)",
        "x in [60, 70)",
        "x from 70",
        "x is missing",
        "kind: free place 1",
        "kind is another or missing",
    ]
    assert [weights[name] for name in empty] == [stddevs[name] for name in empty] == [0.0] * len(empty)
    seen = ("constant", "x below 1", "x in [1, 2)", "x in [2, 50)", "kind = a", "kind = b")
    assert all(abs(weights[name]) > 0 and stddevs[name] > 0 for name in seen)


@pytest.mark.parametrize("width", [1, 2, 50])
def test_the_width_follows_from_the_number_of_moments(width: int) -> None:
    assert seen_columns.width_of(np.zeros(moments.size(width))) == width


def test_who_has_none_of_the_columns_that_stand_out_is_told_apart_where_they_are_enough_together() -> None:
    """Six columns that are each within their noise, and a tenth of the examples has one of them: nothing is projected out."""
    made, count = np.random.default_rng(9), 2000
    rows = np.zeros((count, 9))
    rows[:, 0] = 1
    rows[np.arange(count), 1 + made.choice(8, count, p=[0.45, 0.45, *[0.1 / 6] * 6])] = 1
    few = float(rows[:, 3:].sum(axis=0).max())
    noisy = (rows.T @ rows)[np.triu_indices(9)] * moments._weights(9)
    found = seen_columns.seen(noisy, Released(float(count)), few / 2.9, [list(range(1, 9))])
    assert found.columns.tolist() == [True, True, True] + [False] * 6
    none_of_them = np.array([1.0, -1.0, -1.0])  # the constant less both
    assert np.abs(found.whitening[:3, :3] @ none_of_them).max() > 0.5
    nobody = np.zeros((count, 9))
    nobody[:, :3] = rows[:, :3]
    nobody[:, 1] = 1 - nobody[:, 2]
    noisy = (nobody.T @ nobody)[np.triu_indices(9)] * moments._weights(9)
    found = seen_columns.seen(noisy, Released(float(count)), few / 2.9, [list(range(1, 9))])
    assert found.whitening[:3, :3] @ none_of_them == pytest.approx(np.zeros(3), abs=1e-12)


def crossed(rows: int = 4000) -> tuple[np.ndarray, Encoder]:
    """Rows of two categories and their pair, of which one cell is empty; the encoder."""
    names = {name: Category(column=name, categories=["p", "q"]) for name in "ab"}
    asked = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=names, pairs=[("a", "b")])
    made, encoder = np.random.default_rng(3), Encoder.of(asked)
    values = {name: made.choice(["p", "q", "r"], rows) for name in "ab"}
    values["b"] = np.where((values["a"] == "q") & (values["b"] == "q"), "p", values["b"])
    return encoder.encode(pa.table(values)).astype(float), encoder


def test_noise_moves_no_weights_in_directions_that_pairs_add_nothing_to() -> None:
    """Seven columns and nine cells: nine combinations less an empty one are all that examples can differ in."""
    rows, encoder = crossed()
    noisy = next(drawn for drawn in (released(rows, seed) for seed in range(99)) if empty_cell(drawn, rows) < 0)
    found = seen_columns.seen(noisy, Released(4000.0), STDDEV, encoder.one_of, encoder.parts)
    assert found.columns.sum() == 1 + 6 + 9 - 1
    assert np.linalg.matrix_rank(found.whitening, tol=1e-6) == 8
    assert np.linalg.matrix_rank(rows) == 8
    for whole, listed in encoder.parts:
        same = np.eye(16)[whole] - np.eye(16)[list(listed)].sum(axis=0)
        assert found.whitening @ (same * found.columns) == pytest.approx(np.zeros(16), abs=1e-9)
    white = rows @ found.whitening
    assert np.sort(np.linalg.eigvalsh(white.T @ white / 4000))[-8:] == pytest.approx(
        np.ones(8), abs=0.2
    )  # the rarest cells: the ridge


def empty_cell(noisy: np.ndarray, rows: np.ndarray) -> float:
    """The released moment of the cell that nobody is in."""
    (place,) = np.flatnonzero(rows.sum(axis=0) == 0)
    near, far = np.triu_indices(rows.shape[1])
    return float(noisy[(near == place) & (far == place)][0])


def test_sums_that_noise_has_made_contradict_each_other_leave_every_column_that_stands_out() -> None:
    """The first pair says that nobody has b = p, the second that everybody has it: together, that there is nobody at all."""
    names = {name: Category(column=name, categories=["p"]) for name in "abc"}
    asked = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=names, pairs=[("a", "b"), ("b", "c")])
    encoder = Encoder.of(asked)
    cells = {name: place for place, name in enumerate(encoder.names)}
    assert len(cells) == 1 + 6 + 8
    for seed in range(300):
        made = np.random.default_rng(seed)
        values = {name: np.where(made.random(140) < made.random(), "p", "q") for name in "abc"}
        rows = encoder.encode(pa.table(values)).astype(float)
        found = seen_columns.seen(released(rows, seed), Released(140.0), STDDEV, encoder.one_of, encoder.parts)
        kept = np.diag(found.whitening)[found.columns]
        assert kept.min() > 1e-3 * kept.max(), seed


@pytest.mark.parametrize("compiles", [True, False])
def test_training_on_few_units_with_many_pairs_takes_its_steps(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    monkeypatch.setattr(of_task, "compiles", lambda: compiles)
    names = "abcdef"
    task = TrainModel(
        privacy_unit="who",
        label=BinaryLabel(column="y"),
        features={name: Category(column=name, categories=["p"]) for name in names},
        pairs=list(itertools.combinations(names, 2)),
        steps=Steps(steps=3),
        max_examples_per_unit=1,
    )
    plan = Plan(epsilon=5, delta=1e-6, stages={"model": task})
    made = np.random.default_rng(1)
    rows = pa.table({
        "who": np.arange(423), "y": made.random(423) < 0.5, **{name: made.choice(["p", "q"], 423) for name in names}
    })  # fmt: skip
    for turn in range(6):
        (tmp_path / str(turn)).mkdir()
        model = fit.Fit(
            name="model", task=task, stages=plan.round(1).stages, tables=lambda: iter([rows]), folder=tmp_path / str(turn),
            draws=InMemory(), key=b"key", salt=7, tell=lambda text: None,
        ).run(Statement(unit="who", epsilon=1.0, delta=1e-6, plan="")).artefact  # fmt: skip
        assert float(np.abs(model.linear_table()["weight"].to_numpy()).max()) > 1e-6
