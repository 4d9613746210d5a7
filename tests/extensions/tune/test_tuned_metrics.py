"""Every metric of the registry is tuned, or its stage is refused by what can be tuned.

In: one example of each kind. Out: exit codes and errors of `dp-pipelines tune`. Not covered: how good predictions are
(`test_real_runs`).
"""

from collections.abc import Callable

import pytest

import dp_pipelines as dp
from dp_pipelines.extensions.tune.configuration import KINDS, supported
from dp_pipelines.metrics import registry
from tests.jobs.conftest import Said, Shop, stage
from tests.jobs.test_every_metric import EXAMPLES, example, tasted

Call = Callable[..., Said]

TUNED = {"count", "privacy_id_count", "sum", "mean"}


def test_each_metric_names_a_model_of_its_error_or_none() -> None:
    named = {metric.tuned_as for metric in (registry.of_kind(kind) for kind in EXAMPLES) if metric is not None}
    assert named == {*KINDS, None}


def test_a_metric_of_ones_own_is_not_predicted_as_the_one_it_inherits_from() -> None:
    class RoundedTotal(dp.Sum):
        """Another number than the sum."""

    assert supported(RoundedTotal("price", min_value=0, max_value=20)) is None
    assert supported(dp.Sum("price", min_value=0, max_value=20)) == "sum"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_is_tuned_or_its_stage_is_refused_in_clear_words(shop: Shop, call: Call, kind: str) -> None:
    tasted(shop)
    job = shop.write(stages={"weekly": stage(metrics={"only": example(kind)})})
    grid = "bounds.max_partitions_contributed=1,2"
    said = call("tune", job, "--grid", grid, "--output", shop.folder / "tuned")
    if kind in TUNED:
        assert said.code == 0, said.err
    else:
        assert said.code == 2
        assert "count, privacy_id_count, sum, mean" in said.err
