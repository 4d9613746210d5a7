"""Statements about train stages that an adversarial reader once found to be false.

In: kernels, plans and released tables as a run uses them. Out: nothing. Holds: no noise decides a test. Not covered: what held.
"""

import dataclasses
import datetime
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import ContributionBounds, Count, Plan, PublicPartitions, Query
from dp_pipelines.accounting import accountant
from dp_pipelines.errors import DpError
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.query.train_model import MLP, BinaryLabel, Category, ClassLabel, Feature, Number, Steps, TrainModel
from dp_pipelines.training import stage_on_disk
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.gaussian_noise import NoisySum
from dp_pipelines.training.kernels.linear import LinearKernel, squared_lengths

NUMBER = Number(column="x", min_value=0, max_value=1, edges=[0.5])


def task(**changes: object) -> TrainModel:
    """A small train stage."""
    given = {"privacy_unit": "u", "label": BinaryLabel(column="y"), "features": {"x": NUMBER}, **changes}
    return TrainModel(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [2358, 4356, 7159, 7410])
def test_a_unit_without_a_gradient_changes_no_bit_of_a_long_gradient_sum(seed: int) -> None:
    """Beyond 8192 coordinates `numpy.einsum` adds up one row alone in another order than one of several."""
    kernel = LinearKernel(width=256, label=ClassLabel(column="y", classes=[str(place) for place in range(48)]))
    rng = np.random.default_rng(seed)
    rows = np.zeros((2, 256), np.float32)
    rows[0] = rng.standard_normal(256)
    labels, parameters = np.array([3.0, np.nan]), rng.standard_normal(kernel.size)
    alone = kernel.clipped_sum(parameters, Chunk(rows[:1], labels[:1], np.arange(2)), 1.0)
    both = kernel.clipped_sum(parameters, Chunk(rows, labels, np.arange(3)), 1.0)
    assert alone.tobytes() == both.tobytes()


def test_products_of_long_rows_do_not_depend_on_how_many_rows_there_are() -> None:
    """What theorem 7 (a) of docs/proofs/training.md rests on, at sizes that a plan allows."""
    rows = np.random.default_rng(0).standard_normal((3, 12288))
    together = squared_lengths(rows)
    alone = [float(squared_lengths(row[None])[0]) for row in rows]
    assert together.tolist() == alone


@pytest.mark.parametrize("days", [2**31 - 1, -(2**31)])
def test_a_day_that_no_calendar_has_is_a_category_and_no_error(days: int) -> None:
    """A run whose training units share such a day fails with exit code 1, and for ever, since its draw is kept."""
    column = pa.array([days], pa.int32()).view(pa.date32())
    released = pa.table({"c": column, "users": [100.0], "users_stddev": [1.0]})
    category = Category(column="c", most=3)
    found = stage_on_disk.categories_of(released, category, "users")
    Encoder.of(task(features={"c": category}), vocabulary={"c": found})


LONG_TEXTS = """
import numpy as np, pyarrow as pa
from dp_pipelines.steps.whole_units import canonical
rows = {rows}
text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 2**20]))
canonical(pa.table({{"u": np.zeros(rows, np.int64), "c": text}}), ["u", "c"], ["u"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("rows", [16, 2100])
def test_long_texts_of_one_unit_fail_no_run(rows: int) -> None:
    """2100 rows of one unit with 1 MiB of text: 700 bytes of Parquet. The process dies, or Arrow's offsets overflow."""
    ended = subprocess.run([sys.executable, "-c", LONG_TEXTS.format(rows=rows)], check=False, timeout=120)
    assert ended.returncode == 0


@pytest.mark.parametrize(
    ("epsilon", "changes"),
    [
        (1.0, {"steps": {"clip_norm": 1e-250}}),
        (0.05, {"steps": {"steps": 1000}, "model": MLP(hidden=(4096, 4096))}),
        (1.0, {"steps": {"steps": 20}}),
    ],
    ids=["norm", "size", "sound"],
)
def test_what_training_would_refuse_is_refused_by_the_plan(epsilon: float, changes: dict[str, object]) -> None:
    """Else the ledger is charged, and the run ends with exit code 2, which says that nothing was spent."""
    try:
        steps = Steps(**changes.pop("steps"))  # type: ignore[arg-type]
        plan = Plan(epsilon=epsilon, delta=1e-6, stages={"m": task(steps=steps, **changes)})
    except DpError:
        return
    stage = plan.trained["m"]
    NoisySum(
        size=stage.size,
        norm=stage.steps.clip_norm or 1.5,
        multiplier=training_noise.multiplier(plan.stages["m"]),
        slack=0.0,
    )


def test_two_stages_never_share_the_name_of_a_part() -> None:
    """Feature `users` of stage `a` and the users of stage `a.vocabulary`: one of the two queries is in no record."""
    features: dict[str, Feature] = {"users": Category(column="c", most=3), "x": NUMBER}
    both = {"a": task(features=features), "a.vocabulary": task()}
    try:
        plan = Plan(epsilon=1.0, delta=1e-6, stages=both)
    except DpError:
        return
    alone = [len(Plan(epsilon=1.0, delta=1e-6, stages={name: asked}).queries) for name, asked in both.items()]
    assert len(plan.queries) == sum(alone)


def test_nobody_but_a_train_stage_says_that_a_query_reads_a_part_of_the_units() -> None:
    """`Query(group=...)` is public, nothing filters rows by it, and the plan counts only the dearer of two groups."""

    def counted(group: str) -> Query:
        return Query(
            privacy_unit="u",
            partition_by="k",
            metrics={"rows": Count()},
            bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
            partitions=PublicPartitions(keys=[("a",)]),
            group=group,
        )

    try:
        plan = Plan(epsilon=1.0, delta=1e-6, stages={"one": counted("x"), "other": counted("y")})
    except DpError:
        return
    ran = [dataclasses.replace(record, group=None) for record in plan.mechanisms]
    assert accountant.epsilon_of(ran, 1e-6) <= 1.0


def test_train_stages_of_one_plan_protect_the_same_unit() -> None:
    """Units are divided by a hash of their columns in order: in another order, or of other columns, they are in both groups."""
    with pytest.raises(DpError):
        Plan(epsilon=1.0, delta=1e-6, stages={"a": task(privacy_unit=["u", "v"]), "b": task(privacy_unit=["v", "u"])})


def test_a_feature_may_not_have_the_name_of_our_own_column() -> None:
    """`statistics.release` puts a constant into column `_all`: the vocabulary of such a feature is the word `_all`."""
    with pytest.raises(DpError):
        task(features={"c": Category(column="_all", most=2)})


def test_two_dates_of_one_day_are_one_category() -> None:
    """date64 keys with a time of day: two partitions, one day, and an error that rows decide."""
    times = pa.array([86_400_000, 86_400_001], pa.int64()).view(pa.date64())
    category = Category(column="c", most=3)
    found = stage_on_disk.categories_of(pa.table({"c": times, "users": [9.0, 8.0]}), category, "users")
    assert found[0] == datetime.date(1970, 1, 2)
    Encoder.of(task(features={"c": category}), vocabulary={"c": found})
