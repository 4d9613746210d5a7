"""The gates of formats: figures within the limits pass, and a planted one beyond a limit fails alone."""

import pytest


@pytest.fixture
def formats(load):
    return load("formats")


def runs(load, formats, **changed):
    """Runs of every format that take as long as Parquet, but for those that are named."""
    used = load("whole_processes").Used
    seconds = {name: changed.get(name, 2.0) for name in formats.JOBS}
    return {name: [used(cpu, cpu, 100.0)] * 3 for name, cpu in seconds.items()}


def test_formats_that_take_as_long_as_parquet_pass(load, formats):
    gates = formats.judged(runs(load, formats))
    assert len(gates) == len(formats.LIMITS)
    assert all(gate.holds and gate.figure == 1.0 for gate in gates)


def test_a_format_beyond_its_limit_fails_alone(load, formats):
    for slow, limit in formats.LIMITS.items():
        gates = formats.judged(runs(load, formats, **{slow: 2.0 * limit * 1.01}))
        assert [gate.holds for gate in gates] == [name != slow for name in formats.LIMITS]


def test_the_page_tells_what_rows_cost_without_the_start(load, formats):
    table = formats.runs_table(runs(load, formats, **{formats.NOTHING: 1.0, formats.CSV: 4.0}))
    (line,) = [line for line in table.splitlines() if line.startswith("| CSV |")]
    assert line.split("|")[4:6] == [" 2.00 ", " 3.00 "]


def test_the_limit_of_avro_is_called_out_of_reach_only_where_reading_alone_is_beyond_it(load, formats):
    found = runs(load, formats)
    used = load("whole_processes").Used
    assert not formats.avro_note(found, {formats.BEST_OF_AVRO: [used(2.2, 1.0, 1.0)]})
    assert "1.11 times" in formats.avro_note(found, {formats.BEST_OF_AVRO: [used(2.22, 1.0, 1.0)]})
