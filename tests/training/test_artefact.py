"""A model as files: the same after as before, readable, refused by name where it is damaged or foreign; nothing of it runs."""

import datetime
import hashlib
import itertools
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.query.train_model import (
    MLP,
    BinaryLabel,
    Category,
    ClassLabel,
    JaxModel,
    LinearModel,
    Number,
    NumberLabel,
    Steps,
    TrainModel,
)
from dp_pipelines.training import artefact
from dp_pipelines.training.artefact import MODEL, TENSORS, WEIGHTS, Artefact, load
from dp_pipelines.training.description import NOT_COVERED, Preparation, Statement
from dp_pipelines.training.features.encoder import Encoder

LABELS = {
    "binary": BinaryLabel(column="y"),
    "classes": ClassLabel(column="y", classes=["a", "b", "c"]),
    "numbers": NumberLabel(column="y", min_value=-10, max_value=30),
}
FEATURES = {
    "visits": Number(column="visits", min_value=0, max_value=60, bins=3, scaled=True),
    "age": Category(column="age", most=3),
    "member": Category(column="member", categories=[True, False]),
}
STATEMENT = Statement(unit="value of customer", epsilon=1.0, delta=1e-6, plan="ab" * 8)
PREPARATION = Preparation(
    source={"customer": "int64", "day": "date32[day]"},
    where="day < {end}",
    columns={"visits": "CAST(n AS DOUBLE)"},
    params={"end": ("date", "2026-01-31")},
    unit_columns={"last": "max(day) OVER ()"},
    max_rows_per_unit=100,
)


def made(label: str = "binary", model: Any = LinearModel(), *, whiten: bool = True, **changed: Any) -> Artefact:
    task = TrainModel(
        privacy_unit="customer", label=LABELS[label], features=FEATURES, model=model, whiten=whiten,
        steps=Steps(steps=7, momentum=0.3),
    )  # fmt: skip
    encoder = Encoder.of(
        task, edges={"visits": [2.0, 5.5]}, vocabulary={"age": ["B", "<|>", datetime.date(2026, 1, 1)]}
    )
    drawn = np.random.default_rng(1)
    arguments: dict[str, Any] = {
        "task": task,
        "encoder": encoder,
        "parameters": drawn.normal(0, 1, task.size),
        "whitening": drawn.normal(0, 1, (task.width, task.width)) if whiten else None,
        "privacy": STATEMENT,
        "preparation": PREPARATION,
        "path": {"gradient_norm": [3.5, float("inf"), 1 / 3]},
    }
    return Artefact(**{**arguments, **changed})


def examples(rows: int = 200) -> pa.Table:
    drawn = np.random.default_rng(2)
    visits = [None if n % 7 == 0 else float(n) for n in drawn.integers(0, 70, rows).tolist()]
    return pa.table(
        {
            "customer": drawn.integers(0, 50, rows),
            "visits": pa.array(visits, pa.float64()),
            "age": pa.array([("A", "B", "<|>", None)[n] for n in drawn.integers(0, 4, rows)]),
            "member": drawn.integers(0, 2, rows).astype(bool),
        }
    )


MODELS = [LinearModel(), MLP(hidden=[4]), MLP(hidden=[5, 3])]


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("model", MODELS, ids=["linear", "one layer", "two layers"])
def test_what_is_loaded_is_what_was_saved(tmp_path: pathlib.Path, label: str, model: Any, whiten: bool) -> None:
    before = made(label, model, whiten=whiten)
    before.save(tmp_path)
    after = load(tmp_path)
    assert after.task == before.task
    assert after.encoder == before.encoder
    assert after.privacy == before.privacy
    assert after.preparation == before.preparation
    assert after.parameters.tobytes() == before.parameters.tobytes()
    assert (after.whitening is None) == (not whiten)
    assert np.isnan(after.path["gradient_norm"][1])
    assert after.path["gradient_norm"][2] == 1 / 3
    assert after.predict(examples()).equals(before.predict(examples()))
    again = tmp_path / "again"
    after.save(again)
    assert {p.name: p.read_bytes() for p in again.iterdir()} == {
        p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()
    }


@settings(max_examples=30, deadline=None)
@given(bits=st.lists(st.integers(0, 2**64 - 1), min_size=13, max_size=13))
def test_every_number_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, bits: list[int]) -> None:
    folder = tmp_path_factory.mktemp("model")
    before = made(whiten=False, parameters=np.array(bits, np.uint64).view(np.float64))
    before.save(folder)
    after = load(folder)
    assert after.parameters.tobytes() == before.parameters.tobytes()
    assert len(after.predict(examples())) == 200  # whatever the numbers are


def test_the_statement_says_who_is_protected_and_what_is_not_covered(tmp_path: pathlib.Path) -> None:
    made().save(tmp_path)
    said = json.loads((tmp_path / MODEL).read_text())["privacy"]
    assert said["unit"] == "value of customer"
    assert (said["epsilon"], said["delta"], said["plan"]) == (1.0, 1e-6, "ab" * 8)
    assert "one value of customer changes" in said["words"]
    assert said["not_covered"] == list(NOT_COVERED)


def naive(model: Artefact, table: pa.Table) -> np.ndarray[Any, Any]:
    """Scores by hand, row by row, in float64."""
    found, outputs = [], model.task.label.outputs
    linear = isinstance(model.task.model, LinearModel)
    layers: list[Any] = []
    if isinstance(model.task.model, MLP):
        sizes, at = (model.task.width, *model.task.model.hidden, outputs), 0
        for before, after in itertools.pairwise(sizes):
            layer = model.parameters[at : at + (before + 1) * after].reshape(before + 1, after)
            layers.append((layer[:-1], layer[-1]))
            at += layer.size
    for row in model.encoder.encode(table).astype(np.float64):
        if model.whitening is not None:
            row = row @ model.whitening
        if linear:
            row = np.array([sum(row * weights) for weights in np.split(model.parameters, outputs)])
        for place, (weights, biases) in enumerate(layers):
            row = weights.T @ row + biases
            row = np.tanh(row) if place < len(layers) - 1 else row
        found.append(-10 + 40 * row if isinstance(model.task.label, NumberLabel) else row)
    return np.array(found)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("model", MODELS, ids=["linear", "one layer", "two layers"])
def test_scores_are_those_of_the_definition(label: str, model: Any) -> None:
    with_model, table = made(label, model), examples()
    outputs = with_model.task.label.outputs
    assert with_model.scores(table).reshape(-1, outputs) == pytest.approx(naive(with_model, table), abs=1e-4)


@pytest.mark.parametrize("label", LABELS)
def test_predictions_have_their_columns_and_stay_within_what_can_be(label: str) -> None:
    found = made(label).predict(examples())
    assert found.num_rows == 200
    if label == "numbers":
        values = found.column("prediction").to_numpy()
        assert -10 <= values.min() <= values.max() <= 30
        return
    chances = found.column("probability").to_numpy()
    assert 0 <= chances.min() <= chances.max() <= 1
    if label == "classes":
        assert set(found.column("prediction").to_pylist()) <= {"a", "b", "c"}
        of_all = np.array(found.column("probabilities").to_pylist())
        assert of_all.sum(axis=1) == pytest.approx(np.ones(200))
        assert of_all.max(axis=1) == pytest.approx(chances)


@pytest.mark.parametrize("label", LABELS)
def test_no_rows_give_no_predictions_of_the_same_types(label: str) -> None:
    model = made(label)
    assert model.predict(examples(0)).schema == model.predict(examples()).schema
    assert model.predict(examples(0)).num_rows == 0


def test_large_tables_are_scored_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made().scores(examples())
    monkeypatch.setattr(artefact, "BATCH_NUMBERS", 100)
    assert made().scores(examples()) == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("label", LABELS)
def test_weights_of_a_linear_model_give_its_scores_without_the_whitening(label: str) -> None:
    model, table = made(label), examples()
    listed = model.linear_table()
    assert listed.column("feature").to_pylist() == list(model.encoder.names)
    names = ["weight of a", "weight of b", "weight of c"] if label == "classes" else ["weight"]
    assert listed.column_names[1:] == names
    weights = np.stack([listed.column(name).to_numpy() for name in names], axis=1)
    found = model.encoder.encode(table).astype(float) @ weights
    assert found == pytest.approx(model.scores(table).reshape(-1, len(names)), abs=1e-4)


def test_the_weights_lie_beside_the_model_as_csv(tmp_path: pathlib.Path) -> None:
    model = made()
    assert set(model.save(tmp_path)) == {MODEL, TENSORS, WEIGHTS}
    assert pa.csv.read_csv(tmp_path / WEIGHTS).equals(model.linear_table())
    assert model.linear_markdown().splitlines()[0] == "| feature | weight |"
    assert "age = \\<\\|\\>" in model.linear_markdown()


@pytest.mark.parametrize("label", LABELS)
def test_the_noise_of_weights_stands_beside_them_and_comes_back(tmp_path: pathlib.Path, label: str) -> None:
    outputs = LABELS[label].outputs
    stddevs = np.random.default_rng(4).random((made(label).task.width, outputs))
    before = made(label, weight_stddevs=stddevs)
    before.save(tmp_path)
    after = load(tmp_path)
    assert after.weight_stddevs is not None
    assert after.weight_stddevs.tobytes() == stddevs.tobytes()
    names = ["stddev of a", "stddev of b", "stddev of c"] if label == "classes" else ["stddev"]
    listed = pa.csv.read_csv(tmp_path / WEIGHTS)
    assert listed.column_names[1 + outputs :] == names
    for place, name in enumerate(names):
        assert listed.column(name).to_pylist() == stddevs[:, place].tolist()
    with pytest.raises(RequestError, match="weight_stddevs"):
        made(label, weight_stddevs=stddevs[1:])


@pytest.mark.parametrize("odd", [[], [[1.0], ["x"]], "x", [[float("nan")]], {}, [[1.0, 2.0], [3.0]]])
def test_noise_of_weights_that_is_none_is_refused(tmp_path: pathlib.Path, odd: Any) -> None:
    made().save(tmp_path)
    content = json.loads((tmp_path / MODEL).read_text())
    (tmp_path / MODEL).write_text(json.dumps({**content, "weight_stddevs": odd}))
    with pytest.raises(RequestError, match=r"model\.json|safetensors"):
        load(tmp_path)


def test_a_network_has_no_table_of_weights(tmp_path: pathlib.Path) -> None:
    model = made(model=MLP(hidden=[4]))
    assert set(model.save(tmp_path)) == {MODEL, TENSORS}
    with pytest.raises(RequestError, match="not a linear model"):
        model.linear_table()


class Half:
    """The object that a `JaxModel` names."""

    def scores(self, parameters: Any, features: Any) -> Any:
        return features.sum(axis=1) * parameters[0]


def test_a_jax_model_is_scored_by_what_its_user_hands_over(tmp_path: pathlib.Path) -> None:
    model = made(model=JaxModel(name="nowhere.to_be_found:model", parameters=2), whiten=False)
    model.save(tmp_path)
    after = load(tmp_path)  # imports nothing of that name
    with pytest.raises(RequestError, match=r"nowhere\.to_be_found:model.*import it and hand it over"):
        after.predict(examples())
    rows = after.encoder.encode(examples())
    assert after.scores(examples(), jax_model=Half()) == pytest.approx(rows.sum(axis=1) * model.parameters[0])
    with pytest.raises(RequestError, match="scores of the shape"):
        after.scores(examples(), jax_model=type("Odd", (), {"scores": lambda *_: np.zeros(3)})())


def test_loading_and_predicting_import_neither_jax_nor_pickle(tmp_path: pathlib.Path) -> None:
    made(model=MLP(hidden=[4])).save(tmp_path)
    code = (
        "import sys, builtins, pickle\n"
        "def no(*_, **__): raise AssertionError('unpickled')\n"
        "pickle.loads = pickle.load = pickle.Unpickler = no\n"
        "from dp_pipelines.training.artefact import load\n"
        "import pyarrow as pa\n"
        f"model = load({str(tmp_path)!r})\n"
        "table = pa.table({'visits': [1.0], 'age': ['B'], 'member': [True]})\n"
        "assert model.predict(table).num_rows == 1\n"
        "print(sorted({'jax', 'torch'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_missing_columns_are_named() -> None:
    with pytest.raises(RequestError, match="'visits'"):
        made().predict(examples().drop_columns(["visits"]))


def changed(folder: pathlib.Path, change: Any) -> None:
    """Write the JSON of a model anew."""
    content = json.loads((folder / MODEL).read_text())
    change(content)
    (folder / MODEL).write_text(json.dumps(content))


def refused(folder: pathlib.Path) -> str:
    with pytest.raises(RequestError) as found:
        load(folder)
    return str(found.value)


def test_what_is_no_model_is_refused_by_file(tmp_path: pathlib.Path) -> None:
    assert "model.json" in refused(tmp_path)
    assert "name the folder of a model" in refused(tmp_path / "nowhere")
    for text in ("", "{", "[]", "3", '{"format": NaN}', "[" * 100_000, "\x00\xff"):
        (tmp_path / MODEL).write_text(text)
        assert "model.json" in refused(tmp_path)
    (tmp_path / MODEL).write_text('{"format": 2}')
    assert "take a newer version" in refused(tmp_path)


def test_every_missing_or_odd_part_is_refused(tmp_path: pathlib.Path) -> None:
    made().save(tmp_path)
    sound = json.loads((tmp_path / MODEL).read_text())
    for key in sound:
        for odd in (None, 7, "x", [], {}, {"kind": "x"}, [{"a": 1}]):
            if (key, odd) in (("path", {}), ("preparation", {})):
                continue
            (tmp_path / MODEL).write_text(json.dumps({**sound, key: odd}))
            assert MODEL in refused(tmp_path)
    (tmp_path / MODEL).write_text(json.dumps(sound))
    load(tmp_path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_is_changed_in_the_json_it_is_a_model_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("model")
    made().save(folder)
    content = json.loads((folder / MODEL).read_text())
    at: Any = content
    while True:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], (dict, list)) or not at[key] or data.draw(st.booleans()):
            at[key] = data.draw(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats()
                | st.text(max_size=5)
                | st.just([])
                | st.just({})
            )
            break
        at = at[key]
    (folder / MODEL).write_text(json.dumps(content))
    try:
        model = load(folder)
    except RequestError:
        return
    assert model.parameters.shape == (13,)


def test_tensors_that_were_changed_cut_or_swapped_are_refused(tmp_path: pathlib.Path) -> None:
    made().save(tmp_path)
    sound = (tmp_path / TENSORS).read_bytes()
    for damaged in (sound[:-1], sound[:20], b"", sound + b"x", sound[:-1] + bytes([sound[-1] ^ 1])):
        (tmp_path / TENSORS).write_bytes(damaged)
        assert "its SHA-256 differs" in refused(tmp_path)
    (tmp_path / TENSORS).unlink()
    assert TENSORS in refused(tmp_path)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"parameters": np.zeros(13)},
        {"parameters": np.zeros(14), "whitening": np.zeros((13, 13))},
        {"parameters": np.zeros(13, np.float32), "whitening": np.zeros((13, 13))},
        {"parameters": np.zeros(13), "whitening": np.zeros(169)},
        {"parameters": np.zeros(13), "whitening": np.zeros((13, 13)), "more": np.zeros(1)},
    ],
)
def test_other_numbers_than_the_task_has_are_refused(tmp_path: pathlib.Path, tensors: Any) -> None:
    made().save(tmp_path)
    raw = safetensors.numpy.save(tensors)
    (tmp_path / TENSORS).write_bytes(raw)
    changed(tmp_path, lambda content: content["tensors"].update(sha256=hashlib.sha256(raw).hexdigest()))
    assert "does not hold the numbers" in refused(tmp_path)


def test_a_tensor_file_that_is_no_safetensors_is_refused_whatever_its_digest(tmp_path: pathlib.Path) -> None:
    made().save(tmp_path)
    for raw in (b"", b"\xff" * 64, b"\x80\x04."):
        (tmp_path / TENSORS).write_bytes(raw)
        changed(tmp_path, lambda content, raw=raw: content["tensors"].update(sha256=hashlib.sha256(raw).hexdigest()))
        assert "no whole safetensors file" in refused(tmp_path)


def test_a_file_larger_than_the_model_is_not_read(tmp_path: pathlib.Path) -> None:
    made().save(tmp_path)
    with (tmp_path / TENSORS).open("r+b") as stream:
        stream.truncate(2**33)  # a hole: eight gigabytes that take no room
    assert "larger than its model can be" in refused(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [{"parameters": np.zeros(3)}, {"whitening": None}, {"whitening": np.zeros((2, 2))}],
)
def test_numbers_that_do_not_fit_the_task_make_no_artefact(wrong: Any) -> None:
    with pytest.raises(RequestError, match="follows from the task"):
        made(**wrong)


def test_what_was_chosen_of_the_steps_is_kept_and_nothing_else_is_taken_for_it(tmp_path: pathlib.Path) -> None:
    made(taken={"learning_rate": 0.25, "averaged": 7}).save(tmp_path)
    assert load(tmp_path).taken == {"learning_rate": 0.25, "averaged": 7}
    content = json.loads((tmp_path / MODEL).read_text())
    for odd in ([], "x", {"averaged": "7"}, {"averaged": True}, {"averaged": -1}, {"averaged": None}):
        (tmp_path / MODEL).write_text(json.dumps({**content, "taken": odd}))
        with pytest.raises(RequestError, match="taken"):
            load(tmp_path)
    del content["taken"]
    (tmp_path / MODEL).write_text(json.dumps(content))
    assert load(tmp_path).taken == {}
