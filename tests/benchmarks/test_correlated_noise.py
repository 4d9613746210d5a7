"""The benchmark of correlated noise, on made-up examples: its page shows every row, and it fails where correlated noise is worse.

In: the script, few rows. Out: exit codes, a page. Holds: nothing is measured. Not covered: how good models are.
"""

import pathlib
import sys
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from dp_pipelines import Rounds
from tests.benchmarks.test_federate import made_up

pytest.importorskip("numba")


@pytest.fixture
def benchmark(load: Callable[[str], ModuleType]) -> ModuleType:
    pytest.importorskip("sklearn")
    return load("correlated_noise")


@pytest.fixture
def federate(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("federate")


def test_errors_are_those_of_the_noise_that_a_round_of_fewer_clients_has(
    benchmark: ModuleType, federate: ModuleType
) -> None:
    world = made_up(federate)
    forms = {
        separation: federate.with_rounds(world, steps=8, separation=separation, noise=noise)
        for separation, noise in ((None, "independent"), (4, "independent"), (2, "correlated"))
    }
    # A fourth of the clients, and half of the noise, since each pays for a fourth of the rounds.
    assert benchmark.error(forms[None]) == 1.0
    assert benchmark.error(forms[4]) == pytest.approx(2.0)
    assert benchmark.error(forms[2]) < 2**0.5
    assert benchmark.multiplier(forms[4]) == pytest.approx(benchmark.multiplier(forms[None]) / 2, rel=0.05)
    assert isinstance(world.task.steps, Rounds)


@pytest.mark.parametrize(("correlated", "code"), [(0.75, 0), (0.71, 1)])
def test_the_page_has_every_form_and_worse_correlated_noise_fails(
    benchmark: ModuleType,
    federate: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    correlated: float,
    code: int,
) -> None:
    world = federate.with_rounds(made_up(federate), steps=40)

    def ran(name: str, splits: int, of: object) -> tuple[float, float, np.ndarray]:
        return (correlated if ", correlated" in name else 0.75, 0.01, np.zeros(0))

    monkeypatch.setattr(benchmark, "check", lambda file, given: None)
    monkeypatch.setattr(benchmark, "world_of", lambda request, folder: world)
    monkeypatch.setattr(benchmark, "mean", ran)
    monkeypatch.setattr(benchmark, "multiplier", lambda world: 10.0)
    monkeypatch.setattr(sys, "argv", ["correlated_noise.py", "--out", str(tmp_path)])
    assert benchmark.main() == code
    page = (tmp_path / "correlated_noise.md").read_text()
    assert page.count("| correlated |") == len(benchmark.SEPARATIONS)
    assert all(f"| one of {separation} rounds | independent |" in page for separation in benchmark.SEPARATIONS)
    assert "| each round | independent | 10.0 | 1.00 |" in page
