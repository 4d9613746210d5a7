"""`tune --sample` over several tables: public rows of each, none of the job's own, and nothing is noted."""

import pathlib
from collections.abc import Callable

import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.jobs.conftest import Said
from tests.jobs.run.test_joined_tables import World, orders, visits

Call = Callable[..., Said]

GRID = ("--grid", "bounds.max_partitions_contributed=1,2,4")


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    made = World(tmp_path)
    pyarrow.parquet.write_table(orders(500), tmp_path / "public_orders.parquet")
    pyarrow.parquet.write_table(visits(400), tmp_path / "public_visits.parquet")
    return made


def tuned(call: Call, world: World, *samples: str, job: pathlib.Path | None = None) -> Said:
    more = [word for sample in samples for word in ("--sample", sample)]
    return call("tune", job or world.write(), *GRID, "--output", world.folder / "tuned", *more)


def of(world: World, name: str, files: str) -> str:
    return f"{name}={world.folder / files}"


@pytest.mark.parametrize("united", [False, True])
def test_public_rows_of_each_table_stand_for_the_jobs_own(world: World, call: Call, united: bool) -> None:
    job = world.write()
    if united:
        events = {"kind": "aggregate", "partition_by": ["note"], "bounds": {"max_partitions_contributed": 2},
                  "metrics": {"people": {"kind": "privacy_id_count"}}}  # fmt: skip
        job = world.write(union=["orders", "visits"], drop=("join",), stages={"events": events})
    for name in ("orders.parquet", "visits.parquet"):
        whole = (world.folder / name).read_bytes()
        (world.folder / name).write_bytes(b"whoever reads this fails" + whole)
    said = tuned(
        call, world, of(world, "visits", "public_v*.parquet"), of(world, "orders", "public_orders.parquet"), job=job
    )
    assert said.code == 0, said.err
    assert "computed from the sample that you declared public" in said.out
    suggested = yaml.safe_load((world.folder / "tuned" / "suggested.yaml").read_text())
    assert suggested["tables"]["orders"]["parquet"] == str(world.folder / "orders.parquet")
    assert "tuned" not in suggested
    assert not (world.folder / DEFAULT_NAME).exists() or not Ledger.open(str(world.folder / DEFAULT_NAME)).state.tunings


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (["public_orders.parquet"], "must be NAME=FILES, with the name of a table of the job; write NAME=FILES for each"),
        (["order=public_orders.parquet"], "did you mean 'orders'?"),
        (["orders=public_orders.parquet"], "--sample: has no rows of table 'visits'"),
        (["orders=public_orders.parquet", "orders=public_orders.parquet"], "is a second one of table 'orders'"),
        (["orders=public_orders.parquet", "visits=visits.parquet"], "names files of the job's own source"),
        (["orders=visits.parquet", "visits=public_visits.parquet"], "names files of the job's own source"),
        (["orders=public_orders.parquet", "visits=none.parquet"], "--sample visits=none.parquet: matches no file"),
        (["orders=public_visits.parquet", "visits=public_visits.parquet"], "--sample orders=public_visits.parquet visits="),
    ],
)  # fmt: skip
def test_a_sample_that_does_not_fit_is_refused(
    world: World, call: Call, monkeypatch: pytest.MonkeyPatch, samples: list[str], words: str
) -> None:
    monkeypatch.chdir(world.folder)
    said = tuned(call, world, *samples)
    assert said.code == 2
    assert words in said.err
    assert not (world.folder / "tuned").exists()
    assert not (world.folder / DEFAULT_NAME).exists()


def test_a_job_of_one_source_has_one_sample(world: World, call: Call) -> None:
    one = {"kind": "aggregate", "partition_by": ["store"], "bounds": {"max_partitions_contributed": 2},
           "metrics": {"people": {"kind": "privacy_id_count"}}}  # fmt: skip
    job = world.write(
        drop=("tables", "join"), source={"parquet": "orders.parquet"}, privacy_unit="customer", stages={"one": one}
    )
    sample = str(world.folder / "public_orders.parquet")
    said = tuned(call, world, sample, sample, job=job)
    assert said.code == 2
    assert "is a second one, and the job has one source" in said.err
    assert tuned(call, world, sample, job=job).code == 0
