"""Beam's portable job service in this process, with workers in threads and in processes: the same statistics, and no more said.

In: the cases. Out: exact statistics, releases, messages. Holds: workers get the pipeline as bytes and talk over the network, as
those of a cluster do. Not covered: engines in Java (`test_flink`, `test_spark`).
"""

import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.run.pipelines import RunFailed
from dp_pipelines.jobs.runners import engines, error_masking
from dp_pipelines.jobs.runners.beam_engine import BeamEngine
from dp_pipelines.jobs.runners.engines import Engine
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.steps import draw_release
from tests.engines import cases, exact, setups
from tests.engines.cases import Case
from tests.engines.conftest import Compute
from tests.engines.exact import Dump
from tests.helpers.forks import command

Expected = Callable[[Case], Dump]


@pytest.fixture(scope="module")
def threads() -> Iterator[Engine]:
    with setups.workers_in_threads() as engine:
        yield engine


@pytest.mark.parametrize(
    "case",
    [*cases.SMALL[:3], *(pytest.param(case, marks=pytest.mark.slow) for case in cases.CASES[3:])],
    ids=lambda case: case.__name__,
)
def test_statistics_before_the_noise_are_those_of_the_direct_runner(
    case: Case, threads: Engine, compute: Compute, expected: Expected
) -> None:
    assert exact.differences(expected(case), compute(case, threads)) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", [cases.types, cases.examples_of_training], ids=lambda case: case.__name__)
def test_workers_in_other_processes_compute_the_same(case: Case, compute: Compute, expected: Expected) -> None:
    with setups.workers_in_processes() as engine:
        assert exact.differences(expected(case), compute(case, engine)) == []


def test_bundles_that_are_computed_again_change_nothing(compute: Compute, expected: Expected) -> None:
    with engines.engine("direct", ["--direct_runner_bundle_repeat=1"]) as engine:
        assert exact.differences(expected(cases.a_hot_user), compute(cases.a_hot_user, engine)) == []


def test_the_comparison_sees_other_rows_that_were_kept(
    compute: Compute, expected: Expected, threads: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, examples = expected(cases.a_hot_user), expected(cases.examples_of_training)  # before the salt is another
    monkeypatch.setattr(exact, "SALT", 1)
    assert exact.differences(rows, compute(cases.a_hot_user, threads)) == ["weekly.parquet"]
    named = exact.differences(examples, compute(cases.examples_of_training, threads))
    assert named
    assert all(name.startswith("dear/shard-") for name in named)


@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "not guarded"])
def test_an_error_that_quotes_a_row_reaches_neither_the_runner_nor_the_user(
    guard: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Beam says is what a runner's logs and pages show. Without the guard it would be the row."""
    said: list[str] = []
    real = BeamEngine.run

    def listening(self: BeamEngine, *given: Any) -> None:
        try:
            real(self, *given)
        except Exception as error:
            said.append(str(error))
            raise

    def quoting(*given: object) -> NoReturn:
        raise ValueError("row 4711")

    monkeypatch.setattr(BeamEngine, "run", listening)
    monkeypatch.setattr(draw_release, "draw_release", quoting)  # in workers too: they are threads of this process
    if not guard:
        monkeypatch.setattr(error_masking, "guard", lambda pipeline: None)
    file = job_file.load(str(cases.empty_shards(tmp_path)))
    with pytest.raises(RunFailed) as told:
        running.run(file, str(tmp_path / "out"), ledger="none", runner="portable")
    assert ("4711" in said[0]) == (not guard)
    assert "4711" not in str(told.value)
    assert "in stage" in str(told.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_damaged_file_is_named_from_a_worker_in_another_process(tmp_path: pathlib.Path) -> None:
    job, _ = cases.a_damaged_file(tmp_path)
    with setups.pool_of_processes() as address:
        done = command("run", job, "--output", tmp_path / "out", "--runner", "portable", *setups.external(address))
    assert done.returncode == 1
    assert "a row group cannot be read; it is damaged; nothing was published" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_whole_run_is_published_and_charged_once(tmp_path: pathlib.Path) -> None:
    job = cases.unit_columns(tmp_path)
    asked = ("run", job, "--output", tmp_path / "out", "--runner", "portable", "--json")
    first, again = command(*asked), command(*asked)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr
    assert json.loads(first.stdout)["published_before"] is False
    assert json.loads(again.stdout)["published_before"] is True
    assert (tmp_path / "out" / "weekly.parquet").is_file()
    assert "exception sampling is switched off" in first.stderr
    assert not [path for path in tmp_path.iterdir() if "staging" in path.name or "doctor" in path.name]
