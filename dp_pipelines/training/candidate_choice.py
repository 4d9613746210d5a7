"""The choice of one of several trained candidates: how well each predicts held-out units, and the draw of the best.

In: trained models, examples of held-out units. Out: the number of one of them; what readers are told of it. Holds: a unit adds a
whole number from 0 to `FULL` to the score of each candidate, which that unit and the candidate alone decide, bit for bit; the
scores are compared as whole numbers (`selection.exponential`) and never leave. Not covered: what the choice costs
(`plan_stages.training_parts`), what candidates are trained from, and where the choice is kept (`training.fit`).
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels.columns import gather
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.fit_candidates import CANDIDATE, SCORE, FitCandidate
from dp_pipelines.query.train_model import ClassLabel, JaxModel, NumberLabel, TrainModel
from dp_pipelines.training import scoring, stage_on_disk
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.examples.groups import HeldOutUnits
from dp_pipelines.training.examples.store import by_unit

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

FULL = 2**20
"""The score of a unit whose examples are all predicted exactly: scores are parts of it, so that sums of them are exact."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChosenCandidate:
    """What readers are told of a choice.

    Args:
        number: of the candidate, from 1.
        candidates: what each says otherwise.
    """

    number: int
    candidates: Sequence[FitCandidate]

    def to_json(self) -> dict[str, Any]:
        """JSON values.

        >>> one = ChosenCandidate(number=2, candidates=[FitCandidate(steps=20), FitCandidate(steps=40)])
        >>> one.to_json()["words"]
        'slightly too good: candidate 2 of 2 was chosen on the same units'
        """
        return {
            "candidate": self.number,
            "candidates": [candidate.given for candidate in self.candidates],
            "words": f"slightly too good: candidate {self.number} of {len(self.candidates)} was chosen on the same units",
        }


def choose(
    stage: StagePlan,
    models: Sequence[Artefact],
    held_out: HeldOutUnits,
    salt: int,
    draw: stage_on_disk.DrawStage,
) -> int:
    """The number of the chosen candidate, from 1. Each call draws anew, so call it once.

    Args:
        stage: that chooses.
        models: the candidates, in order.
        held_out: the examples of held-out units.
        salt: the run's own 64-bit number.
        draw: takes the stage and its exact totals.
    """
    scored: Iterator[pa.Table] = (scores_of_units(models, table) for table in held_out.rows_for(stage))
    chosen = stage_on_disk.release(stage, scored, salt, draw)
    return int(chosen.column(CANDIDATE)[0].as_py())


def scores_of_units(models: Sequence[Artefact], table: pa.Table) -> pa.Table:
    """A row for each unit and candidate: the mean over the unit's examples of how well they are predicted.

    Args:
        models: the candidates, in order; all of one task but for their steps.
        table: whole units.
    """
    first = models[0]
    labels = np.asarray(first.encoder.labels(table), np.float64)
    places, counts = by_unit(table, first.task.unit_columns, np.isfinite(labels))
    starts = np.cumsum(counts) - counts
    units = {name: gather.take(table.column(name), places[starts]) for name in first.task.unit_columns}
    made = []
    for number, model in enumerate(models, 1):
        of_examples = scores_of_examples(model.task, _predicted(model, table), labels)[places]
        # Whole numbers, rounded down: the mean of a unit is the same in whatever order its examples stand.
        of_units = np.add.reduceat(of_examples, starts) // counts if len(starts) else np.zeros(0, np.int64)
        numbers = np.full(len(starts), number, np.int64)
        made.append(pa.table({**units, CANDIDATE: pa.array(numbers), SCORE: pa.array(of_units / FULL)}))
    return pa.concat_tables(made)


def scores_of_examples(task: TrainModel, predicted: Floats, labels: Floats) -> Integers:
    """How well each example is predicted: whole numbers from 0 to `FULL`.

    For a binary label `1 - (p - y)^2`, for classes `1 - sum (p_k - y_k)^2 / 2` (Brier 1950), both of which are best, on average,
    for the true probabilities; for a number 1 less the distance as a part of its range. With class weights the distance counts by
    that of the example's class, over the largest: best are then the probabilities that such a model learns.

    Args:
        task: what is learnt.
        predicted: scores as kernels give them.
        labels: 0 or 1, numbers of classes, or values; of one that is not finite the score means nothing.

    >>> from dp_pipelines.query.train_model import BinaryLabel, Number
    >>> features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features)
    >>> (scores_of_examples(task, np.array([0.0, 800.0, 800.0]), np.array([1.0, 1.0, 0.0])) / FULL).tolist()
    [0.75, 1.0, 0.0]
    """
    truth = np.where(np.isfinite(labels), labels, 0.0)
    if isinstance(task.label, NumberLabel):
        low, high = float(task.label.min_value), float(task.label.max_value)
        said = np.clip(np.nan_to_num(predicted, nan=low / 2 + high / 2), low, high)
        # Halves, so that no difference of two ends overflows.
        with np.errstate(all="ignore"):
            missed = np.abs(said / 2 - np.clip(truth, low, high) / 2) / (high / 2 - low / 2)
    elif isinstance(task.label, ClassLabel):
        by_class = scoring.probabilities(task, predicted)
        missed = np.zeros(len(truth))
        for number in range(task.label.outputs):
            apart = by_class[:, number] - (truth == number)
            missed += apart * apart / 2
    else:
        apart = scoring.probabilities(task, predicted) - (truth > 0.5)
        missed = apart * apart
    if task.steps.relative_weights is not None:
        weights = np.array(task.steps.relative_weights)
        missed = missed * weights[np.clip(np.rint(truth), 0, len(weights) - 1).astype(np.int64)]
    return np.floor((1 - np.clip(np.nan_to_num(missed, nan=1.0), 0.0, 1.0)) * FULL).astype(np.int64)


def to_bytes(number: int, state: bytes) -> bytes:
    """A choice with the last state of what was chosen, as they are kept: of the other candidates nothing is.

    >>> from_bytes(to_bytes(3, b"state"))
    (3, b'state')
    """
    return number.to_bytes(1, "little") + state


def from_bytes(content: bytes) -> tuple[int, bytes]:
    """What `to_bytes` made."""
    return content[0], content[1:]


def _predicted(model: Artefact, table: pa.Table) -> Floats:
    """Scores of examples, each of which depends on that example alone, to the last bit."""
    kind = model.task.model
    named = scoring.own_code(model.task, kind.name, "model") if isinstance(kind, JaxModel) else None
    return model.scores(table, jax_model=named, alone=True)
