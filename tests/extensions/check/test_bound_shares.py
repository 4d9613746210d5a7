"""What bounds keep, and groups by size: against sums over every unit in plain Python, and against the bounding of a run."""

import collections
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.extensions.check import bound_shares, group_sizes
from dp_pipelines.extensions.check.bound_shares import ProfiledClip, ProfiledLevel, ProfiledStage
from dp_pipelines.extensions.check.notes import Notes, read_notes
from dp_pipelines.kernels import contributions, shard
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.planning.selection_chances import Selects
from dp_pipelines.steps.unbounded_rows import size_of

ROW = st.tuples(
    st.none() | st.integers(0, 4),
    st.none() | st.sampled_from(["p", "q", "r", "s"]),
    st.none() | st.integers(0, 1),
    st.none() | st.sampled_from([-3.0, 0.0, 0.5, 2.0, 9.0]),
)
ROWS = st.lists(ROW, max_size=40)
LOW, HIGH = -1.0, 2.0

Facts = dict[tuple[str, ...], float]


def stage(*, partitions: int = 2, rows: int = 2, all_rows: int | None = None, shards: int = 2) -> ProfiledStage:
    clips = (
        ProfiledClip(metric="total", column="x", low=LOW, high=HIGH),
        ProfiledClip(metric="sums", column="x", low=LOW, high=HIGH, of_sums=True),
    )
    coin = Selects(epsilon=1.0, delta=0.01)
    return ProfiledStage(
        name="s",
        layout=Layout(
            units=("u",), partitions=("p", "d"), max_partitions=all_rows or partitions,
            max_rows_per_partition=all_rows or rows, max_rows=all_rows,
        ),
        bounds_rows=True,
        clips=clips,
        levels=(ProfiledLevel(places=(), listed=1, selects=None), ProfiledLevel(places=(0,), listed=0, selects=coin),
                ProfiledLevel(places=(0, 1), listed=0, selects=coin)),
        num_shards=shards,
        salt=7,
    )  # fmt: skip


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    kinds = [("u", pa.int64()), ("p", pa.string()), ("d", pa.int8()), ("x", pa.float64())]
    return pa.table({name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(kinds)})


def counted(rows: list[tuple[Any, ...]], of: ProfiledStage, batches: int = 2) -> Facts:
    """The facts as the steps count them: batches, shards of units, places of groups."""
    notes = Notes()
    shards: dict[int, list[pa.Table]] = collections.defaultdict(list)
    places: dict[int, list[pa.Table]] = collections.defaultdict(list)
    whole = table(rows)
    for number in range(batches):
        part = whole.slice(
            number * len(rows) // batches, (number + 1) * len(rows) // batches - number * len(rows) // batches
        )
        for key, piece in shard.slices(
            bound_shares.wire(part, of, notes), of.layout.unit_names, of.salt, of.num_shards
        ):
            shards[key].append(piece)
    for pieces in shards.values():
        for level, groups in bound_shares.of_units(shard.joined(pieces), of, notes):
            for key, piece in bound_shares.cut_groups(groups, level, of):
                places[key].append(piece)
    for key, pieces in places.items():
        group_sizes.note_sizes(pieces, key // of.num_shards, of, notes)
    return read_notes([notes.table()])


def pairs_of(rows: list[tuple[Any, ...]]) -> dict[int, dict[tuple[Any, Any], list[float | None]]]:
    """By unit and partition the values of the rows."""
    found: dict[int, dict[tuple[Any, Any], list[float | None]]] = collections.defaultdict(dict)
    for unit, p, d, x in rows:
        if unit is not None:
            found[unit].setdefault((p, d), []).append(x)
    return found


def clamped(x: float | None) -> float:
    return 0.0 if x is None else min(max(x, LOW), HIGH)


def close(found: float, wanted: float) -> bool:
    return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)


@given(ROWS, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_shares_are_sums_over_units(rows: list[tuple[Any, ...]], k: int, m: int, batches: int) -> None:
    facts, units = counted(rows, stage(partitions=k, rows=m), batches), pairs_of(rows)

    def is_(*fact_and_wanted: Any) -> None:
        *fact, wanted = fact_and_wanted
        assert close(facts.get(tuple(fact), 0.0), float(wanted)), (fact, facts.get(tuple(fact)), wanted)

    pairs = [(min(1.0, k / len(mine)), values) for mine in units.values() for values in mine.values()]
    is_("rows", len(rows))
    is_("without_unit", sum(row[0] is None for row in rows))
    is_("unlisted", 0)
    is_("units", len(units))
    is_("pairs", len(pairs))
    is_("kept", "pairs", sum(q for q, _ in pairs))
    is_("kept", "rows", sum(q * min(len(v), m) for q, v in pairs))
    is_("bound", "max_partitions_contributed", "rows", sum(q * len(v) for q, v in pairs))
    is_("bound", "max_partitions_contributed", "cut", sum(len(mine) > k for mine in units.values()))
    is_("bound", "max_contributions_per_partition", "rows", sum(min(len(v), m) for _, v in pairs))
    is_("bound", "max_contributions_per_partition", "cut", sum(len(v) > m for _, v in pairs))
    lose = (len(mine) > k or any(len(v) > m for v in mine.values()) for mine in units.values())
    is_("units_cut", sum(lose))
    largest = max((int(fact[1]) for fact in facts if fact[0] == "largest_unit"), default=0)
    assert largest == max((sum(map(len, mine.values())) for mine in units.values()), default=0)
    for other in (2 * k, 4 * k):
        kept = sum(min(1.0, other / len(mine)) * len(v) for mine in units.values() for v in mine.values())
        is_("other", "max_partitions_contributed", str(other), kept)
    known = [x for mine in units.values() for v in mine.values() for x in v if x is not None]
    is_("clip", "total", "values", len(known))
    is_("clip", "total", "below", sum(x < LOW for x in known))
    is_("clip", "total", "above", sum(x > HIGH for x in known))
    is_("clip", "total", "sum", sum(known))
    is_("clip", "total", "clamped", sum(map(clamped, known)))
    is_("clip", "total", "kept", sum(q * min(len(v), m) / len(v) * sum(map(clamped, v)) for q, v in pairs))
    sums = [(q, sum(x or 0.0 for x in v)) for q, v in pairs]
    is_("clip", "sums", "above", sum(s > HIGH for _, s in sums))
    is_("clip", "sums", "clamped", sum(clamped(s) for _, s in sums))
    is_("clip", "sums", "kept", sum(q * clamped(s) for q, s in sums))


@given(ROWS, st.integers(1, 6))
def test_a_bound_on_all_rows_keeps_each_row_alike(rows: list[tuple[Any, ...]], most: int) -> None:
    facts, units = counted(rows, stage(all_rows=most)), pairs_of(rows)
    sizes = {unit: sum(map(len, mine.values())) for unit, mine in units.items()}
    kept = sum(min(size, most) for size in sizes.values())
    assert close(facts.get(("bound", "max_contributions", "rows"), 0.0), kept)
    assert facts.get(("units_cut",), 0.0) == sum(size > most for size in sizes.values())
    pairs = 0.0
    for unit, mine in units.items():
        for values in mine.values():
            none = math.comb(sizes[unit] - len(values), min(most, sizes[unit])) / math.comb(
                sizes[unit], min(most, sizes[unit])
            )
            pairs += 1 - none
    assert close(facts.get(("kept", "pairs"), 0.0), pairs)


@given(ROWS, st.integers(1, 4))
def test_every_choice_of_partitions_is_as_likely_at_every_level(rows: list[tuple[Any, ...]], k: int) -> None:
    """Published groups, with a coin that keeps all: the expected number of groups that have anyone left, choice by choice."""
    units = pairs_of(rows)
    facts = counted(rows, stage(partitions=k))
    for level, by in ((1, lambda pair: pair[:1]), (2, lambda pair: pair)):
        true_sizes: collections.Counter[Any] = collections.Counter()
        for mine in units.values():
            true_sizes.update({by(pair) for pair in mine})
        about = ("level", str(level), "size")
        found = {fact[3]: number for fact, number in facts.items() if fact[:3] == about and fact[4] == "groups"}
        wanted = collections.Counter(str(size_of(np.array([size]))[0]) for size in true_sizes.values())
        assert found == dict(wanted)
        assert sum(n for f, n in facts.items() if f[:3] == about and f[4] == "units") == sum(true_sizes.values())


@given(ROWS, st.integers(1, 3))
def test_expected_units_of_groups_are_means_over_all_choices(rows: list[tuple[Any, ...]], k: int) -> None:
    of, units = stage(partitions=k, shards=1), pairs_of(rows)
    notes = Notes()
    wire = bound_shares.wire(table(rows), of, notes)
    if not wire.num_rows:
        return
    levels = dict(bound_shares.of_units(wire, of, notes))
    wanted: dict[Any, Fraction] = collections.defaultdict(Fraction)
    for mine in units.values():
        choices = list(itertools.combinations(list(mine), min(k, len(mine))))
        for choice in choices:
            for group in {pair[0] for pair in choice}:
                wanted[group] += Fraction(1, len(choices))
    table_ = levels[1]
    found = dict(zip(table_.column("p0").to_pylist(), table_.column("mean").to_pylist(), strict=True))
    assert found.keys() == wanted.keys()
    assert all(close(found[group], float(wanted[group])) for group in wanted)


def test_a_run_keeps_on_average_what_is_told() -> None:
    """The real bounding of 400 salts: the mean lies within 6.5 standard errors (1e-9), those of a uniform choice."""
    made = np.random.default_rng(5)
    rows = [(int(u), str(p), 0, 1.0) for u, p in zip(made.integers(0, 30, 600), made.integers(0, 9, 600), strict=True)]
    # A row id, so that no two rows of a unit tie.
    layout = Layout(units=("u",), partitions=("p",), max_partitions=3, max_rows_per_partition=2, row_id="id")
    whole = table(rows).append_column("id", pa.array(np.arange(len(rows))))
    of = stage(partitions=3, rows=2)
    facts = counted([(u, p, None, x) for u, p, _, x in rows], of)
    kept = [
        len(contributions.bound(layout.wire(whole), layout, int(salt)).bounded.rows)
        for salt in made.integers(0, 2**62, 400)
    ]
    error = np.std(kept) / math.sqrt(len(kept))
    assert abs(np.mean(kept) - facts["kept", "rows"]) < 6.5 * error
    assert abs(np.mean(kept) - facts["bound", "max_partitions_contributed", "rows"]) > 6.5 * error
