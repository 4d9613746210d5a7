"""What one unit does to the votes of teachers: it moves at most one vote of each example, whatever its rows are.

In: units with few rows, hostile ones among them; a public table. Out: numbers of votes, compared as whole numbers. Holds: nothing
is left to chance. Not covered: the noise (`test_noisy_answers.py`) and what is kept (`test_votes_fit.py`).
"""

import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dp_pipelines.query.models.pate_model import PateModel, Teachers
from dp_pipelines.query.train_model import MLP, BinaryLabel, Category, ClassLabel, Number

pytest.importorskip("numba")

from dp_pipelines.training.examples.store import Chunk, Examples
from dp_pipelines.training.kernels.linear import LinearKernel
from dp_pipelines.training.teachers import votes
from dp_pipelines.training.teachers.public_examples import PublicExamples
from tests.helpers.planted import plant

Places = NDArray[np.int64]

KEY = b"key"
FEATURES = {
    "x": Number(column="x", min_value=0, max_value=1, bins=4, scaled=True),
    "kind": Category(column="kind", categories=["a", "b"]),
}
FORMS: dict[str, dict[str, Any]] = {
    "two classes": {},
    "two classes, not whitened": {"whiten": False},
    "classes": {"label": ClassLabel(column="y", classes=[0, 1, 2])},
    "network": {"model": MLP(hidden=(3,)), "label": ClassLabel(column="y", classes=[0, 1, 2])},
    "one unit of the key has two columns": {"privacy_unit": ("who", "where")},
}


def model(**changes: Any) -> PateModel:
    base: dict[str, Any] = {
        "privacy_unit": "who",
        "label": BinaryLabel(column="y"),
        "features": FEATURES,
        "steps": Teachers(teachers=7, answers=10, asked=30),
        "max_examples_per_unit": 2**16,
    }
    return PateModel(**{**base, **changes})


def public(rows: int = 40) -> pa.Table:
    draw = np.random.default_rng(0)
    return pa.table({"x": draw.random(rows), "kind": [("a", "b", "c", None)[n % 4] for n in range(rows)]})


def unit_rows(who: str, x: Any, y: Any) -> pa.Table:
    x = np.asarray(x, np.float64)
    return pa.table(
        {
            "who": pa.array([who] * len(x), pa.string()),
            "where": pa.array(["here"] * len(x), pa.string()),
            "x": x,
            "kind": pa.array(["a" if n % 2 else None for n in range(len(x))], pa.string()),
            "y": pa.array(np.asarray(y, np.float64)),
        }
    )


def crowd(count: int = 25) -> list[pa.Table]:
    """Units of a few rows each, whose labels follow their features."""
    draw = np.random.default_rng(1)
    made = []
    for number in range(count):
        x = draw.random(1 + number % 4)
        made.append(unit_rows(f"unit {number}", x, x + 0.2 * draw.normal(size=len(x)) > 0.5))
    return made


def table_for(task: PateModel, tables: list[pa.Table]) -> list[pa.Table]:
    """The same rows, with labels of the type that the task's label has."""
    if isinstance(task.label, BinaryLabel):
        return tables
    labels = [pa.array(np.nan_to_num(table["y"].to_numpy(), posinf=9).astype(np.int64)) for table in tables]
    return [table.set_column(4, "y", own) for table, own in zip(tables, labels, strict=True)]


def counted(task: PateModel, tables: list[pa.Table], folder: pathlib.Path, key: bytes = KEY) -> Places:
    """The votes, as a run finds them."""
    known = PublicExamples.of(task, public(), key)
    tables = table_for(task, tables)
    hashes = votes.UnitHashes(task.unit_columns, key)
    examples = Examples.write(folder, "encoded", tables, known.encoder, task.unit_columns, hashes)
    if known.whitening is not None:
        examples = examples.times(folder, "whitened", known.whitening)
    blocks = votes.UnitBlocks.of_units(examples, task.steps.teachers)
    assert len(blocks.of) == examples.units
    return votes.votes_of(task, examples, blocks, known.rows, key)


HOSTILE: dict[str, pa.Table] = {
    "not a number": unit_rows("odd", [np.nan, np.nan], [0, 1]),
    "infinite": unit_rows("odd", [np.inf, -np.inf], [1, 1]),
    "a billion": unit_rows("odd", [1e9, -1e300, 1e300], [0, 0, 1]),
    "65,536 rows": unit_rows("odd", np.linspace(-1, 2, 2**16), np.arange(2**16) % 2),
    "one class": unit_rows("odd", np.linspace(0, 1, 3000), np.ones(3000)),
    "the other class": unit_rows("odd", np.linspace(0, 1, 3000), np.zeros(3000)),
    "labels that are none": unit_rows("odd", [0.5, 0.5], [np.nan, 7]),
    "no rows": unit_rows("odd", [], []),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_one_unit_moves_one_vote_of_an_example_at_most_and_raises_nothing(
    form: str, hostile: str, tmp_path: pathlib.Path
) -> None:
    task, others = model(**FORMS[form]), crowd()
    without = counted(task, others, tmp_path)
    for together in ([*others, HOSTILE[hostile]], [pa.concat_tables([HOSTILE[hostile], *others])]):
        moved = counted(task, together, tmp_path) - without
        assert (moved.sum(axis=1) == 0).all()
        assert np.square(moved).sum(axis=1).max() <= 2, "one vote goes from one class to another"
        largest = np.abs((without + moved).max(axis=1) - without.max(axis=1))
        assert largest.max() <= 1
    assert (without.sum(axis=1) == task.steps.teachers).all()


def test_each_unit_in_turn_moves_one_vote_and_some_do(tmp_path: pathlib.Path) -> None:
    task, others = model(), crowd()
    whole = counted(task, others, tmp_path)
    squares = [
        np.square(whole - counted(task, others[:number] + others[number + 1 :], tmp_path)).sum(axis=1)
        for number in range(len(others))
    ]
    assert set(np.unique(squares).tolist()) == {0, 2}


def moved_by_a_loud_unit(task: PateModel, folder: pathlib.Path) -> int:
    """The most that a unit moves votes of an example, as a square: where all others say one thing, and it says another."""
    others = [unit_rows(f"unit {number}", [0.2, 0.8], [0, 0]) for number in range(25)]
    loud = unit_rows("loud", np.linspace(0, 1, 3000), np.ones(3000))
    moved = counted(task, [*others, loud], folder) - counted(task, others, folder)
    return int(np.square(moved).sum(axis=1).max())


def test_the_loudest_unit_moves_one_vote_and_no_less(tmp_path: pathlib.Path) -> None:
    assert moved_by_a_loud_unit(model(), tmp_path) == 2


OWN = "order[ends[block] : ends[block + 1]]"
FAULTS = {
    "a teacher sees two blocks": (OWN, "order[ends[block] : ends[min(block + 2, len(ends) - 1)]]"),
    "a unit is in two blocks": (OWN, "np.flatnonzero((blocks.of - block) % task.steps.teachers < 2)"),
    "a teacher votes twice": ("counts[places, classes] += 1", "counts[places, classes] += 2"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_teachers_that_share_units_would_be_found(
    fault: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "dp_pipelines.training.teachers.votes:votes_of", *FAULTS[fault])
    assert moved_by_a_loud_unit(model(), tmp_path) > 2


@pytest.mark.parametrize("form", FORMS)
def test_files_and_orders_of_rows_and_other_blocks_change_no_vote(form: str, tmp_path: pathlib.Path) -> None:
    task, others = model(**FORMS[form]), crowd()
    whole = counted(task, others, tmp_path)
    assert (counted(task, others[::-1], tmp_path) == whole).all()
    assert (counted(task, [table.take(list(range(len(table)))[::-1]) for table in others], tmp_path) == whole).all()
    mixed = pa.concat_tables(others)
    order = np.random.default_rng(2).permutation(len(mixed))
    assert (counted(task, [mixed.take(pa.array(order))], tmp_path) == whole).all()


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(0, 40), seed=st.integers(0, 2**32 - 1))
def test_a_teacher_follows_from_the_rows_of_its_block_alone_to_the_last_bit(rows: int, seed: int) -> None:
    task, draw = model(), np.random.default_rng(seed)
    teacher = votes.learner(task, KEY)
    features = draw.normal(size=(rows, task.width)).astype(np.float32)
    labels, hashes = draw.integers(0, 2, rows).astype(np.float64), draw.integers(0, 4, rows).astype(np.uint64)

    def own(order: Places) -> bytes:
        chunk = Chunk(features[order], labels[order], np.arange(rows + 1))
        (found,) = teacher.trained(votes._ordered(chunk, hashes[order]))
        return bytes(found.tobytes())

    assert own(np.arange(rows)) == own(draw.permutation(rows))


@pytest.mark.parametrize("label", [BinaryLabel(column="y"), ClassLabel(column="y", classes=[0, 1, 2])])
def test_a_teacher_is_what_gradient_descent_gives(label: BinaryLabel | ClassLabel) -> None:
    task = model(label=label, steps=Teachers(teachers=7, steps=6))
    teacher, draw = votes.learner(task, KEY), np.random.default_rng(3)
    rows = (0.3 * draw.normal(size=(20, task.width))).astype(np.float32)
    labels = draw.integers(0, label.outputs if label.outputs > 1 else 2, 20).astype(np.float64)
    kernel, own = LinearKernel(width=task.width, label=label), teacher.initial()
    chunk = Chunk(rows, labels, np.arange(21))
    for _ in range(6):
        own = own - teacher.rate / 20 * kernel.clipped_sum(own, chunk, 1e4)
    (found,) = teacher.trained(Chunk(rows, labels, np.array([0, 20])))
    assert found == pytest.approx(own, abs=1e-5)


def test_a_teacher_without_rows_or_without_numbers_votes_by_a_fixed_rule() -> None:
    for form in FORMS.values():
        task = model(**form)
        teacher, rows = votes.learner(task, KEY), PublicExamples.of(task, public(), KEY).rows
        (own,) = teacher.trained(Chunk(np.zeros((0, task.width), np.float32), np.zeros(0), np.array([0, 0])))
        assert own.tobytes() == teacher.initial().tobytes()
        broken = np.full(teacher.size, np.nan)
        assert (votes.voted(teacher, broken, rows, task.classes) == 0).all()
    linear = votes.learner(model(), KEY)
    assert (votes.voted(linear, linear.initial(), rows, 2) == 0).all()


def test_votes_are_the_classes_with_the_largest_scores() -> None:
    task = model(label=ClassLabel(column="y", classes=[0, 1, 2]))
    teacher, draw = votes.learner(task, KEY), np.random.default_rng(4)
    rows, own = draw.normal(size=(50, task.width)).astype(np.float32), draw.normal(size=teacher.size)
    scores = rows.astype(np.float64) @ own.reshape(3, task.width).T
    assert votes.voted(teacher, own, rows, 3).tolist() == scores.argmax(axis=1).tolist()


def test_a_unit_s_block_follows_from_the_unit_and_the_key_alone_and_blocks_are_about_equal(
    tmp_path: pathlib.Path,
) -> None:
    task = model(steps=Teachers(teachers=10))
    tables = [unit_rows(f"unit {number}", [0.5, 0.1], [0, 1]) for number in range(3000)]
    known = PublicExamples.of(task, public(200), KEY)

    def blocks(listed: list[pa.Table], key: bytes) -> list[int]:
        written = Examples.write(tmp_path, "blocks", listed, known.encoder, ["who"], votes.UnitHashes(["who"], key))
        return votes.UnitBlocks.of_units(written, 10).of.tolist()

    together = blocks(tables, KEY)
    assert together[::10] == [blocks([table], KEY)[0] for table in tables[::10]]
    sizes = np.bincount(together, minlength=10)
    assert sizes.min() > 200  # of 300: six deviations below
    assert blocks(tables, b"another") != together
