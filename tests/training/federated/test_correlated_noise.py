"""Noise that is correlated over rounds: its law, its whole numbers, what one client moves, and its memory.

In: series of noise, clients in memory. Out: covariances, shifts in fine steps, bytes. Holds: the law is that of the whole series,
with a false alarm below 1e-9; shifts are counted with and without a client for the same releases. Not covered: plans and runs of
them (`test_rounds_by_turns.py`, `tests/jobs/run/test_federate.py`).
"""

import dataclasses
import hashlib
import math
import pathlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dp_pipelines import Plan, Rounds
from dp_pipelines.kernels.clipped_vectors import ClippedVectors
from dp_pipelines.noise import correlation
from dp_pipelines.noise.poisson_samples import PoissonSampler
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.training import fit, trainer
from dp_pipelines.training.drawing import Drawing
from dp_pipelines.training.examples.split import groups, split
from dp_pipelines.training.federated import correlated_noise
from dp_pipelines.training.federated.correlated_noise import LostMemory, NoiseSeries
from dp_pipelines.training.gaussian_noise import SCALE, Begun, Floats, Integers, NoisySum
from dp_pipelines.training.kept_draws import InMemory, Released
from tests.helpers.planted import plant
from tests.training.federated.test_rounds_of_a_plan import NOBODY, model, rows, run

pytest.importorskip("numba")

HALF = 1 << 15
ROUNDS, SEPARATION, SIZE = 8, 4, 20_000


class Wide:
    """A model of many parameters, whose updates are nothing."""

    slack, curvature, size = 0.0, 1.0, SIZE

    def initial(self) -> Floats:
        return np.zeros(SIZE)


class Nobody:
    """No client, in groups."""

    units = 0

    def chunks(self, units_per_chunk: int) -> Any:
        return iter(())

    def take(self, units: Any) -> Any:
        raise AssertionError

    def in_group(self, group: int) -> Any:
        return np.zeros(0, np.int64)


# The law.


def series() -> tuple[ClippedVectors, Floats]:
    """The noise that all rounds together release of nobody's updates, in standard deviations of what each draws anew."""
    coefficients = correlation.choose(ROUNDS, SEPARATION, 0.0, 4).coefficients
    vectors = ClippedVectors(size=SIZE, times=ROUNDS, rate=1.0, separation=SEPARATION, coefficients=coefficients)
    seen: list[Floats] = []

    class Watched(InMemory):
        def keep(self, name: str, content: bytes) -> None:
            super().keep(name, content)
            seen.append(trainer.TrainingState.from_bytes(content).parameters)

    steps = Rounds(
        steps=ROUNDS, separation=SEPARATION, noise="correlated", momentum=0.0, learning_rate=1.0, average=0.0
    )
    trainer.train(
        Wide(), Nobody(), steps, clip_norm=2.0, multiplier=Fraction(5), divisor=Released(4.0 * SEPARATION), draws=Watched(),
        name="model", sums=vectors,
    )  # fmt: skip
    moved = -np.diff(np.stack([np.zeros(SIZE), *seen]), axis=0)
    return vectors, moved * 4.0 / (2.0 * 5)


def unlike(vectors: ClippedVectors, released: Floats) -> list[tuple[int, int]]:
    """The pairs of rounds whose released noise has another covariance than C^-1, by eight standard deviations of its estimate.

    Of N products of normal numbers, the mean is so far off with a probability below 2 exp(-30) (Chernoff's bound of a chi square,
    and of a product); there are 36 pairs.
    """
    column = np.zeros(ROUNDS)
    column[: 1 + len(vectors.coefficients)] = np.array([1 << 16, *vectors.coefficients]) / 2**16
    matrix = np.array([[column[t - j] if t >= j else 0.0 for j in range(ROUNDS)] for t in range(ROUNDS)])
    inverse = np.linalg.inv(matrix)
    wanted, found = inverse @ inverse.T, released @ released.T / SIZE
    spread = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / SIZE)
    return [(a, b) for a in range(ROUNDS) for b in range(a + 1) if abs(found[a, b] - wanted[a, b]) > 8 * spread[a, b]]


def test_the_whole_series_has_the_covariance_of_the_inverse_of_c() -> None:
    assert unlike(*series()) == []


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        ("NoiseSeries.carried", "if not memory:", "if memory or not memory:"),
        ("NoiseSeries.carried", "coefficient * noise", "(coefficient + 8000) * noise"),
        ("NoiseSeries.remembered", "[noise, *memory]", "[*memory, noise]"),
    ],
)
def test_a_series_with_another_law_is_found(
    monkeypatch: pytest.MonkeyPatch, place: str, before: str, after: str
) -> None:
    plant(monkeypatch, f"dp_pipelines.training.federated.correlated_noise:{place}", before, after)
    assert unlike(*series())


# Whole numbers.


@pytest.mark.parametrize("coefficients", [(HALF,), (65_536, 1, 40_000), (1, 0, 65_536)])
def test_what_is_carried_is_exact_rounded_to_the_nearest_whole_number_halves_upwards(
    coefficients: tuple[int, ...],
) -> None:
    draw = np.random.default_rng(5)
    memory = [draw.integers(-(2**40), 2**40, 500) for _ in coefficients]
    memory[0][:4] = [1, -1, 3, -3]
    found = NoiseSeries(coefficients, 12).carried(memory)
    assert isinstance(found, np.ndarray)
    for at in range(500):
        exact = sum(Fraction(c, 2**16) * int(n[at]) for c, n in zip(coefficients, memory, strict=True))
        assert int(found[at]) == math.floor(exact + Fraction(1, 2))


def test_a_series_takes_no_more_of_memory_than_there_are_coefficients() -> None:
    one = NoiseSeries((HALF, HALF), 12)
    memory: list[Integers] = []
    for number in range(4):
        memory = one.remembered(memory, np.array([number]))
    assert [int(noise[0]) for noise in memory] == [3, 2]
    assert one.carried([]) == 0


def test_coefficients_with_which_noise_would_leave_64_bits_are_refused() -> None:
    NoiseSeries((65_536,), 1000)
    with pytest.raises(AssertionError, match="grow too large"):
        NoiseSeries((3 * 65_536,), 100)


def test_every_choice_of_coefficients_stays_within_64_bits() -> None:
    for rounds, separation, momentum in [(1000, 1000, 0.0), (1000, 500, 0.99), (200, 50, 0.8), (2, 2, 0.0)]:
        coefficients = correlation.choose(rounds, separation, momentum, 1).coefficients
        NoiseSeries(coefficients, rounds)


def test_the_record_counts_the_column_of_each_round_and_every_rounding() -> None:
    """Against the matrix, row by row, for clients of each group."""
    vectors = ClippedVectors(size=50, times=10, rate=1.0, separation=4, coefficients=(40_000, 30_000, 20_000))
    column = [Fraction(1), *(Fraction(each, 2**16) for each in vectors.coefficients)]
    for rounding in (Fraction(0), Fraction(7, 3)):
        totals = []
        for group in range(4):
            total = Fraction(0)
            for row in range(10):
                into = [at for at in range(group, row + 1, 4) if row - at < 4]
                moved = sum((column[row - at] * 5 for at in into), Fraction(0))
                total += (moved + (rounding if into and row not in into else 0)) ** 2
            totals.append(total)
        assert vectors.together(5, rounding) == max(totals) == totals[0]
    assert vectors.squares == vectors.together(1, Fraction(0))


@pytest.mark.parametrize("changed", [{"coefficients": (1, 1, 1, 1)}, {"coefficients": (-1,)}, {"rate": 0.5}])
def test_sums_that_no_record_describes_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="sums|noise"):
        ClippedVectors(**{"size": 5, "times": 10, "rate": 1.0, "separation": 4, **changed})


# What one client moves.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told(NoisySum):
    """Releases what it is told to, or draws and takes notes.

    Args:
        notes: of each round: the sum in fine steps, what was carried, what was released.
        told: the releases, in fine steps; empty: it draws.
    """

    notes: list[tuple[Integers, Integers, Integers]]
    told: list[Integers]

    def release_in_series(
        self, total: Floats, carried: Integers | int, begun: Begun | None = None
    ) -> tuple[Floats, Integers]:
        near = np.rint(total * self.steps).astype(np.int64)
        taken = np.broadcast_to(np.int64(carried), near.shape)
        if self.told:
            released = self.told[len(self.notes)]
        else:
            released = near + NoisySum.release_in_series(self, total, carried, begun)[1]
        self.notes.append((near, taken.copy(), released))
        return released / self.steps, released - near


class Telling(Drawing):
    """Hands out the above."""

    def __init__(self, told: list[Integers] | None = None) -> None:
        super().__init__()
        self.notes: list[tuple[Integers, Integers, Integers]] = []
        self.told = told or []

    def noisy_sum(self, stage: StagePlan, *, size: int, norm: float, multiplier: Fraction, slack: float) -> NoisySum:
        return Told(size=size, norm=norm, multiplier=multiplier, slack=slack, notes=self.notes, told=self.told)

    def sampler(self, stage: StagePlan, rate: float) -> PoissonSampler:
        return PoissonSampler(rate)  # without the gate, which refuses the records of planted faults


def shifts(plan: Plan, folder: pathlib.Path, with_client: pa.Table, without: pa.Table) -> list[float]:
    """How far one client moves what each round draws its noise for, in norms of fine steps, where all releases are the same."""

    def notes(name: str, table: pa.Table, told: list[Integers] | None) -> list[tuple[Integers, Integers, Integers]]:
        drawing = Telling(told)
        (folder / name).mkdir(parents=True)
        fit.Fit(
            name="model", task=plan.trained["model"], stages=plan.round(1).stages, tables=lambda: iter([table]),
            folder=folder / name, draws=InMemory(), key=b"key", salt=7, tell=lambda text: None, drawing=drawing,
        ).run(fit.Statement(unit="who", plan="", epsilon=1.0, delta=1e-6))  # fmt: skip
        return drawing.notes

    first = notes("with", with_client, None)
    other = notes("without", without, [released for _, _, released in first])
    return [
        float(np.linalg.norm(((near - taken) - (near_other - taken_other)).astype(np.float64)))
        for (near, taken, _), (near_other, taken_other, _) in zip(first, other, strict=True)
    ]


def planned() -> Plan:
    """Updates are far longer than the clip norm, so that each client moves a sum by all of it."""
    steps = Rounds(steps=11, separation=4, noise="correlated", clip_norm=1e-3)
    return Plan(epsilon=8.0, delta=1e-6, stages={"model": model(steps=steps)})


def clients(plan: Plan, group: int) -> list[str]:
    """Clients that are trained on, of one group."""
    names = pa.array([f"u{number}" for number in range(40)])
    inside = groups([names], key=b"key", count=4) == group
    held_out = split([names], key=b"key", held_out=plan.trained["model"].held_out)
    return [str(name) for name in names.filter(pa.array(inside & ~held_out)).to_pylist()]


def without(table: pa.Table, client: str) -> pa.Table:
    return table.filter(pa.array([who != client for who in table.column("who").to_pylist()]))


@pytest.mark.parametrize("group", range(4))
def test_one_client_moves_all_rounds_together_by_no_more_than_the_record(group: int, tmp_path: pathlib.Path) -> None:
    plan, table = planned(), rows()
    (record,) = (record for record in plan.mechanisms if record.stage == "model")
    assert record.l2_squared is not None
    assert record.scale is not None
    paid = float(record.l2_squared / record.scale**2)
    client = clients(plan, group)[0]
    found = shifts(plan, tmp_path, table, without(table, client))
    assert next(number for number, moved in enumerate(found) if moved > 0) == group
    spent = math.fsum((moved / SCALE) ** 2 for moved in found)
    assert spent <= paid
    if group == 0:  # of which there are as many rounds as of any: nearly all that is paid for is used
        assert spent > 0.99 * paid


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        (
            "dp_pipelines.kernels.clipped_vectors:ClippedVectors._together",
            "self._reached(len(self.coefficients), rounding)",
            "self._reached(0, rounding)",
        ),
        ("dp_pipelines.training.trainer:fit", "(step - 1) % separation", "(step - 1) // 2 % separation"),
        ("dp_pipelines.training.trainer:_sum", "sampler, group), many", "sampler, None), many"),
    ],
)
def test_a_client_that_moves_more_than_the_record_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, place: str, before: str, after: str
) -> None:
    plant(monkeypatch, place, before, after)
    plan, table = planned(), rows()
    (record,) = (record for record in plan.mechanisms if record.stage == "model")
    assert record.l2_squared is not None
    assert record.scale is not None
    found = shifts(plan, tmp_path, table, without(table, clients(plan, 0)[0]))
    assert math.fsum((moved / SCALE) ** 2 for moved in found) > float(record.l2_squared / record.scale**2)


def test_a_client_is_in_the_same_rounds_whoever_else_is_there() -> None:
    names = [f"client {number}" for number in range(500)]
    all_of_them = groups([pa.array(names)], key=b"plan", count=7)
    alone = [int(groups([pa.array([name])], key=b"plan", count=7)[0]) for name in names]
    assert all_of_them.tolist() == alone
    assert set(alone) == set(range(7))
    assert groups([pa.array(names)], key=b"other", count=7).tolist() != alone
    numbers = list(range(500))
    narrow, wide = (groups([pa.array(numbers, kind)], key=b"plan", count=7) for kind in (pa.int16(), pa.int64()))
    assert narrow.tolist() == wide.tolist()


def test_who_is_held_out_says_nothing_of_the_rounds_of_the_others() -> None:
    names = pa.array([f"client {number}" for number in range(20_000)])
    out, found = split([names], key=b"plan", held_out=0.5), groups([names], key=b"plan", count=4)
    counts = np.bincount(found[out], minlength=4)
    assert np.abs(counts - out.sum() / 4).max() < 7 * math.sqrt(out.sum() / 4)


# The memory.


def test_two_memories_of_the_same_noise_have_nothing_in_common_that_can_be_compared() -> None:
    noise = [np.arange(3)]
    one, other = correlated_noise.to_bytes(noise), correlated_noise.to_bytes(noise)
    assert one[:32] != other[:32]
    assert one[32:] == other[32:]
    assert hashlib.sha256(one).digest() != hashlib.sha256(other).digest()


def test_a_memory_is_recalled_as_it_was() -> None:
    draws = InMemory()
    content = correlated_noise.to_bytes([np.array([1, -(2**40)]), np.array([5, 6])])
    draws.remember("model", content)
    found = correlated_noise.recalled(draws, "model", hashlib.sha256(content).digest(), (2, 2))
    assert [noise.tolist() for noise in found] == [[1, -(2**40)], [5, 6]]


def other_bytes(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("changed", "words"), [(None, "is gone"), (other_bytes, "is not the one"), (lambda content: b"", "is not the one")]
)
def test_a_lost_or_another_memory_ends_the_rounds(changed: Callable[[bytes], bytes] | None, words: str) -> None:
    class Store(InMemory):
        def recall(self, name: str, digest: str) -> bytes | None:
            content = super().recall(name, digest)
            return None if changed is None or content is None else changed(content)

    draws = Store()
    content = correlated_noise.to_bytes([np.array([1, 2])])
    draws.remember("model", content)
    with pytest.raises(LostMemory, match=words):
        correlated_noise.recalled(draws, "model", hashlib.sha256(content).digest(), (1, 2))


def test_a_memory_of_another_size_is_refused() -> None:
    draws = InMemory()
    content = correlated_noise.to_bytes([np.array([1, 2])])
    draws.remember("model", content)
    with pytest.raises(LostMemory, match="of another size"):
        correlated_noise.recalled(draws, "model", hashlib.sha256(content).digest(), (1, 3))


class Dying(InMemory):
    """A store in a process that is killed after a round was kept; `before` it, where the memory alone was written."""

    def __init__(self, dies_after: int | None = None, *, before: bool = False) -> None:
        super().__init__()
        self.dies_after, self.before = dies_after, before
        self.noise: dict[int, list[Integers]] = {}

    def keep(self, name: str, content: bytes) -> None:
        last = name == f"model.step-{self.dies_after}"
        if last and self.before:
            raise KeyboardInterrupt
        super().keep(name, content)
        if last:
            raise KeyboardInterrupt


def noted(draws: Dying, monkeypatch: pytest.MonkeyPatch) -> list[Integers]:
    """The noise of each round that is drawn from now on."""
    found: list[Integers] = []
    remembered = NoiseSeries.remembered

    def note(self: NoiseSeries, memory: Any, noise: Integers) -> list[Integers]:
        found.append(noise)
        return remembered(self, memory, noise)

    monkeypatch.setattr(NoiseSeries, "remembered", note)
    return found


@pytest.mark.parametrize("before", [False, True])
def test_a_killed_series_goes_on_with_the_noise_of_the_rounds_that_were_kept(
    before: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(
        epsilon=8.0, delta=1e-6, stages={"model": model(steps=Rounds(steps=9, separation=3, noise="correlated"))}
    )
    draws = Dying(5, before=before)
    drawn = noted(draws, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path / "first", draws, rows())
    kept = 4 if before else 5
    memory = list(drawn[:kept])
    draws.dies_after = None
    drawn.clear()
    carried: list[list[Integers]] = []
    original = NoiseSeries.carried

    def note(self: NoiseSeries, held: Any) -> Any:
        carried.append(list(held))
        return original(self, held)

    monkeypatch.setattr(NoiseSeries, "carried", note)
    run(plan, tmp_path / "second", draws, rows(seed=2))
    assert len(drawn) == 9 - kept
    most = len(plan["model"].sums[0].coefficients)
    assert [noise.tolist() for noise in carried[0]] == [noise.tolist() for noise in memory[::-1][:most]]
    assert draws._memories == {}


def test_after_the_last_round_nothing_is_remembered_and_no_kept_state_holds_noise(tmp_path: pathlib.Path) -> None:
    plan, draws = planned(), Dying()
    remembered: list[bytes] = []
    draws.remember = lambda name, content: (remembered.append(content), InMemory.remember(draws, name, content))[1]  # type: ignore[assignment,func-returns-value,method-assign]
    done = run(plan, tmp_path / "run", draws, rows())
    assert len(remembered) == 10
    assert draws._memories == {}
    for content in remembered:
        for noise in np.frombuffer(content[-8 * done.artefact.parameters.size :], np.int64):
            assert not any(noise.tobytes() in held for held in draws._kept.values() if abs(noise) > 2**16)
    assert trainer.TrainingState.from_bytes(draws._kept["model.step-11"]).memory == b""
    assert len(trainer.TrainingState.from_bytes(draws._kept["model.step-10"]).memory) == 32


def test_a_run_whose_memory_is_gone_ends_and_draws_nothing(tmp_path: pathlib.Path) -> None:
    plan, draws = planned(), Dying(5)
    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path / "first", draws, rows())
    draws.dies_after, draws._memories = None, {}
    kept = dict(draws._kept)
    with pytest.raises(LostMemory, match=r"'model' is gone.*what was charged stays.*--abandon"):
        run(plan, tmp_path / "second", draws, rows())
    assert draws._kept == kept


def test_states_of_other_models_are_the_bytes_that_they_were() -> None:
    state = trainer.TrainingState(np.ones(2), np.zeros(2), np.ones(2), [0.5], 1)
    assert trainer.TrainingState.from_bytes(state.to_bytes()).memory == b""
    assert len(state.to_bytes()) == 5 * 128 + 8 * (2 + 2 + 2 + 1 + 1)


def test_noise_multipliers_are_those_of_what_is_drawn_anew() -> None:
    plan = planned()
    multipliers = training_noise.multipliers(plan["model"])
    assert len(set(multipliers)) == 1
    assert len(multipliers) == 11
    assert NOBODY.units == 0
