"""The expected precision of a train stage, before a row is read: the width of the error bar of its AUC, the cost of examples.

In: calibrated stages, the task, where declared a guess about the number of units and the share of true examples. Out: JSON
values. Holds: public numbers alone. Not covered: how good the model will be; what bins hide of the AUC; bars of other measures.
"""

# Counts of n false and m true examples in K cells each have noise of deviation s. The AUC is a mean over true examples of the
# part B of false ones below, and over false ones of the part A of true ones above: its slope in a count is (B - AUC) / m or
# (A - AUC) / n. Over cells of one size A and B are spread evenly from 0 to 1: the mean of (A - AUC)^2 is 1/12 + (AUC - 1/2)^2.
# The sample adds the variance of Hanley and McNeil (Radiology 143, 1982).

import math
from collections.abc import Mapping
from typing import Any

from dp_pipelines.metrics.base import ROWS
from dp_pipelines.metrics.error_bars import NORMAL_POINT
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning import limits, votes_usefulness
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.expectation import Expectation
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.train_model import BinaryLabel, EvaluationGroups, TrainModel

TYPICAL_AUC = 0.75
"""The AUC for which the error bar is computed: it is not much wider or narrower for others."""

REACH = NORMAL_POINT
"""Standard deviations of a bar that holds 95 times out of 100."""

FEW = 4.0
"""The AUC has no value unless true and false examples are each so many deviations of their noise (`training.measures`)."""


def of_task(name: str, task: TrainModel, stages: Mapping[str, StagePlan], expect: Expectation | None) -> dict[str, Any]:
    """Describe the usefulness of a train stage, in addition to its noise.

    Args:
        name: of the stage.
        task: of the model.
        stages: all parts of the plan, calibrated.
        expect: a guess about the number of units.
    """
    counts = stages[training_parts.evaluation_of(name)]
    sized = training_parts.users_of(name) in stages
    entry = {
        "cost_of_examples": cost_of_examples(stages[training_parts.users_of(name)], task) if sized else None,
        "expected_auc": expected_auc(counts, task, expect),
    }
    if isinstance(task, PateModel):
        entry["votes"] = votes_usefulness.of_votes(name, task, stages, expect)
    return (
        entry if task.evaluation_by is None else {**entry, "evaluation_by": price_of_groups(counts, task.evaluation_by)}
    )


def price_of_groups(cells: StagePlan, by: EvaluationGroups) -> dict[str, Any]:
    """Describe the cost for a model's figures of counting each group of examples separately.

    Args:
        cells: the stage that counts held-out examples.
        by: the groups.
    """
    noise = cells.noises[0]
    assert noise is not None
    times = math.sqrt(by.count)
    words = (
        f"evaluated by {limits.groups(by)}: epsilon is the same, since an example is counted in one group; an overall count adds "
        f"up {by.count} groups, so its noise has a standard deviation of {noise.stddev * times:,.3g} and not "
        f"{noise.stddev:,.3g}: {times:.3g} times as much; that of a group has {noise.stddev:,.3g}, and fewer examples"
    )
    return {
        "column": by.column,
        "groups": by.count,
        "stddev": noise.stddev,
        "stddev_overall": noise.stddev * times,
        "words": words,
    }


def cost_of_examples(sizes: StagePlan, task: TrainModel) -> dict[str, Any] | None:
    """Describe the cost of several examples per unit for a train stage; None if a unit may have only one.

    Args:
        sizes: the stage that counts training units and their examples.
        task: of the model.
    """
    most = task.max_examples_per_unit
    (stddev,) = [n.stddev for s, n in zip(sizes.statistics, sizes.noises, strict=True) if s == ROWS and n is not None]
    if most == 1:
        return None
    words = (
        f"the number of examples has noise of {stddev:,.0f}, since a unit may have {most:,}; with max_examples_per_unit: 1 it "
        f"would be {stddev / most:,.0f}: where units have few examples, lower it"
    )
    return {"stddev": stddev, "stddev_with_one": stddev / most, "words": words}


def expected_auc(cells: StagePlan, task: TrainModel, expect: Expectation | None) -> dict[str, Any] | None:
    """Return half the width of the error bars of an AUC of .75; None for labels without an AUC.

    Args:
        cells: the stage that counts held-out examples.
        task: of the model.
        expect: a guess about the number of units, without which both bars are None, and about the share of true examples, without
            which half of them are taken to be true.
    """
    if not isinstance(task.label, BinaryLabel):
        return None
    if expect is None or expect.units is None:
        words = "declare e.g. expect: {units: 30000, positives: 0.05} to see how wide the error bar of its AUC will be"
        return {"units": None, "positives": None, "noise": None, "both": None, "words": words}
    noise = cells.noises[0]
    assert noise is not None
    held_out = max(expect.units * task.held_out, 2.0)
    share = 0.5 if expect.positives is None else expect.positives
    true = max(held_out * share, 1.0)
    false = max(held_out - true, 1.0)
    stddev = noise.stddev * math.sqrt(task.evaluated_groups)
    of_noise = REACH * auc_noise(stddev, task.evaluation_cells, false, true, TYPICAL_AUC)
    both = math.hypot(of_noise, REACH * auc_sampling(false, true, TYPICAL_AUC))
    if of_noise > 0.5 or min(true, false) < FEW * stddev * math.sqrt(task.evaluation_cells):
        words = f"with {expect.units:,.0f} units, the AUC will not stand out of the noise of its evaluation"
    else:
        words = (
            f"with {expect.units:,.0f} units, the error bar of an AUC of {TYPICAL_AUC:g} is about ± {of_noise:.2g} for noise, "
            f"and ± {both:.2g} with the choice of held-out units"
        )
    if expect.positives is None:
        words += ", if half of the examples are true"
    else:
        words += f", if {100 * share:.3g}% of the examples are true"
        constant = "false" if share <= 0.5 else "true"
        words += f"; always saying {constant} has an accuracy of {max(share, 1 - share):.4g}"
    return {"units": expect.units, "positives": expect.positives, "noise": of_noise, "both": both, "words": words}


def auc_noise(stddev: float, cells: int, false: float, true: float, auc: float) -> float:
    """Return the standard deviation of an AUC that the noise of counts makes.

    Args:
        stddev: of the noise of a count.
        cells: for each label.
        false, true: how many examples there are.
        auc: that is measured.

    >>> round(auc_noise(1.0, 16, 1000.0, 1000.0, 0.75), 5)
    0.00216
    """
    spread = 1 / 12 + (auc - 0.5) ** 2
    return stddev * math.sqrt(cells * spread) * math.hypot(1 / false, 1 / true)


def auc_sampling(false: float, true: float, auc: float) -> float:
    """Return the standard deviation of an AUC that the choice of examples makes.

    Args:
        false, true: how many examples there are.
        auc: of all examples that there could be.

    >>> round(auc_sampling(1000.0, 1000.0, 0.75), 5)
    0.01086
    """
    of_true, of_false = auc / (2 - auc) - auc**2, 2 * auc**2 / (1 + auc) - auc**2
    above = auc * (1 - auc) + (true - 1) * of_true + (false - 1) * of_false
    return math.sqrt(max(above, 0.0) / (false * true))
