"""The gates of the benchmark: each passes good figures and fails a planted bad one."""

import math

import pytest

# (system, kind) -> seconds per million rows, of a machine on which all gates hold
GOOD = {
    ("OURS", "even"): 0.25,
    ("OURS", "hot_user"): 0.25,
    ("OURS", "hot_key"): 0.25,
    ("OURS", "strings"): 0.3,
    ("OURS_QUANTILES", "even"): 0.4,
    ("DUCKDB", "even"): 0.23,
    ("POLARS", "even"): 0.4,
    ("PIPELINEDP", "even"): 45.0,
}


@pytest.fixture
def measured(load):
    """What a run measures on a machine where (system, kind) takes `per_million` seconds, and `mib` at most."""
    gates, measure = load("gates"), load("measure")

    def make(changes=None, mib=1_000.0, exponent=1.0):
        per_million = {**GOOD, **(changes or {})}
        name_of = {
            getattr(measure, name): name for name in ("OURS", "OURS_QUANTILES", "DUCKDB", "POLARS", "PIPELINEDP")
        }
        found = {}
        for case in gates.cases(gates.FULL, 5, 3):
            seconds = per_million[name_of[case.system], case.kind] * (case.rows / 1e6) ** exponent
            run = measure.Run(
                plan_seconds=0.0,
                seconds=seconds,
                cpu_seconds=seconds,
                import_seconds=1.0,
                max_rss_mib=mib,
                partitions=1,
                totals={},
            )
            found[case] = measure.Runs((run, run, run))
        return found

    return make


def failing(gates, measured):
    return [gate.name for gate in gates.evaluate(measured, gates.FULL) if not gate.holds]


def test_good_figures_pass_every_gate(load, measured):
    assert failing(load("gates"), measured()) == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({("PIPELINEDP", "even"): 9.0}, "PipelineDP"),
        ({("DUCKDB", "even"): 0.16}, "faster of DuckDB and Polars"),
        ({("POLARS", "even"): 0.16}, "faster of DuckDB and Polars"),
        ({("OURS", "hot_user"): 0.34}, "a user with half"),
        ({("OURS", "hot_key"): 0.34}, "a key with half"),
        ({("OURS", "strings"): 0.38}, "text instead of integers"),
        ({("OURS_QUANTILES", "even"): 0.51}, "five quantiles"),
    ],
)
def test_a_slow_system_fails_its_gate_alone(load, measured, changes, name):
    (found,) = failing(load("gates"), measured(changes))
    assert name in found


def test_too_much_memory_fails_its_gate_alone(load, measured):
    (found,) = failing(load("gates"), measured(mib=4_100.0))
    assert "memory" in found


def test_a_cost_that_grows_with_the_rows_fails_its_gate(load, measured):
    assert any("cost per row" in name for name in failing(load("gates"), measured(exponent=1.1)))


def test_a_case_that_was_not_measured_fails_instead_of_passing(load, measured):
    gates = load("gates")
    for missing in measured():
        found = measured()
        del found[missing]
        assert failing(gates, found), missing


def test_a_busy_machine_is_said_and_a_quiet_one_is_not(load, measured):
    aggregate, sizes = load("aggregate"), load("gates").FULL
    found = measured()  # each system used one core
    (duckdb,) = [case for case in found if case.system == load("measure").DUCKDB]
    assert "was busy" in aggregate.busy_note(found, sizes) or aggregate.cores() < 2
    run = load("measure").Run(
        plan_seconds=0.0, seconds=1.0, cpu_seconds=1.9, import_seconds=1.0, max_rss_mib=1.0, partitions=1, totals={}
    )
    found[duckdb] = load("measure").Runs((run,))
    assert aggregate.busy_note(found, sizes) == ""


def test_growth_is_that_of_the_worst_pair_not_of_neighbours(load):
    growth = load("gates").growth
    assert growth([1.0, 1.2, 1.44]) == pytest.approx(1.44)
    assert growth([2.0, 1.0]) == 0.5
    assert math.isnan(growth([1.0, 1.0, math.nan]))
