"""The audit of a rollup: its levels run as they were accounted, and one whose noise is 5% too small is found.

In: a small plan. Out: what the audit says of it, as it is and with a fault. Holds: a plan that is right fails with a chance of at
most 1e-9. Not covered: how far kernels let a unit move a level (tests/privacy/test_rollup_sensitivity.py).
"""

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import pyarrow as pa
import pytest

from dp_pipelines import Count, Plan, PrivacyIdCount, PrivatePartitions, PublicPartitions, Query, Sum
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.audit import aggregates, records
from dp_pipelines.audit.audit import EVERYTHING
from dp_pipelines.noise.laws import RoundedGaussian
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import gate
from dp_pipelines.release.draw import draw_release
from tests.audit.test_audit import BOUNDS, audited, broken

LEVELS = ("weekly.level0", "weekly.level1", "weekly")
PARTITIONS = {
    "public": PublicPartitions(keys=[(region, week) for region in "ns" for week in (1, 2, 3)]),
    "private": PrivatePartitions(strategy="gaussian"),
    "coins": PrivatePartitions(strategy="truncated_geometric"),
}


def plan(partitions: str, runs: int = 1) -> Plan:
    query = Query(
        privacy_unit="who",
        partition_by=("region", "week"),
        bounds=BOUNDS,
        metrics={"rows": Count(), "users": PrivacyIdCount(), "paid": Sum("paid", min_value=-5, max_value=10)},
        partitions=PARTITIONS[partitions],
        rollup=[[], ["region"], ["region", "week"]],
    )
    split = "constant" if runs == 1 else "linear"
    return Plan(epsilon=4.0, delta=1e-6, stages={"weekly": query}, runs=runs, split=split)  # type: ignore[arg-type]


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_each_level_runs_as_it_was_accounted(partitions: str) -> None:
    found = audited(plan(partitions))
    assert broken(found) == set()
    assert not found.notes
    assert [line.name for line in found.lines] == [*LEVELS, EVERYTHING]
    everything = found.lines[-1].divergences[0]
    assert everything.replayed > 0.4 * everything.accounted - 3 * everything.error


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_whose_noise_is_five_percent_too_small_is_found(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def less(totals: object, stage: StagePlan, *permits: object, **others: object) -> pa.Table:
        if stage.name == level:
            short = tuple(
                noise and dataclasses.replace(noise, law=RoundedGaussian(noise.law.scale * Fraction(19, 20)))
                for noise in stage.noises
            )
            stage = dataclasses.replace(stage, noises=short)
        return draw_release(totals, stage, *permits, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(aggregates, "draw_release", less)
    found = {name for name, what in broken(audited(plan("public"))) if what.startswith("noise of")}
    assert found == {level}


RECORDS: dict[str, Callable[[MechanismRecord], MechanismRecord]] = {
    "a fan-out that is too small": lambda r: dataclasses.replace(r, l2_squared=(r.l2_squared or 0) // 2),
    "another scale": lambda r: dataclasses.replace(r, scale=(r.scale or 1) + 1),
    "fewer groups": lambda r: dataclasses.replace(r, l0=(r.l0 or 0) + 1),
}


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_records_of_levels_say_what_runs(partitions: str) -> None:
    for runs in (1, 3):
        of = plan(partitions, runs)
        ready = {name: [stage] for name, stage in of.round(1).stages.items()}
        assert all(each.evidence == 0.0 for found in records.findings(of, ready).values() for each in found)


@pytest.mark.parametrize("wrong", RECORDS)
def test_a_record_of_a_level_that_is_told_wrong_is_found(wrong: str) -> None:
    stage = plan("public")["weekly"].coarser[1]
    told = [RECORDS[wrong](stage.mechanisms[0]), *stage.mechanisms[1:]]
    assert {name for name, _ in records.compared(gate.required(stage, None, None), told)} == {"rows"}
