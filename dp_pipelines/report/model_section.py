"""The part of a report that shows a trained model: its task, whom it protects, how good it is, its training and weights.

In: the folder of a model as it is published: `model.json`, `evaluation.json`, `weights.csv`; any part of them may be missing or
odd. Out: a dictionary for the template. Holds: nothing but released numbers and public facts; no content makes it raise but a
file that cannot be read. Not covered: whether the files are true.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dp_pipelines.report import charts
from dp_pipelines.report.chart import Chart
from dp_pipelines.report.key_text import label, visible
from dp_pipelines.report.models import (
    feature_curves,
    group_table,
    model_verdict,
    rounds_section,
    votes_in_words,
    weights_file,
)
from dp_pipelines.report.numbers import ERROR_BAR, cost_number, error_bar_parts, finite, public_number, with_error_bar
from dp_pipelines.report.pages import amount, mapping, mappings, sequence, text
from dp_pipelines.report.svg import Floats, finite_or_nan

MOST_WEIGHTS = 20
MOST_CLASSES = 12
"""Of a larger confusion matrix there is no table."""

KINDS = {
    "binary": "whether {column} is true",
    "classes": "which of {count} classes {column} is",
    "number": "the number {column}, between {low} and {high}",
}
"""What a label of each kind asks."""

REGRESSIONS = {
    "binary": "a logistic regression",
    "classes": "a multinomial logistic regression",
    "number": "a linear regression",
}
"""What a linear model is called, by the kind of its label."""

MEASURES = {
    "auc": ("AUC", "how often a true example scores higher than a false one; 0.5 is chance"),
    "accuracy": ("accuracy", "the share of examples that are classified correctly"),
    "balanced_accuracy": ("balanced accuracy", "the same for each class, averaged over classes"),
    "base_rate": ("share that is true", "of the held-out examples"),
    "log_loss": (
        "log loss",
        "minus the mean logarithm of the probability given to the true outcome; smaller is better",
    ),
    "brier": ("Brier score", "the mean squared distance of the probability from the true outcome; smaller is better"),
    "rmse": ("root mean squared error", "in units of the label, to within the width of a bin"),
    "mae": ("mean absolute error", "likewise"),
    "r2": ("explained variance", "the share of the label’s variance that the predictions explain; 1 is all of it"),
}
"""What measures are called, and what they mean."""

BASELINES = {
    "majority": ("of always saying the more frequent class", "needs no model"),
    "mean": ("of always saying the mean", "needs no model"),
    "best_feature": (
        "of {feature} alone",
        "the best of all features by weights and second moments: about training examples, to some .02",
    ),
}
"""What needs no model, or less of one, by its name in the file, and what it means."""

FIRST = ("base_rate",)
"""Measures that say nothing of the model, and by which the others are judged."""

LARGEST_LIFT = 100.0
"""Beyond it the plot of lifts is cut."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShownCells:
    """How the page shows what cells of one kind say.

    Args:
        predicted, observed: what the axes of the plot of calibration show.
        of_values: whether these go over the range of the label, and not from 0 to 1.
        tabled: whether there is a table of what was true by what was predicted.
        classes: the names of its rows; none: those of the file.
    """

    predicted: str = "predicted probability"
    observed: str = "share that was true"
    of_values: bool = False
    tabled: bool = False
    classes: tuple[str, ...] = ()


CELLS = {
    "binary": ShownCells(tabled=True, classes=("false", "true")),
    "classes": ShownCells(tabled=True),
    "confidence": ShownCells(predicted="probability of the predicted class", observed="share that was right"),
    "numbers": ShownCells(predicted="predicted", observed="mean of the true values", of_values=True),
}
"""Every kind of cells that `evaluation.json` names; of another one the plots show what can be shown."""


def model_section(name: str, folder: pathlib.Path, unit: str, rule: str = "") -> dict[str, Any]:
    """What the template shows of a model.

    Args:
        name: of the stage.
        folder: with the published files.
        unit: the privacy unit in words.
        rule: how values of the label count, in words; empty where nobody says it.

    Raises:
        OSError: a file is there and cannot be read.
    """
    content, evaluation = _json(folder / "model.json"), _json(folder / "evaluation.json")
    with np.errstate(all="ignore"):
        return {
            "name": name,
            "model": True,
            "file": None,
            "files": sorted(path.name for path in folder.iterdir() if path.is_file()),
            "task": _task(content),
            "facts": [*([("Label", visible(rule, most=1000))] if rule else []), *_facts(content, unit)],
            "privacy": _privacy(content),
            "verdict": model_verdict.lines(evaluation, content, unit),
            "measures": _measures(evaluation),
            "examples": _shown(mapping(evaluation.get("examples"))),
            "chosen": _chosen(mapping(evaluation.get("chosen"))),
            "curves": _curves(evaluation),
            "confusion": _confusion(evaluation),
            "groups": group_table.group_table(evaluation, MEASURES),
            "learning": rounds_section.learning(content),
            "noise_by_round": rounds_section.noise_by_round(content),
            "rounds": rounds_section.of_rounds(content),
            "voted": votes_in_words.fitted_by(content) is not None,
            "weights": _weights(folder / "weights.csv"),
            "crossed": bool(sequence(mapping(content.get("encoder")).get("pairs"))),
            "features": feature_curves.curves(content, weights_file.read(folder / "weights.csv")),
        }


def _json(path: pathlib.Path) -> Mapping[str, Any]:
    if not path.exists():
        return {}
    try:
        return mapping(json.loads(path.read_bytes()))
    except (ValueError, RecursionError):
        return {}


def _task(content: Mapping[str, Any]) -> str:
    """What was learnt, in a sentence.

    >>> encoder = {"label": {"kind": "binary", "column": "returns"}, "features": {"a": {}, "b": {}}}
    >>> _task({"task": {"model": {"kind": "linear"}}, "encoder": encoder})
    'From 2 features of an example, a logistic regression predicts whether returns is true.'
    """
    encoder = mapping(content.get("encoder"))
    asked, count = mapping(encoder.get("label")), len(mapping(encoder.get("features")))
    kind, model = text(asked.get("kind")), mapping(mapping(content.get("task")).get("model"))
    if kind not in KINDS:
        return "A model."
    goal = KINDS[kind].format(
        column=label(text(asked.get("column"))),
        count=len(sequence(asked.get("classes"))),
        low=public_number(asked.get("min_value")),
        high=public_number(asked.get("max_value")),
    )
    what = MODELS.get(text(model.get("kind")), _own_code)(model, kind)
    return f"From {count} feature{'s' if count != 1 else ''} of an example, {what} predicts {goal}."


def _regression(model: Mapping[str, Any], label_kind: str) -> str:
    return REGRESSIONS[label_kind]


def _network(model: Mapping[str, Any], label_kind: str) -> str:
    hidden = [public_number(size) for size in sequence(model.get("hidden"))]
    layers = f"hidden layers of {', '.join(hidden)}" if len(hidden) > 1 else f"a hidden layer of {''.join(hidden)}"
    return f"a network with {layers}"


def _own_code(model: Mapping[str, Any], label_kind: str) -> str:
    return "a model of its owner’s own code"


MODELS: Mapping[str, Callable[[Mapping[str, Any], str], str]] = {"linear": _regression, "mlp": _network}
"""What a model of each kind is called, from what its file says of it and the kind of its label; `_own_code` for all others."""


def _facts(content: Mapping[str, Any], unit: str) -> list[tuple[str, str]]:
    task = mapping(content.get("task"))
    steps = mapping(task.get("steps"))
    found = []
    features = mapping(mapping(content.get("encoder")).get("features"))
    if features:
        found.append(
            ("Features", ", ".join(label(name) for name in list(features)[:40]) + (", …" if len(features) > 40 else ""))
        )
    pairs = [sequence(pair) for pair in sequence(mapping(content.get("encoder")).get("pairs"))]
    if pairs:
        shown = [" and ".join(label(text(name)) for name in pair[:2]) for pair in pairs[:20]]
        found.append(("Crossed", "; ".join(shown) + ("; …" if len(pairs) > 20 else "")))
    if (voted := votes_in_words.fitted_by(content)) is not None:
        found.append(("Fitted to", voted))
    elif (number := amount(steps.get("steps"))) is not None:
        rate = amount(steps.get("sampling_rate"))
        part = "all of the units" if rate == 1 else f"each unit with probability {public_number(rate)}"
        if amount(steps.get("separation")) is not None:
            part = "the units whose turn it is"
        what = "noisy gradient steps" if "method" not in steps else f"federated rounds ({text(steps.get('method'))})"
        found.append(("Fitted by", f"{public_number(number)} {what} over {part}{_taken(content)}"))
    if (clients := amount(task.get("expected_clients"))) is not None:
        seen = (
            "nobody sees" if steps.get("participation") == "hidden" else "others may see, which the plan charges for,"
        )
        part = f", and {seen} which take part"
        if (apart := amount(steps.get("separation"))) is not None:
            noise = ", with noise that is correlated" if steps.get("noise") == "correlated" and apart > 1 else ""
            part = f"; each is in one of {public_number(apart)} rounds, always the same one, by a hash of its id{noise}"
        words = f"one {unit} with its own rows; about {public_number(clients)} are expected{part}"
        found.append(("A client is", words))
    if (most := amount(task.get("max_examples_per_unit"))) is not None:
        found.append(("Each unit counts", f"at most {public_number(most)} examples of one {unit}"))
    if (part_out := amount(task.get("held_out"))) is not None:
        found.append(
            (
                "Held out",
                f"about {public_number(100 * part_out)}% of the units, chosen by a hash; the model never saw them",
            )
        )
        counted = amount(task.get("evaluation_examples"))
        once = task.get("weighting") == "units" or (task.get("weighting") is None and counted is None)
        words = f"each {unit} once, with one of its examples"
        if not once:
            each = "several" if counted is None else public_number(counted)
            words = f"examples, at most {each} of one {unit}: one with more of them counts more"
        found.append(("Counted in the evaluation", words))
    return found


def _taken(content: Mapping[str, Any]) -> str:
    """What was chosen of the steps, in words; nothing where the file does not say."""
    taken = mapping(content.get("taken"))
    rate, averaged = amount(taken.get("learning_rate")), amount(taken.get("averaged"))
    if rate is None or averaged is None:
        return ""
    return f", with learning rate {public_number(rate)}; the last {public_number(averaged)} are averaged"


def _privacy(content: Mapping[str, Any]) -> dict[str, Any]:
    said = mapping(content.get("privacy"))
    return {
        "unit": text(said.get("unit")),
        "epsilon": cost_number(said.get("epsilon")),
        "delta": cost_number(said.get("delta")),
        "plan": text(said.get("plan")),
        "not_covered": [text(item) for item in sequence(said.get("not_covered"))],
    }


def _chosen(chosen: Mapping[str, Any]) -> dict[str, str] | None:
    """Which of several candidates the model is, and what its measures are for that reason; None where none was chosen.

    >>> _chosen({"candidate": 2, "candidates": [{}, {"steps": 20}], "words": "slightly too good"})
    {'which': 'Candidate 2 of 2 (steps 20)', 'words': 'slightly too good'}
    """
    number, listed = amount(chosen.get("candidate")), mappings(chosen.get("candidates"))
    if number is None or number not in range(1, len(listed) + 1):
        return None
    settings = ", ".join(
        f"{label(text(name))} {public_number(value)}" for name, value in listed[int(number) - 1].items()
    )
    return {
        "which": f"Candidate {int(number)} of {len(listed)}" + (f" ({settings})" if settings else ""),
        "words": text(chosen.get("words")),
    }


def _shown(estimate: Mapping[str, Any]) -> str | None:
    """An estimate with the error bar of its noise, or None where there is no number."""
    value, noise = finite(estimate.get("value")), finite(estimate.get("noise_stddev"))
    noise = None if noise is None else noise + _hidden(estimate)
    return (
        None if value is None else with_error_bar(value, noise, grouped=True) if noise is not None else f"{value:.4g}"
    )


def _hidden(estimate: Mapping[str, Any]) -> float:
    """What bins hide of an estimate, as a part of its error bar, in the bar's standard deviations."""
    return (finite(estimate.get("hidden_by_bins")) or 0.0) / ERROR_BAR


def _measures(evaluation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the table of measures: first what needs no model, or less of one, then what the model has."""
    measures = {text(name): mapping(of) for name, of in mapping(evaluation.get("measures")).items()}
    rows = {name: _row(*_called(name), estimate) for name, estimate in measures.items()}
    feature = label(text(evaluation.get("best_feature")))
    beside = []
    for which, of in mapping(evaluation.get("baselines")).items():
        named, words = BASELINES.get(text(which), (f"of {label(text(which))}", ""))
        for name, estimate in mapping(of).items():
            shown = f"{_called(text(name))[0]} {named.replace('{feature}', feature)}"
            if _shown(mapping(estimate)) is not None and model_verdict.is_known(mapping(estimate)):
                beside.append(_row(shown, words, mapping(estimate)))
    return [
        *(rows[name] for name in FIRST if name in rows),
        *beside,
        *(row for name, row in rows.items() if name not in FIRST),
    ]


def _called(measure: str) -> tuple[str, str]:
    """Return what a measure is called, and what it means."""
    return MEASURES.get(measure, (label(measure), ""))


def _row(name: str, words: str, estimate: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the table of measures."""
    value, noise, sampling = (finite(estimate.get(key)) for key in ("value", "noise_stddev", "sampling_stddev"))
    parts = None
    if value is not None and sampling is not None:
        parts = error_bar_parts(value, math.hypot(noise or 0.0, sampling) + _hidden(estimate), grouped=True)
    return {"name": name, "words": words, "value": _shown(estimate), "both": None if parts is None else parts[1]}


def _curves(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The plots of the evaluation."""
    roc = [(mapping(point.get("false")), mapping(point.get("true"))) for point in mappings(evaluation.get("roc"))]
    auc = _shown(mapping(mapping(evaluation.get("measures")).get("auc")))
    ranks = None
    if auc is not None and roc:
        false, true = (finite_or_nan([pair[at].get("value") for pair in roc]) for at in (0, 1))
        bars = ERROR_BAR * finite_or_nan([pair[1].get("noise_stddev") for pair in roc])
        ranks = charts.ranks(false, true, bars, f"How the model ranks: AUC {auc}, from {len(roc)} thresholds")
    return {"ranks": ranks, "calibration": _calibration(evaluation), **_thresholds(evaluation)}


def _thresholds(evaluation: Mapping[str, Any]) -> dict[str, Chart | None]:
    """What is found above each threshold: how many of the true ones, and how many more than by chance."""
    points = mappings(evaluation.get("thresholds"))
    base = finite(mapping(mapping(evaluation.get("measures")).get("base_rate")).get("value"))
    found: dict[str, Chart | None] = {"precision": None, "lift": None}
    if not points or base is None or not 0 < base < 1:
        return found

    def of(name: str, key: str = "value") -> Floats:
        return finite_or_nan([mapping(point.get(name)).get(key) for point in points])

    precise, lifts = (ERROR_BAR * of(name, "noise_stddev") for name in ("precision", "lift"))
    if np.isfinite(of("precision") + of("recall")).any():
        title = "Precision by recall: " + _pairs(of("recall"), of("precision"))
        words = ("recall", "precision")
        found["precision"] = charts.curve(of("recall"), of("precision"), precise, base, (0.0, 1.0), words, title)
    most = of("lift")[np.isfinite(of("lift"))]
    if len(most):
        title = "Lift by part of the examples: " + _pairs(of("part"), of("lift"))
        bounds = (0.0, max(2.0, math.ceil(min(float(most.max()), LARGEST_LIFT))))
        words = ("part of the examples", "lift")
        found["lift"] = charts.curve(of("part"), of("lift"), lifts, 1.0, bounds, words, title)
    return found


def _pairs(across: Floats, up: Floats) -> str:
    return "; ".join(f"{a:.2g} {b:.3g}" for a, b in zip(across, up, strict=True) if math.isfinite(a + b))


def _calibration(evaluation: Mapping[str, Any]) -> Chart | None:
    points = mappings(evaluation.get("calibration"))
    if not points:
        return None
    seen = [mapping(point.get("observed")) for point in points]
    said, values = finite_or_nan([p.get("predicted") for p in points]), finite_or_nan([s.get("value") for s in seen])
    noise = finite_or_nan([s.get("noise_stddev") for s in seen])
    both = np.hypot(noise, np.nan_to_num(finite_or_nan([s.get("sampling_stddev") for s in seen])))
    shown, bounds = CELLS.get(text(evaluation.get("kind")), ShownCells()), (0.0, 1.0)
    if shown.of_values:
        edges = finite_or_nan(sequence(evaluation.get("edges")))
        if len(edges) < 2 or not np.isfinite(edges).all() or not edges[0] < edges[-1]:
            return None
        bounds = (float(edges[0]), float(edges[-1]))
    words = (shown.predicted, shown.observed)
    pairs = [f"{p:.2g} {with_error_bar(float(v), float(n))}" for p, v, n in zip(said, values, noise, strict=True)]
    title = f"Calibration: {words[1]} by {words[0]}: " + "; ".join(pairs)
    return charts.calibration(said, values, ERROR_BAR * noise, ERROR_BAR * both, bounds, words, title)


def _confusion(evaluation: Mapping[str, Any]) -> dict[str, Any] | None:
    shown = CELLS.get(text(evaluation.get("kind")), ShownCells())
    rows = [[_shown(mapping(cell)) for cell in sequence(row)] for row in sequence(evaluation.get("confusion"))]
    if not shown.tabled or not 2 <= len(rows) <= MOST_CLASSES or {len(row) for row in rows} != {len(rows)}:
        return None
    names = list(shown.classes) or [label(text(value)) for value in sequence(evaluation.get("classes"))]
    if len(names) != len(rows):
        return None
    return {"names": names, "rows": [{"name": name, "cells": row} for name, row in zip(names, rows, strict=True)]}


def _weights(path: pathlib.Path) -> dict[str, Any] | None:
    """The largest weights of a linear model; of several outputs a panel each."""
    table = weights_file.read(path)
    if table is None:
        return None
    names = [label(text(name)) for name in table.column(0).to_pylist()]
    weights = [name for name in table.column_names[1:] if not name.startswith("stddev")]
    panels: list[dict[str, Any]] = []
    several = len(weights) > 1
    most = min(MOST_WEIGHTS // 2 if several else MOST_WEIGHTS, table.num_rows - 1)
    known = True
    for column in weights[:MOST_CLASSES]:
        values, stddevs = (
            weights_file.numbers(table, column),
            weights_file.numbers(table, column.replace("weight", "stddev", 1)),
        )
        if values is None:
            return None
        known = known and stddevs is not None
        bars = np.zeros(len(values)) if stddevs is None else ERROR_BAR * stddevs
        # The first is the constant. Where noise is known, a weight within it is none that says anything.
        listed = 1 + np.argsort(-np.abs(values[1:]), kind="stable")
        chosen = listed[(np.abs(values) > bars)[listed]][:most]
        if not len(chosen):
            panels.append({"name": label(column) if several else "", "svg": None})
            continue
        called = [names[at] for at in chosen]
        notes = [
            f"{values[at]:.3g}" if stddevs is None else with_error_bar(values[at], float(stddevs[at])) for at in chosen
        ]
        title = f"The largest {column}: " + "; ".join(f"{a} {b}" for a, b in zip(called[:3], notes[:3], strict=True))
        svg = charts.bar_chart(called, values[chosen], bars[chosen], notes, label(title))
        panels.append({"name": label(column) if several else "", "svg": svg})
    return {"panels": panels, "count": table.num_rows, "shown": most, "file": path.name, "known": known}
