"""What plans say of stages in JSON: what is declared, and nothing of what is not, so that plans keep their digests.

In: queries, models, plans. Out: JSON values. Holds: every comparison is exact. Not covered: the digests of generated jobs
(tests/golden).
"""

import json
import math
from typing import Any

import pytest

import dp_pipelines as dp
from dp_pipelines.planning import describe
from dp_pipelines.query.train_model import EvaluationGroups, TrainModel

NEAR = dp.Number(column="x", min_value=0, max_value=1, edges=[0.5])
FAR = dp.Number(column="z", min_value=0, max_value=9, edges=[3.0, 6.0])


def task(**changes: Any) -> TrainModel:
    """A model of two features."""
    fields: dict[str, Any] = {
        "privacy_unit": "u",
        "label": dp.BinaryLabel(column="y"),
        "features": {"x": NEAR, "z": FAR},
        "steps": dp.Steps(steps=5),
    }
    return TrainModel(**{**fields, **changes})


def query(**changes: Any) -> dp.Query:
    fields: dict[str, Any] = {
        "privacy_unit": "u",
        "partition_by": "k",
        "bounds": dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3),
        "metrics": {"rows": dp.Count()},
        "partitions": dp.PublicPartitions(keys=[("a",), ("b",)]),
    }
    return dp.Query(**{**fields, **changes})


def at(described: dict[str, Any], *path: str) -> Any:
    """What is there; `nothing` where a key is missing."""
    for key in path:
        if key not in described:
            return "nothing"
        described = described[key]
    return described


CLASSES: dict[str, Any] = {"label": dp.ClassLabel(column="y", classes=[0, 1])}
DECLARED: dict[str, tuple[dict[str, Any], tuple[str, ...], Any]] = {
    "weighting": ({"weighting": "units", "max_examples_per_unit": 3}, ("weighting",), "units"),
    "groups": (
        {"evaluation_by": EvaluationGroups(column="area", groups=["n"])},
        ("evaluation_by", "column"),
        "area",
    ),
    "pairs": ({"pairs": [("z", "x")]}, ("pairs",), [["x", "z"]]),
    "l2": ({"steps": dp.Steps(steps=5, l2=0.25)}, ("steps", "l2"), "float:0.25"),
    "class weights": (
        {**CLASSES, "steps": dp.Steps(steps=5, class_weights=[1.0, 3.0])},
        ("steps", "class_weights"),
        ["float:1.0", "float:3.0"],
    ),
    "candidates": (
        {"steps": dp.Steps(steps=5, candidates=[dp.FitCandidate(momentum=0.5), dp.FitCandidate(steps=7)])},
        ("steps", "candidates"),
        [{"momentum": "float:0.5"}, {"steps": "int:7"}],
    ),
}


@pytest.mark.parametrize(("changes", "path", "said"), DECLARED.values(), ids=DECLARED)
def test_a_model_says_what_is_declared_and_a_plain_one_has_no_such_key(
    changes: dict[str, Any], path: tuple[str, ...], said: Any
) -> None:
    assert at(describe.asked_to_json(task(**changes)), *path) == said
    plain = describe.asked_to_json(task())
    assert at(plain, *path) == "nothing"
    more = describe.asked_to_json(task(**changes))
    for other, (_, key, _) in DECLARED.items():
        assert at(more, *key) == at(plain, *key) or key == path, other
    json.dumps(more, allow_nan=False)


def test_values_of_a_model_have_their_types_beside_them_however_deep_they_are() -> None:
    value = {"a": (1, [2.0, (None, "b")]), "c": {"d": True}}
    assert describe._typed(value) == {"a": ["int:1", ["float:2.0", [None, "b"]]], "c": {"d": "bool:True"}}


def test_a_plain_mean_says_nothing_of_shrinking_and_a_shrunk_one_does() -> None:
    for shrink, said in ((False, "nothing"), (True, True)):
        mean = dp.Mean("v", min_value=0, max_value=9, shrink=shrink)
        assert at(describe.query_to_json(query(metrics={"m": mean})), "metrics", "m", "shrink") == said


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        (dp.PublicPartitions(keys=[("a",), ("b",)]), "public"),
        (dp.PrivatePartitions(strategy="laplace", min_users=3), "private"),
    ],
)
def test_a_query_says_where_its_partitions_come_from(partitions: Any, said: str) -> None:
    found = describe.query_to_json(query(partitions=partitions))["partitions"]
    assert set(found) == {said}
    if said == "private":
        assert found["private"] == {"strategy": "laplace", "min_users": 3, "weight": 1.0}


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_shares_of_what_bounds_keep_are_within_five_points_from_the_stated_number_of_units_on(epsilon: float) -> None:
    plan = dp.Plan(epsilon=epsilon, delta=1e-6, stages={"s": query(kept=dp.Kept(share=0.1))})
    (name,) = plan.kept.values()
    found = describe.stage_to_json(plan[name], 0.1, None)["kept"]
    # A share of 0 or 1 of so many units, of two counts with noise: an error bar of Laplace noise of their difference.
    assert math.log(20) / math.sqrt(2) * found["stddev"] * 2**0.5 / found["units_within_5_percent"] == pytest.approx(
        0.05
    )
    (stddev,) = {noise.stddev for noise in plan[name].noises if noise is not None}
    assert (found["stddev"], found["of"]) == (stddev, "s")


def test_the_steps_of_a_model_are_told_with_the_columns_of_its_pairs() -> None:
    paired = task(pairs=[("x", "z")])
    for asked in (task(), paired):
        stage = dp.Plan(epsilon=4.0, delta=1e-6, stages={"m": asked})["m"]
        said = describe.sums_to_json(stage, 0.5, asked)
        assert (said["name"], said["kind"], said["share"], said["steps"]) == ("m", "train", 0.5, 5)
        if asked is paired:
            ((names, columns),) = ((pair["features"], pair["columns"]) for pair in said["pairs"])
            assert (names, columns) == (["x", "z"], paired.columns_of_pairs[0])
        else:
            assert "pairs" not in said
