"""The gates of the training benchmark, on made-up runs, and that our own figures can be measured."""

import pytest


@pytest.fixture
def speed(load):
    return load("training_speed")


def measured(speed, **rates: float) -> dict[str, list[dict[str, float]]]:
    good = {"kernel": 600.0, "many": 100.0, "step": 360.0, "samples": 6000.0, "opacus": 150.0, "loader": 50.0}
    return {
        place: [{"steps": 10 * rate * factor, "seconds": 10.0, "cpu_seconds": 18.0} for factor in (0.9, 1.0, 5.0)]
        for place, rate in zip(speed.NAMES, (good | rates).values(), strict=True)
    }


def test_gates_compare_medians(speed) -> None:
    gates = speed.judge(measured(speed))
    assert [gate.figure for gate in gates] == [2.4, 360.0, 600.0, 4.0, 6000.0]
    assert all(gate.holds for gate in gates)


def test_each_gate_can_fail(speed) -> None:
    assert [gate.holds for gate in speed.judge(measured(speed, kernel=400.0))] == [True, True, False, False, True]
    slow = speed.judge(measured(speed, step=149.0, samples=4999.0))
    assert [gate.holds for gate in slow] == [False, False, True, True, False]


def test_a_busy_machine_gives_no_verdict(speed) -> None:
    assert "no verdict" not in speed.note(measured(speed))
    assert "no verdict" in speed.note({speed.KERNEL: [{"steps": 1.0, "seconds": 10.0, "cpu_seconds": 9.0}]})


@pytest.mark.slow
def test_our_own_figures_can_be_measured(speed) -> None:
    for kind in (speed.KERNEL, speed.MANY, speed.STEP, speed.SAMPLES):
        assert speed.measure_ours(kind, 0.01)["steps"] >= 1
