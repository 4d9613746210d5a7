"""How well candidates predict held-out units, as a choice compares it: what one unit adds, and what the best settings score.

In: made-up predictions and examples. Out: scores. Holds: no noise, but where a choice is drawn. Not covered: the law of choices
(`tests/selection/test_exponential.py`), and what is kept of it (`tests/training/test_fit.py`).
"""

import dataclasses
import functools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import BinaryLabel, Number, NumberLabel, Plan, Steps, TrainModel
from dp_pipelines.kernels import accumulate
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.planning.stage_kinds import BestKind
from dp_pipelines.query.fit_candidates import CANDIDATE, SCORE
from dp_pipelines.query.train_model import ClassLabel, FitCandidate, Label
from dp_pipelines.release.draw import draw_release
from dp_pipelines.training import stage_on_disk
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.candidate_choice import FULL, choose, scores_of_examples, scores_of_units
from dp_pipelines.training.description import Statement
from dp_pipelines.training.examples.groups import AllUnits
from dp_pipelines.training.features.encoder import Encoder
from tests.helpers.examples import examples

LABELS: dict[str, Label] = {
    "binary": BinaryLabel(column="y"),
    "classes": ClassLabel(column="y", classes=("a", "b", "c")),
    "number": NumberLabel(column="y", min_value=-3, max_value=9),
    "tiny": NumberLabel(column="y", min_value=0, max_value=5e-324),
    "huge": NumberLabel(column="y", min_value=-9e299, max_value=9e299),
}
STEPS = Steps(steps=2, candidates=[FitCandidate(learning_rate=rate) for rate in (1.0, 2.0, 3.0)])


def task(label: Label = LABELS["binary"]) -> TrainModel:
    """A model of one feature, with three candidates."""
    features = {"x": Number(column="x", min_value=0, max_value=1, edges=[0.5])}
    return TrainModel(privacy_unit="who", label=label, features=features, steps=STEPS, whiten=False, held_out=0.5)


@functools.cache
def planned() -> StagePlan:
    """The stage that chooses."""
    return Plan(epsilon=1.0, delta=1e-6, stages={"model": task()})["model.choice"]


def models(asked: TrainModel, weights: np.ndarray) -> list[Artefact]:
    """A model for each row of weights."""
    statement = Statement(unit="who", epsilon=1.0, delta=1e-6, plan="")
    plain = dataclasses.replace(asked, steps=Steps(steps=2))
    return [
        Artefact(task=plain, encoder=Encoder.of(plain), parameters=each, whitening=None, privacy=statement)
        for each in weights
    ]


odd = st.floats(allow_nan=True, allow_infinity=True)


@given(data=st.data(), name=st.sampled_from(sorted(LABELS)))
def test_no_example_scores_below_zero_or_above_one_whatever_is_predicted(data: st.DataObject, name: str) -> None:
    asked, rows = task(LABELS[name]), data.draw(st.integers(0, 5))
    columns = asked.label.outputs
    predicted = np.array(data.draw(st.lists(odd, min_size=rows * columns, max_size=rows * columns)))
    labels = np.array(data.draw(st.lists(odd, min_size=rows, max_size=rows)), np.float64)
    found = scores_of_examples(asked, predicted.reshape((rows, columns) if columns > 1 else rows), labels)
    assert found.dtype == np.int64
    assert found.shape == (rows,)
    assert ((found >= 0) & (found <= FULL)).all()


@given(p=st.floats(0.01, 0.99), said=st.floats(0.01, 0.99))
def test_the_true_probability_scores_best_on_average(p: float, said: float) -> None:
    def mean(of: float) -> float:
        logit = np.log(of / (1 - of))
        false, true = scores_of_examples(task(), np.array([logit, logit]), np.array([0.0, 1.0]))
        return float(p * true + (1 - p) * false)

    assert mean(p) >= mean(said) - 1


@given(p=st.floats(0.01, 0.99), said=st.floats(0.01, 0.99), weight=st.floats(0.01, 1.0))
def test_with_class_weights_the_probability_that_a_model_learns_scores_best(
    p: float, said: float, weight: float
) -> None:
    asked = dataclasses.replace(task(), steps=Steps(class_weights=[weight * 3, 3]))

    def mean(of: float) -> float:
        logit = np.log(of / (1 - of))
        false, true = scores_of_examples(asked, np.array([logit, logit]), np.array([0.0, 1.0]))
        return float(p * true + (1 - p) * false)

    assert mean(p / (p + (1 - p) * weight)) >= mean(said) - 1


def test_classes_count_by_their_weights_in_a_choice() -> None:
    asked = dataclasses.replace(task(LABELS["classes"]), steps=Steps(class_weights=[2, 1, 0.5]))
    wrong = np.array([[0.0, 800, 0], [800, 0, 0], [800, 0, 0]])
    assert (scores_of_examples(asked, wrong, np.array([0.0, 1, 2])) / FULL).tolist() == [0.0, 0.5, 0.75]


def test_classes_score_as_squared_distances_and_numbers_as_distances() -> None:
    of_classes = scores_of_examples(task(LABELS["classes"]), np.array([[800.0, 0, 0], [0, 0, 0]]), np.array([1.0, 2.0]))
    assert (of_classes / FULL).tolist() == pytest.approx([0.0, 1 - (4 / 9 + 2 / 9) / 2], abs=2 / FULL)
    of_numbers = scores_of_examples(task(LABELS["number"]), np.array([0.0, 99.0]), np.array([3.0, 9.0]))
    assert (of_numbers / FULL).tolist() == pytest.approx([0.75, 1.0], abs=2 / FULL)


def rows(made: np.random.Generator, units: int) -> pa.Table:
    """Up to four examples a unit, in no order; some without a label, some of nobody."""
    who = np.repeat(np.arange(units), made.integers(1, 5, units))
    made.shuffle(who)
    y = made.choice([0.0, 1.0, np.nan], len(who), p=[0.4, 0.4, 0.2])
    known = made.random(len(who)) < 0.95
    return pa.table({"who": pa.array(who, mask=~known), "x": made.random(len(who)), "y": pa.array(y, from_pandas=True)})


@settings(max_examples=examples(25, 200))
@given(seed=st.integers(0, 2**32), units=st.integers(1, 12))
def test_the_scores_of_a_unit_are_the_same_bits_alone_and_among_others(seed: int, units: int) -> None:
    made = np.random.default_rng(seed)
    table, tried = rows(made, units), models(task(), made.normal(size=(3, task().width)))
    together = scores_of_units(tried, table).to_pylist()
    alone = []
    for unit in range(units):
        own = table.filter(pa.array(np.array(table.column("who").to_pylist(), object) == unit))
        alone += scores_of_units(tried, own).to_pylist()
    by = [lambda row: (row["who"], row[CANDIDATE])]
    assert sorted(together, key=by[0]) == sorted(alone, key=by[0])
    assert len({(row["who"], row[CANDIDATE]) for row in together}) == len(together)


@settings(max_examples=examples(25, 200))
@given(seed=st.integers(0, 2**32), units=st.integers(1, 12))
def test_one_unit_moves_all_scores_by_less_than_the_spread_and_in_one_direction(seed: int, units: int) -> None:
    made = np.random.default_rng(seed)
    stage, seen = planned(), list[np.ndarray]()
    table, tried = rows(made, units), models(task(), made.normal(size=(3, task().width), scale=9))

    def noted(of: StagePlan, totals: Totals) -> pa.Table:
        kind = of.kind
        assert isinstance(kind, BestKind)
        seen.append(totals.coarse(of.statistics.index(kind.choice.statistic), shift=0, step=1))
        return draw_release(totals, of)

    for some in (table, table.filter(pa.array([who != 0 for who in table.column("who").to_pylist()]))):
        stage_on_disk.release(stage, [scores_of_units(tried, some)], 7, noted)
    moved = seen[0] - seen[1]
    assert isinstance(stage.kind, BestKind)
    assert moved.min() >= 0
    assert moved.max() <= stage.kind.choice.spread == 2**23


def test_a_unit_with_more_rows_than_it_should_have_is_clipped_all_the_same() -> None:
    seen = list[Any]()

    def noted(of: StagePlan, totals: Totals) -> pa.Table:
        seen.append(totals.coarse(0, shift=0, step=1).tolist())
        return draw_release(totals, of)

    bad = pa.table({"who": [1] * 9, CANDIDATE: [1] * 5 + [2] * 4, SCORE: [1.0] * 5 + [-7.0, 1e300, 1.0, 1.0]})
    stage_on_disk.release(planned(), [bad], 7, noted)
    assert seen == [[2**23, 2**23, 0]]


def test_the_better_candidate_is_chosen_as_often_as_the_record_says_and_not_more_surely() -> None:
    """2,000 choices between one that is right and two that say nothing; false alarms below 1e-9 (six standard deviations)."""
    stage = planned()
    tried = models(task(), np.array([[0.0, 0, 0, 0], [0.0, 30, -30, 0], [0.0, 0, 0, 0]])[:, : task().width])
    x = np.repeat([0.2, 0.8], 20)
    table = pa.table({"who": np.arange(40), "x": x, "y": x < 0.5})
    everybody = AllUnits(tables=lambda: iter([table]), unit=("who",), key=b"key", held_out=0.5)
    held_out = everybody.divided()[1]
    exact = list[Totals]()

    def noted(of: StagePlan, totals: Totals) -> pa.Table:
        exact.append(totals)
        return draw_release(totals, of)

    choose(stage, tried, held_out, 7, noted)
    scores = exact[0].coarse(0, shift=0, step=1)
    assert scores[0] == scores[2]
    times, gap = 2000, (int(scores[1]) - int(scores[0])) / 2**23
    better = sum(draw_release(exact[0], stage).column(CANDIDATE)[0].as_py() == 2 for _ in range(times))
    power = np.exp(stage.choices.selection_epsilon * gap)
    share, faulty = power / (power + 2), power**2 / (power**2 + 2)
    error = np.sqrt(share * (1 - share) / times)
    assert abs(better / times - share) < 6.2 * error
    assert abs(faulty - share) > 12 * error  # twice the epsilon of the record would be found


def test_tables_without_a_row_give_a_choice_all_the_same() -> None:
    empty = rows(np.random.default_rng(1), 3).slice(0, 0)
    everybody = AllUnits(tables=lambda: iter([empty]), unit=("who",), key=b"key", held_out=0.5)
    tried = models(task(), np.zeros((3, task().width)))
    assert choose(planned(), tried, everybody.divided()[1], 7, lambda s, t: draw_release(t, s)) in (1, 2, 3)


def test_the_statistic_that_is_compared_is_the_first_of_the_stage() -> None:
    stage = planned()
    assert isinstance(stage.kind, BestKind)
    assert stage.statistics[0] == stage.kind.choice.statistic
    assert accumulate.no_partials(["p0"], stage.statistics).num_rows == 0
