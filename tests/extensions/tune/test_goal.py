"""Goals in words, measures from sums, and which configuration is recommended."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.tune import goal, tally
from dp_pipelines.extensions.tune.configuration import Configuration, Estimate
from dp_pipelines.extensions.tune.variables import ROWS

METRICS = ["orders", "revenue"]


def results(of: dict[str, list[list[float]]]) -> goal.Results:
    """Results with given sums by name, configuration and metric; other sums are 1."""
    count = len(next(iter(of.values())))
    rows: list[dict[str, Any]] = []
    for number in range(count):
        for metric in range(2):
            named = {name: of[name][number][metric] if name in of else 1.0 for name in tally.SUMS}
            rows.append({"configuration": number, "metric": metric, "size": 1, **named})
    table = pa.Table.from_pylist(rows, schema=tally.nothing().schema)
    estimate = Estimate(name="", total=ROWS, raw=ROWS, total_stddev=1.0)
    estimates = tuple(dataclasses.replace(estimate, name=name) for name in METRICS)
    one = Configuration(number=0, max_partitions=1, max_rows=1, estimates=estimates, selects=None)
    return goal.Results(table, [dataclasses.replace(one, number=number) for number in range(count)])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "minimize loss"),
        (["minimise relative_error( orders )"], "minimize relative_error(orders)"),
        (["error(revenue)<=1e3", "lost <= 0.5"], "error(revenue) <= 1000, lost <= 0.5, minimize loss"),
    ],
)
def test_a_goal_reads_as_it_is_written(given: list[str], words: str) -> None:
    assert goal.read(given, METRICS).words == words


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("loss", "is not a goal"),
        ("minimize loss <= 3", "is not a goal"),
        ("minimize wealth", "does not name a measure"),
        ("relative_error(clicks) <= 1", "does not name a metric"),
        ("lost(orders) <= 1", "does not name a metric"),
        ("loss <= -1", "must have a limit above 0"),
        ("loss <= nan", "must have a limit above 0"),
        ("loss <= much", "must have a limit above 0"),
        ("minimize error", "different units"),
        ("", "is not a goal"),
    ],
)
def test_what_is_no_goal_is_refused(given: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        goal.read([given], METRICS)


def test_two_things_cannot_be_minimized() -> None:
    with pytest.raises(RequestError, match="two things"):
        goal.read(["minimize loss", "minimize lost"], METRICS)


def test_without_limits_the_jobs_own_epsilon_decides_among_whom() -> None:
    of = results({"row_loss": [[0.5, 0.5], [0.3, 0.3], [0.1, 0.1]]})
    assert goal.recommend(of, goal.read([], METRICS), [1.0, 1.0, 2.0], 1.0).number == 1
    assert goal.recommend(of, goal.read([], METRICS), [1.0, 1.0, 2.0], 2.0).number == 2
    assert goal.recommend(of, goal.read([], METRICS), [1.0, 1.0, 2.0], 7.0).number == 1


def test_with_limits_the_least_epsilon_that_keeps_them_wins() -> None:
    of = results({"relative": [[0.5, 0.5], [0.09, 0.3], [0.05, 0.1]], "row_loss": [[0.5, 0.5], [0.3, 0.3], [0.1, 0.1]]})
    wanted = goal.read(["relative_error(orders) <= 0.1"], METRICS)
    assert goal.recommend(of, wanted, [1.0, 2.0, 3.0], 1.0) == goal.Recommendation(number=1, reached=True)
    harder = goal.read(["relative_error(orders) <= 0.01"], METRICS)
    assert goal.recommend(of, harder, [1.0, 2.0, 3.0], 1.0) == goal.Recommendation(number=2, reached=False)


def test_what_has_no_answer_is_never_recommended() -> None:
    nothing = float("nan")
    of = results({"row_loss": [[nothing, 0.1], [0.9, 0.9]]})
    assert goal.recommend(of, goal.read([], METRICS), [1.0, 1.0], 1.0).number == 1
    empty = results({"compared_rows": [[0.0, 0.0], [0.0, 0.0]], "row_loss": [[0.0, 0.0], [0.0, 0.0]]})
    assert goal.recommend(empty, goal.read([], METRICS), [1.0, 1.0], 1.0).number == 0


def test_a_metric_of_which_nothing_is_told_leaves_the_choice_to_the_others() -> None:
    """A column of nulls alone, say: without this every configuration would have no answer, and the first would win."""
    of = results({"compared_rows": [[0.0, 1.0]] * 2, "row_loss": [[0.0, 0.5], [0.0, 0.2]]})
    assert goal.recommend(of, goal.read([], METRICS), [1.0, 1.0], 1.0).number == 1
    wanted = goal.read(["loss <= 0.3"], METRICS)
    assert goal.recommend(of, wanted, [1.0, 1.0], 1.0) == goal.Recommendation(number=1, reached=True)


def test_measures_are_those_of_their_words() -> None:
    of = results(
        {
            "square": [[50.0, 0.0]], "told": [[2.0, 1.0]], "kept": [[3.0, 3.0]], "partitions": [[4.0, 4.0]],
            "row_loss": [[6.0, 2.0]], "compared_rows": [[8.0, 8.0]], "clipping_square": [[18.0, 0.0]],
        }
    )  # fmt: skip
    assert of.of_metrics("error")[0].tolist() == [5.0, 0.0]
    assert of.measure(goal.Wish(measure="lost"))[0] == 0.25
    assert of.measure(goal.Wish(measure="loss"))[0] == 0.5
    assert of.parts(0, 0, relative=False)["clipping"] == 3.0
    assert set(of.parts(0, 0, relative=False)) == set(of.parts(0, 0, relative=True)) == set(tally.PARTS)


def test_sums_of_disjoint_partitions_add_up() -> None:
    one = results({"square": [[1.0, 2.0]]}).sums
    both = tally.merged([one, one, tally.nothing()])
    assert both.num_rows == 2
    assert both["square"].to_pylist() == [2.0, 4.0]
    assert np.all(both["partitions"].to_numpy() == 2.0)
