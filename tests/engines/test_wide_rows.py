"""Shards are as large as they should be where one column is shuffled in many forms, on every runner.

In: a job with forty clamps of one column. Out: bytes of its shards. Holds: twice the target is what a hash and an assumed width
may cost. Not covered: memory of whole processes (`tests/jobs/runners/test_memory.py`).
"""

import pathlib
from collections.abc import Iterator

import pytest

from dp_pipelines.jobs.run import shuffled_rows
from dp_pipelines.jobs.runners import engines
from dp_pipelines.jobs.runners.engines import Engine
from dp_pipelines.kernels import sizes
from dp_pipelines.steps.read_files import Shuffled
from tests.engines import setups, wide_rows

TARGET = 2**18
"""Bytes of a shard in these tests: with its own the rows would have to be many."""


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "GROUP_BYTES", TARGET)
    monkeypatch.setattr(sizes, "PIECE_BYTES", 2**40)


@pytest.fixture(params=["local", "direct", pytest.param("flink", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "flink":
        with engines.engine("flink", setups.on(request.getfixturevalue("running"), 1)) as made:
            yield made
    else:
        with engines.engine(request.param, []) as made:
            yield made


def test_no_shard_is_twice_its_target(engine: Engine, tmp_path: pathlib.Path) -> None:
    (tmp_path / "job").mkdir()
    found = wide_rows.shards_of(wide_rows.forty_clamps(tmp_path / "job"), engine, tmp_path)
    assert len(found) > 10
    assert max(found) <= 2 * TARGET


def test_sizes_by_what_files_hold_are_seen(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffled_rows, "of_stages", lambda *given: Shuffled(widest=24, together=24))
    (tmp_path / "job").mkdir()
    with engines.engine("local", ["--threads=1"]) as engine:
        found = wide_rows.shards_of(wide_rows.forty_clamps(tmp_path / "job"), engine, tmp_path)
    assert max(found) > 2 * TARGET
