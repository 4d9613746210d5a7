"""Every statistic has a mechanism, every mechanism is known to plan, release and audit; a new one is one class."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import ContributionBounds, Plan, PublicPartitions, Query
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.audit import records, replay
from dp_pipelines.kernels import statistics
from dp_pipelines.kernels.statistics import RowCount, Statistic
from dp_pipelines.mechanisms.added_noise import AddedNoise
from dp_pipelines.mechanisms.by_statistic import MECHANISMS, inherited, mechanism_of
from dp_pipelines.mechanisms.mechanism import Calibration, Mechanism
from dp_pipelines.metrics.base import Basis, Metric, Noisy, ReleasedValues, constant
from dp_pipelines.release import gate
from dp_pipelines.release.draw import draw_release
from tests.helpers import neighbours as nb


def kinds(of: type[Statistic]) -> Iterator[type[Statistic]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


ALL = [kind for kind in kinds(Statistic) if kind.__module__ == statistics.__name__ and "kind" in vars(kind)]


def test_the_statistics_of_the_library_are_looked_at() -> None:
    assert len(ALL) >= 13


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_statistic_has_a_mechanism_that_audits_know(kind: type[Statistic]) -> None:
    mechanism = inherited(MECHANISMS, kind)
    assert mechanism.law in (None, "gaussian", "laplace")
    for table in (gate.FIELDS, replay.COSTS):
        assert inherited(table, type(mechanism)) is not None  # type: ignore[type-var]
    # What is decided by exact counts is replayed as a decision, and only that is told without a law.
    assert kind.decided == (mechanism.words is not None)
    if kind.decided:
        assert inherited(replay.DECISIONS, type(mechanism)) is not None


def test_a_mechanism_that_audits_do_not_know_is_seen() -> None:
    class Unknown(Mechanism):
        pass

    with pytest.raises(StopIteration):
        inherited(gate.FIELDS, Unknown)


# A mechanism of one's own, for a statistic of one's own.


class EvenRows(RowCount):
    """Rows, counted in pairs."""

    kind = "even_rows"


class AlwaysGaussian(AddedNoise):
    """Noise that is Gaussian in every plan, and pays for twice the change: a mechanism that planning has never seen."""

    law = "gaussian"

    def record(self, stage: str, name: str, calibration: Calibration) -> MechanismRecord:
        moved = calibration.moved
        scale = calibration.noise.law.scale
        return MechanismRecord(
            stage=stage, name=name, kind="gaussian", scale=scale, l2_squared=4 * moved.l2_squared, l0=moved.l0
        )


class Pairs(Metric):
    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (EvenRows(),)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        return constant(noisy[EvenRows()])


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, EvenRows, AlwaysGaussian())


def planned() -> Plan:
    asked = Query(
        privacy_unit="customer",
        partition_by="region",
        metrics={"pairs": Pairs()},
        partitions=PublicPartitions(keys=[["a"], ["b"]]),
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
    )
    return Plan(epsilon=1.0, delta=1e-6, stages={"s": asked})


def test_a_mechanism_of_ones_own_is_planned_paid_for_and_drawn(registered: None) -> None:
    plan = planned()
    stage = plan["s"]
    assert isinstance(mechanism_of(EvenRows()), AlwaysGaussian)
    assert stage.choices.noises["even_rows"].law == "gaussian"
    (record,) = stage.mechanisms
    calibration = stage.calibration(0)
    assert record.l2_squared == 4 * calibration.moved.l2_squared
    table = pa.table({"customer": pa.array([1, 2]), "region": pa.array(["a", "a"])})
    (totals,) = nb.totals(table, stage.layout, stage.statistics)
    released = draw_release(totals, stage)
    assert released.column("region").to_pylist() == ["a", "b"]
    assert np.abs(released.column("pairs").to_numpy() - [2, 0]).max() < 20 * calibration.noise.stddev


def test_an_audit_says_that_such_a_record_is_not_what_runs(registered: None) -> None:
    (finding,) = records.findings(planned(), {"s": []})["s"]
    assert "l2_squared" in finding.found
    assert finding.evidence == float("inf")
