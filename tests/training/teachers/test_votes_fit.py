"""A run of teachers and their student: what is kept, what a retry does, what follows from the public table alone.

In: few units, a public table. Out: students, kept draws. Holds: nothing is left to chance but the answers, which are kept.
Not covered: the ledger (`tests/jobs/run/test_pate.py`), votes and noise (beside this).
"""

import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import Plan, RequestError
from dp_pipelines.planning import votes_usefulness
from dp_pipelines.query.expectation import Expectation
from dp_pipelines.query.models.pate_model import PateModel, Teachers
from dp_pipelines.query.train_model import MLP, Category, ClassLabel, Number, NumberLabel, Steps
from dp_pipelines.training.description import Statement, task_from_json, task_to_json
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.kept_draws import InMemory

pytest.importorskip("numba")

from dp_pipelines.training import fit
from dp_pipelines.training.teachers import public_examples
from dp_pipelines.training.teachers.noisy_answers import Answers
from dp_pipelines.training.teachers.public_examples import PublicExamples
from tests.training.teachers.test_votes import FEATURES, KEY, crowd, model, public, unit_rows


class Dying(InMemory):
    """Dies once it has kept something of a name."""

    def __init__(self, after: str | None = None) -> None:
        super().__init__()
        self.after, self.names = after, list[str]()

    def keep(self, name: str, content: bytes) -> None:
        super().keep(name, content)
        self.names.append(name)
        if name == self.after:
            raise KeyboardInterrupt


def planned(**changes: Any) -> Plan:
    return Plan(epsilon=8.0, delta=1e-6, stages={"model": model(**changes)})


def run(
    plan: Plan, folder: pathlib.Path, draws: InMemory, tables: list[pa.Table], table: pa.Table | None = None
) -> fit.Fitted:
    folder.mkdir()
    one = fit.Fit(
        name="model",
        task=plan.trained["model"],
        stages=plan.round(1).stages,
        tables=lambda: iter(tables),
        folder=folder,
        draws=draws,
        key=KEY,
        salt=7,
        tell=lambda text: None,
        public=public() if table is None else table,
    )
    return one.run(Statement(unit="who", plan="", epsilon=1.0, delta=1e-6))


@pytest.mark.parametrize("network", [False, True])
def test_a_killed_run_goes_on_with_its_answers_whatever_rows_have_become(network: bool, tmp_path: pathlib.Path) -> None:
    plan = planned(**({"model": MLP(hidden=(3,))} if network else {}))
    draws = Dying(after="model")
    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path / "first", draws, crowd())
    kept = draws.get("model")
    draws.after = None
    done = run(plan, tmp_path / "second", draws, [unit_rows("else", [0.1], [1])])
    assert draws.names == ["model.public", "model"]
    assert draws.get("model") == kept
    answers = Answers.from_bytes(kept or b"")
    assert done.artefact.path["answered"] == tuple(answers.examples)
    assert len(set(done.artefact.path["row"])) == len(answers.examples)
    again = run(plan, tmp_path / "third", draws, crowd(3))
    assert again.artefact.parameters.tobytes() == done.artefact.parameters.tobytes()


def test_a_run_that_died_before_its_answers_draws_them_once(tmp_path: pathlib.Path) -> None:
    plan, draws = planned(), Dying(after="model.public")
    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path / "first", draws, crowd())
    assert draws.get("model") is None
    draws.after = None
    run(plan, tmp_path / "second", draws, crowd())
    assert draws.names == ["model.public", "model"]


def test_answers_are_not_applied_to_another_public_table(tmp_path: pathlib.Path) -> None:
    plan, draws = planned(), InMemory()
    run(plan, tmp_path / "first", draws, crowd())
    with pytest.raises(RequestError, match="has changed since this run began"):
        run(plan, tmp_path / "second", draws, crowd(), public(41))


@pytest.mark.parametrize(
    "tables", [[], [unit_rows("one", [0.5], [1])], [unit_rows("odd", [np.nan] * 9, [7.0] * 9)]], ids=str
)
def test_units_that_are_not_there_change_no_name_and_raise_nothing(
    tables: list[pa.Table], tmp_path: pathlib.Path
) -> None:
    draws, usual = Dying(), Dying()
    done = run(planned(), tmp_path / "run", draws, tables)
    run(planned(), tmp_path / "usual", usual, crowd())
    assert draws.names == usual.names
    assert np.isfinite(done.artefact.parameters).all()


def test_a_student_of_no_answers_is_the_model_with_which_students_begin(tmp_path: pathlib.Path) -> None:
    plan = planned(steps=Teachers(teachers=2, answers=1, asked=1, threshold=2))
    draws = InMemory()
    draws.keep("model", Answers(asked=1, examples=np.zeros(0, np.int64), classes=np.zeros(0, np.int64)).to_bytes())
    done = run(plan, tmp_path / "run", draws, crowd())
    assert (done.artefact.parameters == 0).all()
    assert done.artefact.path["answered"] == ()


def test_a_student_learns_what_teachers_know(tmp_path: pathlib.Path) -> None:
    """With much budget it ranks examples as their features do: noise of a vote or two of 20 would have to turn most of 30."""
    task = model(steps=Teachers(teachers=20, answers=30, asked=30, threshold=1, steps=20))
    plan = Plan(epsilon=39.0, delta=1e-3, stages={"model": task})
    done = run(plan, tmp_path / "run", InMemory(), crowd(400))
    said = done.artefact.scores(pa.table({"x": [0.1, 0.9], "kind": ["a", "a"]}))
    assert said[0] < said[1]


def test_bins_categories_and_moments_are_those_of_the_public_table(tmp_path: pathlib.Path) -> None:
    features = {
        "x": Number(column="x", min_value=0, max_value=1, bins=4),
        "n": Number(column="n", min_value=0, max_value=9, bins=3),
        "kind": Category(column="kind", most=2),
    }
    table = pa.table({
        "x": [0.1, 0.2, 0.3, 0.4, 5.0, None] * 20, "n": [0, 0, 0, 1, 2, 3] * 20, "kind": ["b", "b", "c", "c", "c", None] * 20,
    })  # fmt: skip
    task = model(features=features)
    known = PublicExamples.of(task, table, KEY)
    assert known.encoder.vocabulary["kind"] == ("c", "b")
    assert known.encoder.edges["n"][0] == 0.5  # whole numbers, by their type: between two of them
    assert sorted(known.encoder.edges["x"]) == list(known.encoder.edges["x"])
    assert 0.1 < known.encoder.edges["x"][1] < 0.4
    shuffled = PublicExamples.of(task, table.take(pa.array(np.arange(120)[::-1])), KEY)
    assert shuffled.encoder == known.encoder
    assert known.whitening is not None
    rows = known.encoder.encode(table).astype(np.float64) @ known.whitening
    assert np.diag(rows.T @ rows / 120).max() <= 1 + 1e-6, "whitened rows are at most one long in any direction"
    assert PublicExamples.of(model(features=features, whiten=False), table, KEY).whitening is None


def test_examples_are_asked_in_an_order_that_public_bytes_decide() -> None:
    task = model()
    one, other = (PublicExamples.of(task, public(500), key).places for key in (KEY, b"other"))
    assert len(set(one.tolist())) == task.steps.settled_asked
    assert (one == PublicExamples.of(task, public(500), KEY).places).all()
    assert (one != other).any()
    assert one.max() > 250, "not the first rows of the table alone"


def test_public_values_that_are_missing_make_bins_of_the_range() -> None:
    task = model(features={"x": Number(column="x", min_value=0, max_value=1, bins=4)})
    empty = pa.table({"x": pa.array([None] * 40, pa.float64())})
    assert PublicExamples.of(task, empty, KEY).encoder.edges["x"] == (0.25, 0.5, 0.75)


def test_a_public_table_is_the_same_whatever_layout_its_columns_have(tmp_path: pathlib.Path) -> None:
    """Parquet gives back views and dictionaries, which Arrow cannot all take rows of; a run has been charged by then."""
    plan, draws, table = planned(), InMemory(), public()
    done = run(plan, tmp_path / "plain", draws, crowd(), table)
    for place, kind in enumerate((pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()))):
        other = table.set_column(1, "kind", table.column("kind").cast(kind)).append_column("unread", table.column("x"))
        again = run(plan, tmp_path / str(place), draws, crowd(), other)
        assert again.artefact.encoder == done.artefact.encoder
        anew = run(plan, tmp_path / f"anew {place}", InMemory(), crowd(), other)
        assert anew.artefact.encoder == done.artefact.encoder


def test_the_digest_of_a_public_table_is_that_of_its_rows() -> None:
    """What a file has under nulls, and how it stores rows, are no part of them; each value, null and type is."""

    def under(junk: float) -> pa.Array:
        held = pa.py_buffer(np.array([1.0, junk, 3.0]).tobytes())
        return pa.Array.from_buffers(pa.float64(), 3, [pa.py_buffer(b"\x05"), held])

    def digest(column: pa.Array) -> str:
        return public_examples.digest(pa.table({"x": column}))

    assert digest(under(0.0)) == digest(under(9.0)) == digest(pa.array([1.0, None, 3.0]))
    for values in (["a", None, "bb", ""] * 5, [True, None, False, True] * 5):
        assert digest(pa.array(values).slice(3, 9)) == digest(pa.array(values[3:12]))
    different = [
        pa.array([1.0, None, 3.0]), pa.array([1.0, 3.0, None]), pa.array([1.0, 3.0]), pa.array([1.0, None, 4.0]),
        pa.array([1.0, None, 3.0], pa.float32()), pa.array(["ab", "c"]), pa.array(["a", "bc"]), pa.array(["abc"]),
    ]  # fmt: skip
    assert len({digest(column) for column in different}) == len(different)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "is missing"),
        (public(29), "has 29 rows, fewer than the 30 examples"),
        (public().drop_columns(["kind"]), "'kind'"),
        (public().set_column(0, "x", pa.array(["a"] * 40)), "is no number"),
    ],
    ids=["none", "few", "lacking", "text"],
)
def test_a_public_table_that_does_not_fit_is_refused(table: pa.Table | None, words: str) -> None:
    with pytest.raises(RequestError, match=words) as refused:
        public_examples.refuse_unfit(model(), table)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"label": NumberLabel(column="y", min_value=0, max_value=1)}, "label"),
        ({"steps": Steps()}, "steps"),
    ],
)
def test_what_teachers_cannot_learn_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        model(**changes)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "steps",
    [
        {"l2": 0.1},
        {"sampling_rate": 0.5},
        {"candidates": [{"steps": 2}]},
        {"momentum": 0.5},
        {"clip_norm": 1.0},
        {"class_weights": [1, 2]},
        {"teachers": 1},
        {"asked": 5, "answers": 6},
        {"teachers": 5, "threshold": 6},
    ],
    ids=str,
)
def test_settings_of_noisy_steps_and_settings_that_contradict_each_other_are_refused(steps: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        Teachers(**steps)
    assert refused.value.field in steps


def test_what_a_file_says_of_a_model_gives_back_its_task() -> None:
    for changes in ({}, {"model": MLP(hidden=(3,))}, {"label": ClassLabel(column="y", classes=["a", "b", "c"])}):
        task = model(**changes, features=FEATURES)
        again = task_from_json(task_to_json(task), Encoder.of(task, edges={"x": [0.2, 0.4, 0.6]}))
        assert (again, type(again)) == (task, PateModel)


def test_a_plan_tells_when_votes_are_outweighed_and_when_teachers_are_many() -> None:
    plan = Plan(epsilon=1.0, delta=1e-6, stages={"model": model(steps=Teachers(teachers=50))})
    told = votes_usefulness.of_votes("model", plan.trained["model"], plan.stages, Expectation(units=40))  # type: ignore[arg-type]
    assert any("not even votes that all agree" in hint for hint in told["hints"])
    assert any("no answer is that of the majority" in words for words in told["words"])
    assert any("more teachers than units" in hint for hint in told["hints"])
    plan = Plan(epsilon=1.0, delta=1e-6, stages={"model": model(steps=Teachers(teachers=500))})
    many = votes_usefulness.of_votes("model", plan.trained["model"], plan.stages, Expectation(units=30_000))  # type: ignore[arg-type]
    assert many["hints"] == []
    assert any("95 times out of 100 from where" in words for words in many["words"])
