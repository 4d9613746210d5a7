"""The commands `plan` and `run` for jobs of collected stages.

In: a checked job file, the parsed arguments. Out: text or JSON on standard output, an exit code. Holds: options that such a job
has no use for are refused. Not covered: `ledger` (`answers_commands`); other commands refuse such jobs.
"""

import argparse

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.local_dp import collected_request
from dp_pipelines.extensions.local_dp.collected_job import CollectedFile
from dp_pipelines.extensions.local_dp.collected_plan import lines_of, plan_of
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.terminal import output
from dp_pipelines.jobs.terminal.released_rows import shown
from dp_pipelines.jobs.terminal.summary import as_json


def plan(file: CollectedFile, given: argparse.Namespace) -> int:
    """Print what is promised and how large the errors will be."""
    _refuse(given, ("against", "explain", "group"))
    if given.param:  # a plan needs none
        job_parameters.take({name: param.type for name, param in file.job.params.items()}, given.param)
    made = plan_of(file, collected_request.stages_of(file))
    with output.printing():
        print(as_json(made) if given.json else "\n".join(shown(line) for line in lines_of(made)))
    return 0


def run(file: CollectedFile, given: argparse.Namespace, rest: list[str]) -> int:
    """Estimate, and publish."""
    from dp_pipelines.extensions.local_dp import collected_run
    from dp_pipelines.jobs.cli.stoppable import Stoppable
    from dp_pipelines.jobs.run.run import check_name_of_run

    if given.synthetic:
        raise RequestError(
            field="--synthetic",
            message="is not for jobs of collected stages",
            hint="`dp-pipelines plan` states the errors; Question.report makes the reports of devices that you invent",
        )
    _refuse(given, ("latest", "spare"))
    check_name_of_run(given.run_id)
    request = collected_request.check(file, given.param)
    with Stoppable(to_the_end=given.as_command) as stoppable:
        stoppable.makes(given.output)
        done = collected_run.run(
            request, given.output, runner=given.runner, arguments=rest, run_id=given.run_id, ledger=given.ledger,
            anchor=given.anchor,
        )  # fmt: skip
    with output.printing(f"published in {done.folder}; its summary could not be shown here"):
        if given.json:
            files = {name: str(done.folder / name) for name in done.manifest["files"]}
            told = {name: done.manifest[name] for name in ("run_id", "promise", "ledger")}
            print(as_json({"output": str(done.folder), "again": done.again, **told, "files": files}))
        else:
            again = "the stored " if done.again else ""
            ended = f"{again}estimates in {done.folder}, for readers in report.html"
            for line in [*done.manifest["guarantee"], ended]:
                print(shown(line))
    return 0


def _refuse(given: argparse.Namespace, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(given, name):
            raise RequestError(field=f"--{name}", message="is not for jobs of collected stages", hint="drop it")
