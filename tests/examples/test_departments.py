"""The example of departments, on a few made-up customers: all ways publish, and the page shows each."""

import pathlib
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.helpers.extension_folders import needs
from tests.helpers.source import ROOT


@needs("local_dp")
@pytest.mark.slow
def test_every_way_publishes_and_is_shown_beside_the_truth(tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    rows = {
        "CUSTOMER_ID": [f"c{n % 400}" for n in range(900)],
        "PRODUCT_SUBCLASS": ["100205", "999000", "530105"] * 300,
    }
    pa.parquet.write_table(pa.table(rows), data / "2000-11.parquet")
    command = [
        sys.executable,
        str(ROOT / "examples/collect/departments.py"),
        f"--data={data}",
        f"--out={tmp_path / 'out'}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "400 customers, 32 departments" in done.stdout
    assert done.stdout.count("local epsilon") == 4
    assert (tmp_path / "out" / "comparison.html").read_text().count("<svg") == 5
