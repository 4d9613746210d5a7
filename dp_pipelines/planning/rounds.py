"""The split of a budget over the runs of a plan: the part of each round, and its noise.

In: the name of a split, the number of runs, the calibration for the round with most noise. Out: the same for any round.
Holds: everything is derived in integers and fractions, so that a stored plan has the same rounds on every machine; the noise of
two rounds is in the inverse proportion of their parts, up to a 64th of a step of its scale. Not covered: what the rounds cost
together (noise_levels.integer_noise calibrates on all of their records), and the order of rounds (the ledger numbers them).
"""

import dataclasses
import math
from fractions import Fraction
from typing import Any, get_args

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.noise import noise_schedule
from dp_pipelines.planning.candidate import SCALE_GRID, Calibrated
from dp_pipelines.planning.stage_choices import StageChoices

Split = noise_schedule.Schedule
"""Names of the ways to split a budget over the runs of a plan."""

MOST_ROUNDS = 1000
"""Runs of a split that is not constant: each round has records of its own, and all of them are accounted for together."""


def check(split: Any, runs: int) -> Split:
    """Return the split, if it is one and `runs` are not too many for it.

    Raises:
        RequestError: it is not.
    """
    if split not in get_args(Split):
        raise RequestError(
            field="split", message="must be one of " + ", ".join(get_args(Split)), hint="or leave it out"
        )
    if split != "constant" and runs > MOST_ROUNDS:
        raise RequestError(
            field="split",
            message=f"is {split}, which allows at most {MOST_ROUNDS} runs",
            hint="write split: constant, or ask for fewer runs",
        )
    known: Split = split
    return known


def number_in(number: Any, runs: int) -> int:
    """Return the number of a round, from 1 to `runs`.

    Raises:
        RequestError: it is none.

    >>> number_in(52, 52)
    52
    """
    covers = f"{runs} runs" if runs > 1 else "one run"
    hint = f"the plan covers {covers}; make a new plan for more"
    return checks.whole(number, "round", low=1, high=runs, hint=hint)


def ratio(split: Split, runs: int, number: int) -> Fraction:
    """Return the part of a round, divided by the smallest part: see `noise_schedule.ratio`.

    >>> str(ratio("linear", 52, 2))
    '2'
    """
    return noise_schedule.ratio(split, runs, number)


def at(first: Calibrated, part: Fraction) -> Calibrated:
    """Return the calibration for a round with `part` times the smallest budget: its noise is divided by `part`.

    A scale is kept near the one of that part, or up to half of it, by finer steps.
    """
    if part == 1:
        return first
    finer = math.floor(part)

    def scaled(scale: Fraction) -> Fraction:
        return Fraction(math.ceil(scale * finer / part * SCALE_GRID), SCALE_GRID)

    def choices(of_stage: StageChoices) -> StageChoices:
        noises = {key: dataclasses.replace(c, steps=c.steps * finer) for key, c in of_stage.noises.items()}
        epsilon = of_stage.selection_epsilon * float(part)
        return dataclasses.replace(of_stage, noises=FrozenMapping(noises), selection_epsilon=epsilon)

    return Calibrated(
        choices=FrozenMapping({name: choices(of_stage) for name, of_stage in first.choices.items()}),
        gaussian_scale=scaled(first.gaussian_scale),
        laplace_scale=scaled(first.laplace_scale),
    )
