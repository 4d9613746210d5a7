"""`RunInference` with a published model: the same predictions as by hand, for tables and for rows, on Beam's own runner."""

import pathlib
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.ml.inference.base import RunInference
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from dp_pipelines.errors import RequestError
from dp_pipelines.query.train_model import BinaryLabel, Category, ClassLabel, JaxModel, LinearModel, Number, TrainModel
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.description import Statement
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.transforms.model import DpModelHandler

FEATURES = {
    "visits": Number(column="visits", min_value=0, max_value=10, edges=[1.5, 3.5]),
    "product": Category(column="product", categories=["p0", "p1"]),
}


def model(folder: pathlib.Path, label: Any = BinaryLabel(column="y"), kind: Any = LinearModel()) -> Artefact:
    task = TrainModel(privacy_unit="customer", label=label, features=FEATURES, whiten=False, model=kind)
    made = Artefact(
        task=task,
        encoder=Encoder.of(task),
        parameters=np.random.default_rng(1).normal(0, 1, task.size),
        whitening=None,
        privacy=Statement(unit="value of customer", epsilon=1.0, delta=1e-6, plan="ab"),
    )
    made.save(folder)
    return made


ROWS: list[dict[str, Any]] = [
    {"visits": 1.0, "product": "p0", "more": "x"},
    {"visits": None, "product": "p1"},
    {"visits": 7, "product": None},
    {"visits": "many", "product": 5},
    {},
]
AS_TABLE = pa.table({"visits": [1.0, None, 7.0, None, None], "product": ["p0", "p1", None, None, None]})


class Visit(NamedTuple):
    visits: float
    product: str


def run(elements: list[Any], handler: DpModelHandler, check: Any) -> None:
    """A pipeline over the elements, on the runner that every portable runner follows."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(pipeline | beam.Create(elements) | RunInference(handler), check)


def test_tables_get_tables_of_predictions(tmp_path: pathlib.Path) -> None:
    wanted = model(tmp_path).predict(AS_TABLE)
    halves = [AS_TABLE.slice(0, 2), AS_TABLE.slice(2)]

    def check(results: list[Any]) -> None:
        assert len(results) == 2
        for result in results:
            assert result.inference.equals(wanted.slice(0, 2) if result.example.num_rows == 2 else wanted.slice(2))

    run(halves, DpModelHandler(tmp_path), check)


def test_rows_get_mappings_whatever_they_hold(tmp_path: pathlib.Path) -> None:
    wanted = model(tmp_path).predict(AS_TABLE).to_pylist()

    def check(results: list[Any]) -> None:
        said = {str(result.example): result.inference["probability"] for result in results}
        assert said == pytest.approx({str(row): one["probability"] for row, one in zip(ROWS, wanted, strict=True)})

    run(ROWS, DpModelHandler(tmp_path), check)


def test_named_rows_have_their_columns_by_name(tmp_path: pathlib.Path) -> None:
    label = ClassLabel(column="y", classes=["a", "b", "c"])
    (wanted,) = model(tmp_path, label).predict(AS_TABLE.slice(0, 1)).to_pylist()

    def check(results: list[Any]) -> None:
        assert [result.inference for result in results] == [wanted]

    run([Visit(1.0, "p0")], DpModelHandler(tmp_path), check)


def test_a_prediction_does_not_depend_on_its_batch(tmp_path: pathlib.Path) -> None:
    made, handler = model(tmp_path), DpModelHandler(tmp_path)
    whole = [result.inference for result in handler.run_inference(ROWS, made)]
    alone = [next(handler.run_inference([row], made)).inference for row in ROWS]
    assert [one["probability"] for one in whole] == pytest.approx([one["probability"] for one in alone], abs=1e-14)


def test_tables_and_rows_do_not_mix(tmp_path: pathlib.Path) -> None:
    made = model(tmp_path)
    with pytest.raises(RequestError, match="tables and rows"):
        list(DpModelHandler(tmp_path).run_inference([AS_TABLE, ROWS[0]], made))


def test_what_is_no_model_fails_where_it_is_loaded(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RequestError, match=r"model\.json"):
        DpModelHandler(tmp_path).load_model()


def test_code_of_ones_own_is_named_by_the_caller(tmp_path: pathlib.Path) -> None:
    model(tmp_path, kind=JaxModel(name="os:getcwd", parameters=1))
    with pytest.raises(RequestError, match="no file loads code by itself"):
        DpModelHandler(tmp_path).load_model()
    DpModelHandler(tmp_path, jax_model="os:getcwd").load_model()


def test_another_model_can_be_taken_while_the_pipeline_runs(tmp_path: pathlib.Path) -> None:
    for name in ("a", "b"):
        model(tmp_path / name)
    handler = DpModelHandler(tmp_path / "a")
    handler.update_model_path(str(tmp_path / "b"))
    (result,) = handler.run_inference([AS_TABLE], handler.load_model())
    assert result.model_id == str(tmp_path / "b")
