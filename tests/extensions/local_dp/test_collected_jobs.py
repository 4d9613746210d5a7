"""Jobs of collected stages on the command line: what is planned, published and promised, and what is refused before.

Holds: exit code 2 and nothing created for what public facts show to be wrong; no report decides an exit code or a message.
"""

import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dp_pipelines.collect.domain import Choices, NumberBins, NumberGrid
from dp_pipelines.collect.question import Question
from dp_pipelines.collected.collected_stage import CollectedStage
from dp_pipelines.jobs.cli.main import main
from tests.helpers.extension_folders import needs

VISITED = Question("visited", Choices(("bakery", "dairy", "fish")), epsilon=2)
AGE = Question("age", NumberBins((0, 18, 65, 120)), epsilon=1)
HOURS = Question("hours", NumberGrid(0, 24), epsilon=1)
PEOPLE = 2000

JOB = """
dataset: visits
privacy_unit: phone
source: {parquet: "r*.parquet"}
stages:
  visited: {kind: collected, question: visited.json}
  hours: {kind: collected, question: hours.json}
  pairs: {kind: collected, question: visited.json, by: age.json, by_columns: age}
"""

MIXED = """
dataset: visits
source: {parquet: "r*.parquet"}
shuffler: {honest_reports: 15000, delta: 1.0e-6}
stages: {visited: {kind: collected, question: visited.json}}
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    for question in (VISITED, AGE, HOURS):
        (tmp_path / f"{question.name}.json").write_text(question.to_json())
    pq.write_table(rows().slice(0, 900), tmp_path / "r1.parquet")
    pq.write_table(rows().slice(900), tmp_path / "r2.parquet")
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def rows() -> pa.Table:
    chance = np.random.default_rng(7)
    return pa.table(
        {
            "phone": [f"p{place}" for place in range(PEOPLE)],
            "value": chance.integers(0, 3, PEOPLE),
            "age": chance.integers(0, 3, PEOPLE),
            "bit": chance.integers(0, 2, PEOPLE),
        }
    )


def run(folder: pathlib.Path, output: str = "out", *options: str) -> int:
    return main(["run", str(folder / "job.yaml"), "--output", str(folder / output), "--ledger", "none", *options])


def test_a_run_publishes_the_estimates_of_all_rows(folder, capsys):
    assert run(folder) == 0
    found = {path.name: pq.read_table(path) for path in (folder / "out").glob("*.parquet")}
    for name, stage in {
        "visited.parquet": CollectedStage(VISITED),
        "hours.parquet": CollectedStage(HOURS),
        "pairs.parquet": CollectedStage(VISITED, None, AGE, "age"),
    }.items():
        assert found[name].equals(stage.published(stage.count(rows())))
    assert "one person's report changed" in capsys.readouterr().out


def test_runs_agree_whatever_the_files_and_the_engine(folder):
    assert run(folder) == 0
    pq.write_table(rows().take(pa.array(np.arange(PEOPLE)[::-1])), folder / "r1.parquet")
    (folder / "r2.parquet").unlink()
    assert run(folder, "again", "--threads=2") == 0
    assert run(folder, "beam", "--runner=direct") == 0
    for name in ("visited", "pairs"):
        first, *others = (pq.read_table(folder / out / f"{name}.parquet") for out in ("out", "again", "beam"))
        assert [first.equals(other) for other in others] == [True, True]


def test_manifest_and_page_state_the_promise_and_no_central_epsilon(folder):
    assert run(folder) == 0
    content = json.loads((folder / "out" / "manifest.json").read_text())
    assert content["promise"]["neighbours"] == "one person's report changed"
    assert content["promise"]["local_epsilon_of_a_person"] == 4.0
    assert not {"budget", "accounted", "privacy_unit"} & content.keys()
    page = (folder / "out" / "report.html").read_text()
    assert "one person&#39;s report changed" in page
    assert "dairy" in page


def test_reports_of_no_device_doubled_senders_and_no_rows_change_no_exit_code_and_no_message(folder, capsys):
    assert run(folder) == 0
    told = capsys.readouterr().out
    strange = {
        "foreign": pa.table({"phone": ["a", "b"], "value": [-1, 2**62], "age": [9, None], "bit": [7, 0]}),
        "doubled": pa.concat_tables([rows(), rows()]),
        "nobody": rows().set_column(0, "phone", pa.nulls(PEOPLE, pa.string())),
        "empty": rows().slice(0, 0),
    }
    (folder / "r2.parquet").unlink()
    for name, table in strange.items():
        pq.write_table(table.cast(rows().schema), folder / "r1.parquet")
        assert run(folder, name) == 0
        assert capsys.readouterr().out.replace(f"/{name}", "/out") == told
    counted = {name: pq.read_table(folder / name / "visited.parquet").column("reports")[0].as_py() for name in strange}
    assert counted == {"foreign": 0, "doubled": PEOPLE, "nobody": 0, "empty": 0}


def test_csv_is_read_with_declared_types(folder):
    lines = "\n".join(f"{row['phone']},{row['value']}" for row in rows().to_pylist())
    (folder / "reports.csv").write_text(f"phone,value\n{lines}\nx,not a number\n")
    source = "source: {csv: reports.csv, types: {phone: string, value: int64}}"
    stages = "stages: {v: {kind: collected, question: visited.json}}"
    (folder / "job.yaml").write_text(f"dataset: visits\nprivacy_unit: phone\n{source}\n{stages}")
    assert run(folder) == 0
    stage = CollectedStage(VISITED)
    assert pq.read_table(folder / "out" / "v.parquet").equals(stage.published(stage.count(rows())))


def test_a_plan_reads_no_row_and_states_mechanism_and_errors(folder, capsys):
    for path in folder.glob("*.parquet"):
        path.unlink()
    assert main(["plan", str(folder / "job.yaml"), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    visited = plan["stages"][0]
    assert visited["questions"][0]["mechanism"] == "d_ary"
    assert visited["expected"] == CollectedStage(VISITED).expected(1_000_000)
    assert main(["plan", str(folder / "job.yaml")]) == 0
    assert "10% of people, 100,000: 470" in capsys.readouterr().out


def test_behind_a_shuffler_the_plan_states_epsilon_delta_and_conditions(folder, capsys):
    (folder / "job.yaml").write_text(MIXED)
    assert main(["plan", str(folder / "job.yaml"), "--json"]) == 0
    shuffled = json.loads(capsys.readouterr().out)["promise"]["shuffled"]
    assert 0.33 < shuffled["epsilon"] < 0.34
    assert shuffled["delta"] == 1e-6
    assert any("strips names" in condition for condition in shuffled["conditions"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: collected, question: hours.json", "kind: aggregate", "never both"),
        ("question: hours.json", "question: gone.json", "'gone.json', which cannot be read"),
        ("question: hours.json", "question: r1.parquet", "which is not UTF-8 text"),
        ("question: hours.json", "question: job.yaml", "is not a JSON document"),
        ("by_columns: age", "by_columns: [age, bit]", "must name 1 columns, not 2"),
        ("by_columns: age", "by_columns: agee", "'agee'"),
        ("by_columns: age", "by_columns: phone", "reports are whole numbers"),
        ("question: hours.json", "question: hours.json, columns: value2", "is not a column of the rows"),
        ("privacy_unit: phone", "privacy_unit: phones", "'phones', which is not a column of the source"),
        ("privacy_unit: phone", "budget: {epsilon: 1}", "budget: is for jobs over tables"),
        ("privacy_unit: phone", "where: value > 0", "never choose by the answers themselves"),
        ("privacy_unit: phone", "columns: {value: phone}", "columns: of a stage names the columns of its reports"),
        ("privacy_unit: phone", "colums: {value: phone}", "unknown key"),
        ("privacy_unit: phone", "lookup: {parquet: p, on: phone}", "lookup: is for jobs over tables"),
        ("question: hours.json", "question: hours.json, where: value > 0", "unknown key"),
        (
            "question: visited.json, by",
            "question: visited.json, memoised: true, by",
            "differs from that of stage 'visited'",
        ),
        (
            "question: visited.json, by",
            "question: visited.json, answers: 2, by",
            "differs from that of stage 'visited'",
        ),
        # Two columns are two answers, whatever their document is called.
        (
            "hours: {kind: collected, question: hours.json",
            "hours: {kind: collected, question: visited.json, columns: bit",
            "has answers to 'visited' in 2 places of a row, and 1 of a person are declared",
        ),
        (
            "question: visited.json, by: age.json, by_columns: age",
            "question: age.json, columns: value, by: visited.json, by_columns: age",
            "has answers to 'visited' in 2 places of a row",
        ),
        ("question: hours.json", "question: hours.json, answers: 0", "must be at least 1"),
        ("privacy_unit: phone", "privacy_unit: phone\nshuffler: {honest_reports: 9999, delta: 0.1}", "names senders"),
        (
            "dataset: visits\nprivacy_unit: phone",
            "dataset: visits\nshuffler: {honest_reports: 9, delta: 0.1}",
            "too few",
        ),
        ("r*.parquet", "s*.parquet", "matches no file"),
    ],
)
def test_what_public_facts_show_to_be_wrong_is_refused_with_exit_code_2(folder, capsys, old, new, message):
    assert old in JOB
    (folder / "job.yaml").write_text(JOB.replace(old, new, 1))
    assert run(folder) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_memoised_answers_are_never_shuffled(folder, capsys):
    (folder / "job.yaml").write_text(MIXED.replace("question: visited.json", "question: visited.json, memoised: true"))
    assert run(folder) == 2
    assert "no fresh chance" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epsilon", "3"),
        ("parameters", {"other": 1}),
        ("bits", 51),
        ("values", ["bakery", "dairy"]),
        ("fields", ["code"]),
        ("format", "other"),
    ],
)
def test_a_document_whose_numbers_do_not_follow_is_refused_with_exit_code_2(folder, capsys, key, value):
    document = json.loads(VISITED.to_json()) | {key: value}
    (folder / "visited.json").write_text(json.dumps(document))
    assert run(folder) == 2
    assert "job.yaml:6: stages.visited.question: names 'visited.json', in which" in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_two_documents_of_one_name_are_refused(folder, capsys):
    (folder / "age.json").write_text(Question("visited", AGE.domain, epsilon=1).to_json())
    assert run(folder) == 2
    assert "another question 'visited'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ledger=none", "--synthetic"], "--synthetic: is not for jobs of collected stages"),
        (["--ledger=none", "--param=a=b"], "--param a: is not declared in the job file's params"),
        pytest.param(
            ["--ledger=none", "--runner=dataflow"], "dataflow has no collected stages yet", marks=needs("dataflow")
        ),
        (["--ledger=none", "--run-id=\n"], "--run-id: must have"),
    ],
)
def test_options_without_a_meaning_here_are_refused(folder, capsys, options, message):
    assert main(["run", str(folder / "job.yaml"), "--output", str(folder / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_other_commands_say_that_they_do_not_know_such_jobs(folder, capsys):
    assert main(["audit", str(folder / "job.yaml")]) == 2
    assert "only dp-pipelines plan, run, runs and ledger know such jobs" in capsys.readouterr().err


def test_a_folder_that_is_there_is_left_alone(folder, capsys):
    (folder / "out").mkdir()
    assert run(folder) == 2
    assert "already exists" in capsys.readouterr().err
    assert not list((folder / "out").iterdir())
