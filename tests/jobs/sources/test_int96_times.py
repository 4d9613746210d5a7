"""Times of 96 bits, as Spark and Impala wrote them, keep their year; and no module opens a Parquet file in another way."""

import ast
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dp_pipelines.jobs.sources import public_tables, source_files
from dp_pipelines.steps.read_files import NO_ROWS, ReadRowGroups
from tests.helpers.extension_folders import is_of_deleted

ROOT = pathlib.Path(__file__).resolve().parents[3]

TIMES = ["0001-01-01", "1600-02-29T12:00:00.123456", "2026-01-07", "2610-07-29T12", "9999-12-31"]

OWN_FILES = {
    "dp_pipelines/steps/read_files.py": "the one function",
    "dp_pipelines/extensions/local_dp/collected_page.py": "a released table",
    "dp_pipelines/report/released_table.py": "a released table",
    "dp_pipelines/report/derived/derived_columns.py": "a staged or released table",
    "dp_pipelines/release/verdicts.py": "a released table",
    "jobs/beam_yaml/transforms.py": "a released table",
    "jobs/cli/derived_folder.py": "a released table",
    "jobs/cli/report_command.py": "a released table",
    "jobs/outputs/ordered_rows.py": "a released table",
    "jobs/outputs/spreadsheet_csv.py": "a released table",
    "jobs/outputs/text_tables.py": "a released table",
    "dp_pipelines/extensions/dataflow/bucket_staging.py": "a staged table",
    "jobs/run/production.py": "a staged table",
    "dp_pipelines/release/ranges.py": "a staged table",
}
"""Modules that call `ParquetFile`: on files that this library has written, but for the one function."""


def test_times_of_96_bits_are_read_as_they_were_written(tmp_path: pathlib.Path) -> None:
    """In nanoseconds 9999 became 1816, and 2610 a week of 2026."""
    path = str(tmp_path / "old.parquet")
    written = pa.array(np.array(TIMES, "datetime64[us]"))
    for store_schema in (True, False):
        pq.write_table(pa.table({"t": written}), path, use_deprecated_int96_timestamps=True, store_schema=store_schema)
        _, table = ReadRowGroups(["t"]).rows(path, NO_ROWS, len(TIMES), ["t"])
        assert table.column("t").to_pylist() == written.to_pylist()
        assert source_files.look_at_parquet([path]).schema.field("t").type == pa.timestamp("us")
        listed = public_tables.read_public([path], csv_types=None, is_csv=False, field="lookup")
        assert listed.column("t").to_pylist() == written.to_pylist()


def test_files_from_elsewhere_are_opened_by_one_function() -> None:
    callers = set()
    for folder in ("dp_pipelines", "jobs", "transforms"):
        for path in (ROOT / folder).rglob("*.py"):
            calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            if any(isinstance(call, ast.Attribute) and call.attr == "ParquetFile" for call in calls):
                callers.add(path.relative_to(ROOT).as_posix())
    assert callers == {name for name in OWN_FILES if not is_of_deleted(name)}


def test_a_null_list_of_a_fixed_size_fails_no_file(tmp_path: pathlib.Path) -> None:
    """Arrow refuses such a file, so that one row decided how a charged run ended."""
    path = str(tmp_path / "lists.parquet")
    lists = [[1.0, 2.0], None, [3.0, 4.0]] * 100
    kind = pa.list_(pa.float32(), 2)
    pq.write_table(pa.table({"u": range(300), "w": pa.array(lists, kind)}), path, row_group_size=77)
    for columns in (["u", "w"], ["w"], ["w", "u"]):
        tables = [*ReadRowGroups(columns).rows(path, NO_ROWS, 300, columns)]
        table = pa.concat_tables(tables)
        assert table.column_names == columns
        assert table.schema.field("w").type == tables[0].schema.field("w").type
        assert table.column("w").to_pylist() == lists
