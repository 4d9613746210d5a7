"""Quantiles by PipelineDP, for the benchmark of quantiles. Runs in .venv-peers.

In and out: see quantile_releases.py. Its own quantile tree (height 4, branching 16) and its own noise, which the whole budget of
its naive accountant goes to, with Laplace and with Gaussian noise. Bounding is done before, for all systems alike.
"""

import logging
from collections.abc import Iterator

import quantile_releases

logging.disable(logging.WARNING)
import pipeline_dp  # noqa: E402
from pipeline_dp import combiners, dp_computations  # noqa: E402

KINDS = {
    "tree, Laplace": pipeline_dp.aggregate_params.MechanismType.LAPLACE,
    "tree, Gaussian": pipeline_dp.aggregate_params.MechanismType.GAUSSIAN,
}


def all_releases(request: quantile_releases.Request) -> Iterator[tuple[str, quantile_releases.Released]]:
    """As many releases of each kind of noise as asked."""
    prices = request.prices()
    for name, kind in KINDS.items():
        accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=request.epsilon, total_delta=request.delta)
        spec = accountant.request_budget(kind)
        accountant.compute_budgets()
        for _ in range(request.runs):
            release = []
            for of_partition in prices:
                # A tree is used up by a release: made anew, as the engine does.
                made = combiners.QuantileAccumulator(request.low, request.high)
                for price in of_partition:
                    made.add_entry(price)
                if made.tree is None:
                    made.create_tree()
                release.append(
                    dp_computations.compute_dp_quantiles(
                        made.tree, spec, list(request.quantiles), request.max_partitions, request.max_rows
                    )
                )
            yield name, release


if __name__ == "__main__":
    wanted, answer = quantile_releases.arguments("Quantiles by PipelineDP.")
    quantile_releases.write(answer, all_releases(wanted))
