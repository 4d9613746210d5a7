"""The description of the candidates of a train stage: settings of each, cost of the choice, precision of the scores.

In: a part of a train stage, the train stages. Out: JSON values and sentences. Holds: public numbers only. Not covered: how
different the candidates are, which nobody knows before they are trained.
"""

import math
from collections.abc import Mapping
from typing import Any

from dp_pipelines.accounting.shown_costs import spent_number
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning import describe
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.planning.stage_kinds import BestKind
from dp_pipelines.query import fit_candidates
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, Label, NumberLabel, TrainModel

HELD_OUT_UNITS = (1_000, 10_000, 100_000)
"""Numbers of held-out units for which it is said what a choice can see."""

SAID_OF_EACH = ("clip_norm", "held_out", "features")
"""Keys in the description of each candidate's steps, besides those of any sums."""

SCORES: Mapping[type[Label], str] = {
    BinaryLabel: "1 less the squared distance of the probability from the outcome",
    ClassLabel: "1 less half the squared distance of the probabilities from the outcome",
    NumberLabel: "1 less the distance from the true value, as a part of the label's range",
}
"""A candidate's score of one example in words, by kind of label."""


def add_to(described: dict[str, Any], stage: StagePlan, trained: Mapping[str, TrainModel]) -> None:
    """Add to what `plan --json` says of a part of a train stage, where the stage has candidates.

    Args:
        described: the part, as the plan describes it.
        stage: the part.
        trained: the train stages of the plan.
    """
    for name, task in trained.items():
        if task.steps.candidates is None:
            continue
        fits = training_parts.candidate_fits(name, task)
        if stage.name in fits:
            # What is the same for all is said of the first.
            own = describe.sums_to_json(stage, described["share"], fits[stage.name])
            described |= {key: value for key, value in own.items() if key in described or key in SAID_OF_EACH}
            described["candidate"] = _candidate(list(fits).index(stage.name) + 1, task)
        if stage.name == training_parts.choice_of(name):
            described["choice"] = _choice(stage, task)


def _candidate(number: int, task: TrainModel) -> dict[str, Any]:
    count = len(fit_candidates.settings(task.steps))
    assert task.steps.candidates is not None
    given = task.steps.candidates[number - 1].given
    text = ", ".join(f"{name} {value:g}" for name, value in given.items()) or "settings as they stand beside the list"
    words = f"candidate {number} of {count}: {text}; all are charged, so each has about {math.sqrt(count):.2g} times the noise"
    return {"number": number, "of": count, "settings": given, "words": f"{words} of one alone"}


def _choice(stage: StagePlan, task: TrainModel) -> dict[str, Any]:
    kind, epsilon = stage.kind, stage.choices.selection_epsilon
    assert isinstance(kind, BestKind)
    units = kind.choice.error_95(epsilon, kind.candidates)
    sees = {number: units / number for number in HELD_OUT_UNITS if units < number}
    listed = ", ".join(f"{gap:.2g} with {number:,}" for number, gap in sees.items())
    score = SCORES[type(task.label)]
    if task.steps.class_weights is not None:
        score = f"{score}, where the distance counts by the weight of the class"
    words = [
        f"one of {kind.candidates} candidates is chosen by the score of held-out units ({score}; of a unit, the mean of its "
        f"examples): epsilon {spent_number(epsilon)}, {kind.choice.mechanism} mechanism, which held-out units alone pay, beside "
        "the evaluation",
        f"19 times out of 20, no candidate is chosen whose mean score is below the best by more than {listed} held-out units"
        if listed
        else "with fewer than 100,000 held-out units, the choice is mostly chance",
        "which units are held out adds to that; the evaluation is of the chosen one on the same units, so slightly too good",
    ]
    return {"candidates": kind.candidates, "epsilon": epsilon, "units_behind_95": units, "sees": sees, "words": words}
