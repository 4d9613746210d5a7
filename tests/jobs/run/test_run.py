"""From a job file to a published folder: what is there afterwards, what is said, and what rows can never change.

In: the shop. Out: published folders, messages, exit codes. Holds: runs are real, on Beam's runner in this process. Not covered:
the noise itself and the accounting (tests of their rooms).
"""

import hashlib
import json
import os
import pathlib
import stat
from collections.abc import Callable

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.run import build
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.runners import beam_options
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.kernels import sizes
from dp_pipelines.release import manifest, staging
from dp_pipelines.report.numbers import with_error_bar
from dp_pipelines.steps.read_files import Shuffled
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
PUBLIC = stage(partitions={"public": [["p0"], ["p1"], ["none"]]})


def table_of(folder: pathlib.Path, name: str = "weekly") -> pa.Table:
    """A published table."""
    return pa.parquet.read_table(folder / f"{name}.parquet")


def test_a_run_publishes_a_folder_that_is_whole(shop: Shop, call: Call) -> None:
    said = call(
        "run", shop.write(stages={"weekly": stage(), "listed": PUBLIC}), "--output", shop.folder / "out" / "deep"
    )
    assert (said.code, said.err) == (0, "")
    out = shop.folder / "out" / "deep"
    names = ["listed.parquet", "manifest.json", "report.html", "weekly.parquet"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert stat.S_IMODE(out.stat().st_mode) == 0o755
    content = json.loads((out / "manifest.json").read_text())
    assert sorted(content["files"]) == [name for name in names if name != "manifest.json"]
    for name, facts in content["files"].items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == facts["sha256"]
    assert content["ledger"]["note"] == "charged once, to the account 'shop'"
    assert content["ledger"]["head"]["seq"] > 1
    assert content["dataset"] == "shop"
    assert content["accounted"]["epsilon"] <= 8.0
    assert table_of(out, "listed").column("product").to_pylist() == ["none", "p0", "p1"]
    weekly = table_of(out)
    assert weekly.column_names == ["product", "orders", "orders_stddev", "revenue", "revenue_stddev"]
    assert weekly.schema.metadata is None
    # Five products with about 400 customers each: all of them are kept, and close to their true values.
    assert weekly.column("product").to_pylist() == ["p0", "p1", "p2", "p3", "p4"]
    assert np.all(np.abs(weekly.column("orders").to_numpy() - 1200) < 500)


def test_the_summary_is_read_back_from_the_folder(shop: Shop, call: Call) -> None:
    out = shop.folder / "out"
    said = call("run", shop.job, "--output", out, "--ledger", "none")
    first = table_of(out).to_pylist()[0]
    assert with_error_bar(first["orders"], first["orders_stddev"], whole=True) in said.out
    assert "not accounted across runs" in said.out
    assert f"files      {out}" in said.out
    (out / "manifest.json").write_text(
        (out / "manifest.json").read_text().replace("not accounted across runs", "changed by hand")
    )
    assert "changed by hand" in call("run", shop.job, "--output", out, "--ledger", "none").out


def test_the_release_equals_the_rows_but_for_its_noise(shop: Shop, call: Call) -> None:
    pa.parquet.write_table(pa.table({"store": [1, 2], "city": ["Oslo", "Bonn"]}), shop.folder / "stores.parquet")
    job = shop.write(
        budget={"epsilon": 30.0, "delta": 1e-5},
        params={"low": {"type": "float"}},
        where="price > {low}",
        columns={"week": "CAST(date_trunc('week', paid_at) AS DATE)", "amount": "CAST(note AS DOUBLE)"},
        lookup={"parquet": "stores.parquet", "on": "store"},
        stages={
            "weekly": stage(
                partition_by=["city", "week"],
                bounds={"max_partitions_contributed": 12, "max_contributions_per_partition": 8},
                metrics={
                    "orders": {"kind": "count"},
                    "amount": {"kind": "sum", "column": "amount", "min_value": 0, "max_value": 100},
                },
            )
        },
    )
    assert call("run", job, "--output", shop.folder / "out", "--param", "low=5").code == 0
    sql = f"""SELECT city, date_trunc('week', paid_at)::DATE AS week, count(*), coalesce(sum(TRY_CAST(note AS DOUBLE)), 0)
        FROM '{shop.folder}/data/*.parquet' LEFT JOIN '{shop.folder}/stores.parquet' USING (store) WHERE price > 5 GROUP BY ALL"""
    wanted = {(city, week): (orders, amount) for city, week, orders, amount in duckdb.sql(sql).fetchall()}
    found = {(row["city"], row["week"]): row for row in table_of(shop.folder / "out").to_pylist()}
    assert set(found) == set(wanted)
    assert len(found) == 12
    for key, (orders, amount) in wanted.items():
        # Ten standard deviations: false alarm below 1e-20 for all of them.
        assert abs(found[key]["orders"] - orders) < 10 * found[key]["orders_stddev"]
        assert abs(found[key]["amount"] - amount) < 10 * found[key]["amount_stddev"]
        assert found[key]["orders_stddev"] < orders / 20


def test_rows_are_read_once_for_all_stages(shop: Shop) -> None:
    import apache_beam as beam

    from dp_pipelines.transforms.beam_flow import beginning

    file = job_file.load(str(shop.write(where="price > 1", stages={"a": stage(), "b": stage(), "c": PUBLIC})))
    request = check(file, [])
    pipeline = beam.Pipeline("FnApiRunner")
    build.build(beginning(pipeline), request, running.plan_of(file, dict(request.queries)).stages, shop.folder, {}, 1)
    proto, context = pipeline.to_runner_api(return_context=True)
    labels = [transform.unique_name for transform in proto.components.transforms.values()]
    assert sum(label.startswith("Read/") and label.endswith("/Read") for label in labels) == 1
    assert labels.count("ShapeRows") == 1
    (shaped,) = [t for t in proto.components.transforms.values() if t.unique_name == "ShapeRows"]
    (rows,) = shaped.outputs.values()
    assert "ArrowTableCoder" in str(
        context.pcollections.get_by_id(rows).coder
        if hasattr(rows, "coder")
        else context.coders.get_by_id(proto.components.pcollections[rows].coder_id)
    )


def test_a_run_that_has_published_is_not_run_again(shop: Shop, call: Call) -> None:
    out = shop.folder / "out"
    assert call("run", shop.job, "--output", out).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    said = call("run", shop.job, "--output", out)
    assert said.code == 0
    assert "was already published" in said.out
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    again = json.loads(call("run", shop.job, "--output", out, "--json").out)
    assert again["published_before"] is True
    assert again["files"] == {name: str(out / name) for name in ("report.html", "weekly.parquet")}


def test_an_output_that_exists_is_refused_unless_it_is_this_runs_own(shop: Shop, call: Call) -> None:
    out = shop.folder / "out"
    out.mkdir()
    said = call("run", shop.job, "--output", out)
    assert (said.code, said.out) == (2, "")
    assert "already exists" in said.err
    out.rmdir()
    assert call("run", shop.job, "--output", out, "--run-id", "one").code == 0
    assert "another run's release" in call("run", shop.job, "--output", out, "--run-id", "two").err
    assert "of another job" in call("run", shop.write(where="price > 1"), "--output", out, "--run-id", "one").err
    (out / "weekly.parquet").write_bytes(b"changed")
    said = call("run", shop.write(), "--output", out, "--run-id", "one")
    assert said.code == 2
    assert "differ from those that were released" in said.err
    said = call("run", shop.job, "--output", out, "--run-id", "one", "--ledger", "none")
    assert said.code == 2
    assert "differ from its manifest" in said.err
    file = shop.folder / "file"
    file.write_text("x")
    assert call("run", shop.job, "--output", file).code == 2
    assert file.read_text() == "x"


def test_several_runs_under_one_budget_need_names(shop: Shop, call: Call) -> None:
    job = shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 4})
    said = call("run", job, "--output", shop.folder / "out")
    assert said.code == 2
    assert "--run-id" in said.err
    assert shop.left() == []


def damage(path: pathlib.Path) -> None:
    """Break the pages of a Parquet file; its footer stays whole."""
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 10, len(content) // 2):
        content[place] ^= 0xFF
    path.write_bytes(content)


def test_damage_that_is_found_while_reading_is_told_by_file_and_rule_alone(shop: Shop, call: Call) -> None:
    damage(shop.folder / "data" / "part-1.parquet")
    said = call("run", shop.job, "--output", shop.folder / "a" / "b" / "out")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"error: file '{shop.folder / 'data' / 'part-1.parquet'}': ")
    assert len(said.err.splitlines()) == 1
    assert shop.left() == []


@pytest.mark.parametrize("error", [ValueError("customer 4711 owes 12.34"), MemoryError("4711"), RecursionError("4711")])
def test_a_failure_in_the_pipeline_never_shows_its_text(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*arguments: object, **options: object) -> None:
        print("a row: 4711")
        os.write(2, b"native code about 4711\n")
        raise error

    monkeypatch.setattr(staging, "write_in_order", fails)
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert (said.code, said.out) == (1, "")
    assert "4711" not in said.err
    assert said.err.count("\n") == 1
    assert said.err.startswith("error: the pipeline failed in stage 'weekly'; nothing was published")
    assert shop.left() == []


def with_poison(shop: Shop) -> None:
    """Add a user whose rows are as bad as rows can be."""
    path = shop.folder / "data" / "part-1.parquet"
    table = pa.parquet.read_table(path)
    data, offsets = b"\xff\xfe" * 4, np.arange(0, 9, 2, dtype=np.int32)
    wrong = pa.Array.from_buffers(pa.string(), 4, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)])
    poison = pa.table(
        {
            "customer": pa.array([None, 10**9, 10**9, 10**9], pa.int64()),
            "product": wrong,
            "store": pa.array([-(2**31), 2**31 - 1, 0, None], pa.int32()),
            "paid_at": pa.array([2**63 - 1, -(2**63), None, 0], pa.int64()).cast(pa.timestamp("us")),
            "price": pa.array([float("nan"), float("inf"), -float("inf"), 1e308]),
            "note": wrong,
        },
        schema=table.schema,
    )
    pa.parquet.write_table(pa.concat_tables([table, poison]), path)


def public_part(said: Said, out: pathlib.Path) -> object:
    """What must not depend on a row: exit code, messages, layout, and every published fact but noise and digests."""
    content = json.loads((out / "manifest.json").read_text())
    files = content.pop("files")
    schema = {name: str(pa.parquet.read_schema(out / name)) for name in sorted(files) if name.endswith(".parquet")}
    if content["ledger"]["head"] is not None:
        # The ledger's own name and hashes are of chance; the number of its events is not.
        content["ledger"] |= {"id": "", "head": content["ledger"]["head"]["seq"]}
    return said.code, said.err, sorted(os.listdir(out)), content, schema


@pytest.mark.parametrize("ledgers", [("none", "none"), ("a.sqlite", "b.sqlite")])
def test_poison_rows_change_nothing_that_can_be_seen(
    shop: Shop, call: Call, ledgers: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"week": "date_trunc('week', paid_at)", "number": "CAST(note AS INTEGER) * CAST(price AS INTEGER)"}
    metrics = {"total": {"kind": "mean", "column": "number", "min_value": 0, "max_value": 9}}
    listed = stage(partitions={"public": [["p0"], ["p1"]]}, metrics=metrics)
    job = shop.write(where="lower(note) <> 'y' OR note IS NULL", columns=columns, stages={"weekly": listed})
    seen = []
    for name, ledger in zip(("clean", "poisoned"), ledgers, strict=True):
        monkeypatch.setenv("XDG_STATE_HOME", str(shop.folder / f"state of {name}"))  # else one is told of the other
        if ledger != "none":
            assert call("ledger", "init", job, "--ledger", shop.folder / ledger).code == 0
        if name == "poisoned":
            with_poison(shop)
        where = ledger if ledger == "none" else shop.folder / ledger
        seen.append(
            public_part(call("run", job, "--output", shop.folder / name, "--ledger", where), shop.folder / name)
        )
    assert seen[0] == seen[1]
    assert seen[0][0] == 0  # type: ignore[index]


def test_a_source_without_rows_is_no_error(shop: Shop, call: Call) -> None:
    for path in (shop.folder / "data").iterdir():
        pa.parquet.write_table(pa.parquet.read_table(path).slice(0, 0), path)
    job = shop.write(
        columns={"week": "CAST(paid_at AS DATE)"}, stages={"weekly": stage(partition_by=["week"]), "listed": PUBLIC}
    )
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    assert table_of(shop.folder / "out").num_rows == 0
    assert table_of(shop.folder / "out", "listed").num_rows == 3


def test_csv_is_read_with_its_declared_types(shop: Shop, call: Call) -> None:
    # 300 customers of each product, two of whose three or four rows are kept.
    rows = "".join(f"{i % 900},p{i % 3},{'x' if i % 5 == 0 else i % 20}\n" for i in range(3000))
    (shop.folder / "data" / "rows.csv").write_text("customer,product,price\n" + rows)
    types = {"customer": "int", "product": "string", "price": "float"}
    job = shop.write(source={"csv": "data/*.csv", "types": types})
    assert call("run", job, "--output", shop.folder / "out").code == 0
    assert table_of(shop.folder / "out").column("orders").to_pylist() == pytest.approx([600] * 3, abs=100)


def test_bundles_that_are_repeated_publish_one_draw(shop: Shop, call: Call) -> None:
    said = call(
        "run", shop.job, "--output", shop.folder / "out", "--runner", "direct", "--direct_runner_bundle_repeat=2"
    )
    assert said.code == 0
    assert table_of(shop.folder / "out").num_rows == 5


def test_the_number_of_shards_follows_size_and_slots_unless_it_is_given(shop: Shop) -> None:
    request = check(job_file.load(str(shop.job)), [])

    def shards(*arguments: str) -> int:
        return build.num_shards(request, beam_options.pipeline_options_of(arguments).get_all_options(), Shuffled(9))

    assert shards() == sizes.shards(request.source.rows * 9) == 1
    assert shards("--parallelism=10") == 10 * sizes.SHARDS_OF_A_SLOT
    assert shards("--parallelism=10", "--num_shards=3") == 3


@pytest.mark.parametrize("number", ["0", "-1", str(sizes.MOST_SHARDS + 1), "many"])
def test_a_wrong_number_of_shards_is_refused(number: str, shop: Shop, call: Call) -> None:
    said = call("run", shop.job, "--output", shop.folder / "out", f"--num_shards={number}")
    assert said.code == 2
    assert "--num_shards" in said.err
    assert not (shop.folder / "out").exists()


def test_the_plan_does_not_depend_on_the_number_of_shards(shop: Shop, call: Call) -> None:
    plans = []
    for number in (1, 5):
        out = shop.folder / f"out-{number}"
        assert call("run", shop.job, "--output", out, "--ledger", "none", f"--num_shards={number}").code == 0
        content = manifest.read_manifest(out)
        assert content is not None
        assert "shards" not in json.dumps(content)
        plans.append((content["plan"], content["mechanisms"], content["run_id"]))
    assert plans[0] == plans[1]


def test_the_manifest_holds_nothing_about_the_input(shop: Shop, call: Call) -> None:
    call("run", shop.job, "--output", shop.folder / "out")
    content = manifest.read_manifest(shop.folder / "out")
    assert content is not None
    said = json.dumps(content)
    assert "8000" not in said
    assert "part-0" not in said
    assert set(content) >= {"run_id", "plan", "budget", "accounted", "mechanisms", "files", "versions", "ledger"}
