"""Candidate settings of a fit: all are trained and paid for, and one of them is published.

In: what the owner of the job declares. Out: frozen descriptions, validated at once; the columns of the table of scores. Holds:
candidates differ in how steps are taken, so that all are fitted to the same released features. Not covered: what they cost
(`plan_stages.training_parts`), and which one is chosen (`training.candidate_choice`).
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from dp_pipelines import checks
from dp_pipelines.errors import RequestError

if TYPE_CHECKING:
    from dp_pipelines.query.train_model import Steps

MOST_CANDIDATES_OF_FIT = 8
"""The most candidates. Each has its part of the budget: eight have nearly three times the noise that one alone would have."""

CANDIDATE, SCORE = "candidate", "score"
"""Columns of the table by which one is chosen: the candidate, and how well it predicts a held-out unit, from 0 to 1."""

_Size = Annotated[float, checks.Real(above=1e-30, below=1e30)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitCandidate:
    """Settings of one candidate; those that are left out are taken from outside the list of candidates.

    Args:
        steps: how many.
        clip_norm: a unit's summed gradient is scaled down to this L2 norm.
        learning_rate: of the mean gradient of examples.
        momentum: from 0 to below 1.
        average: the part of the steps, the last ones, whose parameters are averaged.

    >>> FitCandidate(learning_rate=0.5).given
    {'learning_rate': 0.5}
    """

    steps: Annotated[int, checks.Whole(low=1, high=10**6)] | None = None
    clip_norm: _Size | None = None
    learning_rate: _Size | None = None
    momentum: Annotated[float, checks.Real(above=0, below=1, also=(0,))] | None = None
    average: Annotated[float, checks.Real(above=0, below=1, also=(0, 1))] | None = None

    def __post_init__(self) -> None:
        checks.declared(self)

    @property
    def given(self) -> dict[str, Any]:
        """Return the declared settings, by name."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in fields.items() if value is not None}


def checked(candidates: Any) -> tuple[FitCandidate, ...] | None:
    """Check a list of candidates and return it as a tuple; None if there is none.

    Raises:
        RequestError: it is not a list of 2 to 8 candidates.
    """
    if candidates is None:
        return None
    listed = isinstance(candidates, (list, tuple)) and all(isinstance(each, FitCandidate) for each in candidates)
    if not listed or not 2 <= len(candidates) <= MOST_CANDIDATES_OF_FIT:
        message = f"must be a list of 2 to {MOST_CANDIDATES_OF_FIT} settings"
        hint = "all of them are charged: write e.g. candidates: [{learning_rate: 1}, {learning_rate: 4, steps: 20}]"
        raise RequestError(field="candidates", message=message, hint=hint)
    return tuple(candidates)


def settings(steps: "Steps") -> "tuple[Steps, ...]":
    """Return the settings of each candidate; `steps` alone if there are no candidates.

    >>> from dp_pipelines.query.train_model import Steps
    >>> [each.steps for each in settings(Steps(steps=40, candidates=[FitCandidate(momentum=0.5), FitCandidate(steps=20)]))]
    [40, 20]
    """
    if steps.candidates is None:
        return (steps,)
    return tuple(dataclasses.replace(steps, candidates=None, **each.given) for each in steps.candidates)


def refuse_equal(settings: Sequence[Any]) -> None:
    """Refuse candidates if two have the same settings, since both would be paid for.

    Args:
        settings: of each, completed by those outside the list.

    Raises:
        RequestError: it names the later one.
    """
    for place, each in enumerate(settings):
        if each in settings[:place]:
            message = f"is fitted as candidate {settings.index(each) + 1} is, and would be paid for again"
            raise RequestError(field=f"candidates.{place}", message=message, hint="drop it, or change a setting")


def refuse_columns(unit: Sequence[str]) -> None:
    """Refuse columns of a unit with the names of the columns by which a candidate is chosen.

    Raises:
        RequestError: one would.
    """
    for column in (CANDIDATE, SCORE):
        if column in unit:
            message = f"has a column {column!r}, which is a reserved name beside candidates"
            raise RequestError(field="privacy_unit", message=message, hint="rename it")
