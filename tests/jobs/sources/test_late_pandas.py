"""Arrow goes without pandas until somebody asks it for a data frame."""

import subprocess
import sys

import pytest

pytest.importorskip("pandas")

ARROW = """
import sys
from dp_pipelines.jobs.sources import late_pandas
late_pandas.put_off()
import numpy as np, pyarrow as pa, pyarrow.compute as pc
column = pa.array([1.5, None])
pc.equal(column, 0), column.to_numpy(zero_copy_only=False), pa.array(np.arange(3)), pa.scalar("a")
pa.schema({"a": pa.int64()}).empty_table(), pa.table({"a": [1]}).group_by("a").aggregate([])
assert "pandas" not in sys.modules
"""


def runs(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", ARROW + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_values_arrays_and_constants_are_made_without_pandas() -> None:
    runs("assert not [finder for finder in sys.meta_path if isinstance(finder, late_pandas._Later)]")


@pytest.mark.slow
def test_as_soon_as_pandas_is_loaded_arrow_knows_a_series() -> None:
    runs(
        "late_pandas.put_off()\n"
        "import pandas\n"
        "assert pa.array(pandas.Series([1.0, float('nan')])).null_count == 1\n"
        "assert pa.array(pandas.Series(['a', None], dtype='category')).type.value_type == pa.string()\n"
        "assert not [finder for finder in sys.meta_path if type(finder).__module__ == late_pandas.__name__]"
    )


@pytest.mark.slow
def test_data_frames_are_made_and_read_as_ever() -> None:
    runs(
        "frame = pa.table({'a': column}).to_pandas()\n"
        "assert frame['a'].isna().tolist() == [False, True]\n"
        "assert pa.Table.from_pandas(frame).column('a').null_count == 1\n"
        "assert pa.array(frame['a']).null_count == 1"
    )


@pytest.mark.slow
def test_where_pandas_is_loaded_nothing_changes() -> None:
    code = (
        "import pandas\nfrom dp_pipelines.jobs.sources import late_pandas\nlate_pandas.put_off()\n"
        "import pyarrow as pa\nassert pa.array(pandas.Series([1.0, float('nan')])).null_count == 1"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
