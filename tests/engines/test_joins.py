"""Joins on every runner beside DuckDB's join of the same rows: the integers before the noise are the same.

In: the job files of `joins`. Out: rows and units of each partition. Holds: the local runner, the direct one, Flink and Spark; the
last two are slow, and skipped where `make test-flink test-spark` has not built them. Not covered: rows that caps leave out, of
which `cases` compares runners with each other and tests/jobs/run/test_joined_tables.py the local one with DuckDB.
"""

import pathlib
from collections.abc import Iterator

import pytest

from dp_pipelines.jobs.runners import engines
from dp_pipelines.jobs.runners.engines import Engine
from tests.engines import joins
from tests.engines.cases import Case
from tests.engines.conftest import Compute

HERE = {"local": ["--threads=2"], "direct": []}
ON_CLUSTERS = ("flink", "spark")


@pytest.fixture(scope="module", params=[*HERE, *(pytest.param(name, marks=pytest.mark.slow) for name in ON_CLUSTERS)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param in ON_CLUSTERS:
        yield request.getfixturevalue(f"{request.param}_engine")
    else:
        with engines.engine(request.param, HERE[request.param]) as made:
            yield made


@pytest.mark.parametrize("case", [joins.whole_join, joins.whole_left_join], ids=lambda case: case.__name__)
def test_integers_of_a_join_are_duckdbs_on_every_runner(
    case: Case, engine: Engine, compute: Compute, tmp_path: pathlib.Path
) -> None:
    expected = joins.duckdbs(case(tmp_path))
    assert len(expected) > 5
    assert joins.counts(compute(case, engine)) == expected
