"""Federated rounds of a plan: what they cost, how often they are drawn, and what a run that was killed goes on with.

In: plans, clients in memory. Out: records, sums, kept states. Holds: a plan pays for as many rounds as it says, and no more are
drawn. Not covered: whole jobs (`tests/jobs/run/test_federate.py`).
"""

import dataclasses
import math
import pathlib
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import (
    MLP,
    BinaryLabel,
    BudgetError,
    Category,
    FederateModel,
    JaxModel,
    Number,
    Plan,
    RequestError,
    Rounds,
    Steps,
)
from dp_pipelines.accounting import accountant
from dp_pipelines.audit import audit
from dp_pipelines.noise.noise_schedule import ratio
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.training import fit, trainer
from dp_pipelines.training.description import Statement, task_from_json, task_to_json
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.kept_draws import InMemory, Released
from tests.audit.test_audit import ALPHA, broken
from tests.helpers.planted import plant

pytest.importorskip("numba")

FEATURES = {"x": Number(column="x", min_value=0, max_value=1, edges=[0.3, 0.6])}
SCHEDULES = ["constant", "linear", "exponential", "linear_decreasing", "exponential_decreasing"]


def model(**changes: Any) -> FederateModel:
    base: dict[str, Any] = {
        "privacy_unit": "who",
        "label": BinaryLabel(column="y"),
        "features": FEATURES,
        "steps": Rounds(steps=6),
        "max_examples_per_unit": 4,
        "expected_clients": 50,
        "whiten": False,
    }
    return FederateModel(**{**base, **changes})


def planned(epsilon: float = 2.0, **rounds: Any) -> Plan:
    return Plan(epsilon=epsilon, delta=1e-6, stages={"model": model(steps=Rounds(**{"steps": 6, **rounds}))})


# What rounds cost.


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_spends_the_whole_budget_and_no_more(schedule: str) -> None:
    plan = planned(schedule=schedule)
    assert 2.0 * (1 - 1e-3) <= plan.accounted["epsilon"] <= 2.0
    # By hand: what all rounds together shift, in standard deviations.
    (record,) = (record for record in plan.mechanisms if record.stage == "model")
    shift = sum(1 / each**2 for each in training_noise.multipliers(plan["model"]))
    assert record.l2_squared is not None
    assert record.scale is not None
    assert record.l2_squared / record.scale**2 == shift
    assert record.l0 == 2 * 6 * plan.trained["model"].size


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_noise_of_a_federated_round_follows_its_part(schedule: Any) -> None:
    noise = training_noise.multipliers(planned(schedule=schedule)["model"])
    weighted = [float(each * ratio(schedule, 6, number)) for number, each in enumerate(noise, 1)]
    assert weighted == pytest.approx([weighted[0]] * 6, rel=0.03)
    if schedule != "constant":
        rising = schedule.endswith("decreasing")
        assert list(noise) == sorted(noise, reverse=not rising)
        assert len(set(noise)) == 6


def test_a_schedule_that_gave_all_rounds_the_least_noise_would_cost_too_much() -> None:
    plan = planned(schedule="linear")
    (record,) = (record for record in plan.mechanisms if record.stage == "model")
    assert record.scale is not None
    steps = record.scale / min(training_noise.multipliers(plan["model"]))
    assert steps.denominator == 1
    more = dataclasses.replace(record, l2_squared=6 * int(steps) ** 2)
    others = [other for other in plan.mechanisms if other.stage != "model"]
    assert accountant.epsilon_of([*others, more], 1e-6) > 1.5 * accountant.epsilon_of(plan.mechanisms, 1e-6)


def test_rounds_whose_clients_can_be_seen_are_charged_as_if_all_took_part() -> None:
    hidden, visible, everybody = (
        planned(sampling_rate=0.1),
        planned(sampling_rate=0.1, participation="visible"),
        planned(),
    )
    of = [float(training_noise.multiplier(plan["model"])) for plan in (hidden, visible, everybody)]
    assert of[1] == of[2] > 2 * of[0]
    (record,) = (record for record in visible.mechanisms if record.stage == "model")
    assert (record.kind, record.rate) == ("gaussian", None)
    (record,) = (record for record in hidden.mechanisms if record.stage == "model")
    assert (record.kind, record.rate, record.times) == ("sampled_gaussian", 0.1, 6)


def test_no_number_of_clients_is_released_where_nothing_needs_one() -> None:
    assert list(planned().stages) == ["model", "model.evaluation"]
    assert "model.users" in Plan(epsilon=2.0, delta=1e-6, stages={"model": model(whiten=True)}).stages


@pytest.mark.parametrize(
    "rounds", [{}, {"schedule": "exponential_decreasing"}, {"sampling_rate": 0.5}, {"method": "fedsgd"}], ids=str
)
def test_the_audit_replays_rounds_and_finds_what_is_accounted(rounds: dict[str, Any]) -> None:
    plan = planned(epsilon=8.0, **rounds)
    found = audit.audit(plan, replays=4000, false_alarms=ALPHA)
    assert broken(found) == set()
    assert found.agrees


def test_the_audit_finds_a_round_with_the_noise_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(epsilon=8.0, schedule="linear")
    plant(monkeypatch, "dp_pipelines.training.trainer:fit", "own = noises[step - 1]", "own = noises[-1]")
    assert ("model", "noise of each step") in broken(audit.audit(plan, replays=4000, false_alarms=ALPHA))


# What is refused.


@pytest.mark.parametrize(
    ("rounds", "field"),
    [
        ({"method": "fedprox"}, "method"),
        ({"participation": "secret"}, "participation"),
        ({"schedule": "cosine"}, "schedule"),
        ({"schedule": "linear", "sampling_rate": 0.5}, "schedule"),
        ({"method": "fedsgd", "local_epochs": 2}, "local_epochs"),
        ({"local_epochs": 0}, "local_epochs"),
        ({"local_examples": 1.5}, "local_examples"),
        ({"local_rate": math.inf}, "local_rate"),
        ({"steps": 1001}, "steps"),
        ({"steps": 0}, "steps"),
        ({"sampling_rate": 0}, "sampling_rate"),
        ({"l2": 0.5}, "l2"),
        ({"class_weights": [1, 2]}, "class_weights"),
    ],
)
def test_rounds_that_make_no_sense_are_refused_by_their_field(rounds: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        Rounds(**rounds)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"steps": Steps()}, "steps"),
        ({"model": JaxModel(name="a:b", parameters=1)}, "model"),
        ({"expected_clients": 0}, "expected_clients"),
        ({"expected_clients": 2.5}, "expected_clients"),
    ],
)
def test_a_model_that_clients_cannot_train_is_refused_by_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        model(**changes)
    assert refused.value.field == field


def test_a_schedule_whose_first_rounds_would_drown_is_refused_by_the_limit_that_the_job_sets() -> None:
    planned(max_noise_multiplier=20.0)
    with pytest.raises(BudgetError, match="max_noise_multiplier"):
        planned(max_noise_multiplier=20.0, schedule="exponential")


# What is drawn.


class Counted(InMemory):
    """A store that counts, and can fail as a process does that is killed."""

    def __init__(self, dies_after: int | None = None) -> None:
        super().__init__()
        self.dies_after = dies_after
        self.names: list[str] = []

    def keep(self, name: str, content: bytes) -> None:
        super().keep(name, content)
        self.names.append(name)
        if name == f"model.step-{self.dies_after}":
            raise KeyboardInterrupt


def rows(seed: int = 1, units: int = 40) -> pa.Table:
    draw = np.random.default_rng(seed)
    count = 3 * units
    x = draw.random(count)
    y = (x + 0.3 * draw.normal(size=count) > 0.5).astype(np.int64)
    return pa.table({"who": [f"u{n // 3}" for n in range(count)], "x": x, "y": y})


def run(
    plan: Plan, folder: pathlib.Path, draws: InMemory, table: pa.Table, told: list[str] | None = None
) -> fit.Fitted:
    folder.mkdir()
    one = fit.Fit(
        name="model",
        task=plan.trained["model"],
        stages=plan.round(1).stages,
        tables=lambda: iter([table]),
        folder=folder,
        draws=draws,
        key=b"key",
        salt=7,
        tell=(told if told is not None else []).append,
    )
    return one.run(Statement(unit="who", plan="", epsilon=1.0, delta=1e-6))


@pytest.mark.parametrize("rounds", [{}, {"schedule": "linear"}, {"sampling_rate": 0.5}, {"method": "fedsgd"}], ids=str)
@pytest.mark.parametrize("network", [False, True])
def test_a_killed_run_goes_on_from_its_last_round_and_draws_no_kept_round_again(
    rounds: dict[str, Any], network: bool, tmp_path: pathlib.Path
) -> None:
    """Whatever the rows have become since: noise of one round never falls on two sums."""
    task = model(steps=Rounds(**{"steps": 12, **rounds}), **({"model": MLP(hidden=(3,))} if network else {}))
    plan = Plan(epsilon=8.0, delta=1e-6, stages={"model": task})
    draws = Counted(dies_after=4)
    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path / "first", draws, rows())
    kept = {step: draws.get(f"model.step-{step}") for step in range(1, 5)}
    assert None not in kept.values()
    assert draws.get("model.step-5") is None
    draws.dies_after = None
    told: list[str] = []
    done = run(plan, tmp_path / "second", draws, rows(seed=2), told)
    assert {step: draws.get(f"model.step-{step}") for step in range(1, 5)} == kept
    assert [text for text in told if "step" in text] == [f"training model: step {step} of 12" for step in range(5, 13)]
    states = [trainer.TrainingState.from_bytes(draws.get(f"model.step-{step}") or b"") for step in range(1, 13)]
    assert done.artefact.path["gradient_norm"] == tuple(states[-1].norms)
    assert done.artefact.path["gradient_norm"][:4] == tuple(states[3].norms)
    again = run(plan, tmp_path / "third", draws, rows(seed=3))
    assert again.artefact.parameters.tobytes() == done.artefact.parameters.tobytes()


def test_a_plan_of_n_rounds_draws_no_further_round(tmp_path: pathlib.Path) -> None:
    plan = planned()
    multipliers = training_noise.multipliers(plan["model"])
    assert len(multipliers) == 6
    more = Rounds(steps=7)
    with pytest.raises(AssertionError, match="another number of sums than the plan pays for"):
        trainer.train(
            fit.kernel_of(plan.trained["model"], b"key"), NOBODY, more, clip_norm=1.0, multiplier=multipliers,
            divisor=Released(40.0), draws=InMemory(), name="model",
        )  # fmt: skip
    draws = Counted()
    run(plan, tmp_path / "run", draws, rows())
    assert [name for name in draws.names if "step" in name] == [f"model.step-{step}" for step in range(1, 7)]


class Nobody:
    """No client at all."""

    units = 0

    def chunks(self, units_per_chunk: int) -> Any:
        return iter(())

    def take(self, units: Any) -> Any:
        raise AssertionError


NOBODY = Nobody()


def test_each_round_has_the_noise_that_its_plan_gives_it() -> None:
    """Of nobody's updates: the sums are noise alone, which is that of the round. False alarm: below 1e-12."""
    plan = planned(schedule="exponential")
    multipliers = training_noise.multipliers(plan["model"])
    size = 20_000

    class Wide:
        """A model of many parameters."""

        slack = 0.0
        curvature = 1.0

        def __init__(self) -> None:
            self.size = size

        def initial(self) -> Any:
            return np.zeros(size)

    rounds = Rounds(steps=6, schedule="exponential", momentum=0.0, learning_rate=1.0, average=0.0)
    done = trainer.train(
        Wide(), NOBODY, rounds, clip_norm=2.0, multiplier=multipliers, divisor=Released(10.0), draws=InMemory(),
        name="model",
    )  # fmt: skip
    drawn = [norm * 10.0 / 2.0 / math.sqrt(size) for norm in done.path["gradient_norm"]]
    # The length of so many normal numbers is within seven of its standard deviations, 7 / sqrt(2 size) of itself.
    assert drawn == pytest.approx([float(each) for each in multipliers], rel=7 / math.sqrt(2 * size))


def test_sums_are_divided_by_what_is_declared_whoever_is_there() -> None:
    task = model(expected_clients=1000, held_out=0.25, steps=Rounds(sampling_rate=0.5))
    assert task.divisor == 750.0
    assert trainer.scale_of(Released(task.divisor), task.steps) == 375.0


@pytest.mark.parametrize("table", [rows(units=0), rows(units=1)], ids=["nobody", "one"])
def test_clients_that_are_not_there_change_no_file_and_raise_nothing(table: pa.Table, tmp_path: pathlib.Path) -> None:
    plan = planned()
    draws = Counted()
    done = run(plan, tmp_path / "run", draws, table)
    usual = Counted()
    run(plan, tmp_path / "usual", usual, rows())
    assert draws.names == usual.names
    assert {len(draws.get(name) or b"") for name in draws.names if "step-6" in name} == {
        len(usual.get(name) or b"") for name in usual.names if "step-6" in name
    }
    assert np.isfinite(done.artefact.parameters).all()


def test_a_model_learns_in_rounds(tmp_path: pathlib.Path) -> None:
    """With much budget: the published model ranks examples as their features do."""
    plan = Plan(
        epsilon=39.0, delta=1e-3, stages={"model": model(expected_clients=400, steps=Rounds(steps=20, local_rate=2.0))}
    )
    done = run(plan, tmp_path / "run", InMemory(), rows(units=400))
    said = done.artefact.scores(pa.table({"x": [0.1, 0.5, 0.9], "y": [0, 0, 0]}))
    assert said[0] < said[1] < said[2]


def test_what_a_file_says_of_a_model_gives_back_its_task() -> None:
    for changes in (
        {},
        {"model": MLP(hidden=(3,))},
        {"steps": Rounds(steps=3, schedule="linear", participation="visible")},
    ):
        task = model(**changes, features={**FEATURES, "k": Category(column="k", categories=["a"])})
        assert task_from_json(task_to_json(task), Encoder.of(task)) == task


def test_the_smallest_part_of_a_schedule_is_one() -> None:
    for schedule in SCHEDULES:
        assert min(ratio(schedule, 9, number) for number in range(1, 10)) == Fraction(1)  # type: ignore[arg-type]
