"""The example of tax units: what fetch.py refuses, and earners.yaml, which leaves to the library what it can.

In: the script and the job file. Out: failures. Holds: all but one test need no network; that one is skipped where the data are
not there and cannot be fetched. Not covered: how good the model is (benchmarks/training_defaults.py).
"""

import hashlib
import importlib.util
import pathlib
import subprocess
import sys
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from dp_pipelines.jobs.run import run
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.training import artefact
from tests.helpers.source import ROOT

EXAMPLE = ROOT / "examples" / "tax_units"
JOB = EXAMPLE / "earners.yaml"
WAGES = {"e00200", "e00200p", "e00200s", "pencon_p", "pencon_s", "agi_bin"}
"""The wages of a tax unit, and what is a part or a sum of them."""

CSV = b"RECID,e00200,age_head\n1,52000,40\n2,0,71\n"


@pytest.fixture
def fetch() -> ModuleType:
    """The script."""
    spec = importlib.util.spec_from_file_location("fetch_tax_units", EXAMPLE / "fetch.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def table(fetch: ModuleType) -> pa.Table:
    return fetch.parse(CSV)


def test_all_columns_are_whole_numbers(table: pa.Table) -> None:
    assert table.to_pydict() == {"RECID": [1, 2], "e00200": [52000, 0], "age_head": [40, 71]}
    assert set(table.schema.types) == {pa.int32()}


def test_changed_content_is_refused(fetch: ModuleType) -> None:
    fetch.check_hash(b"rows", hashlib.sha256(b"rows").hexdigest(), "the file")
    with pytest.raises(fetch.FetchError, match="do not use it"):
        fetch.check_hash(b"rowz", hashlib.sha256(b"rows").hexdigest(), "the file")


def test_another_wheel_is_refused_before_it_is_unzipped(fetch: ModuleType, tmp_path: pathlib.Path) -> None:
    (tmp_path / "other.whl").write_bytes(b"no zip at all")
    with pytest.raises(fetch.FetchError, match="the wheel has another SHA-256"):
        fetch.extract(tmp_path / "other.whl")


def test_another_size_and_a_unit_with_two_rows_are_refused(fetch: ModuleType, table: pa.Table) -> None:
    fetch.check_table(table, 2)
    for wrong, rows in ((table, 3), (pa.concat_tables([table, table]), 4)):
        with pytest.raises(fetch.FetchError, match="expected are"):
            fetch.check_table(wrong, rows)


def test_the_folder_appears_whole_and_is_known_again(
    fetch: ModuleType, table: pa.Table, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "data" / "tax_units"
    assert not fetch.is_complete(out, rows=2)
    fetch.write(table, out)
    assert fetch.is_complete(out, rows=2)
    assert pq.read_table(out).replace_schema_metadata({}).equals(table)
    assert [path.name for path in out.parent.iterdir()] == ["tax_units"]


def test_a_damaged_or_other_file_is_noticed(fetch: ModuleType, table: pa.Table, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "tax_units"
    fetch.write(table, out)
    file = out / fetch.FILE
    file.write_bytes(file.read_bytes()[:-20])
    assert not fetch.is_complete(out, rows=2)
    pq.write_table(table, file)  # right rows, without the mark
    assert not fetch.is_complete(out, rows=2)


def test_a_folder_with_something_else_is_not_touched(
    fetch: ModuleType, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert fetch.main(["--out", str(tmp_path)]) == 1
    assert "remove it or name another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_download_that_fails_is_told_in_one_line_and_leaves_nothing(
    fetch: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="\nERROR: no route to host\n")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: failed)
    assert fetch.main(["--out", str(tmp_path / "new")]) == 1
    assert "fetch.py: pip could not download taxcalc" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_job_leaves_to_the_library_what_it_can() -> None:
    job = yaml.safe_load(JOB.read_text())
    stage = job["stages"]["earners"]
    assert set(stage) == {"kind", "max_examples_per_unit", "label", "features"}
    assert stage["max_examples_per_unit"] == 1
    assert not any("share" in each for each in job["stages"].values())
    for name, feature in stage["features"].items():
        assert set(feature) <= {"kind", "column", "min_value", "max_value", "categories"}, name


def test_no_feature_is_the_wage_or_is_made_of_it() -> None:
    job = yaml.safe_load(JOB.read_text())
    computed = set(job["columns"])
    columns = {feature["column"] for feature in job["stages"]["earners"]["features"].values()}
    assert not columns & (WAGES | computed)
    assert "e00200" in job["columns"]["earns"]


def tax_units(rows: int = 6000) -> pa.Table:
    """Made-up rows with the columns that the job names: the older earn more, up to an age."""
    made = np.random.default_rng(2014)
    job = yaml.safe_load(JOB.read_text())
    features = job["stages"]["earners"]["features"].values()
    columns = {
        each["column"]: made.integers(each["min_value"], each["max_value"], rows)
        if each["kind"] == "number"
        else made.choice(each["categories"], rows)
        for each in features
    }
    wages = np.where(columns["age_head"] > 40, 60_000, 30_000) + made.integers(0, 30_000, rows)
    return pa.table({"RECID": np.arange(rows), "e00200": wages, **columns})


def job_of_made_up_rows(folder: pathlib.Path) -> job_file.JobFile:
    """The job, in a folder, about made-up rows beside it: the real ones need the network. Of so few rows, at less noise."""
    pq.write_table(tax_units(), folder / "rows.parquet")
    text = (
        JOB.read_text()
        .replace("../../data/tax_units/*.parquet", "rows.parquet")
        .replace("epsilon: 1.0", "epsilon: 30.0")
    )
    assert "epsilon: 30.0" in text
    return job_file.read(text, folder / "earners.yaml", "earners.yaml")


@pytest.mark.slow
def test_the_job_publishes_its_tables_and_its_model(tmp_path: pathlib.Path) -> None:
    done = run.run(job_of_made_up_rows(tmp_path), str(tmp_path / "out"), ledger="none")
    assert {"filing.parquet", "states.parquet", "earners/model.json", "report.html"} <= set(done.manifest["files"])
    model = artefact.load(tmp_path / "out" / "earners")
    assert model.task.max_examples_per_unit == 1
    held_out = tax_units(1000).append_column("earns", pa.array(np.arange(1000) % 2 == 0))
    scores = model.scores(held_out)
    older = pc.greater(held_out.column("age_head"), 40).to_numpy(zero_copy_only=False)
    assert scores[older].mean() > scores[~older].mean()


@pytest.mark.slow
def test_the_data_have_one_row_for_each_tax_unit_and_the_columns_of_the_job(fetch: ModuleType) -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE / "fetch.py")], capture_output=True, text=True, check=False)
    if "could not download" in done.stderr:
        pytest.skip("the package registry is out of reach")
    assert done.returncode == 0, done.stderr
    data = ROOT / "data" / "tax_units"
    assert fetch.is_complete(data)
    schema = pq.read_schema(data / fetch.FILE)
    assert set(tax_units(1).column_names) <= set(schema.names)
    assert set(schema.names) >= WAGES
