"""What sums cost that nobody sees in parts, and a regression over encrypted rows, over shares and with noise.

In: made-up numbers. Out: docs/benchmarks/secure_sums.md and its plot; progress on stderr; exit code 1 if a sum is wrong. Holds:
seconds are CPU seconds of one client, bytes are what one client sends; Paillier is measured on 200 numbers and multiplied up,
which the table says. Not covered: networks, of which no time is in these figures; parties that do not follow the protocol.

    python benchmarks/secure_sums.py [--out docs/benchmarks]
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time
from fractions import Fraction
from typing import Any

import matplotlib
import numpy as np
from measure import REPOSITORY, say, versions

matplotlib.use("Agg")
from matplotlib import pyplot as plt

sys.path.insert(0, str(REPOSITORY))
from dp_pipelines.accounting.accountant import epsilon_of_rounds
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.noise.laws import RoundedGaussian
from dp_pipelines.noise.samplers import Sampler

PEERS = REPOSITORY / "benchmarks" / "peers"
PYTHON = REPOSITORY / ".venv-secure-sums" / "bin" / "python"
SIZES = (10_000, 1_000_000)
WAYS = {
    "plain": "plain, 8 bytes a number",
    "secagg": "SecAgg+ (Flower), 20 clients, 3 drop out",
    "shares": "Shamir's shares (MPyC), 3 parties",
    "ckks": "CKKS (tenseal), 8192 coefficients",
    "paillier": "Paillier (phe), 2048 bits",
}
PACKAGES = ("flwr", "mpyc", "phe", "tenseal", "numpy")
PORT = 23_550

INTRODUCTION = (
    "Written by `benchmarks/secure_sums.py` (`make bench-secure-sums`). Each client has whole numbers below 2^21. Bytes are",
    "what one client sends; seconds are CPU seconds of its process on a machine that others used too. All processes were on",
    "one machine: no time of a network is in here. [Which way protects what](../secure_sums.md) is on a page of its own.",
)

PACKING = (
    "Paillier has one number in each ciphertext here, as `phe` does; packing some thirty into one would divide its row by",
    "that.",
)

REGRESSION = (
    "4,096 rows of four features, within [-1, 1]. CKKS: the columns are encrypted, a server multiplies ciphertexts, whoever",
    "has the key opens 21 second moments and solves; most of the bytes are the keys that rotations need, sent once. Shares:",
    "one party shares its rows, three multiply and open the same moments. Both open exact moments, which protect nobody in",
    "them. Noise: the owner of the rows adds noise to the moments, in the clear (the median error of 101 draws).",
)


def asked(script: str, *arguments: object) -> dict[str, Any]:
    """What a script of the other environment measures."""
    say(f"{script} {' '.join(map(str, arguments))}")
    command = [PYTHON, PEERS / script, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=3600)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def plain(n: int) -> dict[str, float]:
    """The numbers as they are."""
    numbers = np.random.default_rng(7).integers(-(2**20), 2**20, n)
    begin = time.process_time()
    sent = numbers.tobytes()
    return {"bytes": len(sent), "seconds": time.process_time() - begin, "error": 0.0}


def cost(way: str, n: int) -> dict[str, Any]:
    """What a client pays for a sum of so many numbers."""
    if way == "plain":
        return plain(n)
    if way == "shares":
        return asked("share_sums.py", "sum", n, "-M3", "--no-log", "-B", PORT)
    return asked("secure_sum_ways.py", way, n)


def private_moments(moments: np.ndarray) -> np.ndarray:
    """Second moments of one organisation's rows at (1, 1e-6), a row being the unit: whole numbers with rounded Gaussian noise."""
    width = len(moments)
    upper, steps = np.triu_indices(width), 2**9
    # Columns lie within [-1, 1]: a row moves each of the products by at most one, and by half a step as it is rounded.
    squared = len(upper[0]) * (steps + 1) ** 2
    low, high = 64, 64 * 2**14
    while high - low > 1:
        middle = (low + high) // 2
        record = MechanismRecord(
            stage="moments", name="products", kind="gaussian", scale=Fraction(middle, 64), l2_squared=squared,
            l0=len(upper[0]),
        )  # fmt: skip
        low, high = (low, middle) if epsilon_of_rounds([([record], 1)], 1e-6) <= 1 else (middle, high)
    noise = Sampler(RoundedGaussian(Fraction(high, 64))).draw(len(upper[0]))
    noisy = np.zeros_like(moments)
    noisy[upper] = (np.rint(moments[upper] * steps) + noise) / steps
    return noisy + np.triu(noisy, 1).T


def weights(moments: np.ndarray) -> np.ndarray:
    """The least squares of the last column on the others."""
    return np.linalg.solve(moments[:-1, :-1], moments[:-1, -1])


def regressions() -> list[str]:
    """The table of the three ways to a regression."""
    sys.path.insert(0, str(PEERS))
    import secure_sum_ways

    table = secure_sum_ways.rows()
    exact = table.T @ table
    true = weights(exact)
    encrypted = asked("secure_sum_ways.py", "regression", 0)
    shared = asked("share_sums.py", "moments", 0, "-M3", "--no-log", "-B", PORT + 10)
    begin = time.process_time()
    noisy = [private_moments(exact) for _ in range(1)]
    seconds = time.process_time() - begin
    noisy += [private_moments(exact) for _ in range(100)]

    def row(name: str, seconds: float, server: str, sent: float, error: float) -> str:
        return f"| {name} | {seconds:.2f} | {server} | {sent:,.0f} | {error:.1e} |"

    ckks, shares = (float(np.abs(weights(np.array(one["moments"])) - true).max()) for one in (encrypted, shared))
    bars = float(np.median([np.abs(weights(one) - true).max() for one in noisy]))
    return [
        "| way | CPU seconds of the client | of the server | bytes sent | largest error of a weight |",
        "|---|---:|---:|---:|---:|",
        row("CKKS: encrypted columns", encrypted["seconds"], f"{encrypted['server_seconds']:.2f}",
            encrypted["bytes"] + encrypted["key_bytes"], ckks),
        row("Shamir's shares of all rows", shared["seconds"], "the same, at each party", shared["bytes"], shares),
        row("noise at (1, 1e-6), the unit being a row", seconds, "0", exact.nbytes, bars),
    ]  # fmt: skip


def figure(costs: dict[str, list[dict[str, Any]]], path: pathlib.Path) -> None:
    """Bytes and seconds of a client."""
    made, axes = plt.subplots(1, 2, figsize=(9, 3.2))
    for axis, key, words in zip(
        axes, ("bytes", "seconds"), ("bytes sent by a client", "CPU seconds of a client"), strict=True
    ):
        for way in WAYS:
            axis.plot(SIZES, [max(one[key], 1e-5) for one in costs[way]], "o-", label=way)
        axis.set(xscale="log", yscale="log", xlabel="numbers", ylabel=words)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    made.tight_layout()
    made.savefig(path, dpi=110)


def size(number: float) -> str:
    """Bytes for people.

    >>> size(8000000.0)
    '8.0 MB'
    """
    return f"{number / 1e6:,.1f} MB" if number >= 1e6 else f"{number / 1e3:,.0f} kB"


def seconds_of(one: dict[str, Any], n: int) -> str:
    """CPU seconds, and whether they were measured on fewer numbers."""
    told = f"{one['seconds']:,.3g}"
    return f"{told} (extrapolated from {one['measured']})" if one.get("measured", n) < n else told


def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs" / "benchmarks")
    out = parser.parse_args().out
    costs = {way: [cost(way, n) for n in SIZES] for way in WAYS}
    wrong = [
        way for way, found in costs.items() if max(one["error"] for one in found) > (0.001 if way == "ckks" else 0)
    ]
    lines = [
        "# Sums that nobody sees in parts: what they cost",
        "",
        *INTRODUCTION,
        "",
        "| way | bytes, 10,000 numbers | seconds | bytes, 1,000,000 numbers | seconds | largest error of a sum |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for way, words in WAYS.items():
        few, many = costs[way]
        error = max(one["error"] for one in (few, many))
        lines.append(
            f"| {words} | {size(few['bytes'])} | {seconds_of(few, SIZES[0])} | {size(many['bytes'])} | "
            f"{seconds_of(many, SIZES[1])} | {'0' if error == 0 else f'{error:.0e}'} |"
        )
    server = ", ".join(
        f"{WAYS[way].split(' ')[0]} {costs[way][1]['server_seconds']:,.3g}" for way in ("secagg", "ckks", "paillier")
    )
    lines += [
        "",
        f"Seconds of whoever adds and opens, 1,000,000 numbers (Paillier extrapolated, two clients for it and CKKS): {server}.",
        *PACKING,
        "",
        "![Bytes and seconds of a client](secure_sums.png)",
        "",
        "## A linear regression",
        "",
        *REGRESSION,
        "",
        *regressions(),
        "",
        "Versions: " + ", ".join(f"{name} {number}" for name, number in versions(PYTHON, PACKAGES).items()) + ".",
    ]  # fmt: skip
    figure(costs, out / "secure_sums.png")
    (out / "secure_sums.md").write_text("\n".join(lines) + "\n")
    say(f"wrong sums: {', '.join(wrong) or 'none'}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
