"""What each feature adds to the score: steps where the weights are, bars that cover, nothing from odd files."""

import json
import pathlib
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape

from dp_pipelines import BinaryLabel, Category, ClassLabel, Number, TrainModel
from dp_pipelines.report.model_section import model_section
from dp_pipelines.report.models import feature_curves
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.description import Statement
from dp_pipelines.training.features.encoder import Encoder

FEATURES = {
    "visits": Number(column="visits", min_value=-10, max_value=60, edges=[-2, 2, 20]),
    "found": Number(column="found", min_value=0, max_value=9, bins=4, scaled=True),
    "product": Category(column="product", categories=["tea", "<b>"]),
    "city": Category(column="city", most=3),
}


def saved(folder: pathlib.Path, weights: np.ndarray, stddevs: np.ndarray | None, **changes: Any) -> pathlib.Path:
    """The files of a model with these weights."""
    asked: dict[str, Any] = {"label": BinaryLabel(column="y"), "features": FEATURES, **changes}
    task = TrainModel(privacy_unit="u", whiten=False, **asked)
    encoder = Encoder.of(task, edges={"found": [3, 3, 6]}, vocabulary={"city": ["Aarhus"]})
    Artefact(
        task=task,
        encoder=encoder,
        parameters=np.tile(weights, task.label.outputs),
        whitening=None,
        privacy=Statement(unit="value of u", epsilon=1.0, delta=1e-6, plan="ab"),
        weight_stddevs=None if stddevs is None else np.tile(stddevs[:, None], task.label.outputs),
    ).save(folder)
    return folder


WEIGHTS = np.array([0.5, *(0.01, 0, 0, 0), *(0.1, 0, 0, 0.2, 0, 1), *(0.5, -0.5, 0), *(1, 2, -3, 4, 0.25)])
"""Of the intercept and of the features in the order of their names."""


def drawn(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    found = model_section("m", folder, "u")["features"]
    return {feature["name"]: feature for feature in found}


def test_a_category_of_which_no_value_was_found_hides_no_other_feature(tmp_path: pathlib.Path) -> None:
    folder = saved(tmp_path / "m", np.array([WEIGHTS[0], 9, 9, 9, 9, *WEIGHTS[5:]]), np.full(len(WEIGHTS), 0.1))
    content = json.loads((folder / "model.json").read_text())
    content["encoder"]["vocabulary"] = {"city": []}
    (folder / "model.json").write_text(json.dumps(content))
    assert list(drawn(folder)) == ["visits", "found", "product"]


def test_features_come_by_how_far_a_weight_stands_out_and_those_within_noise_are_left_out(
    tmp_path: pathlib.Path,
) -> None:
    found = drawn(saved(tmp_path / "m", WEIGHTS, np.full(len(WEIGHTS), 0.1)))
    assert list(found) == ["visits", "found", "product"]
    assert found["visits"]["missing"] == "0.25 ± 0.20"
    assert found["product"]["missing"] is None


def test_a_step_stands_at_the_weight_of_its_bin_and_its_shade_covers_the_error_bar(tmp_path: pathlib.Path) -> None:
    svg = escape(drawn(saved(tmp_path / "m", WEIGHTS, np.full(len(WEIGHTS), 0.1)))["visits"]["svg"])
    areas = [[float(number) for number in re.findall(r"[-\d.]+", path)] for path in re.findall(r'd="(M[^"]*z)"', svg)]
    assert len(areas) == 4
    middles = [(area[1] + area[5]) / 2 for area in areas]
    heights = [area[1] - area[5] for area in areas]
    per_unit = (middles[0] - middles[3]) / 3  # pixels: weights 1 and 4
    assert middles[0] - middles[1] == pytest.approx(per_unit, abs=0.1)
    assert middles[2] - middles[0] == pytest.approx(4 * per_unit, abs=0.1)
    assert heights == pytest.approx([2 * 1.96 * 0.1 * per_unit] * 4, rel=0.02, abs=0.1)
    assert "from -10 1.00 ± 0.20" in svg
    assert "from 20 4.00 ± 0.20" in svg


def test_a_straight_line_is_added_to_the_bins_and_its_error_too() -> None:
    weights, stddevs = np.array([1.0, 1.0]), np.array([0.1, 0.1])
    svg = escape(feature_curves.steps([0, 5, 10], weights, stddevs, "f", slope=(2.0, 0.3)))
    assert "from 0 1.00 ± 0.20" in svg
    assert "from 5 2.00 ± 0.49" in svg


def test_bins_that_nobody_is_in_are_left_out() -> None:
    ends, nobody = [0, 3, 3, 6, 9], np.array([1.0, 5.0, 2.0, 0.0])
    svg = escape(feature_curves.steps(ends, nobody, np.array([0.1, 0.1, 0.1, 0.0]), "f"))
    assert "from 0 1.00 ± 0.20; from 3 2.00 ± 0.20" in svg
    assert "5.00" not in svg


def test_without_known_noise_all_features_with_a_weight_are_drawn(tmp_path: pathlib.Path) -> None:
    assert set(drawn(saved(tmp_path / "m", WEIGHTS, None))) == set(FEATURES)


def test_of_several_outputs_and_of_other_models_nothing_is_drawn(tmp_path: pathlib.Path) -> None:
    several = saved(tmp_path / "m", WEIGHTS, None, label=ClassLabel(column="y", classes=[1, 2]))
    assert drawn(several) == {}
    (several / "weights.csv").unlink()
    assert drawn(several) == {}


odd = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**70), 2**70) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@settings(max_examples=60)
@given(data=st.data())
def test_no_content_makes_it_raise(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = saved(tmp_path_factory.mktemp("odd") / "m", WEIGHTS, None)
    content = json.loads((folder / "model.json").read_text())
    part = data.draw(st.sampled_from(["features", "edges", "vocabulary"]))
    name = data.draw(st.sampled_from(sorted(content["encoder"][part]) or [""]))
    value = data.draw(odd)
    if isinstance(content["encoder"][part].get(name), dict) and data.draw(st.booleans()):
        content["encoder"][part][name][data.draw(st.sampled_from(sorted(content["encoder"][part][name])))] = value
    else:
        content["encoder"][part][name] = value
    (folder / "model.json").write_text(json.dumps(content))
    model_section("m", folder, "u")
    weights = pa.table({"feature": ["a", "b"], "weight": data.draw(st.sampled_from([[1.0, None], ["x", "y"], [1, 2]]))})
    assert feature_curves.curves(content, weights) == []


PAIR = np.concatenate([WEIGHTS, np.linspace(-1, 1, 15)])


def test_the_largest_cells_of_a_pair_are_bars_with_the_names_of_both(tmp_path: pathlib.Path) -> None:
    folder = saved(tmp_path / "m", PAIR, np.full(len(PAIR), 0.1), pairs=[("visits", "product")])
    found = drawn(folder)
    assert list(found) == ["visits", "found", "product and visits", "product"]
    assert found["product and visits"]["missing"] is None
    assert "product = tea and visits below -2 -1.00 ± 0.20" in escape(found["product and visits"]["svg"])
    assert ("Crossed", "product and visits") in model_section("m", folder, "u")["facts"]


@pytest.mark.parametrize(
    "pairs", [5, [5], [["visits"]], [["visits", "nobody"]], [["visits", "product"]] * 3, [[None, []]]]
)
def test_odd_pairs_of_a_file_are_not_drawn(tmp_path: pathlib.Path, pairs: Any) -> None:
    folder = saved(tmp_path / "m", PAIR, None, pairs=[("visits", "product")])
    content = json.loads((folder / "model.json").read_text())
    content["encoder"]["pairs"] = pairs
    (folder / "model.json").write_text(json.dumps(content))
    assert drawn(folder) == {}
