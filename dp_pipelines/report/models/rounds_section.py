"""What a model's page draws of its training: the lengths of what was released in each step or round, and the noise of rounds.

In: the content of `model.json`; any part of it may be missing or odd. Out: plots. Holds: nothing but released numbers and public
facts; no content makes it raise. Not covered: the figures of the evaluation (`report.model_section`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dp_pipelines.report import charts
from dp_pipelines.report.chart import Chart
from dp_pipelines.report.pages import mapping, sequence
from dp_pipelines.report.svg import finite_or_nan


def learning(content: Mapping[str, Any]) -> Chart | None:
    """The norms of the released gradients or updates."""
    norms = finite_or_nan(sequence(mapping(content.get("path")).get("gradient_norm")))
    norms = norms[:100_000]
    if not np.isfinite(norms).any():
        return None
    known = norms[np.isfinite(norms)]
    what, steps = ("noisy mean update", "rounds") if of_rounds(content) else ("noisy gradient", "steps")
    title = f"Norm of the {what} over {len(norms)} {steps}: {known[0]:.3g} at first, {known[-1]:.3g} at last"
    if len(norms) > 600:  # as many points as can be seen
        norms = norms[np.linspace(0, len(norms) - 1, 600).astype(np.int64)]
        title += ", some of them drawn"
    return charts.learning(norms, title)


def of_rounds(content: Mapping[str, Any]) -> bool:
    """Whether clients trained the model, in federated rounds."""
    return "method" in mapping(mapping(content.get("task")).get("steps"))


def noise_by_round(content: Mapping[str, Any]) -> Chart | None:
    """The noise of each round, where it differs."""
    noise = finite_or_nan(sequence(mapping(content.get("path")).get("noise_multiplier")))[:1000]
    if not np.isfinite(noise).all() or len(set(noise.tolist())) < 2:
        return None
    title = f"Noise over the clip norm in {len(noise)} rounds: {noise[0]:.3g} at first, {noise[-1]:.3g} at last"
    return charts.learning(noise, title)
