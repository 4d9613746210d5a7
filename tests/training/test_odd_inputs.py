"""Odd but valid questions over odd but valid rows: a run never fails once its budget is spent, and what it writes can be used.

In: every kind of feature, label and model at the ends of what is allowed; tables without rows, with one unit, nulls, constants,
numbers of all sizes, unseen values. Out: releases that load and predict. Holds: a case of each class of feature, label and model
is there (counted against the library); a warning of NumPy fails, which would be a private fact on standard error. Not
covered: job files (`tests/jobs/run/test_training_forms.py`) and JAX models' own oddities (`test_jax_model`).
"""

import functools
import json
import pathlib
import typing
import warnings

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import (
    MLP,
    BinaryLabel,
    Category,
    ClassLabel,
    Number,
    NumberLabel,
    Plan,
    RequestError,
    Steps,
    TrainModel,
)
from dp_pipelines.planning import payment
from dp_pipelines.query import train_model
from dp_pipelines.query.train_model import JaxModel
from dp_pipelines.report.model_section import model_section
from dp_pipelines.training import artefact, fit, scoring
from dp_pipelines.training.features import input_types
from tests.training import jax_models

ROWS, MOST = 60, 9.9e299
HUGE = {"min_value": -MOST, "max_value": MOST}
PLAIN = Number(column="x", min_value=0, max_value=1, edges=[0.5], scaled=True)
ODD_NAMES = ("a b|*'\"<", "x", "..", "/etc", "users", "cell", "f" * 3000)


def task(**changes: typing.Any) -> TrainModel:
    """A small model."""
    base: dict[str, typing.Any] = {
        "privacy_unit": "u",
        "label": BinaryLabel(column="y"),
        "features": {"f": PLAIN},
        "steps": Steps(steps=2),
    }
    return TrainModel(**{**base, **changes})


TASKS: dict[str, TrainModel] = {
    "bins of a huge range": task(features={"f": Number(column="x", bins=3, scaled=True, **HUGE)}),
    "a line over a huge range": task(features={"f": Number(column="x", bins=1, scaled=True, **HUGE)}, whiten=False),
    "a line over a tiny range": task(
        features={"f": Number(column="x", min_value=0, max_value=5e-324, bins=1, scaled=True)}
    ),
    "cuts far out": task(features={"f": Number(column="x", edges=[-9.8e299, 0, 9.8e299], scaled=True, **HUGE)}),
    "as many bins as there can be": task(features={"f": Number(column="x", min_value=0, max_value=1, bins=100)}),
    "odd values that nobody has": task(
        features={
            "c": Category(column="c", categories=["", "a|b\\*<>&", "\u202e", "x" * 256, "\0", "e\u0301", "'\"", "\n"]),
            "i": Category(column="i", categories=[2**63, -(2**70), 2**200, 7]),
        }
    ),
    "values that are found": task(
        features={"c": Category(column="c", most=1), "i": Category(column="i", most=400)}, max_examples_per_unit=1
    ),
    "odd names": task(
        features={
            **{name: Number(column="x", min_value=0, max_value=1, bins=2) for name in ODD_NAMES},
            **{f"v{name}": Category(column="c", most=2) for name in ODD_NAMES},
        }
    ),
    "pairs of odd features": task(
        features={
            "f": Number(column="x", bins=3, scaled=True, **HUGE),
            "c": Category(column="c", categories=["", "a|b\\*<>&", "\u202e", "\n"]),
            "i": Category(column="i", most=50),
        },
        pairs=[("f", "c"), ("i", "f"), ("c", "i")],
    ),
    "classes of odd text": task(label=ClassLabel(column="c", classes=["a,b", '"q"', "\n", "|", "\u202e", "a"])),
    "classes of numbers that no type holds": task(label=ClassLabel(column="i", classes=[2**70, -1, 2**63])),
    "a network for classes": task(
        label=ClassLabel(column="i", classes=[0, 1, 2]), model=MLP(hidden=(1, 1, 1)), whiten=False
    ),
    "a label of a huge range": task(label=NumberLabel(column="x2", **HUGE)),
    "a label of a tiny range": task(label=NumberLabel(column="x2", min_value=0, max_value=5e-324), model=MLP(hidden=(2,))),
    "a binary label of numbers": task(label=BinaryLabel(column="x2")),
    "steps too long for any model": task(
        steps=Steps(steps=3, clip_norm=9e29, learning_rate=9e29, momentum=0.999999, average=0),
    ),
    "steps too short for any model": task(
        steps=Steps(steps=1, clip_norm=2e-30, learning_rate=2e-30, sampling_rate=0.01), label=NumberLabel(column="x2", **HUGE)
    ),
    "nearly all held out": task(held_out=1 - 1e-9, evaluation_cells=2),
    "nearly nobody held out": task(held_out=5e-324, evaluation_examples=64, max_examples_per_unit=64),
    "hardly any budget": task(features={"f": Number(column="x", min_value=0, max_value=1), "c": Category(column="c", most=2)}),
    "a model of one's own": task(
        model=JaxModel(name="tests.training.jax_models:net", parameters=jax_models.Net.size, microbatch=1),
        features={"f": Number(column="x", min_value=0, max_value=1, edges=[0.5], scaled=True)},
        max_examples_per_unit=2,
    ),
}  # fmt: skip
EPSILON = {"hardly any budget": 0.1}


def table(unit: typing.Any = None, **changes: typing.Any) -> pa.Table:
    """Three examples of each of twenty units."""
    made = np.random.default_rng(1)
    columns = {
        "x": made.random(ROWS),
        "c": made.choice(["a", "b"], ROWS),
        "i": made.integers(0, 3, ROWS),
        "y": made.random(ROWS) < 0.5,
        **changes,
    }
    kinds = {"x": pa.float64(), "c": pa.string(), "i": pa.int64(), "y": pa.bool_()}
    arrays = {name: pa.array(values, kinds[name]) for name, values in columns.items()}
    unit = np.arange(ROWS) % 20 if unit is None else unit
    return pa.table({"u": pa.array(unit, pa.int64()), **arrays, "x2": arrays["x"]})


NULLS = [None] * ROWS
TABLES = {
    "ordinary": table(),
    "no row": table().slice(0, 0),
    "one row": table().slice(0, 1),
    "one unit": table(np.zeros(ROWS)),
    "no unit": table(NULLS),
    "nulls": table(x=NULLS, c=NULLS, i=NULLS, y=NULLS),
    "features that are null": table(x=NULLS, c=NULLS, i=NULLS),
    "constants": table(x=np.full(ROWS, 0.5), c=["a"] * ROWS, i=np.ones(ROWS, int), y=np.ones(ROWS, bool)),
    "numbers and texts of all sizes": table(
        x=np.tile([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324], ROWS // 6),
        c=np.tile(["", "a|b\\*<>&", "\u202e", "é", "\n", "x" * 300], ROWS // 6),
        i=np.tile([2**63 - 1, -(2**63), 0, 1, 2, 3], ROWS // 6),
    ),
}


@functools.cache
def planned(name: str) -> Plan:
    """The plan of a task, made once."""
    return Plan(epsilon=EPSILON.get(name, 1.0), delta=1e-6, stages={"model": TASKS[name]})


def unpaid(name: str) -> Plan:
    """The same, as if it were a plan that was made anew: making one takes seconds."""
    payment._paid.clear()
    return planned(name)


def test_every_class_of_feature_label_and_model_has_a_case() -> None:
    features = {type(feature) for one in TASKS.values() for feature in one.features.values()}
    assert features == set(typing.get_args(train_model.Feature))
    assert {type(one.label) for one in TASKS.values()} == set(typing.get_args(train_model.Label))
    assert {type(one.model) for one in TASKS.values()} == set(typing.get_args(train_model.Model))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if isinstance(one.model, JaxModel) else [])
        for name, one in TASKS.items()
    ],
)
def test_no_row_stops_a_run_after_its_budget_was_spent(tmp_path: pathlib.Path, name: str) -> None:
    asked = TASKS[name]
    if isinstance(asked.model, JaxModel):
        pytest.importorskip("jax_privacy")
    own = jax_models.net if isinstance(asked.model, JaxModel) else None
    for number, (of, rows) in enumerate(TABLES.items()):
        assert input_types.wrong_types(rows.schema, asked) == {}
        out = tmp_path / str(number)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            fit.train(unpaid(name), "model", lambda rows=rows: iter([rows]), out)  # type: ignore[misc]
            found = artefact.load(out)
            assert len(found.predict(rows, jax_model=own)) == len(rows), of
            assert model_section("model", out, "u")["facts"]
        json.loads((out / "evaluation.json").read_text(), parse_constant=pytest.fail)
        assert np.isfinite(found.parameters).all()


def test_a_range_too_narrow_for_bins_is_refused_before_anything_is_spent() -> None:
    narrow = Number(column="x", min_value=1, max_value=float(np.nextafter(1, 2)), bins=5)
    with pytest.raises(RequestError, match="widen the range"):
        Plan(epsilon=1, delta=1e-6, stages={"model": task(features={"f": narrow})})


@pytest.mark.parametrize(
    "make",
    [lambda half: Category(column="c", categories=[half]), lambda half: ClassLabel(column="c", classes=["a", half])],
)
def test_half_of_a_character_is_no_value(make: typing.Any) -> None:
    with pytest.raises(RequestError, match="half of a surrogate pair"):
        make("\ud800")


@pytest.mark.parametrize("scores", ["none", "of another shape", "of no number"])
def test_a_model_that_gives_no_scores_is_refused_before_the_first_release(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, scores: str
) -> None:
    pytest.importorskip("jax_privacy")
    given = {"none": lambda *_: None, "of another shape": lambda *given: given[-1], "of no number": lambda *_: "many"}[
        scores
    ]
    monkeypatch.setattr(jax_models.Net, "scores", given)
    released = []
    monkeypatch.setattr(fit.stage_on_disk, "release", lambda *given: released.append(given))
    with pytest.raises((RequestError, ValueError)):
        fit.train(unpaid("a model of one's own"), "model", lambda: iter([table()]), tmp_path / "out")
    assert not released


def test_a_model_is_never_asked_for_scores_of_no_row() -> None:
    """Whether there is a held-out row would decide what fails."""

    class Silent:
        def scores(self, *given: object) -> None:
            raise AssertionError("was asked")

    asked = TASKS["a model of one's own"]
    for alone in (True, False):
        none = scoring.scores(asked, np.zeros(1), None, np.zeros((0, 5), np.float32), jax_model=Silent(), alone=alone)
        assert none.shape == (0,)
