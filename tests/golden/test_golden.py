"""A net under changes of the house: what is planned, added up and refused stays what it was, whatever moves or is renamed.

In: the golden answers beside this file. Out: a failing test that names the job. Holds: `write.py` writes them, after a change
that was meant. Not covered: the words of messages, noise.
"""

import pathlib

import pytest

from dp_pipelines.jobs.spec import metric_models
from tests.golden import answers, jobs, plan_records, wrong
from tests.helpers.extension_folders import needs

PLANS, RUNS, ASKED, STATISTICS, REFUSALS, RECORDS = map(
    answers.kept,
    (answers.PLANS, answers.RUNS, answers.ASKED, answers.STATISTICS, answers.REFUSALS, answers.RECORDS),
)


def some(names: list[str]) -> list[object]:
    """All; one in sixteen and those of later kinds in each run, the others where there is time."""
    slow = [place % answers.SHARES != 0 and int(name) < jobs.NUMBER for place, name in enumerate(names)]
    return [pytest.param(name, marks=[pytest.mark.slow] * late) for name, late in zip(names, slow, strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("golden")


def test_the_made_up_jobs_have_every_kind_of_metric_strategy_stage_and_bound() -> None:
    stages = [stage for number in range(jobs.ALL) for stage in jobs.job(number)["stages"].values()]
    metrics = [metric for stage in stages for metric in stage.get("metrics", {}).values()]
    known = set(metric_models.MODELS)
    assert {metric["kind"] for metric in metrics} == known == {*jobs.KINDS, *jobs.LATER}
    assert {stage["kind"] for stage in stages} == {"aggregate", "train", "federate", "pate"}
    private = [stage["partitions"]["private"] for stage in stages if "private" in stage.get("partitions", {})]
    assert {one["strategy"] for one in private} == set(jobs.STRATEGIES)
    assert all(bounds in [stage.get("bounds") for stage in stages] for bounds in jobs.BOUNDS)


def test_most_of_the_made_up_jobs_are_planned_and_a_hundred_inputs_are_refused() -> None:
    assert jobs.NUMBER == 200
    assert list(PLANS) == list(RUNS) == [str(number) for number in range(jobs.ALL)]
    assert sum(not str(answer).startswith("exit") for answer in PLANS.values()) >= 125
    assert len(STATISTICS) >= 60
    assert len({str(answer) for answer in STATISTICS.values()}) > 0.9 * len(STATISTICS)
    refused = [answer for answer in REFUSALS.values() if not str(answer).startswith("exit 0")]
    assert len(refused) >= 100


@pytest.mark.parametrize("number", some(list(RUNS)))
def test_a_run_is_known_again_by_what_its_job_asks_for(folder: pathlib.Path, number: str) -> None:
    assert answers.run(folder, int(number)) == RUNS[number]


def test_a_run_of_a_session_or_of_beam_yaml_is_known_again_by_what_is_asked(folder: pathlib.Path) -> None:
    assert sum(len(answer) for answer in ASKED.values()) > 150
    assert {number: answers.asked(folder, int(number)) for number in ASKED} == ASKED


@pytest.mark.parametrize("number", some(list(PLANS)))
def test_a_plan_and_all_its_records_are_what_they_were(folder: pathlib.Path, number: str) -> None:
    assert answers.plan(folder, int(number)) == PLANS[number]


def test_the_command_prints_such_a_plan(folder: pathlib.Path) -> None:
    said = answers.call("plan", answers.write(folder, 0), "--json")
    assert answers.digest_of_plan(said.out) == PLANS["0"]


def test_every_job_that_is_planned_has_records() -> None:
    assert list(RECORDS) == [number for number, answer in PLANS.items() if not str(answer).startswith("exit")]


@pytest.mark.parametrize("number", list(RECORDS))
def test_the_records_of_a_plan_follow_from_its_choices_as_before(folder: pathlib.Path, number: str) -> None:
    golden = RECORDS[number]
    assert isinstance(golden, dict)
    plan = plan_records.planned(answers.request_of(folder, int(number)), golden)
    found = list(plan_records.differences(golden, plan_records.content(plan)))
    assert not found, "\n".join([f"job {number}:", *found])


@pytest.mark.parametrize("number", some(list(RECORDS)))
def test_the_search_for_the_noise_makes_the_choices_that_it_made(folder: pathlib.Path, number: str) -> None:
    golden = RECORDS[number]
    assert isinstance(golden, dict)
    plan = plan_records.planned(answers.request_of(folder, int(number)))
    found = list(plan_records.differences(golden, plan_records.content(plan)))
    assert not found, "\n".join([f"job {number}:", *found])


@pytest.mark.parametrize("number", some(list(STATISTICS)))
def test_the_integers_before_the_noise_are_what_they_were(folder: pathlib.Path, number: str) -> None:
    assert answers.statistics(folder, int(number)) == STATISTICS[number]


OF_LAKE = "'iceberg'", "'bigquery'"
"""Sources of the extension lake, as names of wrong inputs say them."""


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(given, id=given.name, marks=[needs("lake")] if any(word in given.name for word in OF_LAKE) else [])
        for given in wrong.inputs()
    ],
)
def test_a_wrong_input_is_refused_where_it_was(folder: pathlib.Path, given: wrong.Wrong) -> None:
    assert answers.refusal(folder, given) == REFUSALS[given.name]
