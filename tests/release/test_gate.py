"""The gate: faults in planning and in draws, planted one at a time, end a run before anything is staged.

In: a small shop, a fault of one line. Out: the refusal, the exit code, an empty folder. Holds: a refusal names stage and record,
and nothing of the rows; what is right passes. Not covered: engines on a cluster, which pickle the same steps (`tests/engines`).
"""

import copy
import dataclasses
import pathlib
import pickle
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import ContributionBounds, Count, Plan, PrivacyIdCount, PublicPartitions, Query
from dp_pipelines.errors import GateError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels import clipped_vectors
from dp_pipelines.kernels.statistics import WEIGHT_BITS
from dp_pipelines.mechanisms import permits
from dp_pipelines.mechanisms.permits import Permits, Right, Sources
from dp_pipelines.noise import entropy
from dp_pipelines.noise.laws import RoundedGaussian
from dp_pipelines.noise.samplers import Sampler
from dp_pipelines.plan_stages import one_partition
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import gate
from dp_pipelines.release.draw import draw_release
from dp_pipelines.selection import thresholds
from dp_pipelines.steps.draw_release import DrawRelease, receipt, without_receipts
from dp_pipelines.training import gaussian_noise
from dp_pipelines.training.drawing import Drawing
from dp_pipelines.transforms import PrivateAggregate
from tests.audit.test_records import PLANS, made
from tests.helpers import neighbours as nb
from tests.helpers.planted import plant
from tests.jobs.conftest import Shop, call, own_anchors, shop  # noqa: F401 - fixtures
from tests.jobs.conftest import stage as of_shop

EVERY = np.arange(3)


def planned() -> Plan:
    """A plan of two stages with different records."""
    first = Query(
        privacy_unit="customer",
        partition_by="region",
        metrics={"orders": Count()},
        partitions=PublicPartitions(keys=[["a"], ["b"]]),
        bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3),
    )
    second = dataclasses.replace(first, metrics={"people": PrivacyIdCount()})
    return Plan(epsilon=1.0, delta=1e-6, stages={"first": first, "second": second})


def refusal(stage: StagePlan) -> tuple[str, str, str]:
    """What the gate says of a stage."""
    with pytest.raises(GateError) as told:
        gate.check(stage)
    return told.value.rule, told.value.stage, told.value.record


# Stages and records.


@pytest.mark.parametrize("kind", PLANS)
def test_every_stage_of_a_right_plan_passes(kind: str) -> None:
    plan = made(kind)
    for number in {1, plan.runs}:
        gate.admit(plan.round(number).stages, plan.charged(number))


def test_less_noise_than_the_record_states_is_refused() -> None:
    stage = planned()["first"]
    (noise, *others) = stage.noises
    assert noise is not None
    short = dataclasses.replace(noise, law=dataclasses.replace(noise.law, scale=noise.law.scale - Fraction(1, 64)))
    less = dataclasses.replace(stage, noises=(short, *others))
    assert refusal(less) == (gate.UNDERSTATED, "first", "rows")


def test_a_missing_record_is_refused() -> None:
    assert refusal(dataclasses.replace(planned()["first"], mechanisms=())) == (permits.NO_RECORD, "first", "rows")


def test_the_records_of_another_stage_are_refused() -> None:
    plan = planned()
    other = dataclasses.replace(plan["first"], mechanisms=plan["second"].mechanisms)
    assert refusal(other)[0] == gate.OTHER_STAGE
    renamed = tuple(dataclasses.replace(record, stage="first") for record in plan["second"].mechanisms)
    assert refusal(dataclasses.replace(plan["first"], mechanisms=renamed)) == (permits.NO_RECORD, "first", "rows")


def test_a_norm_that_is_too_small_is_refused() -> None:
    stage = planned()["first"]
    (record,) = stage.mechanisms
    norms = {field: getattr(record, field) for field in ("l0", "linf", "l1", "l2_squared")}
    assert sum(norm is not None for norm in norms.values()) >= 2
    for field, norm in norms.items():
        if norm is not None:
            smaller = dataclasses.replace(record, **{field: norm - 1})
            assert refusal(dataclasses.replace(stage, mechanisms=(smaller,))) == (gate.UNDERSTATED, "first", "rows")
            larger = dataclasses.replace(record, **{field: norm + 1})
            gate.check(dataclasses.replace(stage, mechanisms=(larger,)))  # costs more than it must, and hides no less


@pytest.mark.parametrize("kind", PLANS)
def test_a_record_of_any_plan_that_states_the_least_bit_less_in_any_field_is_refused(kind: str) -> None:
    plan = made(kind)
    for name, stage in plan.round(1).stages.items():
        for place, record in enumerate(stage.mechanisms):
            for field in gate.NO_LESS:
                value = getattr(record, field)
                if not value or (isinstance(value, int) and value == 1):
                    continue  # a record cannot state less
                less = value - 1 if isinstance(value, int) else value * (1 - 1e-7)
                smaller = dataclasses.replace(record, **{field: less})
                listed = (*stage.mechanisms[:place], smaller, *stage.mechanisms[place + 1 :])
                told = refusal(dataclasses.replace(stage, mechanisms=listed))
                assert told == (gate.UNDERSTATED, name, record.name), field


def test_a_number_of_partitions_that_planning_counts_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "dp_pipelines.kernels.statistics:_of_rows"
    plant(monkeypatch, name, "coordinates=max_partitions,", "coordinates=max_partitions - 1,")
    bounds = ContributionBounds(max_partitions_contributed=7, max_contributions_per_partition=3)  # in no cache yet
    query = dataclasses.replace(planned().queries["first"], bounds=bounds)
    wrong = Plan(epsilon=1.0, delta=1e-6, stages={"wrong": query})
    assert refusal(wrong["wrong"]) == (gate.UNDERSTATED, "wrong", "rows")


def test_two_records_of_one_name_and_looser_bounds_are_refused() -> None:
    stage = planned()["first"]
    assert refusal(dataclasses.replace(stage, mechanisms=stage.mechanisms * 2))[0] == gate.TWO_RECORDS
    layout = dataclasses.replace(stage.layout, max_partitions=3)
    assert refusal(dataclasses.replace(stage, layout=layout))[0] == gate.LOOSE_BOUNDS


@pytest.mark.parametrize("most", [1, 2, 3, 16, 1000, 10**9])
@pytest.mark.parametrize("parts", [1, 2, 3, 10, 700, 4096])
def test_both_counts_of_how_far_a_unit_moves_all_weights_agree(most: int, parts: int) -> None:
    for step in {-(-(1 << WEIGHT_BITS) // parts), max(1, (1 << WEIGHT_BITS) // parts - 1)}:
        assert gate._weights_squared(step, most) == thresholds.weighted_l2_squared(1 << WEIGHT_BITS, step, most)


@pytest.mark.parametrize("kind", ["laplace", "weighted"])
def test_a_threshold_that_is_one_step_too_low_is_refused(kind: str) -> None:
    stage = made(kind)["weekly"]
    assert stage.selection is not None
    for steps, refused in ((0, False), (1, True)):
        lower = dataclasses.replace(stage.selection, threshold=stage.selection.threshold - steps)
        changed = dataclasses.replace(stage, selection=lower)
        if refused:
            assert refusal(changed)[0] == gate.SHOWS
        else:
            gate.check(changed)
    assert refusal(dataclasses.replace(stage, selection=None))[0] == gate.NO_SELECTION


def test_other_records_than_the_run_was_charged_for_are_refused() -> None:
    plan = planned()
    (charged,) = [record for record in plan.charged(1) if record.stage == "second"]
    with pytest.raises(GateError, match=gate.NOT_CHARGED):
        gate.admit(plan.stages, [charged])
    other = copy.copy(plan["second"])
    with pytest.raises(GateError, match=gate.NOT_CHARGED):
        gate.admit({"first": other}, plan.charged(1))


# Permits.


def opened(right: Right, partitions: int = 3) -> permits.Permit:
    return Permits("weekly", {"rows": right}, Sources(Sampler, entropy.words)).over(partitions).of("rows")


def test_each_partition_is_drawn_once_in_whatever_portions() -> None:
    law = RoundedGaussian(Fraction(10))
    permit = opened(Right(law=law))
    permit.add_noise(np.zeros(2, np.int64), law, EVERY[:2])
    permit.add_noise(np.zeros((1, 9), np.int64), law, EVERY[2:])
    with pytest.raises(GateError, match=permits.TWO_DRAWS):
        permit.add_noise(np.zeros(1, np.int64), law, EVERY[1:2])
    with pytest.raises(GateError, match=permits.TWO_DRAWS):
        opened(Right(law=law)).add_noise(np.zeros(2, np.int64), law, np.array([1, 1]))


def test_noise_of_another_law_and_decisions_beyond_the_record_are_refused() -> None:
    law, less = RoundedGaussian(Fraction(10)), RoundedGaussian(Fraction(9))
    with pytest.raises(GateError, match=permits.OTHER_LAW):
        opened(Right(law=law)).add_noise(np.zeros(3, np.int64), less, EVERY)
    with pytest.raises(GateError, match=permits.OTHER_LAW):
        opened(Right(law=law)).noise_within(less, (0, 9), EVERY)
    right = Right(epsilon=Fraction(1), delta=1e-6, spread=2)
    opened(right).words(epsilon=Fraction(1), delta=1e-6, spread=2, partitions=EVERY)
    for more in ({"epsilon": Fraction(2)}, {"delta": 2e-6}, {"spread": 1}):
        asked = {"epsilon": Fraction(1), "delta": 1e-6, "spread": 2} | more
        with pytest.raises(GateError, match=permits.OTHER_DECISION):
            opened(right).words(partitions=EVERY, **asked)  # type: ignore[arg-type]
    with pytest.raises(GateError, match=permits.OTHER_DECISION):
        opened(Right(law=law)).words(epsilon=Fraction(0), delta=0.0, partitions=EVERY)


def test_permits_are_for_one_call_and_for_the_records_of_the_stage() -> None:
    table = pa.table({"customer": [1, 2], "region": ["a", "a"]})
    stage = planned()["first"]
    (totals,) = nb.totals(table, stage.layout, stage.statistics)
    own = gate.open_gate(stage)
    draw_release(totals, stage, own)
    with pytest.raises(GateError, match=permits.TWO_DRAWS):
        draw_release(totals, stage, own)
    with pytest.raises(GateError, match=permits.NO_RECORD):
        draw_release(totals, stage, gate.open_gate(planned()["second"]))
    with pytest.raises(GateError, match=permits.OTHER_LAW):
        draw_release(totals, stage, gate.nothing_drawn(stage))
    with pytest.raises(GateError, match=permits.OTHER_DECISION):  # not even a coin that tells nothing
        gate.nothing_drawn(stage).over(3).of("rows").words(epsilon=Fraction(0), delta=0.0, partitions=EVERY)


def test_a_released_partition_without_its_draw_is_refused() -> None:
    law = RoundedGaussian(Fraction(10))
    rights = {"rows": Right(law=law), "selection": Right(epsilon=Fraction(1)), "selection threshold": Right(delta=1e-6)}
    own = Permits("weekly", rights, Sources(Sampler, entropy.words)).over(3)
    own.of("selection").words(epsilon=Fraction(1), delta=0.0, partitions=EVERY)
    own.check_drawn(EVERY[:0])
    own.of("rows").add_noise(np.zeros(2, np.int64), law, EVERY[:2])
    own.check_drawn(EVERY[:2])
    with pytest.raises(GateError, match=permits.NO_DRAW):
        own.check_drawn(EVERY)


def test_a_bucket_of_a_list_on_disk_is_drawn_once() -> None:
    law = RoundedGaussian(Fraction(10))
    own = Permits("weekly", {"rows": Right(law=law)}, Sources(Sampler, entropy.words)).over(3)
    own.words_of_bucket(0, {"rows": law})
    with pytest.raises(GateError, match=permits.TWO_DRAWS):
        own.words_of_bucket(0, {"rows": law})
    with pytest.raises(GateError, match=permits.OTHER_LAW):
        own.words_of_bucket(1, {"rows": RoundedGaussian(Fraction(9))})


def test_a_refusal_survives_the_way_from_a_worker() -> None:
    error = GateError(permits.NO_RECORD, "weekly", "rows")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.rule, again.stage, again.record) == (str(error), error.rule, "weekly", "rows")


# Places: what is staged.


def test_places_that_are_drawn_twice_or_not_at_all_are_refused() -> None:
    table = pa.table({"k": ["a"]})
    right = [table, receipt(1), receipt(0)]
    assert list(without_receipts(right, "weekly", 2)) == [table]
    for wrong in ([*right, receipt(1)], [table, receipt(0)], [*right, receipt(2)]):
        with pytest.raises(GateError, match=gate.TWICE):
            list(without_receipts(wrong, "weekly", 2))


# Training.


def of_model() -> StagePlan:
    return made("model")["model"]


def test_sums_of_training_are_drawn_as_often_as_the_record_says_and_no_other_ones() -> None:
    stage = of_model()
    (vectors,) = stage.sums
    permit = gate.open_sums(stage)
    (multiplier,) = set(gate.training_noise.multipliers(stage))
    take = permit.for_sums(vectors.size, multiplier)
    for _ in range(vectors.times):
        take()
    with pytest.raises(GateError, match=permits.OTHER_SUM):
        take()
    for size, noise in ((vectors.size + 1, multiplier), (vectors.size, multiplier * Fraction(63, 64))):
        with pytest.raises(GateError, match=permits.OTHER_SUM):
            permit.for_sums(size, noise)
    permit.check_rate(vectors.rate)
    with pytest.raises(GateError, match=permits.OTHER_SAMPLE):
        permit.check_rate(vectors.rate * 1.01)


@pytest.mark.parametrize("field", ["l2_squared", "l0", "times", "rate", "scale"])
def test_a_record_of_training_that_states_less_is_refused(field: str) -> None:
    stage = of_model()
    (record,) = stage.mechanisms
    value = getattr(record, field)
    less = value * Fraction(65, 64) if field == "scale" else value / 2 if field == "rate" else value - 1
    smaller = dataclasses.replace(record, **{field: less})
    assert refusal(dataclasses.replace(stage, mechanisms=(smaller,))) == (gate.UNDERSTATED, "model", record.name)


def test_a_train_stage_draws_a_table_once_and_its_sums_through_the_permit() -> None:
    drawing, stage = Drawing(), of_model()
    (vectors,), (multiplier,) = stage.sums, set(gate.training_noise.multipliers(stage))
    noise = drawing.noisy_sum(stage, size=vectors.size, norm=1.0, multiplier=multiplier, slack=0.0)
    for _ in range(vectors.times):
        noise.release(np.zeros(vectors.size))
    with pytest.raises(GateError, match=permits.OTHER_SUM):
        noise.release(np.zeros(vectors.size))
    counted = made("model")["model.users"]
    (totals,) = nb.totals(one_partition.of(pa.table({"who": [1, 2]})), counted.layout, counted.statistics)
    drawing.table(counted, totals)
    with pytest.raises(GateError, match=permits.TWO_DRAWS):
        drawing.table(counted, totals)


def test_the_numbers_of_the_gate_are_those_of_the_noise_of_training() -> None:
    assert len(gaussian_noise._parts(entropy.words)) == gate.TABLES
    assert gaussian_noise.SCALE == clipped_vectors.SCALE


# Whole runs: each fault ends the run, and nothing is staged.

FAULTS = {
    "two draws of a partition": (
        "dp_pipelines.mechanisms.added_noise:AddedNoise.draw",
        "noisy_steps = permit.add_noise(lists, noise.law, exact.partitions)",
        "noisy_steps = permit.add_noise(permit.add_noise(lists, noise.law, exact.partitions), noise.law, exact.partitions)",
        permits.TWO_DRAWS,
    ),
    "two draws of a place": (
        "dp_pipelines.steps.draw_release:DrawRelease.process",
        "yield 0, receipt(element[0])",
        "yield from ((0, piece) for piece in [receipt(element[0]), receipt(element[0])])",
        gate.TWICE,
    ),
    "less noise in a draw": (
        "dp_pipelines.mechanisms.added_noise:AddedNoise.draw",
        "noisy_steps = permit.add_noise(lists, noise.law, exact.partitions)",
        "noisy_steps = permit.add_noise(lists, type(noise.law)(noise.law.scale / 2), exact.partitions)",
        permits.OTHER_LAW,
    ),
    "no noise in a draw": (
        "dp_pipelines.mechanisms.added_noise:AddedNoise.draw",
        "noisy_steps = permit.add_noise(lists, noise.law, exact.partitions)",
        "noisy_steps = lists",
        permits.NO_DRAW,
    ),
    "less noise in a plan": (
        "dp_pipelines.planning.stage:build_stage",
        "_noise(statistic, query, choices.noises[key], scales)",
        "_noise(statistic, query, choices.noises[key], type(scales)(**{**vars(scales), "
        "'laplace_scale': scales.laplace_scale / 2, 'gaussian_scale': scales.gaussian_scale / 2}))",
        gate.UNDERSTATED,
    ),
    "no record": (
        "dp_pipelines.planning.stage:records",
        "return [grouped(record, query) for record in records]",
        "return [grouped(record, query) for record in records][1:]",
        permits.NO_RECORD,
    ),
    "another stage's record": (
        "dp_pipelines.planning.stage:build_stage",
        "mechanisms=tuple(records(name, query, choices, scales))",
        "mechanisms=tuple(records('daily', query, choices, scales))",
        gate.NOT_CHARGED,
    ),
    "a wrong L0": (
        "dp_pipelines.kernels.statistics:_once_per_partition",
        "coordinates=max_partitions",
        "coordinates=max(1, max_partitions - 1)",
        gate.UNDERSTATED,
    ),
}


def histogram_and_counts(bound: int) -> dict[str, object]:
    """Stages with lists of numbers and with single ones."""
    bounds = {"max_partitions_contributed": bound, "max_contributions_per_partition": 2}
    prices = {"kind": "histogram", "column": "price", "edges": [0, 5, 10, 20]}
    public = {"public": [[f"p{number}"] for number in range(5)]}
    return {
        "weekly": of_shop(partitions=public, partition_by=["product"], bounds=bounds, metrics={"prices": prices}),
        "daily": of_shop(
            partitions=public,
            partition_by=["product"],
            bounds=bounds,
            metrics={"people": {"kind": "privacy_id_count"}},
        ),
    }


@pytest.mark.parametrize(
    ("fault", "runner"), [*((fault, "local") for fault in FAULTS), ("two draws of a partition", "direct")]
)
def test_a_planted_fault_ends_a_run_before_anything_is_staged(
    fault: str,
    runner: str,
    shop: Shop,  # noqa: F811
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, old, new, rule = FAULTS[fault]
    # A bound of its own for each fault: planning remembers what it has counted for a query.
    shop.write(stages=histogram_and_counts(2 + list(FAULTS).index(fault) % 4), budget={"epsilon": 8.0, "delta": 1e-5})
    out = tmp_path / "out"
    command = ["run", str(shop.job), "--output", str(out), "--ledger", "none", "--runner", runner]
    plant(monkeypatch, name, old, new)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert call_main(command) == 1
    told = capsys.readouterr().err
    assert rule in told
    assert "stage 'weekly'" in told or "stage 'daily'" in told
    assert "report it; nothing was published" in told
    assert not out.exists()
    assert [path for path in shop.left() if not path.startswith("cache")] == []


@pytest.mark.parametrize("fault", ["less noise in a plan", "no record", "another stage's record", "a wrong L0"])
def test_a_fault_of_a_plan_ends_a_run_before_it_is_charged(
    fault: str,
    shop: Shop,  # noqa: F811
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, old, new, rule = FAULTS[fault]
    shop.write(stages=histogram_and_counts(6 + list(FAULTS).index(fault) % 4), budget={"epsilon": 8.0, "delta": 1e-5})
    plant(monkeypatch, name, old, new)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert call_main(["run", str(shop.job), "--output", str(tmp_path / "out")]) == 1
    assert rule in capsys.readouterr().err
    assert shop.charged() == 0
    assert [path for path in shop.left() if not path.startswith("cache")] == []


def test_a_right_run_is_published(
    shop: Shop,  # noqa: F811
    tmp_path: pathlib.Path,
) -> None:
    shop.write(stages=histogram_and_counts(2), budget={"epsilon": 8.0, "delta": 1e-5})
    out = tmp_path / "out"
    assert call_main(["run", str(shop.job), "--output", str(out), "--ledger", "none"]) == 0
    assert sorted(path.name for path in out.glob("*.parquet")) == ["daily.parquet", "weekly.parquet"]


def call_main(arguments: list[str]) -> int:
    from dp_pipelines.jobs.cli.main import main

    return main(arguments)


# Beam: bundles are tried again, and programs have no driver of ours.


def rows(pipeline: beam.Pipeline) -> beam.PCollection:
    return pipeline | beam.Create([pa.table({"customer": [1, 2, 3], "region": ["a", "b", "a"]})])


def test_a_beam_program_is_refused_where_its_graph_is_made() -> None:
    stage = dataclasses.replace(planned()["first"], mechanisms=())
    with pytest.raises(GateError, match=permits.NO_RECORD):
        rows(beam.Pipeline()) | PrivateAggregate(stage)


def test_a_worker_checks_again_what_it_was_sent() -> None:
    step = pickle.loads(pickle.dumps(DrawRelease(planned()["first"], 1)))
    step._stage = dataclasses.replace(step._stage, mechanisms=())
    with pytest.raises(GateError, match=permits.NO_RECORD):
        list(step.process((0, [])))


def test_a_bundle_that_is_tried_again_draws_again_and_is_counted_once() -> None:
    step = DrawRelease(planned()["first"], 1)
    lost = list(step.process((0, [])))
    again = list(pickle.loads(pickle.dumps(step)).process((0, [])))
    assert not lost[0][1].equals(again[0][1])
    (table,) = without_receipts([piece for _, piece in again], "first", 1)
    assert table.num_rows == 2
    with pytest.raises(GateError, match=gate.TWICE):  # both would be staged
        list(without_receipts([piece for _, piece in [*lost, *again]], "first", 1))


def test_a_statement_of_a_stage_is_no_part_of_what_is_checked() -> None:
    gate.check(dataclasses.replace(planned()["first"], statement=FrozenMapping({})))
