"""How fast noise is drawn and how long its tables take to build, on one thread.

    python benchmarks/noise.py [--draws 4000000] [--rounds 5] [--check]

In: nothing. Out: a table on stdout: per law and scale the draws a second (median of the rounds, and the range), and
the time to build the tables of that law once (median of 3; a process builds them on its first draw). The words of the
operating system's generator are measured in the same rounds, interleaved, since they bound every sampler. With
`--check` the exit code is 1 if a gated scale stays below 20 million draws a second. Not covered: more than one thread.
"""

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction

from dp_pipelines.noise import FlooredLaplace, Law, RoundedGaussian, entropy, samplers

GATE = 20.0
GATED: list[Law] = [
    *(RoundedGaussian(Fraction(s)) for s in (1024, 4096)),
    *(FlooredLaplace(Fraction(t)) for t in (256, 1024, 4096)),
]
OTHERS: list[Law] = [
    *(RoundedGaussian(Fraction(s)) for s in (1, 64, 2**14)),
    *(FlooredLaplace(Fraction(t)) for t in (1, 64, 100_000, 2**20)),
]


def seconds(work: Callable[[], object]) -> float:
    """The time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def all_words(n: int) -> None:
    """As many words as n draws take, in the chunks of the samplers."""
    for start in range(0, n, samplers.CHUNK):
        entropy.words(min(samplers.CHUNK, n - start))


def main() -> int:
    """Measures, prints, and returns the exit code."""
    parser = argparse.ArgumentParser(description="How fast noise is drawn, on one thread.")
    parser.add_argument("--draws", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="exit code 1 if a gated scale is too slow")
    options = parser.parse_args()

    laws = sorted([*GATED, *OTHERS], key=lambda law: (type(law).__name__, law.scale))
    builds = {
        law: statistics.median(seconds(functools.partial(samplers.lay_out, law)) for _ in range(3)) for law in laws
    }
    for law in laws:
        samplers.Sampler(law).draw(1)
    speeds: dict[Law | None, list[float]] = {law: [] for law in [None, *laws]}
    for _ in range(options.rounds):
        speeds[None].append(options.draws / seconds(lambda: all_words(options.draws)) / 1e6)
        for law in laws:
            draw = functools.partial(samplers.Sampler(law).draw, options.draws)
            speeds[law].append(options.draws / seconds(draw) / 1e6)

    print(f"{options.draws:,} draws, median of {options.rounds} rounds (slowest - fastest), one thread\n")
    print("| law | scale | M draws/s | range | tables built in | gate |")
    print("|---|---:|---:|---:|---:|---|")
    slow = 0
    for key, measured in speeds.items():
        median = statistics.median(measured)
        rate = f"{median:.1f} | {min(measured):.1f} - {max(measured):.1f}"
        if key is None:
            print(f"| (words of the operating system) | | {rate} | | |")
            continue
        verdict = "" if key not in GATED else f"{'met' if median >= GATE else 'MISSED'} (>= {GATE:g})"
        slow += key in GATED and median < GATE
        print(f"| {type(key).__name__} | {key.scale} | {rate} | {builds[key] * 1e3:.0f} ms | {verdict} |")
    return 1 if options.check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
