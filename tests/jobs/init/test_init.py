"""`dp-pipelines init`: a first job from names and types alone, ready for `plan`; every wrong input leaves nothing behind.

In: files of a few rows. Out: job files, exit codes. Holds: the jobs that are written are planned. Not covered: how their
numbers look (`test_synthetic_run`).
"""

import gzip
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.jobs.init import first_job
from dp_pipelines.jobs.init.data_files import FirstSource
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from tests.jobs.conftest import Said, purchases

Call = Callable[..., Said]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data and no job, in which commands are called."""
    (tmp_path / "data").mkdir()
    for number in range(2):
        pa.parquet.write_table(purchases(number, 400), tmp_path / "data" / f"part-{number}.parquet")
    (tmp_path / "rows.csv").write_text("customer,region,price,sold_at\nann,north,3.5,2026-01-05 10:00:00\n")
    (tmp_path / "rows.jsonl").write_text('{"customer": "ann"}\n')
    (tmp_path / "wide.csv").write_bytes("customer,price\nann,3\n".encode("utf-16"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["double", "string", "timestamp[us]"])
def test_columns_with_names_that_runs_add_are_not_read(shop: Path, call: Call, kind: str) -> None:
    unread = {name: pa.nulls(1).cast(kind) for name in ("_partitions", "_rows", "_all", "_kept")}
    columns = {"customer": ["ann"], **unread, "region": ["north"], "price": [3.5]}
    pa.parquet.write_table(pa.table(columns), shop / "taken.parquet")
    said = call("init", "taken.parquet", "--unit", "customer")
    assert (said.code, said.err) == (0, "")
    assert call("plan", "job.yaml").code == 0
    (stage,) = job_file.load("job.yaml").job.stages.values()
    assert list(stage.metrics) == ["rows", "units", "total_price"]
    assert not {*stage.partition_by} & {*unread}
    assert "add such columns: _partitions, _rows, _all, _kept" in (shop / "job.yaml").read_text()


@pytest.mark.parametrize("name", ["_partitions", "_rows", "_all", "_kept"])
def test_a_unit_with_a_name_that_runs_add_is_refused_in_words_of_the_command(shop: Path, call: Call, name: str) -> None:
    pa.parquet.write_table(pa.table({name: ["ann"], "region": ["north"]}), shop / "taken.parquet")
    said = call("init", "taken.parquet", "--unit", name)
    assert said.code == 2
    assert f"--unit: cannot be {name!r}" in said.err
    assert "job.yaml" not in said.err
    assert not (shop / "job.yaml").exists()


def test_the_written_job_is_planned_as_it_stands(shop: Path, call: Call) -> None:
    files = sorted(str(path.relative_to(shop)) for path in shop.glob("data/*"))
    said = call("init", *files, "--unit", "customer")
    assert (said.code, said.err) == (0, "")
    assert "dp-pipelines plan job.yaml" in said.out
    assert "dp-pipelines run job.yaml --synthetic --output " in said.out
    job = job_file.load("job.yaml").job
    assert job.source.parquet == "data/*.parquet"
    assert job.columns == {"week": "CAST(date_trunc('week', \"paid_at\") AS DATE)"}
    weekly = job.stages["weekly"]
    assert (weekly.partition_by, weekly.kept, weekly.bounds.build().auto_rows) == (["week"], None, True)
    assert list(weekly.metrics) == ["rows", "units", "total_price"]
    text = (shop / "job.yaml").read_text()
    assert "# can be added: product" in text
    assert "# not summed, since they may be ids, codes or flags: store" in text
    planned = call("plan", "job.yaml")
    assert planned.code == 0
    assert "not checked" not in planned.err
    assert "weekly.kept" in planned.out  # the run measures what its bounds cut off
    assert "if the run chooses 64 as the bound on partitions" in " ".join(planned.out.split())
    assert {path.name for path in shop.iterdir()} == {
        "data",
        "rows.csv",
        "rows.jsonl",
        "wide.csv",
        "job.yaml",
    }  # above all, no ledger


def test_a_folder_or_a_pattern_is_taken_as_it_is(shop: Path, call: Call) -> None:
    (shop / "jobs").mkdir()
    assert call("init", "data", "--unit", "customer", "--output", "jobs/a.yaml").code == 0
    assert call("init", "data/part-?.parquet", "--unit", "customer", "--output", "b.yaml").code == 0
    assert call("init", shop / "data" / "part-1.parquet", "--unit", "customer", "--output", "c.yaml").code == 0
    patterns = [job_file.load(name).job.source.parquet for name in ("jobs/a.yaml", "b.yaml", "c.yaml")]
    assert patterns == ["../data/*.parquet", "data/part-?.parquet", str(shop / "data" / "part-1.parquet")]


def test_columns_of_csv_files_are_those_that_were_declared(shop: Path, call: Call) -> None:
    said = call("init", "rows.csv", "--unit", "customer", "--types", "price=double,sold_at=timestamp,region=string")
    assert said.code == 0
    job = job_file.load("job.yaml").job
    declared = {"customer": "string", "price": "double", "sold_at": "timestamp", "region": "string"}
    assert job.source.types == declared
    assert call("plan", "job.yaml").code == 0


@pytest.mark.parametrize("name", ["rows.tsv", "rows.txt"])
def test_how_csv_files_are_written_stands_in_the_job(name: str, shop: Path, call: Call) -> None:
    (shop / name).write_bytes("customer\tprice\tday\nJos\u00e9\t1,5\t05.01.2026\n".encode("latin-1"))
    asked = ("init", name, "--unit", "customer", "--types", "price=double,day=date", "--decimal", ",")
    refused = call(*asked)
    assert (refused.code, (shop / "job.yaml").exists()) == (2, False)
    assert refused.err.endswith("its separator seems to be a tab; add --delimiter tab\n")
    more = ("--encoding", "latin-1", "--nulls", "-", "--date-format", "%d.%m.%Y")
    assert call(*asked, "--delimiter", "\\t", *more).code == 0
    source = job_file.load("job.yaml").job.source
    assert (source.delimiter, source.decimal, source.encoding, source.nulls) == ("\t", ",", "latin-1", ["-"])
    assert source.date_format == ["%d.%m.%Y"]
    assert call("plan", "job.yaml").code == 0


@pytest.mark.parametrize(
    ("fields", "by"),
    [
        ([("Sold At", pa.timestamp("ns")), ("a", pa.int8())], ["week"]),
        ([("at", pa.timestamp("us", "Europe/Berlin")), ("Week", pa.int64())], ["week_"]),
        ([("day", pa.date64()), ("x", pa.decimal128(10, 2)), ('a "b"', pa.float32())], ["week"]),
        ([("select", pa.timestamp("s")), ("rows", pa.uint64()), ("units", pa.string())], ["week"]),
        ([("on", pa.date32())], ["week"]),
        ([("kind", pa.dictionary(pa.int8(), pa.large_string())), ("null", pa.bool_())], ["kind"]),
        ([("no", pa.bool_()), ("yes", pa.string())], ["no"]),
        ([("Name", pa.string()), ("UserEmail", pa.string()), ("n", pa.int64())], []),
        ([("tags", pa.list_(pa.string())), ("at", pa.time64("us")), ("b", pa.binary())], []),
        ([(f"v{n}", pa.float64()) for n in range(30)], []),
        ([], []),
    ],
)
def test_every_schema_gives_a_job_that_is_right(
    tmp_path: Path, fields: list[tuple[str, pa.DataType]], by: list[str]
) -> None:
    schema = pa.schema([("the unit", pa.int64()), *fields])
    pa.parquet.write_table(schema.empty_table(), tmp_path / "rows.parquet")
    read = pa.parquet.read_schema(tmp_path / "rows.parquet")
    plain = pa.schema([(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in read])
    plain = pa.schema([(f.name, pa.string() if pa.types.is_large_string(f.type) else f.type) for f in plain])
    source = FirstSource(pattern="rows.parquet", files=("rows.parquet",), types={}, schema=plain)
    text = first_job.text(source, ["the unit"], "shop", "job.yaml")
    request = check(job_file.read(text, tmp_path / "job.yaml", "job.yaml"), ())
    (query,) = request.queries.values()
    assert list(query.partition_columns) == by


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data", "--unit", "custommer"], "--unit custommer: is not a column of the files; did you mean 'customer'?"),
        (["data"], "one of the arguments --unit --one-row-per-person is required"),
        (["none/*.parquet", "--unit", "customer"], "FILES: matches no file"),
        (["data", "--unit", "customer", "--types", "a=int"], "--types: is for CSV files only"),
        (["data", "--unit", "customer", "--delimiter", ";"], "--delimiter: is for CSV files only"),
        (
            ["rows.csv", "--unit", "customer", "--types", "price=double", "--delimiter", "::"],
            "--delimiter: must be one ASCII character",
        ),
        (
            ["rows.csv", "--unit", "customer", "--types", "price=double", "--decimal", ";"],
            "--decimal: must be one of",
        ),
        (
            ["rows.csv", "--unit", "customer", "--types", "price=doubel"],
            "unknown type 'doubel'; did you mean 'double'?",
        ),
        (["rows.csv", "--unit", "customer", "--types", "price"], "--types price: must be NAME=TYPE"),
        (["rows.csv", "--unit", "custommer", "--types", "price=double"], "has no column 'custommer'"),
        (["rows.csv", "data/part-0.parquet", "--unit", "customer"], "no pattern matches these files and no others"),
        (["data/part-0.parquet", "rows.txt", "--unit", "customer"], "no pattern matches these files and no others"),
        (["*", "--unit", "customer"], "is not a file"),
        (["rows.csv", "--unit", "customer", "--like", "none.csv"], "file 'none.csv': cannot be read"),
        (["rows.csv", "--unit", "customer", "--like", "taken.yaml"], "--like: cannot be read as CSV"),
        (
            ["rows.jsonl", "--unit", "customer", "--like", "rows.csv"],
            "; write one JSON object on each line of the sample",
        ),
        (["data", "--unit", "customer", "--like", "rows.csv"], "--like: is for CSV files only"),
        (["data", "--unit", "customer", "--header-is-public"], "--header-is-public: is for CSV files only"),
        (["rows.jsonl", "--unit", "customer", "--header-is-public"], "JSON lines have no header"),
        (["wide.csv", "--unit", "customer", "--header-is-public"], "is UTF-16"),
        (["taken.yaml", "--unit", "customer"], "is neither .parquet nor .csv"),
        (["data", "--unit", "customer", "--output", "taken.yaml"], "exists, and init never replaces a file"),
        (["data", "--unit", "customer", "--output", "none/job.yaml"], "is in a folder that does not exist"),
        (["data", "--unit", "customer", "--dataset", "a\x1bb"], "--dataset: must not contain"),
        (["data", "--unit", "paid_at", "--unit", ""], "--unit: "),
    ],
)
def test_a_wrong_request_is_one_line_and_writes_nothing(
    shop: Path, call: Call, arguments: list[str], words: str
) -> None:
    (shop / "taken.yaml").touch()
    before = sorted(shop.rglob("*"))
    said = call("init", *arguments)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert said.err.count("\n") == 1
    assert sorted(shop.rglob("*")) == before


def test_no_message_repeats_a_first_line_that_may_be_a_row(shop: Path, call: Call) -> None:
    (shop / "headless.csv").write_text("ann,north,3.5\nbob,south,2\n")
    said = call("init", "headless.csv", "--unit", "customer", "--types", "ann_=string")
    assert said.code == 2
    assert "north" not in said.err + said.out
    assert "did you mean" not in said.err


SAMPLE = "customer;region;price;zip;on;at\nx1;a;1,5;01234;2026-01-05;2026-01-05 10:00:00\nx2;b;12,25;12345;;\n"


def test_names_and_types_come_from_a_public_sample_and_from_no_row(shop: Path, call: Call) -> None:
    (shop / "sample.csv").write_text(SAMPLE)
    (shop / "all.csv.gz").write_bytes(gzip.compress((SAMPLE.splitlines()[0] + "\nann;1;2;3;4;5\n").encode()))
    assert call("init", "all.csv.gz", "--unit", "customer", "--like", "sample.csv", "--types", "at=string").code == 0
    job = job_file.load("job.yaml").job
    assert (job.source.csv, job.dataset, job.source.delimiter, job.source.decimal) == ("all.csv.gz", "all", ";", ",")
    assert job.source.types == {
        "customer": "string", "region": "string", "price": "double", "zip": "string", "on": "date", "at": "string",
    }  # fmt: skip
    assert "ann" not in (shop / "job.yaml").read_text()
    assert call("plan", "job.yaml").code == 0
    (shop / "like.jsonl").write_text('{"customer": "x", "n": 1, "price": 1.5, "in": {"a": 1}}\n')
    assert call("init", "rows.jsonl", "--unit", "customer", "--like", "like.jsonl", "--output", "b.yaml").code == 0
    source = job_file.load("b.yaml").job.source
    assert (source.jsonl, source.types) == ("rows.jsonl", {"customer": "string", "n": "int64", "price": "double"})


def test_a_public_header_gives_names_and_the_types_are_to_be_filled_in(shop: Path, call: Call) -> None:
    assert call("init", "rows.csv", "--unit", "customer", "--header-is-public", "--types", "price=double").code == 0
    text = (shop / "job.yaml").read_text()
    source = job_file.load("job.yaml").job.source
    assert source.types == {"customer": "string", "region": "string", "price": "double", "sold_at": "string"}
    assert "# TO FILL IN: all columns are text here." in text
    assert "ann" not in text
    assert call("plan", "job.yaml").code == 0


def test_without_types_the_message_has_two_lines_of_duckdb_that_work(shop: Path, call: Call) -> None:
    said = call("init", "rows.csv", "--unit", "customer")
    assert (said.code, said.out) == (2, "")
    first, copy, again = said.err.splitlines()
    assert first.startswith("error: --types: is required for CSV and JSON lines")
    assert "--like SAMPLE" in first
    assert "--header-is-public" in first
    program, flag, statement = shlex.split(copy)
    assert (program, flag) == ("python", "-c")
    exec(statement, {})
    assert call(*shlex.split(again)[1:]).code == 0
    assert job_file.load("job.yaml").job.source.parquet == "data.parquet"


@pytest.mark.parametrize(
    ("name", "kind", "group", "summed"),
    [
        ("order_id", pa.int64(), False, False),
        ("OrderKey", pa.int64(), False, False),
        ("orderkey", pa.float64(), False, False),
        ("row_number", pa.int64(), False, False),
        ("rowid", pa.int32(), False, False),
        ("is_new", pa.int64(), False, False),
        ("returned_flag", pa.float64(), False, False),
        ("status_code", pa.int32(), False, False),
        ("something", pa.int64(), False, False),
        ("store", pa.int16(), True, False),
        ("gender", pa.int8(), True, False),
        ("segment", pa.uint8(), True, False),
        ("row_no", pa.int16(), False, False),
        ("quantity", pa.int16(), False, True),
        ("total_price", pa.int64(), False, True),
        ("price", pa.decimal128(10, 2), False, True),
        ("reading", pa.float32(), False, True),
        ("city", pa.string(), True, False),
        ("active", pa.bool_(), True, False),
    ],
)
def test_ids_codes_and_flags_are_never_summed_and_narrow_codes_are_groups(
    name: str, kind: pa.DataType, group: bool, summed: bool
) -> None:
    schema = pa.schema([("who", pa.int64()), (name, kind)])
    source = FirstSource(pattern="x.parquet", files=("x.parquet",), types={}, schema=schema)
    text = first_job.text(source, ["who"], "shop", "job.yaml")
    assert (f"partition_by: [{name}]" in text) == group
    assert (f"kind: sum, column: {name}," in text) == summed
    number = not (pa.types.is_string(kind) or pa.types.is_boolean(kind))
    assert (f"# not summed, since they may be ids, codes or flags: {name}" in text) == (number and not summed)


def test_names_of_folders_become_columns_with_the_narrowest_type_that_they_fit(shop: Path, call: Call) -> None:
    for week, branch in (("2026-01-05", "7"), ("__HIVE_DEFAULT_PARTITION__", "12")):
        folder = shop / "hive" / f"week={week}" / f"branch={branch}" / "kind=k%20b"
        folder.mkdir(parents=True)
        pa.parquet.write_table(purchases(1, 40), folder / "part.parquet")
    assert call("init", "hive", "--unit", "customer").code == 0
    job = job_file.load("job.yaml").job
    assert job.source.parquet == "hive/**/*.parquet"
    assert job.source.hive == {"week": "date", "branch": "int64", "kind": "string"}
    assert call("plan", "job.yaml").code == 0


def test_files_that_belong_to_an_account_are_charged_to_it(shop: Path, call: Call) -> None:
    said = call("init", "data/*.parquet", "--unit", "customer", "--dataset", "sales", "--output", "first.yaml")
    assert (said.code, said.err) == (0, "")
    assert call("run", "first.yaml", "--output", "out", "--yes").code == 0
    # The second job names one of the files of the pattern, and would otherwise be refused.
    said = call("init", "data/part-1.parquet", "--unit", "customer", "--output", "second.yaml")
    assert said.code == 0
    assert "it charges the account 'sales'" in said.out
    assert job_file.load("second.yaml").job.dataset == "sales"
    assert call("ledger", "raise", "second.yaml", "--epsilon", "4", "--delta", "1e-5").code == 0


def test_a_ledger_that_cannot_be_read_stops_no_first_job(shop: Path, call: Call) -> None:
    (shop / "dp-ledger.sqlite").write_text("no ledger")
    said = call("init", "data/*.parquet", "--unit", "customer")
    assert said.code == 0
    assert "account" not in said.out


@pytest.mark.parametrize("name", ["receipt", "paid_ticket", "sold_at", "date", "event_time"])
def test_texts_that_are_times_or_unique_are_no_groups(shop: Path, call: Call, name: str) -> None:
    pa.parquet.write_table(pa.table({"customer": ["ann"], name: ["x"], "store": ["north"]}), shop / "texts.parquet")
    assert call("init", "texts.parquet", "--unit", "customer").code == 0
    (stage,) = job_file.load("job.yaml").job.stages.values()
    assert list(stage.partition_by) == ["store"]


def test_a_public_header_proposes_no_group_of_row_numbers_or_amounts(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sales.csv").write_text("row_num,customer_id,price,city\n")
    assert call("init", "sales.csv", "--unit", "customer_id", "--header-is-public").code == 0
    content = yaml.safe_load((tmp_path / "job.yaml").read_text())
    (only,) = content["stages"].values()
    assert only["partition_by"] == ["city"]
    groups = [line for line in (tmp_path / "job.yaml").read_text().splitlines() if "can be added" in line]
    assert not any("row_num" in line or "price" in line for line in groups)


def test_comments_name_every_column_of_a_wide_table(shop: Path, call: Call) -> None:
    names = {f"shelf_{number:03}": ["a"] for number in range(90)}
    amounts = {f"price_{number:02}": [1.5] for number in range(40)}
    codes = {f"code_{number:02}": [7] for number in range(30)}
    pa.parquet.write_table(pa.table({"customer": ["ann"], **names, **amounts, **codes}), shop / "wide.parquet")
    assert call("init", "wide.parquet", "--unit", "customer").code == 0
    text = (shop / "job.yaml").read_text()
    for name in (*names, *amounts, *codes):
        assert re.search(rf"\b{name}\b", text), name
    assert not re.search(r"and \d+ more", text)
    assert max(map(len, text.splitlines())) <= 130
    assert job_file.load("job.yaml").job.stages


def test_a_table_of_very_many_columns_says_how_to_see_them_all(shop: Path, call: Call) -> None:
    columns = {f"shelf_{number:04}": ["a"] for number in range(first_job.MOST_NAMED + 7)}
    pa.parquet.write_table(pa.table({"customer": ["ann"], **columns}), shop / "wide.parquet")
    assert call("init", "wide.parquet", "--unit", "customer").code == 0
    assert "and 6 more; for all: duckdb -c" in (shop / "job.yaml").read_text()


@pytest.mark.parametrize("folder", ["csv", "parquet", "jsonl", "json", "delta", "data"])
@pytest.mark.parametrize("file", ["part-0", "part-00000-of-00004", "rows", "data_2026", "csv"])
def test_the_name_of_the_account_does_not_follow_from_the_format(
    shop: Path, call: Call, folder: str, file: str
) -> None:
    (shop / "bakery" / folder).mkdir(parents=True)
    pa.parquet.write_table(purchases(0, 400), shop / "bakery" / folder / f"{file}.parquet")
    assert call("init", f"bakery/{folder}/*.parquet", "--unit", "customer").code == 0
    assert job_file.load("job.yaml").job.dataset == shop.name
