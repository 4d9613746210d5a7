"""The benchmark of shrunk means: its gates can fail, each of them."""

import dataclasses

import pytest

GOOD = {"raw": 4.0, "pooled": 1.0, "middle": 9.0, "shrunk": 1.0, "covered": 0.95, "bar": 2.0}


@pytest.mark.parametrize(
    ("name", "changes", "hold"),
    [
        ("ratings", {}, [True, True, True]),
        ("ratings", {"shrunk": 1.05**2 - 1e-6}, [True, True, True]),
        ("ratings", {"shrunk": 1.05**2 + 1e-6}, [False, True, True]),
        ("ratings", {"shrunk": 1.0, "raw": 0.8}, [False, True, True]),
        ("ratings", {"middle": 0.8}, [False, True, True]),
        ("heavy noise", {"shrunk": 1.09**2}, [True, True, True]),
        ("heavy noise", {"shrunk": 1.11**2}, [False, True, True]),
        ("prices", {"covered": 0.89}, [True, False, True]),
        ("prices", {"covered": 0.995}, [True, True, False]),
        ("prices", {"shrunk": float("nan"), "covered": float("nan")}, [False, False, False]),
    ],
)
def test_a_gate_holds_for_good_figures_alone(load, name, changes, hold) -> None:
    means = load("means")
    line, gates = means.judged(name, [means.Result(**{**GOOD, **changes})])
    assert [gate.holds for gate in gates] == hold
    assert line.startswith(f"| {name} |")


def test_one_repetition_is_what_it_says(load) -> None:
    means = load("means")
    made = means.np.random.default_rng(1)
    found = means.repeated(means.SHAPES["two groups"], means.planned("two groups"), made)
    assert 0.7 < found.covered <= 1
    assert found.shrunk < found.pooled
    assert all(value >= 0 for value in dataclasses.astuple(found))
