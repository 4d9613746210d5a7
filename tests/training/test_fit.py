"""A train stage in one process, from tables to files: what depends on what, and what is drawn once.

In: made-up examples. Out: fitted models. Holds: noise is the real one, but where a test says otherwise. Not covered: the command
line (`tests/jobs/run/test_model_training.py`).
"""

import io
import json
import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines import BinaryLabel, Category, Number, NumberLabel, Plan, RequestError, Steps, TrainModel
from dp_pipelines.accounting import accountant
from dp_pipelines.audit import fitted as audited
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.plan_stages import sharing, training_parts
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.planning.payment import refuse_paid
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.train_model import FitCandidate, JaxModel
from dp_pipelines.training import artefact, evaluation, fit, step_defaults
from dp_pipelines.training.description import Statement
from dp_pipelines.training.drawing import Drawing
from dp_pipelines.training.examples.split import COLUMN, split
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.kept_draws import InMemory
from dp_pipelines.training.kernels import coded_loops, of_task
from dp_pipelines.training.kernels.compiled import compiled
from dp_pipelines.training.kernels.linear import LinearKernel

STATEMENT = Statement(unit="who", epsilon=1.0, delta=1e-6, plan="")


def task(**changes: object) -> TrainModel:
    """A small model."""
    fields: dict[str, object] = {
        "privacy_unit": "who",
        "label": BinaryLabel(column="y"),
        "features": {
            "x": Number(column="x", min_value=0, max_value=1, bins=4),
            "kind": Category(column="kind", most=3),
        },
        "steps": Steps(steps=6),
        "max_examples_per_unit": 3,
    }
    return TrainModel(**{**fields, **changes})  # type: ignore[arg-type]


def examples(units: int = 600) -> pa.Table:
    """Two examples a unit."""
    made = np.random.default_rng(5)
    x = made.random(2 * units)
    return pa.table({
        "who": np.repeat(np.arange(units), 2),
        "x": x,
        "kind": made.choice(["a", "b"], 2 * units),
        "y": x > 0.5,
    })  # fmt: skip


def fit_of(
    rows: pa.Table, folder: pathlib.Path, draws: InMemory, plan: Plan, drawing: Drawing | None = None
) -> fit.Fit:
    """A run of the stage, not begun."""
    folder.mkdir(exist_ok=True)
    return fit.Fit(
        name="model",
        task=plan.trained["model"],
        stages=plan.round(1).stages,
        tables=lambda: iter([rows]),
        folder=folder,
        draws=draws,
        key=b"key",
        salt=7,
        tell=lambda text: None,
        drawing=drawing or Drawing(),
    )


def fitted(
    rows: pa.Table, folder: pathlib.Path, draws: InMemory, plan: Plan | None = None, drawing: Drawing | None = None
) -> fit.Fitted:
    """A run of the stage."""
    plan = plan or Plan(epsilon=8, delta=1e-5, stages={"model": task()})
    return fit_of(rows, folder, draws, plan, drawing).run(STATEMENT)


def test_a_second_run_with_the_same_draws_gives_the_same_model(tmp_path: pathlib.Path) -> None:
    draws = InMemory()
    first = fitted(examples(), tmp_path / "a", draws)
    again = fitted(examples(), tmp_path / "b", draws)
    assert np.array_equal(first.artefact.parameters, again.artefact.parameters)
    assert first.artefact.encoder == again.artefact.encoder
    fresh = fitted(examples(), tmp_path / "c", InMemory())
    assert not np.array_equal(first.artefact.parameters, fresh.artefact.parameters)


@pytest.mark.parametrize("held_out", [True, False])
def test_the_units_of_a_group_reach_the_releases_of_that_group_alone(held_out: bool, tmp_path: pathlib.Path) -> None:
    """Before noise: with other labels and features of some units, those releases alone change that read their group.

    The second run is given the draws of the first, one by one, so that it computes everything that it reads anew.
    """
    plan, rows = Plan(epsilon=8, delta=1e-5, stages={"model": task()}), examples()
    group = split([rows.column("who")], key=b"key", held_out=0.2) == held_out
    assert 0.1 < group.mean() < 0.9
    changed = rows.set_column(3, "y", pa.array(rows.column("y").to_numpy() ^ group))
    changed = changed.set_column(1, "x", pa.array(np.where(group, 0.0, rows.column("x").to_numpy())))
    changed = changed.set_column(2, "kind", pa.array(np.where(group, "c", rows.column("kind").to_numpy(False))))
    changed = changed.filter(pa.array(~group | (np.arange(len(rows)) % 3 > 0)))
    first = audited.Noting(plan.round(1).stages)
    fitted(rows, tmp_path / "a", InMemory(), plan, first)
    second = audited.Noting(plan.round(1).stages, first.seen)
    fitted(changed, tmp_path / "b", InMemory(), plan, second)
    assert first.seen.read.keys() == second.seen.read.keys() == set(plan.stages)
    differ = {stage for stage, read in first.seen.read.items() if not audited._same(read, second.seen.read[stage])}
    assert differ == {name for name in plan.stages if name.endswith(".evaluation") == held_out}


@pytest.mark.parametrize(
    "changes", [{}, {"whiten": False}, {"steps": Steps(steps=6, sampling_rate=0.3)}, {"max_examples_per_unit": 1}]
)
def test_what_a_model_takes_follows_from_released_numbers_whatever_the_true_ones_are(
    changes: dict[str, object], tmp_path: pathlib.Path
) -> None:
    """Clip norm, learning rate, divisor and noise of a run on a fifth of the units, given the tables that another run released.

    Examples differ in their number, their values and their labels; released counts, bins, categories and moments are the same.
    """
    plan = Plan(epsilon=8, delta=1e-5, stages={"model": task(**changes)})
    draws, rows, notes = InMemory(), examples(), [audited.Noting(plan.round(1).stages) for _ in range(2)]
    first = fitted(rows, tmp_path / "a", draws, plan, notes[0])
    fewer = rows.slice(0, len(rows) // 5)
    fewer = fewer.set_column(1, "x", pa.array(fewer.column("x").to_numpy() ** 3))
    fewer = fewer.set_column(3, "y", pa.array(~fewer.column("y").to_numpy()))
    released = InMemory()
    for name in ("model.features", "model.bins", "model.vocabulary.kind", "model.users", "model.moments"):
        table = draws.get(name)
        if table is not None:
            released.keep(name, table)
    second = fitted(fewer, tmp_path / "b", released, plan, notes[1])
    assert first.artefact.taken == second.artefact.taken
    assert notes[0].seen.given == notes[1].seen.given
    assert not np.array_equal(first.artefact.parameters, second.artefact.parameters)


def test_each_held_out_example_is_scored_alone() -> None:
    """A model that counts the rows that it is asked about: alone they all get one score, whoever else is there."""
    asked = task(model=JaxModel(name="tests.training.jax_models:counting", parameters=3))
    encoder = Encoder.of(asked, edges={"x": (0.2, 0.5, 0.8)}, vocabulary={"kind": ("a", "b")})
    made = artefact.Artefact(
        task=asked, encoder=encoder, parameters=np.zeros(3), whitening=np.eye(encoder.width), privacy=STATEMENT, path={}
    )
    counted = evaluation.celled(made, examples(20))
    assert set(counted.column("cell").to_pylist()) == set(counted.slice(0, 7).column("cell").to_pylist())
    assert len(set(counted.column("cell").to_pylist())) == 2  # one for each label
    alone = evaluation.celled(made, examples(20).slice(3, 1))
    assert alone.column("cell").to_pylist() == counted.column("cell")[3:4].to_pylist()


def test_everything_that_later_steps_read_is_kept_before_they_begin(tmp_path: pathlib.Path) -> None:
    class Watched(InMemory):
        def __init__(self) -> None:
            super().__init__()
            self.order: list[str] = []

        def keep(self, name: str, content: bytes) -> None:
            self.order.append(name)
            super().keep(name, content)

    draws = Watched()
    fitted(examples(), tmp_path / "a", draws)
    parts = ["model.users", "model.bins", "model.vocabulary.kind", "model.moments"]
    assert draws.order[0] == "model.features"
    assert sorted(draws.order[1:5]) == sorted(parts)
    assert draws.order[4] == "model.moments"
    assert draws.order[5:] == [f"model.step-{step}" for step in range(1, 7)]


def test_the_sizes_of_what_is_kept_say_nothing_of_the_rows(tmp_path: pathlib.Path) -> None:
    sizes = []
    for number, rows in enumerate((examples(600), examples(3))):
        draws = InMemory()
        fitted(rows, tmp_path / str(number), draws)
        # Which categories were selected is released, and shows in the file of the vocabulary.
        sizes.append({n: len(draws.get(n) or b"") for n in draws._kept if not n.startswith("model.vocabulary")})
    assert sizes[0].keys() == sizes[1].keys()
    assert sizes[0]["model.moments"] == sizes[1]["model.moments"]
    assert sizes[0]["model.step-6"] == sizes[1]["model.step-6"]


def test_a_plan_of_a_pipeline_of_ones_own_is_trained_into_a_folder(tmp_path: pathlib.Path) -> None:
    plan = Plan(epsilon=8, delta=1e-5, stages={"model": task()})
    fit.train(plan, "model", lambda: iter([examples()]), tmp_path / "out")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"model.json", "model.safetensors", "weights.csv", "evaluation.json"}
    assert artefact.load(tmp_path / "out").task == plan.trained["model"]
    with pytest.raises(RequestError, match="already exists"):
        fit.train(plan, "model", lambda: iter([examples()]), tmp_path / "out")
    with pytest.raises(RequestError, match="is no train stage"):
        fit.train(plan, "other", lambda: iter([examples()]), tmp_path / "more")
    with pytest.raises(RequestError, match="has already been released by another run"):
        fit.train(plan, "model", lambda: iter([examples()]), tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_examples_that_say_who_is_held_out_are_refused_before_the_stage_is_paid_for(tmp_path: pathlib.Path) -> None:
    plan, rows = Plan(epsilon=8, delta=1e-5, stages={"model": task()}), examples()
    foreign = rows.append_column(COLUMN, pa.array([True] * rows.num_rows))
    with pytest.raises(RequestError, match=COLUMN):
        fit.train(plan, "model", lambda: iter([foreign]), tmp_path / "out")
    refuse_paid("model", plan["model"].payment)
    assert not list(tmp_path.iterdir())


def test_a_column_that_is_missing_is_refused_before_the_stage_is_paid_for(tmp_path: pathlib.Path) -> None:
    plan = Plan(epsilon=8, delta=1e-5, stages={"model": task()})
    asked = plan.trained["model"]
    for column in (asked.label.column, next(iter(asked.features.values())).column):
        lacking = examples().drop_columns([column])
        with pytest.raises(RequestError):
            fit.train(plan, "model", lambda lacking=lacking: iter([lacking]), tmp_path / "out")
        refuse_paid("model", plan["model"].payment)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rate", [0.3, 1.0])
@pytest.mark.parametrize("whiten", [True, False])
def test_samples_of_units_and_features_as_they_are_work_too(tmp_path: pathlib.Path, rate: float, whiten: bool) -> None:
    asked = task(steps=Steps(steps=30, sampling_rate=rate), whiten=whiten)
    plan = Plan(epsilon=30, delta=1e-3, stages={"model": asked})
    found = fitted(examples(3000), tmp_path / "a", InMemory(), plan)
    accuracy = found.evaluation.measures["accuracy"].value
    assert accuracy is not None
    assert accuracy > 0.75


@pytest.mark.parametrize("label", ["binary", "number"])
@pytest.mark.parametrize("whiten", [True, False])
def test_models_are_trained_over_codes_and_without_a_compiler_over_columns_to_the_same_end(
    whiten: bool, label: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before noise, at the draws of the first run, both read the same moments and the same sums of gradients."""
    declared = BinaryLabel(column="y") if label == "binary" else NumberLabel(column="y", min_value=0, max_value=2)
    features = {
        "x": Number(column="x", min_value=0, max_value=1, bins=4, scaled=True),
        "kind": Category(column="kind", most=3),
    }
    plan = Plan(epsilon=8, delta=1e-5, stages={"model": task(whiten=whiten, label=declared, features=features)})
    over_codes = audited.Noting(plan.round(1).stages)
    coded = fitted(examples(), tmp_path / "a", InMemory(), plan, over_codes)
    assert {path.suffix for path in (tmp_path / "a").iterdir()} == {".codes", ".scaled", ".labels", ".products"}
    monkeypatch.setattr(of_task, "compiles", lambda: False)
    over_columns = audited.Noting(plan.round(1).stages, over_codes.seen)
    plain = fitted(examples(), tmp_path / "b", InMemory(), plan, over_columns)
    assert ".rows" in {path.suffix for path in (tmp_path / "b").iterdir()}
    assert coded.artefact.parameters.tolist() == plain.artefact.parameters.tolist()
    assert over_codes.seen.given == over_columns.seen.given
    for stage in ("model", *["model.moments"] * whiten):
        for found, expected in zip(over_codes.seen.read[stage], over_columns.seen.read[stage], strict=True):
            assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


def test_the_evaluation_counts_a_rare_example_of_a_unit_as_rarely_as_it_is_rare(tmp_path: pathlib.Path) -> None:
    """Units with 31 equal false examples and a true one: one of each unit counts, and one in 32 of them is true."""
    asked = task(max_examples_per_unit=32, features={"x": Number(column="x", min_value=0, max_value=1, edges=[0.5])})
    plan, units = Plan(epsilon=8, delta=1e-5, stages={"model": asked}), 4000
    rows = pa.table({
        "who": np.repeat(np.arange(units), 32),
        "x": np.zeros(32 * units),
        "y": np.arange(32 * units) % 32 == 0,
    })  # fmt: skip
    noting = audited.Noting(plan.round(1).stages)
    fitted(rows, tmp_path / "a", InMemory(), plan, noting)
    (read,) = noting.seen.read["model.evaluation"]
    assert not isinstance(read, np.ndarray)
    cells = {key[2]: count for key, count in read.items() if len(key) == 3}
    held_out = int(split([pa.array(np.arange(units))], key=b"key", held_out=0.2).sum())
    assert sum(cells.values()) == held_out
    true = sum(count for cell, count in cells.items() if cell >= asked.evaluation_cells)
    # About 800 units: a deviation of 0.0062. The salt is fixed; one example of each cell would be a half.
    assert true / held_out == pytest.approx(1 / 32, abs=7 * 0.0062)


def test_a_run_that_version_0_1_0_began_goes_on_with_its_features(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it kept is about bins between quantiles, and about all columns. Any other run says that it began with these."""
    monkeypatch.setattr(sharing, "NOW", sharing.SECOND)
    plan, draws, formerly = Plan(epsilon=8, delta=1e-5, stages={"model": task()}), InMemory(), InMemory()
    chosen_by, defaults = list[bool](), step_defaults.step_defaults
    monkeypatch.setattr(
        step_defaults,
        "step_defaults",
        lambda task, seen, **named: chosen_by.append(seen is not None) or defaults(task, seen, **named),
    )
    first = fitted(examples(), tmp_path / "a", draws, plan)
    assert draws.get("model.features") == fit.FEATURES
    for name in ("model.bins", "model.users", "model.vocabulary.kind", "model.moments"):
        formerly.keep(name, draws.get(name) or b"")
    again = fitted(examples(), tmp_path / "b", formerly, plan)
    assert formerly.get("model.features") is None
    (quantiles,) = pyarrow.parquet.read_table(io.BytesIO(draws.get("model.bins") or b"")).column("x").to_pylist()
    assert again.artefact.encoder.edges["x"] == pytest.approx(np.maximum.accumulate(quantiles))
    # Its steps have the sizes with which that version took the first of them.
    assert chosen_by == [True, False]
    # The place of a category that was not found has noise for a weight, as it had then.
    free = again.artefact.encoder.names.index("kind: free place 1")
    for fitted_once, any_weight in ((first, False), (again, True)):
        assert fitted_once.artefact.whitening is not None
        assert fitted_once.artefact.whitening[free].any() == any_weight


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_everything_is_compiled_before_any_unit_is_read(
    rate: float, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops are compiled for the types that they meet: were some met with units alone, these would decide if a run succeeds."""
    features = {"x": Number(column="x", min_value=0, max_value=1, edges=[0.5], scaled=True)}
    asked = task(features=features, max_examples_per_unit=40, steps=Steps(steps=2, sampling_rate=rate))
    plan = Plan(epsilon=8, delta=1e-5, stages={"model": asked})
    fresh = {name: compiled(of.py_func) for name, of in vars(coded_loops).items() if hasattr(of, "py_func")}
    for name, program in fresh.items():
        monkeypatch.setattr(coded_loops, name, program)
    rows = examples(200)
    short = fit_of(rows, tmp_path / "a", InMemory(), plan)
    short.refuse_unfit()
    before = {name: set(program.signatures) for name, program in fresh.items()}
    assert sum(map(len, before.values())) >= 6
    short.run(STATEMENT)
    long = pa.concat_tables([rows] * 20)  # of units with 40 examples no products are kept
    fit_of(long, tmp_path / "b", InMemory(), plan).run(STATEMENT)
    assert {name: set(program.signatures) for name, program in fresh.items()} == before


def test_a_compiler_that_does_not_fit_the_other_libraries_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba refuses to be imported beside a NumPy that is too new for it."""
    monkeypatch.setitem(sys.modules, "dp_pipelines.training.kernels.coded_linear", None)
    assert isinstance(of_task.kernel_of(task(), b"key"), LinearKernel)


STEPS = Steps(
    steps=6, candidates=[FitCandidate(learning_rate=1e-9), FitCandidate(), FitCandidate(steps=4, momentum=0.0)]
)


def planned_with_candidates(epsilon: float = 30) -> Plan:
    """A plan with three candidates, of which the first learns nothing."""
    return Plan(epsilon=epsilon, delta=1e-5, stages={"model": task(steps=STEPS)})


class Noted(Drawing):
    """Draws, and remembers of which stages tables were drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[str] = []

    def table(self, stage: StagePlan, totals: Totals) -> pa.Table:
        self.stages.append(stage.name)
        return super().table(stage, totals)


def test_of_candidates_one_that_has_learnt_something_is_published_as_if_it_were_alone(tmp_path: pathlib.Path) -> None:
    plan, draws = planned_with_candidates(), InMemory()
    found = fitted(examples(4000), tmp_path / "a", draws, plan)
    chosen = found.evaluation.chosen
    assert chosen is not None
    assert chosen.number in (2, 3)
    of_chosen = list(training_parts.candidate_fits("model", plan.trained["model"]).values())[chosen.number - 1]
    assert found.artefact.task == of_chosen
    assert found.artefact.task.steps.candidates is None
    assert len(found.artefact.path["gradient_norm"]) == of_chosen.steps.steps
    said = json.loads(found.evaluation.text())["chosen"]
    assert said["candidate"] == chosen.number
    assert said["candidates"] == [{"learning_rate": 1e-9}, {}, {"steps": 4, "momentum": 0.0}]
    assert "slightly too good" in said["words"]


def test_a_choice_that_is_kept_is_neither_drawn_nor_trained_again(tmp_path: pathlib.Path) -> None:
    plan, draws = planned_with_candidates(), InMemory()
    first, noted = fitted(examples(), tmp_path / "a", draws, plan), Noted()
    again = fitted(examples(), tmp_path / "b", draws, plan, noted)
    assert np.array_equal(first.artefact.parameters, again.artefact.parameters)
    assert first.evaluation.chosen == again.evaluation.chosen
    assert noted.stages == ["model.evaluation"]  # which nobody has seen, and nothing later depends on


def test_a_kill_before_the_choice_leaves_nothing_of_any_candidate(tmp_path: pathlib.Path) -> None:
    class Killed(Drawing):
        def table(self, stage: StagePlan, totals: Totals) -> pa.Table:
            if stage.name == "model.choice":
                raise KeyboardInterrupt
            return super().table(stage, totals)

    plan, draws = planned_with_candidates(), InMemory()
    with pytest.raises(KeyboardInterrupt):
        fitted(examples(), tmp_path / "a", draws, plan, Killed())
    assert sorted(draws._kept) == [
        *("model.bins", "model.features", "model.moments", "model.users", "model.vocabulary.kind")
    ]
    assert fitted(examples(), tmp_path / "b", draws, plan).evaluation.chosen is not None


def test_the_weights_of_losing_candidates_stand_in_no_file_and_in_nothing_that_is_kept(tmp_path: pathlib.Path) -> None:
    plan, draws, lost = planned_with_candidates(), InMemory(), dict[str, bytes]()
    made = fit.Fit._trained

    def noted(one: fit.Fit, of: fit._Prepared) -> fit._Trained:
        trained = made(one, of)
        lost[one.part] = trained.artefact.parameters.tobytes()
        return trained

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit.Fit, "_trained", noted)
        found = fitted(examples(), tmp_path / "a", draws, plan)
    assert set(lost) == {"model", "model.candidate2", "model.candidate3"}
    assert found.evaluation.chosen is not None
    won = lost.pop(training_parts.steps_of("model", found.evaluation.chosen.number))
    written = [path.read_bytes() for path in fit.write(found, tmp_path / "out").values()]
    assert any(won in content for content in written)
    numbers = [number for content in lost.values() for number in np.frombuffer(content) if abs(number) > 0]
    assert len(numbers) > 8
    everything = b"".join([*written, *draws._kept.values()])
    assert not [number for number in numbers if np.float64(number).tobytes() in everything]


def test_all_candidates_are_charged_and_held_out_units_pay_for_the_choice_beside_the_evaluation() -> None:
    plan = planned_with_candidates(2.0)
    groups = {record.stage: record.group for record in plan.mechanisms}
    charged = {"model", "model.candidate2", "model.candidate3", "model.choice", "model.evaluation"}
    assert charged <= set(groups)
    assert {stage for stage, group in groups.items() if group == "held out"} == {"model.choice", "model.evaluation"}
    (choice,) = (record for record in plan.mechanisms if record.stage == "model.choice")
    assert (choice.kind, choice.l0) == ("bounded_range", 1)
    assert plan["model.choice"].choices.selection_epsilon == choice.epsilon
    costs = [
        accountant.epsilon_of([record for record in plan.mechanisms if record.group == group], 1e-5)
        for group in ("training", "held out")
    ]
    assert 1.9 < costs[0] <= 2.0
    assert 1.6 < costs[1] <= 2.0
    again = Plan.restore(plan.frozen(), epsilon=2.0, delta=1e-5, stages={"model": task(steps=STEPS)})
    assert again.digest == plan.digest


def test_eight_candidates_have_about_the_root_of_eight_times_the_noise_of_one_each() -> None:
    one = Plan(epsilon=1, delta=1e-6, stages={"model": task(steps=Steps(steps=20))})
    eight = [FitCandidate(learning_rate=rate) for rate in range(1, 9)]
    several = Plan(epsilon=1, delta=1e-6, stages={"model": task(steps=Steps(steps=20, candidates=eight))})
    alone = training_noise.multiplier(one["model"])
    for part in training_parts.candidate_fits("model", several.trained["model"]):
        assert float(training_noise.multiplier(several[part]) / alone) == pytest.approx(8**0.5, rel=0.03)
