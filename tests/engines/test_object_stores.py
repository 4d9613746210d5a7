"""Copies of one table in a store that speaks S3: the same statistics before the noise as from local files.

In: `tests.helpers.copies`, moto's server on this machine. Out: exact statistics. Holds: where files are changes no bit, on
threads of this process, on Beam's own runner and (slow, where the jars are built) on Flink and Spark. Not covered: Amazon's own
service, other stores; failures (`tests/jobs/stores`).
"""

import contextlib
import functools
import io
import pathlib
from collections.abc import Callable, Iterator

import pytest
import yaml

from dp_pipelines.jobs.runners import engines
from dp_pipelines.jobs.runners.engines import Engine
from dp_pipelines.jobs.terminal.progress import Progress
from tests.engines import exact
from tests.engines.test_formats import EACH, STAGES
from tests.helpers import copies, object_stores
from tests.helpers.object_stores import Store

Computed = Callable[[str, str | Engine, bool], exact.Dump]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with object_stores.store() as made:
        yield made


@pytest.fixture(scope="module")
def computed(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Computed:
    """The exact statistics of a copy, on a runner."""

    @functools.cache
    def of(name: str, runner: str | Engine, there: bool) -> exact.Dump:
        folder = tmp_path_factory.mktemp(name)
        source = copies.FORMATS[name](copies.purchases(2000), folder / "rows")
        if there:
            source = object_stores.in_store(store, source, folder / "rows", f"{folder.name}/a b/ä=1")
        job = {
            "dataset": "shop", "privacy_unit": "customer", "budget": {"epsilon": 1.0, "delta": 1e-5}, "source": source,
            "where": "paid_at >= TIMESTAMP '2025-01-10'", "stages": STAGES,
        }  # fmt: skip
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        staged = folder / "staged"
        staged.mkdir()
        with engines.engine(runner, []) if isinstance(runner, str) else contextlib.nullcontext(runner) as engine:
            return exact.dump(folder / "job.yaml", engine, Progress(io.StringIO()), pathlib.Path(staged))

    return of


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("engine", ["flink_engine", "spark_engine"])
def test_a_copy_in_a_store_gives_the_same_integers_on_a_cluster(
    computed: Computed, name: str, engine: str, request: pytest.FixtureRequest
) -> None:
    expected = computed("parquet", "local", False)
    assert exact.differences(expected, computed(name, request.getfixturevalue(engine), True)) == []


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("runner", ["local", "direct"])
def test_a_copy_in_a_store_gives_the_same_integers(computed: Computed, name: str, runner: str) -> None:
    expected = computed("parquet", "local", False)
    assert expected["weekly.parquet"].num_rows > 100
    assert exact.differences(expected, computed(name, runner, True)) == []
