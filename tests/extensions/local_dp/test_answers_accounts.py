"""Jobs of collected stages and the ledger on the command line: what is charged, refused, repeated, and kept apart from tables.

In: small folders of reports. Out: exit codes, ledgers, manifests. Holds: a refusal comes before anything is created; the same
command after a failure goes on; each way around a charge that was tried stands here. Not covered: accounts (`tests/ledger`).
"""

import json
import pathlib
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dp_pipelines.collect.domain import Choices, NumberBins
from dp_pipelines.collect.question import Question
from dp_pipelines.errors import LedgerError
from dp_pipelines.extensions.local_dp import collected_run
from dp_pipelines.extensions.local_dp.answers import accounts_of
from dp_pipelines.jobs.cli.main import main
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger

VISITED = Question("visited", Choices(("bakery", "dairy", "fish")), epsilon=2)
AGE = Question("age", NumberBins((0, 18, 65, 120)), epsilon=1)

JOB = """
dataset: visits
privacy_unit: phone
source: {parquet: "r*.parquet"}
stages:
  visited: {kind: collected, question: visited.json}
"""
WITH_AGE = JOB + "  age: {kind: collected, question: age.json, columns: age}\n"
MIXED = """
dataset: mixed
source: {parquet: "batch*.parquet"}
shuffler: {honest_reports: 15000, delta: 1.0e-6}
stages: {visited: {kind: collected, question: visited.json}}
"""
TABLES = """
dataset: shop
privacy_unit: phone
budget: {epsilon: 1.0, delta: 1.0e-6}
source: {parquet: "t*.parquet"}
stages:
  by_age: {kind: aggregate, partition_by: [age], bounds: {max_partitions_contributed: 1, max_contributions_per_partition: 1},
           partitions: {public: [[0], [1], [2]]}, metrics: {people: {kind: privacy_id_count}}}
"""
ROWS = pa.table({"phone": [f"p{place}" for place in range(60)], "value": [0, 1, 2] * 20, "age": [0, 1, 2] * 20})


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for question in (VISITED, AGE):
        (tmp_path / f"{question.name}.json").write_text(question.to_json())
    pq.write_table(ROWS, tmp_path / "r1.parquet")
    pq.write_table(ROWS, tmp_path / "t1.parquet")
    pq.write_table(ROWS.select(["value"]), tmp_path / "batch1.parquet")
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def run(folder: pathlib.Path, output: str = "out", *options: str, job: str = "job.yaml") -> int:
    return main(["run", str(folder / job), "--output", str(folder / output), *options])


def call(folder: pathlib.Path, *words: str, job: str = "job.yaml") -> int:
    return main(["ledger", words[0], str(folder / job), *words[1:]])


def ledger(folder: pathlib.Path) -> Ledger:
    return Ledger.open(str(folder / DEFAULT_NAME))


def manifest(folder: pathlib.Path, output: str = "out") -> dict:
    return json.loads((folder / output / "manifest.json").read_text())


def test_the_first_run_opens_an_account_that_allows_what_the_job_asks_and_nothing_more(folder, capfd):
    assert run(folder) == 0
    said = capfd.readouterr()
    assert "opens the account 'visits' of kind local" in said.err
    assert "local epsilon 2 for all answers of a person, questions: 1, answers to each: 1" in said.err
    assert "neighbours: one person's report changed" in said.out
    told = manifest(folder)["ledger"]
    assert (told["kind"], told["neighbours"], told["estimate"]) == ("local", "one person's report changed", 1)
    assert told["spent"] == told["cap"] == {"epsilon": 2.0, "delta": 0.0}
    assert "of kind local" in (folder / "out" / "report.html").read_text()
    (folder / "job.yaml").write_text(WITH_AGE)
    assert run(folder, "more") == 3
    assert "--questions 2 --epsilon 3" in capfd.readouterr().err
    assert not (folder / "more").exists()
    assert call(folder, "raise", "--questions", "2", "--epsilon", "3") == 0
    assert run(folder, "more") == 0
    assert manifest(folder, "more")["ledger"]["spent"]["epsilon"] == 3.0


def test_the_same_folder_gives_the_stored_estimates_and_a_new_one_estimates_from_later_reports(folder, capsys):
    assert run(folder) == 0
    first = (folder / "out" / "manifest.json").read_bytes()
    pq.write_table(ROWS.set_column(0, "phone", pa.array([f"q{place}" for place in range(60)])), folder / "r2.parquet")
    assert run(folder) == 0
    assert "the stored estimates" in capsys.readouterr().out
    assert (folder / "out" / "manifest.json").read_bytes() == first
    assert run(folder, "later") == 0
    counted = [pq.read_table(folder / out / "visited.parquet").column("reports")[0].as_py() for out in ("out", "later")]
    assert counted == [60, 120]
    account = accounts_of(ledger(folder).state)["visits"]
    assert (account.estimates, len(account.asked)) == (2, 1)
    assert run(folder) == 0, "of several, the one that stands there"
    assert (folder / "out" / "manifest.json").read_bytes() == first


def test_a_named_run_gives_its_stored_estimates_into_any_folder(folder):
    assert run(folder, "out", "--run-id", "week-1") == 0
    pq.write_table(ROWS.slice(0, 6), folder / "r2.parquet")
    assert run(folder, "copy", "--run-id", "week-1") == 0
    for name in ("manifest.json", "visited.parquet", "report.html"):
        assert (folder / "copy" / name).read_bytes() == (folder / "out" / name).read_bytes()
    (folder / "job.yaml").write_text(WITH_AGE)
    assert run(folder, "other", "--run-id", "week-1") == 2


def test_a_run_that_failed_goes_on_with_the_same_command_and_is_charged_once(folder, monkeypatch, capsys):
    whole = collected_run._estimate
    monkeypatch.setattr(collected_run, "_estimate", lambda *given: 1 / 0)
    assert run(folder) == 1
    capsys.readouterr()
    assert main(["runs", str(folder / "job.yaml"), "--json"]) == 0
    (failed,) = json.loads(capsys.readouterr().out)
    assert (failed["state"], failed["last_attempt"]["state"]) == ("reserved", "interrupted")
    monkeypatch.setattr(collected_run, "_estimate", whole)
    assert run(folder) == 0
    held = ledger(folder)
    assert [run_.state for run_ in held.state.runs.values()] == ["published"]
    assert accounts_of(held.state)["visits"].estimates == 1


@pytest.mark.parametrize("step", ["start", "staged", "commit", "published"])
def test_wherever_a_run_stops_the_same_command_finishes_it_and_nothing_is_charged_again(folder, monkeypatch, step):
    def stops(*given: object, **named: object) -> None:
        raise LedgerError("the ledger's disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, step, stops)
        assert run(folder) == 1
    # What is committed is visible; before that nothing is.
    assert (folder / "out").exists() == (step == "published")
    pq.write_table(ROWS.slice(0, 6), folder / "r2.parquet")
    assert run(folder) == 0
    held = ledger(folder)
    ((_, name),) = held.state.runs
    assert held.state.runs["visits", name].state == "published"
    assert [event.kind for event in held.history].count("people_asked") == 1
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".out")]


def test_a_team_shares_an_account_in_postgresql(folder, postgres, capsys):
    named = ["--ledger", postgres]
    assert call(folder, "init", *named) == 0
    assert run(folder, "out", *named) == 0
    assert run(folder, "again", *named) == 0
    (folder / "job.yaml").write_text(WITH_AGE)
    assert run(folder, "more", *named) == 3
    assert call(folder, "raise", "--questions", "2", "--epsilon", "3", *named) == 0
    assert run(folder, "more", *named) == 0
    assert call(folder, "verify", "--against", str(folder / "out"), str(folder / "more"), *named) == 0
    capsys.readouterr()
    assert call(folder, "show", "--json", *named) == 0
    (account,) = json.loads(capsys.readouterr().out)["answers_accounts"]
    assert (account["spent"]["epsilon"], account["questions"]) == (3.0, {"limit": 2, "asked": 2})


def test_an_abandoned_run_keeps_its_questions_charged(folder, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(collected_run, "_estimate", lambda *given: 1 / 0)
        assert run(folder, "out", "--run-id", "r") == 1
    assert main(["runs", str(folder / "job.yaml"), "--abandon", "r"]) == 0
    assert "its questions stay charged, because people have answered them" in capsys.readouterr().out
    assert accounts_of(ledger(folder).state)["visits"].spent.epsilon == 2 * 10**12


def test_names_of_stages_and_the_spelling_of_a_document_change_no_charge_and_its_content_does(folder):
    assert run(folder) == 0
    (folder / "job.yaml").write_text(JOB.replace("  visited:", "  shops:"))
    (folder / "visited.json").write_text(json.dumps(json.loads(VISITED.to_json())))
    assert run(folder, "renamed") == 0
    assert len(accounts_of(ledger(folder).state)["visits"].asked) == 1
    (folder / "visited.json").write_text(Question("visited", Choices(("bakery", "dairy", "cod")), epsilon=2).to_json())
    assert run(folder, "changed") == 3
    (folder / "visited.json").write_text(Question("asked", VISITED.domain, epsilon=2).to_json())
    assert run(folder, "other name") == 3


def test_another_dataset_does_not_start_afresh_with_the_same_reports(folder, capsys):
    assert run(folder) == 0
    (folder / "job.yaml").write_text(JOB.replace("dataset: visits", "dataset: visits2"))
    assert run(folder, "again") == 2
    assert "belongs to the account 'visits'" in capsys.readouterr().err
    assert list(accounts_of(ledger(folder).state)) == ["visits"]


def test_more_answers_of_a_person_are_declared_and_charged(folder, capsys):
    (folder / "job.yaml").write_text(JOB.replace("json}", "json, answers: 3}"))
    assert main(["plan", str(folder / "job.yaml")]) == 0
    assert (
        "e^6 times as likely as under other answers, if a person answers 'visited' at most 3 times"
        in capsys.readouterr().out
    )
    assert run(folder) == 0
    assert manifest(folder)["promise"]["local_epsilon_of_a_person"] == 6.0
    assert accounts_of(ledger(folder).state)["visits"].spent.epsilon == 6 * 10**12
    (folder / "job.yaml").write_text(JOB.replace("json}", "json, memoised: true, answers: 3}"))
    assert run(folder, "memoised") == 3, "remembered answers are others than fresh ones"
    assert "this asks 'visited' too" in capsys.readouterr().err


def test_two_columns_of_one_question_are_two_answers(folder, capsys):
    twice = JOB + "  again: {kind: collected, question: visited.json, columns: age}\n"
    (folder / "job.yaml").write_text(twice)
    assert run(folder) == 2
    assert "2 places of a row, and 1 of a person are declared" in capsys.readouterr().err
    (folder / "job.yaml").write_text(twice.replace("visited.json", "visited.json, answers: 2"))
    assert run(folder) == 0
    assert manifest(folder)["ledger"]["spent"]["epsilon"] == 4.0
    remembered = twice.replace("visited.json", "visited.json, memoised: true").replace("visits", "others")
    (folder / "job.yaml").write_text(remembered.replace("columns: age", "by: visited.json, by_columns: age"))
    assert main(["plan", str(folder / "job.yaml")]) == 2
    assert "remembered answers are no second chance" in capsys.readouterr().err


def test_behind_a_shuffler_all_answers_of_a_row_are_one_report(folder, capsys):
    def epsilon(stages: str) -> float:
        (folder / "job.yaml").write_text(
            MIXED.replace("{visited: {kind: collected, question: visited.json}}", f"{{{stages}}}")
        )
        assert main(["plan", str(folder / "job.yaml"), "--json"]) == 0
        return json.loads(capsys.readouterr().out)["promise"]["shuffled"]

    one, age = (
        "visited: {kind: collected, question: visited.json}",
        "age: {kind: collected, question: age.json, columns: age}",
    )
    again = "again: {kind: collected, question: visited.json, columns: age, answers: 2}"
    alone, both = epsilon(one), epsilon(f"{one}, {age}")
    assert both["epsilon"] > alone["epsilon"] + epsilon(age)["epsilon"], "amplified together, not each by itself"
    twice = epsilon(f"{one.replace('json', 'json, answers: 2')}, {again}")
    assert twice["epsilon"] > 2 * alone["epsilon"]
    assert twice["batches"] == 1
    assert epsilon(one.replace("json", "json, answers: 5"))["batches"] == 5


def test_remembered_answers_are_charged_for_each_value_that_devices_may_remember(folder, capsys):
    (folder / "job.yaml").write_text(JOB.replace("json}", "json, memoised: true, answers: 2}"))
    assert call(folder, "init", "--answers", "1") == 0
    assert run(folder) == 3
    assert "2 distinct values are declared for 'visited', and the account allows 1" in capsys.readouterr().err
    assert call(folder, "raise", "--answers", "2") == 0
    assert run(folder) == 0
    assert "'visited' for at most 2 distinct values" in capsys.readouterr().out
    assert manifest(folder)["ledger"]["spent"]["epsilon"] == 4.0


def test_a_shuffled_job_is_charged_epsilon_and_delta_behind_the_shuffler(folder, capsys):
    (folder / "job.yaml").write_text(MIXED)
    assert run(folder) == 0
    told = manifest(folder)["ledger"]
    assert told["kind"] == "shuffled"
    assert told["spent"]["delta"] == 1e-6
    assert told["spent"]["epsilon"] == pytest.approx(manifest(folder)["promise"]["shuffled"]["epsilon"], abs=1e-11)
    assert told["spent"]["epsilon"] >= manifest(folder)["promise"]["shuffled"]["epsilon"]
    assert run(folder, "again") == 0
    (folder / "job.yaml").write_text(MIXED.replace("15000", "14000"))
    assert run(folder, "fewer") == 3
    assert "behind the shuffler" in capsys.readouterr().err
    assert main(["ledger", "show", str(folder / "job.yaml")]) == 0
    assert "mixed · kind shuffled · neighbours: one person's report changed" in capsys.readouterr().out


def test_what_a_shuffler_hands_on_holds_nothing_but_the_reports_of_the_job(folder, capsys):
    pq.write_table(ROWS.select(["value", "age"]), folder / "batch1.parquet")
    (folder / "job.yaml").write_text(MIXED)
    assert run(folder) == 2
    assert "has column 'age' beside the reports of this job" in capsys.readouterr().err
    assert not (folder / DEFAULT_NAME).exists()


def test_columns_of_csv_that_are_not_declared_are_columns_too(folder, capsys):
    (folder / "batch1.csv").write_text("value,ann\n1,secret\n")
    (folder / "job.yaml").write_text(
        MIXED.replace('parquet: "batch*.parquet"', "csv: batch1.csv, types: {value: int64}")
    )
    assert run(folder) == 2
    told = capsys.readouterr().err
    assert "has columns without a type beside the reports of this job" in told
    assert "ann" not in told
    assert not (folder / DEFAULT_NAME).exists()
    (folder / "batch1.csv").write_text("value\n1\n")
    assert run(folder) == 0


def test_behind_a_shuffler_every_answer_counts_against_the_limit(folder, capsys):
    pq.write_table(ROWS.select(["value", "age"]), folder / "batch1.parquet")
    stages = "{a: {kind: collected, question: visited.json, answers: 2}, "
    stages += "b: {kind: collected, question: visited.json, columns: age, answers: 2}}"
    (folder / "job.yaml").write_text(MIXED.replace("{visited: {kind: collected, question: visited.json}}", stages))
    assert call(folder, "init", "--answers", "1") == 0
    assert run(folder) == 3
    assert "2 fresh answers of a person are declared for 'visited'" in capsys.readouterr().err
    assert call(folder, "raise", "--answers", "2") == 0
    assert run(folder) == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("json}", "json, answers: 500001}", "costs a person an epsilon above 1,000,000"),
        ("delta: 1.0e-6", "delta: 0.5", "deltas add up to 1 or more"),
    ],
)
def test_answers_that_promise_nothing_together_are_refused_before_a_ledger_is_made(folder, capsys, old, new, message):
    job = JOB if old in JOB and "epsilon" in message else MIXED.replace("json}", "json, answers: 2}")
    (folder / "job.yaml").write_text(job.replace(old, new))
    for command in (["plan"], ["run", "--output", str(folder / "out")]):
        assert main([command[0], str(folder / "job.yaml"), *command[1:]]) == 2
        assert message in capsys.readouterr().err
    assert not (folder / DEFAULT_NAME).exists()


def test_files_that_come_later_belong_to_the_account_of_a_job_that_ran_in_its_folder(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["run", "job.yaml", "--output", "out"]) == 0
    pq.write_table(ROWS.slice(0, 6), folder / "r2.parquet")
    (folder / "job.yaml").write_text(JOB.replace("visits", "fresh").replace("r*.parquet", "r2.parquet"))
    assert main(["run", "job.yaml", "--output", "other"]) == 2
    assert "belongs to the account 'visits'" in capsys.readouterr().err
    assert list(accounts_of(ledger(folder).state)["visits"].sources) == [f"{folder.resolve()}/r*.parquet"]


def test_a_page_of_the_ledger_cuts_no_sentence(folder, capsys):
    (folder / "job.yaml").write_text(MIXED)
    assert run(folder) == 0
    assert main(["ledger", "show", str(folder / "job.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "of what the shuffler hands on; never added to what tables cost\n" in shown
    assert "…" not in shown


def test_a_job_of_tables_never_names_an_account_of_answers_nor_the_other_way_round(folder, capsys):
    assert run(folder) == 0
    (folder / "tables.yaml").write_text(TABLES)
    assert run(folder, "tables", job="tables.yaml") == 0
    before = (folder / DEFAULT_NAME).read_bytes()
    capsys.readouterr()
    (folder / "tables.yaml").write_text(TABLES.replace("dataset: shop", "dataset: visits"))
    (folder / "job.yaml").write_text(JOB.replace("dataset: visits", "dataset: shop"))
    named = ["--ledger", str(folder / DEFAULT_NAME)]
    for job, options, words in [
        ("tables.yaml", [], "is an account of kind local"),
        ("tables.yaml", named, "is an account of kind local"),
        ("job.yaml", [], "is an account of tables"),
        ("job.yaml", named, "is an account of tables"),
    ]:
        assert run(folder, "x", *options, job=job) == 2
        assert words in capsys.readouterr().err
        assert not (folder / "x").exists()
    for words in ("raise", "init"):
        assert call(folder, words, "--epsilon", "9", job="tables.yaml") == 2
        assert call(folder, words, "--epsilon", "9") == 2
    assert (folder / DEFAULT_NAME).read_bytes() == before


def test_a_job_of_tables_never_reads_files_of_reports(folder, capsys):
    assert run(folder) == 0
    (folder / "tables.yaml").write_text(TABLES.replace("t*", "r*"))
    assert run(folder, "x", job="tables.yaml") == 2
    assert "its rows are reports of devices" in capsys.readouterr().err
    assert list(ledger(folder).state.accounts) == []


def test_a_shuffled_job_never_names_an_account_of_devices_alone(folder, capsys):
    assert run(folder) == 0
    (folder / "mixed.yaml").write_text(MIXED.replace("dataset: mixed", "dataset: visits"))
    assert run(folder, "x", job="mixed.yaml") == 2
    assert "this job needs one of kind shuffled" in capsys.readouterr().err
    assert not (folder / "x").exists()


def test_a_ledger_that_was_named_must_have_the_account(folder, capsys):
    named = ["--ledger", str(folder / "team.sqlite")]
    assert run(folder, "out", *named) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["ledger", "init", *named]) == 0
    assert run(folder, "out", *named) == 2
    assert "has no account of answers" in capsys.readouterr().err
    assert call(folder, "init", "--questions", "4", "--epsilon", "5", "--question-epsilon", "2.5", *named) == 0
    assert "questions: 4, answers to each: 1, of local epsilon at most 2.5" in capsys.readouterr().out
    assert run(folder, "out", *named) == 0


def test_an_account_is_opened_from_options_alone(folder, capsys):
    options = ["--ledger", str(folder / "team.sqlite"), "--kind", "local", "--dataset", "visits", "--epsilon", "4"]
    assert main(["ledger", "init", *options]) == 2
    assert "--questions: is required" in capsys.readouterr().err
    assert main(["ledger", "init", *options, "--questions", "2", "--source", str(folder / "r*.parquet")]) == 0
    assert run(folder, "out", "--ledger", str(folder / "team.sqlite")) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--unit", "phone"], "--unit: is for accounts of tables"),
        (["--rule", "filter"], "--rule: is for accounts of tables"),
        (["--window-days", "7"], "--window-days: is for accounts of tables"),
        (["--kind", "shuffled"], "--kind: must be local for this job"),
        (["--delta", "1e-6"], "--delta: is 0 for accounts of kind local"),
        (["--questions", "0"], "--questions: must be a whole number"),
        (["--question-epsilon", "nan"], "--question-epsilon: must be"),
        (["--dataset", "a\x1b"], "--dataset: must not contain"),
    ],
)
def test_options_that_make_no_account_of_answers_are_refused_before_a_ledger_is_made(folder, capsys, options, message):
    assert call(folder, "init", *options) == 2
    assert message in capsys.readouterr().err
    assert not (folder / DEFAULT_NAME).exists()


@pytest.mark.parametrize("option", ["--questions", "--answers", "--question-epsilon"])
def test_options_of_answers_are_refused_for_tables(folder, capsys, option):
    (folder / "tables.yaml").write_text(TABLES)
    assert call(folder, "init", option, "3", job="tables.yaml") == 2
    assert f"{option}: is for accounts of answers" in capsys.readouterr().err
    assert call(folder, "init", "--kind", "local", job="tables.yaml") == 2
    assert not (folder / DEFAULT_NAME).exists()


def test_manifests_are_witnesses_of_the_ledger(folder, capsys):
    assert run(folder, "out", "--run-id", "a") == 0
    old = (folder / DEFAULT_NAME).read_bytes()
    assert run(folder, "later", "--run-id", "b") == 0
    against = ["--against", str(folder / "out"), str(folder / "later")]
    assert call(folder, "verify", *against) == 0
    assert "matches 2 of 2 manifests" in capsys.readouterr().out
    (folder / DEFAULT_NAME).write_bytes(old)
    assert call(folder, "verify") == 1, "the anchor has seen more"
    shutil.rmtree(folder / "state")
    assert call(folder, "verify", *against) == 1
    assert "has seen event" in capsys.readouterr().err


def test_pages_of_releases_are_not_made_of_estimates(folder, capsys):
    assert run(folder) == 0
    assert main(["report", str(folder / "out"), "--output", str(folder / "page.html")]) == 2
    assert "holds estimates from reports of devices" in capsys.readouterr().err


def test_parameters_name_the_files_of_a_run(folder, capsys):
    (folder / "job.yaml").write_text(
        JOB.replace("r*", "r{week}").replace("stages", "params: {week: {type: int}}\nstages", 1)
    )
    assert main(["plan", str(folder / "job.yaml")]) == 0
    assert run(folder) == 2
    assert "--param week: is missing" in capsys.readouterr().err
    assert run(folder, "out", "--param=week=1") == 0
    assert manifest(folder)["params"] == {"week": "1"}
    pq.write_table(ROWS.slice(0, 6), folder / "r2.parquet")
    assert run(folder, "two", "--param=week=2") == 0
    assert pq.read_table(folder / "two" / "visited.parquet").column("reports")[0].as_py() == 6
    assert len(accounts_of(ledger(folder).state)["visits"].asked) == 1
    (folder / "job.yaml").write_text(JOB.replace("r*", "r{wek}"))
    assert run(folder, "x") == 2


def test_what_reports_say_and_how_many_there_are_changes_no_word_and_no_code(folder, capsys):
    assert run(folder, "out", "--run-id", "a") == 0
    capsys.readouterr()
    said = {}
    for name, rows in {
        "all": ROWS,
        "none": ROWS.slice(0, 0),
        "foreign": ROWS.set_column(1, "value", pa.array([99] * 60)),
    }.items():
        pq.write_table(rows, folder / "r1.parquet")
        code = run(folder, name, "--run-id", name)
        told = capsys.readouterr()
        said[name] = (code, told.out.replace(f"/{name},", "/OUT,"), told.err)
    assert said["all"] == said["none"] == said["foreign"]


def test_the_schema_of_editors_knows_such_jobs(folder, capsys):
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["then"] == {"$ref": "#/$defs/CollectedJob"}
    assert "shuffler" in schema["$defs"]["CollectedJob"]["properties"]
    assert "answers" in schema["$defs"]["CollectedStageModel"]["properties"]
    jsonschema = pytest.importorskip("jsonschema")
    yaml = pytest.importorskip("yaml")
    for text in (JOB, WITH_AGE, MIXED, TABLES):
        jsonschema.validate(yaml.safe_load(text), schema)
    for wrong in (JOB.replace("privacy_unit", "privacy_units"), TABLES.replace("kind: aggregate", "kind: collected")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(wrong), schema)
