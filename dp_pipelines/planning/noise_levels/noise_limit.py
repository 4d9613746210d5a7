"""The most noise that a train stage says it can bear, and what budget would give it no more.

In: calibrated choices; how a plan is found for another epsilon. Out: an error that says what would be needed. Holds: only public
numbers are compared.
"""

import math
from collections.abc import Callable, Mapping

from dp_pipelines.errors import BudgetError
from dp_pipelines.kernels.clipped_vectors import fits
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning.candidate import Calibrated
from dp_pipelines.planning.noise_levels.training_noise import multipliers
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.train_model import TrainModel


def noise_of(name: str, calibrated: Calibrated) -> float:
    """Return the noise multiplier of the steps of a train stage."""
    (choice,) = calibrated.choices[name].noises.values()
    return float(calibrated.gaussian_scale / choice.steps)


def most_noise(name: str, task: TrainModel, calibrated: Calibrated) -> float:
    """Return the noise multiplier of a train stage with candidates: that of the one with the most noise."""
    return max(noise_of(stage, calibrated) for stage in training_parts.candidate_fits(name, task))


def refuse_unfit(stages: Mapping[str, StagePlan]) -> None:
    """Refuse a plan whose sums no lattice of noise is fine enough for.

    Raises:
        BudgetError: it names the stage.
    """
    for name, stage in stages.items():
        for vectors in stage.sums:
            if not all(fits(vectors.size, each) for each in set(multipliers(stage))):
                raise BudgetError(
                    field=f"stages.{name}",
                    message=f"has sums of {vectors.size} coordinates, too many for the noise that the budget allows",
                    hint="train a smaller model, use fewer steps or features, or raise the budget",
                )


def refuse_noise(
    trained: Mapping[str, TrainModel],
    calibrated: Calibrated,
    epsilon: float,
    calibrate: Callable[[float], Calibrated],
    most: float,
) -> None:
    """Refuse a plan whose training has more noise than its stage can bear.

    Args:
        trained: the train stages.
        calibrated: the plan's choices.
        epsilon: the plan's.
        calibrate: the choices for another epsilon.
        most: no larger epsilon is proposed.

    Raises:
        BudgetError: it names the stage, and an epsilon that would do.
    """
    for name, task in trained.items():
        limit = task.steps.max_noise_multiplier
        if limit is None or most_noise(name, task, calibrated) <= limit:
            continue
        low, high = epsilon, epsilon
        while high < most and (high == epsilon or most_noise(name, task, calibrate(high)) > limit):
            low, high = high, min(2 * high, most)
        while high / low > 1.02 and high < most:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if most_noise(name, task, calibrate(middle)) > limit else (low, middle)
        needed = math.ceil(high * 100) / 100
        hint = (
            f"epsilon {needed:g} would be enough" if high < most else "no epsilon that protects anybody would be enough"
        )
        raise BudgetError(
            field=f"stages.{name}.fit.max_noise_multiplier",
            message=f"is {limit:g}, but the budget leaves noise of {most_noise(name, task, calibrated):.4g} times the norm",
            hint=f"{hint}; or give the stage a larger share or fewer steps, or allow more noise",
        )
