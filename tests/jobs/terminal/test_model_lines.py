"""What a terminal says of a model: its figures with their weighting, its verdict, and nothing more where files are missing."""

import io
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from dp_pipelines.jobs.terminal import model_lines, summary
from dp_pipelines.query.train_model import BinaryLabel, Number, TrainModel
from dp_pipelines.training import evaluation


def written(folder: pathlib.Path, described: dict[str, Any] | None, **changed: Any) -> pathlib.Path:
    """The files of a model whose scores of the two classes are 1.5 standard deviations apart."""
    features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features, evaluation_cells=16)
    made = np.random.default_rng(2)
    true = made.random(8000) < 0.3
    scores = 1.5 * (made.normal(size=8000) + 1.5 * true) - 1.125 - 0.85
    counts = np.bincount(evaluation.cells(task, scores, true.astype(float)), minlength=32).astype(float)
    found = json.loads(evaluation.summary(task, counts, 5.0).text())
    found["baselines"]["best_feature"] = {"auc": {"value": 0.93, "noise_stddev": 0.003}}
    (folder / "evaluation.json").write_text(json.dumps(found | {"best_feature": "visits"} | changed))
    if described is not None:
        (folder / "model.json").write_text(json.dumps(described))
    return folder / "evaluation.json"


def printed(path: pathlib.Path) -> str:
    stream = io.StringIO()
    model_lines.print_model(path, summary.console(stream), "customer")
    return " ".join(stream.getvalue().split())


def test_figures_have_their_weighting_and_a_verdict(tmp_path: pathlib.Path) -> None:
    said = printed(written(tmp_path, {"task": {"max_examples_per_unit": 1}}))
    assert "model; on held-out units (each customer counts once): AUC 0.8" in said
    assert "the share of held-out examples that are true is 0.3" in said
    assert "it ranks worse than visits alone, whose AUC is about 0.9300 ± 0.0059: its AUC is 0.8" in said
    assert "its classes are right more often than always saying false" in said


@pytest.mark.parametrize("described", [None, {}, {"task": 3}, []])
def test_without_a_description_nothing_is_called_worse(tmp_path: pathlib.Path, described: Any) -> None:
    said = printed(written(tmp_path, described, examples_per_unit=8))
    assert "(at most 8 examples of each customer count)" in said
    assert "below that of visits alone" in said
    assert "worse" not in said
