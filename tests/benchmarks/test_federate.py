"""The benchmark of federated rounds, on made-up examples: its goal can fail, and its worlds are what they say.

In: the script, few rows. Out: exit codes, tables. Holds: nothing is measured. Not covered: how good models are.
"""

import pathlib
import sys
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import BinaryLabel, FederateModel, Number, Rounds

pytest.importorskip("numba")


@pytest.fixture
def federate(load: Callable[[str], ModuleType]) -> ModuleType:
    pytest.importorskip("sklearn")
    return load("federate")


def made_up(federate: ModuleType) -> object:
    draw = np.random.default_rng(1)
    x = draw.random(600)
    table = pa.table(
        {
            "CUSTOMER_ID": [f"c{number // 3}" for number in range(600)],
            "PIN_CODE": [f"{number % 4}" for number in range(600)],
            "x": x,
            "y": (x + 0.2 * draw.normal(size=600) > 0.5).astype(np.int64),
        }
    )
    task = FederateModel(
        privacy_unit="CUSTOMER_ID",
        label=BinaryLabel(column="y"),
        features={"x": Number(column="x", min_value=0, max_value=1, edges=[0.3, 0.6])},
        steps=Rounds(steps=3),
        expected_clients=200,
        whiten=False,
    )
    return federate.World(table, task)


def test_without_noise_all_runs_are_the_same_and_rank_examples(federate: ModuleType) -> None:
    world = made_up(federate)
    one, other = (federate.run(world, 1.0, 1, federate.WithoutNoise(), rounds=True) for _ in range(2))
    assert one == other
    assert len(one.by_round) == 3
    assert one.auc > 0.8


def test_worlds_of_fewer_and_of_simulated_clients_have_whole_clients(federate: ModuleType) -> None:
    world = made_up(federate)
    few = federate.some(world, 50)
    assert len(set(few.table.column("CUSTOMER_ID").to_pylist())) == 50
    assert few.task.expected_clients == 50
    together = federate.simulated(world, 20, 1.0)
    rows = together.table.to_pylist()
    clients = {row["CUSTOMER_ID"]: row["client"] for row in rows}
    assert all(clients[row["CUSTOMER_ID"]] == row["client"] for row in rows)
    assert len(rows) == 600
    assert together.task.unit_columns == ("client",)
    assert federate.run(together, 8.0, 1).by_round == ()


@pytest.mark.parametrize(("auc", "code"), [(0.781, 0), (0.779, 1)])
def test_the_goal_can_fail(
    federate: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, auc: float, code: int
) -> None:
    world = made_up(federate)
    monkeypatch.setattr(federate, "check", lambda file, given: None)
    monkeypatch.setattr(federate, "world_of", lambda request, folder: world)
    monkeypatch.setattr(federate, "run", lambda *given, **named: federate.Run(auc, ()))
    monkeypatch.setattr(sys, "argv", ["federate.py", "--quick", "--out", str(tmp_path)])
    assert federate.main() == code


def test_the_page_shows_every_figure(federate: ModuleType, tmp_path: pathlib.Path) -> None:
    curve = np.linspace(0.6, 0.78, 3)
    one = (0.75, 0.001, curve)
    found = federate.Measured(
        settings={"one": one},
        epsilons={1.0: one},
        schedules=dict.fromkeys(federate.SCHEDULES, one),
        customers={1000: one},
        clients={(count, alpha): one for count in federate.CLIENTS for alpha in federate.ALPHAS},
        noise=federate.noises(made_up(federate)),
        without=one,
    )
    federate.write(tmp_path, found, 2)
    page = (tmp_path / "federate.md").read_text()
    assert all(f"| {name} |" in page for name in federate.SCHEDULES)
    assert "10,000, alpha 0.3" in page
    assert (tmp_path / "federate.png").read_bytes().startswith(b"\x89PNG")
