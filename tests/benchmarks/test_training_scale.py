"""The benchmark of training at ten million rows: its gates on made-up runs, its parts on a command that tells progress."""

import dataclasses
import sys

import pytest


@pytest.fixture
def scale(load):
    return load("training_scale")


@pytest.fixture
def good(scale):
    """A run on which all gates hold, of ten million rows."""
    parts = dict.fromkeys((scale.START, *scale.PARTS.values()), (5.0, 5.0))
    return scale.Run(seconds=60.0, cpu_seconds=60.0, peak_gib=1.1, parts=parts, auc=(0.8, 0.001))


THEIRS = 10.0, 20


def test_good_figures_pass_and_the_largest_part_is_that_of_all_until_examples_are_there(scale, good) -> None:
    gates = scale.judge(good, THEIRS, 10_000_000)
    assert [gate.figure for gate in gates] == [60.0, 1.1, 15.0, 5.0 / 40 / (10.0 / 20)]
    assert [gate.limit for gate in gates] == [90.0, 2.0, 32.5, 1]
    assert all(gate.holds for gate in gates)


def test_each_gate_can_fail(scale, good) -> None:
    def held(theirs=THEIRS, part=None, **changes) -> list[bool]:
        parts = {**good.parts, **({part: (40.0, 33.0)} if part else {})}
        return [
            gate.holds for gate in scale.judge(dataclasses.replace(good, parts=parts, **changes), theirs, 10_000_000)
        ]

    assert held(seconds=91.0) == [False, True, True, True]
    assert held(peak_gib=2.1) == [True, False, True, True]
    assert held(part=scale.WINDOWS) == held(part="bins") == [True, True, False, True]
    assert held(part=scale.STEPS) == [True, True, True, False]
    assert held(theirs=(1.0, 20)) == [True, True, True, False]


def test_time_goes_to_the_part_that_was_told_last(scale) -> None:
    said = ["step 2 of 3 · 1 of 3 files", "step 3 of 3 · label", "releasing label.bins", "training label: step 1 of 40"]
    lines = "; ".join(f"print('progress: {line}', file=sys.stderr, flush=True); time.sleep(0.2)" for line in said)
    parts, used = scale.watched([sys.executable, "-c", f"import sys, time; time.sleep(0.1); {lines}"])
    taken = {name for name, (seconds, _) in parts.items() if seconds >= 0.15}
    assert taken >= {scale.READING, scale.WINDOWS, "bins", scale.STEPS}
    assert parts["evaluation, report"] == (0.0, 0.0)
    assert sum(cpu for _, cpu in parts.values()) == pytest.approx(used.ru_utime + used.ru_stime)


def test_a_command_that_fails_is_no_run(scale) -> None:
    with pytest.raises(scale.BenchmarkError, match="exit code 3"):
        scale.watched([sys.executable, "-c", "raise SystemExit(3)"])


@pytest.mark.slow
def test_both_can_be_measured_and_rows_are_made_once(scale, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(scale.data, "FOLDER", tmp_path)
    run = scale.ours(20_000)
    assert run.largest > 0
    assert run.parts[scale.STEPS][0] > 0
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    seconds, iterations = scale.sklearn(20_000)
    assert seconds > 0
    assert 1 <= iterations <= 40
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == made
    gates = scale.judge(run, (seconds, iterations), 20_000)
    assert "| 40 steps |" in scale.page(run, (seconds, iterations), gates, 20_000, 1)
