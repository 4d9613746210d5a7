"""The table of a model's figures by group: what the file says, with bars, and nothing of odd files."""

import json
import pathlib

import numpy as np
import pytest

from dp_pipelines.query.train_model import EvaluationGroups, Number, TrainModel
from dp_pipelines.report.model_section import model_section
from dp_pipelines.training import evaluation
from tests.report.page import Page
from tests.report.test_model_section import LABELS, model, page


def grouped(folder: pathlib.Path, kind: str, stddev: float = 3.0) -> pathlib.Path:
    """The files of a model that is evaluated by groups of 3,000, 60 and no examples."""
    model(folder, kind)
    features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    by = EvaluationGroups(column="<b>area", groups=["<i>north", "south"])
    task = TrainModel(privacy_unit="customer", label=LABELS[kind], features=features, evaluation_by=by)
    cells = evaluation.cell_count(task)
    made = np.random.default_rng(1)
    counts = np.concatenate([made.multinomial(size, np.full(cells, 1 / cells)) for size in (3000, 60, 0)])
    (folder / "evaluation.json").write_text(evaluation.summary(task, counts.astype(float), stddev).text())
    return folder


@pytest.mark.parametrize("kind", LABELS)
def test_the_page_has_a_row_for_each_group_with_its_bars(tmp_path: pathlib.Path, kind: str) -> None:
    folder = grouped(tmp_path / "m", kind)
    shown = model_section("m", folder, "u")["groups"]
    assert [row["name"] for row in shown["rows"]] == ["<i>north", "south", "another or missing"]
    named = {"binary": "AUC", "classes": "balanced accuracy", "confidence": "accuracy", "numbers": "explained variance"}
    assert named[kind] in shown["names"]
    assert all(len(row["measures"]) == len(shown["names"]) for row in shown["rows"])
    assert all(" ± " in value for value in shown["rows"][0]["measures"])
    assert set(shown["rows"][2]["measures"]) == {None}
    read = Page(page(folder))
    assert not read.unbalanced
    words = " ".join(read.words.split())
    for part in ("Held-out examples by <b>area", "<i>north", "may be chance", "add up the counts of all groups"):
        assert part in words, part
    assert "<i>north" not in page(folder)


def test_a_bar_covers_noise_the_choice_of_units_and_what_bins_hide(tmp_path: pathlib.Path) -> None:
    folder = grouped(tmp_path / "m", "binary")
    said = json.loads((folder / "evaluation.json").read_text())["by"]["groups"][0]["measures"]["auc"]
    auc = model_section("m", folder, "u")["groups"]["rows"][0]["measures"][0]
    bar = 1.96 * np.hypot(said["noise_stddev"], said["sampling_stddev"]) + said["hidden_by_bins"]
    assert [float(part) for part in auc.split(" ± ")] == pytest.approx([said["value"], bar], rel=0.1)


def test_a_model_without_groups_has_no_table(tmp_path: pathlib.Path) -> None:
    folder = model(tmp_path / "m")
    assert model_section("m", folder, "u")["groups"] is None
    assert "Held-out examples by" not in page(folder)


@pytest.mark.parametrize(
    "odd",
    [
        None,
        [],
        "x",
        {"groups": 5},
        {"groups": [5]},
        {"groups": [{}]},
        {"groups": [{"group": [1], "measures": {"auc": 1}}]},
    ],
)
def test_odd_groups_never_break_the_page(tmp_path: pathlib.Path, odd: object) -> None:
    folder = grouped(tmp_path / "m", "binary")
    content = json.loads((folder / "evaluation.json").read_text())
    (folder / "evaluation.json").write_text(json.dumps({**content, "by": odd}))
    assert not Page(page(folder)).unbalanced
