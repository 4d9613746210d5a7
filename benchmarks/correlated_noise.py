"""The benchmark of noise that is correlated over federated rounds, on the customers of Ta Feng.

In: examples/ta_feng/federated.yaml and the data of examples/ta_feng/fetch.py. Out: docs/benchmarks/correlated_noise.md; progress
on stderr; exit code 1 if correlated noise is worse than independent noise with the same participants. Holds: as for
`benchmarks/federate.py`, whose worlds and runs these are; independent and correlated noise meet the same budget with the same
clients in the same rounds. Not covered: what it saves a client that it is called up less often.

    python benchmarks/correlated_noise.py [--splits 3] [--out docs/benchmarks]
"""

import argparse
import dataclasses
import math
import pathlib
import sys
import tempfile
from collections.abc import Iterator

from federate import DELTA, JOB, PACKAGES, STAGE, World, mean, run, some, with_rounds, world_of
from measure import REPOSITORY, versions

from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.noise import correlation
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.planning.plan import Plan

SEPARATIONS = (2, 5, 10, 20, 40)
CUSTOMERS = (32_266, 3_000)
NOISES = ("independent", "correlated")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """Rounds of one form.

    Args:
        separation: how many rounds lie between two of one client; None: all clients are in each.
        noise: of the rounds.
        multiplier: what a round draws anew, over the clip norm.
        error: the root mean square error of the published models over that of rounds with all clients.
        areas: mean and standard deviation of the AUC, by the number of customers.
    """

    separation: int | None
    noise: str
    multiplier: float
    error: float
    areas: dict[int, tuple[float, float]]


def measured(world: World, splits: int) -> Iterator[Row]:
    """All rows."""
    worlds = {customers: some(world, customers) for customers in CUSTOMERS}
    for separation in (None, *SEPARATIONS):
        for noise in NOISES if separation is not None else NOISES[:1]:
            made = {at: with_rounds(of, separation=separation, noise=noise) for at, of in worlds.items()}
            name = f"{separation or 'all in each'}, {noise}"
            areas = {
                at: mean(f"{name}, {at:,} customers", splits, lambda number, of=of: run(of, 1.0, number))[:2]
                for at, of in made.items()
            }
            yield Row(
                separation=separation,
                noise=noise,
                multiplier=multiplier(made[CUSTOMERS[0]]),
                error=error(made[CUSTOMERS[0]]),
                areas=areas,
            )


def multiplier(world: World) -> float:
    """The noise that a round draws anew, over the clip norm."""
    plan = Plan(epsilon=1.0, delta=DELTA, stages={STAGE: world.task})
    return float(training_noise.multiplier(plan[STAGE]))


def error(world: World) -> float:
    """What a plan can say of the noise in the published models, over that of rounds with all clients."""
    rounds = world.task.steps
    chosen, apart = rounds.correlation, rounds.separation or 1
    found = correlation.error(rounds.steps, apart, rounds.momentum, () if chosen is None else chosen.coefficients)
    # A sum over fewer clients is divided by fewer.
    return apart * math.sqrt(found / correlation.error(rounds.steps, 1, rounds.momentum, ()))


def write(out: pathlib.Path, rows: list[Row], splits: int) -> None:
    """The page."""
    beside = {(row.separation, row.noise): row.error for row in rows}
    numbers = versions(pathlib.Path(sys.executable), PACKAGES)
    lines = [
        "# Noise that is correlated over federated rounds",
        "",
        "Written by `benchmarks/correlated_noise.py`; do not edit.",
        "",
        "The job is that of [federated rounds](federate.md): customers of Ta Feng are clients, 40 rounds, one (1, 1e-6) for",
        "everything. With `separation: b` a client is in one of b rounds, so that a round has a b-th of the clients, and a",
        "mean update of fewer clients has more noise. Error: of the noise in the published models, root mean square over the",
        "rounds, as `plan` computes it, over that of rounds with all clients; gain: of correlated over independent noise.",
        f"AUC: means over {splits} divisions of the customers, one release on each, with their standard deviation; exact, on",
        "all examples of the held-out customers.",
        "",
        "| a client is in | noise | drawn in a round, over the clip norm | error | gain | "
        + " | ".join(f"AUC, {customers:,} customers" for customers in CUSTOMERS)
        + " |",
        "|---|---|" + "---:|" * (3 + len(CUSTOMERS)),
    ]
    for row in rows:
        form = "each round" if row.separation is None else f"one of {row.separation} rounds"
        gain = "" if row.noise == NOISES[0] else f"{row.error / beside[row.separation, NOISES[0]]:.2f}"
        areas = " | ".join(f"{row.areas[at][0]:.4f} ± {row.areas[at][1]:.4f}" for at in CUSTOMERS)
        lines.append(f"| {form} | {row.noise} | {row.multiplier:.1f} | {row.error:.2f} | {gain} | {areas} |")
    lines += [
        "",
        "**So**: among rounds in which a client takes part only now and then, correlated noise is the better one, the more so",
        "the rarer a client comes. Where all clients can take part in each round, that is still the least noise: correlated",
        "noise wins most of the loss back, and not all of it. It is for clients that cannot be there in each round.",
        "",
        "Versions: " + ", ".join(f"{name} {number}" for name, number in numbers.items()),
    ]
    (out / "correlated_noise.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Correlated noise of federated rounds under one budget.")
    parser.add_argument("--splits", type=int, default=3, help="divisions of the customers (default 3)")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks", help="folder to write")
    options = parser.parse_args()
    request = check(job_file.load(str(JOB)), [])
    with tempfile.TemporaryDirectory() as folder:
        world = world_of(request, pathlib.Path(folder))
    rows = list(measured(world, options.splits))
    write(options.out, rows, options.splits)
    worse = 0
    for independent, correlated in zip(rows[1::2], rows[2::2], strict=True):
        for at in CUSTOMERS:
            one, other = independent.areas[at], correlated.areas[at]
            if other[0] < one[0] - 3 * max(one[1], other[1]):
                print(f"correlated noise is worse: {correlated}")
                worse += 1
    print(f"{len(rows)} forms of rounds")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
