"""Quantiles by OpenDP, for the benchmark of quantiles. Runs in .venv-peers.

In and out: see quantile_releases.py. What the library offers for several quantiles: a b-ary tree of counts (4,096 leaves, 16
children) made consistent, with Laplace or Gaussian noise, and one exponential mechanism for each quantile over the same 4,097
candidates. Scales are the smallest that the library's own privacy maps allow for the whole budget: the tree for all rows of
a unit at once; the exponential mechanisms composed over partitions and quantiles under zero-concentrated privacy, turned
into (epsilon, delta) by the library. Bounding is done before, for all systems alike.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import opendp.prelude as dp
import quantile_releases

dp.enable_features("contrib")
LEAVES, BRANCHING = 4096, 16


def all_releases(request: quantile_releases.Request) -> Iterator[tuple[str, quantile_releases.Released]]:
    """As many releases of each mechanism as asked."""
    edges = np.linspace(request.low, request.high, LEAVES + 1)
    prices = request.prices()
    counts = [np.histogram(of, edges)[0].tolist() for of in prices]
    consistent = dp.t.make_consistent_b_ary_tree(branching_factor=BRANCHING)
    found = dp.t.make_quantiles_from_counts(edges.tolist(), alphas=list(request.quantiles))
    for name, tree in (("tree, Laplace", laplace(request)), ("tree, Gaussian", gaussian(request))):
        for _ in range(request.runs):
            yield name, [found(consistent(tree(of))) for of in counts]
    chosen = exponential(request, edges.tolist())
    for _ in range(request.runs):
        yield "exponential", [[quantile(of) for quantile in chosen] for of in prices]


def laplace(request: quantile_releases.Request) -> Any:
    """A noisy tree under epsilon: a unit moves leaves by all of its rows."""
    rows = request.max_partitions * request.max_rows

    def made(scale: float) -> Any:
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        tree = space >> dp.t.then_b_ary_tree(leaf_count=LEAVES, branching_factor=BRANCHING)
        return tree >> dp.m.then_laplace(scale=scale)

    return made(smallest(lambda scale: made(scale).map(rows) <= request.epsilon))


def gaussian(request: quantile_releases.Request) -> Any:
    """A noisy tree under (epsilon, delta); distances are whole numbers."""
    norm = math.ceil(math.sqrt(request.max_partitions) * request.max_rows)

    def made(scale: float) -> Any:
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
        tree = space >> dp.t.then_b_ary_tree(leaf_count=LEAVES, branching_factor=BRANCHING)
        return tree >> dp.m.then_gaussian(scale=scale)

    def enough(scale: float) -> bool:
        private = dp.c.make_zCDP_to_approxDP(made(scale))
        return bool(private.map(norm).epsilon(request.delta) <= request.epsilon)

    return made(smallest(enough))


def exponential(request: quantile_releases.Request, candidates: list[float]) -> list[Any]:
    """One mechanism for each quantile, of which a unit sees as many as partitions and quantiles together."""
    number = request.max_partitions * len(request.quantiles)
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()

    def made(alpha: float, scale: float) -> Any:
        return space >> dp.m.then_private_quantile(dp.zero_concentrated_divergence(), candidates, alpha, scale)

    def enough(scale: float) -> bool:
        # A Gaussian mechanism of the same rho, to have the library turn it into (epsilon, delta).
        rho = number * max(made(alpha, scale).map(request.max_rows) for alpha in request.quantiles)
        plain = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
        stand_in = plain >> dp.m.then_gaussian(scale=1 / math.sqrt(2 * rho))
        return bool(dp.c.make_zCDP_to_approxDP(stand_in).map(1).epsilon(request.delta) <= request.epsilon)

    scale = smallest(enough)
    return [made(alpha, scale) for alpha in request.quantiles]


def smallest(enough: Any) -> float:
    """The smallest scale that is enough, to a thousandth."""
    low, high = 1e-3, 1.0
    while not enough(high):
        low, high = high, 2 * high
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


if __name__ == "__main__":
    wanted, answer = quantile_releases.arguments("Quantiles by OpenDP.")
    quantile_releases.write(answer, all_releases(wanted))
