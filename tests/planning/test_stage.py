"""A stage follows from its query and the choices of calibration: choices that no calibration makes are refused.

In: choices as a ledger may have stored them. Out: stages, refusals. Not covered: whole plans (test_plan), and whether records are
true (tests/privacy, the gate).
"""

import dataclasses
import math
from fractions import Fraction
from typing import Any

import pytest

import dp_pipelines as dp
from dp_pipelines import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.noise.laws import FlooredLaplace
from dp_pipelines.planning import stage as stages
from dp_pipelines.planning.candidate import Calibrated
from dp_pipelines.planning.stage_choices import Choice, StageChoices

PUBLIC = dp.PublicPartitions(keys=[("a",), ("b",)])
MEAN = dp.Mean("paid", min_value=10, max_value=30)


def query(partitions: Any = PUBLIC, **metrics: dp.Metric) -> dp.Query:
    bounds = dp.ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=2)
    asked = metrics or {"rows": dp.Count(), "paid": dp.Sum("paid", min_value=0, max_value=9)}
    return dp.Query(privacy_unit="who", partition_by="k", metrics=asked, partitions=partitions, bounds=bounds)


def calibrated(asked: dp.Query) -> Calibrated:
    return dp.Plan(epsilon=1.0, delta=1e-6, stages={"weekly": asked}).calibrated


def built(asked: dp.Query, **changed: Any) -> stages.StagePlan:
    """The stage of a query, with some of its choices changed."""
    scales = calibrated(asked)
    choices = dataclasses.replace(scales.choices["weekly"], **changed)
    return stages.build_stage("weekly", asked, choices, scales)


def each_choice(asked: dp.Query, **changed: Any) -> list[FrozenMapping[Choice]]:
    """The noises of a query, with one of them changed in turn."""
    noises = calibrated(asked).choices["weekly"].noises
    return [FrozenMapping({**noises, key: dataclasses.replace(choice, **changed)}) for key, choice in noises.items()]


@pytest.mark.parametrize(
    "changed", [{"steps": 0}, {"steps": -1}, {"units": 0}, {"law": "normal"}, {"law": ""}], ids=str
)
@pytest.mark.parametrize("partitions", [PUBLIC, dp.PrivatePartitions(strategy="gaussian")], ids=["public", "private"])
def test_a_choice_of_no_steps_or_of_an_unknown_law_is_refused(changed: dict[str, Any], partitions: Any) -> None:
    asked = query(partitions)
    assert built(asked).choices == calibrated(asked).choices["weekly"]
    for noises in each_choice(asked, **changed):
        with pytest.raises(RequestError, match="was made for another query"):
            built(asked, noises=noises)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-9, 2.0])
def test_a_chance_to_fail_that_is_none_is_refused_where_partitions_are_selected(delta: float) -> None:
    with pytest.raises(RequestError, match="was made for another query"):
        built(query(dp.PrivatePartitions(strategy="laplace")), selection_delta=delta)


def test_a_family_with_noise_that_was_asked_for_is_not_counted_from_its_middle() -> None:
    family = ("paid", 10.0, 30.0)
    fixed = query(mean=MEAN, total=dp.Sum("paid", min_value=10, max_value=30, stddev=900))
    with pytest.raises(RequestError, match="was made for another query"):
        built(fixed, centred=(family,))
    free = query(mean=MEAN)
    assert calibrated(free).choices["weekly"].centred == (family,)
    assert built(free).basis(MEAN).centred


@pytest.mark.parametrize(
    ("declared", "nullable"),
    [
        ((None,), True),
        ((False,), False),
        ((True,), True),
        ((False, None), False),
        ((True, False), True),
        ((True, None), True),
    ],
)
def test_a_family_may_have_nulls_if_one_of_its_metrics_says_so_or_none_says_anything(
    declared: tuple[bool | None, ...], nullable: bool
) -> None:
    total = dp.Sum("paid", min_value=10, max_value=30)  # says nothing of nulls
    means = {said: dataclasses.replace(MEAN, nullable=said) for said in (False, True)}
    metrics = {f"m{n}": total if said is None else means[said] for n, said in enumerate(declared)}
    asked = query(other=dp.Mean("else", min_value=0, max_value=1, nullable=not nullable), **metrics)
    for metric in metrics.values():
        assert stages.basis_of(metric, asked, ()).nullable == nullable


@pytest.mark.parametrize("stddev", [0.02, 12.0, 9000.0, 16000.0])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_noise_that_was_asked_for_is_drawn_on_a_lattice_that_one_unit_of_change_spans(stddev: float, law: str) -> None:
    asked = query(rows=dp.Count(stddev=stddev))
    choices = StageChoices(strategy=None, noises=FrozenMapping({"rows": Choice(law=law, steps=1)}))
    scales = Calibrated(choices=FrozenMapping({}), gaussian_scale=Fraction(7), laplace_scale=Fraction(9))
    stage = stages.build_stage("weekly", asked, choices, scales)
    (noise,) = [noise for noise in stage.noises if noise is not None]
    assert stages.fixed_noise(asked) == {"rows": stddev}
    assert isinstance(noise.law, FlooredLaplace) == (law == "laplace")
    spread = float(noise.law.scale) * noise.unit * (math.sqrt(2) if law == "laplace" else 1.0)
    assert spread == pytest.approx(stddev, rel=1e-4, abs=noise.unit / 64 * math.sqrt(2))
    assert 1 <= noise.step <= stages.shape_of(stage.statistics[0], asked).unit
    assert noise.law.scale.denominator in {2**n for n in range(7)}


def test_a_released_count_of_units_is_compared_itself_and_another_one_only_where_there_is_none() -> None:
    partitions = dp.PrivatePartitions(strategy="gaussian")
    released, alone = built(query(partitions, users=dp.PrivacyIdCount())), built(query(partitions, rows=dp.Count()))
    for stage, is_released in ((released, True), (alone, False)):
        assert stage.selection is not None
        assert stage.selection.released == is_released
        assert ("selection" in stage.choices.noises) == (not is_released)
        assert stage.selection.noise is not None
        assert (stage.selection.noise in stage.noises) == is_released
