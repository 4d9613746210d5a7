"""The benchmark of reports under local differential privacy: errors beside their closed forms, speed, and a peer.

In: simulated devices. Out: docs/benchmarks/collected.md; progress on stderr; exit code 1 if a gate fails. Holds: variances are
those of estimates from 4 million reports of each mechanism; biases are in standard errors; both libraries are measured in one
run, by CPU seconds of one thread. Not covered: how reports reach a server.

    python benchmarks/collected.py [--reports 4000000] [--out docs/benchmarks]
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import time

import numpy as np
from gates import Gate, gates_table
from measure import REPOSITORY, say, versions

sys.path.insert(0, str(REPOSITORY))
from dp_pipelines.collect.domain import Choices, NumberGrid
from dp_pipelines.collect.question import FOR_CHOICES, FOR_NUMBERS, Question
from dp_pipelines.collected.estimates import estimator_of
from dp_pipelines.collected.support import support_of
from tests.collected.devices import coins_of, reports_of

SIZE = 32
BATCH = 2_000
"""Reports of one collection: the variance over many small collections is that of the estimates."""

PEER = REPOSITORY / ".venv-pure-ldp" / "bin" / "python"
PEER_PEOPLE, PEER_RUNS = 4_000, 25


def question(mechanism: str, size: int = SIZE) -> Question:
    """A question at epsilon 1."""
    domain = Choices(tuple(range(size))) if mechanism in FOR_CHOICES else NumberGrid(0, 1)
    return Question("asked", domain, epsilon=1, mechanism=mechanism)


def law(mechanism: str, reports: int) -> tuple[float, float]:
    """The variance of estimates as a ratio to the closed form, and the largest bias in standard errors."""
    asked = question(mechanism)
    people = np.arange(BATCH) % SIZE if mechanism in FOR_CHOICES else np.full(BATCH, asked.domain.size // 3)
    truth = np.bincount(people, minlength=SIZE) if mechanism in FOR_CHOICES else np.array([people[0] / 1024])
    chance, support, estimator = np.random.default_rng(1), support_of(asked), estimator_of(asked)
    found = []
    for _ in range(reports // BATCH):
        sent = reports_of(asked.randomizer, people, coins_of(asked.randomizer, BATCH, chance))
        found.append(estimator.estimates(support.count(sent)))
    errors = np.array([one.values for one in found]) - truth
    expected = estimator.expected_deviation(BATCH, truth[0] / BATCH if mechanism in FOR_CHOICES else float(truth[0]))
    # Errors of the values of one collection depend on each other: squares are pooled, biases are taken value by value.
    bias = np.abs(errors.mean(axis=0)) / (errors.std(axis=0, ddof=1) / math.sqrt(len(errors)))
    return float((errors**2).mean() / expected**2), float(bias.max())


def speed(mechanism: str, size: int, reports: int) -> float:
    """Million reports that one thread counts a second of CPU; for local hashing, million tests of a value."""
    asked = question(mechanism, size)
    chance = np.random.default_rng(2)
    sent = reports_of(asked.randomizer, np.arange(reports) % size, coins_of(asked.randomizer, reports, chance))
    support = support_of(asked)
    support.count(sent[:1000])
    rounds = []
    for _ in range(5):
        start = time.process_time()
        support.count(sent)
        rounds.append(time.process_time() - start)
    return reports * (size if mechanism == "local_hashing" else 1) / sorted(rounds)[2] / 1e6


def ours(mechanism: str) -> tuple[float, float]:
    """CPU seconds of the server for each report, and the root mean square error, as the peer's script measures them."""
    asked = question(mechanism)
    people = np.arange(PEER_PEOPLE) % SIZE
    truth = np.bincount(people, minlength=SIZE)
    chance, support, estimator = np.random.default_rng(3), support_of(asked), estimator_of(asked)
    squares = []
    for _ in range(1_000):
        sent = reports_of(asked.randomizer, people, coins_of(asked.randomizer, PEER_PEOPLE, chance))
        squares.append(((estimator.estimates(support.count(sent)).values - truth) ** 2).mean())
    many = np.tile(sent, (250, 1))
    start = time.process_time()
    support.count(many)
    return (time.process_time() - start) / len(many), math.sqrt(float(np.mean(squares)))


def peer(mechanism: str) -> tuple[float, float]:
    """The same of pure-ldp."""
    script = REPOSITORY / "benchmarks" / "peers" / "pure_ldp_reports.py"
    command = [PEER, script, mechanism, "1.0", SIZE, PEER_PEOPLE, PEER_RUNS]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    return found["seconds"], found["error"]


def main() -> int:
    """Measure, write the page, judge."""
    parser = argparse.ArgumentParser(description="Errors and speed of reports under local differential privacy.")
    parser.add_argument("--reports", type=int, default=4_000_000)
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks")
    options = parser.parse_args()
    gates = []
    laws = ["| mechanism | variance / closed form | largest bias, standard errors |", "|---|---:|---:|"]
    for mechanism in (*FOR_CHOICES, *FOR_NUMBERS):
        say(f"law of {mechanism}")
        ratio, bias = law(mechanism, options.reports)
        laws.append(f"| `{mechanism}` | {ratio:.3f} | {bias:.1f} |")
        gates += [
            Gate(name=f"{mechanism}: variance off the closed form", figure=100 * abs(ratio - 1), limit=3, unit="%"),
            Gate(name=f"{mechanism}: bias", figure=bias, limit=7, unit=" errors"),
        ]
    speeds = ["| mechanism | values | million a second |", "|---|---:|---:|"]
    for mechanism, size, what in (
        ("d_ary", 32, "reports"),
        ("hadamard", 1000, "reports"),
        ("unary", 32, "reports"),
        ("local_hashing", 1000, "tests of a value"),
    ):
        say(f"speed of {mechanism}")
        rate = speed(mechanism, size, 1_000_000 if mechanism != "local_hashing" else 100_000)
        speeds.append(f"| `{mechanism}` | {size:,} | {rate:,.0f} {what} |")
        if mechanism != "unary":
            gates.append(
                Gate(name=f"{mechanism}: million {what} a second", figure=rate, limit=20, at_least=True, unit="")
            )
    peers = [
        "| mechanism | error, pure-ldp | error, here | CPU a report, pure-ldp | here | times as fast |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for mechanism in ("d_ary", "unary", "local_hashing"):
        say(f"pure-ldp: {mechanism}")
        (theirs, their_error), (own, own_error) = peer(mechanism), ours(mechanism)
        peers.append(
            f"| `{mechanism}` | {their_error:.1f} | {own_error:.1f} | {theirs * 1e6:.2f} µs | {own * 1e6:.3f} µs "
            f"| {theirs / own:,.0f} |"
        )
        gates.append(Gate(name=f"{mechanism}: times as fast as pure-ldp", figure=theirs / own, limit=20, at_least=True))
    on = ", ".join(f"{name} {version}" for name, version in versions(pathlib.Path(sys.executable), ["numpy"]).items())
    text = f"""# Reports under local differential privacy

Made by `make bench-collected`. {options.reports:,} reports of each mechanism at epsilon 1, one thread; {on}.

{chr(10).join(laws)}

The variance is that of the estimated number of people with a value ({SIZE} values, as many people with each), or of a mean,
over collections of {BATCH:,} people, divided by the closed form that `expected_deviation` prints.

## Speed of a server, one thread

{chr(10).join(speeds)}

## Beside pure-ldp 1.2.0

{SIZE} values, {PEER_PEOPLE:,} people a collection: {PEER_RUNS} collections with pure-ldp (its errors are good to some 3%),
1,000 here.

{chr(10).join(peers)}

## Gates

{gates_table(gates)}
"""
    (options.out / "collected.md").write_text(text)
    print(text)
    return 0 if all(gate.holds for gate in gates) else 1


if __name__ == "__main__":
    sys.exit(main())
