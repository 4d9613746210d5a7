"""Tables of BigQuery: Google's own client, over gRPC, against a server of this machine that stands in for the Storage API.

In: the shop's rows on that server. Out: exact statistics, exit codes, the ledger, Dataflow's graph. Holds: no message quotes what
a server says. Not covered: Google's service, which no test can ask here.
"""

import datetime
import io
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
import yaml

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.lake import bigquery_table, storage_api
from dp_pipelines.jobs.runners import engines
from dp_pipelines.jobs.sources import declared_source
from dp_pipelines.jobs.sources.read_source import rows_of
from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.jobs.spec.source_models import SourceModel
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.transforms.beam_flow import beginning
from tests.engines import exact
from tests.extensions.dataflow.test_dataflow_requirements import EXTRA
from tests.helpers import graph, warehouses
from tests.helpers.warehouses import NAME, TIME, Warehouse
from tests.jobs.conftest import Said, Shop, purchases, stage

Call = Callable[..., Said]
UTC = datetime.UTC
SECRET = "secret-row-value"
PUBLIC = {"listed": stage(partitions={"public": [["p0"], ["p1"]]})}
SOURCE: dict[str, Any] = {"bigquery": {"table": NAME, "snapshot_time": TIME}}
TYPES = {"customer": "int64", "product": "string", "price": "double"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    """The shop's rows, and on the next day more of them."""
    rows = pa.concat_tables([purchases(0), purchases(1)])
    later = pa.concat_tables([rows, purchases(2)])
    days = {datetime.datetime(2026, 1, day, tzinfo=UTC): table for day, table in ((4, rows), (6, later))}
    with warehouses.warehouse(monkeypatch, days) as made:
        yield made


@pytest.mark.parametrize("runner", ["local", "direct"])
def test_the_integers_before_the_noise_are_those_of_parquet_files(shop: Shop, server: Warehouse, runner: str) -> None:
    def computed(name: str) -> exact.Dump:
        staged = shop.folder / name
        staged.mkdir()
        with engines.engine(runner, []) as engine:
            return exact.dump(shop.job, engine, Progress(io.StringIO()), pathlib.Path(staged))

    expected = computed("parquet")
    shop.write(source=SOURCE)
    assert exact.differences(expected, computed("bigquery")) == []
    assert expected["weekly.parquet"].num_rows == 5


def test_only_the_columns_that_a_job_uses_are_asked_for_at_the_time_that_it_names(
    shop: Shop, server: Warehouse, call: Call
) -> None:
    shop.write(
        source={"bigquery": {"table": NAME, "snapshot_time": "{time}"}},
        stages=PUBLIC,
        params={"time": {"type": "string"}},
    )
    said = call("run", shop.job, "--output", shop.folder / "out", "--param", "time=2026-01-05T02:00:00+02:00")
    assert (said.code, said.err) == (0, "")
    look, read = server.asked
    assert [look.max_stream_count, list(look.read_session.read_options.selected_fields)] == [1, []]
    assert sorted(read.read_session.read_options.selected_fields) == ["customer", "price", "product"]
    times = {asked.read_session.table_modifiers.snapshot_time for asked in server.asked}
    assert times == {datetime.datetime(2026, 1, 5, tzinfo=UTC)}
    manifest = json.loads((shop.folder / "out" / "manifest.json").read_text())
    assert manifest["sources"] == {"source": {"format": "bigquery", "snapshot_time": "2026-01-05T00:00:00+00:00"}}


def test_a_run_id_fixes_the_time(shop: Shop, server: Warehouse, call: Call) -> None:
    def run(name: str, at: str) -> int:
        source = {"bigquery": {"table": NAME, "snapshot_time": at}}
        job = shop.write(source=source, stages=PUBLIC, budget={"epsilon": 8.0, "delta": 1e-5, "runs": 2})
        return call("run", job, "--run-id", "a", "--output", shop.folder / name).code

    assert run("one", TIME) == 0
    assert run("two", "2026-01-07T00:00:00Z") == 2
    assert run("three", "2026-01-05T01:00:00+01:00") == 0  # the same instant
    one, three = ((shop.folder / name / "listed.parquet").read_bytes() for name in ("one", "three"))
    assert one == three
    assert shop.charged() == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"table": "shop.orders"}, "which is no table; write project.dataset.table"),
        ({"table": "acme.shop.orders$20260101"}, "which is no table"),
        ({"table": "acme.shop.gone"}, "is not there, or was not at that time"),
        ({"snapshot_time": "2025-01-01T00:00:00Z"}, "is not there, or was not at that time"),
        ({"snapshot_time": "2026-01-05"}, "which has no zone"),
        ({"snapshot_time": "yesterday"}, "which is no instant"),
        ({"snapshot_time": "0001-01-01T00:00:00+02:00"}, "which is no instant"),
        ({"snapshot_time": "2999-01-05T00:00:00Z"}, "which is yet to come"),
    ],
)  # fmt: skip
def test_what_is_wrong_by_public_facts_is_refused_unpaid(
    shop: Shop, server: Warehouse, call: Call, changes: dict[str, str], words: str
) -> None:
    job = shop.write(source={"bigquery": {**SOURCE["bigquery"], **changes}}, stages=PUBLIC)
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (2, 0), said.err
    assert words in said.err
    assert SECRET not in said.err


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({**TYPES, "price": "float32"}, "table 'bigquery://acme.shop.orders': has column 'price' as double, declared as float"),
        ({**TYPES, "shop": "string"}, "table 'bigquery://acme.shop.orders': has no column 'shop'"),
        ({**TYPES, "price": "money"}, "unknown type 'money'"),
    ],
)  # fmt: skip
def test_types_that_the_table_has_not_are_refused_unpaid(
    shop: Shop, server: Warehouse, call: Call, types: dict[str, str], words: str
) -> None:
    said = call("run", shop.write(source={**SOURCE, "types": types}, stages=PUBLIC), "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (2, 0), said.err
    assert words in said.err


def test_a_plan_needs_neither_the_service_nor_its_client(shop: Shop, call: Call) -> None:
    asked = ["plan", str(shop.write(source={**SOURCE, "types": TYPES}, stages=PUBLIC))]
    program = "import sys; from dp_pipelines.jobs.cli import main; "
    program += f"sys.modules['google.cloud.bigquery_storage_v1'] = None; sys.exit(main.main({asked!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert "orders" in done.stdout
    assert "needs packages that are not installed" in done.stderr


def test_an_empty_table_is_released_like_any_other(shop: Shop, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    day = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    with warehouses.warehouse(monkeypatch, {day: purchases(0).slice(0, 0)}):
        said = call("run", shop.write(source=SOURCE, stages=PUBLIC), "--output", shop.folder / "out")
    assert said.code == 0, said.err


def test_a_stream_that_breaks_goes_on_where_it_broke(shop: Shop, server: Warehouse) -> None:
    server.breaks_after = 1
    table = bigquery_table.table_named(NAME, TIME)
    made = storage_api.session(table, ["customer"], streams=1)
    rows = pa.Table.from_batches(list(storage_api.batches(made.streams[0], made.schema)))
    both = pa.concat_tables([purchases(0), purchases(1)])["customer"]
    assert rows["customer"].to_pylist() == both.to_pylist()
    assert server.offsets == list(range(0, 8000, 500))


def test_a_stream_that_is_not_read_to_its_end_is_closed_without_an_error(server: Warehouse) -> None:
    made = storage_api.session(bigquery_table.table_named(NAME, TIME), ["customer"], streams=1)
    batches = storage_api.batches(made.streams[0], made.schema)
    assert next(batches).num_rows == 500
    batches.close()  # type: ignore[attr-defined]


def test_a_service_that_falls_silent_ends_a_paid_run(
    shop: Shop, server: Warehouse, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_api, "ANSWER_SECONDS", 2.0)
    server.breaks_after = 0
    job = shop.write(source=SOURCE, stages=PUBLIC)
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, shop.charged()) == (1, 1)
    assert "file 'bigquery://acme.shop.orders': cannot be read to its end; nothing was published" in said.err
    assert SECRET not in said.err
    server.breaks_after = None
    assert call("run", job, "--output", shop.folder / "out").code == 0
    assert shop.charged() == 1
    server.stop()
    said = call("run", shop.write(source=SOURCE), "--output", shop.folder / "two")
    assert (said.code, shop.charged()) == (2, 1)
    assert "table 'bigquery://acme.shop.orders': cannot be asked for; check the network" in said.err


def test_what_travels_between_steps_is_never_pickled(server: Warehouse, tmp_path: pathlib.Path) -> None:
    import apache_beam as beam

    found = declared_source.look(SourceModel.model_validate(SOURCE), tmp_path, {}, Content(data={}))
    pipeline = beam.Pipeline()
    rows_of(beginning(pipeline), found, found.schema.names)
    assert graph.pickled_collections(pipeline) == []


def test_a_table_belongs_to_one_account(shop: Shop, server: Warehouse, call: Call) -> None:
    assert call("run", shop.write(source=SOURCE, stages=PUBLIC), "--output", shop.folder / "one").code == 0
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    ledger.open_account("other", unit=["customer"], words="one customer", epsilon=1000.0, delta=0.5)
    ledger.close()
    said = call("run", shop.write(dataset="other", source=SOURCE, stages=PUBLIC), "--output", shop.folder / "two")
    assert (said.code, shop.charged()) == (2, 1)


@pytest.mark.skipif(not EXTRA, reason="the extra `dataflow` is not installed")
def test_the_job_that_dataflow_would_get_reads_by_the_storage_api(shop: Shop, server: Warehouse) -> None:
    from dp_pipelines.extensions.dataflow import job_graph
    from dp_pipelines.jobs.spec import job_file
    from tests.extensions.dataflow.test_dataflow_requirements import OPTIONS

    made = job_graph.produce(job_file.load(str(shop.write(source=SOURCE))), OPTIONS)
    assert [step for step in made.steps if "ReadBigQueryStorage" in step]
    assert made.refused == ()


def test_a_name_that_is_no_table_is_refused_by_its_field() -> None:
    with pytest.raises(RequestError) as told:
        bigquery_table.table_named("orders", TIME)
    assert told.value.field == "source.bigquery.table"
    assert yaml.safe_load(f"a: {TIME}")["a"] == datetime.datetime(2026, 1, 5, tzinfo=UTC)  # why it is to be quoted
