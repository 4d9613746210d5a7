"""A stage over reports: what its columns may be, what it counts, and the table that it publishes."""

import json

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines.collect.domain import Choices, NumberBins, NumberGrid
from dp_pipelines.collect.question import Question
from dp_pipelines.collected.collected_stage import CollectedStage
from dp_pipelines.collected.cross_table import CrossTable
from dp_pipelines.collected.estimates import estimator_of
from dp_pipelines.collected.support import support_of
from dp_pipelines.errors import RequestError
from tests.collected import devices

YES_NO = Question("asked", Choices(("yes", "no")), epsilon=1)
THREE = Question("visited", Choices(("bakery", "dairy", "fish")), epsilon=2)


def reports(question, indices, seed=1):
    chance = np.random.default_rng(seed)
    coins = devices.coins_of(question.randomizer, len(indices), chance)
    return devices.reports_of(question.randomizer, np.asarray(indices), coins)


def table(question, indices, columns=None, seed=1):
    found = reports(question, indices, seed)
    return pa.table(dict(zip(columns or question.randomizer.fields, found.T, strict=True)))


@pytest.mark.parametrize("mechanism", ["d_ary", "unary", "local_hashing", "hadamard"])
def test_a_stage_publishes_what_the_estimator_says_of_its_reports(mechanism):
    question = Question("visited", Choices(tuple("abcdefgh")), epsilon=2, mechanism=mechanism)
    indices = np.arange(4000) % 3
    stage = CollectedStage(question)
    rows = table(question, indices)
    counts = stage.count(rows.slice(0, 1500)) + stage.count(rows.slice(1500))
    wanted = estimator_of(question).estimates(support_of(question).count(reports(question, indices)))
    found = stage.published(counts)
    assert found.column("answer").to_pylist() == list("abcdefgh")
    assert found.column("people").to_pylist() == wanted.values.tolist()
    assert found.column("deviation").to_pylist() == wanted.deviations.tolist()
    assert found.column("reports").to_pylist() == [4000] * 8
    assert min(found.column("consistent").to_pylist()) >= 0
    assert sum(found.column("consistent").to_pylist()) == pytest.approx(4000)


def test_bins_are_published_with_both_ends_and_means_as_one_row():
    bins = Question("age", NumberBins((0, 18, "65.5", 120)), epsilon=1)
    assert CollectedStage(bins).published(np.array([0, 0, 0, 0])).select([0, 1]).to_pydict() == {
        "answer_from": [0.0, 18.0, 65.5],
        "answer_to": [18.0, 65.5, 120.0],
    }
    mean = Question("hours", NumberGrid(0, 24), epsilon=1)
    stage = CollectedStage(mean, columns="bit")
    assert stage.published(stage.count(pa.table({"bit": [1, 1, 0]}))).column_names == ["mean", "deviation", "reports"]


def test_two_questions_make_a_row_for_each_pair():
    stage = CollectedStage(THREE, "first", YES_NO, "second")
    rows = table(THREE, [0, 1, 2, 2] * 500, ["first"])
    rows = rows.append_column("second", table(YES_NO, [0, 1] * 1000, seed=2).column(0))
    found = stage.published(stage.count(rows))
    assert list(zip(*found.select(["answer", "by"]).to_pydict().values(), strict=True)) == [
        (answer, by) for answer in ("bakery", "dairy", "fish") for by in ("yes", "no")
    ]
    cross = CrossTable(THREE, YES_NO)
    counts = cross.count(reports(THREE, [0, 1, 2, 2] * 500), reports(YES_NO, [0, 1] * 1000, seed=2))
    assert found.column("people").to_pylist() == cross.estimates(counts).values.ravel().tolist()


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [None, None],
        [-1, 99, 2**62],
        pa.array([2**64 - 1, 2**63], pa.uint64()),
        pa.array([7, 9], pa.int8()),
    ],
)
def test_reports_that_no_device_sends_count_nowhere_and_raise_nothing(rows):
    stage = CollectedStage(YES_NO)
    column = rows if isinstance(rows, pa.Array) else pa.array(rows, pa.int64())
    found = stage.published(stage.count(pa.table({"value": column})))
    assert found.column("reports").to_pylist() == [0, 0]
    assert found.column("people").to_pylist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        ({"question": "visited.json"}, "question", "must be a Question"),
        ({"columns": ["a", "b"]}, "columns", "must name 1 columns, not 2"),
        ({"by_columns": "b"}, "by_columns", "is for a second question"),
        ({"by": THREE}, "by_columns", "has column 'value' of the other question"),
        ({"by": THREE, "by_columns": "value"}, "by_columns", "has column 'value' of the other question"),
        ({"by": Question("m", NumberGrid(0, 1), epsilon=1)}, "columns", "have no cross table"),
    ],
)
def test_what_is_no_stage_is_refused(arguments, field, message):
    with pytest.raises(RequestError, match=message) as refused:
        CollectedStage(**{"question": YES_NO, **arguments})
    assert refused.value.field == field


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.bool_(), pa.decimal128(5)])
def test_columns_that_hold_no_whole_numbers_are_refused(kind):
    with pytest.raises(RequestError, match="and reports are whole numbers"):
        CollectedStage(YES_NO).check_types(pa.schema([("value", kind)]))


def test_the_expected_error_of_a_pair_is_that_of_its_estimate_where_shares_are_so():
    cross, people = CrossTable(THREE, THREE), 300_000
    # Each of three values as often as the others, and a pair of the diagonal for a tenth of all.
    stage = CollectedStage(THREE, "a", THREE, "b")
    indices = np.repeat(np.arange(9), (np.array([[3, 3, 4], [4, 3, 3], [3, 4, 3]]) * people // 30).ravel())
    rows = [reports(THREE, indices // 3, 5), reports(THREE, indices % 3, 6)]
    found = cross.estimates(cross.count(*rows)).deviations[0, 0]
    (wanted,) = [row["deviation"] for row in stage.expected(people) if row["share"] == 0.1]
    assert found == pytest.approx(wanted, rel=0.02)


def test_questions_survive_as_documents():
    document = THREE.to_json()
    assert CollectedStage(Question.from_json(document)) == CollectedStage(THREE)
    assert json.loads(document)["fields"] == ["value"]
