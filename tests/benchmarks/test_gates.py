"""The gates of the benchmark: each passes good figures and fails a planted bad one."""

import dataclasses
import math

import pytest

# (system, kind) -> seconds of the query per million rows with two threads, of a machine on which all gates hold
GOOD = {
    ("LOCAL", "even"): 0.16,
    ("LOCAL", "hot_user"): 0.16,
    ("LOCAL", "hot_key"): 0.16,
    ("LOCAL", "strings"): 0.2,
    ("QUANTILES", "even"): 0.3,
    ("DUCKDB", "even"): 0.23,
    ("POLARS", "even"): 0.4,
    ("OURS", "even"): 0.3,
    ("PIPELINEDP", "even"): 45.0,
}
START = {"LOCAL": 0.8, "DUCKDB": 0.2}
MORE_OF_ONE_THREAD = 1.8


@pytest.fixture
def sizes(load):
    """Of a full run with the largest size."""
    return dataclasses.replace(load("gates").FULL, largest=100_000_000)


@pytest.fixture
def measured(load, sizes):
    """What a run measures on a machine where (system, kind) takes `per_million` seconds, and `mib` at most."""
    gates, measure = load("gates"), load("measure")

    def make(changes=None, *, mib=500.0, exponent=1.0, start=None, one_thread=MORE_OF_ONE_THREAD, of_largest=1.0):
        per_million = {**GOOD, **(changes or {})}
        starts = {**START, **(start or {})}
        name_of = {getattr(measure, name): name for name, _ in GOOD}
        found = {}
        for case, rounds in gates.cases(sizes, 5, 3).items():
            name = name_of[case.system]
            seconds = per_million[name, case.kind] * (case.rows / 1e6) ** exponent
            seconds *= one_thread if case.threads == 1 else 1.0
            whole = seconds + starts.get(name, 1.0)
            run = measure.Run(
                plan_seconds=0.0,
                seconds=seconds,
                cpu_seconds=seconds,
                data_seconds=seconds,
                import_seconds=1.0,
                max_rss_mib=mib,
                partitions=1,
                totals={},
                whole_seconds=whole * (of_largest if case.memory_gib and name == "LOCAL" else 1.0),
                whole_cpu_seconds=whole,
            )
            found[case] = measure.Runs((run,) * rounds)
        return found

    return make


@pytest.fixture
def failing(load, sizes):
    """The names of the gates that fail."""
    gates = load("gates")
    return lambda found: [gate.name for gate in gates.evaluate(found, sizes) if not gate.holds]


def test_good_figures_pass_every_gate(failing, measured):
    assert failing(measured()) == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({("PIPELINEDP", "even"): 9.0}, "PipelineDP"),
        ({("POLARS", "even"): 0.15}, "faster of DuckDB and Polars"),
        ({("LOCAL", "hot_user"): 0.22}, "a user with half"),
        ({("LOCAL", "hot_key"): 0.22}, "a key with half"),
        ({("LOCAL", "strings"): 0.25}, "text instead of integers"),
        ({("QUANTILES", "even"): 0.33}, "five quantiles"),
    ],
)
def test_a_slow_system_fails_its_gate_alone(failing, measured, changes, name):
    (found,) = failing(measured(changes))
    assert name in found


def test_a_slow_start_fails_the_gate_of_the_whole_command_alone(failing, measured):
    (found,) = failing(measured(start={"LOCAL": 1.3}))
    assert found.startswith("whole command")
    assert "10,000,000" in found


def test_a_slow_command_within_little_memory_fails_its_gate_alone(failing, measured):
    (found,) = failing(measured(of_largest=2.0))
    assert found.startswith("whole command")
    assert "100,000,000" in found


def test_threads_that_stand_in_their_way_fail_their_gate_alone(failing, measured):
    (found,) = failing(measured(one_thread=1.6))
    assert "one thread" in found


def test_too_much_memory_fails_its_gates_alone(failing, measured):
    (found,) = failing(measured(mib=700.0))
    assert "peak memory" in found
    assert len(failing(measured(mib=2_100.0))) == 2


def test_a_cost_that_grows_with_the_rows_fails_its_gate(failing, measured):
    assert any("cost per row" in name for name in failing(measured(exponent=1.05)))


def test_a_case_that_was_not_measured_fails_instead_of_passing(load, failing, measured, sizes):
    not_judged = {load("measure").POLARS: 1, load("measure").DUCKDB: 1, load("measure").OURS: None}
    for missing in measured():
        if not_judged.get(missing.system, 0) == missing.threads or (
            missing.system == load("measure").OURS and missing.rows == sizes.large
        ):
            continue  # for tables alone
        found = measured()
        del found[missing]
        assert failing(found), missing


def test_ratios_are_those_of_the_same_round(load):
    measure = load("measure")

    def runs(*seconds):
        values = {field.name: 1.0 for field in dataclasses.fields(measure.Run)}
        return measure.Runs(tuple(measure.Run(**values | {"seconds": one}) for one in seconds))

    one, other = (measure.Case(system, "even", 1) for system in (measure.LOCAL, measure.DUCKDB))
    found = {one: runs(1.0, 20.0, 3.0), other: runs(1.0, 10.0, 1.0)}  # the second round was a busy one
    assert measure.paired(found, one, other, lambda run: run.seconds) == 2.0
    assert math.isnan(measure.paired({}, one, other, lambda run: run.seconds))


def test_a_busy_machine_is_said_and_a_quiet_one_is_not(load, measured, sizes):
    aggregate = load("aggregate")
    found = measured()  # each system used one core
    duckdb = load("measure").Case(load("measure").DUCKDB, "even", sizes.large)
    assert "was busy" in aggregate.busy_note(found, sizes) or aggregate.cores() < 2
    run = load("measure").Run(
        plan_seconds=0.0,
        seconds=1.0,
        cpu_seconds=1.9,
        data_seconds=1.0,
        import_seconds=1.0,
        max_rss_mib=1.0,
        partitions=1,
        totals={},
    )
    found[duckdb] = load("measure").Runs((run,))
    assert aggregate.busy_note(found, sizes) == ""


def test_the_page_has_every_gate_and_every_case(load, measured, sizes, monkeypatch):
    aggregate, gates = load("aggregate"), load("gates")
    monkeypatch.setattr(aggregate, "versions", lambda *given: {"Python": "3"})
    found = measured()
    text = aggregate.page(found, gates.evaluate(found, sizes), sizes, 5)
    assert text.count("| pass |") == len(gates.evaluate(found, sizes))
    assert text.count("\n| dp_pipelines | ") == sum(case.system == load("measure").LOCAL for case in found)
    assert "relative to one thread" in text


def test_growth_is_that_of_the_worst_pair_not_of_neighbours(load):
    growth = load("gates").growth
    assert growth([1.0, 1.2, 1.44]) == pytest.approx(1.44)
    assert growth([2.0, 1.0]) == 0.5
    assert math.isnan(growth([1.0, 1.0, math.nan]))
