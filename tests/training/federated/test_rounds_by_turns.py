"""Rounds of clients who take part by turns: what they cost, what a plan says of their noise, and what the audit finds.

In: plans. Out: records, words, findings. Holds: records are counted by hand, faults are planted in what runs. Not covered: draws
and their memory (`test_correlated_noise.py`).
"""

import json
import math
from fractions import Fraction
from typing import Any

import pytest

from dp_pipelines import Plan, RequestError, Rounds
from dp_pipelines.audit import audit
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.noise import correlation
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.training import trainer
from dp_pipelines.training.description import task_from_json, task_to_json
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.gaussian_noise import SCALE
from dp_pipelines.training.kept_draws import Released
from tests.audit.test_audit import ALPHA, broken
from tests.helpers.planted import plant
from tests.training.federated.test_rounds_of_a_plan import model, planned

pytest.importorskip("numba")

CORRELATED: dict[str, Any] = {"steps": 12, "separation": 4, "noise": "correlated"}


def record_of(plan: Plan) -> Any:
    (record,) = (record for record in plan.mechanisms if record.stage == "model")
    return record


# What they cost.


@pytest.mark.parametrize("schedule", ["constant", "linear", "exponential_decreasing"])
def test_rounds_by_turns_are_charged_for_those_that_one_client_is_in(schedule: str) -> None:
    plan = planned(steps=11, separation=4, schedule=schedule)
    record, noise = record_of(plan), training_noise.multipliers(plan["model"])
    assert record.l2_squared / record.scale**2 == max(sum(1 / each**2 for each in noise[at::4]) for at in range(4))
    assert record.kind == "gaussian"
    assert record.l0 == 2 * 11 * plan.trained["model"].size
    all_of_them = training_noise.multiplier(planned(steps=11, schedule=schedule)["model"])
    assert training_noise.multiplier(plan["model"]) < all_of_them


def test_the_record_of_correlated_noise_is_that_of_its_columns_with_all_roundings() -> None:
    plan = planned(**CORRELATED)
    record, (noise, *others) = record_of(plan), training_noise.multipliers(plan["model"])
    assert set(others) == {noise}
    coefficients = [Fraction(each, 2**16) for each in plan["model"].sums[0].coefficients]
    steps, rounding = record.scale / noise, 3 * record.scale / SCALE  # of five parameters: the root, rounded up
    column = steps**2 + sum((each * steps + rounding) ** 2 for each in coefficients)
    assert record.l2_squared == math.ceil(3 * column)
    assert rounding > 0
    assert 2.0 * (1 - 1e-3) <= plan.accounted["epsilon"] <= 2.0


def test_correlated_noise_costs_what_independent_noise_does_and_draws_more_in_each_round() -> None:
    independent, correlated = planned(steps=12, separation=4), planned(**CORRELATED)
    assert correlated.accounted["epsilon"] == pytest.approx(independent.accounted["epsilon"], rel=1e-3)
    by_hand = math.sqrt(correlation.sensitivity_squared(12, 4, correlated["model"].sums[0].coefficients) / 3)
    noise = [float(training_noise.multiplier(plan["model"])) for plan in (correlated, independent)]
    assert noise[0] / noise[1] == pytest.approx(by_hand, rel=0.01)


def test_no_sampling_makes_them_cheaper() -> None:
    assert record_of(planned(**CORRELATED)).rate is None
    assert record_of(planned(steps=12, separation=4, participation="hidden")).kind == "gaussian"


def test_sums_are_divided_for_the_clients_of_one_turn() -> None:
    task = model(expected_clients=1000, held_out=0.2, steps=Rounds(**CORRELATED))
    assert trainer.scale_of(Released(task.divisor), task.steps) == 200.0


def test_a_plan_is_restored_with_the_same_noise_and_another_form_is_another_plan() -> None:
    plan = planned(**CORRELATED)
    again = Plan.restore(
        json.loads(json.dumps(plan.frozen())),
        epsilon=2.0,
        delta=1e-6,
        stages={"model": model(steps=Rounds(**CORRELATED))},
    )
    assert again.digest == plan.digest
    assert again["model"].sums == plan["model"].sums
    others = [planned(steps=12), planned(steps=12, separation=4), planned(steps=12, separation=3, noise="correlated")]
    assert len({other.digest for other in (plan, *others)}) == 4


def test_four_runs_of_a_plan_have_a_series_each() -> None:
    plan = Plan(epsilon=4.0, delta=1e-6, stages={"model": model(steps=Rounds(**CORRELATED))}, runs=4, split="linear")
    assert plan.accounted["epsilon"] <= 4.0
    first, last = (training_noise.multiplier(plan["model", number]) for number in (1, 4))
    assert float(first / last) == pytest.approx(4, rel=0.02)
    squared = [next(record for record in plan.round(number).mechanisms if record.stage == "model") for number in (1, 4)]
    assert float(squared[1].l2_squared / squared[0].l2_squared) == pytest.approx(16, rel=0.01)


# What a plan says.


def described(plan: Plan) -> dict[str, Any]:
    return next(stage for stage in plan.to_json()["stages"] if stage["name"] == "model")


def test_a_plan_says_what_correlated_noise_gains() -> None:
    said = described(planned(**CORRELATED))
    assert (said["separation"], said["most_rounds_of_client"], said["noise_of_rounds"]) == (4, 3, "correlated")
    chosen = correlation.choose(12, 4, 0.8, 6)
    assert said["error_beside_independent"] == {"published_models": chosen.published, "result": chosen.result}
    assert said["noise_coefficients"] == [each / 2**16 for each in chosen.coefficients]
    assert "error_beside_independent" not in described(planned(steps=12, separation=4))
    assert "separation" not in described(planned(steps=12))


def test_where_it_gains_nothing_a_plan_takes_independent_noise_and_says_so() -> None:
    said = described(planned(steps=12, separation=1, noise="correlated"))
    assert said["noise_of_rounds"] == "independent"
    assert said["error_beside_independent"] == {"published_models": 1.0, "result": 1.0}
    one, other = planned(steps=12, separation=1, noise="correlated"), planned(steps=12, separation=1)
    assert record_of(one) == record_of(other)
    assert record_of(one).l2_squared == record_of(planned(steps=12)).l2_squared


def test_a_plan_of_rounds_without_whitening_can_be_shown() -> None:
    assert described(planned())["cost_of_examples"] is None


def test_what_a_file_says_of_a_model_gives_back_its_task() -> None:
    for rounds in ({"steps": 12}, {"steps": 12, "separation": 4}, CORRELATED):
        task = model(steps=Rounds(**rounds))
        written = task_to_json(task)
        assert task_from_json(json.loads(json.dumps(written)), Encoder.of(task)) == task
        assert ("noise" in written["steps"]) == ("noise" in rounds)
        assert ("separation" in written["steps"]) == ("separation" in rounds)


@pytest.mark.parametrize(
    ("rounds", "field"),
    [
        ({"separation": 0}, "separation"),
        ({"separation": 1.5}, "separation"),
        ({"separation": 7}, "separation"),
        ({"separation": 3, "sampling_rate": 0.5}, "separation"),
        ({"separation": 3, "sampling_rate": 0.5, "participation": "visible"}, "separation"),
        ({"noise": "correlated"}, "noise"),
        ({"noise": "none"}, "noise"),
        ({"noise": "correlated", "separation": 3, "schedule": "linear"}, "schedule"),
    ],
)
def test_rounds_by_turns_that_make_no_sense_are_refused_by_their_field(rounds: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        Rounds(**{"steps": 6, **rounds})
    assert refused.value.field == field
    assert refused.value.hint or field in ("separation", "noise")


# What the audit finds.


@pytest.mark.parametrize(
    "rounds", [CORRELATED, {"steps": 12, "separation": 5}, {"steps": 5, "separation": 5, "noise": "correlated"}]
)
def test_the_audit_replays_the_series_and_finds_what_is_accounted(rounds: dict[str, Any]) -> None:
    found = audit.audit(planned(epsilon=8.0, **rounds), replays=4000, false_alarms=ALPHA)
    assert broken(found) == set()
    assert found.agrees


FAULTS = {
    "later rounds are not in the record": (
        "dp_pipelines.kernels.clipped_vectors:ClippedVectors._together",
        "self._reached(len(self.coefficients), rounding)",
        "self._reached(0, rounding)",
    ),
    "roundings are not in the record": (
        "dp_pipelines.mechanisms.training_sums:sums_record",
        "if vectors.coefficients else",
        "if not vectors.size else",
    ),
    "what was remembered is left out": (
        "dp_pipelines.training.federated.correlated_noise:NoiseSeries.carried",
        "if not memory:",
        "if memory or not memory:",
    ),
    "too little is drawn anew": (
        "dp_pipelines.training.gaussian_noise:NoisySum.release_in_series",
        "noise -= carried",
        "noise = noise * 9 // 10 - carried",
    ),
    "clients are in rounds of two groups": (
        "dp_pipelines.training.trainer:fit",
        "(step - 1) % separation",
        "(step - 1) // 2 % separation",
    ),
    "all clients are in each round": (
        "dp_pipelines.training.trainer:_sum",
        "sampler, group), many",
        "sampler, None), many",
    ),
    "a client is charged for one round alone": (
        "dp_pipelines.kernels.clipped_vectors:ClippedVectors._together",
        "self.separation or 1",
        "self.times",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_audit_finds_what_is_wrong_with_a_series(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    place, before, after = FAULTS[fault]
    plant(monkeypatch, place, before, after)
    assert broken(audit.audit(planned(epsilon=8.0, **CORRELATED), replays=4000, false_alarms=ALPHA))


def test_what_a_million_sums_cost_takes_no_longer_than_what_ten_do() -> None:
    million = ClippedVectors(size=4, times=10**6, rate=1.0)
    assert (million.squares, million.together(3, Fraction(1))) == (10**6, 9 * 10**6)
    searched = [million.squares for _ in range(10_000)]  # as a plan does that looks for its noise
    assert set(searched) == {10**6}
