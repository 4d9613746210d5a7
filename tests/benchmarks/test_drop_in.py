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
    seconds = {runs.ORIGINAL: 40.0, runs.DROP_IN: 10.0, runs.NOTHING: 8.0}
    found = {
        (program, library): runs.Spent(cpu=cpu, wall=2 * cpu)
        for program in runs.PROGRAMS
        for library, cpu in seconds.items()
    }
    assert runs.ratio(found, "local") == 4.0
    assert runs.ratio(found, "local", own=True, wall=True) == 16.0
    assert all(gate.holds for gate in runs.gates(found))
    found["local", runs.DROP_IN] = runs.Spent(cpu=17.0, wall=34.0)
    assert [gate.holds for gate in runs.gates(found)] == [True, True, True, True, False, False]
    assert "| 40.0 (80.0) | 17.0 (34.0) | 8.0 (16.0) | 2.4x (2.4x) | 5.0x | 3.6x (3.6x) |" in runs.section(found)
