"""Tables in which each row is a person: every row counts, copies too, and a row moves one group by what one row is.

In: jobs with `privacy_unit: {row: true}`. Out: releases, sums before the noise, refusals. Holds: numbers of rows decide nothing
but the shard; they are the same whenever a file is read. Not covered: Flink and Spark, which read by the same steps.
"""

import io
import json
import pathlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.query.row_unit import ROW_UNIT
from dp_pipelines.steps import folder_columns, read_files
from dp_pipelines.steps.folder_columns import FolderColumns
from tests.helpers import file_pairs, neighbours
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

METRICS = {
    "rows": {"kind": "count"},
    "people": {"kind": "privacy_id_count"},
    "paid": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 10},
}
COPIES = 6_000


def job(folder: pathlib.Path, source: dict[str, Any], **changes: Any) -> pathlib.Path:
    written = {
        "dataset": "people", "privacy_unit": {"row": True}, "budget": {"epsilon": 30.0, "delta": 1e-6}, "source": source,
        "stages": {"all": {"kind": "aggregate", "partition_by": ["region"], "metrics": METRICS}},
    }  # fmt: skip
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({**written, **changes}, sort_keys=False))
    return path


def copies() -> pa.Table:
    """Rows that are all alike but for two regions, so that nothing but their places tells them apart."""
    regions = ["north"] * (COPIES // 3) + ["south"] * (COPIES - COPIES // 3)
    return pa.table({"region": regions, "price": np.full(COPIES, 5.0)})


def written(folder: pathlib.Path, form: str) -> dict[str, Any]:
    """The rows in two files; what a job says of them."""
    table, types = copies(), {"region": "string", "price": "float64"}
    (folder / "data").mkdir()
    for number, part in enumerate((table.slice(0, 1_000), table.slice(1_000))):
        path = folder / "data" / f"part-{number}.{form}"
        if form == "parquet":
            pa.parquet.write_table(part, path, row_group_size=700)
        elif form == "csv":
            pa.csv.write_csv(part, path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in part.to_pylist()))
    return {form: f"data/*.{form}"} | ({} if form == "parquet" else {"types": types})


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("runner", ["local", pytest.param("direct", marks=pytest.mark.slow)])
def test_every_row_counts_although_all_are_alike(
    tmp_path: pathlib.Path, call: Call, form: str, runner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_files, "FEW_BYTES", 4_000)  # parts of files begin inside them
    monkeypatch.setattr(read_files, "TOGETHER_BYTES", 4_000)
    path = job(tmp_path, written(tmp_path, form))
    said = call("run", path, "--output", tmp_path / "out", "--ledger", "none", "--runner", runner)
    assert said.code == 0, said.err
    assert "protects   every row\n" in said.out
    table = pa.parquet.read_table(tmp_path / "out" / "all.parquet").sort_by("region")
    # Of Laplace noise below 1 each number is beyond 40 with a probability below 1e-15.
    for name, each in (("rows", 1), ("people", 1), ("paid", 5)):
        true = np.array([COPIES // 3, COPIES - COPIES // 3]) * each
        assert np.abs(table.column(name).to_numpy() - true).max() < 40 * each * 2, name


def test_numbers_are_the_same_whenever_a_file_is_read_and_no_two_are_alike(tmp_path: pathlib.Path) -> None:
    for number in (0, 1):
        pa.parquet.write_table(copies(), tmp_path / f"{number}.parquet", row_group_size=500)
    reader = FolderColumns(number=ROW_UNIT).around(read_files.ReadRowGroups(["region"]), ["region", ROW_UNIT])
    groups = read_files.RowGroups(together=1)

    def numbers() -> list[int]:
        parts = [part for number in (0, 1) for part in groups.process(str(tmp_path / f"{number}.parquet"))]
        assert len(parts) > 10
        return [n for part in parts for table in reader.process(part) for n in table.column(ROW_UNIT).to_pylist()]

    first = numbers()
    assert first == numbers()
    assert len(set(first)) == len(first) == 2 * COPIES


def test_numbers_go_on_from_the_largest_to_the_smallest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(folder_columns, "_begin", lambda path, first: np.array([2**64 - 2], np.uint64))
    (tmp_path / "rows.csv").write_text("region\nnorth\nsouth\nwest\n")
    reader = FolderColumns(number=ROW_UNIT).around(read_files.ReadCsvFile({"region": pa.string()}), [ROW_UNIT])
    found = [n for table in reader.process(str(tmp_path / "rows.csv")) for n in table.column(ROW_UNIT).to_pylist()]
    assert found == [2**64 - 2, 2**64 - 1, 0]


CASE = file_pairs.Case(
    name="rows are people",
    csv=False,
    job={
        "privacy_unit": {"row": True},
        "where": "price >= 0",
        "stage": {
            "partition_by": ["region"],
            "bounds": "auto",
            "partitions": {"public": [["north"], ["south"], ["none"]]},
            "metrics": {**METRICS, "half": {"kind": "median", "column": "price", "min_value": 0, "max_value": 10}},
        },
    },
)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_moves_its_own_group_by_one_row_wherever_it_stands(tmp_path: pathlib.Path, threads: int) -> None:
    """Every later row of the file has another number then, which must change nothing."""
    rng = random.Random(7)
    rows = [{"region": rng.choice(["north", "south"]), "price": rng.uniform(-1, 20)} for _ in range(300)]
    runs = file_pairs.RunsOnLocal(CASE, tmp_path / "pairs", threads=threads, memory=2**30)

    def seen(content: list[dict[str, Any]]) -> file_pairs.Seen:
        sink = io.BytesIO()
        pa.parquet.write_table(pa.Table.from_pylist(content), sink, row_group_size=64)
        found = runs.seen(sink.getvalue())
        assert not found.public["failure"], found.public
        return found

    without = seen(rows)
    before = neighbours.exact(without.totals)
    for place in (0, 1, 150, 300):
        one = {"region": rng.choice(["north", "south"]), "price": rng.choice([3.0, 1e300, float("inf")])}
        with_one = seen([*rows[:place], one, *rows[place:]])
        assert file_pairs.moved_too_far(runs, without, with_one) == []
        after = neighbours.exact(with_one.totals)
        moved = [key for key in after if list(after[key]) != list(before.get(key, ()))]
        assert len(moved) == 1  # nothing of the other group, in no statistic
        assert without.public.keys() == with_one.public.keys()


def test_the_layout_lets_a_row_count_once(tmp_path: pathlib.Path) -> None:
    runs = file_pairs.RunsOnLocal(CASE, tmp_path / "pairs", threads=1, memory=2**30)
    pa.parquet.write_table(copies(), runs.folder / "rows")
    layout = runs.stage(runs.request()).layout
    assert (layout.max_partitions, layout.max_rows_per_partition, layout.max_rows) == (1, 1, None)


OF_NUMBERS = {"m": {"kind": "distinct_count", "column": ROW_UNIT}}
TOTAL = {"all": {"kind": "aggregate", "partition_by": [], "metrics": METRICS}}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"privacy_unit": {"row": False}}, "privacy_unit.row"),
        ({"privacy_unit": [ROW_UNIT]}, "privacy_unit"),
        ({"row_id": "note"}, "row_id"),
        ({"where": f'"{ROW_UNIT}" > 3'}, "where"),
        ({"columns": {"half": f'"{ROW_UNIT.upper()}" // 2'}}, "columns.half"),
        ({"columns": {ROW_UNIT: "price"}}, "columns"),
        ({"stages": {"s": stage(partition_by=[ROW_UNIT], bounds="auto")}}, "stages.s.partition_by"),
        ({"stages": {"s": stage(metrics=OF_NUMBERS, bounds="auto")}}, "stages.s.metrics.m"),
        ({"stages": {"s": stage(where=f'"{ROW_UNIT}" > 3', bounds="auto")}}, "stages.s.where"),
        ({"stages": {"s": stage(unit_columns={"n": "count(*) OVER ()"}, bounds="auto")}}, "stages.s.unit_columns"),
        ({"stages": {"s": stage(bounds={"max_contributions": 2})}}, "stages.s.bounds"),
        ({"stages": {"s": stage(bounds={"max_partitions_contributed": 2})}}, "stages.s.bounds"),
        ({"lookup": {"parquet": "towns.parquet", "on": "product", "max_rows_per_key": 2}}, "lookup"),
        ({"window": {"column": ROW_UNIT, "days": 7, "param": "week"}, "params": {"week": {"type": "date"}}}, "window"),
    ],
)  # fmt: skip
def test_what_would_look_at_the_number_of_a_row_or_make_several_of_one_is_refused(
    shop: Shop, call: Call, changes: dict[str, Any], field: str
) -> None:
    pa.parquet.write_table(pa.table({"product": ["p0", "p0"], "town": ["a", "b"]}), shop.folder / "towns.parquet")
    shop.write(**{"privacy_unit": {"row": True}, "stages": TOTAL, **changes})
    said = call("plan", shop.job, *(["--param", "week=2025-01-06"] if "params" in changes else []))
    assert said.code == 2
    assert f": {field}" in said.err or f"{field}:" in said.err, said.err


def test_tables_in_memory_and_columns_of_that_name_are_refused(shop: Shop, call: Call) -> None:
    path = next(iter((shop.folder / "data").iterdir()))
    rows = pa.parquet.read_table(path)
    pa.parquet.write_table(rows.append_column(ROW_UNIT, pa.nulls(len(rows), pa.int64())), path)
    shop.write(privacy_unit={"row": True}, stages=TOTAL)
    said = call("plan", shop.job)
    assert said.code == 2
    assert ROW_UNIT in said.err


def test_models_and_parties_are_refused_since_a_hash_of_the_number_would_split_people(shop: Shop, call: Call) -> None:
    label = {"column": "product", "classes": ["p0", "p1"]}
    train = {"kind": "train", "label": label, "features": {"price": {"min_value": 0, "max_value": 20}}}
    shop.write(privacy_unit={"row": True}, stages={"model": train})
    said = call("plan", shop.job)
    assert said.code == 2
    assert "stages.model" in said.err


def test_a_second_run_gives_the_release_of_the_first_and_costs_nothing(tmp_path: pathlib.Path, call: Call) -> None:
    path = job(tmp_path, written(tmp_path, "parquet"))
    outputs = [tmp_path / "one", tmp_path / "two"]
    for output in outputs:
        assert call("run", path, "--output", output).code == 0
    first, second = (pa.parquet.read_table(output / "all.parquet") for output in outputs)
    assert first.equals(second)
    listed = call("ledger", "show", path, "--csv").out.splitlines()
    assert len(listed) == 2  # a heading, and one release


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_made_up_rows_stand_for_people_too(tmp_path: pathlib.Path, call: Call, form: str) -> None:
    path = job(tmp_path, written(tmp_path, form))
    said = call("run", path, "--synthetic", "--output", tmp_path / "made-up")
    assert said.code == 0, said.err


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_rows_count_where_no_column_of_the_files_is_read(tmp_path: pathlib.Path, call: Call, form: str) -> None:
    counted = {"rows": {"kind": "count"}, "people": {"kind": "privacy_id_count"}}
    stages = {"all": {"kind": "aggregate", "partition_by": [], "metrics": counted}}
    path = job(tmp_path, written(tmp_path, form), stages=stages)
    said = call("run", path, "--output", tmp_path / "out", "--ledger", "none")
    assert said.code == 0, said.err
    (row,) = pa.parquet.read_table(tmp_path / "out" / "all.parquet").to_pylist()
    assert abs(row["rows"] - COPIES) < 40  # of Laplace noise below 1, beyond 40 with a probability below 1e-15
    assert abs(row["people"] - COPIES) < 40


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_rows_count_where_folders_say_all_that_is_read(tmp_path: pathlib.Path, call: Call, form: str) -> None:
    true = {"a": 500, "b": 700}
    for region, rows in true.items():
        folder = tmp_path / "data" / f"place={region}"
        folder.mkdir(parents=True)
        table = pa.table({"price": np.full(rows, 5.0)})
        (pa.parquet.write_table if form == "parquet" else pa.csv.write_csv)(table, folder / f"part.{form}")
    source = {form: "data", "hive": {"place": "string"}} | (
        {} if form == "parquet" else {"types": {"price": "float64"}}
    )
    stages = {"all": {"kind": "aggregate", "partition_by": ["place"], "metrics": {"rows": {"kind": "count"}}}}
    said = call("run", job(tmp_path, source, stages=stages), "--output", tmp_path / "out", "--ledger", "none")
    assert said.code == 0, said.err
    table = pa.parquet.read_table(tmp_path / "out" / "all.parquet")
    found = dict(zip(table.column("place").to_pylist(), table.column("rows").to_pylist(), strict=True))
    assert all(abs(found[region] - rows) < 40 for region, rows in true.items())


def test_a_stage_may_filter_its_rows(tmp_path: pathlib.Path, call: Call) -> None:
    stages = {"all": {"kind": "aggregate", "partition_by": ["region"], "where": "region = 'north'", "metrics": METRICS}}
    path = job(tmp_path, written(tmp_path, "csv"), stages=stages)
    said = call("run", path, "--output", tmp_path / "out", "--ledger", "none")
    assert said.code == 0, said.err
    (row,) = pa.parquet.read_table(tmp_path / "out" / "all.parquet").to_pylist()
    assert abs(row["rows"] - COPIES // 3) < 40


def test_init_writes_such_a_job(tmp_path: pathlib.Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "parquet")
    monkeypatch.chdir(tmp_path)
    assert call("init", "data/*.parquet", "--one-row-per-person", "--output", "first.yaml").code == 0
    content = yaml.safe_load((tmp_path / "first.yaml").read_text())
    assert content["privacy_unit"] == {"row": True}
    (only,) = content["stages"].values()
    assert (only["partition_by"], next(iter(only["metrics"])), "bounds" in only) == (["region"], "people", False)
    said = call("plan", "first.yaml")
    assert said.code == 0, said.err
    assert "what the limits cut off is not measured" not in said.out


@pytest.mark.parametrize("more", [[], ["--unit", "region", "--one-row-per-person"]])
def test_init_needs_one_of_both(tmp_path: pathlib.Path, call: Call, more: list[str]) -> None:
    written(tmp_path, "parquet")
    assert call("init", str(tmp_path / "data"), *more, "--output", str(tmp_path / "x.yaml")).code == 2


@needs("describe")
def test_the_assessment_says_that_each_row_is_a_person(tmp_path: pathlib.Path, call: Call) -> None:
    path = job(tmp_path, written(tmp_path, "parquet"))
    assert call("describe", path, "--output", tmp_path / "assessment.html").code == 0
    page = (tmp_path / "assessment.html").read_text()
    assert "Each row is a person of its own." in page
    assert ROW_UNIT not in page
