"""The draw over a large list: the law of what is published is that of drawing every key's noise and leaving out what fails."""

import functools
import itertools
import pathlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import dp_pipelines as dp
from dp_pipelines.errors import GateError, RequestError
from dp_pipelines.kernels import accumulate
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.mechanisms.permits import NO_DRAW, Permits, Sources
from dp_pipelines.metrics.base import Metric
from dp_pipelines.noise.conditional_draws import SampledLaw
from dp_pipelines.noise.samplers import Sampler
from dp_pipelines.planning.noise_levels import passing_noise
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.large_list import Condition, LargeList
from dp_pipelines.release import draw, large_lists
from dp_pipelines.release.large_lists import draw_passing
from tests.helpers.key_files import key_file
from tests.helpers.seeded import words

ALPHA = 1e-9
KEYS = ["a", "b", "c", "d"]
ROWS = 1
"""Rows of a key that has rows."""

COPIES = 3000
"""Lists of four keys in one, which is released once: noises of all keys are independent, so that is as many releases."""


def stage_of(
    listed: KeyFile, *conditions: Condition, rollup: list[list[str]] | None = None, **metrics: Metric
) -> StagePlan:
    """A stage over a list, with noise of about 6 on a count; of a rollup the finest level."""
    query = dp.Query(
        privacy_unit="unit",
        partition_by=[f"p{index}" for index in range(listed.width)],
        bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        metrics=metrics or {"views": dp.Count()},
        partitions=LargeList(keys=listed, conditions=conditions),
        rollup=rollup,
    )
    return dp.Plan(epsilon=1.0, delta=1e-6, stages={"pages": query})["pages"]


def totals_of(stage: StagePlan, keys: list[str], rows: int = ROWS) -> Totals:
    """The totals where some keys have rows: each statistic counts that many."""
    names, statistics = stage.layout.partition_names, stage.statistics
    if not keys:
        return accumulate.merge([accumulate.no_partials(names, statistics)], names, statistics)
    counts = {f"a{i}": pa.array([rows] * len(keys), pa.int64()) for i, s in enumerate(statistics) if not s.in_lists}
    return accumulate.merge([pa.table({names[0]: pa.array(keys, pa.string()), **counts})], names, statistics)


def drawn(stage: StagePlan, totals: Totals, source: Callable[[int], np.ndarray]) -> dict[str, float]:
    """What is published of one release: the noisy count of each key."""
    tables = draw_passing(totals, stage, 0, 1, samplers=lambda law: Sampler(law, source), words=source)
    return {
        key: value for table in tables for key, value in zip(*table.select([0, 1]).to_pydict().values(), strict=True)
    }


def patterns() -> Iterator[list[str]]:
    """Every set of keys that may have rows."""
    for taken in itertools.product([False, True], repeat=len(KEYS)):
        yield [key for key, has_rows in zip(KEYS, taken, strict=True) if has_rows]


def misfits(stage: StagePlan, source: Callable[[int], np.ndarray]) -> list[float]:
    """For each pattern how well the sets of published keys and the values of each key fit the law where every key is drawn."""
    (noise,) = [noise for noise in stage.noises if noise is not None]
    law = SampledLaw.of(noise.law)
    ((first, last),) = passing_noise.passing_steps(stage).values()
    copies = len(stage.query.partitions.keys) // len(KEYS)
    found = []
    for with_rows in patterns():
        totals = totals_of(stage, [f"{copy:05d}{key}" for copy in range(copies) for key in with_rows])
        exact = {key: round(ROWS / noise.unit) if key in with_rows else 0 for key in KEYS}
        passes = {key: float(law.chance(first - exact[key], last - exact[key])) for key in KEYS}
        values = np.full((copies, len(KEYS)), np.nan)
        for name, value in drawn(stage, totals, source).items():
            values[int(name[:-1]), KEYS.index(name[-1])] = value
        there = np.isfinite(values)
        sets = np.array(list(itertools.product([False, True], repeat=len(KEYS))))
        observed = np.bincount(there @ [8, 4, 2, 1], minlength=16)
        chances = np.where(sets, [passes[k] for k in KEYS], [1 - passes[k] for k in KEYS]).prod(axis=1)
        found.append(fit(observed, chances))
        for at, key in enumerate(KEYS):
            steps = np.rint(values[there[:, at], at] / noise.unit - float(noise.law.offset)) - exact[key]
            low, high = first - exact[key], last - exact[key]
            cuts = [low + round(float(noise.law.scale) * by) for by in (0.3, 0.7, 1.2)]
            ends = list(zip([low, *cuts], [*(cut - 1 for cut in cuts), high], strict=True))
            inside = np.array([float(law.chance(*range_)) for range_ in ends])
            counts = np.array([int(((steps >= a) & (steps <= b)).sum()) for a, b in ends])
            found.append(fit(counts, inside / inside.sum()) if counts.sum() == len(steps) else 0.0)
    return found


def fit(counts: np.ndarray, chances: np.ndarray) -> float:
    """The p-value of Pearson's test, where rare outcomes count together."""
    order = np.argsort(chances)
    counts, chances = counts[order], chances[order]
    rare = np.cumsum(chances) * counts.sum() < 5
    counts = np.append(counts[~rare], counts[rare].sum())
    chances = np.append(chances[~rare], chances[rare].sum())
    kept = chances > 0
    if counts[~kept].any():
        return 0.0
    return float(stats.chisquare(counts[kept], chances[kept] / chances[kept].sum() * counts.sum()).pvalue)


@pytest.fixture
def four(tmp_path: pathlib.Path) -> StagePlan:
    """A list of four keys, of which noise alone passes about every third time."""
    return stage_of(key_file(tmp_path / "four", [f"00000{key}" for key in KEYS]), Condition(metric="views", low=0.5))


@pytest.fixture
def many(tmp_path: pathlib.Path) -> StagePlan:
    """As many such lists as there are copies, in one."""
    names = [f"{copy:05d}{key}" for copy in range(COPIES) for key in KEYS]
    return stage_of(
        key_file(tmp_path / "many", names, bucket_keys=1000, part_keys=4000), Condition(metric="views", low=0.5)
    )


@pytest.mark.parametrize("bucket_keys", [1, 2, 5])
def test_where_all_noise_passes_each_key_of_every_bucket_is_published_once(
    bucket_keys: int, tmp_path: pathlib.Path
) -> None:
    """For every set of keys that have rows, the first, the last and all of a bucket among them.

    A key that is drawn twice, or not at all, is seen in each release: noise fails the condition with probability below 1e-300.
    """
    names = [f"k{number}" for number in range(5)]
    listed = key_file(tmp_path / "five", names, bucket_keys=bucket_keys, part_keys=5)
    stage = stage_of(listed, Condition(metric="views", low=-1e5))
    for number in range(2 ** len(names)):
        with_rows = [name for at, name in enumerate(names) if number >> at & 1]
        tables = list(draw_passing(totals_of(stage, with_rows), stage, 0, 1))
        published = [key for table in tables for key in table.column(0).to_pylist()]
        assert sorted(published) == names


@pytest.mark.parametrize("bucket_keys", [1, 2, 5])
def test_where_no_noise_passes_keys_with_many_rows_alone_are_published(
    bucket_keys: int, tmp_path: pathlib.Path
) -> None:
    """The twin of the above: nothing passes by noise, and keys with enough rows surely do."""
    names = [f"k{number}" for number in range(5)]
    listed = key_file(tmp_path / "five", names, bucket_keys=bucket_keys, part_keys=5)
    stage = stage_of(listed, Condition(metric="views", low=1e5))
    for number in range(0, 2 ** len(names), 3):
        with_rows = [name for at, name in enumerate(names) if number >> at & 1]
        tables = list(draw_passing(totals_of(stage, with_rows, rows=10**6), stage, 0, 1))
        assert sorted(key for table in tables for key in table.column(0).to_pylist()) == with_rows


def test_for_every_pattern_of_keys_with_rows_the_published_table_is_as_if_every_key_had_been_drawn(
    many: StagePlan,
) -> None:
    """80 tests at 1e-11 each, on releases with a seed."""
    found = misfits(many, words(20261123))
    assert len(found) == 80
    assert min(found) > ALPHA / 100, sorted(found)[:5]


def test_the_finest_level_of_a_rollup_has_that_law_too(tmp_path: pathlib.Path) -> None:
    """As above, with fewer releases."""
    names = [f"{copy:05d}{key}" for copy in range(COPIES // 4) for key in KEYS]
    listed, condition = key_file(tmp_path / "rolled", names), Condition(metric="views_raw", low=0.5)
    found = misfits(stage_of(listed, condition, rollup=[[], ["p0"]]), words(20261124))
    assert len(found) == 80
    assert min(found) > ALPHA / 100, sorted(found)[:5]


def test_a_list_of_four_keys_has_that_law_too(four: StagePlan) -> None:
    """The number of published keys without rows, over all patterns: 16 tests at 1e-11 each, on releases with a seed."""
    source, chance = words(4), float(passing_noise.chance(four))
    for with_rows in patterns():
        totals, without = totals_of(four, [f"00000{key}" for key in with_rows]), len(KEYS) - len(with_rows)
        passed = [sum(name[-1] not in with_rows for name in drawn(four, totals, source)) for _ in range(40)]
        assert stats.binomtest(sum(passed), 40 * without, chance).pvalue > ALPHA / 100 if without else not any(passed)


FAULTS: dict[str, tuple[object, str, Callable[[Callable[..., object]], Callable[..., object]]]] = {
    "keys without rows pass more often": (
        passing_noise, "chance", lambda right: lambda stage: right(stage) * Fraction(5, 4),
    ),
    "keys with rows pass by noise alone too": (
        large_lists, "_passing", lambda right: lambda with_rows, *rest: right(np.zeros_like(with_rows), *rest),
    ),
    "the value of a key without rows lies just above the threshold": (
        large_lists, "_of_noise_alone",
        lambda right: lambda stage, listed, places, compared, sources: right(
            stage, listed, places, {at: (law, (a, a + 1)) for at, (law, (a, _)) in compared.items()}, sources
        ),
    ),
    "the value of a key without rows is drawn anew": (
        Sources,
        "noise_within",
        lambda right: lambda self, n, law, ends: self.add_noise(np.zeros(n, np.int64), law),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_in_the_law_is_seen(fault: str, many: StagePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, plant = FAULTS[fault]
    monkeypatch.setattr(module, name, plant(getattr(module, name)))
    assert min(misfits(many, words(20261123))) < ALPHA / 100


def test_the_chance_is_that_of_the_steps_whose_published_value_passes(tmp_path: pathlib.Path) -> None:
    listed = key_file(tmp_path / "list", KEYS)
    for condition in (
        Condition(metric="views", low=30.0),
        Condition(metric="views", low=30.0, with_low=False),
        Condition(metric="views", high=-3.25),
        Condition(metric="views", low=-1.0, high=1.0, with_high=False),
    ):
        stage = stage_of(listed, condition)
        ((place, (first, last)),) = passing_noise.passing_steps(stage).items()
        noise = stage.noises[place]
        assert noise is not None
        steps = np.arange(-40_000, 40_000)
        passing = steps[[condition.passes(float(value)) for value in (steps + float(noise.law.offset)) * noise.unit]]
        assert max(first, -40_000) == passing[0]
        assert min(last, 39_999) == passing[-1]


def test_conditions_on_several_metrics_multiply_and_those_on_one_intersect(tmp_path: pathlib.Path) -> None:
    listed = key_file(tmp_path / "list", KEYS)
    metrics = {"views": dp.Count(), "total": dp.Sum("amount", min_value=0, max_value=2)}
    views, total = Condition(metric="views", low=5.0), Condition(metric="total", low=10.0)
    alone = [passing_noise.chance(stage_of(listed, one, **metrics)) for one in (views, total)]
    assert passing_noise.chance(stage_of(listed, views, total, **metrics)) == alone[0] * alone[1]
    never = Condition(metric="views", high=4.0)
    assert passing_noise.chance(stage_of(listed, views, never, **metrics)) == 0


def test_other_metrics_of_a_key_without_rows_have_their_own_law(tmp_path: pathlib.Path) -> None:
    count = 40_000
    listed = key_file(tmp_path / "list", [f"{number:06d}" for number in range(count)])
    metrics = {
        "views": dp.Count(), "total": dp.Sum("amount", min_value=0, max_value=2),
        "ages": dp.Histogram("age", edges=[0, 10, 20]),
    }  # fmt: skip
    stage = stage_of(listed, Condition(metric="views", low=0.0), **metrics)
    source = words(5)
    (table,) = draw_passing(totals_of(stage, []), stage, 0, 1, samplers=lambda law: Sampler(law, source), words=source)
    assert 0.45 * count < table.num_rows < 0.55 * count
    own = {s.name: n for s, n in zip(stage.statistics, stage.noises, strict=True) if n is not None}
    for column, name in (("views", "rows"), ("total", "sum("), ("ages", "cells")):
        (noise,) = [noise for statistic, noise in own.items() if statistic.startswith(name)]
        values = np.array(table.column(column).to_pylist()).ravel()
        whole = (Sampler(noise.law, source).draw(count) + float(noise.law.offset)) * noise.unit
        is_whole = stats.ks_2samp(values, whole).pvalue > ALPHA
        assert is_whole == (column != "views"), "that one is known to be above zero"


def test_a_key_that_is_not_listed_is_dropped_by_its_whole_key(four: StagePlan) -> None:
    totals = totals_of(four, ["00000a", "stranger", "00000d"], rows=10**6)
    published = drawn(four, totals, words(1))
    assert {"00000a", "00000d"} <= set(published) <= {f"00000{key}" for key in KEYS}


def test_buckets_and_places_change_nothing_but_who_draws(tmp_path: pathlib.Path) -> None:
    names = [f"{number:05d}" for number in range(5000)]
    with_rows = names[::7]
    published = []
    for bucket_keys, places in ((2**18, 1), (100, 1), (100, 7), (600, 3)):
        listed = key_file(tmp_path / f"{bucket_keys}-{places}", names, bucket_keys=bucket_keys, part_keys=1000)
        stage = stage_of(listed, Condition(metric="views", low=500.0))
        totals = totals_of(stage, [*with_rows, "stranger"], rows=1000)
        numbers = listed.numbers(listed.hashes(totals.partitions))
        found: list[str] = []
        for place in range(places):
            mine = np.isin(numbers, listed.buckets_of(place, places))
            of_place = totals_of(stage, np.array(totals.partitions[0].to_pylist())[mine].tolist(), rows=1000)
            for table in draw_passing(of_place, stage, place, places):
                keys = table.column("p0").to_pylist()
                assert keys == sorted(keys), "whether a key has rows is not seen in the order"
                found += keys
        published.append(sorted(found))
    assert published == [with_rows] * 4  # noise is far below 500


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (dp.Mean("amount", min_value=0, max_value=2), "derived"),
        (dp.Quantiles("amount", quantiles=[0.5], min_value=0, max_value=2), "derived"),
        (dp.Variance("amount", min_value=0, max_value=2), "derived"),
    ],
)
def test_a_condition_on_what_is_derived_is_refused(metric: Metric, says: str, tmp_path: pathlib.Path) -> None:
    listed = key_file(tmp_path / "list", KEYS)
    with pytest.raises(RequestError, match=says):
        stage_of(listed, Condition(metric="of", low=1.0), of=metric)


def test_a_condition_on_a_sum_that_the_plan_adds_up_of_two_numbers_is_refused(tmp_path: pathlib.Path) -> None:
    listed = key_file(tmp_path / "list", KEYS)
    both = {
        "of": dp.Sum("amount", min_value=0, max_value=2),
        "mean": dp.Mean("amount", min_value=0, max_value=2, weight=50),
    }
    with pytest.raises(RequestError, match="two noisy numbers"):
        stage_of(listed, Condition(metric="of", low=1.0), **both)


def test_what_needs_all_partitions_is_refused(tmp_path: pathlib.Path) -> None:
    partitions = LargeList(keys=key_file(tmp_path / "list", KEYS), conditions=(Condition(metric="views", low=1.0),))
    query = functools.partial(
        dp.Query, privacy_unit="unit", partition_by="p0", partitions=partitions, metrics={"views": dp.Count()},
        bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
    )  # fmt: skip
    query()
    for more in ({"top": dp.Top(k=2, by="views")}, {"partition_by": ["p0", "p1"]}, {"kept": dp.Kept(share=0.1)}):
        with pytest.raises(RequestError):
            query(**more)
    with pytest.raises(RequestError, match="missing"):
        LargeList(keys=partitions.keys, conditions=())


@pytest.mark.parametrize("ends", [{"low": 0.5}, {"high": 40.0}, {"low": -3.0, "high": 40.0}])
def test_a_key_with_rows_passes_from_the_first_step_that_passes_to_the_last(
    ends: dict[str, float], tmp_path: pathlib.Path
) -> None:
    stage = stage_of(key_file(tmp_path / "one", ["a"]), Condition(metric="views", **ends))
    (noise,) = [noise for noise in stage.noises if noise is not None]
    ((first, last),) = passing_noise.passing_steps(stage).values()
    exact = round(ROWS / noise.unit)
    for steps in (first - 1, first, first + 1, last - 1, last, last + 1):
        if abs(steps) < 2**40:  # the other end of a condition that has one
            always = SimpleNamespace(draw=lambda n, steps=steps: np.full(n, steps - exact))
            tables = draw_passing(totals_of(stage, ["a"]), stage, 0, 1, samplers=lambda _, always=always: always)
            assert sum(table.num_rows for table in tables) == (first <= steps <= last)


def test_a_key_without_rows_that_is_published_without_its_draw_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, right = (
        stage_of(key_file(tmp_path / "two", ["a", "b"]), Condition(metric="views", low=-1e5)),
        draw.noisy_numbers,
    )

    def planted(totals: Totals, stage: StagePlan, permits: Permits, given: object = None) -> object:
        steps = {statistic: np.zeros(1, np.int64) for statistic in stage.statistics}
        return steps if given else right(totals, stage, permits)

    monkeypatch.setattr(draw, "noisy_numbers", planted)
    with pytest.raises(GateError, match=NO_DRAW):
        list(draw_passing(totals_of(stage, ["a"]), stage, 0, 1))
