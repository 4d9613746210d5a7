"""The step that reads has a bundle for each of its elements, which hold every row group of a file once."""

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.userstate import is_stateful_dofn

from dp_pipelines.jobs.runners import error_masking
from dp_pipelines.steps import read_files
from dp_pipelines.transforms import ReadParquet
from dp_pipelines.transforms.beam_flow import AloneDoFn


@pytest.fixture
def files(tmp_path):
    for name, rows in (("a", 95), ("b", 0), ("c", 10)):
        pa.parquet.write_table(
            pa.table({"x": pa.array(range(rows), pa.int64())}), tmp_path / f"{name}.parquet", row_group_size=10
        )
    return tmp_path


@pytest.mark.parametrize("together", [1, 300, 2**40], ids=["each row group", "some", "a whole file"])
def test_every_row_group_is_in_one_element_and_types_come_once_a_file(together, files, monkeypatch):
    monkeypatch.setattr(read_files, "TOGETHER_BYTES", together)
    elements, tables = [], []
    for path in sorted(map(str, files.glob("*.parquet"))):
        made = list(read_files.RowGroups().process(path))
        elements += made
        tables += [table for element in made for table in read_files.ReadRowGroups(None).process(element)]
    assert len({key for key, _ in elements}) == len(elements) == {1: 12, 300: len(elements), 2**40: 3}[together]
    assert [table.num_rows for table in tables].count(0) == 3
    assert pa.concat_tables(tables).column("x").to_pylist() == [*range(95), *range(10)]


@pytest.mark.parametrize("together", [64, 640, 2**40], ids=["parts of a group", "some groups", "a whole file"])
def test_rows_that_travel_wide_are_read_in_parts_and_each_once(together, files, monkeypatch):
    monkeypatch.setattr(read_files, "TOGETHER_BYTES", together)
    wide = read_files.Shuffled(widest=64, together=64)  # ten rows of a group are 640 bytes
    path = str(files / "a.parquet")
    elements = list(read_files.RowGroups(shuffled=wide).process(path))
    assert len({key for key, _ in elements}) == len(elements) == {64: 95, 640: 10, 2**40: 1}[together]
    reader = read_files.ReadRowGroups(["x"], shuffled=wide)
    tables = [table for element in reversed(elements) for table in reader.process(element)]
    assert [table.num_rows for table in tables].count(0) == 1
    assert sorted(pa.concat_tables(tables).column("x").to_pylist()) == [*range(95)]


def test_tables_have_fewer_rows_where_these_travel_wide(files, monkeypatch):
    path = str(files / "many.parquet")
    pa.parquet.write_table(pa.table({"x": pa.array(range(100_000), pa.int64())}), path)
    for widest, most in ((0, 100_000), (2000, 6291), (10**9, 256)):
        reader = read_files.ReadRowGroups(None, shuffled=read_files.Shuffled(widest, widest))
        rows = [table.num_rows for table in reader.process(((path, 0), 100_000))]
        assert sum(rows) == 100_000
        assert max(rows) == most


def readers(pipeline):
    """The steps that read tables, of a pipeline that is built."""
    found = []

    class Look(beam.pipeline.PipelineVisitor):
        def visit_transform(self, node):
            if node.full_label.endswith("/Read") and isinstance(node.transform, beam.ParDo):
                found.append(node.transform.fn)

    pipeline.visit(Look())
    return found


@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "not guarded"])
def test_the_step_that_reads_asks_for_state_guarded_or_not(guard, files):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    pipeline | ReadParquet(str(files / "*.parquet"))
    if guard:
        error_masking.guard(pipeline)
    [reader] = readers(pipeline)
    assert isinstance(reader, error_masking.Guarded) == guard
    assert is_stateful_dofn(reader)


def test_the_common_guard_would_lose_it():
    assert not is_stateful_dofn(error_masking.Guarded(AloneDoFn(read_files.ReadRowGroups(None))))
