"""The gate: a stage draws only what its frozen records pay for.

In: a stage as it is built, its frozen records. Out: permits (`mechanisms.permits`), or a refusal before anything is drawn. Holds:
what the records must state is computed here from the noise, thresholds and bounds that the stage gives to workers, and from the
declared bounds (`unit_reach`); planning shares none of this code. A record may state more than a stage needs, never less. Not
covered: how far kernels let a unit move a statistic (tests/privacy); the fan-out of a rollup's levels (`audit.recount`); what
records cost (`accounting`).
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import KINDS
from dp_pipelines.errors import GateError
from dp_pipelines.kernels.cells import Around
from dp_pipelines.kernels.clipped_vectors import COEFFICIENT_BITS, SCALE, ClippedVectors
from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.sensitivity import LatticeSteps
from dp_pipelines.kernels.statistics import (
    WEIGHT_BITS,
    ClippedUnitSum,
    DistinctValues,
    RowCount,
    Statistic,
    UnitCount,
    UnitWeights,
    ValueSum,
)
from dp_pipelines.mechanisms import permits
from dp_pipelines.mechanisms.added_noise import AddedNoise, WeightedCount
from dp_pipelines.mechanisms.by_statistic import by_mechanism
from dp_pipelines.mechanisms.mechanism import Mechanism, Noise
from dp_pipelines.mechanisms.permits import NO_RECORD, Draw, DrawWords, Permits, Right, Sources, SumsPermit
from dp_pipelines.mechanisms.rank_choice import RankChoice
from dp_pipelines.mechanisms.smooth_median import MedianByPoints
from dp_pipelines.mechanisms.training_sums import NoisyTrainingSums
from dp_pipelines.noise import entropy
from dp_pipelines.noise.laws import FlooredLaplace, Law
from dp_pipelines.noise.samplers import Sampler
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.planning.stage import Selection, StagePlan, auto_statistics
from dp_pipelines.planning.stage_kinds import BestKind
from dp_pipelines.query.query import PrivatePartitions
from dp_pipelines.release.unit_reach import DeclaredBounds, loose_bounds, reach

Fields = dict[str, Any]
"""The required fields of a record; None for fields that must be empty."""

SELECTION = "selection"
"""The record of the coins of selection, or of noise that selection alone compares."""

TABLES = 2
"""Tables from which one number of a sum of vectors takes its noise (`training.gaussian_noise`)."""

SAME = ("kind", "scale", "rate", "group")
"""Fields of a record that must be those of the stage."""

NO_LESS = ("l2_squared", "linf", "l0", "l1", "epsilon", "delta", "times")
"""Fields of a record that must be no less than the stage needs."""

ROUNDING = 1e-9
"""By how much of itself a chance to fail may exceed its delta: the error of its float arithmetic is far below."""

TWO_RECORDS = "two records of one name"
OTHER_STAGE = "a record of another stage"
NOT_CHARGED = "other records than the run was charged for"
UNDERSTATED = "a record that states less than the stage draws"
LOOSE_BOUNDS = "workers get looser bounds than the job declares"
NO_SELECTION = "private partitions without a selection"
SHOWS = "a threshold that shows one unit more often than its record states"
TWICE = "a place that is drawn twice, or not at all"

RULES = (
    *(permits.TWO_DRAWS, permits.NO_DRAW, permits.OTHER_LAW, permits.OTHER_DECISION, permits.NO_RECORD),
    *(permits.OTHER_SUM, permits.OTHER_SAMPLE),
    *(TWO_RECORDS, OTHER_STAGE, NOT_CHARGED, UNDERSTATED, LOOSE_BOUNDS, NO_SELECTION, SHOWS, TWICE),
)
"""All that a refusal may say."""


def open_gate(
    stage: StagePlan, *, samplers: Callable[[Law], Draw] | None = None, words: DrawWords | None = None
) -> Permits:
    """Check a stage against its frozen records, and return permits for one call that draws.

    Args:
        stage: as it is built, with its records.
        samplers, words: the sources of noise and coins. INTERNAL: for tests.

    Raises:
        GateError: a record is missing, or states less than the stage draws.
    """
    check(stage)
    rights = {record.name: _right(stage, record) for record in stage.mechanisms}
    return Permits(stage.name, rights, _sources(samplers, words))


def replay(stage: StagePlan) -> Permits:
    """Return permits for draws over made-up totals, which check no record: for the audit, which looks for wrong records."""
    return Permits(stage.name, None, _sources(None, None))


def nothing_drawn(stage: StagePlan) -> Permits:
    """Return permits that refuse every draw: for numbers that have their noise already."""
    never = Right(epsilon=Fraction(-1))
    return Permits(stage.name, {record.name: never for record in stage.mechanisms}, _sources(None, None))


def open_sums(stage: StagePlan) -> SumsPermit:
    """Check a train stage against its frozen record, and return the permit for its sums. Errors as for `open_gate`."""
    check(stage)
    (vectors,) = stage.sums
    (record,) = stage.mechanisms
    multipliers = Counter(training_noise.multipliers(stage))
    return SumsPermit(stage.name, record.name, vectors.size, vectors.rate, multipliers)


def admit(stages: Mapping[str, StagePlan], charged: Iterable[MechanismRecord]) -> None:
    """Check all stages of a run on the driver, before any pipeline begins.

    Args:
        stages: by name.
        charged: the records with which the accountant has composed the total of this run.

    Raises:
        GateError: a stage has other records, or does not draw what they state.
    """
    by_stage: dict[str, set[MechanismRecord]] = {}
    for record in charged:
        by_stage.setdefault(record.stage, set()).add(record)
    for name, stage in stages.items():
        if set(stage.mechanisms) != by_stage.get(name, set()):
            raise GateError(NOT_CHARGED, name, "")
        check(stage)


def check_places(stage: str, drawn: Sequence[int], count: int) -> None:
    """Check that each place of a stage was drawn once.

    Args:
        stage: its name.
        drawn: the places for which there is a release.
        count: how many places there are.

    Raises:
        GateError: a place was drawn twice, or not at all.
    """
    if sorted(drawn) != list(range(count)):
        raise GateError(TWICE, stage, "")


def check(stage: StagePlan) -> None:
    """Check that the frozen records of a stage state all that it draws.

    Raises:
        GateError: they do not.
    """
    records = {record.name: record for record in stage.mechanisms}
    if len(records) != len(stage.mechanisms):
        raise GateError(TWO_RECORDS, stage.name, "")
    for record in stage.mechanisms:
        if record.stage != stage.name:
            raise GateError(OTHER_STAGE, stage.name, record.name)
    sums = stage.sums
    for fields in required(stage, stage.query.group, sums[0] if sums else None):
        name = fields["name"]
        if name not in records:
            raise GateError(NO_RECORD, stage.name, name)
        if not _states(records[name], fields):
            raise GateError(UNDERSTATED, stage.name, name)
    if loose_bounds(stage.layout, stage.query):
        raise GateError(LOOSE_BOUNDS, stage.name, "")
    selection = stage.selection
    if selection is None and isinstance(stage.query.partitions, PrivatePartitions):
        raise GateError(NO_SELECTION, stage.name, "")
    if selection is not None and selection.noise is not None:
        most = DeclaredBounds.of(stage.query.bounds).partitions
        weighted = isinstance(stage.statistics[selection.statistic], UnitWeights)
        if not _hides(selection, selection.noise, most, weighted) <= stage.choices.selection_delta * (1 + ROUNDING):
            raise GateError(SHOWS, stage.name, SELECTION)


def _states(record: MechanismRecord, fields: Fields) -> bool:
    if any(getattr(record, field) != fields[field] for field in SAME):
        return False
    pairs = [(getattr(record, field), fields[field]) for field in NO_LESS]
    return all(needed is None or (stated is not None and stated >= needed) for stated, needed in pairs)


def _right(stage: StagePlan, record: MechanismRecord) -> Right:
    """Return what a record allows, by its own fields."""
    law = KINDS[record.kind].noise(record)
    if law is not None:
        return Right(law=law)
    return Right(epsilon=Fraction(record.epsilon or 0), delta=record.delta or 0.0, spread=_spread(stage, record.name))


def _sources(samplers: Callable[[Law], Draw] | None, words: DrawWords | None) -> Sources:
    return Sources(Sampler if samplers is None else samplers, entropy.words if words is None else words)


def _spread(stage: StagePlan, record: str) -> int:
    """Return the length of an interval in which one unit moves the scores of a choice (docs/proofs/exponential.md, 3 and 5)."""
    rows, kind = DeclaredBounds.of(stage.query.bounds).rows_of_partition, stage.kind
    if isinstance(kind, BestKind):
        return _range_of_score(kind.choice.statistic, rows)
    cells = next((statistic.cells for statistic in stage.statistics if statistic.name == record), None)
    return 2 * rows * max(cells.part, cells.whole - cells.part) if isinstance(cells, Around) else 1


def _range_of_score(statistic: Statistic, rows: int) -> int:
    lattice = statistic.lattice
    match statistic:
        case UnitCount():
            return 1
        case RowCount():
            return rows
        case DistinctValues():
            return statistic.most or rows
        case ClippedUnitSum() if isinstance(lattice, SummandLattice):
            low, high = lattice.clip_bounds
            return max(high, 0) - min(low, 0)
        case ValueSum() if isinstance(lattice, Lattice):
            return rows * (max(lattice.highest, 0) - min(lattice.lowest, 0))
    raise LookupError(f"how far a unit moves scores of {statistic.kind} is not known here")


@functools.lru_cache(maxsize=256)
def _hides(selection: Selection, noise: Noise, most: int, weighted: bool) -> float:
    """Return the largest chance, over all numbers of partitions, that noise shows a unit alone in its partitions."""
    if not weighted:
        first = ((selection.min_users << noise.fine_bits) + noise.step // 2) // noise.step
        return _any(noise.law.tail(selection.threshold - first), most)
    several = {1, most, *(min(most, 2**power) for power in range(most.bit_length()))}
    unit = 1 << WEIGHT_BITS
    moved = {number: -(-math.isqrt(unit * unit // number) // noise.step) for number in several}
    return max(_any(noise.law.tail(selection.threshold - moved[number]), number) for number in several)


def _any(probability: float, times: int) -> float:
    return -math.expm1(times * math.log1p(-min(probability, 1 - 2**-53)))


def required(stage: StagePlan, group: str | None, vectors: ClippedVectors | None) -> list[Fields]:
    """Return the required fields of the records of a stage.

    Args:
        stage: the stage as it runs; if its bounds are open, with the most that is reserved for them.
        group: of the units that it reads.
        vectors: the sums of vectors that are released for it outside the aggregate path.
    """
    records = [_of_statistic(stage, place, noise, vectors) for place, noise in _noises(stage)]
    records += _of_decisions(stage)
    every: Fields = {field.name: None for field in dataclasses.fields(MechanismRecord)}
    return [every | fields | {"stage": stage.name, "group": group} for fields in records]


def _noises(stage: StagePlan) -> list[tuple[int | None, Noise]]:
    """Return the noises that are drawn, by the place of the statistic; None for the one that selection draws for itself."""
    noises: list[tuple[int | None, Noise]] = [(at, noise) for at, noise in enumerate(stage.noises) if noise is not None]
    if stage.selection is not None and stage.selection.noise is not None and not stage.selection.released:
        noises.append((None, stage.selection.noise))
    return noises


def _of_statistic(stage: StagePlan, place: int | None, noise: Noise, vectors: ClippedVectors | None) -> Fields:
    selection = stage.selection
    if place is None:
        assert selection is not None
        statistic, name = stage.statistics[selection.statistic], "selection"
    else:
        statistic, name = stage.statistics[place], stage.statistics[place].name
    law = "laplace" if isinstance(noise.law, FlooredLaplace) else "gaussian"
    fields: Fields = {"name": name, "kind": law, "scale": noise.law.scale}
    drawn = _Drawn(stage=stage, statistic=statistic, name=name, noise=noise, vectors=vectors)
    return fields | by_mechanism(FIELDS, statistic)(drawn)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Drawn:
    """A statistic as it runs, and the sums of vectors that are released for its stage outside of the aggregate path."""

    stage: StagePlan
    statistic: Statistic
    name: str
    noise: Noise
    vectors: ClippedVectors | None

    @property
    def moved(self) -> LatticeSteps:
        """Return how far a unit moves the statistic in the steps of its noise, by the bounds of the job."""
        return _moved(self.stage, self.statistic, self.name, self.noise)


def _of_noise(drawn: _Drawn) -> Fields:
    moved = drawn.moved
    if isinstance(drawn.noise.law, FlooredLaplace):
        return {"linf": moved.linf, "l0": moved.l0, "l1": moved.l1}
    return {"l2_squared": moved.l2_squared, "l0": moved.l0}


def _of_weights(drawn: _Drawn) -> Fields:
    most = DeclaredBounds.of(drawn.stage.query.bounds).partitions
    return {"l2_squared": _weights_squared(drawn.noise.step, most), "l0": most}


def _weights_squared(step: int, most: int) -> int:
    """Return the square of the L2 norm of how far one unit moves all weights together (docs/proofs/selection.md).

    In d partitions each weight moves by at most c steps; for each c the largest d counts.
    """
    unit, largest = 1 << WEIGHT_BITS, 0
    for moved in range(1, -(-unit // step) + 1):
        partitions = min(most, unit * unit // ((moved - 1) * step + 1) ** 2)
        largest = max(largest, partitions * moved * moved)
    return largest


def _of_ranks(drawn: _Drawn) -> Fields:
    epsilon = math.nextafter(float(drawn.moved.linf / drawn.noise.law.scale), math.inf)
    return {"kind": "approximate_dp", "scale": None, "epsilon": epsilon, "delta": 0.0, "l0": drawn.moved.l0}


def _of_median(drawn: _Drawn) -> Fields:
    return _of_ranks(drawn) | {"delta": drawn.stage.choices.selection_delta}


def _moved(stage: StagePlan, statistic: Statistic, name: str, noise: Noise) -> LatticeSteps:
    """Return how far a unit moves a statistic in the steps of its noise, by the bounds of the job."""
    choice, moved = stage.choices.noises.get(name), reach(statistic, stage.query)
    if stage.query.bounds.auto or name in auto_statistics(stage.query, stage.choices.centred):
        assert choice is not None
        return moved.exactly(choice.steps, choice.units)
    return moved.rounded(noise.step, joined=choice is not None and choice.units > 1)


def _of_sums(drawn: _Drawn) -> Fields:
    """Return the fields for the sums that the trainer releases, with the noise that it takes from the stage."""
    vectors = drawn.vectors
    if vectors is None:
        return {"kind": f"{drawn.statistic.name}, which nothing releases"}
    # Of the norm of a vector, in each sum.
    steps = [drawn.noise.law.scale / each for each in training_noise.multipliers(drawn.stage)]
    together = _together(vectors, steps, drawn.noise.law.scale)
    squared = int(steps[0] ** 2) if steps[0].denominator == 1 else steps[0] ** 2
    draws = TABLES * vectors.size
    if vectors.rate == 1:
        whole = int(together) if together.denominator == 1 else together
        return {"l2_squared": whole, "l0": draws * vectors.times}
    return {
        "kind": "sampled_gaussian",
        "l2_squared": squared,
        "l0": draws,
        "rate": vectors.rate,
        "times": vectors.times,
    }


def _together(vectors: ClippedVectors, norms: Sequence[Fraction], scale: Fraction) -> Fraction:
    """Return the square of how far one unit moves all sums, of whichever group it is: row by row of the matrix of noise."""
    matrix = [Fraction(1), *(Fraction(each, 2**COEFFICIENT_BITS) for each in vectors.coefficients)]
    rounding = Fraction(math.isqrt(vectors.size - 1) + 1) * scale / SCALE
    together, apart = [], vectors.separation or 1
    for group in range(apart):
        total = Fraction(0)
        for row in range(len(norms)):
            reaching = [at for at in range(group, row + 1, apart) if row - at < len(matrix)]
            moved = sum((matrix[row - at] * norms[at] for at in reaching), Fraction(0))
            # Only what is carried over from a sum that the unit is in can be rounded otherwise without it.
            total += (moved + (rounding if any(at < row for at in reaching) else 0)) ** 2
        together.append(total)
    return max(together) if not vectors.coefficients else Fraction(math.ceil(max(together)))


FIELDS: Mapping[type[Mechanism], Callable[[_Drawn], Fields]] = {
    AddedNoise: _of_noise,
    WeightedCount: _of_weights,
    RankChoice: _of_ranks,
    MedianByPoints: _of_median,
    NoisyTrainingSums: _of_sums,
}
"""Functions that compute the required fields of a record, by mechanism, without asking the mechanism."""


def _of_decisions(stage: StagePlan) -> list[Fields]:
    """Return the records of choices, coins and thresholds."""
    kind, selection, delta = stage.kind, stage.selection, stage.choices.selection_delta
    if isinstance(kind, BestKind):
        fields: Fields = {"name": "best", "epsilon": stage.choices.selection_epsilon, "l0": kind.choice.k}
        bounded = kind.choice.mechanism == "exponential"
        return [fields | ({"kind": "bounded_range"} if bounded else {"kind": "approximate_dp", "delta": 0.0})]
    if selection is None:
        return []
    if selection.noise is not None:
        return [{"name": "selection threshold", "kind": "delta", "delta": delta}]
    coin: Fields = {"name": "selection", "kind": "approximate_dp", "epsilon": selection.epsilon}
    return [coin | {"delta": selection.delta, "l0": DeclaredBounds.of(stage.query.bounds).partitions}]
