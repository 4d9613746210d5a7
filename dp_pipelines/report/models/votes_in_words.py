"""What a page says of a model that learnt from votes of teachers.

In: the content of `model.json`, which may be odd. Out: words; none where no teachers voted. Holds: released numbers and public
facts alone; no content makes it raise. Not covered: how good the model is.
"""

from collections.abc import Mapping
from typing import Any

from dp_pipelines.report.numbers import public_number
from dp_pipelines.report.pages import amount, mapping, sequence


def fitted_by(content: Mapping[str, Any]) -> str | None:
    """What the model was fitted to; None where no teachers voted.

    >>> steps = {"teachers": 500, "answers": 100, "asked": None, "threshold": 300, "steps": 5}
    >>> fitted_by({"task": {"steps": steps}, "path": {"answered": [0, 3], "answer": [1, 0], "asked": [7]}})
    '2 of at most 100 answers, by noisy votes of 500 teachers on 7 public examples; each teacher has its own block of units'
    """
    steps, path = mapping(mapping(content.get("task")).get("steps")), mapping(content.get("path"))
    if (teachers := amount(steps.get("teachers"))) is None:
        return None
    asked = [amount(number) for number in sequence(path.get("asked"))][:1]
    on = f"{public_number(asked[0])} public examples" if asked else "public examples"
    return (
        f"{len(sequence(path.get('answered'))):,} of at most {public_number(steps.get('answers'))} answers, by noisy votes of "
        f"{public_number(teachers)} teachers on {on}; each teacher has its own block of units"
    )
