"""The Java example on Beam's own job service: its rows go through Python over the expansion service and come back released.

In: the jar that `make test-java` builds. Out: a published folder, rows as Java wrote them. Holds: services listen while a test
lasts, no longer. Not covered: clusters. Slow: skipped where the jar is not built.
"""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pyarrow.parquet
import pytest

from tests.engines import setups
from tests.engines.flink.cluster import free_ports
from tests.helpers.source import ROOT

pytestmark = pytest.mark.slow

JAR = setups.BUILT / "java" / "java-example.jar"


@contextlib.contextmanager
def service(module: str, *options: str, folder: pathlib.Path) -> Iterator[str]:
    """A service on a port of its own, as docs/beam_yaml.md starts it; its address."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", module, "--port", str(port), *options]
    with (folder / f"{module}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=60):
                break
            assert process.poll() is None, (folder / f"{module}.log").read_text()
            time.sleep(0.2)
        yield f"localhost:{port}"
    finally:
        process.kill()
        process.wait()


def test_rows_of_java_come_back_released(tmp_path: pathlib.Path) -> None:
    jar = setups.built(JAR)
    lines = [f"c{n % 1500},{('north', 'south', 'east')[n % 3]},{n % 7}.0" for n in range(4000)]
    (tmp_path / "events.csv").write_text("\n".join(lines))
    with (
        service("dp_pipelines.jobs.beam_yaml.expansion", folder=tmp_path) as expansion,
        service("apache_beam.runners.portability.local_job_service_main", folder=tmp_path) as jobs,
    ):
        command = [
            "java", "-cp", f"{jar}{os.pathsep}{jar.parent / 'lib' / '*'}", "Regions", "--runner=PortableRunner",
            f"--jobEndpoint={jobs}", f"--expansion={expansion}", f"--input={tmp_path / 'events.csv'}",
            f"--output={tmp_path / 'out'}", f"--rows={tmp_path / 'rows.txt'}",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "regions.parquet",
        "report.html",
    ]
    table = pyarrow.parquet.read_table(tmp_path / "out" / "regions.parquet")
    assert table.column_names == ["region", "orders", "orders_stddev", "revenue", "revenue_stddev"]
    published = dict(zip(*(table[name].to_pylist() for name in ("region", "orders")), strict=True))
    written = dict(line.split(" ") for line in (tmp_path / "rows.txt").read_text().splitlines())
    assert {region: float(orders) for region, orders in written.items()} == published
    assert set(published) == {"north", "south", "east"}
    # Laplace noise: beyond twenty standard deviations once in 10**12 runs.
    assert all(abs(row["orders"] - 4000 / 3) < 1 + 20 * row["orders_stddev"] for row in table.to_pylist())


def test_the_page_and_the_example_are_those_that_the_test_runs() -> None:
    page = (ROOT / "docs" / "beam_yaml.md").read_text()
    assert "python -m dp_pipelines.jobs.beam_yaml.expansion --port 8097" in page
    assert "expansion_service_main -p" not in page
    assert (ROOT / "examples" / "java" / "src" / "main" / "java" / "Regions.java").is_file()
