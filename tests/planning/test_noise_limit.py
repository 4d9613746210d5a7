"""The most noise that a train stage can bear: refused with an epsilon that would do, and nearly the least such one.

In: noise that falls with epsilon by a law that the test knows. Out: errors. Holds: what is proposed is enough, and a few parts
in a hundred less is not. Not covered: what noise a budget leaves (tests/planning/test_plan.py).
"""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines import BinaryLabel, Number, Plan, TrainModel
from dp_pipelines.errors import BudgetError
from dp_pipelines.planning.noise_levels import noise_limit, training_noise
from dp_pipelines.query.train_model import Steps

FEATURES = {"x": Number(column="x", min_value=0, max_value=1)}


def task(**steps: Any) -> TrainModel:
    return TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=FEATURES, steps=Steps(steps=5, **steps))


def refuse(
    limit: float | None,
    epsilon: float,
    noise_at_one: float,
    *,
    most: float = 64.0,
    stages: int = 1,
    tried: list[float] | None = None,
) -> None:
    """Refuse stages whose noise is in inverse proportion to epsilon; `tried` gets each other epsilon that was looked at.

    Raises:
        BudgetError: the noise is above the limit.
    """

    def calibrate(other: float) -> Any:
        if tried is not None:
            tried.append(other)
        return other

    trained = {f"m{number}": task(max_noise_multiplier=limit) for number in range(stages)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_limit, "most_noise", lambda name, task, calibrated: noise_at_one / calibrated)
        noise_limit.refuse_noise(trained, epsilon, epsilon, calibrate, most)  # type: ignore[arg-type]


@given(st.floats(0.1, 4), st.floats(1.01, 10))
def test_the_proposed_epsilon_is_enough_and_a_little_less_is_not(epsilon: float, times: float) -> None:
    needed = epsilon * times  # at this epsilon the noise is 1
    with pytest.raises(BudgetError, match="max_noise_multiplier") as refused:
        refuse(1.0, epsilon, needed, tried=(tried := []))
    assert refused.value.field == "stages.m0.fit.max_noise_multiplier"
    assert f"noise of {times:.4g} times the norm" in refused.value.message
    assert refused.value.hint is not None
    proposed = float(re.match(r"epsilon ([0-9.]+) would be enough", refused.value.hint)[1])  # type: ignore[index]
    assert needed * (1 - 1e-4) <= proposed <= needed * 1.021 + 0.011
    # It is the least epsilon that was looked at and is enough, in hundredths.
    least = min(other for other in tried if other >= needed)
    assert least <= proposed < least + 0.01 + 1e-9


@pytest.mark.parametrize(("limit", "noise"), [(None, 9.0), (1.0, 1.0), (1.0, 0.5), (9.0, 2.0)])
def test_noise_within_the_limit_is_not_refused_and_nothing_else_is_tried(limit: float | None, noise: float) -> None:
    tried: list[float] = []
    refuse(limit, 1.0, noise, stages=2, tried=tried)
    assert tried == []


def test_where_no_epsilon_that_protects_would_do_none_is_proposed() -> None:
    with pytest.raises(BudgetError) as refused:
        refuse(1.0, 0.5, 100.0, most=64.0)
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("no epsilon that protects anybody would be enough")


def test_a_plan_is_refused_by_the_noise_of_its_own_choices() -> None:
    def planned(limit: float | None) -> Plan:
        return Plan(epsilon=0.5, delta=1e-6, stages={"m": task(max_noise_multiplier=limit)})

    noise = float(training_noise.multiplier(planned(None)["m"]))
    assert float(training_noise.multiplier(planned(noise * 1.001)["m"])) == noise
    with pytest.raises(BudgetError, match=r"stages\.m\.fit\.max_noise_multiplier") as refused:
        planned(noise / 2)
    assert refused.value.hint is not None
    proposed = float(re.match(r"epsilon ([0-9.]+) would be enough", refused.value.hint)[1])  # type: ignore[index]
    enough = Plan(epsilon=proposed, delta=1e-6, stages={"m": task(max_noise_multiplier=noise / 2)})
    assert float(training_noise.multiplier(enough["m"])) <= noise / 2


@pytest.mark.parametrize(("fit", "refused"), [((True, True), False), ((True, False), True), ((False, False), True)])
def test_sums_of_which_one_has_no_lattice_are_refused(
    fit: tuple[bool, bool], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise_limit, "multipliers", lambda stage: (1, 2, 1))
    monkeypatch.setattr(noise_limit, "fits", lambda size, multiplier: fit[multiplier - 1])
    stage: Any = SimpleNamespace(sums=[SimpleNamespace(size=10**6)])
    if refused:
        with pytest.raises(BudgetError, match=r"stages\.m: has sums of 1000000 coordinates"):
            noise_limit.refuse_unfit({"m": stage})
    else:
        noise_limit.refuse_unfit({"m": stage})
