"""A run of several pipelines: the release of each is fixed before the next begins.

In: a request, the frozen stages of a round, a place that keeps draws. Out: the staged files of what is published. Holds: a draw
on which a later pipeline depends is kept as its first complete result, by the ledger where there is one, so that neither a
retry nor a crash draws it again; it is never published by itself. Not covered: what the phases are
(`dp_pipelines.plan_stages.phases`).
"""

import io
import json
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.auto_bounds import joint_bounds, partition_bound
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run.pipelines import quoting_nothing
from dp_pipelines.plan_stages.kept_counts import UNITS
from dp_pipelines.planning import resolve
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.compare import METRIC
from dp_pipelines.query.query import Query, ReleasedPartitions
from dp_pipelines.release import arm_comparisons, bounds_chosen, kept_shares, over_partitions, staging
from dp_pipelines.training.kept_draws import Draws

BOUNDS = "bounds.json"
"""The published file of the bounds that a run has chosen: by stage and metric, the lower and the upper one; and by stage the
bound on partitions, `partition_bound.NAME`, and that on rows in each, `joint_bounds.NAME`."""


KEPT = "kept.json"
"""The published file of what bounds cut off, by stage: see `release.kept_shares`."""


@quoting_nothing("the next pipeline could not use what the previous one released")
def run_phases(
    request: Request,
    plan: Plan,
    number: int,
    folder: pathlib.Path,
    draws: Draws,
    run_pipeline: Callable[[Mapping[str, StagePlan], pathlib.Path, Mapping[str, pa.Table]], dict[str, pathlib.Path]],
) -> dict[str, pathlib.Path]:
    """Run all pipelines of a round.

    Args:
        request: the run.
        plan: its plan.
        number: of the round.
        folder: the private staging folder.
        draws: keeps what later pipelines depend on.
        run_pipeline: runs one pipeline with some stages into a folder; rows of the given partitions are left out of a stage.

    Returns:
        the staged file of each published name; `bounds.json` among them where bounds were chosen, `kept.json` where a stage says
        what its bounds cut off, `<stage>.compare.parquet` where it compares arms.

    Raises:
        DpError: it failed. No text of what went wrong between the pipelines is told, since it may quote a key.
    """
    stages = dict(plan.round(number).stages)
    found: dict[str, pa.Table] = {}
    for names in plan.phases[:-1]:
        missing = [name for name in names if draws.get(name) is None]
        if missing:
            private = folder / f"draws{staging.UNFINISHED}"
            private.mkdir(mode=0o700, exist_ok=True)
            before = {name: _before(plan, name, found) for name in missing}
            files = run_pipeline({name: stages[name] for name in missing}, private, before)
            for name in missing:
                draws.keep(name, files[f"{name}.parquet"].read_bytes())
            shutil.rmtree(private)
        for name in names:
            content = draws.get(name)
            assert content is not None
            found[name] = pa.parquet.read_table(io.BytesIO(content))
    stages, told = _with_bounds(plan, stages, found)
    last, ready = {}, {}
    for name in plan.phases[-1]:
        if name not in plan.selections:
            last[name] = stages[name]
            continue
        union = over_partitions.union([found[selection] for selection in plan.selections[name]])
        if name not in stages:
            ready[name] = union  # with no metric there is no `top` either
        elif union.num_rows == 0:
            ready[name] = over_partitions.nothing(stages[name], union)
        else:
            assert isinstance(stages[name].query.partitions, ReleasedPartitions)
            last[name] = over_partitions.over(stages[name], union)
    beside = {name: stages[name] for name in (*plan.kept.values(), *plan.compared.values())}
    files = run_pipeline({**last, **beside}, folder, {}) if last or beside else {}
    for name, table in ready.items():
        path = folder / f"{name}.parquet"
        staging.write_release(table, path, request.queries[name].partition_columns)
        files[path.name] = path
    published = {f"{name}.parquet": files[f"{name}.parquet"] for name in plan.phases[-1]}
    if told:
        published[BOUNDS] = folder / BOUNDS
        published[BOUNDS].write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    for name, compared in plan.compared.items():
        path = published[f"{compared}.parquet"] = files[f"{compared}.parquet"]
        _compare(request.queries[name], stages[compared], path)
    if plan.kept:
        published[KEPT] = folder / KEPT
        figures = {
            name: _kept(request.queries[name], stages.get(name), stages[kept], files[f"{kept}.parquet"])
            for name, kept in plan.kept.items()
        }
        published[KEPT].write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return published


def _kept(query: Query, stage: StagePlan | None, kept: StagePlan, path: pathlib.Path) -> dict[str, Any]:
    """What the bounds of a stage cut off, out of the one row that was released beside it; the row's file goes."""
    table = pa.parquet.read_table(path)
    path.unlink()
    # Without a stage of this name there are no metrics: other stages select all that is published.
    metrics = query.metrics if stage is None else stage.query.metrics
    noisy = np.array(table.column(UNITS).to_pylist()[0], np.float64)
    return kept_shares.of_stage(noisy, kept, query, metrics)


def _compare(query: Query, stage: StagePlan, path: pathlib.Path) -> None:
    """Put the comparisons of arms in the place of the sums that were released for them."""
    assert query.compare is not None
    released = pa.parquet.read_table(path)
    path.unlink()
    table = arm_comparisons.table_of(released, stage, query)
    staging.write_release(table, path, (query.compare.by, METRIC))


def comparisons_in(plan: Plan, request: Request, files: Mapping[str, pathlib.Path]) -> dict[str, Any]:
    """The comparisons of arms, by stage, as `run_phases` has staged them, for the manifest.

    Args:
        plan, request: the run.
        files: the staged files.
    """
    return {
        name: arm_comparisons.to_json(pa.parquet.read_table(files[f"{compared}.parquet"]), request.queries[name])
        for name, compared in plan.compared.items()
    }


def _with_bounds(
    plan: Plan, stages: dict[str, StagePlan], found: Mapping[str, pa.Table]
) -> tuple[dict[str, StagePlan], dict[str, dict[str, Any]]]:
    """The stages with the bounds that the histograms show, and these bounds by stage; those on contributions come first."""
    told: dict[str, dict[str, Any]] = {}
    for name, shown in plan.auto_contributions.items():
        most, rows = bounds_chosen.contributions(stages[name], stages[shown], found[shown])
        named = {partition_bound.NAME: most, joint_bounds.NAME: rows}
        told[name] = {bound: chosen for bound, chosen in named.items() if chosen is not None}
        stages = {**stages, name: resolve.with_partitions(stages[name], most, rows)}
    for name, shown in plan.auto.items():
        pairs = bounds_chosen.choose(stages[name], stages[shown], found[shown])
        told[name] = {**told.get(name, {}), **pairs}
        stages = {**stages, name: resolve.resolve(stages[name], pairs)}
    return stages, told


def kept_shares_in(files: Mapping[str, pathlib.Path]) -> dict[str, Any]:
    """What bounds cut off, by stage, as `run_phases` has staged it.

    Args:
        files: the staged files.
    """
    return dict(json.loads(files[KEPT].read_text(encoding="utf-8"))) if KEPT in files else {}


def as_run(plan: Plan, number: int, files: Mapping[str, pathlib.Path]) -> dict[str, StagePlan]:
    """The stages of a round as its last pipeline ran them: those of the plan, with the bounds that were chosen.

    Args:
        plan: the plan.
        number: of the round.
        files: what `run_phases` has staged.
    """
    stages = dict(plan.round(number).stages)
    if BOUNDS in files:
        for name, of_stage in json.loads(files[BOUNDS].read_text(encoding="utf-8")).items():
            if name in plan.auto_contributions:
                # A bound that is fixed is not in the file, where a metric may have its name.
                bounds = stages[name].query.bounds
                most = of_stage.pop(partition_bound.NAME) if bounds.auto_partitions else None
                rows = of_stage.pop(joint_bounds.NAME) if bounds.auto_rows else None
                stages[name] = resolve.with_partitions(stages[name], most, rows)
            pairs = {metric: (low, high) for metric, (low, high) in of_stage.items()}
            if pairs:
                stages[name] = resolve.resolve(stages[name], pairs)
    return stages


def _before(plan: Plan, name: str, found: Mapping[str, pa.Table]) -> pa.Table:
    """What the earlier rounds of a selection have released."""
    names = next((names for names in plan.selections.values() if name in names), (name,))
    earlier = [found[selection] for selection in names[: names.index(name)]]
    return over_partitions.union(earlier) if earlier else pa.table({})
