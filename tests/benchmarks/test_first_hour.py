"""The benchmark of the first hour types the README's commands, counts what they say, and tells commands that end otherwise."""

import pyarrow as pa
import pytest

from dp_pipelines.jobs.spec import job_file
from tests.helpers.source import ROOT


def test_the_commands_of_the_readme_are_typed_as_they_stand(load) -> None:
    commands = load("first_hour").readme_commands((ROOT / "README.md").read_text())
    assert [command.split()[1] for command in commands] == ["init", "plan", "ledger", "run"]
    assert not any("#" in command for command in commands)


def test_warnings_are_lines_that_begin_so(load) -> None:
    assert load("first_hour").count_warnings("note: a\nb\n  warning: c", "no note: here") == 2


def test_a_task_is_measured_and_a_command_that_ends_otherwise_is_named(load, tmp_path) -> None:
    first_hour = load("first_hour")
    steps = [
        first_hour.Step(
            command="echo note: edited; cat job.yaml data/part-1.parquet > out", edit=("job.yaml", "10", "20")
        ),
        first_hour.Step(command="exit 3", code=3),
        first_hour.Step(command="exit 1"),
    ]
    task = first_hour.Task(name="a", table="a", files={"job.yaml": "most: 10"}, steps=steps)
    found = first_hour.measure(task, pa.table({"a": [1]}), tmp_path)
    assert (tmp_path / "out").read_bytes().startswith(b"most: 20PAR1")
    assert (found.commands, found.warnings, found.refused, found.unexpected) == (3, 1, 1, ("exit 1: 1, not 0",))
    assert found.minutes > 0


def test_purchases_and_people_are_tables_with_a_unit(load) -> None:
    first_hour = load("first_hour")
    bought = first_hour.purchases(b" customer_id date cds dollars\n 00001 19970101  1   11.77\n")
    assert bought.to_pylist()[0] | {"day": None} == {"customer_id": 1, "day": None, "discs": 1, "price": 11.77}
    assert first_hour.people(b"inc,age\n13.1,40\n61.2,35\n").column("person").to_pylist() == [0, 1]


def test_six_tasks_are_typed_on_four_tables_beside_the_commands_of_the_readme(load, tmp_path) -> None:
    first_hour = load("first_hour")
    readme, *others = first_hour.tasks((ROOT / "README.md").read_text())
    assert readme.name.startswith("README")
    assert len(others) == 6
    assert len({task.name for task in others}) == 6
    assert len({task.table for task in (readme, *others)}) == 4
    for task in (readme, *others):
        for name, text in task.files.items():
            assert name.endswith(".yaml")
            (tmp_path / name).write_text(text)
            assert job_file.load(str(tmp_path / name)).job.stages


def test_a_step_edits_all_that_it_says_and_refuses_an_edit_of_nothing(load, tmp_path) -> None:
    first_hour = load("first_hour")
    step = first_hour.Step(command="cp a b", edit=("a", "1", "2"), also=(("a", "x", "y"), ("a", "y", "z")))
    task = first_hour.Task(name="a", table="a", files={"a": "1 x"}, steps=[step])
    assert first_hour.measure(task, pa.table({"a": [1]}), tmp_path).commands == 1
    assert (tmp_path / "b").read_text() == "2 z"
    wrong = first_hour.Task(
        name="a", table="a", files={"a": "1"}, steps=[first_hour.Step(command="", edit=("a", "3", "4"))]
    )
    (tmp_path / "new").mkdir()
    with pytest.raises(ValueError, match="has no '3'"):
        first_hour.measure(wrong, pa.table({"a": [1]}), tmp_path / "new")
