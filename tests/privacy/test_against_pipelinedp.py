"""Releases against PipelineDP's, by distribution, where the bounds bind.

In: users in more partitions, and with more rows, than is allowed. Out: released counts of many runs of both libraries. Holds:
the means are equal as far as the runs can tell. Both sample what they keep and add noise, so that every count varies; a mean
counts as different where it is 9 of its standard errors away. With 200 runs of each a t-distribution is that far out with a
probability below 1e-15, so all comparisons together give a false alarm with one below 1e-12. Not covered: the noise's
law, which tests/noise looks at.
"""

import functools

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from dp_pipelines import ContributionBounds, Count, Plan, PrivacyIdCount, PublicPartitions, Query
from dp_pipelines.kernels import accumulate
from dp_pipelines.noise import entropy
from dp_pipelines.release.draw import draw_release
from tests.helpers import peers

RUNS = 200
FAR = 9.0
EPSILON, DELTA = 20.0, 1e-6
MOST_PARTITIONS, MOST_ROWS = 2, 3
PARTITIONS = 6

SCRIPT = """
import logging
logging.disable(logging.WARNING)
import pipeline_dp
rows = [tuple(row) for row in question["rows"]]
answer = []
for _ in range(question["runs"]):
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=question["epsilon"], total_delta=question["delta"])
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.COUNT, pipeline_dp.Metrics.PRIVACY_ID_COUNT],
        noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
        max_partitions_contributed=question["partitions"],
        max_contributions_per_partition=question["rows_per_partition"],
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: row[1], value_extractor=lambda row: 0
    )
    result = engine.aggregate(rows, params, extractors, question["public"])
    accountant.compute_budgets()
    found = dict(result)
    answer.append([[found[key].count, found[key].privacy_id_count] for key in question["public"]])
print(json.dumps(answer))
"""

Released = npt.NDArray[np.float64]
"""By run, partition and metric (rows, users)."""


def rows() -> list[tuple[int, int]]:
    """(user, partition) of each row: user u is in 1 to 6 partitions with 1 to 7 rows each."""
    made = []
    for user in range(120):
        for step in range(1 + user % PARTITIONS):
            partition = (user // 3 + step) % PARTITIONS
            made += [(user, partition)] * (1 + (user + 3 * partition) % 7)
    return made


def our_runs(most_partitions: int, most_rows: int) -> Released:
    """Releases of ours: bounded, counted and with noise, each with a salt of its own."""
    listed = [(partition,) for partition in range(PARTITIONS)]
    query = Query(
        privacy_unit="user",
        partition_by="partition",
        bounds=ContributionBounds(
            max_partitions_contributed=most_partitions, max_contributions_per_partition=most_rows
        ),
        metrics={"rows": Count(), "users": PrivacyIdCount()},
        partitions=PublicPartitions(keys=listed),
    )
    stage = Plan(epsilon=EPSILON, delta=DELTA, stages={"counts": query})["counts"]
    users, partitions = zip(*rows(), strict=True)
    table = pa.table({"user": pa.array(users), "partition": pa.array(partitions)})
    wire = stage.layout.wire(table)
    made = []
    for _ in range(RUNS):
        partial = accumulate.partials(wire, stage.layout, stage.statistics, int(entropy.words(1)[0]))
        partial = accumulate.by_public_index(partial, stage.layout)
        totals = accumulate.merge_public([partial], stage.layout, stage.statistics, 0, 1)
        released = draw_release(totals, stage).sort_by("partition")
        assert released.column("partition").to_pylist() == list(range(PARTITIONS))
        made.append(np.stack([released.column(name).to_numpy() for name in ("rows", "users")], axis=1))
    return np.array(made, np.float64)


@functools.lru_cache(maxsize=1)
def their_runs() -> Released:
    """Releases of PipelineDP's."""
    question = {
        "rows": rows(),
        "runs": RUNS,
        "epsilon": EPSILON,
        "delta": DELTA,
        "partitions": MOST_PARTITIONS,
        "rows_per_partition": MOST_ROWS,
        "public": list(range(PARTITIONS)),
    }
    return np.array(peers.ask(SCRIPT, question), np.float64)


def distance(ours: Released, theirs: Released) -> float:
    """How far apart the means are in standard errors, at most over partitions and metrics."""
    error = np.sqrt(ours.var(axis=0, ddof=1) / len(ours) + theirs.var(axis=0, ddof=1) / len(theirs))
    return float((np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / error).max())


@pytest.mark.slow
def test_counts_have_the_means_that_pipelinedp_gives_where_bounds_bind() -> None:
    theirs = their_runs()
    assert theirs.shape == (RUNS, PARTITIONS, 2)
    assert distance(our_runs(MOST_PARTITIONS, MOST_ROWS), theirs) <= FAR


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [(MOST_PARTITIONS + 1, MOST_ROWS), (MOST_PARTITIONS, MOST_ROWS + 1)])
@pytest.mark.parametrize("off", [1, -1])
def test_bounds_that_are_off_by_one_would_be_found(bounds: tuple[int, int], off: int) -> None:
    theirs = their_runs()
    partitions, most_rows = bounds
    if off < 0:
        partitions, most_rows = 2 * MOST_PARTITIONS - partitions, 2 * MOST_ROWS - most_rows
    assert distance(our_runs(partitions, most_rows), theirs) > 2 * FAR
