"""The loop: what a step sees, what survives a kill, and that nothing of one unit stays when its gradient is nothing."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.noise import alias_tables, entropy
from dp_pipelines.noise.poisson_samples import PoissonSampler
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, NumberLabel, Steps
from dp_pipelines.training import threads, trainer
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.gaussian_noise import NoisySum
from dp_pipelines.training.kernels.exact_sums import SLACK
from dp_pipelines.training.kernels.linear import LinearKernel
from dp_pipelines.training.trainer import Trained, TrainingState
from tests.training.few import Few, Unit, adversarial, ordinary

WIDTH = 6
KERNEL = LinearKernel(width=WIDTH, label=BinaryLabel(column="y"))


class Kept:
    """Draws in memory; the first content under a name stays, and `stop` decides after which ones the run dies."""

    def __init__(self, stop: Callable[[str], bool] = lambda name: False) -> None:
        self.kept: dict[str, bytes] = {}
        self.stop = stop

    def get(self, name: str) -> bytes | None:
        return self.kept.get(name)

    def keep(self, name: str, content: bytes) -> None:
        self.kept.setdefault(name, content)
        if self.stop(name):
            raise KeyboardInterrupt


def train(
    units: list[Unit],
    steps: Steps = Steps(steps=20),
    kernel: LinearKernel = KERNEL,
    draws: Kept | None = None,
    multiplier: Fraction = Fraction(1, 4),
    divisor: float | None = None,
    **more: object,
) -> Trained:
    return trainer.train(
        kernel,
        Few(units, kernel.width),
        steps,
        clip_norm=2.0,
        multiplier=multiplier,
        divisor=float(sum(len(labels) for _, labels in units)) if divisor is None else divisor,
        draws=draws or Kept(),
        name="returns",
        **more,  # type: ignore[arg-type]
    )


class Counted:
    """Words that are the same in every run, and how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, n: int) -> alias_tables.Words:
        words = np.random.Philox(key=7).jumped(self.taken + 1).random_raw(n)
        self.taken += 1
        return np.asarray(words, dtype=np.uint64)


def with_words(units: list[Unit], steps: Steps, kernel: LinearKernel = KERNEL) -> Trained:
    """Training with noise and samples that repeat: two runs differ by what they sum alone."""
    noise = NoisySum(size=kernel.size, norm=2.0, multiplier=Fraction(1), slack=SLACK, words=Counted())
    sampler = PoissonSampler(steps.sampling_rate, Counted())
    return trainer.fit(kernel, Few(units, kernel.width), steps, noise, sampler, 50.0, Kept(), "s", lambda step: None)


def test_with_little_noise_the_model_finds_the_slope_that_made_the_labels() -> None:
    made = np.random.default_rng(1)
    units = ordinary(4000, WIDTH, made)
    features, labels = (np.concatenate(parts) for parts in zip(*units, strict=True))
    weights = np.zeros(WIDTH)
    for _ in range(500):  # the plain optimum
        weights += 4 * features.T @ (labels - 1 / (1 + np.exp(-features @ weights))) / len(labels)
    steps = Steps(steps=150, learning_rate=8.0)
    for rate in (1.0, 0.3):
        found = train(units, Steps(**{**vars(steps), "sampling_rate": rate})).parameters
        assert found == pytest.approx(weights, abs=0.25)
    assert np.linalg.norm(weights) > 1


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_a_unit_whose_gradient_is_nothing_leaves_the_model_as_if_it_were_not_there_bit_for_bit(rate: float) -> None:
    units = ordinary(30, WIDTH, np.random.default_rng(2))
    broken = np.full((3, WIDTH), math.nan, np.float32)
    # At the end, so that the sample of the others is the same under the same words.
    place = 17 if rate == 1 else 30
    with_it = with_words([*units[:place], (broken, np.zeros(3)), *units[place:]], Steps(sampling_rate=rate))
    without = with_words(units, Steps(sampling_rate=rate))
    assert with_it.parameters.tolist() == without.parameters.tolist()
    assert with_it.path == without.path
    ordinary_unit = with_words([*units[:place], *ordinary(1, WIDTH, np.random.default_rng(3)), *units[place:]], Steps())
    assert ordinary_unit.parameters.tolist() != without.parameters.tolist()


@settings(max_examples=40)
@given(units=adversarial(WIDTH, [0.0, 1.0, math.nan], most=20), data=st.data())
def test_one_unit_changes_the_sum_of_a_step_by_at_most_the_norm(units: list[Unit], data: st.DataObject) -> None:
    parameters = np.random.default_rng(4).normal(size=WIDTH)
    few, every = Few(units, WIDTH), PoissonSampler(1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "UNITS_PER_CHUNK", data.draw(st.integers(1, 5)))
        whole = trainer._sum(KERNEL, few, parameters, 2.0, every)
        for place in range(few.units):
            rest = trainer._sum(KERNEL, few.without(place), parameters, 2.0, every)
            change = [Fraction(a) - Fraction(b) for a, b in zip(whole.tolist(), rest.tolist(), strict=True)]
            assert sum(x * x for x in change) <= 4
    order = data.draw(st.permutations(units))
    assert trainer._sum(KERNEL, Few(order, WIDTH), parameters, 2.0, every).tolist() == whole.tolist()


def test_a_sum_without_clipping_would_be_found() -> None:
    class Unclipped(LinearKernel):
        def clipped_sum(self, parameters, chunk, clip_norm):  # type: ignore[no-untyped-def]
            return super().clipped_sum(parameters, chunk, 1e6)

    units = [(np.full((40, WIDTH), 1e6, np.float32), np.zeros(40))]
    made = Unclipped(width=WIDTH, label=KERNEL.label)
    assert np.linalg.norm(trainer._sum(made, Few(units, WIDTH), np.ones(WIDTH), 2.0, PoissonSampler(1.0))) > 2


def test_how_many_threads_work_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "UNITS_PER_CHUNK", 7)
    units, parameters = ordinary(200, WIDTH, np.random.default_rng(5)), np.ones(WIDTH)
    found = []
    for many in (1, 2, 5):
        monkeypatch.setattr(threads.os, "cpu_count", lambda many=many: many)
        found.append(trainer._sum(KERNEL, Few(units, WIDTH), parameters, 2.0, PoissonSampler(1.0)).tolist())
    assert found[0] == found[1] == found[2]


# Kills.


class Watched(LinearKernel):
    """The kernel, which notes the parameters of each sum."""

    def __init__(self) -> None:
        super().__init__(width=WIDTH, label=KERNEL.label)
        object.__setattr__(self, "seen", [])

    def clipped_sum(self, parameters, chunk, clip_norm):  # type: ignore[no-untyped-def]
        self.seen.append(parameters.tobytes())  # type: ignore[attr-defined]
        return super().clipped_sum(parameters, chunk, clip_norm)


@pytest.mark.parametrize("steps", [1, 9, 20, 25])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_run_that_is_killed_goes_on_from_what_was_kept_and_makes_as_many_steps_as_planned(
    steps: int, rate: float
) -> None:
    units = ordinary(50, WIDTH, np.random.default_rng(6))
    planned = list(trainer.checkpoints(steps))
    assert planned[-1] == steps
    assert len(planned) <= trainer.CHECKPOINTS
    draws, told = Kept(lambda name: True), []
    kernel = Watched()
    for nth, kept in enumerate(planned):
        with pytest.raises(KeyboardInterrupt):
            train(units, Steps(steps=steps, sampling_rate=rate), kernel, draws, tell=told.append)
        assert sorted(draws.kept) == sorted(f"returns.step-{step}" for step in planned[: nth + 1])
        assert told == [step for step in range(1, kept) if step not in planned[: nth + 1]]
    content = dict(draws.kept)
    sums = len(kernel.seen)  # type: ignore[attr-defined]
    done = train(units, Steps(steps=steps, sampling_rate=rate), kernel, draws, tell=told.append)
    assert len(kernel.seen) == sums, "a finished run is not trained again"  # type: ignore[attr-defined]
    assert draws.kept == content
    assert len(done.path["gradient_norm"]) == steps
    last = TrainingState.from_bytes(content[f"returns.step-{steps}"])
    assert done.path["gradient_norm"] == tuple(last.norms)


@pytest.mark.parametrize("averaged", [1, 4, 10])
def test_the_average_is_over_as_many_of_the_last_steps_as_is_said(averaged: int) -> None:
    draws = Kept()
    done = train(ordinary(50, WIDTH, np.random.default_rng(7)), Steps(steps=10), draws=draws, averaged=averaged)
    states = [TrainingState.from_bytes(draws.kept[f"returns.step-{step}"]) for step in range(1, 11)]
    last = [state.parameters for state in states[10 - averaged :]]
    assert done.parameters == pytest.approx(np.mean(last, axis=0), abs=1e-12)
    assert [state.averaged for state in states] == [max(0, step - (10 - averaged)) for step in range(1, 11)]


def test_a_state_of_a_version_that_did_not_say_how_many_are_averaged_is_gone_on_from() -> None:
    """It averaged what the job says, or half: what is in its sum stays there, and counts as what it is."""
    units, whole = ordinary(50, WIDTH, np.random.default_rng(7)), Kept()
    train(units, Steps(steps=10), draws=whole, averaged=5)
    for step in (3, 8, 10):
        name = f"returns.step-{step}"
        formerly = TrainingState.from_bytes(whole.kept[name])
        draws, state = Kept(), TrainingState(formerly.parameters, formerly.momentum, formerly.summed, formerly.norms)
        draws.kept[name] = state.to_bytes()
        assert TrainingState.from_bytes(state.to_bytes()).averaged is None
        done = train(units, Steps(steps=10), draws=draws, averaged=10)
        if step == 10:
            assert done.parameters.tolist() == (formerly.summed / 5).tolist()
            continue
        states = [TrainingState.from_bytes(draws.kept[f"returns.step-{at}"]) for at in range(step + 1, 11)]
        assert states[-1].averaged == max(0, step - 5) + 10 - step
        summed = formerly.summed + np.sum([later.parameters for later in states], axis=0)
        assert done.parameters == pytest.approx(summed / states[-1].averaged, abs=1e-12)


def test_steps_that_were_lost_are_drawn_anew_and_those_that_were_kept_are_not() -> None:
    units = ordinary(50, WIDTH, np.random.default_rng(7))
    first = Kept()

    def die(step: int) -> None:
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(units, draws=first, tell=die)
    assert max(first.kept) == "returns.step-6"
    told: list[int] = []
    done = train(units, draws=first, tell=told.append)
    assert told == list(range(7, 21))
    kept = TrainingState.from_bytes(first.kept["returns.step-6"]).norms
    assert list(done.path["gradient_norm"][:6]) == kept
    second = Kept()
    second.kept = {"returns.step-6": first.kept["returns.step-6"]}
    again = train(units, draws=second)
    assert again.path["gradient_norm"][:6] == done.path["gradient_norm"][:6]
    assert not set(again.path["gradient_norm"][6:]) & set(done.path["gradient_norm"][6:])


def test_of_two_runs_at_once_both_go_on_from_the_state_that_was_kept_first() -> None:
    units = ordinary(50, WIDTH, np.random.default_rng(8))
    other = Kept()
    train(units, draws=other)

    class Beaten(Kept):
        """Another run has just kept each state before this one does."""

        def keep(self, name: str, content: bytes) -> None:
            super().keep(name, other.kept[name])

    mine, theirs = train(units, draws=Beaten()), train(units, draws=other)
    assert mine.parameters.tolist() == theirs.parameters.tolist()


class Noted(Few):
    """Units in memory, which note who is taken."""

    def __init__(self, units: list[Unit], width: int) -> None:
        super().__init__(units, width)
        self.taken: list[list[int]] = []

    def take(self, units: np.ndarray) -> Chunk:
        self.taken.append(units.tolist())
        return super().take(units)


def test_the_units_of_each_step_are_the_next_draw_of_its_sampler_and_of_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 1)
    few, steps = Noted(ordinary(50, WIDTH, np.random.default_rng(9)), WIDTH), Steps(steps=12, sampling_rate=0.5)
    noise = NoisySum(size=WIDTH, norm=2.0, multiplier=Fraction(1), slack=SLACK)
    sampler, same = PoissonSampler(0.5, Counted()), PoissonSampler(0.5, Counted())
    trainer.fit(KERNEL, few, steps, noise, sampler, 20.0, Kept(), "s", lambda step: None)
    assert len(few.taken) == len(set(map(tuple, few.taken))) == 12
    for taken in few.taken:
        assert taken == same.draw(50).tolist()


def test_no_word_of_randomness_is_used_for_two_sums() -> None:
    given_out: list[bytes] = []

    def words(n: int) -> alias_tables.Words:
        taken = entropy.words(n)
        given_out.append(taken.tobytes())
        return taken

    few = Few(ordinary(20, WIDTH, np.random.default_rng(9)), WIDTH)
    noise = NoisySum(size=WIDTH, norm=2.0, multiplier=Fraction(1), slack=SLACK, words=words)
    steps, sampler = Steps(steps=12, sampling_rate=0.5), PoissonSampler(0.5, words)
    trainer.fit(KERNEL, few, steps, noise, sampler, 20.0, Kept(), "s", lambda step: None)
    # A sample and two tables a step; ties ask for more.
    assert len(given_out) >= 36
    assert len(set(given_out)) == len(given_out)


# Edges.


@pytest.mark.parametrize("rate", [1.0, 1e-9])
@pytest.mark.parametrize("units", [0, 1, 2])
def test_no_units_one_unit_and_empty_batches_train(units: int, rate: float) -> None:
    done = train(ordinary(units, WIDTH, np.random.default_rng(10)), Steps(steps=5, sampling_rate=rate), divisor=-3.0)
    assert done.parameters.shape == (WIDTH,)
    assert np.isfinite(done.parameters).all()


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize(
    "label",
    [
        BinaryLabel(column="y"),
        ClassLabel(column="y", classes=[1, 2, 3]),
        NumberLabel(column="y", min_value=0, max_value=1),
    ],
    ids=lambda label: type(label).__name__,
)
def test_labels_that_are_all_the_same_train(label: BinaryLabel, value: float) -> None:
    units = [(rows, np.full(len(rows), value)) for rows, _ in ordinary(500, WIDTH, np.random.default_rng(11))]
    kernel = LinearKernel(width=WIDTH, label=label)
    done = train(units, kernel=kernel)
    scores = kernel.scores(done.parameters, np.eye(1, WIDTH, dtype=np.float32))[0]
    if isinstance(label, ClassLabel):
        assert scores.argmax() == value
    elif isinstance(label, BinaryLabel):
        assert (scores > 0.5) if value else (scores < -0.5)
    else:
        assert scores == pytest.approx(value, abs=0.3)


def test_a_learning_rate_that_is_far_too_large_leaves_finite_parameters() -> None:
    steps = Steps(steps=300, learning_rate=9e5, momentum=0.999)
    done = train(ordinary(20, WIDTH, np.random.default_rng(12)), steps, multiplier=Fraction(4000), divisor=1.0)
    assert np.isfinite(done.parameters).all()
    assert 1e9 < np.linalg.norm(done.parameters) <= trainer.RADIUS * (1 + 1e-9)
    assert np.isfinite(done.path["gradient_norm"]).all()


@pytest.mark.parametrize(("average", "last"), [(0.0, 1), (0.5, 3), (0.3, 2), (1.0, 5)])
def test_the_result_is_the_average_of_the_last_parameters(average: float, last: int) -> None:
    draws = Kept()
    done = train(ordinary(20, WIDTH, np.random.default_rng(13)), Steps(steps=5, average=average), draws=draws)
    states = [TrainingState.from_bytes(draws.kept[f"returns.step-{step}"]).parameters for step in range(1, 6)]
    assert done.parameters == pytest.approx(np.mean(states[-last:], axis=0), rel=1e-12)


def test_the_noise_is_that_of_the_plan_whatever_the_size_of_the_sample() -> None:
    draws, steps = Kept(), Steps(steps=2000, sampling_rate=1e-9, learning_rate=1e-3)
    train([], steps, draws=draws, multiplier=Fraction(3), divisor=1.0)
    norms = np.array(TrainingState.from_bytes(draws.kept["returns.step-2000"]).norms) * 1e-9
    # Squares of 2000 times 6 normal numbers of deviation 3 * 2: a relative deviation of sqrt(2 / 12000), 7 of which are 9 %.
    assert (norms**2).sum() / 12000 == pytest.approx(36, rel=0.09)


@pytest.mark.parametrize("steps", range(1, 60))
def test_the_state_is_kept_after_steps_that_the_plan_fixes(steps: int) -> None:
    planned = list(trainer.checkpoints(steps))
    every = math.ceil(steps / 10)
    assert planned[-1] == steps
    assert {b - a for a, b in itertools.pairwise(planned)} <= {every}
    assert 1 <= planned[0] <= every
