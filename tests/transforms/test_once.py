"""A stage of a plan is drawn once in a process, whoever asks again.

In: one plan, several pipelines and runs, on Beam's runner in this process and as Beam has them (`with`, TestPipeline). Out:
refusals before a row is read. Not covered: what the library cannot see, which the manifest says.
"""

import copy
import json
import pathlib
import pickle
import threading

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_pipeline

from dp_pipelines import ContributionBounds, Count, Plan, PublicPartitions, Query
from dp_pipelines.errors import RequestError
from dp_pipelines.planning import payment
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.transforms import (
    PrivateAggregate,
    PrivateCount,
    PublishRelease,
    SelectPartitions,
    once,
)

BOUNDS = ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
AGAIN = "has already been released by another run, and its plan pays for it only once"
ROWS = pa.table({"who": list(range(300)), "where": ["a", "b", "c"] * 100, "x": [0.5] * 300})


def plan(runs: int = 1, *names: str) -> Plan:
    """A plan with stages of these names."""
    asked = Query(privacy_unit="who", partition_by="where", bounds=BOUNDS, metrics={"rows": Count()})
    return Plan(epsilon=9.0, delta=1e-6, stages=dict.fromkeys(names or ("s",), asked), runs=runs)


def tables(pipeline: beam.Pipeline) -> beam.PCollection[pa.Table]:
    """The rows; reading them is noted, so that a refusal is seen to come before."""
    return pipeline | beam.Create([0]) | beam.Map(_read).with_output_types(pa.Table)


read: list[int] = []


def _read(number: int) -> pa.Table:
    read.append(number)
    return ROWS


def pipeline_of(*stages: StagePlan) -> beam.Pipeline:
    """A pipeline that releases stages."""
    made = beam.Pipeline(runner=FnApiRunner())
    rows = tables(made)
    for stage in stages:
        rows | stage.name >> PrivateAggregate(stage, num_shards=1)
    return made


def run(pipeline: beam.Pipeline) -> int:
    """Run it; how often the rows were read."""
    read.clear()
    pipeline.run().wait_until_finish()
    return len(read)


def test_a_second_run_of_a_pipeline_is_refused_before_a_row_is_read() -> None:
    pipeline = pipeline_of(plan()["s"])
    assert run(pipeline) == 1
    with pytest.raises(RequestError, match=AGAIN):
        run(pipeline)
    assert read == []


def test_a_pipeline_that_ran_in_a_with_block_is_not_run_again() -> None:
    for kind in (beam.Pipeline, test_pipeline.TestPipeline):
        with kind(runner=FnApiRunner()) as pipeline:
            tables(pipeline) | PrivateAggregate(plan()["s"], num_shards=1)
        with pytest.raises(RequestError, match=AGAIN):
            pipeline.run()


def test_one_plan_in_two_pipelines_is_refused_when_the_second_one_runs() -> None:
    stage = plan()["s"]
    first, second = pipeline_of(stage), pipeline_of(stage)
    assert run(second) == 1
    with pytest.raises(RequestError, match=AGAIN):
        run(first)
    assert read == []


def test_a_pipeline_with_a_stage_that_was_released_is_refused_when_it_is_built() -> None:
    made = plan()
    run(pipeline_of(made["s"]))
    with pytest.raises(RequestError, match="stage 's': " + AGAIN):
        PrivateAggregate(made["s"])
    # A copy is the same plan, and so is a stage that is changed.
    with pytest.raises(RequestError, match=AGAIN):
        PrivateAggregate(pickle.loads(pickle.dumps(made))["s"])
    with pytest.raises(RequestError, match=AGAIN):
        PrivateAggregate(copy.deepcopy(made["s"]))


def test_a_pipeline_that_is_built_and_never_run_spends_nothing() -> None:
    stage = plan()["s"]
    pipeline_of(stage)
    assert run(pipeline_of(stage)) == 1


def test_other_stages_and_other_plans_are_budgets_of_their_own() -> None:
    made = plan(1, "a", "b")
    assert run(pipeline_of(made["a"])) == 1
    assert run(pipeline_of(made["b"])) == 1
    assert plan().digest == plan().digest
    assert [run(pipeline_of(plan()["s"])) for _ in range(2)] == [1, 1]


def test_a_refused_pipeline_spends_none_of_its_other_stages() -> None:
    made = plan(1, "a", "b")
    both, first = pipeline_of(made["b"], made["a"]), pipeline_of(made["a"])
    run(first)
    with pytest.raises(RequestError, match="stage 'a': " + AGAIN):
        run(both)
    assert run(pipeline_of(made["b"])) == 1


def test_a_run_that_failed_is_a_run() -> None:
    stage = plan()["s"]
    pipeline = beam.Pipeline(runner=FnApiRunner())
    broken = pipeline | beam.Create([0]) | beam.Map(lambda _: 1 / 0).with_output_types(pa.Table)
    broken | PrivateAggregate(stage, num_shards=1)
    with pytest.raises(Exception, match="division"):
        pipeline.run()
    with pytest.raises(RequestError, match=AGAIN):
        PrivateAggregate(stage)


def test_the_runs_of_a_plan_are_named_and_each_is_drawn_once() -> None:
    for split in ("constant", "linear"):
        asked = Query(privacy_unit="who", partition_by="where", bounds=BOUNDS, metrics={"rows": Count()})
        made = Plan(epsilon=9.0, delta=1e-6, stages={"s": asked}, runs=2, split=split)
        with pytest.raises(
            RequestError, match=r"stage 's': belongs to a plan for several runs; name the run: plan\['s', 1\]"
        ):
            made["s"]
        with pytest.raises(RequestError, match="belongs to a plan for several runs"):
            PrivateAggregate(made.stages["s"])
        assert [run(pipeline_of(made["s", number])) for number in (1, 2)] == [1, 1]
        with pytest.raises(RequestError, match=AGAIN):
            PrivateAggregate(made["s", 1])
        for wrong in (0, 3, True, 1.5, None):
            with pytest.raises(RequestError):
                made["s", wrong]  # type: ignore[index]
        with pytest.raises(RequestError, match="is not in the plan"):
            made["other", 1]
    assert plan()["s", 1] == plan()["s"]


def test_everything_that_draws_is_refused_a_second_time() -> None:
    keys = Query(privacy_unit="who", partition_by="where", bounds=BOUNDS, metrics={})
    of_keys = Plan(epsilon=9.0, delta=1e-6, stages={"s": keys})["s"]
    short = PrivateCount(privacy_unit="who", partition_by="where", bounds=BOUNDS, epsilon=9.0, delta=1e-6)
    for transform in (
        SelectPartitions(of_keys, num_shards=1),
        PrivateAggregate(plan()["s"], num_shards=1),
        short,
    ):
        pipeline = beam.Pipeline(runner=FnApiRunner())
        tables(pipeline) | transform
        pipeline.run().wait_until_finish()
        with pytest.raises(RequestError, match=AGAIN):
            pipeline.run()


def test_of_many_threads_one_draws() -> None:
    paid, refused = [], []
    stage, start = plan()["s"], threading.Barrier(16)

    def ask() -> None:
        start.wait()
        try:
            payment.pay([(stage.name, stage.payment)])
            paid.append(1)
        except RequestError:
            refused.append(1)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(paid), len(refused)) == (1, 15)


def test_a_manifest_says_which_run_it_is_and_what_nobody_could_see(tmp_path: pathlib.Path) -> None:
    made = plan(2)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables(pipeline) | PrivateAggregate(made["s", 2], num_shards=1) | PublishRelease(str(tmp_path / "out"))
    content = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (content["round"], content["budget"]["runs"]) == (2, 2)
    assert content["not_covered"][-1] == once.NOT_COVERED
    for unseen in ("template", "from_runner_api", "interactive", "another process"):
        assert unseen in once.NOT_COVERED


@pytest.mark.parametrize("other", ["when", ["who", "when"], ["when", "who"]])
def test_stages_of_one_plan_protect_the_same_unit(other: object) -> None:
    def of(unit: object) -> Query:
        return Query(
            privacy_unit=unit,  # type: ignore[arg-type]
            partition_by="where",
            bounds=BOUNDS,
            metrics={"rows": Count()},
            partitions=PublicPartitions(keys=[("a",)]),
        )

    first = ["who", "when"] if other == ["when", "who"] else "who"
    with pytest.raises(RequestError, match=r"stages\.b\.privacy_unit: is .*: a plan states its total for one") as said:
        Plan(epsilon=1.0, stages={"a": of(first), "b": of(other)})
    assert "two plans" in said.value.hint
    with pytest.raises(RequestError, match="privacy_unit"):
        Plan.restore({"calibrated": {}}, epsilon=1.0, stages={"a": of(first), "b": of(other)})
    assert Plan(epsilon=1.0, stages={"a": of(other), "b": of(other)}).accounted["epsilon"] <= 1.0


def test_a_model_of_another_unit_than_the_report_is_refused() -> None:
    from dp_pipelines import BinaryLabel, LinearModel, Number, TrainModel

    task = TrainModel(
        privacy_unit="household",
        label=BinaryLabel(column="y"),
        features={"x": Number(column="x", min_value=0, max_value=1)},
        model=LinearModel(),
    )
    asked = Query(privacy_unit="who", partition_by="where", bounds=BOUNDS, metrics={"rows": Count()})
    with pytest.raises(RequestError, match=r"stages\.m\.privacy_unit"):
        Plan(epsilon=1.0, delta=1e-6, stages={"s": asked, "m": task})


def test_the_stage_that_is_drawn_is_the_one_that_is_paid_for() -> None:
    drawn, other = plan()["s"], plan()["s"]
    pipeline = beam.Pipeline(runner=FnApiRunner())
    transform = PrivateAggregate(drawn)
    _ = tables(pipeline) | transform
    transform.stage = other
    pipeline.run()
    payment.refuse_paid("s", other.payment)
    with pytest.raises(RequestError, match=AGAIN):
        payment.refuse_paid("s", drawn.payment)
