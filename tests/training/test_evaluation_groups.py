"""A model evaluated by groups of examples: the same counts, cut into groups, at the same epsilon and with more noise overall.

In: made-up examples and counts. Out: cells, measures, plans. Holds: no noise decides a test. Not covered: jobs
(`tests/jobs/run/test_evaluation_by_group.py`), the page (`tests/report/test_group_table.py`).
"""

import dataclasses
import datetime
import json
import math
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import EvaluationGroups, Plan, RequestError
from dp_pipelines.audit import fitted as audited
from dp_pipelines.auto_bounds.value_bounds import COLUMN
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.query.evaluation_groups import OTHERS
from dp_pipelines.query.train_model import (
    BinaryLabel,
    ClassLabel,
    FitCandidate,
    Label,
    Number,
    NumberLabel,
    Steps,
    TrainModel,
)
from dp_pipelines.release.draw import draw_release
from dp_pipelines.training import counted_examples, description, evaluation, fit, stage_on_disk
from dp_pipelines.training.artefact import Artefact, load
from dp_pipelines.training.description import Statement
from dp_pipelines.training.features import input_types
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.kept_draws import InMemory

STATEMENT = Statement(unit="who", epsilon=1.0, delta=1e-6, plan="")
BY = EvaluationGroups(column="area", groups=["north", "south"])
LABELS: dict[str, Label] = {
    "binary": BinaryLabel(column="y"),
    "classes": ClassLabel(column="y", classes=[0, 1]),
    "confidence": ClassLabel(column="y", classes=list(range(12))),
    "numbers": NumberLabel(column="y", min_value=0, max_value=11),
}


def task(kind: str = "binary", **changes: Any) -> TrainModel:
    """A small model without anything to prepare."""
    base: dict[str, Any] = {
        "privacy_unit": "who",
        "label": LABELS[kind],
        "features": {"x": Number(column="x", min_value=0, max_value=1, edges=[0.25, 0.5, 0.75], scaled=True)},
        "whiten": False,
        "evaluation_cells": 4,
        "evaluation_by": BY,
    }
    return TrainModel(**{**base, **changes})


def plain(asked: TrainModel) -> TrainModel:
    """The same without groups."""
    return dataclasses.replace(asked, evaluation_by=None)


def made_model(asked: TrainModel) -> Artefact:
    """Some weights."""
    encoder = Encoder.of(asked)
    weights = np.random.default_rng(2).normal(0, 2, asked.size)
    return Artefact(task=asked, encoder=encoder, parameters=weights, whitening=None, privacy=STATEMENT)


def table(units: int, areas: list[Any], labels: int, seed: int = 1) -> pa.Table:
    """Two examples a unit, some of them without a label."""
    made = np.random.default_rng(seed)
    y = pa.array(made.integers(0, labels, 2 * units), mask=made.random(2 * units) < 0.1)
    return pa.table({
        "who": np.repeat(np.arange(units), 2),
        "x": made.random(2 * units),
        "y": y,
        "area": pa.array([areas[at] for at in made.integers(0, len(areas), 2 * units)], pa.string()),
    })  # fmt: skip


def vector(asked: TrainModel, cells: pa.Table) -> np.ndarray:
    """The counts without noise."""
    found = cells.column("cell").to_numpy()
    return np.bincount(found[found >= 0], minlength=training_parts.counted_cells(asked))


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(LABELS)),
    units=st.integers(0, 30),
    seed=st.integers(0, 2**32),
    areas=st.lists(st.sampled_from(["north", "south", "east", "", None]), min_size=1, max_size=5),
)
def test_groups_add_up_to_the_counts_without_groups(kind: str, units: int, seed: int, areas: list[Any]) -> None:
    asked = task(kind)
    rows = table(units, areas, 2 if kind in ("binary", "classes") else 12, seed)
    with_groups = evaluation.celled(made_model(asked), rows)
    without = evaluation.celled(made_model(plain(asked)), rows)
    of_groups = vector(asked, with_groups).reshape(3, -1)
    assert of_groups.sum(axis=0).tolist() == vector(plain(asked), without).tolist()
    place = {"north": 0, "south": 1}
    cells = of_groups.shape[1]
    for area, one, other in zip(
        rows.column("area").to_pylist(),
        with_groups.column("cell").to_pylist(),
        without.column("cell").to_pylist(),
        strict=True,
    ):
        assert one == (-1 if other < 0 else place.get(area, 2) * cells + other)


@pytest.mark.parametrize(
    ("groups", "column", "places"),
    [
        (["a", "b"], pa.array(["b", "a", None, "B", "a ", "", "á"]), [1, 0, 2, 2, 2, 2, 2]),
        (["a"], pa.array(["a", "b", None]).dictionary_encode(), [0, 1, 1]),
        (["a"], pa.array([b"a", b"\xff", None], pa.binary()), [1, 1, 1]),
        ([1, 2], pa.array([1.0, float("nan"), None, math.inf]), [2, 2, 2, 2]),
        ([1, 2], pa.array([2, 1, None, -1], pa.int8()), [1, 0, 2, 2]),
        ([300, 2], pa.array([44, 2], pa.uint8()), [2, 1]),
        ([True], pa.array([True, False, None]), [0, 1, 1]),
        ([True, False], pa.array([1, 0]), [2, 2]),
        (["2026-01-31"], pa.array([datetime.date(2026, 1, 31), None], pa.date32()), [0, 1]),
        (["a"], pa.nulls(2), [1, 1]),
        (["a"], pa.array([["a"], None]), [1, 1]),
    ],
)
def test_each_example_is_in_exactly_one_group_and_odd_values_are_in_the_last(
    groups: list[Any], column: pa.Array, places: list[int]
) -> None:
    asked = task(evaluation_by=EvaluationGroups(column="area", groups=groups))
    found = evaluation.groups_of(asked, pa.table({"area": column}))
    assert found.tolist() == places
    assert evaluation.groups_of(plain(asked), pa.table({"area": column})).tolist() == [0] * len(column)


@pytest.mark.parametrize("changes", [{}, {"weighting": "examples", "evaluation_examples": 2}])
def test_a_unit_moves_the_counts_by_no_more_than_the_record_says(changes: dict[str, Any]) -> None:
    """Before noise: without each unit in turn, the integers move by its own examples, whatever its groups are."""
    asked = task(max_examples_per_unit=4, **changes)
    plan = Plan(epsilon=1, delta=1e-6, stages={"model": asked})
    stage, model = plan.stages["model.evaluation"], made_model(asked)
    (record,) = stage.mechanisms
    rows = pa.concat_tables([table(8, ["north", "south", "east", None], 2, seed) for seed in (3, 4)])
    seen: list[Any] = []

    def noted(of: Any, totals: Any) -> pa.Table:
        seen.append({key: count for key, count in audited.counts_of(totals).items() if len(key) == 3})  # the cells
        return draw_release(totals, of)

    def read(examples: pa.Table) -> Any:
        cells = counted_examples.counted(evaluation.celled(model, examples), ["who"], asked.counted_examples, 7)
        stage_on_disk.release(stage, [cells], 7, noted)
        return seen[-1]

    noise = stage.noises[0]
    assert noise is not None
    whole, largest = read(rows), 0
    for unit in range(8):
        less = read(rows.filter(pa.array(rows.column("who").to_numpy() != unit)))
        moved = [whole.get(key, 0) - less.get(key, 0) for key in {*whole, *less}]
        assert min(moved) >= 0
        assert sum(moved) <= asked.counted_examples
        assert sum((count * 2**noise.fine_bits / noise.step) ** 2 for count in moved) <= record.l2_squared
        largest = max(largest, sum(moved))
    assert largest == asked.counted_examples


def test_a_plan_costs_what_it_does_without_groups_and_tells_their_price() -> None:
    asked = task()
    with_groups, without = (Plan(epsilon=1, delta=1e-6, stages={"model": each}) for each in (asked, plain(asked)))
    assert with_groups.accounted == without.accounted
    same = [{**one.to_json(), "name": ""} for one in with_groups.mechanisms]
    assert same == [{**one.to_json(), "name": ""} for one in without.mechanisms]
    assert with_groups.digest != without.digest
    (told,) = (stage for stage in with_groups.to_json()["stages"] if stage["name"] == "model")
    price = told["evaluation_by"]
    noise = without.stages["model.evaluation"].noises[0]
    assert noise is not None
    assert price["stddev"] == noise.stddev
    assert price["stddev_overall"] == pytest.approx(math.sqrt(3) * noise.stddev)
    assert "1.73 times" in price["words"]
    assert f"{price['stddev_overall']:.3g} and not {price['stddev']:.3g}" in price["words"]
    assert "north, south; another or missing" in price["words"]
    assert not any("evaluation_by" in stage for stage in without.to_json()["stages"])
    assert with_groups.stages["model.evaluation"].statistics[0].width == 3 * 8


def test_the_choice_among_candidates_knows_nothing_of_groups() -> None:
    asked = task(steps=Steps(candidates=[FitCandidate(), FitCandidate(steps=3)]))
    assert training_parts.choice_query(asked) == training_parts.choice_query(plain(asked))
    with_groups, without = (training_parts.parts("m", each, 1.0) for each in (asked, plain(asked)))
    assert {name for name, part in with_groups.items() if part != without[name]} == {"m.evaluation"}
    assert with_groups["m.evaluation"].share == without["m.evaluation"].share


@pytest.mark.parametrize("kind", LABELS)
def test_overall_figures_add_up_the_groups_and_their_noise(kind: str) -> None:
    asked = task(kind)
    cells = evaluation.cell_count(asked)
    counts = np.random.default_rng(5).integers(20, 400, (3, cells)).astype(float)
    found = evaluation.summary(asked, counts.ravel(), 2.0)
    expected = evaluation.summary(plain(asked), counts.sum(axis=0), 2.0 * math.sqrt(3))
    assert {**found.to_json(), "by": None} == {**expected.to_json(), "by": None}
    assert found.by is not None
    assert found.by.groups == ("north", "south", None)
    for alone, of_group in zip(found.by.found, counts, strict=True):
        assert alone == evaluation.summary(plain(asked), of_group, 2.0)
    said = json.loads(found.text())["by"]
    assert (said["column"], said["stddev"], said["others"]) == ("area", 2.0, "another or missing")
    assert [group["group"] for group in said["groups"]] == ["north", "south", None]
    assert said["groups"][1]["measures"] == evaluation.summary(plain(asked), counts[1], 2.0).to_json()["measures"]
    assert "by" not in expected.to_json()


@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(sorted(LABELS)), data=st.data())
def test_any_counts_of_groups_give_a_number_or_none(kind: str, data: st.DataObject) -> None:
    asked = task(kind)
    odd = st.sampled_from([0.0, -3.0, 1e308, -1e308, 1e-300, 5.0])
    size = training_parts.counted_cells(asked)
    counts = data.draw(st.lists(odd, min_size=size, max_size=size))
    text = evaluation.summary(asked, counts, data.draw(st.sampled_from([0.0, 1.0, 1e300]))).text()
    json.loads(text, parse_constant=pytest.fail)


def test_counts_of_another_number_of_groups_are_refused() -> None:
    with pytest.raises(RequestError, match="must be 24 finite numbers"):
        evaluation.summary(task(), np.zeros(8), 1.0)


def test_a_run_releases_groups_and_a_model_that_needs_none_of_them(tmp_path: pathlib.Path) -> None:
    asked = task(held_out=0.5)
    plan = Plan(epsilon=30, delta=1e-5, stages={"model": asked})
    rows = table(3000, ["north", "north", "south", None], 2)
    assert "area" in asked.columns
    fit.train(plan, "model", lambda: iter([rows]), tmp_path / "out")
    said = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    known = rows.filter(pc.is_valid(rows.column("y")))
    held_out = len(set(known.column("who").to_pylist())) / 2
    shares = [group["examples"]["value"] / held_out for group in said["by"]["groups"]]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.1)
    assert said["examples"]["value"] / held_out == pytest.approx(1, abs=0.1)
    model = load(tmp_path / "out")
    assert model.task == asked
    assert model.predict(rows.drop_columns(["area", "y"])).num_rows == rows.num_rows
    assert "area" not in model.input_types


@pytest.mark.parametrize("column", [None, pa.array([1.5, 2.5]), pa.array([1, 2]), pa.array([b"a", b"b"])])
def test_a_column_that_does_not_fit_is_refused_before_a_run_is_paid_for(
    tmp_path: pathlib.Path, column: pa.Array | None
) -> None:
    rows = pa.table({"who": [1, 2], "x": [0.5, 0.6], "y": [0, 1]})
    rows = rows if column is None else rows.append_column("area", column)
    plan = Plan(epsilon=8, delta=1e-5, stages={"model": task()})
    with pytest.raises(RequestError, match="column 'area'"):
        fit.train(plan, "model", lambda: iter([rows]), tmp_path / "out")
    assert plan["model"].payment is not None
    assert input_types.of_groups(rows.schema, plain(task())) is None
    fit.Fit(
        name="model", task=task(), stages=plan.stages, tables=lambda: iter([table(2, ["north"], 2)]), folder=tmp_path,
        draws=InMemory(), key=b"", salt=0, tell=lambda text: None,
    ).refuse_unfit()  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"groups": []}, "1 to 20"),
        ({"groups": list(range(21))}, "1 to 20"),
        ({"groups": "north"}, "must be a list"),
        ({"groups": ["a", "a"]}, "different"),
        ({"groups": [1.5]}, "texts, whole numbers, truths or dates"),
        ({"groups": [None]}, "must be texts, numbers, truths or dates; all other values are one more of them"),
        ({"groups": ["é" * 129]}, "more than 256 bytes, which in a row counts as null; shorten it"),
        ({"groups": ["north", OTHERS]}, "what the group of all other values is called; leave it out"),
        ({"groups": ["\ud800"]}, "surrogate"),
        ({"column": ""}, "column"),
        ({"column": COLUMN}, "reserved"),
    ],
)
def test_wrong_groups_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        EvaluationGroups(**{"column": "area", "groups": ["north"], **changes})


def test_dates_may_be_groups_in_python() -> None:
    day = datetime.date(2026, 1, 1)
    assert EvaluationGroups(column="day", groups=[day]) == EvaluationGroups(column="day", groups=["2026-01-01"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"evaluation_by": {"column": "area"}}, "must be EvaluationGroups"),
        ({"evaluation_by": EvaluationGroups(column="who", groups=["me"])}, "part of the privacy unit"),
        ({"evaluation_cells": 1024}, "write cells: 682 or fewer"),
    ],
)
def test_tasks_whose_groups_do_not_fit_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        task(**changes)


def test_as_many_cells_as_are_allowed_make_a_plan() -> None:
    asked = task(evaluation_cells=682)
    assert training_parts.counted_cells(asked) == 4092
    Plan(epsilon=1, delta=1e-6, stages={"model": asked})


@pytest.mark.parametrize("odd", [{}, [], {"column": "a"}, {"column": "a", "groups": [["text", 1]]}, 5])
def test_a_model_file_with_odd_groups_is_refused(odd: Any) -> None:
    asked = task()
    content = {**description.task_to_json(asked), "evaluation_by": odd}
    with pytest.raises(RequestError, match="this version knows"):
        description.task_from_json(content, Encoder.of(asked))
