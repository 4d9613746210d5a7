"""The gates of the benchmark of steps, on made-up runs."""

import pytest


@pytest.fixture
def steps(load):
    return load("training_steps")


def reports(steps, ours=0.9, many=2.5):
    found = {
        steps.OURS: [
            {"cpu_seconds": 2.0, "seconds": 2.0, "steps_cpu_seconds": ours * factor} for factor in (0.5, 1, 9)
        ],
        steps.SKLEARN: [{"cpu_seconds": 1.0, "seconds": 1.0, "iterations": 18.0}] * 3,
    }
    return {**found, steps.MANY: [{"cpu_seconds": many, "seconds": many}] * 3} if many else found


def test_gates_compare_medians_of_steps_with_whole_fits_at_both_sizes(steps) -> None:
    gates, text = steps.judged(reports(steps), reports(steps, ours=0.8, many=None), 1_000_000, 10_000_000, 3)
    assert [gate.figure for gate in gates] == [0.9, 0.8, 2.5]
    assert all(gate.holds for gate in gates)
    assert "| the 40 steps alone, 10,000,000 rows | 0.8 | |" in text


def test_each_gate_can_fail(steps) -> None:
    def held(small, large):
        return [gate.holds for gate in steps.judged(small, large, 1, 2, 3)[0]]

    assert held(reports(steps, ours=1.1), reports(steps, many=None)) == [False, True, True]
    assert held(reports(steps), reports(steps, ours=1.1, many=None)) == [True, False, True]
    assert held(reports(steps, many=3.1), {}) == [True, False]


@pytest.mark.slow
def test_all_three_can_be_measured(steps) -> None:
    assert steps.ours(2_000, 5, 10)["steps_cpu_seconds"] > 0
    assert 1 <= steps.sklearn(2_000)["iterations"] <= 40
