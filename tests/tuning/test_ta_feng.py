"""Real data: predictions beside 30 releases of Ta Feng's weekly report, and what the recommendation gains there."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from dp_pipelines.jobs.tune import tune_grid
from dp_pipelines.tuning import goal
from tests.helpers.source import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

pytestmark = pytest.mark.slow

GRID = [
    "bounds.max_partitions_contributed=1,32,48",
    "bounds.max_contributions_per_partition=1,2,3",
    "metrics.revenue.max_value,metrics.mean_price.max_value=100,200",
]
RUNS = 30
OFF = 0.10


@pytest.fixture(scope="module")
def shop():
    fetch = [sys.executable, str(ROOT / "examples" / "ta_feng" / "fetch.py")]
    if subprocess.run(fetch, capture_output=True, check=False).returncode:
        pytest.skip("Ta Feng cannot be fetched here")
    assert pathlib.Path(ROOT / "data" / "ta_feng").is_dir()
    import tune

    return tune.TaFeng()


def test_predictions_are_within_a_tenth_and_the_recommendation_is_better(shop) -> None:
    options = tune_grid.options(shop.request, "weekly", tune_grid.read(GRID))
    results = shop.predicted(options)
    wanted = goal.read([], results.metrics)
    found = goal.recommend(results, wanted, [1.0] * len(options), 1.0)
    own = next(option.number for option in options if option.query == shop.request.queries["weekly"])
    first = next(o.number for o in options if dict(o.setting).get("bounds.max_partitions_contributed") == 1)
    losses = {}
    for number in (own, found.number):
        released = shop.released(options[number], RUNS)
        losses[number] = shop.loss(released)
        for place, metric in enumerate(results.metrics):
            whole, interval = shop.measured(released, metric)
            # A quarter of a 95% interval is about one standard error: below 1%, for the mean of prices, which hangs on few
            # dear partitions, up to 4%. With 6.2 of them a false alarm has a probability below 1e-9.
            error = (interval.high - interval.low) / 4 / whole
            assert error < (0.05 if metric == "mean_price" else 0.012), metric
            off = abs(results.of_metrics("error")[number, place] / whole - 1)
            assert off < max(OFF, 0.02 + 6.2 * error), metric
            if metric == "orders":
                # The twin: another configuration's prediction is not taken for this one's.
                assert abs(results.of_metrics("error")[first, place] / whole - 1) > OFF
    assert found.number != own
    assert losses[found.number] < losses[own]
    told = results.measure(wanted.minimized)
    assert np.isclose(told[own], losses[own], atol=0.02)
