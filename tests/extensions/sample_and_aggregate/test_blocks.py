"""Sample and aggregate: one unit is in one block, one result changes, nothing else leaves a child, what the plan pays for."""

import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import Blocks, Count, Plan
from dp_pipelines.audit.audit import audit
from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.sample_and_aggregate.blocks import check_function, ordered, run
from dp_pipelines.kernels import accumulate, contributions, shard
from dp_pipelines.kernels.cells import Around
from dp_pipelines.kernels.grid_cells import Points
from dp_pipelines.mechanisms.rank_choice import spread
from dp_pipelines.mechanisms.smooth_median import smoothing
from dp_pipelines.noise import smooth_sensitivity as noise_of_medians
from dp_pipelines.query.query import ContributionBounds, PublicPartitions, Query
from dp_pipelines.release.draw import draw_release
from dp_pipelines.transforms import PrivateAggregate, PublishRelease, SampleAndAggregate
from tests.helpers import block_functions as functions
from tests.helpers.source import ROOT


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let child processes import `tests.helpers`."""
    monkeypatch.syspath_prepend(str(ROOT))


BLOCKS = Blocks(privacy_unit="customer", blocks=5, low=-1.0, high=3.0)


DIGESTS: dict[str, str] = {
    "mean": "d23d61281b6e848e3f77995f49c12005cbca45bd52dd94f98038e3012b419818",
    "median": "27d2917a8aa31bf5177573b885c317a473b745dabe02a2774b5c69afa7315d83",
}
"""Of plans of format 4 with these aggregates: equal with and without the method that medians got later."""


def events(units: list[int], x: list[float | None], kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"customer": pa.array(units, kind or pa.int64()), "x": pa.array(x, pa.float64())})


def by_block(tables: list[pa.Table], salt: int = 7, blocks: Blocks = BLOCKS) -> dict[int, pa.Table]:
    """What each block's function sees."""
    found: dict[int, list[pa.Table]] = {}
    for table in tables:
        for block, part in blocks.cut(table, ["x"], salt):
            found.setdefault(block, []).append(part)
    return {block: ordered(parts, ["x"]) for block, parts in found.items()}


# Blocks.

rows = st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0.0, -0.0, 1.5, 2.0, None, float("nan")])), max_size=40)


@settings(max_examples=100)
@given(others=rows, mine=rows, cuts=st.lists(st.integers(0, 40), max_size=3), data=st.data())
def test_the_rows_of_one_unit_change_what_one_block_sees_and_nothing_else(
    others: list[tuple[int, float | None]],
    mine: list[tuple[int, float | None]],
    cuts: list[int],
    data: st.DataObject,
) -> None:
    smaller = [*others]
    larger = [*others, *((99, x) for _, x in mine)]
    shuffled = data.draw(st.permutations(larger))
    ends = sorted({0, *(min(cut, len(shuffled)) for cut in cuts), len(shuffled)})
    pieces = [shuffled[begin:end] for begin, end in itertools.pairwise(ends)] or [[]]
    without = by_block([events([u for u, _ in smaller], [x for _, x in smaller])])
    narrow = [pa.int32(), pa.int64(), pa.int16()]
    with_unit = by_block([events([u for u, _ in p], [x for _, x in p], narrow[i % 3]) for i, p in enumerate(pieces)])
    empty = events([], []).select(["x"])
    changed = [
        block
        for block in range(5)
        if repr(without.get(block, empty).to_pylist()) != repr(with_unit.get(block, empty).to_pylist())
    ]
    # Types, too: a function might look at them.
    assert all(table.schema == empty.schema for table in (*without.values(), *with_unit.values()))
    assert len(changed) <= 1


def test_rows_in_the_order_in_which_they_came_would_be_found() -> None:
    table = events([1] * 5 + [2] * 5, [float(i) for i in (3, 1, 2, 5, 4, 9, 7, 8, 6, 0)])
    backwards = table.take(pa.array(range(9, -1, -1)))
    raw = [dict(BLOCKS.cut(t, ["x"], 7)) for t in (table, backwards)]
    assert any(raw[0][b].column("c0").to_pylist() != raw[1][b].column("c0").to_pylist() for b in raw[0])
    assert by_block([table]) == by_block([backwards])


def test_units_are_spread_evenly_and_null_units_are_nobody() -> None:
    found = by_block([events([*range(10_000), None], [1.0] * 10_000 + [5.0])])
    sizes = [table.num_rows for table in found.values()]
    assert sum(sizes) == 10_000
    # Each size is binomial(10000, 1/5), with a standard deviation of 40: a deviation of 400 is no chance.
    assert max(abs(size - 2000) for size in sizes) < 400


def test_units_of_two_types_are_refused_since_one_unit_would_be_in_two_blocks() -> None:
    whole, real = events([7], [1.0]), events([7], [1.0], pa.float64())
    with pytest.raises(RequestError, match="disagree on the type"):
        by_block([whole, real])


def test_a_missing_column_and_one_of_lists_are_refused() -> None:
    with pytest.raises(RequestError, match="column 'x'"):
        BLOCKS.cut(pa.table({"customer": [1]}), ["x"], 7)
    with pytest.raises(RequestError, match="column 'x'"):
        BLOCKS.cut(pa.table({"customer": [1], "x": [[1.0]]}), ["x"], 7)


# The child.


def ran(function: Callable[..., object], seconds: float = 30.0, memory_mb: int = 4096) -> float | None:
    table = pa.table({"x": [1.0, 2.0, 6.0]})
    return run(check_function(function), table, memory_mb=memory_mb, seconds=seconds)


def test_a_function_sees_the_rows_of_its_block() -> None:
    assert ran(functions.mean) == 3.0
    assert ran(functions.whole) == 1.0
    assert (
        run(check_function(functions.mean), pa.table({"x": pa.array([], pa.float64())}), memory_mb=4096, seconds=9)
        is None
    )


@pytest.mark.parametrize(
    "function",
    [
        functions.raising,
        functions.leaving,
        functions.killed,
        functions.hungry,
        functions.text,
        functions.nothing,
        functions.huge,
    ],
)
def test_a_function_that_fails_gives_nothing_and_says_nothing(
    function: Callable[..., object], capfd: pytest.CaptureFixture[str]
) -> None:
    assert ran(function) is None
    assert capfd.readouterr() == ("", "")


def test_what_is_no_finite_number_counts_as_the_default_and_what_is_far_is_clamped() -> None:
    assert [BLOCKS.result(ran(f)) for f in (functions.not_a_number, functions.endless, functions.far)] == [
        1.0,
        1.0,
        -1.0,
    ]  # type: ignore[arg-type]
    assert BLOCKS.result(None) == 1.0
    assert BLOCKS.result(1e300) == 3.0


def test_nothing_that_a_function_says_leaves_its_process() -> None:
    code = (
        "from tests.helpers import block_functions as f; import pyarrow as pa\n"
        "from dp_pipelines.extensions.sample_and_aggregate.blocks import check_function, run\n"
        "print(run(check_function(f.loud), pa.table({'x': [1.0]}), memory_mb=4096, seconds=30))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("0.25\n", "")
    # A twin: in this process it would be heard.
    heard = subprocess.run(
        [sys.executable, "-c", code.split("print(")[0] + "\nf.loud(pa.table({'x': [1.0]}))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "SECRET" in heard.stdout
    assert "SECRET" in heard.stderr


def test_what_a_function_writes_into_its_pipe_is_read_as_one_number_at_most() -> None:
    assert ran(functions.rows_without_end) is None


def children(name: str) -> int:
    """How many processes of a name this user runs."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return found.count(name)


@pytest.mark.slow
@pytest.mark.parametrize("function", [functions.sleeping, functions.busy])
def test_a_function_that_never_ends_is_ended_with_all_that_it_started(function: Callable[..., object]) -> None:
    before, begun = children(" ".join(functions.ASLEEP)), time.monotonic()
    assert ran(function, seconds=3.0) is None
    assert time.monotonic() - begun < 300  # by itself it would take 1000
    assert children(" ".join(functions.ASLEEP)) == before


def test_no_descriptor_stays_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for function in (functions.mean, functions.leaving, functions.raising):
        ran(function)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_cannot_be_loaded_in_another_process_is_refused() -> None:
    for wrong in (None, 3, lambda rows: 0.0):
        with pytest.raises(RequestError, match="function"):
            check_function(wrong)


def test_a_function_that_a_child_cannot_import_is_refused_before_any_block_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(ROOT)])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(RequestError, match="cannot be imported by another process"):
        check_function(functions.mean)


# The plan and the release.


@pytest.mark.parametrize("aggregate", ["mean", "median"])
@settings(max_examples=60)
@given(data=st.data())
def test_another_result_of_one_block_moves_the_statistic_within_its_record(data: st.DataObject, aggregate: str) -> None:
    blocks = Blocks(privacy_unit="customer", blocks=5, low=-1.0, high=3.0, aggregate=aggregate)  # type: ignore[arg-type]
    stage = Plan(epsilon=1.0, stages={"s": blocks.query})["s"]
    results = st.floats(-1e6, 1e6) | st.none() | st.just(float("nan"))
    before = data.draw(st.lists(results, min_size=5, max_size=5))
    after = [*before[:4], data.draw(results)]

    def totals(values: list[float | None]) -> accumulate.Totals:
        wire = shard.joined([stage.layout.wire(blocks.row(i, value)) for i, value in enumerate(values)])
        wire = contributions.reduce(wire, stage.layout, 3)
        partial = accumulate.by_public_index(accumulate.partials(wire, stage.layout, stage.statistics, 3), stage.layout)
        return accumulate.merge_public([partial], stage.layout, stage.statistics, 0, 1)

    noise = stage.noises[0]
    assert noise is not None
    if aggregate == "mean":
        one, other = (totals(v).coarse(0, shift=noise.fine_bits, step=noise.step)[0] for v in (before, after))
        (record,) = stage.mechanisms
        assert record.linf is not None
        assert abs(int(one) - int(other)) <= record.linf
        return
    around = stage.statistics[0].cells
    assert isinstance(around, Around)
    one, other = (around.scores(totals(v).coarse_lists(0, np.arange(1), shift=0, step=1)) for v in (before, after))
    moved = other - one
    assert moved.max() - moved.min() <= spread(around, 2)


SMOOTH = Blocks(privacy_unit="customer", blocks=5, low=-1.0, high=3.0, aggregate="median", method="smooth_sensitivity")


def smooth(**changes: object) -> Blocks:
    return dataclasses.replace(SMOOTH, **changes)  # type: ignore[arg-type]


@settings(max_examples=200)
@given(
    counts=st.dictionaries(st.integers(0, 60_000), st.integers(1, 4), max_size=6),
    more=st.integers(0, 60_000),
)
def test_one_result_more_or_less_or_another_changes_one_of_the_values_of_a_median(
    counts: dict[int, int], more: int
) -> None:
    """Also where there are more or fewer results than blocks, which other rows than ours would give."""
    points = Points(low=0.0, high=1.0, numbers=5)

    def values(of: dict[int, int]) -> Counter[int]:
        held = np.zeros(60_001, np.int64)
        held[list(of)] = list(of.values())
        return Counter(points.middle(held).tolist())

    one, two = values(counts), values({**counts, more: counts.get(more, 0) + 1})
    assert one.total() == two.total() == 5
    assert (one - two).total() <= 1


def test_a_bound_of_one_row_for_a_block_would_be_found_too_small() -> None:
    stage = Plan(epsilon=1.0, stages={"s": BLOCKS.query})["s"]
    statistic = stage.statistics[0]
    assert statistic.lattice is not None
    worst = statistic.lattice.highest - statistic.lattice.lowest  # type: ignore[union-attr]
    noise, record = stage.noises[0], stage.mechanisms[0]
    assert noise is not None
    assert record.linf is not None
    assert record.linf / 2 < worst / noise.step <= record.linf


def test_the_noise_of_a_mean_is_that_of_the_range_over_the_blocks() -> None:
    blocks = Blocks(privacy_unit="customer", blocks=100, low=0.0, high=10.0)
    plan = Plan(epsilon=2.0, stages={"s": blocks.query})
    shown = plan.to_json()["stages"][0]["metrics"]["value"]
    assert shown["stddev"] == pytest.approx(10 / 100 / 2.0 * 2**0.5, rel=2e-3)
    assert Plan.restore(plan.frozen(), epsilon=2.0, stages={"s": blocks.query}).digest == plan.digest


def test_a_median_with_smooth_sensitivity_has_one_record_with_half_of_delta_and_the_plan_spends_its_epsilon() -> None:
    for runs, split in ((1, "constant"), (3, "constant"), (4, "linear")):
        plan = Plan(epsilon=1.0, delta=1e-6, stages={"s": SMOOTH.query}, runs=runs, split=split)  # type: ignore[arg-type]
        (record,) = plan.mechanisms
        assert (record.kind, record.l0) == ("approximate_dp", 1)
        assert record.delta == pytest.approx(0.5e-6 / runs, rel=1e-9)
        assert 0.999 < plan.accounted["epsilon"] <= 1.0
        shown = plan.to_json()["stages"][0]["metrics"]["value"]
        assert (shown["noise"], shown["stddev"]) == ("smooth_sensitivity", None)
        assert [statistic["stddev"] for statistic in shown["statistics"].values()] == [None]
        fields = {"epsilon": 1.0, "delta": 1e-6, "stages": {"s": SMOOTH.query}, "runs": runs, "split": split}
        assert Plan.restore(plan.frozen(), **fields).digest == plan.digest  # type: ignore[arg-type]
        for number in {1, runs}:
            stage = plan.round(number).stages["s"]
            used = smoothing(stage.calibration(0))
            (own,) = stage.mechanisms
            assert own.epsilon is not None
            assert 0 <= own.epsilon - float(2 * used.alpha) < 1e-12
            assert used == noise_of_medians.smoothing(2 * used.alpha, own.delta)  # type: ignore[arg-type]


def test_a_median_with_smooth_sensitivity_shares_its_budget_with_other_stages() -> None:
    stages = {"s": SMOOTH.query, "mean": BLOCKS.query, "ranks": smooth(method="ranks").query}
    plan = Plan(epsilon=1.0, delta=1e-6, stages=stages)
    assert 0.999 < plan.accounted["epsilon"] <= 1.0
    assert sum(record.delta or 0.0 for record in plan.mechanisms) < 1e-6
    assert len(plan.mechanisms) == 3


def test_plans_of_medians_by_ranks_keep_their_digests() -> None:
    """Stored plans and run ids depend on them."""
    for aggregate, digest in DIGESTS.items():
        blocks = smooth(aggregate=aggregate, method="ranks")
        assert Plan(epsilon=1.0, delta=1e-6, stages={"s": blocks.query}).digest == digest


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"method": "smooth"}, "method"),
        ({"method": None}, "method"),
        ({"aggregate": "mean"}, "method"),
        ({"low": 1.0, "high": 1.0 + 1e-12}, "low"),
        ({"low": 0.0, "high": 5e-324}, "low"),
    ],
)
def test_what_is_no_median_with_smooth_sensitivity_is_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        smooth(**{"default": None, **changes})
    assert refused.value.field == field
    assert refused.value.hint or field == "method"


def test_a_median_with_smooth_sensitivity_is_refused_without_delta_and_where_a_unit_has_two_values() -> None:
    with pytest.raises(RequestError) as refused:
        Plan(epsilon=1.0, stages={"s": SMOOTH.query})
    assert refused.value.field == "delta"
    assert "method: ranks" in str(refused.value)
    for bounds in ({"max_contributions_per_partition": 2}, {"max_partitions_contributed": 2}):
        with pytest.raises(RequestError) as refused:
            fields = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1, **bounds}
            dataclasses.replace(SMOOTH.query, bounds=ContributionBounds(**fields))
        assert "smooth sensitivity" in str(refused.value)


@pytest.mark.parametrize("count", [1, 5, 6])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_without_noise_what_is_published_is_the_median_that_numpy_gives(data: st.DataObject, count: int) -> None:
    """Of results on the lattice of 60,000 steps, over the code that counts and releases them."""
    blocks = smooth(blocks=max(count, 2))
    stage = Plan(epsilon=1.0, delta=1e-6, stages={"s": blocks.query})["s"]
    places = data.draw(st.lists(st.integers(0, 60_000), min_size=blocks.blocks, max_size=blocks.blocks))
    results = [-1.0 + 4.0 * place / 60_000 for place in places]
    wire = shard.joined([stage.layout.wire(blocks.row(i, value)) for i, value in enumerate(results)])
    wire = contributions.reduce(wire, stage.layout, 3)
    partial = accumulate.by_public_index(accumulate.partials(wire, stage.layout, stage.statistics, 3), stage.layout)
    totals = accumulate.merge_public([partial], stage.layout, stage.statistics, 0, 1)
    table = draw_release(totals, stage, words=lambda n: np.full(n, 2**64 - 1, np.uint64))
    assert table["value"][0].as_py() == pytest.approx(np.median(results), abs=1e-9)
    assert table["value_stddev"].null_count == 1


@settings(max_examples=25, deadline=None)
@given(results=st.lists(st.floats() | st.none(), max_size=9))
def test_whatever_the_results_are_one_number_within_the_range_is_published(results: list[float | None]) -> None:
    """Also of more or fewer rows than blocks, as other rows than ours would give."""
    stage = Plan(epsilon=0.01, delta=1e-6, stages={"s": SMOOTH.query})["s"]
    rows = [SMOOTH.types(), *(SMOOTH.row(i, value) for i, value in enumerate(results))]
    wire = contributions.reduce(shard.joined([stage.layout.wire(row) for row in rows]), stage.layout, 3)
    partial = accumulate.by_public_index(accumulate.partials(wire, stage.layout, stage.statistics, 3), stage.layout)
    totals = accumulate.merge_public([partial], stage.layout, stage.statistics, 0, 1)
    (value,) = draw_release(totals, stage)["value"].to_pylist()
    assert -1.0 <= value <= 3.0


def test_an_audit_replays_a_median_with_smooth_sensitivity_and_finds_noise_that_is_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = Plan(epsilon=1.0, delta=1e-6, stages={"s": smooth(blocks=51).query})
    found = audit(plan, replays=10_000, false_alarms=1e-9)
    assert found.agrees
    assert any("smooth_median" in finding.what for finding in found.lines[0].findings)
    exact = noise_of_medians.rounded_laplace
    monkeypatch.setattr(
        noise_of_medians, "rounded_laplace", lambda centre, scale, words: exact(centre, scale / 2, words=words)
    )
    assert not audit(plan, replays=10_000, false_alarms=1e-9).agrees


def released(blocks: Blocks, function: Callable[..., float], tables: list[pa.Table], epsilon: float = 30.0) -> pa.Table:
    stage = Plan(epsilon=epsilon, delta=1e-6 if blocks.method != "ranks" else 0.0, stages={"s": blocks.query})["s"]
    found: list[pa.Table] = []
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        source = pipeline | beam.Create(tables, reshuffle=False).with_output_types(pa.Table)
        out = source | SampleAndAggregate(stage, blocks, function, columns=["x"], salt=5)
        out | beam.ParDo(_Collect())
    found, _Collect.found[:] = list(_Collect.found), []
    assert len(found) == 1
    return found[0]


class _Collect(beam.DoFn):
    """Keeps what a pipeline in this process gives."""

    found: list[pa.Table] = []  # noqa: RUF012

    def process(self, element: pa.Table) -> None:
        type(self).found.append(element)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aggregate", "method"), [("mean", "ranks"), ("median", "ranks"), ("median", "smooth_sensitivity")]
)
def test_a_pipeline_releases_about_the_mean_or_median_of_the_results(aggregate: str, method: str) -> None:
    made = np.random.default_rng(1)
    fields = {"privacy_unit": "customer", "blocks": 12, "low": 0.0, "high": 10.0, "aggregate": aggregate}
    blocks = Blocks(**fields, method=method)  # type: ignore[arg-type]
    units, x = np.arange(3000), made.normal(4, 1, 3000)
    table = released(blocks, functions.mean, [events(units[:1000], x[:1000]), events(units[1000:], x[1000:])])
    assert table.column_names == ["blocks", "value", "value_stddev"]
    assert table["blocks"].to_pylist() == [12]
    # Noise of the mean: 10 / 12 / 30 * 1.4 = 0.04; of the median, a choice within some blocks of the middle,
    # or Laplace noise of the smooth sensitivity over 15: about 0.25 / 15 at most.
    assert abs(table["value"][0].as_py() - 4) < 1.0
    assert (table["value_stddev"].null_count == 1) == (aggregate == "median")


def test_by_ranks_results_that_all_lie_between_two_steps_give_the_nearest_one() -> None:
    """Counted where they are, all steps would be as far from their median as any other, and one of them chosen blindly."""
    blocks = smooth(method="ranks", blocks=131)
    stage = Plan(epsilon=1.0, stages={"s": blocks.query})["s"]
    results = np.linspace(0.5012, 0.5013, 131).tolist()
    wire = shard.joined([stage.layout.wire(blocks.row(i, value)) for i, value in enumerate(results)])
    partial = accumulate.partials(contributions.reduce(wire, stage.layout, 3), stage.layout, stage.statistics, 3)
    partial = accumulate.by_public_index(partial, stage.layout)
    totals = accumulate.merge_public([partial], stage.layout, stage.statistics, 0, 1)
    # Each of the other 999 steps is behind by 131, at a spread of 4: one is chosen with at most 999 exp(-131 / 4) = 6e-12.
    assert draw_release(totals, stage)["value"][0].as_py() == pytest.approx(0.5012, abs=4 / 999 / 2)
    ends = [blocks.result(value) for value in (-7.0, -1.0, 3.0, 1e300, None)]
    assert ends[:4] == [-1.0, -1.0, 3.0, 3.0]


def test_a_published_median_with_smooth_sensitivity_says_nothing_of_its_noise(tmp_path: pathlib.Path) -> None:
    """Not in the table, the manifest or the report, and with rows that make every block fail as with none."""
    for name, table in (("failed", events(list(range(20)), [1.0] * 20)), ("none", events([], []))):
        plan = Plan(epsilon=1.0, delta=1e-6, stages={"s": smooth(blocks=3).query})
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            source = pipeline | beam.Create([table], reshuffle=False).with_output_types(pa.Table)
            (
                source
                | SampleAndAggregate(plan["s"], smooth(blocks=3), functions.raising, columns=["x"], salt=5)
                | PublishRelease(str(tmp_path / name))
            )
        (row,) = pq.read_table(tmp_path / name / "s.parquet").to_pylist()
        assert row["value_stddev"] is None
        assert -1.0 <= row["value"] <= 3.0
        content = json.loads((tmp_path / name / "manifest.json").read_text())
        (record,) = content["mechanisms"]
        assert (record["kind"], record["l0"]) == ("approximate_dp", 1)
        assert record["delta"] == plan.mechanisms[0].delta
        assert set(record) == {"stage", "name", "kind", "epsilon", "delta", "l0"}
        shown = content["stages"][0]["metrics"]["value"]
        assert (shown["noise"], shown["stddev"]) == ("smooth_sensitivity", None)
        page = (tmp_path / name / "report.html").read_text()
        assert "Laplace noise by smooth sensitivity" in page
        assert "random choice" not in page
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("failed", "none")]
    for content in manifests:
        del content["files"]  # digests of the tables
    assert manifests[0].keys() == manifests[1].keys()
    assert [content["mechanisms"] for content in manifests] == [[record.to_json() for record in plan.mechanisms]] * 2


def test_a_pipeline_without_rows_and_one_whose_blocks_all_fail_release_about_the_default() -> None:
    blocks = Blocks(privacy_unit="customer", blocks=4, low=0.0, high=1.0, default=0.25)
    empty = released(blocks, functions.mean, [events([], [])])
    failed = released(blocks, functions.raising, [events(list(range(100)), [1.0] * 100)])
    for table in (empty, failed):
        # Laplace noise of 1 / 4 / 30 = 0.0083: beyond 0.3 with a probability of 1e-15.
        assert abs(table["value"][0].as_py() - 0.25) < 0.3


def test_a_stage_of_other_blocks_is_refused() -> None:
    other = Blocks(privacy_unit="customer", blocks=6, low=-1.0, high=3.0)
    counts = Query(
        privacy_unit="customer",
        partition_by="x",
        partitions=PublicPartitions(keys=[[1]]),
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
        metrics={"rows": Count()},
    )
    plan = Plan(epsilon=1.0, stages={"other": other.query, "counts": counts})
    for stage in (plan["other"], plan["counts"], plan, None):
        with pytest.raises(RequestError, match="stage"):
            SampleAndAggregate(stage, BLOCKS, functions.mean, columns=["x"])  # type: ignore[arg-type]
    stage = Plan(epsilon=1.0, stages={"s": BLOCKS.query})["s"]
    with pytest.raises(RequestError, match="function"):
        SampleAndAggregate(stage, BLOCKS, lambda rows: 0.0, columns=["x"])
    for wrong in ({"seconds": 0}, {"memory_mb": 1}, {"columns": []}):
        with pytest.raises(RequestError):
            SampleAndAggregate(stage, BLOCKS, functions.mean, **{"columns": ["x"], **wrong})  # type: ignore[arg-type]
    assert PrivateAggregate(stage)


@pytest.mark.parametrize(
    "changes",
    [
        {"blocks": 1},
        {"blocks": 2**15},
        {"low": 3.0},
        {"low": float("nan")},
        {"high": float("inf")},
        {"default": 9.0},
        {"aggregate": "mode"},
        {"privacy_unit": "blocks"},
        {"name": "blocks"},
    ],
)
def test_what_are_no_blocks_is_refused(changes: dict[str, object]) -> None:
    fields = {"privacy_unit": "customer", "blocks": 5, "low": -1.0, "high": 3.0, **changes}
    with pytest.raises(RequestError):
        Blocks(**fields).query  # type: ignore[arg-type]  # noqa: B018


def test_where_units_lie_depends_on_the_salt_alone() -> None:
    table = events(list(range(100)), [float(i) for i in range(100)])
    again, other = (by_block([table], salt) for salt in (7, 8))
    assert again == by_block([table])
    assert Counter(t.num_rows for t in other.values()) is not None
    assert other != again
