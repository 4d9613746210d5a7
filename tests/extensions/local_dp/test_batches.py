"""Batches of a shuffler that a person may be in: as many as the most answers to one question fill, and all are charged.

In: jobs with several questions and columns, numbers of answers. Out: plans and charges against a count by hand. Holds: a person
who is in five batches is charged for five. Not covered: what one batch costs (`tests/collected/test_shuffling.py`).
"""

import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dp_pipelines.collect.domain import Choices, NumberBins
from dp_pipelines.collect.question import Question
from dp_pipelines.collected.shuffling import amplified
from dp_pipelines.jobs.cli.main import main

REPORTS, DELTA = 15_000, 1e-6
VISITED = Question("visited", Choices(("bakery", "dairy", "fish")), epsilon="0.5")
AGE = Question("age", NumberBins((0, 18, 65, 120)), epsilon="0.25")
JOB = f"""
dataset: mixed
source: {{parquet: "batch*.parquet"}}
shuffler: {{honest_reports: {REPORTS}, delta: {DELTA}}}
stages:
"""


def job(folder: pathlib.Path, answers: dict[str, int], columns: dict[str, int]) -> str:
    """Write a job in which a person answers each question so often, in so many columns of a row."""
    lines, table = [], {}
    for question in (VISITED, AGE):
        (folder / f"{question.name}.json").write_text(question.to_json())
        for number in range(columns[question.name]):
            column = f"{question.name}_{number}"
            stage = (
                f"kind: collected, question: {question.name}.json, columns: {column}, answers: {answers[question.name]}"
            )
            lines.append(f"  {column}: {{{stage}}}")
            table[column] = [0, 1, 2] * 20
    pq.write_table(pa.table(table), folder / "batch1.parquet")
    (folder / "job.yaml").write_text(JOB + "\n".join(lines) + "\n")
    return str(folder / "job.yaml")


def rows_filled(answers: dict[str, int], columns: dict[str, int]) -> int:
    """Put a person's answers into rows, one after the other, and return the number of rows."""
    left, rows = dict(answers), 0
    while any(number > 0 for number in left.values()):
        left = {name: number - columns[name] for name, number in left.items()}
        rows += 1
    return rows


CASES = [
    ({"visited": 5, "age": 1}, {"visited": 1, "age": 1}, 5),
    ({"visited": 1, "age": 5}, {"visited": 1, "age": 1}, 5),
    ({"visited": 4, "age": 3}, {"visited": 2, "age": 1}, 3),
    ({"visited": 5, "age": 2}, {"visited": 2, "age": 1}, 3),
    ({"visited": 2, "age": 2}, {"visited": 2, "age": 2}, 1),
]


@pytest.mark.parametrize(("answers", "columns", "batches"), CASES)
def test_a_person_is_charged_for_every_batch_that_their_answers_fill(
    answers: dict[str, int],
    columns: dict[str, int],
    batches: int,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = job(tmp_path, answers, columns)
    assert rows_filled(answers, columns) == batches
    row = sum(question.epsilon * columns[question.name] for question in (VISITED, AGE))
    of_one = amplified(row, reports=REPORTS, delta=DELTA)  # type: ignore[arg-type]
    assert main(["plan", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["promise"]["shuffled"]["batches"] == batches
    assert main(["run", path, "--output", str(tmp_path / "out")]) == 0
    spent = json.loads((tmp_path / "out" / "manifest.json").read_text())["ledger"]["spent"]
    assert spent["epsilon"] == pytest.approx(batches * of_one, rel=1e-9)
    assert spent["delta"] == pytest.approx(batches * DELTA)
