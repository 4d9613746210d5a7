"""The draw over a large list: partitions with rows are drawn as always, of those without rows only the ones that pass.

In: exact totals of the partitions that have rows, a frozen stage over a `LargeList`. Out: the released partitions that pass,
bucket by bucket. Holds: their joint law is that of drawing the noise of every listed partition and leaving out what does not pass
(docs/proofs/large_lists.md); an unlisted partition that the filter has let through is dropped by its whole key; nothing
distinguishes rows of both kinds. Not covered: the order, which is that of the keys once all are together (`staging`).
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import accumulate
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.kernels.lattice import Flags, Integers
from dp_pipelines.mechanisms.permits import Draw, DrawWords, Permits
from dp_pipelines.noise.laws import Law
from dp_pipelines.noise.poisson_samples import PoissonSampler
from dp_pipelines.planning.noise_levels import passing_noise
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import draw, gate
from dp_pipelines.release.staging import sorted_by_key

Compared = Mapping[int, tuple[Law, passing_noise.Steps]]
"""By the place of a statistic its law, and the steps that pass."""


def draw_passing(
    totals: Totals,
    stage: StagePlan,
    place: int,
    places: int,
    permits: Permits | None = None,
    *,
    samplers: Callable[[Law], Draw] | None = None,
    words: DrawWords | None = None,
) -> Iterator[pa.Table]:
    """Add noise, once, and give what passes.

    Args:
        totals: of the partitions of some buckets that have rows, unlisted ones among them.
        stage: the frozen stage.
        place, places: which buckets these are (`KeyFile.buckets_of`).
        permits, samplers, words: as for `draw.draw_release`.

    Yields:
        one table for each bucket, sorted by key.
    """
    listed = stage.layout.public
    assert isinstance(listed, KeyFile)
    permits = gate.open_gate(stage, samplers=samplers, words=words) if permits is None else permits
    permits = permits.over(len(totals.partitions[0]))
    compared, chance = passing_noise.compared_noises(stage), passing_noise.chance(stage)
    laws = {stage.statistics[at].name: law for at, (law, _) in compared.items()}
    steps = draw.noisy_numbers(totals, stage, permits)
    passes = np.ones(len(totals.partitions[0]), np.bool_)
    for at, (_, (first, last)) in compared.items():
        noisy = steps[stage.statistics[at]]
        passes &= (noisy >= first) & (noisy <= last)
    hashes = listed.hashes(totals.partitions)
    numbers = listed.numbers(hashes)
    order = np.argsort(numbers, kind="stable")
    buckets = listed.buckets_of(place, places)
    ends = np.searchsorted(numbers[order], np.arange(buckets.start, buckets.stop + 1))
    for number, begin, end in zip(buckets, ends[:-1], ends[1:], strict=True):
        bucket, rows = listed.bucket(number), order[begin:end]
        found = bucket.find([gather.take(column, rows) for column in totals.partitions], hashes[rows])
        inside = found < len(bucket)
        with_rows = np.zeros(len(bucket), np.bool_)
        with_rows[found[inside]] = True
        selected = inside & passes[rows]
        keys = [gather.take(column, found[selected]) for column in bucket.columns]
        tables = draw.released_tables(totals, stage, steps, rows[selected], permits, keys, passes)
        permits.check_drawn(rows[selected])
        passing = _passing(with_rows, chance, permits.words_of_bucket(number, laws))
        tables += _of_noise_alone(stage, bucket.columns, passing, compared, permits)
        yield sorted_by_key(pa.concat_tables(tables), stage.query.partition_columns)


def _passing(with_rows: Flags, chance: Fraction, words: DrawWords) -> Integers:
    """Return the places without rows whose noise passes: each with this chance, independently of all others."""
    without = np.flatnonzero(~with_rows)
    return without[PoissonSampler(chance, words).draw(len(without))] if chance else without[:0]


def _of_noise_alone(
    stage: StagePlan, listed: tuple[pa.Array, ...], places: Integers, compared: Compared, permits: Permits
) -> list[pa.Table]:
    """Draw partitions without rows whose noise passes: compared noise is drawn given that it passes, all other as always."""
    keys = tuple(gather.take(column, places) for column in listed)
    totals = accumulate.nothing_summed(keys, stage.statistics)
    permits = permits.for_bucket(len(places))
    steps = draw.noisy_numbers(totals, stage, permits, {stage.statistics[at]: given for at, given in compared.items()})
    every = np.arange(len(places))
    tables = draw.released_tables(totals, stage, steps, every, permits, keys, np.ones(len(places), np.bool_))
    permits.check_drawn(every)
    return tables
