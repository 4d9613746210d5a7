"""Fields whose types declare a range take what lies in it, and nothing else."""

import dataclasses
import math
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from dp_pipelines import ContributionBounds, Count, checks
from dp_pipelines.errors import RequestError
from dp_pipelines.query.train_model import Steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """One field of each kind."""

    whole: Annotated[int, checks.Whole(low=1, high=9, hint="count again")] = 1
    part: Annotated[float, checks.Real(above=0, below=1, also=(1,))] = 0.5
    chosen: Annotated[int, checks.Whole(low=1, high=9)] | Literal["auto"] | None = None
    free: float = 0.0

    def __post_init__(self) -> None:
        checks.declared(self, "settings.")


@pytest.mark.parametrize(
    "given",
    [
        {"whole": 9},
        {"part": 1},
        {"part": 1e-9},
        {"chosen": "auto"},
        {"chosen": None},
        {"chosen": np.int64(3)},
        {"free": -1},
    ],
    ids=str,
)
def test_what_lies_in_a_range_or_is_named_beside_it_is_taken(given: dict[str, Any]) -> None:
    made = Settings(**given)
    ((name, value),) = given.items()
    assert getattr(made, name) == value
    assert type(made.whole) is int
    assert type(made.part) is float
    assert made.chosen is None or type(made.chosen) in (int, str)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"whole": 0}, "settings.whole: must be a whole number from 1 to 9; count again"),
        ({"whole": 1.0}, "settings.whole: must be a whole number"),
        ({"whole": None}, "settings.whole: must be a whole number"),
        ({"whole": True}, "settings.whole: must be a whole number"),
        ({"part": 0}, "settings.part: must be a finite number above 0 and at most 1"),
        ({"part": 1.1}, "settings.part: must be a finite number above 0 and at most 1"),
        ({"part": math.nan}, "settings.part: must be a finite number"),
        ({"part": True}, "settings.part: must be a number, not bool"),
        ({"chosen": "any"}, "settings.chosen: must be a whole number"),
        ({"chosen": [1]}, "settings.chosen: must be a whole number"),
    ],
    ids=str,
)
def test_what_lies_outside_is_refused_by_its_field(given: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError) as refused:
        Settings(**given)
    assert str(refused.value).startswith(told)


def test_a_metric_of_ones_own_may_have_types_that_are_text() -> None:
    class Own(Count):
        """As a module with postponed annotations makes it."""

    Own.__annotations__ = {"note": "NameOfNothing"}
    assert Own(weight=2).weight == 2
    with pytest.raises(RequestError, match="weight: must be a finite number above 0"):
        Own(weight=0)


def test_numbers_of_numpy_become_plain_ones() -> None:
    steps = Steps(steps=np.int32(3), sampling_rate=np.float32(0.5), momentum=0, average=1)
    assert [type(value) for value in (steps.steps, steps.sampling_rate, steps.momentum)] == [int, float, float]
    assert type(ContributionBounds(max_contributions=np.int64(3)).max_contributions) is int
