"""How often intervals of quotients hold the truth, among the releases that show a number, by the size of the divisor.

In: true numerators and divisors in deviations of the divisor's noise. Out: for each cut-off the part of releases that show a
number, and the part of these whose interval holds the truth. Holds: 2,000 releases of each, or as many as are asked for; the
function that makes published intervals; seeded. Not covered: real rows.

    .venv/bin/python benchmarks/ratios.py [--releases 2000]
"""

import argparse

import numpy as np

from dp_pipelines.metrics.error_bars import ERROR_BAR
from dp_pipelines.report.derived import formula, intervals
from dp_pipelines.report.derived.part_noise import PartNoise

DIVISORS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0)
"""True divisors, in deviations of their noise."""

QUOTIENTS = {"numerator without noise": (1.0, 1e-6), "as much in both": (1.0, 1.0), "quotient 0.1": (0.1, 1.0)}
"""By name: the true quotient, and the deviation of the numerator's noise."""

CUT_OFFS = (ERROR_BAR, 3.0, 4.0)
"""From how many deviations of a released divisor on a number is shown. The first one is that of published intervals."""


def covered(
    quotient: float, stddev: float, divisor: float, law: str, releases: int
) -> dict[float, tuple[float, float]]:
    """Return by cut-off the part of releases that show a number, and the part of these whose interval holds the truth.

    Args:
        quotient: the true one.
        stddev: of the numerator's noise; that of the divisor is 1.
        divisor: the true one, which is known not to be below zero.
        law: of both noises.
        releases: how many are drawn.
    """
    random = np.random.default_rng(43)
    draw = random.normal if law == "gaussian" else random.laplace
    noise = draw(size=(2, releases)) / (1.0 if law == "gaussian" else np.sqrt(2))
    values = {"a": quotient * divisor + stddev * noise[0], "b": divisor + noise[1]}
    stddevs = {"a": np.full(releases, stddev), "b": np.ones(releases)}
    of_both = PartNoise(laws=(law, law), shares=np.eye(2))
    _, (low, high) = intervals.interval_of(formula.read("a / b"), values, stddevs, of_both)
    found = {}
    for cut_off in CUT_OFFS:
        shown = np.isfinite(low) & (values["b"] > (0 if cut_off == ERROR_BAR else cut_off))
        inside = (low <= quotient) & (quotient <= high)
        found[cut_off] = float(shown.mean()), float(inside[shown].mean()) if shown.any() else float("nan")
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=2_000)
    releases = parser.parse_args().releases
    heading = "".join(f"   cut-off {cut_off:.2f}" for cut_off in CUT_OFFS)
    print(f"{'law':10s}{'case':26s}{'divisor':>8s}{heading}   (shown, of these right)")
    for law in ("gaussian", "laplace"):
        for name, (quotient, stddev) in QUOTIENTS.items():
            for divisor in DIVISORS:
                found = covered(quotient, stddev, divisor, law, releases)
                cells = "".join(f"   {shown:6.3f} {right:5.3f}" for shown, right in found.values())
                print(f"{law:10s}{name:26s}{divisor:8.1f}{cells}", flush=True)


if __name__ == "__main__":
    main()
