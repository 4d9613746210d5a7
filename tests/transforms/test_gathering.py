"""Tables are put together before they are cut: each once, in its order, and no more of them than memory takes.

In: tables, bundles. Out: what `compute` was given. Holds: what a bundle that failed had gathered is not in the next one.
"""

import platform
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.steps import step
from dp_pipelines.transforms.beam_flow import StepDoFn


class Gather(step.GatheringStep):
    """Hands out which tables were put together."""

    def compute(self, element):
        return [[table.column("number")[0].as_py() for table in element]]


def bundles(enough, *given):
    """What a worker makes of bundles of tables, one after another; a bundle that ends with None has failed there."""
    function, found = StepDoFn(Gather(enough)), []
    function.setup()
    try:
        for tables in given:
            function.start_bundle()
            out = [made for table in tables if table is not None for made in function.process(table)]
            if None not in tables:
                found.append(out + [made.value for made in function.finish_bundle()])
    finally:
        function.teardown()
    return found


def table(number, rows=1):
    return pa.table({"number": pa.array([number] * rows, pa.int64())})


@given(st.lists(st.lists(st.integers(1, 40), max_size=12), max_size=4), st.integers(1, 400))
def test_each_table_is_in_one_group_of_its_bundle_in_order(sizes, enough):
    given = [[table(number, rows) for number, rows in enumerate(bundle)] for bundle in sizes]
    for bundle, made in zip(sizes, bundles(enough, *given), strict=True):
        assert [number for group in made for number in group] == list(range(len(bundle)))
        of_groups = [[8 * bundle[number] for number in group] for group in made]
        assert all(sum(group) >= enough > sum(group[:-1]) for group in of_groups[:-1])


@pytest.mark.parametrize("enough", [1, 17, 10_000])
def test_what_a_failed_bundle_had_gathered_is_in_no_other(enough):
    assert bundles(enough, [table(1), table(2), None], [table(3)]) == [[[3]]]


def test_texts_that_are_read_as_codes_count_as_long_as_they_will_stand_in_rows():
    # Four bytes a row when they are read, and 60 once a unit's texts stand in each row: by their codes 16 million rows would
    # be gathered where there are many shards. A text of more than 64 bytes stands there as a digest of 65.
    whos = pa.array([f"{number:060}" for number in range(10)])
    codes = pa.DictionaryArray.from_arrays(pa.array([number % 10 for number in range(1000)], pa.int32()), whos)
    read = pa.table({"who": codes, "number": pa.array([0] * 1000, pa.int64())})
    assert read.nbytes < 20_000
    assert bundles(70_000, [read] * 3) == [[[0], [0], [0]]]
    long = pa.DictionaryArray.from_arrays(codes.indices, pa.array([f"{number:05000}" for number in range(10)]))
    assert step.plain_bytes(read.set_column(0, "who", long)) < 65 * 1000 + 10 * 5000 + 20_000
    assert bundles(100_000, [read.set_column(0, "who", codes.indices)] * 3) == [[[0, 0, 0]]]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.string_view(), pa.int64()])
def test_codes_of_any_kind_with_nulls_and_without_rows_have_a_size(kind):
    values = pa.array(["1", None], pa.string()).cast(kind)
    codes = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), values)
    for read in (pa.table({"who": codes}), pa.table({"who": pa.chunked_array([], codes.type)})):
        assert step.plain_bytes(read) >= read.nbytes


FAULTS = """
import resource, sys
import numpy as np
from dp_pipelines.steps.freed_memory import keep_freed_memory
keep_freed_memory() if sys.argv[1] == "keep" else None
def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        held = [np.zeros(1, np.uint8)] + [np.full(5 * 2**20, 1, np.uint8) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(3)
print(faults(20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has another rule")
def test_the_memory_of_freed_arrays_is_kept_for_the_next_ones():
    def faults(way):
        done = subprocess.run([sys.executable, "-c", FAULTS, way], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert faults("keep") * 10 < faults("leave")
