"""The gates of the benchmark of scale: good figures pass, a planted bad one fails its gate, missing ones fail.

And what is looked at in /proc is what a process has.
"""

import math
import subprocess
import sys
import time

import pytest


@pytest.fixture
def kept(load):
    """Runs of a machine on which all gates hold, but for what is changed: seconds and CPU of a row, memory."""
    scale = load("scale")

    def make(flink=400e-9, largest=500e-9, cpu=1.0, mib=8000.0):
        def runs(per_row, rows, start):
            spent = {"driver": start + per_row * rows * cpu, "jobmanager": 1e6}
            run = scale.Run(
                seconds=start + per_row * rows,
                whole_seconds=0.0,
                cpu_seconds=0.0,
                cpu_by_name=spent,
                peak_mib=mib,
                peak_by_name={},
                shuffled_bytes=0,
                largest_element=0,
                keys=0,
            )
            return [run] * 3

        found = {scale.key("direct", scale.TINY): runs(0, 1, 1.0), scale.key("flink", scale.TINY): runs(0, 1, 9.0)}
        found[scale.key("direct", scale.JUDGED)] = runs(300e-9, scale.JUDGED, 1.0)
        found[scale.key("flink", scale.JUDGED)] = runs(flink, scale.JUDGED, 9.0)
        found[scale.key("flink", scale.LARGEST)] = runs(largest, scale.LARGEST, 9.0)
        return scale, found

    return make


def failing(scale, found):
    return [place for place, gate in enumerate(scale.evaluate(found)) if not gate.holds]


def test_good_figures_pass_and_start_up_does_not_count(kept):
    assert failing(*kept()) == []


@pytest.mark.parametrize(
    ("change", "gates"),
    [
        ({"largest": 700e-9}, [0, 1]),
        ({"mib": 17_000.0}, [2]),
        ({"flink": 700e-9, "largest": 700e-9}, [3]),
    ],
)
def test_a_bad_figure_fails_its_gate(change, gates, kept):
    assert failing(*kept(**change)) == gates


def test_what_was_not_measured_fails(kept):
    scale, found = kept()
    del found[scale.key("flink", scale.LARGEST)]
    assert failing(scale, found) == [0, 1, 2]
    assert math.isnan(scale.evaluate(found)[2].figure)


def test_memory_and_cpu_of_a_process_and_its_children_are_seen(load):
    processes = load("processes")
    code = (
        "import subprocess, sys; held = bytearray(80 * 2**20);"
        "subprocess.run([sys.executable, '-c', 'held = bytearray(60 * 2**20); sum(range(10**7)); input()'])"
    )
    with processes.Watch([], every=0.05) as watch:
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        watch.add("parent", child.pid)
        end = time.monotonic() + 60
        while watch.used.peak_mib < 140 and time.monotonic() < end:
            time.sleep(0.05)
        while watch.used.cpu_seconds < 0.1 and time.monotonic() < end:
            time.sleep(0.05)
        child.communicate(b"\n")
    assert 140 <= watch.used.peak_mib < 400
    assert watch.used.cpu_seconds >= 0.1
    assert len(watch.used.cpu_by_name) == 2
