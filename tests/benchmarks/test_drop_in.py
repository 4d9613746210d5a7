"""The benchmark of the drop-in: its gate can fail, and what is measured is one program with one line changed."""

import dataclasses
import math

import pytest


@pytest.fixture
def measured(load):
    """What a run measures where the two programs take so many CPU seconds, and `wait` times as long."""
    measure = load("measure")

    def make(theirs=40.0, ours=2.0, wait=1.0):
        found = {}
        for system, seconds in ((measure.PIPELINEDP, theirs), (measure.DROP_IN, ours)):
            values = {field.name: 1.0 for field in dataclasses.fields(measure.Run)}
            values |= {"cpu_seconds": seconds, "seconds": seconds * wait, "totals": {}, "partitions": 1}
            found[measure.Case(system, "even", 1_000_000)] = measure.Runs((measure.Run(**values),))
        return found

    return make


def test_the_gate_passes_a_good_figure_and_fails_a_bad_one_and_a_missing_one(load, measured) -> None:
    drop_in = load("drop_in")
    assert drop_in.gate(measured(), 1_000_000).holds
    assert not drop_in.gate(measured(ours=2.7), 1_000_000).holds
    missing = drop_in.gate({}, 1_000_000)
    assert math.isnan(missing.figure)
    assert not missing.holds


def test_a_busy_machine_is_told(load, measured) -> None:
    drop_in = load("drop_in")
    assert drop_in.busy_note(measured()) == ""
    assert "machine was busy" in drop_in.busy_note(measured(wait=2.0))


def test_one_line_of_the_program_is_changed(load) -> None:
    changed = load("pipelinedp_changed_import")
    before = changed.PROGRAM.read_text()
    after = changed.changed(before)
    lines = [pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if pair[0] != pair[1]]
    assert [one.split("  #")[0] for one, _ in lines] == ["import pipeline_dp"]
    assert [other.split("  #")[0] for _, other in lines] == ["from dp_pipelines.transforms import pipeline_dp"]
    with pytest.raises(ValueError, match="in exactly one line"):
        changed.changed(after)


def test_whole_programs_are_judged_with_and_without_their_own_reading(load) -> None:
    runs = load("films_runs")
    seconds = {runs.ORIGINAL: 40.0, runs.DROP_IN: 5.0, runs.NOTHING: 4.0}
    found = {
        (program, library): runs.Spent(cpu=cpu, wall=2 * cpu)
        for program in runs.PROGRAMS
        for library, cpu in seconds.items()
    }
    assert runs.ratio(found, "local") == 8.0
    assert runs.ratio(found, "local", own=True, wall=True) == 36.0
    assert all(gate.holds for gate in runs.gates(found))
    found["local", runs.DROP_IN] = runs.Spent(cpu=10.0, wall=20.0)
    assert [gate.holds for gate in runs.gates(found)] == [True, True, True, True, False, False]
    assert "| 40.0 (80.0) | 10.0 (20.0) | 4.0 (8.0) | 4.0x (4.0x) | 10.0x | 6.0x (6.0x) |" in runs.section(found)
    found["local", runs.DROP_IN] = runs.Spent(cpu=3.0, wall=6.0)
    assert math.isnan(runs.ratio(found, "local", own=True))
    assert [gate.holds for gate in runs.gates(found)] == [True, True, True, True, True, False]


def test_a_run_is_a_whole_process_that_finds_no_pandas(load, tmp_path, monkeypatch) -> None:
    runs = load("films_runs")
    program = "import pathlib, sys\ntry:\n    import pandas\nexcept ImportError:\n"
    program += "    sum(range(3_000_000))\n    pathlib.Path(sys.argv[4]).touch()\n"
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "films.py").write_text(program)
    monkeypatch.setattr(runs, "HERE", tmp_path)
    spent = runs.run_once("local", runs.NOTHING, tmp_path / "ratings", tmp_path)
    assert (tmp_path / "found").exists()
    assert spent.cpu > 0
    assert spent.wall > 0.5 * spent.cpu
    (tmp_path / "peers" / "films.py").write_text("raise SystemExit('no such film')")
    with pytest.raises(runs.BenchmarkError, match="no such film"):
        runs.run_once("local", runs.NOTHING, tmp_path / "ratings", tmp_path)
