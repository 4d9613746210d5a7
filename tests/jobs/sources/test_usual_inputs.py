"""Inputs as people have them: compressed files, folders, columns in names of folders, files that lack a column, and wrong ones.

In: files of a few rows. Out: tables, messages. Holds: each wrong input says what it is and what to do, and quotes no row. Not
covered: engines, which read through the same steps (`tests/engines`).
"""

import bz2
import gzip
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.engine import compressed
from dp_pipelines.errors import DamagedInputError, RequestError
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.runners.local import open_here
from dp_pipelines.jobs.sources import declared_source, source_files
from dp_pipelines.jobs.sources.json_lines import ReadJsonLines
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.jobs.spec.source_models import SourceModel
from dp_pipelines.kernels.columns import csv_lines
from dp_pipelines.ledger import sources
from dp_pipelines.steps.folder_columns import FolderColumns
from dp_pipelines.steps.read_files import NO_ROWS, ReadCsvFile, ReadRowGroups
from dp_pipelines.transforms.beam_flow import open_anywhere
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]
SECRET = "swordfish"
LINES = b"customer,amount\n" + b"".join(b"c%d,%d\n" % (n % 50, n) for n in range(1000))
TYPES = {"customer": pa.string(), "amount": pa.int64()}


def zstd(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd, ".bz2": bz2.compress}


def look(folder: Path, **said: Any) -> source_files.Source:
    """The source that a job in a folder declares."""
    return declared_source.look(SourceModel(**said), folder, {}, Content(data={}))


def amounts(path: Path, opener: Callable[[str], Any] = open_here) -> list[int]:
    return [n for table in ReadCsvFile(TYPES, opener=opener).process(str(path)) for n in table["amount"].to_pylist()]


@pytest.mark.parametrize("end", PACK)
@pytest.mark.parametrize("opener", [open_here, open_anywhere])
def test_compressed_csv_gives_the_rows_that_it_holds_in_all_its_members(tmp_path: Path, end: str, opener: Any) -> None:
    path, half = tmp_path / f"rows.CSV{end.upper()}", len(LINES) // 2
    path.write_bytes(PACK[end](LINES[:half]) + PACK[end](b"") + PACK[end](LINES[half:]))
    assert amounts(path, opener) == list(range(1000))
    source = look(tmp_path, csv=f"*{end.upper()}", types={"customer": "string", "amount": "int64"})
    assert source.files == (str(path),)
    with pytest.raises(RequestError, match=r"has no column 'amonut'"):
        look(tmp_path, csv=f"*{end.upper()}", types={"amonut": "int64"})


@pytest.mark.parametrize("end", PACK)
def test_a_damaged_compressed_file_is_one_error_with_its_name(tmp_path: Path, end: str) -> None:
    whole = PACK[end](LINES * 400)
    between = PACK[end](LINES * 200) + b"XX" + PACK[end](LINES * 200)
    for number, content in enumerate((whole[: len(whole) // 2], whole[:-8], b"no " + whole, between, whole + b"XX")):
        path = tmp_path / f"rows{number}.csv{end}"
        path.write_bytes(content)
        for opener in (open_here, open_anywhere):
            with pytest.raises(DamagedInputError, match=f"rows{number}.csv{end}"):
                amounts(path, opener)
    lines = tmp_path / f"rows.jsonl{end}"
    lines.write_bytes(whole[:-8])
    with pytest.raises(DamagedInputError, match="cannot be read to its end"):
        list(ReadJsonLines(TYPES, opener=open_here).process(str(lines)))


@pytest.mark.parametrize("end", PACK)
def test_a_well_compressed_file_is_read_in_pieces(end: str) -> None:
    stream = compressed.plain(f"x.csv{end}", io.BytesIO(PACK[end](b"a\n" + b"x" * 2**26)))
    assert len(csv_lines.start_of(stream)) == csv_lines.LONGEST_HEADER + 1


def test_compressed_json_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b'{"customer": "a", "amount": 7}\n' * 3))
    (path,) = look(tmp_path, jsonl="*.gz", types={"amount": "int64"}).files
    step = ReadJsonLines({"amount": pa.int64()}, opener=open_here)
    assert pa.concat_tables(step.process(path)).to_pylist() == [{"amount": 7}] * 3


def test_a_folder_is_all_files_of_its_format_at_any_depth_but_marks_of_other_programs(tmp_path: Path) -> None:
    for name in ("a.csv", "deep/b.csv.gz", "deep/c.txt", "d.parquet", "_SUCCESS", ".hidden.csv", "_temporary/e.csv"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(LINES) if name.endswith(".gz") else LINES)
    found = look(tmp_path, csv="data", types={"amount": "int64"}).files
    assert [Path(path).name for path in found] == ["a.csv", "b.csv.gz", "c.txt"]
    with pytest.raises(RequestError, match=r"names a folder without files that end in .jsonl"):
        look(tmp_path, jsonl="data", types={"amount": "int64"})
    # An account owns what lies in its folder, and in a folder that a parameter names.
    registered = sources.absolute("data", str(tmp_path))
    assert sources.first_match(registered, found) == found[0]
    assert sources.covering(str(tmp_path / "{place}"), found) == str(tmp_path / "{place}/**")
    assert sources.covering(str(tmp_path / "data/*.csv"), found[:1]) == str(tmp_path / "data/*.csv")


def test_the_home_of_the_user_may_be_written_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.csv").write_bytes(LINES)
    found = look(Path("/elsewhere"), csv="~/*.csv", types={"amount": "int64"}).files
    assert found == (str(tmp_path / "x.csv"),)
    assert sources.first_match(sources.absolute("~/*.csv", "/elsewhere"), found) is not None


@pytest.fixture
def hive(tmp_path: Path) -> Path:
    """Two weeks and no week; only the last file has a discount."""
    for week, columns in {
        "2026-01-05": {"customer": ["a", "b"], "amount": [1, 2]},
        "__HIVE_DEFAULT_PARTITION__": {"customer": ["c"], "amount": [3]},
        "2026-01-12": {"customer": ["d"], "amount": [4], "discount": [0.5]},
    }.items():
        folder = tmp_path / "data" / f"week={week}"
        folder.mkdir(parents=True)
        pa.parquet.write_table(pa.table(columns), folder / "part.parquet")
    return tmp_path


def test_names_of_folders_and_columns_that_files_lack_are_read_as_declared(hive: Path) -> None:
    source = look(hive, parquet="data", hive={"week": "date"}, optional=["discount"])
    assert source.schema.field("week").type == pa.date32()
    added = source.reader.added  # type: ignore[attr-defined]
    columns = ["week", "customer", "discount"]
    read = ReadRowGroups(added.of_files(columns), opener=open_here, optional=frozenset(added.optional))
    step = pickle.loads(pickle.dumps(added.around(read, columns)))  # as workers get it
    assert step.alone
    tables = [table for path in source.files for table in step.process(((path, NO_ROWS), 9))]
    assert {table.schema for table in tables} == {
        pa.schema({"week": pa.date32(), "customer": pa.string(), "discount": pa.float64()})
    }
    rows = {row["customer"]: (str(row["week"]), row["discount"]) for row in pa.concat_tables(tables).to_pylist()}
    early = ("2026-01-05", None)
    assert rows == {"a": early, "b": early, "c": ("None", None), "d": ("2026-01-12", 0.5)}
    assert FolderColumns().around(read, columns) is read  # where nothing is added, nothing is in between


def test_a_run_over_folders_publishes_their_names(hive: Path, call: Call) -> None:
    people = 200  # so many that noise, of a standard deviation below 1, decides nothing here
    for path in hive.glob("data/*/part.parquet"):
        columns = {"customer": [f"{path.parent.name}{n}" for n in range(people)]}
        if "2026-01-12" in str(path):
            columns["discount"] = [0.5] * people  # type: ignore[assignment]
        pa.parquet.write_table(pa.table(columns), path)
    job = {
        "dataset": "shop",
        "privacy_unit": "customer",
        "budget": {"epsilon": 30.0, "delta": 1e-3},
        "source": {"parquet": "data", "hive": {"week": "date"}, "optional": ["discount"]},
        "stages": {
            "weeks": {
                "kind": "aggregate",
                "partition_by": ["week"],
                "partitions": {"public": [["2026-01-05"], ["2026-01-12"], [None]]},
                "bounds": {"max_partitions_contributed": 1, "max_contributions_per_partition": 1},
                "metrics": {
                    "rows": {"kind": "count"},
                    "saved": {"kind": "sum", "column": "discount", "min_value": 0, "max_value": 1},
                },
            }
        },
    }
    (hive / "job.yaml").write_text(yaml.safe_dump(job))
    said = call("run", hive / "job.yaml", "--output", hive / "out", "--ledger", "none")
    assert said.code == 0, said.err
    table = pa.parquet.read_table(hive / "out" / "weeks.parquet").to_pylist()
    assert {str(row["week"]): round(row["rows"], -2) for row in table} == dict.fromkeys(
        ("2026-01-05", "None", "2026-01-12"), people
    )
    saved = {str(row["week"]): round(row["saved"], -2) for row in table}
    assert saved == {"2026-01-05": 0, "None": 0, "2026-01-12": people / 2}


def test_the_privacy_unit_stands_in_the_rows_of_all_files(hive: Path, call: Call) -> None:
    job = {"dataset": "d", "privacy_unit": "week", "budget": {"epsilon": 1.0, "delta": 1e-6}, "stages": {"s": STAGE}}
    for unit, words in {
        "week": "which names of folders say, and those are public",
        "discount": "which some files lack",
    }.items():
        source = {"parquet": "data", "hive": {"week": "string"}, "optional": ["discount"]}
        (hive / "job.yaml").write_text(yaml.safe_dump(job | {"privacy_unit": unit, "source": source}))
        said = call("plan", hive / "job.yaml")
        assert said.code == 2
        assert f"privacy_unit: names column {unit!r}, {words}" in said.err


def test_a_column_that_only_folders_say_is_named_with_the_key_that_declares_it(hive: Path, call: Call) -> None:
    job = {"dataset": "d", "privacy_unit": "customer", "budget": {"epsilon": 1.0, "delta": 1e-6}}
    source = {"parquet": "data", "optional": ["discount"]}
    stages = {"s": {**STAGE, "partition_by": ["week"]}}
    (hive / "job.yaml").write_text(yaml.safe_dump({**job, "source": source, "stages": stages}))
    said = call("plan", hive / "job.yaml")
    assert said.code == 2
    assert (
        "names column 'week', which does not exist; its folders are called week=...: add e.g. hive: {week: string}"
        in said.err
    )


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"hive": {"week": "int64"}}, "folder whose name is no int64: week=2026-01-05; declare another type"),
        ({"hive": {"wek": "date"}}, "lies in no folder wek=...; did you mean 'week'?"),
        ({"hive": {"week": "day"}}, "source.hive.week: unknown type 'day'"),
        ({"hive": {"amount": "int64"}}, "source.hive: names column 'amount', which the files have themselves"),
        ({"optional": ["discont"]}, "names column 'discont', which no file has; did you mean 'discount'?"),
    ],
)
def test_what_folders_and_files_do_not_have_is_refused(hive: Path, said: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError) as refused:
        look(hive, parquet="data", **said)
    assert words in str(refused.value)


def test_a_column_that_an_older_file_lacks_says_how_it_is_null(hive: Path) -> None:
    missing = look(hive, parquet="data").missing["discount"]
    assert "add optional: [discount] to the source: it is null where a file lacks it" in str(missing)


STAGE = {
    "kind": "aggregate",
    "partition_by": ["city"],
    "bounds": {"max_partitions_contributed": 1, "max_contributions_per_partition": 1},
    "metrics": {"n": {"kind": "count"}},
}
CSV = {"csv": "rows.csv", "types": {"customer": "string", "city": "string", "price": "double"}}


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> Callable[..., Said]:
    """Plan a job with some keys changed, in a folder with files; extra arguments run it."""
    rows = f"customer,city,price\n{SECRET},a,1\n"
    (tmp_path / "rows.csv").write_text(rows)
    (tmp_path / "semi.csv").write_text(rows.replace(",", ";"))
    (tmp_path / "wide.csv").write_bytes(rows.encode("utf-16"))
    (tmp_path / "rows.zip").write_bytes(b"PK")
    nested = pa.table({"customer": [SECRET], "o": [{"city": "x"}], "day": pa.array([1], pa.date32())})
    pa.parquet.write_table(nested, tmp_path / "nested.parquet")
    monkeypatch.chdir(tmp_path)

    def plan(*arguments: str, stage: Any = None, **changes: Any) -> Said:
        job = {"dataset": "d", "privacy_unit": "customer", "budget": {"epsilon": 1.0, "delta": 1e-6}, "source": CSV}
        job |= {"stages": {"s": STAGE | (stage or {})}} | changes
        Path("job.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
        command = (
            ("run", "job.yaml", "--output", "out", "--ledger", "none", *arguments)
            if arguments
            else ("plan", "job.yaml")
        )
        said = call(*command)
        assert SECRET not in said.out + said.err
        return said

    return plan


NESTED = {"parquet": "nested.parquet"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"source": CSV | {"csv": "wide.csv"}},
            "is UTF-16, as programs for Windows write it; CSV is read as UTF-8; convert it: iconv",
        ),
        (
            {"source": CSV | {"csv": "rows.zip"}},
            "is compressed; only CSV and JSON lines of a source are read from .gz, .zst",
        ),
        (
            {"source": CSV | {"csv": "a.xlsx"}},
            "names a file of a spreadsheet program: 'a.xlsx'; such files are not read; save it",
        ),
        pytest.param(
            {"source": {"excel": "a.xlsx"}},
            "source.excel: is no format that is read; parquet:, csv:, jsonl:, avro:, delta:",
            marks=needs("lake"),
        ),
        ({"source": {"postgres": "db"}}, "source.postgres: is no format that is read"),
        (
            {"source": {"parquet": "https://x.org/a.parquet"}},
            "names a web address: 'https://x.org/a.parquet'; files are not",
        ),
        pytest.param(
            {"source": {"avro": "https://x.org/a.avro"}},
            "names a web address: 'https://x.org/a.avro'; files are not",
            marks=needs("lake"),
        ),
        ({"source": CSV | {"csv": "rows.csv.tar.zst"}}, "unpack it with tar -xf"),
        ({"source": {"parquet": "${HOME}/a.parquet"}}, "uses ${HOME}: variables of a shell are none here"),
        (
            {"source": NESTED, "where": "day > current_date - 30"},
            "uses current_date: the day of a run must not choose rows",
        ),
        ({"source": NESTED, "where": "day > today()"}, "run with --param day=2026-01-05"),
        (
            {"source": NESTED, "stage": {"partition_by": ["o.city"]}},
            "define it: columns: {city: 'o.city'}, and write city here",
        ),
        ({"source": CSV | {"hive": {"city": "string"}}}, "hive: names column 'city', which types: declares"),
        ({"source": CSV | {"optional": ["city"]}}, "source.optional: is for parquet: only"),
    ],
)
def test_a_wrong_input_says_what_it_is_and_what_to_do(wrong: Any, changes: dict[str, Any], words: str) -> None:
    said = wrong(**changes)
    assert said.code == 2
    assert words in said.err
    assert said.err.count("\n") == 1


def test_a_variable_of_a_shell_is_told_where_no_file_is_found(wrong: Any) -> None:
    source = {"parquet": "$DATA/a.parquet"}
    words = "$DATA is not replaced: variables of a shell are none here"
    said = wrong(source=source)
    assert (said.code, words in said.err) == (0, True), "a plan needs no files"
    said = wrong("--threads", "1", source=source)
    assert (said.code, words in said.err) == (2, True)


def test_the_home_of_somebody_who_does_not_exist_is_a_folder_that_is_not_there(wrong: Any) -> None:
    for source in ({"delta": {"path": "~no-such-user/t"}}, {"parquet": "~no-such-user/a.parquet"}):
        said = wrong("--threads", "1", source=source)
        assert (said.code, "Traceback" in said.err) == (2, False), said.err


def test_an_option_that_stands_in_the_job_is_told_where(wrong: Any) -> None:
    for runner in ((), ("--runner", "direct")):
        said = wrong("--epsilon", "2", *runner)
        assert (said.code, said.out) == (2, ""), said.err
        assert "--epsilon: is no option of this command: it stands in the job's budget" in said.err


def test_a_job_with_another_ending_is_found(wrong: Any, call: Call) -> None:
    wrong()
    said = call("plan", "job.yml")
    assert said.err == "error: job.yml: cannot be read: No such file or directory; did you mean 'job.yaml'?\n"
    assert "name a job file" in call("plan", "nothing-of-that-name").err


def test_what_a_unit_of_several_columns_and_a_row_id_mean_is_noted_where_they_are_written(
    shop: Shop, call: Call
) -> None:
    said = call("plan", shop.write(privacy_unit=["customer", "store"], row_id="note"))
    assert said.code == 0
    notes = " ".join(said.err.split())
    assert (
        "privacy_unit: protects each combination of customer and store, not each customer or each store by itself"
        in notes
    )
    assert "row_id: tells the rows of one unit apart; it does not remove copies" in notes
    plain = call("plan", shop.write())
    assert "row_id" not in plain.err
    assert "combination" not in plain.err
    described = call("schema").out
    assert "not each of its members by itself" in described
    assert "does not remove copies" in described


def test_semicolons_without_a_declared_decimal_and_text_without_an_encoding_are_noted(wrong: Any) -> None:
    semi = CSV | {"csv": "semi.csv", "delimiter": ";"}
    said = wrong(source=semi)
    assert said.code == 0
    assert "files with ; between cells often write numbers as 1,5, and such a cell is null here" in said.err
    assert "cells that are not UTF-8 are null; if the files are in Latin-1" in said.err
    assert wrong(source=semi | {"decimal": ".", "encoding": "utf-8"}).err == ""
    plain = job_file.load("job.yaml")
    assert plain.job.source.decimal == "."


def test_a_file_with_nothing_but_a_header_decides_nothing_that_can_be_seen(wrong: Any) -> None:
    """How many rows there are, and whether there are any, is somebody's: a refusal would tell it."""
    with_rows = wrong()
    Path("rows.csv").write_text("customer,city,price\n")
    without = wrong()
    assert (without.code, without.out, without.err) == (with_rows.code, with_rows.out, with_rows.err)
    assert main.main(["run", "job.yaml", "--output", "empty", "--ledger", "none"]) == 0
