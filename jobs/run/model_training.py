"""The train stages of a run: examples by Beam, then everything else in this process, up to the staged files of the models.

In: a request, its plan, a staging folder, a place that keeps draws. Out: for each train stage `NAME/model.safetensors`,
`NAME/model.json`, `NAME/evaluation.json` and, of a linear model, `NAME/weights.csv`. Holds: examples lie in a private folder of
the attempt, and are gone at its end; no text of a failure leaves this module unless it is public. Not covered: what is released
and how (`dp_pipelines.training`).
"""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run.pipelines import RunFailed, quoting_nothing
from dp_pipelines.jobs.spec.source_models import LookupModel
from dp_pipelines.jobs.spec.train_models import ModelStage
from dp_pipelines.kernels.columns.csv_format import DEFAULT
from dp_pipelines.kernels.unit_facts import TWIN
from dp_pipelines.noise import entropy
from dp_pipelines.planning.plan import Plan
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.release.manifest import MADE_UP
from dp_pipelines.release.staging import UNFINISHED
from dp_pipelines.training.description import NOT_COVERED, Preparation, Statement
from dp_pipelines.training.kept_draws import Draws


@quoting_nothing("the training of a model failed")
def run_training(
    request: Request,
    plan: Plan,
    number: int,
    folder: pathlib.Path,
    draws: Draws,
    write_examples: Callable[[str, pathlib.Path, int], None],
    unit: str,
    tell: Callable[[str], None],
    *,
    made_up: bool = False,
) -> dict[str, pathlib.Path]:
    """Train all models of a round.

    Args:
        request: the run.
        plan: its plan.
        number: of the round.
        folder: the private staging folder.
        draws: keeps what later steps depend on.
        write_examples: runs the pipeline that writes the examples of a stage into a folder, with a salt for their choice.
        unit: the privacy unit in words.
        tell: is told each step, in public words.
        made_up: whether the rows are made up, which the model then says of itself.

    Returns:
        the staged file of each published name.

    Raises:
        DpError: it failed. No text of what went wrong is told, since it may quote a row.
    """
    files: dict[str, pathlib.Path] = {}
    if not plan.trained:
        return files
    from dp_pipelines.training import fit
    from dp_pipelines.training.examples import bounded_examples
    from dp_pipelines.training.features import input_types

    for name, task in plan.trained.items():
        private = folder / f"{name}.examples{UNFINISHED}"
        examples, numbers = private / "rows", private / "numbers"
        for path in (private, examples, numbers):
            path.mkdir(mode=0o700)
        try:
            salt = _salt(draws, name)
            write_examples(name, examples, salt)
            one = fit.Fit(
                name=name,
                task=task,
                stages=plan.round(number).stages,
                tables=lambda examples=examples: bounded_examples.tables(examples),  # type: ignore[misc]
                folder=numbers,
                draws=draws,
                key=plan.digest.encode(),
                salt=salt,
                tell=tell,
                whole=input_types.whole_columns(request.tasks[name].unit.expressions.output_schema),
                public=request.tasks[name].public,
            )
            fitted = one.run(_statement(plan, unit, made_up), _preparation(request, name))
        except RequestError as error:  # all that is public was refused before; it was charged since
            raise RunFailed(f"the training of {name!r} failed; nothing was published: {error}") from None
        finally:
            shutil.rmtree(private, ignore_errors=True)
        target = folder / name
        target.mkdir(mode=0o700)
        written = fit.write(fitted, target)
        files |= {f"{name}/{file}": path for file, path in written.items()}
    return files


def chosen_of(task: TrainModel, folder: pathlib.Path) -> dict[str, Any]:
    """What a manifest says of the candidate that was chosen; nothing where the task has none.

    Args:
        task: what was learnt.
        folder: with the staged files of the model.
    """
    if task.steps.candidates is None:
        return {}
    from dp_pipelines.training import fit

    return {"chosen": json.loads((folder / fit.EVALUATION).read_text(encoding="utf-8"))["chosen"]}


def _salt(draws: Draws, name: str) -> int:
    """What settles which examples of a unit stay: the same for all attempts of a run, which go on from each other's draws."""
    if draws.get(f"{name}.salt") is None:
        draws.keep(f"{name}.salt", entropy.salt(8))
    kept = draws.get(f"{name}.salt")
    assert kept is not None
    return int.from_bytes(kept, "little")


def _statement(plan: Plan, unit: str, made_up: bool) -> Statement:
    said = {"not_covered": (MADE_UP, *NOT_COVERED)} if made_up else {}
    spent = plan.accounted
    return Statement(unit=unit, plan=plan.digest, epsilon=spent["epsilon"], delta=spent["delta"], **said)


def _preparation(request: Request, name: str) -> Preparation:
    """How rows become examples, as the job file says it: what `predict` does again."""
    job = request.file.job
    stage = job.stages[name]
    assert isinstance(stage, ModelStage)
    joined = [_joined(table) for table in job.lookups]
    # Of several tables the model takes the rows that these become, which no format of a file is known of.
    form = DEFAULT if job.source is None else dataclasses.replace(job.source.form, quote=job.source.quote)
    is_read = job.tables is None and job.row_id in request.source.schema.names
    row_id = job.row_id if is_read else None
    simple = len(joined) == 1 and list(joined[0]) == ["on"] and isinstance(joined[0]["on"], str)
    read = dict.fromkeys(name for name in (*request.columns, row_id) if name is not None and name != TWIN)
    return Preparation(
        source={name: str(request.source.schema.field(name).type) for name in read},
        quoted=job.source is None or job.source.quoted,
        csv=form.to_json(),
        where=job.where,
        columns=job.columns,
        lookup=joined[0]["on"] if simple else None,
        lookups=[] if simple else [{**table, "on": of.pairs} for table, of in zip(joined, job.lookups, strict=True)],
        params={key: (type(value).__name__, str(value)) for key, value in request.values.items()},
        unit_columns=stage.unit_columns,
        max_rows_per_unit=stage.max_rows_per_unit,
        examples_where=stage.where,
        row_id=row_id,
    )


def _joined(table: LookupModel) -> dict[str, Any]:
    """What a model must know of a public table that is joined."""
    said: dict[str, Any] = {"on": table.on, "types": table.types, "csv": table.form.to_json()}
    said["max_rows_per_key"] = table.max_rows_per_key if table.max_rows_per_key > 1 else None
    return {name: value for name, value in said.items() if value}
