"""The benchmark of the two medians of sample and aggregate: the choice by ranks beside noise by smooth sensitivity.

In: made-up results of blocks, close together and spread wide. Out: docs/benchmarks/block_median.md; progress on stderr. Holds:
both get the same results and the same budget, and release by the library's own code; errors are root mean squares of what is
published less the median of the results, in parts of the range.

    python benchmarks/block_median.py [--runs 200] [--out docs/benchmarks]
"""

import argparse
import math
import pathlib
import sys
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from measure import REPOSITORY, say, versions

import dp_pipelines as dp
from dp_pipelines.extensions.sample_and_aggregate.blocks import BLOCKS, OUTPUT
from dp_pipelines.kernels import accumulate, contributions
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release.draw import draw_release

DELTA = 1e-6
NUMBERS = (51, 201, 1001, 5001)
EPSILONS = (1.0, 4.0)
METHODS = ("ranks", "smooth_sensitivity")
Floats = npt.NDArray[np.float64]


def some_fail(random: np.random.Generator, size: int) -> Floats:
    """Four blocks of ten give the default, at the end of the range."""
    return np.where(random.random(size) < 0.4, 0.0, random.normal(0.6, 0.01, size))


RESULTS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "all within 0.0001": lambda random, size: random.uniform(0.6, 0.6001, size),
    "normal, 0.001": lambda random, size: random.normal(0.6, 0.001, size),
    "normal, 0.02": lambda random, size: random.normal(0.6, 0.02, size),
    "normal, 0.2": lambda random, size: random.normal(0.6, 0.2, size),
    "Cauchy, 0.02": lambda random, size: 0.6 + 0.02 * random.standard_cauchy(size),
    "4 of 10 fail": some_fail,
    "two ends": lambda random, size: random.integers(0, 2, size).astype(np.float64),
}


def stage_of(method: str, number: int, epsilon: float) -> tuple[dp.Blocks, StagePlan]:
    """Blocks over the range from 0 to 1, and their stage."""
    blocks = dp.Blocks(
        privacy_unit="unit",
        blocks=number,
        low=0.0,
        high=1.0,
        default=0.0,
        aggregate="median",
        method=method,  # type: ignore[arg-type]
    )
    return blocks, dp.Plan(epsilon=epsilon, delta=DELTA, stages={"s": blocks.query})["s"]


def published(blocks: dp.Blocks, stage: StagePlan, results: Floats) -> float:
    """What one run publishes."""
    size = len(results)
    counted = [blocks.result(value) for value in results.tolist()]
    rows = pa.table({"unit": pa.array(range(size)), BLOCKS: pa.array([size] * size), OUTPUT: counted})
    wire = contributions.reduce(stage.layout.wire(rows), stage.layout, 1)
    partial = accumulate.by_public_index(accumulate.partials(wire, stage.layout, stage.statistics, 1), stage.layout)
    totals = accumulate.merge_public([partial], stage.layout, stage.statistics, 0, 1)
    return float(draw_release(totals, stage)["value"][0].as_py())


def lines(runs: int) -> Iterator[tuple[str, ...]]:
    """Rows of the table."""
    for name, law in RESULTS.items():
        for epsilon in EPSILONS:
            for number in NUMBERS:
                say(f"{name}, {epsilon}, {number}")
                stages = [stage_of(method, number, epsilon) for method in METHODS]
                squares, random = np.zeros(2), np.random.default_rng(11)
                # Long lists of results take long, and vary less.
                times = max(30, runs if number < 1000 else runs // 4)
                for _ in range(times):
                    results = np.clip(law(random, number), 0, 1)
                    truth = float(np.median(results))
                    squares += [(published(blocks, stage, results) - truth) ** 2 for blocks, stage in stages]
                ranks, smooth = np.sqrt(squares / times).tolist()
                mean = math.sqrt(2) / (number * epsilon)
                better = "ranks" if ranks < smooth / 1.1 else "smooth" if smooth < ranks / 1.1 else "-"
                yield name, str(epsilon), str(number), f"{ranks:.3g}", f"{smooth:.3g}", better, f"{mean:.2g}"


def main() -> int:
    """Measure, write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks")
    given = parser.parse_args()
    page = [
        "# Two medians of the results of blocks",
        "",
        f"Root mean squared errors against the median of the results, as fractions of the range, at delta {DELTA:g}, over at",
        f"least {max(30, given.runs // 4)} runs each. Ranks choose among 1,000 steps of the range, so they are off by about",
        "0.0003 even without noise. The last column is the noise of a mean of the same blocks. Where results are skewed, the",
        "mean is a different number from the median.",
        "",
        "| results of blocks | epsilon | blocks | ranks | smooth sensitivity | better by 10% | noise of a mean |",
        "|---|---|---|---|---|---|---|",
    ]
    page += [f"| {' | '.join(row)} |" for row in lines(given.runs)]
    used = versions(pathlib.Path(sys.executable), ["dp-pipelines", "numpy", "pyarrow"])
    told = ", ".join(f"{name} {version}" for name, version in used.items())
    page += ["", f"Made by `python benchmarks/block_median.py` ({told})."]
    (given.out / "block_median.md").write_text("\n".join(page) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
