"""The verdict on a model: whether it does more than what needs no model, or less of one.

In: the contents of `evaluation.json` and `model.json`, which may be odd. Out: sentences, the base rate and the best single
feature first. Holds: computed from released counts, weights and moments and from public facts, so it costs nothing; a model is
better or worse only where the difference is longer than all error bars together. Not covered: models of one candidate among
several, whose measures are slightly too good, as the page says beside them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.report.key_text import label
from dp_pipelines.report.numbers import ERROR_BAR, finite, with_error_bar
from dp_pipelines.report.pages import mapping, sequence, text

CALIBRATED = 0.02
"""How far the AUC of a feature alone may be off where the model is about calibrated (docs/models.md)."""

CLEAR = 3.0
"""Deviations of the noise of the AUC of a feature alone: it is the largest of several, and a formula of noisy weights."""

CHANCE = 0.5
"""The AUC of ranking at random."""


def lines(evaluation: Mapping[str, Any], content: Mapping[str, Any], unit: str) -> list[str]:
    """Return the verdict on a model; nothing where its counts do not stand out of their noise.

    Args:
        evaluation: the content of `evaluation.json`.
        content: the content of `model.json`.
        unit: the privacy unit in words.

    >>> auc = {"value": 0.68, "noise_stddev": 0.127, "sampling_stddev": 0.02}
    >>> alone = {"best_feature": {"auc": {"value": 0.779, "noise_stddev": 0.01}}}
    >>> found = {"measures": {"auc": auc}, "baselines": alone, "best_feature": "age", "examples_per_unit": 1}
    >>> for line in lines(found, {"task": {"max_examples_per_unit": 1}}, "customer"):
    ...     print(line)
    nothing shows that it ranks better than age alone, whose AUC is about 0.779 ± 0.020: its AUC is 0.68 ± 0.25, which is lower
    """
    return [*_base_rate(evaluation), *_ranking(evaluation, content, unit), *_classes(evaluation), *_numbers(evaluation)]


def counted(evaluation: Mapping[str, Any], unit: str) -> str:
    """Return what counts in the evaluation, for a line of figures; empty where the file does not say.

    >>> counted({"examples_per_unit": 1}, "customer"), counted({"examples_per_unit": 8}, "customer"), counted({}, "customer")
    ('each customer counts once', 'at most 8 examples of each customer count', '')
    """
    most = finite(evaluation.get("examples_per_unit"))
    if most is None or most < 1:
        return ""
    return f"each {unit} counts once" if most == 1 else f"at most {most:,.0f} examples of each {unit} count"


def is_known(alone: Mapping[str, Any]) -> bool:
    """Return True unless the noise of the weights leaves nothing known of the AUC of a feature alone.

    >>> is_known({"value": 0.779, "noise_stddev": 0.004}), is_known({"value": 0.66, "noise_stddev": 1e24})
    (True, False)
    """
    return CLEAR * (finite(alone.get("noise_stddev")) or 0.0) < CHANCE


def _base_rate(evaluation: Mapping[str, Any]) -> list[str]:
    """Return what share of examples is true, and which accuracy a constant answer has."""
    rate = _measure(evaluation, "base_rate")
    constant = mapping(_baseline(evaluation, "majority").get("accuracy"))
    if _value(constant) is None:
        return []
    words = f"always saying {_constant(evaluation)} has an accuracy of {_shown(constant)}"
    if _value(rate) is None:
        return [words]
    return [f"the share of held-out examples that are true is {_shown(rate)}: {words}"]


def _ranking(evaluation: Mapping[str, Any], content: Mapping[str, Any], unit: str) -> list[str]:
    """Return whether a model of a binary label ranks better than its best feature alone, or than chance."""
    auc = _measure(evaluation, "auc")
    value, bar = _value(auc), _bar(auc)
    if value is None:
        return []
    alone = mapping(_baseline(evaluation, "best_feature").get("auc"))
    least, noise = _value(alone), finite(alone.get("noise_stddev"))
    said = f"its AUC is {_shown(auc)}"
    if least is None or noise is None or not is_known(alone):
        if abs(value - CHANCE) <= bar:
            return [f"nothing shows that it ranks better than chance, whose AUC is {CHANCE:g}: {said}"]
        return [f"it ranks {'better' if value > CHANCE else 'worse'} than chance, whose AUC is {CHANCE:g}: {said}"]
    feature = label(text(evaluation.get("best_feature")))
    known = f"{feature} alone, whose AUC is about {with_error_bar(least, noise)}"
    margin = math.hypot(bar, CLEAR * noise) + CALIBRATED
    lower = ", which is lower" if value < least else ""
    if abs(value - least) <= margin:
        return [f"nothing shows that it ranks better than {known}: {said}{lower}"]
    if not _counted_alike(evaluation, content):
        words = f"the AUC of the model is {_shown(auc)}, {'below' if lower else 'above'} that of {known}"
        how = counted(evaluation, unit)
        return [
            f"{words}; these count differently where a {unit} has several examples: in the first {how}, in the second all do"
        ]
    return [f"it ranks {'worse' if lower else 'better'} than {known}: {said}"]


def _classes(evaluation: Mapping[str, Any]) -> list[str]:
    """Return whether the predicted class is right more often than the most frequent one.

    Where both predict the same, both are right or both are wrong. The rest is a sum of counts of disjoint cells.
    """
    rows = [[mapping(cell) for cell in sequence(row)] for row in sequence(evaluation.get("confusion"))]
    counts = [[_value(cell) for cell in row] for row in rows]
    accuracy = _measure(evaluation, "accuracy")
    if _value(accuracy) is None or len(rows) < 2 or {len(row) for row in rows} != {len(rows)}:
        return []
    most = _most_frequent(counts)
    if most is None:
        return []
    ahead, noise, sampling = 0.0, 0.0, 0.0
    for true, row in enumerate(counts):
        for predicted, count in enumerate(row):
            if count is None:
                return []
            if predicted == most or true not in (predicted, most):
                continue
            ahead += count if true == predicted else -count
            noise += (finite(rows[true][predicted].get("noise_stddev")) or 0.0) ** 2
            sampling += max(count, 0.0) * max(finite(evaluation.get("examples_per_unit")) or 1.0, 1.0)
    said = f"its accuracy is {_shown(accuracy)}"
    margin = ERROR_BAR * math.sqrt(noise + sampling)
    if abs(ahead) <= margin:
        return [
            f"nothing shows that its classes are right more often than always saying {_constant(evaluation)}: {said}"
        ]
    compared = "more" if ahead > 0 else "less"
    return [f"its classes are right {compared} often than always saying {_constant(evaluation)}: {said}"]


def _numbers(evaluation: Mapping[str, Any]) -> list[str]:
    """Return whether a model of a number explains any of its variance."""
    r2 = _measure(evaluation, "r2")
    value, bar = _value(r2), _bar(r2)
    if value is None:
        return []
    said = f"the share of variance that it explains is {_shown(r2)}"
    if abs(value) <= bar:
        return [f"nothing shows that it predicts better than always saying the mean: {said}"]
    return [f"it predicts {'better' if value > 0 else 'worse'} than always saying the mean: {said}"]


def _counted_alike(evaluation: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Return True if the evaluation counts as many examples of a unit as the second moments do."""
    most = finite(mapping(content.get("task")).get("max_examples_per_unit"))
    counts = finite(evaluation.get("examples_per_unit"))
    return most is not None and counts is not None and counts >= most


def _constant(evaluation: Mapping[str, Any]) -> str:
    """Return the most frequent class in words."""
    if (rate := _value(_measure(evaluation, "base_rate"))) is not None:
        return "true" if rate > 0.5 else "false"
    rows = [[_value(mapping(cell)) for cell in sequence(row)] for row in sequence(evaluation.get("confusion"))]
    most, classes = _most_frequent(rows), sequence(evaluation.get("classes"))
    return label(text(classes[most])) if most is not None and most < len(classes) else "the most frequent class"


def _most_frequent(counts: Sequence[Sequence[float | None]]) -> int | None:
    """Return which row of a table of counts has the most; None where one is missing."""
    if not counts or any(count is None for row in counts for count in row):
        return None
    totals = [sum(count or 0.0 for count in row) for row in counts]
    return max(range(len(totals)), key=totals.__getitem__)


def _measure(evaluation: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return mapping(mapping(evaluation.get("measures")).get(name))


def _baseline(evaluation: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return mapping(mapping(evaluation.get("baselines")).get(name))


def _value(estimate: Mapping[str, Any]) -> float | None:
    return finite(estimate.get("value"))


def _stddev(estimate: Mapping[str, Any]) -> float:
    """Return the deviation of noise, the choice of units and what bins hide, the last as a part of the error bar."""
    noise, sampling, hidden = (
        max(finite(estimate.get(key)) or 0.0, 0.0) for key in ("noise_stddev", "sampling_stddev", "hidden_by_bins")
    )
    return math.hypot(noise, sampling) + hidden / ERROR_BAR


def _bar(estimate: Mapping[str, Any]) -> float:
    return ERROR_BAR * _stddev(estimate)


def _shown(estimate: Mapping[str, Any]) -> str:
    return with_error_bar(_value(estimate), _stddev(estimate))
