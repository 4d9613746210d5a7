"""From a request and its plan to a graph that predicts errors: rows are read as a run reads them, sums are all that is written.

In: a checked request, a planned stage, configurations, a private folder. Out: the graph, for every engine; the file of sums.
Holds: rows are read once for all configurations. NOT private. Not covered: what the sums mean (`goal`).
"""

import functools
import pathlib
from collections.abc import Sequence

from dp_pipelines.extensions.tune import configuration
from dp_pipelines.extensions.tune.configuration import Configuration
from dp_pipelines.extensions.tune.tally_errors import Tallied, errors_tallied
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run import build, pipelines, shuffled_rows
from dp_pipelines.jobs.runners.engines import Engine
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.noise import entropy
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.steps.flow import Flow


def run_tuning(
    request: Request,
    stage: StagePlan,
    configurations: Sequence[Configuration],
    path: pathlib.Path,
    engine: Engine,
    progress: Progress,
    salt: int | None = None,
) -> None:
    """Run the pipeline that predicts the errors of all configurations of a stage.

    Args:
        request: what to read.
        stage: the stage.
        configurations: all of them.
        path: of the file with the sums, in a private folder.
        engine: what runs it.
        progress: is told each step.
        salt: see `build_tuning`.

    Raises:
        DamagedInputError, RunFailed: it failed.
    """
    pipeline = engine.pipeline(progress, len(request.source.files), [stage.name])
    shards = build.num_shards(request, engine.given, shuffled_rows.of_unbounded(request, stage))
    build_tuning(engine.start(pipeline), request, stage, configurations, str(path), shards, salt)
    pipelines.wait(engine, pipeline, request, [stage.name], progress, path.parent)
    if not path.is_file():
        raise pipelines.RunFailed("the predicted errors were not written; no output remains")


def build_tuning(
    start: Flow,
    request: Request,
    stage: StagePlan,
    configurations: Sequence[Configuration],
    path: str,
    shards: int,
    salt: int | None = None,
) -> None:
    """Make the graph that predicts the errors of all configurations of a stage. What it writes is NOT private.

    Args:
        start: where the engine's sources begin.
        request: what to read.
        stage: the stage, with any of the configurations: its units, partitions and columns count.
        configurations: all of them.
        path: of the file with the sums, in a private folder.
        shards: the number of groups of units.
        salt: evens the load, and orders sums of floats; left out, a fresh one.
    """
    salt = entropy.salt_number() if salt is None else salt
    rows = build.rows_of_stage(start, request, stage, shards, salt)
    tallied = Tallied(
        layout=stage.layout,
        columns=configuration.columns(request.queries[stage.name]),
        configurations=configurations,
        path=path,
        num_shards=shards,
        salt=salt,
    )
    rows.inside(f"Tune {stage.name}", functools.partial(errors_tallied, of=tallied))
