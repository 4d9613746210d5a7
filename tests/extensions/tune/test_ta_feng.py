"""Real data: predictions beside 30 releases of Ta Feng's weekly report, and what the recommendation gains there.

In: the rows of examples/ta_feng. Out: failures. Holds: the releases draw with a seed, and limits come from the law of many
releases with other draws. Not covered: other bounds than those of `GRID`; the cost (benchmarks/tune.py).
"""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from dp_pipelines.extensions.tune import goal, tune_grid
from tests.helpers import seeded
from tests.helpers.source import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

pytestmark = pytest.mark.slow

GRID = [
    "bounds.max_partitions_contributed=1,32,48",
    "bounds.max_contributions_per_partition=1,2,3",
    "metrics.revenue.max_value,metrics.mean_price.max_value=100,200",
]
RUNS = 30
LIMITS = {"orders": 0.05, "customers": 0.05, "revenue": 0.1, "mean_price": 0.2}
"""By which a prediction and the root mean square error of 30 releases may differ, relative to the latter.

The noise repeats (`seeded`), so a run of this test raises no false alarm. Other draws, as after a change of their order, would
raise one with a probability below 1e-11: Chernoff's bound for the mean of 30, by the law of 570 releases of each configuration,
whose standard errors came to 0.5, 0.5, 1.0 and 1.7%. The last hangs on few dear partitions and has a long tail (skewness 4)."""
LOSS_OFF = 0.008
"""The loss of 30 releases has a standard deviation of 0.0006; its mean is within 0.001 of the one told: eleven deviations."""


@pytest.fixture(scope="module")
def shop():
    fetch = [sys.executable, str(ROOT / "examples" / "ta_feng" / "fetch.py")]
    if subprocess.run(fetch, capture_output=True, check=False).returncode:
        pytest.skip("Ta Feng cannot be fetched here")
    assert pathlib.Path(ROOT / "data" / "ta_feng").is_dir()
    import tune

    tune.say = lambda text: None  # a line for each release would drown what failed
    return tune.TaFeng()


def test_predictions_are_those_of_real_releases_and_the_recommendation_is_better(shop) -> None:
    options = tune_grid.options(shop.request, "weekly", tune_grid.read(GRID))
    results = shop.predicted(options)
    wanted = goal.read([], results.metrics)
    found = goal.recommend(results, wanted, [1.0] * len(options), 1.0)
    own = next(option.number for option in options if option.query == shop.request.queries["weekly"])
    first = next(o.number for o in options if dict(o.setting).get("bounds.max_partitions_contributed") == 1)
    told = results.measure(wanted.minimized)
    losses = {}
    for number in (own, found.number):
        released = shop.released(options[number], RUNS, seeded.release(number))
        losses[number] = shop.loss(released)
        assert np.isclose(told[number], losses[number], rtol=0, atol=LOSS_OFF)
        for place, metric in enumerate(results.metrics):
            errors = results.of_metrics("error")[:, place]
            whole, _ = shop.measured(released, metric)
            assert abs(errors[number] / whole - 1) < LIMITS[metric], metric
            # The twins: neither a prediction that is a third too small or too large nor another configuration's is taken for it.
            wrong = [errors[number] * 2 / 3, errors[number] * 4 / 3]
            wrong += [errors[first]] * (metric != "mean_price")  # which is nearly the same in all configurations
            assert all(abs(error / whole - 1) > LIMITS[metric] for error in wrong), metric
    assert abs(told[first] - losses[own]) > 2 * LOSS_OFF
    assert found.number != own
    assert losses[found.number] < losses[own]  # by 0.006, which is eight standard deviations
