"""What a model reads, as the audit sees it: `fit` passes, and each fault of one line in it is found.

In: small train stages. Out: what the audit finds on made-up examples. Holds: nothing is left to chance. Each fault is planted
into a copy of the source, so that a fault that no longer fits the source fails its test. Not covered: laws of noise
(`tests/audit/test_audit.py`).
"""

import functools
import pathlib
import tempfile
from typing import Any, NamedTuple

import pytest

from dp_pipelines import Plan
from dp_pipelines.audit import audit, fitted, made_up
from dp_pipelines.audit.replay import Finding
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.query.federate_model import FederateModel, Rounds
from dp_pipelines.query.models.pate_model import PateModel, Teachers
from dp_pipelines.query.train_model import (
    MLP,
    BinaryLabel,
    Category,
    ClassLabel,
    EvaluationGroups,
    FitCandidate,
    JaxModel,
    Number,
    NumberLabel,
    Steps,
    TrainModel,
)
from tests.audit.test_audit import broken
from tests.helpers.planted import plant

FEATURES = {
    "x": Number(column="x", min_value=0, max_value=1, bins=4),
    "kind": Category(column="kind", most=3),
}


TEACHERS = Teachers(teachers=20, answers=10, asked=30, steps=10)


def model(**changes: Any) -> TrainModel:
    base: dict[str, Any] = {
        "privacy_unit": "who",
        "label": BinaryLabel(column="y"),
        "features": FEATURES,
        "steps": Steps(steps=4),
        "max_examples_per_unit": 3,
        "held_out": 0.3,
    }
    if changes.pop("federate", False):
        return FederateModel(**{**base, "expected_clients": 20, **changes})
    if changes.pop("pate", False):
        return PateModel(**{**base, "steps": TEACHERS, **changes})
    return TrainModel(**{**base, **changes})


@functools.cache
def planned(**changes: Any) -> Plan:
    return Plan(epsilon=8, delta=1e-5, stages={"model": model(**changes)})


def wrong(plan: Plan, findings: dict[str, tuple[Finding, ...]] | None = None) -> dict[str, str]:
    """What is found wrong, by what it is."""
    found = fitted.findings(plan, "model") if findings is None else findings
    return {each.what: each.found for of_part in found.values() for each in of_part if each.evidence}


# What is right passes.


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"whiten": False},
        {"steps": Steps(steps=4, sampling_rate=0.1, clip_norm=2.0)},
        {"label": ClassLabel(column="y", classes=("a", "b", "c"))},
        {"label": NumberLabel(column="y", min_value=-3, max_value=9)},
        {"max_examples_per_unit": 1, "held_out": 0.01},
        {"privacy_unit": ("who", "where")},
        {
            "features": {
                "x": Number(column="x", min_value=0, max_value=1, bins=3, scaled=True),
                "again": Number(column="x", min_value=-1, max_value=2, edges=[0, 1]),
                "one": Category(column="one", categories=[3, 4]),
            }
        },
        {"evaluation_by": EvaluationGroups(column="area", groups=["north", "south"]), "max_examples_per_unit": 2},
        {"model": MLP(hidden=(4,))},
        {"federate": True, "steps": Rounds(steps=3, schedule="linear")},
        {"federate": True, "steps": Rounds(steps=2, method="fedsgd", sampling_rate=0.5), "whiten": False},
        {"federate": True, "steps": Rounds(steps=2, local_epochs=2), "model": MLP(hidden=(4,))},
        {"pate": True},
        {"pate": True, "steps": Teachers(teachers=500, answers=300, asked=300, threshold=280), "whiten": False},
        {"pate": True, "label": ClassLabel(column="y", classes=("a", "b", "c")), "model": MLP(hidden=(4,))},
        {"steps": Steps(steps=4, candidates=[FitCandidate(), FitCandidate(learning_rate=0.5), FitCandidate(steps=2)])},
        {
            "steps": Steps(candidates=[FitCandidate(steps=1), FitCandidate(steps=3)], sampling_rate=0.5),
            "label": NumberLabel(column="y", min_value=-3, max_value=9),
            "privacy_unit": ("who", "where"),
        },
    ],
    ids=lambda changes: ",".join(changes) or "plain",
)
def test_a_model_reads_what_its_records_name_and_nothing_else_leaves(changes: dict[str, Any]) -> None:
    if {"model", "federate", "pate"} & set(changes):
        pytest.importorskip("numba")
    plan = Plan(epsilon=8, delta=1e-5, stages={"model": model(**changes)})
    found = fitted.findings(plan, "model")
    assert wrong(plan, found) == {}
    parts = list(plan.stages)
    assert {each.what for of_part in found.values() for each in of_part} == {
        *(f"units read by {part}" for part in parts),
        *(f"draws of {part}" for part in parts),
        "follows from what was drawn",
    }


def test_each_release_reads_the_units_of_its_group_one_by_one() -> None:
    """For each unit in turn: without it, before noise, the releases of its group change, and no other."""
    plan = planned()
    task, stages = plan.trained["model"], plan.round(1).stages
    everybody, *_ = made_up.some(task, fitted.KEY)
    first = fitted.run(stages, "model", task, everybody, None)
    group_of = {record.stage: record.group for record in plan.mechanisms}
    readers: dict[str | None, set[str]] = {"training": set(), "held out": set()}
    for stage, group in group_of.items():
        readers[group].add(stage)
    assert {len(stages) for stages in readers.values()} == {5, 1}
    groups = []
    for unit in everybody.units:
        ran = fitted.run(stages, "model", task, everybody.without(unit), first.seen)
        changed = {stage for stage, read in first.seen.read.items() if not fitted._same(read, ran.seen.read[stage])}
        assert changed in readers.values()
        groups.append(changed == readers["held out"])
        assert ran.left == first.left
    assert (groups.count(False), groups.count(True)) == (made_up.TRAINING, made_up.HELD_OUT)


def test_examples_are_made_up_anew_for_each_unit_and_leave_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    everybody, training, held_out = made_up.some(model(), b"key")
    table = everybody.table()
    assert set(table.column("who").to_pylist()) == {f"unit {unit}" for unit in everybody.units}
    for unit in (*training, *held_out):
        mine = [row for row in table.to_pylist() if row["who"] == f"unit {unit}"]
        assert mine == everybody.alone(unit).table().to_pylist()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert wrong(planned()) == {}
    assert not list(tmp_path.iterdir())


def test_a_model_whose_library_is_missing_is_a_note_and_no_fault() -> None:
    plan = Plan(epsilon=8, delta=1e-5, stages={"model": model(model=JaxModel(name="no.such:thing", parameters=3))})
    found = audit.audit(plan, replays=1000, false_alarms=1e-10)
    assert any("made-up examples" in note for note in found.notes)
    assert found.agrees


# What is wrong does not.


class Fault(NamedTuple):
    """A fault of one line: where, which piece of the source becomes what, and what the audit says."""

    name: str
    old: str
    new: str
    found: str


FIT, GROUPS = "dp_pipelines.training.fit:Fit.", "dp_pipelines.training.examples.groups:"
OF_MODEL = "units read by model"

FAULTS = {
    "training on held-out units": Fault(
        f"{GROUPS}TrainingUnits._own", "return ~held_out", "return held_out", OF_MODEL
    ),
    "training on held-out units, in fit": Fault(f"{FIT}run", "self._divided()", "self._divided()[::-1]", "fit"),
    "evaluating on training units": Fault(
        f"{GROUPS}HeldOutUnits._own", "return held_out", "return ~held_out", f"{OF_MODEL}.evaluation"
    ),
    "evaluating on training units, in fit": Fault(
        f"{FIT}run", "self._evaluation(artefact, held_out)", "self._evaluation(artefact, training)", "fit"
    ),
    "evaluating on all units": Fault(
        f"{FIT}_evaluation", "held_out.rows_for(stage)", "self.tables()", f"{OF_MODEL}.evaluation"
    ),
    "bins and counts over all units": Fault(f"{FIT}_table", "training.rows_for(stage)", "self.tables()", f"{OF_MODEL}.bins"),
    "the true row count as divisor": Fault(
        f"{FIT}_trained",
        "divisor = of.sizes.examples",
        "divisor = of.examples.rows_for(stage).rows",
        "follows from what was drawn",
    ),
    "the true unit count in the whitening": Fault(
        f"{FIT}_whitening",
        "whitened(noisy, sizes.users",
        "whitened(noisy, examples.rows_for(stage).units",
        "follows from what was drawn",
    ),
    "second moments without noise": Fault(
        f"{FIT}_whitening", "released = noise.release(", "released = (", "draws of model.moments"
    ),
    "second moments kept without noise": Fault(
        f"{FIT}_whitening",
        "self.draws.keep(name, released.",
        "self.draws.keep(name, moments.clipped_moments(examples.rows_for(stage), encoder.row_norm).",
        "follows from what was drawn",
    ),
    "scores that depend on other rows": Fault(
        "dp_pipelines.training.evaluation:celled",
        "alone=True)",
        "alone=True) * (1 - 2 * (len(table) % 2))",
        f"{OF_MODEL}.evaluation",
    ),
    "a split by row instead of by unit": Fault(
        "dp_pipelines.training.examples.split:split",
        "hashing.mix(hashes ^ np.uint64(second))",
        "hashing.mix(hashes ^ np.arange(len(hashes)).astype(np.uint64))",
        OF_MODEL,
    ),
    "one noise for two steps": Fault(
        "dp_pipelines.training.trainer:fit",
        "in range(done + 1, steps.steps + 1):",
        "in range(done + 2, steps.steps + 1):",
        "draws of model",
    ),
    "the multiplier of another stage": Fault(
        f"{FIT}_trained",
        "multipliers = training_noise.multipliers(stage)",
        "multipliers = [each + of.examples.rows_for(stage).units for each in training_noise.multipliers(stage)]",
        "follows from what was drawn",
    ),
    "a message that counts": Fault(
        f"{FIT}run", 'f"evaluating {self.name}"', 'f"evaluating {examples.rows_for(stage).units}"', "follows from what was drawn"
    ),
    "noise from another door": Fault(
        f"{FIT}_table", ", self.drawing.table)", ")", "draws of model.bins"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_one_line_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    plant(monkeypatch, *FAULTS[fault][:3])
    assert FAULTS[fault].found in wrong(plan)


CHOICE = "dp_pipelines.training.candidate_choice:"
CANDIDATES = Steps(steps=4, candidates=[FitCandidate(), FitCandidate(learning_rate=0.5), FitCandidate(steps=2)])

FAULTS_OF_CHOICE = {
    "choosing by training units": Fault(f"{FIT}run", "self._chosen(of, held_out)", "self._chosen(of, training)", "fit"),
    "choosing by all units": Fault(
        f"{CHOICE}choose", "held_out.rows_for(stage)", "held_out._all.tables()", f"{OF_MODEL}.choice"
    ),
    "a choice from another door": Fault(f"{CHOICE}choose", "salt, draw)", "salt)", "draws of model.choice"),
    "two choices": Fault(
        f"{FIT}_chosen", "if self.draws.get(stage.name) is None:", "for _ in range(2):", "draws of model.choice"
    ),
    "scores that depend on other units": Fault(
        f"{CHOICE}scores_of_units", "// counts if", "// counts.max() if", f"{OF_MODEL}.choice"
    ),
    "a choice by the number of rows": Fault(
        f"{FIT}_chosen",
        "candidate_choice.to_bytes(number,",
        "candidate_choice.to_bytes(1 + of.examples.rows_for(self.stages[self.name]).rows % 2,",
        "follows from what was drawn",
    ),
    "a candidate with the noise of another": Fault(
        f"{FIT}_trained",
        "stage = self.stages[self.part]",
        "stage = self.stages[self.name]",
        "fit",
    ),
}


@pytest.mark.parametrize("fault", FAULTS_OF_CHOICE)
def test_a_fault_of_one_line_in_the_choice_of_a_candidate_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(steps=CANDIDATES)
    plant(monkeypatch, *FAULTS_OF_CHOICE[fault][:3])
    assert FAULTS_OF_CHOICE[fault].found in wrong(plan)


def test_candidates_and_their_choice_are_replayed_and_agree_with_their_records() -> None:
    found = audit.audit(planned(steps=CANDIDATES), replays=1000, false_alarms=1e-10)
    assert found.agrees
    assert {line.name for line in found.lines} >= {"model", "model.candidate2", "model.candidate3", "model.choice"}
    assert {line.group for line in found.lines if line.name == "model.choice"} == {"held out"}


def test_a_choice_that_is_surer_than_its_record_says_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(steps=CANDIDATES)
    plant(
        monkeypatch,
        "dp_pipelines.mechanisms.best_choice:BestChoice.record",
        'kind="bounded_range", epsilon=epsilon',
        'kind="bounded_range", epsilon=epsilon / 2',
    )
    faulty = Plan.restore(plan.frozen(), epsilon=8, delta=1e-5, stages={"model": model(steps=CANDIDATES)})
    assert ("model.choice", "record of best") in broken(audit.audit(faulty, replays=1000, false_alarms=1e-10))


VOTES, ANSWERS = "dp_pipelines.training.teachers.votes:", "dp_pipelines.training.teachers.noisy_answers:"
FAULTS_OF_VOTES = {
    "teachers of all units": Fault(
        "dp_pipelines.training.teachers.votes_fit:VotesFit._votes",
        "encoded = training.encoded(",
        "encoded = TrainingUnits(dataclasses.replace(training._all, held_out=1e-9)).encoded(",
        "units read by model",
    ),
    "a teacher sees two blocks": Fault(
        f"{VOTES}votes_of",
        "order[ends[block] : ends[block + 1]]",
        "order[ends[block] : ends[min(block + 2, len(ends) - 1)]]",
        OF_MODEL,
    ),
    "a teacher votes twice": Fault(
        f"{VOTES}votes_of", "counts[places, classes] += 1", "counts[places, classes] += 2", OF_MODEL
    ),
    "noise for a change of one in the votes": Fault(
        f"{ANSWERS}noise_of_answers", "norm=MOVED_OF_ANSWER", "norm=1.0", OF_MODEL
    ),
    "noise for a part of a change in the tests": Fault(
        f"{ANSWERS}noise_of_tests", "norm=MOVED_OF_TEST", "norm=0.5", f"{OF_MODEL}.tests"
    ),
    "answers beyond those that are paid for": Fault(
        f"{ANSWERS}noisy_answers", "len(examples) == steps.answers", "len(examples) > steps.answers", "draws of model"
    ),
    "answers without noise": Fault(
        f"{ANSWERS}noisy_answers", "np.argmax(answers.release(own))", "np.argmax(own)", "draws of model"
    ),
    "tests without noise": Fault(
        f"{ANSWERS}noisy_answers", "tests.release(own.max(keepdims=True))", "own.max(keepdims=True)", "draws of model.tests"
    ),
    "a message that counts": Fault(
        "dp_pipelines.training.teachers.votes_fit:VotesFit._asked",
        'f"asking the teachers of {self.name}"',
        'f"asking {voted.max()}"',
        "follows from what was drawn",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS_OF_VOTES)
def test_a_fault_of_one_line_in_the_votes_of_teachers_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    plan = planned(pate=True, steps=Teachers(teachers=6, answers=10, asked=100, threshold=3, steps=10))
    plant(monkeypatch, *FAULTS_OF_VOTES[fault][:3])
    assert FAULTS_OF_VOTES[fault].found in wrong(plan)


def test_votes_are_replayed_and_agree_with_their_records() -> None:
    pytest.importorskip("numba")
    found = audit.audit(planned(pate=True), replays=2000, false_alarms=1e-10)
    assert found.agrees
    assert {line.name for line in found.lines} >= {"model", "model.tests", "model.evaluation"}


@pytest.mark.parametrize(
    ("place", "old", "new", "found"),
    [
        ("dp_pipelines.training.teachers.noisy_answers:noise_of_answers", "=MOVED_OF_ANSWER", "=1.0", "noise of"),
        ("dp_pipelines.training.teachers.noisy_answers:noise_of_tests", "=MOVED_OF_TEST", "=0.7", "noise of"),
    ],
)
def test_noise_for_less_than_a_vote_is_found_in_replays(
    place: str, old: str, new: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    plan = planned(pate=True)
    plant(monkeypatch, place, old, new)
    assert any(what.startswith(found) for _, what in broken(audit.audit(plan, replays=2000, false_alarms=1e-10)))


@pytest.mark.parametrize(
    ("old", "new", "stage"),
    [
        ("size=1, times=steps.settled_asked", "size=1, times=1", "model.tests"),
        ("size=task.classes, times=steps.answers", "size=task.classes, times=steps.answers - 1", "model"),
    ],
)
def test_tests_and_answers_that_are_not_all_charged_are_found(
    old: str, new: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    plant(monkeypatch, "dp_pipelines.plan_stages.training_parts:_of_votes", old, new)
    plan = Plan(epsilon=8, delta=1e-5, stages={"model": model(pate=True)})
    assert any(name == stage and what.startswith("record of") for name, what in broken(audit.audit(plan, replays=1000)))


def test_candidates_with_more_steps_than_the_audit_takes_are_shortened_and_stay_different() -> None:
    candidates = [FitCandidate(steps=steps) for steps in (10**6, 10**5)]
    plan = planned(steps=Steps(sampling_rate=0.01, candidates=candidates))
    short = fitted._shortened(plan.trained["model"], 7)
    assert [of.steps.steps for of in training_parts.candidate_fits("model", short).values()] == [7, 7]


def test_a_fault_in_fit_makes_the_audit_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    plant(monkeypatch, *FAULTS["bins and counts over all units"][:3])
    found = audit.audit(plan, replays=1000)
    assert not found.agrees
    assert {("model.bins", "units read by model.bins"), ("model.users", "units read by model.users")} <= broken(found)


def test_a_stage_that_runs_otherwise_than_planned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    plant(
        monkeypatch,
        f"{FIT}_table",
        "stage = self.stages[name]\n",
        "stage = dataclasses.replace(self.stages[name], selection=None, noises=self.stages[name].noises[::-1])\n",
    )
    assert "fit" in wrong(plan)


@pytest.mark.parametrize("error", [ZeroDivisionError, OverflowError, ValueError])
def test_a_fit_that_ends_with_an_error_is_a_finding(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object) -> None:
        raise error("of a row")

    monkeypatch.setattr(fitted, "run", ends)
    assert wrong(planned()) == {"fit": f"ends with {error.__name__} on made-up examples"}
