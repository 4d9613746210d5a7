"""Every kind of record walks through all that the accountant does with one, and so does a kind that is defined here.

In: one record of each kind. Out: where the accountant, the divergences, the estimate and the comparison contradict each other.
Holds: a kind that is registered is looked at, and one that says nothing somewhere is found. Not covered: whether a price is
the true one (`test_accountant`, `test_renyi`, `test_subsampled_gaussian`, `test_bounded_range`).
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from dp_pipelines.accounting import accountant, comparison, divergences, renyi
from dp_pipelines.accounting.dominating_pairs import Response
from dp_pipelines.accounting.estimate import Terms
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import KINDS, ApproximateDpKind, Loss, RecordKind, given, worst_shifts
from dp_pipelines.errors import RequestError

EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "gaussian": {"scale": Fraction(64), "l2_squared": 1600, "l0": 4},
    "sampled_gaussian": {"scale": Fraction(64), "l2_squared": 64**2, "l0": 1, "rate": 0.02, "times": 200},
    "laplace": {"scale": Fraction(64), "linf": 16, "l0": 3, "l1": 40},
    "approximate_dp": {"epsilon": 0.25, "delta": 1e-8, "l0": 3},
    "bounded_range": {"epsilon": 0.25, "l0": 3},
    "delta": {"delta": 1e-7},
}
"""One record of each kind; a new kind needs one too."""

DELTA = 1e-6
ORDERS = (1.5, 4.0, 29.0, 120.0)

SPREAD = 1.2
"""The pair of bounded range costs up to 1.16 of what its divergence says (docs/proofs/exponential.md, lemma 6)."""


def example(kind: str, stage: str = "weekly") -> MechanismRecord:
    return MechanismRecord(stage=stage, name="orders", kind=kind, **EXAMPLES[kind])


def contradictions(record: MechanismRecord) -> Iterator[str]:
    """What is said of a record in one place and contradicted in another."""
    kind, exact = KINDS[record.kind], accountant.epsilon_of([record], DELTA)
    if MechanismRecord.from_json(json.loads(json.dumps(record.to_json()))) != record:
        yield "JSON"
    if ("scale" in kind.fields) != (record.draws > 0):
        yield "draws"
    if ("delta" in kind.fields) != (math.prod(kind.failures(record)) > 0):
        yield "failures"
    if not exact <= accountant.epsilon_of([record], DELTA, runs=2) < math.inf:
        yield "runs"
    if accountant.delta_of([record], 20.0) < math.prod(kind.failures(record)) * (1 - 1e-6):
        yield "delta"
    pure = accountant.pure_epsilon_of([record])
    if pure is not None and exact > pure * (1 + 1e-6):
        yield "pure epsilon"
    left = DELTA - renyi.failure([record], exact)
    if any(renyi.to_epsilon(renyi.divergence([record], order), order, left) < exact / SPREAD for order in ORDERS):
        yield "divergence"
    costs = comparison.compare([([record], 1)], DELTA)
    if min(costs.naive, costs.advanced, costs.renyi * SPREAD) < exact * (1 - 1e-4):
        yield "comparison"
    if not exact / 1.5 <= comparison.rough_epsilon([record], DELTA) <= exact * 1.5:
        yield "estimate"
    if comparison.explain([([record], 1)], DELTA)["records"] != {record.stage: [record.to_json()]}:
        yield "explanation"
    if not kind.words(record) or "None" in kind.words(record):
        yield "words"


class PureDpKind(RecordKind):
    """Decisions that never fail: a kind of record as somebody would add it."""

    name = "pure_dp"
    fields = ("epsilon", "l0")

    def loss(self, record: MechanismRecord) -> Loss:
        return Loss(pairs=((Response(given(record.epsilon)), given(record.l0)),))

    def divergence(self, record: MechanismRecord, order: float) -> float:
        return given(record.l0) * divergences.response(given(record.epsilon), order)

    def terms(self, record: MechanismRecord) -> Terms:
        return Terms(losses=((given(record.l0), given(record.epsilon)),))

    def words(self, record: MechanismRecord) -> str:
        return f"{record.l0} decisions of epsilon {record.epsilon}"


class WithoutLoss(PureDpKind):
    """Planted: the accountant is told nothing."""

    def loss(self, record: MechanismRecord) -> Loss:
        return Loss()


class WithoutDivergence(PureDpKind):
    """Planted: the ledger's filter is told nothing."""

    def divergence(self, record: MechanismRecord, order: float) -> float:
        return 0.0


class WithoutTerms(PureDpKind):
    """Planted: composition theorems are told nothing."""

    def terms(self, record: MechanismRecord) -> Terms:
        return Terms()


class FailsUnseen(ApproximateDpKind):
    """Planted: what may fail is left out."""

    def failures(self, record: MechanismRecord) -> tuple[float, int]:
        return 0.0, 0


def test_every_kind_has_an_example_and_its_own_name() -> None:
    assert set(EXAMPLES) == set(KINDS)
    assert all(kind.name == name for name, kind in KINDS.items())


@pytest.mark.parametrize("kind", EXAMPLES)
def test_whatever_reads_records_reads_every_kind(kind: str) -> None:
    assert list(contradictions(example(kind))) == []


def test_each_kind_says_in_words_what_a_record_says() -> None:
    assert [KINDS[kind].words(example(kind)) for kind in EXAMPLES] == [
        "40 steps in the L2 norm, 4 partitions",
        "200 sums over samples of 0.02 of the units, 64 steps in the L2 norm each",
        "16 steps in each of 3 partitions, 40 in all",
        "3 decisions of epsilon 0.25, delta 1e-08",
        "3 bounded-range selections, epsilon 0.25",
        "fails with probability 1e-07",
    ]


def test_records_of_all_kinds_cost_more_together_than_any_of_them_alone() -> None:
    records = [example(kind, stage=kind) for kind in EXAMPLES]
    together = accountant.epsilon_of(records, DELTA)
    assert together > max(accountant.epsilon_of([record], DELTA) for record in records)
    told = comparison.explain([(records, 1)], DELTA)
    assert set(told["stages"]) == set(told["records"]) == set(KINDS)
    assert told["total"]["pld"] == together


def test_a_kind_that_is_defined_elsewhere_is_priced_like_those_of_the_house(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"stage": "s", "name": "n", "kind": "pure_dp", "epsilon": 0.25, "l0": 3}
    with pytest.raises(RequestError, match=r"mechanism.kind.*must be one of gaussian, sampled_gaussian, laplace"):
        MechanismRecord.from_json(fields)
    monkeypatch.setitem(KINDS, "pure_dp", PureDpKind())
    record = MechanismRecord.from_json(fields)
    assert list(contradictions(record)) == []
    same = MechanismRecord(stage="s", name="n", kind="approximate_dp", epsilon=0.25, delta=0.0, l0=3)
    assert accountant.epsilon_of([record], DELTA) == accountant.epsilon_of([same], DELTA)
    assert renyi.divergence([record], 4.0) == renyi.divergence([same], 4.0)
    assert comparison.compare([([record], 5)], DELTA) == comparison.compare([([same], 5)], DELTA)


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (WithoutLoss(), {"estimate"}),
        (WithoutDivergence(), {"divergence", "comparison"}),
        (WithoutTerms(), {"comparison", "estimate"}),
    ],
    ids=lambda planted: type(planted).__name__,
)
def test_a_kind_that_forgets_something_is_found(
    planted: RecordKind, found: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "pure_dp", planted)
    assert set(contradictions(MechanismRecord(stage="s", name="n", kind="pure_dp", epsilon=0.25, l0=3))) == found


def test_a_kind_whose_failures_are_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "approximate_dp", FailsUnseen())
    assert "failures" in list(contradictions(example("approximate_dp")))


@drawn(linf=st.integers(1, 20), l0=st.integers(1, 20), l1=st.integers(1, 500), scale=st.integers(1, 64))
def test_the_worst_spread_of_a_change_is_in_as_few_pieces_as_its_norms_allow(
    linf: int, l0: int, l1: int, scale: int
) -> None:
    record = MechanismRecord(stage="s", name="n", kind="laplace", scale=Fraction(scale), linf=linf, l0=l0, l1=l1)
    pieces = [shift for shift, times in worst_shifts(record) for _ in range(times)]
    assert sum(pieces) * scale == min(l1, l0 * linf)
    assert len(pieces) <= l0
    assert sum(shift * scale == linf for shift in pieces) >= len(pieces) - 1
    assert all(0 < shift * scale <= linf for shift in pieces)
    assert record.pure_epsilon == sum(pieces)


@pytest.mark.parametrize("units", [1, 2, 5])
@pytest.mark.parametrize("change", [(3, 4), (2,), (5, 5, 1)])
def test_a_group_changes_what_its_units_change_in_the_same_places_or_each_in_its_own(
    units: int, change: tuple[int, ...]
) -> None:
    def norms(vector: Sequence[int]) -> dict[str, int]:
        moved = [abs(number) for number in vector if number]
        return {"linf": max(moved), "l0": len(moved), "l1": sum(moved), "l2_squared": sum(n * n for n in moved)}

    one, together, apart = norms(change), norms([units * number for number in change]), norms(change * units)
    for kind in ("gaussian", "laplace"):
        own = {field: norm for field, norm in one.items() if field in KINDS[kind].fields}
        record = MechanismRecord(stage="s", name="n", kind=kind, scale=Fraction(64), **own)
        assert KINDS[kind].changes_of_group(record, units) == {
            field: max(together[field], apart[field]) for field in own
        }


@pytest.mark.parametrize("order", [1.2, 2.0, 9.0])
def test_sums_over_samples_of_nearly_everybody_diverge_as_so_many_sums_over_all(order: float) -> None:
    sums = {"scale": Fraction(64), "l2_squared": 64**2, "l0": 1}
    whole = MechanismRecord(stage="s", name="n", kind="gaussian", **sums)
    for times in (1, 30):
        record = MechanismRecord(stage="s", name="n", kind="sampled_gaussian", **sums, rate=1 - 1e-12, times=times)
        expected = times * KINDS["gaussian"].divergence(whole, order)
        assert KINDS["sampled_gaussian"].divergence(record, order) == pytest.approx(expected, rel=1e-6)
