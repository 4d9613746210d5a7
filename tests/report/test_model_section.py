"""The section of a model in a report: complete from real files, sound from odd ones, bounded, and in a real browser too."""

import json
import pathlib
import re
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape

from dp_pipelines.query.train_model import (
    MLP,
    BinaryLabel,
    Category,
    ClassLabel,
    LinearModel,
    Number,
    NumberLabel,
    TrainModel,
)
from dp_pipelines.report.model_section import CELLS, model_section
from dp_pipelines.report.report import render
from dp_pipelines.training import evaluation, evaluation_cells
from dp_pipelines.training.artefact import MODEL, WEIGHTS, Artefact
from dp_pipelines.training.description import Statement
from dp_pipelines.training.features.encoder import Encoder
from tests.report.page import Page, barriers, manifest
from tests.report.test_report_in_a_browser import CHROMIUM, DARK, LIGHT, Browser

LABELS = {
    "binary": BinaryLabel(column="returns"),
    "classes": ClassLabel(column="segment", classes=["loyal", "<b>new", "lost"]),
    "confidence": ClassLabel(column="store", classes=list(range(12))),
    "numbers": NumberLabel(column="spend", min_value=0, max_value=200),
}
UGLY = ["<script>alert(1)</script>", "x" * 256, "\u202eright", "K0K"]


def model(folder: pathlib.Path, kind: str = "binary", *, stddev: float = 12.0, of: Any = LinearModel()) -> pathlib.Path:
    """The files of a trained model, as a run publishes them."""
    folder.mkdir()
    features = {
        "visits": Number(column="visits", min_value=0, max_value=60, edges=[1, 2, 5, 10, 20]),
        "basket": Number(column="basket", min_value=0, max_value=100, edges=[5, 10, 20, 50]),
        "product": Category(column="product", categories=["tea", *UGLY]),
    }
    task = TrainModel(privacy_unit="customer", label=LABELS[kind], features=features, model=of, whiten=False)
    made = np.random.default_rng(3)
    Artefact(
        task=task,
        encoder=Encoder.of(task),
        parameters=made.normal(0, 1, task.size),
        whitening=None,
        privacy=Statement(unit="value of CUSTOMER_ID", epsilon=1.0, delta=1e-6, plan="ab" * 8),
        path={"gradient_norm": (0.4 * np.exp(-np.arange(80) / 20) + 0.03 * made.random(80)).tolist()},
    ).save(folder)
    rows, outputs = 12_000, task.label.outputs
    if kind == "binary":
        scores = made.normal(0.2, 1.1, rows)
        labels = (made.random(rows) < 1 / (1 + np.exp(-scores))).astype(float)
    elif kind == "numbers":
        labels = np.clip(made.gamma(3, 20, rows), 0, 200)
        scores = 0.6 * labels + 25 + made.normal(0, 15, rows)
    else:
        labels = made.integers(0, outputs, rows).astype(float)
        scores = made.normal(0, 1, (rows, outputs))
        scores[np.arange(rows), labels.astype(int)] += 1.5
    found = evaluation.cells(task, scores, labels)
    counts = np.bincount(found, minlength=evaluation.cell_count(task)) + made.normal(
        0, stddev, evaluation.cell_count(task)
    )
    (folder / "evaluation.json").write_text(evaluation.summary(task, counts, stddev).text())
    return folder


def page(folder: pathlib.Path) -> str:
    return render(manifest(stages=[{"name": "returns"}]), {}, {"returns": folder})


@pytest.mark.parametrize("kind", LABELS)
def test_the_page_says_what_was_learnt_what_protects_whom_and_how_good_it_is(tmp_path: pathlib.Path, kind: str) -> None:
    read = Page(page(model(tmp_path / "m", kind)))
    assert not read.unbalanced
    assert not read.open
    assert len(read.ids) == len(set(read.ids))
    words = read.words
    for part in (
        "From 3 features of an example", "Protection", "epsilon 1 and delta 1e-6", "value of CUSTOMER_ID",
        "predictions: what is computed from this model", "noisy gradient steps over all of the units",
        "about 20% of the units", "Training", "The length of the noisy gradient", "dp-pipelines predict",
        "weights.csv", "model.safetensors",
    ):  # fmt: skip
        assert part in words, part
    said = {
        "binary": (
            "a logistic regression predicts whether returns is true",
            "AUC",
            "Brier score",
            "Ranking",
            "Lift",
            "accuracy of always saying the more frequent class",
        ),
        "classes": ("which of 3 classes segment is", "balanced accuracy", "predicted <b>new"),
        "confidence": ("which of 12 classes store is", "Calibration"),
        "numbers": ("the number spend, between 0 and 200", "root mean squared error", "explained variance"),
    }[kind]
    for part in said:
        assert part in words, part
    assert re.search(r"± 0\.0\d", words)  # error bars


def test_the_page_knows_every_kind_of_cells() -> None:
    assert set(CELLS) == {kind.name for kind in evaluation_cells.KINDS}


def test_every_plot_says_in_words_what_it_shows(tmp_path: pathlib.Path) -> None:
    html = page(model(tmp_path / "m"))
    assert barriers(html) == []
    plots = Page(html).plots
    assert len(plots) == 9  # three of them of features
    assert all(plots)
    assert any("AUC 0.7" in plot for plot in plots)


def test_the_numbers_are_those_of_the_file(tmp_path: pathlib.Path) -> None:
    folder = model(tmp_path / "m")
    kept = json.loads((folder / "evaluation.json").read_text())["measures"]["auc"]
    (auc,) = (row for row in model_section("m", folder, "u")["measures"] if row["name"] == "AUC")
    shown, bar = auc["value"].split(" ± ")
    assert float(shown) == pytest.approx(kept["value"], abs=0.001)
    assert kept["hidden_by_bins"] > 0
    assert float(bar) == pytest.approx(1.96 * kept["noise_stddev"] + kept["hidden_by_bins"], rel=0.1)
    both = 1.96 * np.hypot(kept["noise_stddev"], kept["sampling_stddev"]) + kept["hidden_by_bins"]
    assert float(auc["both"]) == pytest.approx(both, rel=0.1)


def test_the_base_rate_and_the_best_single_feature_come_first(tmp_path: pathlib.Path) -> None:
    folder = model(tmp_path / "m")
    content = json.loads((folder / "evaluation.json").read_text())
    content["baselines"]["best_feature"] = {"auc": {"value": 0.71, "noise_stddev": 0.01, "sampling_stddev": None}}
    content["best_feature"] = "<b>visits"
    (folder / "evaluation.json").write_text(json.dumps(content))
    rows = model_section("m", folder, "u")["measures"]
    names = [row["name"] for row in rows]
    assert names[0] == "share that is true"
    assert names[1:3] == ["accuracy of always saying the more frequent class", "AUC of <b>visits alone"]
    assert names[3:5] == ["AUC", "accuracy"]
    assert (rows[2]["value"], rows[2]["both"]) == ("0.710 ± 0.020", None)
    assert "AUC of <b>visits alone" in Page(page(folder)).words
    assert "<b>visits" not in page(folder)


def test_a_feature_of_which_noise_leaves_nothing_known_has_no_row(tmp_path: pathlib.Path) -> None:
    folder = model(tmp_path / "m")
    content = json.loads((folder / "evaluation.json").read_text())
    content["baselines"]["best_feature"] = {"auc": {"value": 0.66, "noise_stddev": 1e24, "sampling_stddev": None}}
    content["best_feature"] = "visits"
    (folder / "evaluation.json").write_text(json.dumps(content))
    assert "visits alone" not in Page(page(folder)).words
    assert "than chance, whose AUC is 0.5" in Page(page(folder)).words


def test_weights_are_the_largest_without_the_constant(tmp_path: pathlib.Path) -> None:
    folder = model(tmp_path / "m")
    table = pa.csv.read_csv(folder / WEIGHTS)
    weights = dict(zip(table.column("feature").to_pylist(), table.column("weight").to_pylist(), strict=True))
    weights["constant"] = 1e9
    listed = pa.table({"feature": list(weights), "weight": list(weights.values())})
    pa.csv.write_csv(listed, folder / WEIGHTS)
    shown = model_section("m", folder, "u")["weights"]
    largest = max((name for name in weights if name != "constant"), key=lambda name: abs(weights[name]))
    assert largest[:40] in escape(shown["panels"][0]["svg"])
    assert "constant" not in escape(shown["panels"][0]["svg"])
    assert shown["count"] == len(weights)


def test_weights_within_their_noise_are_not_among_the_largest(tmp_path: pathlib.Path) -> None:
    folder = model(tmp_path / "m")
    names = ["constant", "loud noise", "small and sure", "large and sure", "nothing"]
    pa.csv.write_csv(
        pa.table({"feature": names, "weight": [1.0, -9.0, 0.2, 3.0, 0.0], "stddev": [0.1, 8.0, 0.01, 0.5, 0.0]}),
        folder / WEIGHTS,
    )
    shown = model_section("m", folder, "u")["weights"]
    assert shown["known"]
    assert "loud noise" not in escape(shown["panels"][0]["svg"])
    assert "nothing" not in escape(shown["panels"][0]["svg"])
    assert "large and sure 3.00 ± 0.98; small and sure 0.200 ± 0.020" in escape(shown["panels"][0]["svg"])
    words = Page(page(folder)).words
    assert "that stand out of their noise" in words
    assert "what training on other units would change" in " ".join(words.split())
    quiet = pa.table({"feature": names, "weight": [1.0] * 5, "stddev": [1.0] * 5})
    pa.csv.write_csv(quiet, folder / WEIGHTS)
    assert "No weight stands out of its noise" in Page(page(folder)).words


def test_the_page_says_what_was_chosen_of_the_steps(tmp_path: pathlib.Path) -> None:
    folder = model(tmp_path / "m")
    assert "learning rate" not in Page(page(folder)).words
    content = json.loads((folder / MODEL).read_text())
    (folder / MODEL).write_text(
        json.dumps({**content, "taken": {"clip_norm": 3.0, "learning_rate": 0.25, "averaged": 30}})
    )
    assert "all of the units, with learning rate 0.25; the last 30 are averaged" in Page(page(folder)).words


def test_a_network_has_no_weights_to_show(tmp_path: pathlib.Path) -> None:
    words = Page(page(model(tmp_path / "m", of=MLP(hidden=[8, 4])))).words
    assert "a network with hidden layers of 8, 4" in words
    assert "Largest weights" not in words


def test_what_the_noise_hides_has_a_dash_and_a_reason(tmp_path: pathlib.Path) -> None:
    words = Page(page(model(tmp_path / "m", stddev=5000.0))).words
    assert "do not stand out from their noise" in words
    assert "Ranking" not in words


def test_names_of_features_cannot_become_markup(tmp_path: pathlib.Path) -> None:
    ugly, plain = page(model(tmp_path / "m")), page(model(tmp_path / "n"))
    assert "<script>alert" not in ugly
    assert "<b>new" not in page(model(tmp_path / "o", "classes"))
    assert Page(ugly).shape == Page(plain).shape
    assert "\u202e" not in ugly


def test_the_same_files_give_the_same_bytes(tmp_path: pathlib.Path) -> None:
    folder = model(tmp_path / "m")
    assert page(folder) == page(folder)


@pytest.mark.parametrize("missing", [[MODEL], ["evaluation.json"], [WEIGHTS], [MODEL, "evaluation.json", WEIGHTS]])
def test_missing_files_leave_their_parts_out(tmp_path: pathlib.Path, missing: list[str]) -> None:
    folder = model(tmp_path / "m")
    for name in missing:
        (folder / name).unlink()
    read = Page(page(folder))
    assert not read.unbalanced
    assert ("This model was not evaluated" in read.words) == ("evaluation.json" in missing)


ODD = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just([]) | st.just({})
    | st.lists(st.floats() | st.none(), max_size=3) | st.dictionaries(st.text(max_size=3), st.floats(), max_size=2)
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(data=st.data(), kind=st.sampled_from(sorted(LABELS)))
def test_odd_files_never_break_the_page(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: str
) -> None:
    folder = model(tmp_path_factory.mktemp("odd") / "m", kind)
    for name in (MODEL, "evaluation.json"):
        content = json.loads((folder / name).read_text())
        for _ in range(2):
            at: Any = content
            while at:
                key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
                if not isinstance(at[key], (dict, list)) or not at[key] or data.draw(st.integers(0, 3)) == 0:
                    at[key] = data.draw(ODD)
                    break
                at = at[key]
        (folder / name).write_text(json.dumps(content))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = Page(page(folder))
    assert not read.unbalanced


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[" * 50_000, b"feature", b"feature,weight\nx,y\n", b"a,b\n1,2\n3,4\n"])
def test_files_that_are_something_else_never_break_the_page(tmp_path: pathlib.Path, raw: bytes) -> None:
    folder = model(tmp_path / "m")
    for name in (MODEL, "evaluation.json", WEIGHTS):
        (folder / name).write_bytes(raw)
    assert not Page(page(folder)).unbalanced


def test_the_page_is_bounded_however_large_the_model_is(tmp_path: pathlib.Path) -> None:
    folder = model(tmp_path / "m")
    rows = 5000
    pa.csv.write_csv(
        pa.table({"feature": [f"f{n}" * 50 for n in range(rows)], "weight": np.arange(rows) / 1.0}), folder / WEIGHTS
    )
    content = json.loads((folder / MODEL).read_text())
    content["path"]["gradient_norm"] = [1.0 + n % 7 for n in range(200_000)]
    (folder / MODEL).write_text(json.dumps(content))
    assert len(page(folder)) < 250_000


in_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs the program `chromium`, which is not installed")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return Browser(tmp_path_factory.mktemp("browser"))


@in_browser
def test_it_opens_without_a_message_and_asks_for_nothing(browser: Browser, tmp_path: pathlib.Path) -> None:
    seen = browser.run(page(model(tmp_path / "m")), "--dump-dom")
    assert "Ranking" in seen.dom
    assert seen.messages == []
    assert seen.requests == []


@in_browser
def test_it_follows_the_scheme_of_the_reader(browser: Browser, tmp_path: pathlib.Path) -> None:
    html = page(model(tmp_path / "m"))
    light, dark = browser.screenshot(html, LIGHT), browser.screenshot(html, DARK)
    assert light[5, 5].min() > 0.9
    assert dark[5, 5].max() < 0.2
    for shown in (light, dark):
        assert 0.02 < (np.abs(shown - shown[5, 5]).max(axis=2) > 0.3).mean() < 0.5


@in_browser
@pytest.mark.parametrize("kind", LABELS)
def test_on_a_phone_nothing_runs_out_of_the_page(browser: Browser, tmp_path: pathlib.Path, kind: str) -> None:
    html = re.sub(r"<meta http-equiv.*?>", "", page(model(tmp_path / "m", kind)))
    measure = "document.title = `width ${document.documentElement.scrollWidth} of ${innerWidth}`"
    html = html.replace("</body>", f"<script>{measure}</script></body>")
    found = browser.run(html, "--dump-dom", "--window-size=500,900")
    width = re.search(r"<title>width (\d+) of (\d+)", found.dom)
    assert width is not None
    assert int(width[1]) <= int(width[2]) <= 500


def test_the_page_states_the_verdict_first(tmp_path: pathlib.Path) -> None:
    words = " ".join(Page(page(model(tmp_path / "m"))).words.split())
    first = words.index("The share of held-out examples that are true is 0.5")
    assert (
        first
        < words.index("It ranks better than chance")
        < words.index("Its classes are right more often than always saying")
    )
    assert first < words.index("Measured on units that were held out")
