"""The tuning report: the errors and costs of each configuration, their causes, and the recommendation. PRIVATE, like raw rows.

In: results, the grid in words, a goal and its recommendation, where the rows came from. Out: an HTML document which,
like all our pages (`report.pages`), fetches nothing. Holds: a private page says so at the top, in its title and at its
end. Not covered: keeping it private.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.extensions.tune.goal import MEASURES, Goal, Recommendation, Results, Wish, of_sums, parts
from dp_pipelines.extensions.tune.predicted_errors import HARDLY_EVER
from dp_pipelines.extensions.tune.tally import SUMS
from dp_pipelines.report import charts
from dp_pipelines.report.axes import PlaceAxis, fitting
from dp_pipelines.report.chart import Chart
from dp_pipelines.report.numbers import public_number, tick_number
from dp_pipelines.report.pages import document
from dp_pipelines.report.svg import HEAT_STEPS
from dp_pipelines.steps.unbounded_rows import SIZES

Setting = Mapping[str, Any]

MOST_SHOWN = 40
"""Configurations in the table; the file of errors holds all."""

BOUNDS = ("bounds.max_partitions_contributed", "bounds.max_contributions_per_partition")
EPSILON = "budget.epsilon"

BEYOND = 1e300
"""Numbers from here upwards are not drawn: a drawing needs room above its largest."""

PART_WORDS = {
    "partitions": "partitions dropped",
    "rows": "rows dropped",
    "clipping": "values clipped",
    "selection": "selection bias",
    "choice": "sampling",
    "noise": "noise",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedPage:
    """What a page shows.

    Args:
        title: the dataset.
        stage: which was tuned.
        settings: for each configuration, the value of each path that the grid varies.
        own: the number of the unchanged job.
        results, goal, recommendation: see `goal`.
        private: whether it was made from the raw rows, not from a public sample or without rows.
        left_out: metrics without predictions.
        assumed: the assumptions about synthetic rows; empty if rows were read.
    """

    title: str
    stage: str
    settings: Sequence[Setting]
    own: int
    results: Results
    goal: Goal
    recommendation: Recommendation
    private: bool
    left_out: Sequence[str] = ()
    assumed: Sequence[str] = ()


def render(tuned: TunedPage) -> str:
    """The page."""
    results, best = tuned.results, tuned.recommendation.number
    measured = results.measure(tuned.goal.minimized)
    # Configurations with another epsilon cannot be compared with the recommended one, so they come last.
    other = np.array([setting.get(EPSILON) != tuned.settings[best].get(EPSILON) for setting in tuned.settings])
    order = np.lexsort((np.nan_to_num(measured, nan=np.inf), other)).tolist()
    shown = list(dict.fromkeys([best, tuned.own, *order]))[:MOST_SHOWN]
    shown.sort(key=order.index)
    paths = list(tuned.settings[0])
    return document(
        "tune.html.j2",
        package="dp_pipelines.extensions.tune",
        title=tuned.title,
        stage=tuned.stage,
        private=tuned.private,
        count=len(tuned.settings),
        goal=tuned.goal.words,
        measures=[(name, words) for name, words in MEASURES.items()],
        reached=tuned.recommendation.reached,
        left_out=list(tuned.left_out),
        assumed=list(tuned.assumed),
        paths=paths,
        chosen=[(path, str(tuned.settings[best][path]), str(tuned.settings[tuned.own][path])) for path in paths],
        metrics=results.metrics,
        configurations=[_row(tuned, number, measured) for number in shown],
        parts=[_parts(tuned, metric) for metric in range(len(results.metrics))],
        sizes=[_sizes(tuned, metric) for metric in range(len(results.metrics))],
        plots=list(_plots(tuned)),
    )


def _row(tuned: TunedPage, number: int, measured: NDArray[np.float64]) -> dict[str, Any]:
    results = tuned.results
    marks = [
        word
        for word, is_it in (("recommended", number == tuned.recommendation.number), ("the job", number == tuned.own))
        if is_it
    ]
    return {
        "mark": ", ".join(marks),
        "values": [str(value) for value in tuned.settings[number].values()],
        "measure": _number(measured[number]),
        "lost": _percent(results.measure(Wish(measure="lost"))[number]),
        "lost_rows": _percent(results.measure(Wish(measure="lost_rows"))[number]),
        "errors": [
            (_number(results.of_metrics("error")[number, metric]), _percent(results.of_metrics("relative_error")[number, metric]))
            for metric in range(len(results.metrics))
        ],
    }  # fmt: skip


def _parts(tuned: TunedPage, metric: int) -> dict[str, Any]:
    """The parts of a metric's error, in the recommended configuration and in the unchanged job."""
    rows = []
    for number, words in ((tuned.recommendation.number, "recommended"), (tuned.own, "the job")):
        absolute, relative = (tuned.results.parts(number, metric, kind) for kind in (False, True))
        whole = tuned.results.of_metrics("error")[number, metric]
        rows.append(
            {
                "words": words,
                "whole": _number(whole),
                "parts": [(_number(absolute[name]), _percent(relative[name])) for name in PART_WORDS],
            }
        )
    return {"metric": tuned.results.metrics[metric], "names": list(PART_WORDS.values()), "rows": rows}


def _sizes(tuned: TunedPage, metric: int) -> dict[str, Any]:
    """The errors of a metric by size of partition, in the recommended configuration."""
    table = tuned.results.sizes(tuned.recommendation.number, metric)
    rows = []
    for place in range(table.num_rows):
        sums = {name: np.float64(table[name][place].as_py()) for name in SUMS}
        # The error of a partition that is hardly ever released is not worth integrating (`errors.HARDLY_EVER`).
        seen = sums["kept"] > HARDLY_EVER * sums["partitions"]
        of_parts = parts(sums, True) if seen else dict.fromkeys(PART_WORDS, math.nan)
        rows.append(
            {
                "users": _size(table["size"][place].as_py()),
                "partitions": _number(sums["partitions"]),
                "kept": _percent(sums["kept"] / sums["partitions"]),
                "error": _number(float(of_sums(sums, "error")) if seen else math.nan),
                "relative": _percent(float(of_sums(sums, "relative_error")) if seen else math.nan),
                "parts": [_percent(of_parts[name]) for name in PART_WORDS],
            }
        )
    return {"metric": tuned.results.metrics[metric], "names": list(PART_WORDS.values()), "rows": rows}


def _size(bucket: int) -> str:
    if bucket == 0:
        return "none"
    low = 1 if bucket == 1 else math.ceil(SIZES[bucket - 2])
    return f"{low:,} to {math.ceil(SIZES[bucket - 1]) - 1:,}" if bucket <= len(SIZES) else f"{low:,} and more"


def _plots(tuned: TunedPage) -> Any:
    """Privacy against utility, clipping against error, and the two bounds against each other, if the grid varies them."""
    results, goal, best = tuned.results, tuned.goal, tuned.settings[tuned.recommendation.number]
    measured = results.measure(goal.minimized)
    what = goal.minimized.words.removeprefix("minimize ")
    paths = list(best)
    if EPSILON in paths:
        values, found = _best_by(tuned, EPSILON, measured, {})
        if len(values) > 1:
            yield (
                "Privacy against utility",
                f"{what} of the best configuration at each epsilon",
                _curve(values, found, what),
            )
    for path in paths:
        if path.startswith("metrics.") and path.rpartition(".")[2].startswith(("min_", "max_")):
            name = path.removeprefix("metrics.").rpartition(".")[0]
            if name in results.metrics:
                error = results.measure(Wish(measure="relative_error", metric=name))
                together = [p for p in paths if all(s[p] == s[path] for s in tuned.settings)]
                values, found = _best_by(tuned, path, error, {p: best[p] for p in paths if p not in together})
                if len(values) > 1:
                    words = f"relative error of {name} by {path}, everything else as recommended"
                    yield f"Clipping against error: {name}", words, _curve(values, found, f"relative error of {name}")
    if all(path in paths for path in BOUNDS):
        cells = _cells(tuned, measured)
        if cells:  # there is nothing to show without rows, or if all numbers are zero
            yield (
                "The two bounds",
                f"{what} by both contribution bounds: darker is larger; the recommendation is hatched",
                _heat(tuned, cells),
            )


def _best_by(
    tuned: TunedPage, path: str, measured: NDArray[np.float64], fixed: Mapping[str, Any]
) -> tuple[list[Any], list[float]]:
    """For each value of a path the least of a measure, among configurations with fixed values elsewhere."""
    found: dict[Any, float] = {}
    for setting, number in zip(tuned.settings, measured.tolist(), strict=True):
        same = all(setting[name] == value for name, value in fixed.items())
        if same and isinstance(setting[path], int | float) and number < BEYOND:
            found[setting[path]] = min(number, found.get(setting[path], math.inf))
    values = sorted(found)
    return values, [found[value] for value in values]


def _curve(values: Sequence[Any], found: Sequence[float], title: str) -> Chart:
    """Evenly spaced points, joined by lines, with the values below them."""
    texts = {float(place): fitting(tick_number(value), 9) for place, value in enumerate(values)}
    across = PlaceAxis(bounds=(-0.3, len(values) - 0.7), texts=texts)
    return charts.joined_series(list(enumerate(found)), (0.0, max(found) * 1.08 or 1.0), across, title)


def _cells(tuned: TunedPage, measured: NDArray[np.float64]) -> dict[tuple[Any, Any], float]:
    """The measure for each pair of bounds, everything else as recommended."""
    best = tuned.settings[tuned.recommendation.number]
    others = {path: best[path] for path in best if path not in BOUNDS}
    return {
        (setting[BOUNDS[0]], setting[BOUNDS[1]]): number
        for setting, number in zip(tuned.settings, measured.tolist(), strict=True)
        if all(setting[path] == value for path, value in others.items()) and number < BEYOND
    }


def _heat(tuned: TunedPage, cells: Mapping[tuple[Any, Any], float]) -> Chart:
    """The measure for each pair of bounds, in shades."""
    best = tuned.settings[tuned.recommendation.number]
    rows, columns = (sorted({cell[side] for cell in cells}) for side in (1, 0))
    numbers = np.array([[cells.get((k, m), np.nan) for k in columns] for m in rows], np.float64)
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    shades = (numbers - low) / (high - low if high > low else 1.0) * (HEAT_STEPS - 1)
    steps = np.where(np.isnan(numbers), -1, np.rint(np.nan_to_num(shades))).astype(np.int64)
    chosen = np.array([[(k, m) == (best[BOUNDS[0]], best[BOUNDS[1]]) for k in columns] for m in rows])
    return charts.heat_map(
        [f"{m} rows each" for m in rows], [f"{k} partitions" for k in columns], steps, chosen, "the two bounds"
    )


def _number(value: float) -> str:
    return public_number(float(f"{value:.3g}")) if math.isfinite(value) else "–"


def _percent(value: float) -> str:
    return f"{100 * value:.3g}%" if math.isfinite(value) else "–"
