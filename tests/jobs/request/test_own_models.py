"""Models of somebody's own in job files: named by import path, tried before anything is charged, a part of what a run is.

In: the shop, modules written beside the job. Out: exit codes, messages with the line of the job, releases. Holds: a run id
means the same code. Not covered: gradients and sums (`tests/training/kernels`).
"""

import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.query.train_model import JaxModel
from dp_pipelines.training.kernels.jax_model import code_digest
from tests.jobs.conftest import Said, Shop

pytest.importorskip("jax_privacy")

Call = Callable[..., Said]

CODE = """
import numpy as np

class Own:
    size = 5
    def initial(self):
        return np.zeros(5)
    def gradient(self, parameters, features, labels):
        return features.T @ (features @ parameters - labels)
    def scores(self, parameters, features):
        return features @ parameters

own = Own()
"""
MODULE = "own_model_of_this_shop"


@pytest.fixture
def code(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A module that a job can name."""
    monkeypatch.syspath_prepend(str(shop.folder))
    path = shop.folder / f"{MODULE}.py"
    path.write_text(CODE)
    yield path
    sys.modules.pop(MODULE, None)


def stage(**model: Any) -> dict[str, Any]:
    """A train stage with such a model: the constant, two bins, a column for none, the straight line."""
    return {
        "kind": "train",
        "label": {"kind": "number", "column": "price", "min_value": 0, "max_value": 20},
        "features": {"store": {"kind": "number", "min_value": 0, "max_value": 10, "edges": [2], "scaled": True}},
        "fit": {"steps": 2},
        "model": {"kind": "jax", "name": f"{MODULE}:own", "parameters": 5, **model},
    }


def test_a_job_trains_and_predicts_with_it(shop: Shop, code: pathlib.Path, call: Call) -> None:
    shop.write(stages={"m": stage()})
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert said.code == 0, said.err
    given = ("predict", shop.folder / "out", shop.folder / "data/*.parquet", "--output", shop.folder / "scores.parquet")
    assert call(*given).code == 2
    assert call(*given, "--jax-model", f"{MODULE}:own").code == 0
    assert pa.parquet.read_table(shop.folder / "scores.parquet").num_rows > 0


def test_the_same_run_id_with_other_code_is_refused(shop: Shop, code: pathlib.Path, call: Call) -> None:
    shop.write(stages={"m": stage()})
    given = ("run", shop.job, "--run-id", "monday", "--output")
    assert call(*given, shop.folder / "out").code == 0
    assert call(*given, shop.folder / "again").code == 0
    code.write_text(CODE + "# and a change\n")
    said = call(*given, shop.folder / "other")
    assert said.code == 2, said.err
    assert not (shop.folder / "other").exists()


def test_scores_that_fail_on_rows_end_no_run_and_are_told_by_name_to_who_predicts(
    shop: Shop, code: pathlib.Path, call: Call
) -> None:
    code.write_text(CODE.replace("return features @", "assert not features.any(), features\n        return features @"))
    shop.write(stages={"m": stage()})
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert said.code == 0, said.err
    given = ("predict", shop.folder / "out", shop.folder / "data/*.parquet", "--output", shop.folder / "scores.parquet")
    said = call(*given, "--jax-model", f"{MODULE}:own")
    assert (said.code, "fails on these rows: AssertionError; try it" in said.err) == (2, True), said.err
    assert not (shop.folder / "scores.parquet").exists()
    code.write_text("raise KeyError('x')")
    sys.modules.pop(MODULE, None)
    said = call(*given, "--jax-model", f"{MODULE}:own")
    assert (said.code, "cannot be imported: KeyError" in said.err) == (2, True), said.err


@pytest.mark.parametrize(
    ("model", "text", "said"),
    [
        ({"name": "no_such_module:own"}, CODE, "'no_such_module:own' cannot be imported"),
        ({"name": f"{MODULE}:other"}, CODE, "has no 'other'"),
        ({"name": "own"}, CODE, "must be module:attribute"),
        ({"parameters": 4}, CODE, "is not the size"),
        ({}, "raise KeyError('x')", "cannot be imported: KeyError"),
        ({}, "own = 3", "has no initial, loss, scores"),
        ({}, CODE.replace("features.T @", "1 / 0 *"), "fails on rows of zeros: ZeroDivisionError: division by zero"),
        ({}, CODE.replace("return features.T", "return parameters[:2] + 0 * features.T[:2]"), "must give 5 numbers"),
    ],
)
def test_what_cannot_be_used_is_refused_by_line_before_anything_is_charged(
    shop: Shop, code: pathlib.Path, call: Call, model: dict[str, Any], text: str, said: str
) -> None:
    code.write_text(text)
    shop.write(stages={"m": stage(**model)})
    found = call("run", shop.job, "--output", shop.folder / "out")
    assert (found.code, said in found.err) == (2, True), found.err
    assert "stages.m.model" in found.err
    assert not (shop.folder / "out").exists()


def test_a_digest_is_that_of_the_file(code: pathlib.Path) -> None:
    own = JaxModel(name=f"{MODULE}:own", parameters=5)
    before = code_digest(own)
    code.write_text(CODE + "\n")
    assert code_digest(own) != before
    with pytest.raises(RequestError, match="in no file of its own"):
        code_digest(JaxModel(name="sys:path", parameters=1))
