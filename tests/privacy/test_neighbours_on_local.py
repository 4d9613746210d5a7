"""The sensitivity of every statistic on the local runner: neighbouring tables through its graph, in threads and through files.

In: neighbouring data sets. Out: the integers before the noise, compared with what is declared and with those of the
kernels alone. Holds: tables are cut, gathered, spilled and handed from thread to thread at will; no test here looks at noise.
"""

import dataclasses
import io
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.jobs.runners import shuffle, workers
from dp_pipelines.jobs.runners.local import LocalGraph
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.kernels import contributions, sizes
from dp_pipelines.kernels import shard as sharding
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.kernels.statistics import Statistic
from dp_pipelines.steps import aggregate, release_stage
from dp_pipelines.steps.aggregate import ToPartials, ToShards
from dp_pipelines.steps.draw_release import DrawRelease
from dp_pipelines.steps.release_stage import StageSteps
from dp_pipelines.steps.step import Step
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples
from tests.privacy.test_sensitivity import beyond_records, stages


class Noted(DrawRelease):
    """Stands in for the draw: keeps the totals of each place."""

    def __init__(self, stage: Any, places: int, found: list[Totals]) -> None:
        # Without the gate: it draws nothing, and these stages have no records.
        self._stage, self._places, self._found = stage, places, found

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
        self._found.append(self.totals(element))
        yield from ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnLocal:
    """The local runner, set up to do its worst.

    Args:
        threads: that share the work.
        memory: bytes that may wait in memory; one, and all rows go through a file.
        gathered: bytes of tables that are cut together.
        frequent: rows of a unit in a batch from which on they are bounded before the shuffle.
        tables: whether there are any.
    """

    threads: int = 2
    memory: int = 2**30
    gathered: int = 2**20
    frequent: int = 64
    tables: bool = True

    def __call__(
        self, table: pa.Table, layout: Layout, statistics: Sequence[Statistic], way: nb.Way = nb.STRAIGHT
    ) -> list[Totals]:
        """The merged statistics of a table: the graph of a stage up to the draw."""
        found: list[Totals] = []
        stage: Any = SimpleNamespace(layout=layout, statistics=tuple(statistics), coarser=(), levels=())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(contributions, "FREQUENT", self.frequent)
            patch.setattr(sizes, "gathered_bytes", lambda shards: self.gathered)
            steps = StageSteps(
                to_shards=ToShards(layout, way.shards, nb.SALT),
                to_partials=ToPartials(stage, way.places, nb.SALT),
                draw=Noted(stage, way.places, found),
                ungroup=Step(),
            )
            graph = LocalGraph(
                threads=self.threads, memory=self.memory, folder=pathlib.Path("."), progress=Progress(io.StringIO())
            )
            # As readers do: first a table without rows, by which types are known.
            batches = [table.slice(0, 0), *(table.slice(a, b - a) for a, b in nb._batches(table.num_rows, way.cuts))]
            rows = graph.start.known("Rows", (batches[::-1] if way.backwards else batches) * self.tables, pa.Table)
            release_stage.wired(rows, steps, way.places)
            graph.run()
        return found


runners = st.builds(
    OnLocal,
    threads=st.sampled_from([1, 2, 4]),
    memory=st.sampled_from([1, 2000, 2**30]),
    gathered=st.sampled_from([0, 100, 2**20]),
    frequent=st.sampled_from([0, 1, 3, 64]),
)


@settings(max_examples=examples(100, 500))
@given(data=st.data())
def test_one_unit_moves_no_statistic_by_more_than_its_shape_on_the_local_runner(data: st.DataObject) -> None:
    pair, runner = data.draw(nb.neighbours(other=True)), data.draw(runners)
    ways = data.draw(nb.ways(pair.smaller.num_rows)), data.draw(nb.ways(pair.larger.num_rows))
    assert nb.too_sensitive(pair, *ways, computed=runner) == []


@settings(max_examples=examples(100, 500))
@given(data=st.data())
def test_the_local_runner_computes_the_integers_of_the_kernels(data: st.DataObject) -> None:
    pair, runner = data.draw(nb.neighbours(other=True)), data.draw(runners)
    way = data.draw(nb.ways(pair.larger.num_rows))
    found = runner(pair.larger, pair.layout, pair.statistics, way)
    assert len(found) == way.places
    assert nb.exact(found) == nb.exact(nb.totals(pair.larger, pair.layout, pair.statistics))


def test_rows_of_a_unit_meet_in_one_shard_whatever_the_sizes_of_their_tables() -> None:
    layout = Layout(units=("u0",), partitions=("p0",), max_partitions=1, max_rows_per_partition=1)
    units, partitions = np.repeat(np.arange(100), 10), np.tile(np.arange(10), 100)
    mixed = np.random.default_rng(4).permutation(1000)
    rows = pa.table({"u0": units[mixed], "p0": pa.array(partitions[mixed]).cast(pa.string())})
    way = nb.Way(cuts=(100, 300, 600), shards=300)
    found = OnLocal(threads=1)(rows, layout, nb.statistics_of(layout), way)
    assert nb.exact(found) == nb.exact(nb.totals(rows, layout, nb.statistics_of(layout)))


@pytest.mark.parametrize("public", [None, (("a", "b", "c"),)], ids=["private", "public"])
def test_every_place_is_drawn_though_there_is_not_a_single_table(public: Any) -> None:
    layout = Layout(units=("u0",), partitions=("p0",), max_partitions=1, public=public)
    nothing = pa.table({"u0": pa.array([], pa.int64()), "p0": pa.array([], pa.string())})
    found = OnLocal(tables=False)(nothing, layout, nb.statistics_of(layout), nb.Way(places=8))
    assert len(found) == 8
    assert set(nb.exact(found).values()) <= {(0,) * len(nb.statistics_of(layout))}
    assert len(nb.exact(found)) == (3 if public else 0)


@settings(max_examples=examples(60, 300))
@given(data=st.data())
def test_the_records_of_a_stage_bound_what_one_unit_moves_on_the_local_runner(data: st.DataObject) -> None:
    pair, runner = data.draw(nb.neighbours(other=True)), data.draw(runners)
    assert beyond_records(pair, data.draw(stages(pair)), runner) == []


# Planted faults, each found among the same neighbours.

Patch = pytest.MonkeyPatch
SPILLED = OnLocal(threads=1, memory=1, gathered=0)
CUT = nb.Way(cuts=(1, 2, 3, 5, 8), shards=3, places=2)


def _spilled_tables_are_read_twice(patch: Patch) -> None:
    each = shuffle.Shuffle.each
    patch.setattr(shuffle.Shuffle, "each", lambda self, key: (t for t in each(self, key) for _ in range(2)))


def _a_unit_is_in_another_shard_in_each_batch(patch: Patch) -> None:
    slices, calls = sharding.slices, iter(range(10**9))

    def each_otherwise(table: Any, names: Any, salt: int, shards: int, hashes: Any = None, travels: Any = None) -> Any:
        if hashes is not None:
            hashes = hashes ^ hashes.dtype.type((next(calls) % 3) << 62)
        return slices(table, names, salt, shards, hashes, travels)

    patch.setattr(aggregate.shard, "slices", each_otherwise)


def _a_table_is_cut_by_two_threads(patch: Patch) -> None:
    patch.setattr(workers.Crew, "hand_over", lambda self, work: self._handed.append(work) and False)


def _a_spilled_table_is_lost(patch: Patch) -> None:
    each = shuffle.Shuffle.each
    patch.setattr(shuffle.Shuffle, "each", lambda self, key: itertools.islice(each(self, key), 1))


def too_sensitive(pair: nb.Neighbours) -> bool:
    try:
        return bool(nb.too_sensitive(pair, CUT, CUT, computed=SPILLED))
    except AssertionError:  # a partition came out twice
        return True


def other_integers(pair: nb.Neighbours) -> bool:
    sums = nb.exact(nb.totals(pair.larger, pair.layout, pair.statistics))
    return nb.exact(SPILLED(pair.larger, pair.layout, pair.statistics, CUT)) != sums


FAULTS = [
    (_spilled_tables_are_read_twice, too_sensitive),
    (_a_unit_is_in_another_shard_in_each_batch, too_sensitive),
    # Bounded again in their shard, the rows of a unit that come twice weigh no more; but they are other ones.
    (_a_table_is_cut_by_two_threads, other_integers),
    (_a_spilled_table_is_lost, other_integers),
]
SEARCH = settings(max_examples=400, phases=[hypothesis.Phase.generate], database=None, derandomize=True)


@pytest.mark.parametrize(("fault", "law"), FAULTS, ids=lambda part: part.__name__.strip("_"))
def test_a_fault_of_the_runner_is_found(
    fault: Callable[[Patch], None], law: Callable[[nb.Neighbours], bool], monkeypatch: Patch
) -> None:
    fault(monkeypatch)
    found = hypothesis.find(nb.neighbours(other=True), law, settings=SEARCH)
    monkeypatch.undo()
    assert not law(found), "without the fault the same pair keeps the law"
