"""The default learning rate: training converges whatever the norm of the features is, whitened or as they are.

In: encoded features of several norms, the worst among them (all rows alike). Out: losses of fitted models, curvatures. Holds: the
noise is that of a plan, small beside what is asserted (nothing fails once in 1e9 runs). Not covered: how fast (docs/training.md).
"""

import math
import pathlib

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import MLP, BinaryLabel, ClassLabel, LinearModel, Number, NumberLabel, Plan, Steps, TrainModel
from dp_pipelines.query.train_model import Label, Model
from dp_pipelines.training import fit, trainer
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.kernels.linear import LinearKernel
from tests.training.test_fit import STATEMENT, InMemory

UNITS = 2000
LABELS: dict[str, Label] = {
    "binary": BinaryLabel(column="y"),
    "classes": ClassLabel(column="y", classes=[0, 1, 2]),
    "number": NumberLabel(column="y", min_value=0, max_value=2),
}


def task(label: Label, count: int, model: Model = LinearModel(), *, whiten: bool = False) -> TrainModel:
    """A model of so many scaled features: the squared norm of a row is up to 1 + 2 * count."""
    features = {f"x{n}": Number(column=f"x{n}", min_value=0, max_value=1, bins=1, scaled=True) for n in range(count)}
    return TrainModel(
        privacy_unit="who", label=label, features=features, model=model, steps=Steps(steps=40), whiten=whiten
    )


def alike(label: Label, count: int) -> pa.Table:
    """All features of all units are the same, so that every row bends the loss in one direction; labels differ."""
    values = {BinaryLabel: [0, 1, 1, 1, 1], ClassLabel: [0, 0, 0, 0, 1, 0, 0, 0, 0, 2], NumberLabel: [1, 2, 2, 2]}[
        type(label)
    ]
    y = np.resize(values, UNITS)
    return pa.table({"who": np.arange(UNITS), "y": y, **{f"x{n}": np.ones(UNITS) for n in range(count)}})


def losses(asked: TrainModel, rows: pa.Table, folder: pathlib.Path) -> tuple[float, float, float]:
    """The mean loss before the first step, of the fitted model, and of the best model that says the same of every row."""
    plan = Plan(epsilon=39, delta=1e-3, stages={"model": asked})
    fitted = fit.Fit(
        name="model", task=asked, stages=plan.round(1).stages, tables=lambda: iter([rows]), folder=folder,
        draws=InMemory(), key=b"key", salt=7, tell=lambda text: None,
    ).run(STATEMENT)  # fmt: skip
    y, scores = rows.column("y").to_numpy(), fitted.artefact.scores(rows)
    shares = np.bincount(y) / len(y)
    if isinstance(asked.label, NumberLabel):
        return float(np.mean(y**2)) / 8, float(np.mean((scores - y) ** 2)) / 8, float(np.var(y)) / 8
    logits = scores if scores.ndim == 2 else np.stack([np.zeros(len(y)), scores], axis=1)
    whole = np.logaddexp.reduce(logits, axis=1)
    found = float(np.mean(whole - logits[np.arange(len(y)), y]))
    return math.log(len(shares)), found, float(-np.sum(shares * np.log(shares)))


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("count", [1, 5, 25])
def test_the_defaults_converge_on_features_as_they_are_whatever_their_norm(
    tmp_path: pathlib.Path, label: str, count: int
) -> None:
    first, found, best = losses(task(LABELS[label], count), alike(LABELS[label], count), tmp_path)
    assert best - 1e-9 <= found < best + 0.02 * first
    assert best < 0.9 * first


@pytest.mark.parametrize("label", LABELS)
def test_the_defaults_converge_for_networks_on_features_as_they_are(tmp_path: pathlib.Path, label: str) -> None:
    first, found, best = losses(task(LABELS[label], 20, MLP(hidden=(16,))), alike(LABELS[label], 20), tmp_path)
    assert found < best + 0.1 * (first - best)


@pytest.mark.parametrize("label", LABELS)
def test_the_defaults_converge_on_whitened_features(tmp_path: pathlib.Path, label: str) -> None:
    first, found, best = losses(task(LABELS[label], 5, whiten=True), alike(LABELS[label], 5), tmp_path)
    assert found < best + 0.02 * first


def test_a_rate_that_forgets_the_norm_diverges(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: what the default was before."""
    monkeypatch.setattr(trainer, "default_rate", lambda kernel, reach: 1 / kernel.curvature)
    first, found, _ = losses(task(LABELS["number"], 25), alike(LABELS["number"], 25), tmp_path)
    assert found > first


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("count", [1, 6])
def test_the_mean_loss_bends_by_no_more_than_the_inverse_of_the_rate_and_where_rows_are_alike_by_nearly_that(
    label: str, count: int
) -> None:
    asked = task(LABELS[label], count)
    encoder, kernel = Encoder.of(asked), LinearKernel(width=asked.width, label=asked.label)
    most = 1 / trainer.default_rate(kernel, encoder.row_norm**2)
    made, found = np.random.default_rng(4), []
    for rows in (np.ones(UNITS), made.random(UNITS)):
        table = pa.table({f"x{n}": rows for n in range(count)})
        features = encoder.encode(table)
        chunk = Chunk(features, np.zeros(UNITS), np.arange(UNITS + 1))
        weights = np.zeros(kernel.size)
        if isinstance(asked.label, ClassLabel):  # softmax bends most where two classes are all there is
            weights.reshape(3, -1)[2, 0] = -50
        columns = []
        for place in range(kernel.size):
            step = np.zeros(kernel.size)
            step[place] = 1e-3
            ends = [kernel.clipped_sum(weights + sign * step, chunk, 1e3) for sign in (1, -1)]
            columns.append((ends[0] - ends[1]) / 2e-3 / UNITS)
        hessian = np.array(columns)
        found.append(float(np.linalg.eigvalsh((hessian + hessian.T) / 2)[-1]))
    assert max(found) <= most * (1 + 1e-4)
    assert found[0] >= 0.999 * most
