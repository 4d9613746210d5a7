"""The benchmark of votes of teachers, on made-up examples: its goal can fail, and its figures are of what they say.

In: the script, few rows. Out: exit codes, tables. Holds: nothing is measured. Not covered: how good models are.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import BinaryLabel, Number, Plan, TrainModel

pytest.importorskip("numba")


@pytest.fixture
def pate(load: Callable[[str], ModuleType]) -> ModuleType:
    pytest.importorskip("sklearn")
    return load("pate")


def made_up(pate: ModuleType) -> Any:
    draw = np.random.default_rng(1)
    x = draw.random(900)
    table = pa.table(
        {
            "CUSTOMER_ID": [f"c{number // 3}" for number in range(900)],
            "x": x,
            "y": (x + 0.2 * draw.normal(size=900) > 0.5).astype(np.int64),
        }
    )
    task = TrainModel(
        privacy_unit="CUSTOMER_ID",
        label=BinaryLabel(column="y"),
        features={"x": Number(column="x", min_value=0, max_value=1, edges=[0.3, 0.6])},
    )
    return pate.World(table.slice(300), table.slice(0, 300), task)


def test_a_student_stands_beside_the_vote_on_the_same_and_on_all_public_examples(pate: ModuleType) -> None:
    world = made_up(pate)
    task = world.pate(teachers=20, answers=30, threshold=1)
    asked = pate.Asked.of(world, task, 1)
    assert asked.votes.shape == (300, 2)
    assert (asked.votes.sum(axis=1) == 20).all()
    assert asked.of_all() > 0.8
    one = asked.student(Plan(epsilon=30.0, delta=1e-3, stages={"returns": task}))
    assert one.answered <= 30
    assert one.without > 0.7


def test_training_at_the_same_budget_is_on_the_private_rows_alone(pate: ModuleType) -> None:
    area, _ = pate.trained(made_up(pate), 30.0, 1)
    assert area > 0.7


def row(pate: ModuleType, auc: float) -> Any:
    return pate.Row(
        name="the defaults",
        auc=auc,
        spread=0.01,
        without=0.77,
        of_all=0.78,
        answered=99.0,
        like_vote=0.9,
        true=0.7,
        needed=327.5,
    )


@pytest.mark.parametrize(("auc", "code"), [(0.751, 0), (0.749, 1)])
def test_the_goal_can_fail(
    pate: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, auc: float, code: int
) -> None:
    world = made_up(pate)
    monkeypatch.setattr(pate.World, "of_ta_feng", lambda: world)
    monkeypatch.setattr(pate, "measured", lambda *given, **named: row(pate, auc))
    monkeypatch.setattr(sys, "argv", ["pate.py", "--quick", "--out", str(tmp_path)])
    assert pate.main() == code


def test_the_page_shows_every_figure(pate: ModuleType, tmp_path: pathlib.Path) -> None:
    one = row(pate, 0.7456)
    other = dataclasses.replace(one, name="250 teachers", auc=0.7345)
    pate.write(
        tmp_path, made_up(pate), [one, other], {1.0: (one, (0.7912, 0.002)), 2.0: (other, (0.7921, 0.002))}, 2, 3
    )
    page = (tmp_path / "pate.md").read_text()
    for figure in ("0.7456", "0.7345", "0.7912", "0.7921", "328", "250 teachers", "a fifth of them stand for one"):
        assert figure in " ".join(page.split())
