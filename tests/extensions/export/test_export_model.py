"""`dp-pipelines export`: files that give what `predict` gives, and refusals before anything is written.

In: published models, arguments. Out: SQL and ONNX files, messages, exit codes. Holds: the columns that the job defines are
named. Not covered: odd values (`tests/extensions/export`).
"""

import importlib.util
import json
import pathlib
from collections.abc import Callable

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.query.train_model import MLP, Category, Number
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.description import Preparation
from tests.jobs.conftest import Said
from tests.jobs.predict.test_predict import model

Call = Callable[..., Said]


@pytest.fixture
def shop_model(tmp_path: pathlib.Path) -> Artefact:
    return model(tmp_path / "model")


def examples(tmp_path: pathlib.Path) -> pathlib.Path:
    """A file of examples."""
    made = np.random.default_rng(1)
    rows = {"customer": np.arange(50), "visits": made.integers(0, 9, 50), "double": made.normal(20, 20, 50)}
    table = pa.table({**rows, "product": [f"p{place}" if place else None for place in made.integers(0, 5, 50)]})
    pa.parquet.write_table(table, tmp_path / "examples.parquet")
    return tmp_path / "examples.parquet"


def test_sql_gives_what_predict_gives(tmp_path: pathlib.Path, shop_model: Artefact, call: Call) -> None:
    rows = examples(tmp_path)
    assert call("predict", tmp_path / "model", rows, "--examples", "--output", tmp_path / "scores.parquet").code == 0
    said = call("export", tmp_path / "model", "--format", "sql", "--output", tmp_path / "model.sql")
    assert said.code == 0, said.err
    assert "gives probability" in said.out
    assert "it reads double (double), product (string), visits (double)" in said.out
    assert "defined by the job, so make them as its columns say: double, visits" in said.out
    assert "the guarantee of the release does not cover predictions" in said.err
    text = (tmp_path / "model.sql").read_text()
    found = duckdb.sql(f"SELECT customer, ({text}) AS probability FROM '{rows}' ORDER BY customer").fetchall()
    wanted = pa.parquet.read_table(tmp_path / "scores.parquet").sort_by("customer")
    assert [row[1] for row in found] == pytest.approx(wanted["probability"].to_pylist(), rel=1e-12)


def test_onnx_gives_what_predict_gives(tmp_path: pathlib.Path, shop_model: Artefact, call: Call) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    rows = examples(tmp_path)
    said = call("export", tmp_path / "model", "--format", "onnx", "--output", tmp_path / "model.onnx", "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert told["columns"] == {"visits": "double", "double": "double", "product": "string"}
    assert told["results"] == ["probability"]
    assert told["missing"] == {"product": ""}
    table = pa.parquet.read_table(rows)
    given = {name: table[name].to_numpy().astype(np.float64) for name in ("visits", "double")}
    given["product"] = np.array([text or "" for text in table["product"].to_pylist()], object)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(["probability"], given)
    assert found == pytest.approx(np.array(shop_model.predict(table)["probability"]), rel=1e-12)


@pytest.mark.parametrize("number_first", [True, False])
def test_a_column_of_truths_may_be_a_number_and_a_category(
    tmp_path: pathlib.Path, call: Call, number_first: bool
) -> None:
    of = {"number": Number(column="flag", min_value=0, max_value=1, edges=[0.5])}
    of = {**of, "kind": Category(column="flag", categories=[True, False])}
    features = dict(of.items() if number_first else reversed(of.items()))
    made = model(tmp_path / "model", Preparation(source={"flag": "bool"}), features=features)
    assert made.input_types == {"flag": pa.bool_()}
    said = call("export", tmp_path / "model", "--format", "sql", "--output", tmp_path / "model.sql")
    assert said.code == 0, said.err
    rows = pa.table({"flag": [True, False, None]})
    found = duckdb.sql(f"SELECT ({(tmp_path / 'model.sql').read_text()}) FROM rows").fetchall()
    assert [row[0] for row in found] == pytest.approx(made.predict(rows)["probability"].to_pylist(), rel=1e-12)


def refused(tmp_path: pathlib.Path, call: Call, *arguments: object) -> str:
    """What a refusal says; nothing may be written."""
    said = call("export", tmp_path / "model", *arguments, "--output", tmp_path / "out")
    assert said.code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    return said.err


def test_what_cannot_be_exported_is_refused_and_nothing_is_written(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call
) -> None:
    assert "--dialect: only applies to --format sql" in refused(
        tmp_path, call, "--format", "onnx", "--dialect", "duckdb"
    )
    assert "is none of this model" in refused(tmp_path, call, "--format", "sql", "--result", "probabilities")
    model(tmp_path / "model", model=MLP(hidden=(2,)))
    assert "is not linear" in refused(tmp_path, call, "--format", "sql")


def test_onnx_needs_its_library(
    tmp_path: pathlib.Path, shop_model: Artefact, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnx" else real(name))
    assert "pip install 'dp-pipelines[onnx]'" in refused(tmp_path, call, "--format", "onnx")


def test_an_existing_file_is_never_replaced(tmp_path: pathlib.Path, shop_model: Artefact, call: Call) -> None:
    (tmp_path / "model.sql").write_text("mine")
    said = call("export", tmp_path / "model", "--format", "sql", "--output", tmp_path / "model.sql")
    assert (said.code, (tmp_path / "model.sql").read_text()) == (2, "mine")
