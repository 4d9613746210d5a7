"""Selection in rounds: what the plan holds, before any row is read."""

import pytest

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.plan_stages.phases import expand
from dp_pipelines.plan_stages.reads import Groups, Rows, StagedExamples, UnitPartitionCounts
from dp_pipelines.query.query import ReleasedPartitions


def query(**changes: object) -> dp.Query:
    """A query whose partitions are selected in rounds."""
    fields: dict[str, object] = {
        "privacy_unit": "user",
        "partition_by": "key",
        "bounds": dp.ContributionBounds(max_partitions_contributed=16, max_contributions_per_partition=1),
        "metrics": {"rows": dp.Count()},
        "partitions": dp.PrivatePartitions(strategy="sips"),
    }
    return dp.Query(**{**fields, **changes})  # type: ignore[arg-type]


def test_every_round_is_in_the_plan_and_paid_for_before_a_row_is_read() -> None:
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query()})
    assert plan.phases == (("s.select1",), ("s.select2",), ("s.select3",), ("s",))
    stages = {record.stage for record in plan.mechanisms}
    assert stages == {"s.select1", "s.select2", "s.select3", "s"}
    assert plan.accounted["epsilon"] <= 1.0
    assert {record.name for record in plan["s"].mechanisms} == {"rows"}
    assert plan["s"].selection is None


def test_the_budget_of_the_rounds_grows() -> None:
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query()})
    noise = [plan[f"s.select{number}"].selection.noise.stddev for number in (1, 2, 3)]  # type: ignore[union-attr]
    assert noise[0] > 1.5 * noise[1] > 2.25 * noise[2]


def test_a_selection_alone_has_no_last_stage_of_its_own() -> None:
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(metrics={})})
    assert plan.phases[-1] == ("s",)
    assert "s" not in plan.stages


def test_stages_without_rounds_run_in_the_last_pipeline_and_keep_their_share() -> None:
    plain = query(partitions=dp.PrivatePartitions())
    expanded = expand({"a": plain, "b": query()}, {"a": 1.0, "b": 3.0})
    assert expanded.phases[-1] == ("a", "b")
    assert expanded.shares["a"] == 1.0
    assert sum(part for name, part in expanded.shares.items() if name != "a") == pytest.approx(3.0)
    assert expanded.queries["a"] is plain
    assert expanded.queries["b"].partitions == ReleasedPartitions(stages=("b.select1", "b.select2", "b.select3"))


def test_a_stored_plan_with_rounds_is_restored() -> None:
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query()}, runs=3)
    again = dp.Plan.restore(plan.frozen(), epsilon=1.0, delta=1e-6, stages={"s": query()}, runs=3)
    assert again.digest == plan.digest
    assert again.phases == plan.phases


def test_a_stage_with_the_name_of_a_round_is_refused() -> None:
    with pytest.raises(RequestError, match="is what a round of 's' is called"):
        dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query(), "s.select2": query()})


def test_min_users_is_refused_where_weights_are_compared() -> None:
    with pytest.raises(RequestError, match="min_users: must be 0 or 1 with strategy sips"):
        dp.PrivatePartitions(strategy="sips", min_users=5)


def test_what_a_step_reads_follows_from_what_was_asked_and_never_from_a_name() -> None:
    plain = query(partitions=dp.PrivatePartitions())
    chosen = query(
        bounds=dp.ContributionBounds(
            max_partitions_contributed="auto", partition_candidates=(1, 4), max_contributions_per_partition=1
        ),
        metrics={"spent": dp.Sum("price", min_value=0, max_value="auto", within=[0, 100])},
        partitions=dp.PrivatePartitions(),
    )
    model = dp.TrainModel(
        privacy_unit="user",
        label=dp.BinaryLabel(column="back"),
        features={"n": dp.Number(column="n", min_value=0, max_value=1)},
    )
    plan = dp.Plan(
        epsilon=3.0, delta=1e-6, stages={"rounds": query(), "a": chosen, "b.partitions": plain, "model": model}
    )
    reads = {name: stage.reads for name, stage in plan.stages.items()}
    assert reads["a"] == Rows(of="a")
    assert reads["a.bounds"] == Groups(of="a")
    assert reads["a.partitions"] == UnitPartitionCounts(of="a")
    assert reads["b.partitions"] == Rows(of="b.partitions")
    assert {reads[f"rounds.select{number}"] for number in (1, 2, 3)} == {Rows(of="rounds")}
    parts = {name: read for name, read in reads.items() if name.partition(".")[0] == "model"}
    assert len(parts) > 3
    assert set(parts.values()) == {StagedExamples(of="model")}
