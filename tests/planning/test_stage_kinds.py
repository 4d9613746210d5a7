"""The ways to run a stage that planning compares, and the stored choices that fit it.

In: small queries. Out: laws with strategies, refusals. Not covered: which way a plan takes (test_plan, test_choose).
"""

import dataclasses
import itertools
from typing import Any

import pytest

import dp_pipelines as dp
from dp_pipelines import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.planning import stage as stages
from dp_pipelines.planning.stage_choices import Choice
from dp_pipelines.planning.stage_kinds import BestKind, kind_of

PUBLIC = dp.PublicPartitions(keys=[("a", "b"), ("a", "c")])
ALL = ["truncated_geometric", "laplace", "gaussian", "weighted_gaussian"]
BOTH = ["gaussian", "laplace"]


def query(partitions: Any = PUBLIC, **changed: Any) -> dp.Query:
    fields = {
        "privacy_unit": "who",
        "partition_by": ["k", "l"],
        "metrics": {"rows": dp.Count()},
        "bounds": dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=2),
    }
    return dp.Query(**{**fields, "partitions": partitions, **changed})


def open_bounds() -> dp.ContributionBounds:
    return dp.ContributionBounds(
        max_partitions_contributed="auto", partition_candidates=[1, 4], max_contributions_per_partition=2
    )


@pytest.mark.parametrize(
    ("asked", "laws", "strategies"),
    [
        (query(), BOTH, [None]),
        *((query(dp.PrivatePartitions(min_users=least)), BOTH, ALL) for least in (0, 1)),
        (query(dp.PrivatePartitions(min_users=2)), BOTH, ALL[:3]),
        *((query(dp.PrivatePartitions(strategy=one)), BOTH, [one]) for one in ALL),
        (query(dp.PrivatePartitions(), bounds=open_bounds()), BOTH, ALL[1:]),
    ],
)
def test_each_law_is_compared_with_each_strategy_that_may_be(
    asked: dp.Query, laws: list[str], strategies: list[str | None]
) -> None:
    assert list(kind_of(asked).ways(1e-6)) == list(itertools.product(laws, strategies))


def test_a_part_of_the_units_and_a_level_of_a_rollup_have_gaussian_noise_alone() -> None:
    grouped = query(group="training")
    assert list(kind_of(grouped).ways(1e-6)) == [("gaussian", None)]
    rolled = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(rollup=[["k"], ["k", "l"]])})
    for level in rolled["s"].levels:
        assert list(kind_of(level.query).ways(1e-6)) == [("gaussian", None)]
        with pytest.raises(RequestError, match="must be above 0 for a rollup"):
            list(kind_of(level.query).ways(0.0))


def test_without_a_delta_noise_is_laplace_and_nothing_is_selected() -> None:
    assert list(kind_of(query()).ways(0.0)) == [("laplace", None)]
    with pytest.raises(RequestError, match="must be above 0 to select partitions privately"):
        list(kind_of(query(dp.PrivatePartitions())).ways(0.0))


def test_training_has_gaussian_noise_alone_and_needs_a_delta() -> None:
    model = dp.TrainModel(
        privacy_unit="who",
        label=dp.BinaryLabel(column="bought"),
        features={"age": dp.Number(column="age", min_value=0, max_value=120, bins=4)},
    )
    plan = dp.Plan(epsilon=2.0, delta=1e-6, stages={"model": model})
    kinds = [stage.kind for stage in plan.stages.values() if stage.sums]
    assert kinds
    for kind in kinds:
        assert list(kind.ways(1e-6)) == [("gaussian", None)]
        with pytest.raises(RequestError, match="must be above 0 to train a model"):
            list(kind.ways(0.0))


def fits(asked: dp.Query, **changed: Any) -> bool:
    """Whether the choices of a plan for a query still fit it with some of them changed."""
    choices = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": asked}).calibrated.choices["s"]
    released = stages.released_statistics(asked, choices.centred)
    return kind_of(asked).fits(dataclasses.replace(choices, **changed), released)


MORE = FrozenMapping({"rows": Choice(law="gaussian", steps=9), "more": Choice(law="gaussian", steps=9)})


@pytest.mark.parametrize("strategy", [None, *ALL])
def test_choices_of_another_strategy_with_other_noises_or_without_a_chance_to_fail_do_not_fit(
    strategy: Any,
) -> None:
    asked = query() if strategy is None else query(dp.PrivatePartitions(strategy=strategy))
    assert fits(asked)
    for other in [None, *ALL]:
        assert fits(asked, strategy=other) == (other == strategy)
    for noises in ({}, MORE):
        assert not fits(asked, noises=FrozenMapping(noises))
    for delta in (0.0, 1.0, -0.5, 2.0):
        assert fits(asked, selection_delta=delta) == (strategy is None)
    assert fits(asked, selection_epsilon=0.0) == (strategy != "truncated_geometric")


def test_the_law_of_a_compared_number_is_that_of_the_strategy() -> None:
    for strategy, other in (("laplace", "gaussian"), ("gaussian", "laplace"), ("weighted_gaussian", "laplace")):
        asked = query(dp.PrivatePartitions(strategy=strategy))  # type: ignore[arg-type]
        noises = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": asked}).calibrated.choices["s"].noises
        changed = {**noises, "selection": dataclasses.replace(noises["selection"], law=other)}
        assert not fits(asked, noises=FrozenMapping(changed))


def test_the_best_are_chosen_without_noise_and_with_an_epsilon_of_their_own() -> None:
    asked = query(metrics={}, best=dp.Best(k=2, by="users"))
    kind = kind_of(asked)
    assert isinstance(kind, BestKind)
    assert (kind.coins, kind.candidates, kind.coin_weights) == (2, 2, {"coin": 1.0})
    assert list(kind.ways(0.0)) == [("laplace", "permute_and_flip")]
    assert fits(asked)
    for changed in ({"strategy": None}, {"strategy": "exponential"}, {"selection_epsilon": 0.0}, {"noises": MORE}):
        assert not fits(asked, **changed)
