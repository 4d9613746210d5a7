"""The commands `plan` and `run` for jobs of collected stages.

In: a checked job file, the parsed arguments. Out: text or JSON on standard output, an exit code. Holds: options that such a job
has no use for are refused, and `run` says that no ledger keeps account. Not covered: other commands, which refuse such jobs.
"""

import argparse

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.collected import collected_request
from dp_pipelines.jobs.collected.collected_plan import lines_of, plan_of
from dp_pipelines.jobs.spec.collected_job import CollectedFile
from dp_pipelines.jobs.terminal import output
from dp_pipelines.jobs.terminal.released_rows import shown
from dp_pipelines.jobs.terminal.summary import as_json


def plan(file: CollectedFile, given: argparse.Namespace) -> int:
    """Print what is promised and how large the errors will be."""
    _refuse(given, ("param", "explain", "group"))
    made = plan_of(file, collected_request.stages_of(file))
    with output.printing():
        print(as_json(made) if given.json else "\n".join(shown(line) for line in lines_of(made)))
    return 0


def run(file: CollectedFile, given: argparse.Namespace, rest: list[str]) -> int:
    """Estimate, and publish."""
    from dp_pipelines.jobs.cli.stoppable import Stoppable
    from dp_pipelines.jobs.collected import collected_run
    from dp_pipelines.jobs.run.run import NO_LEDGER, check_name_of_run

    _refuse(given, ("param", "synthetic", "anchor"))
    check_name_of_run(given.run_id)
    if given.ledger != NO_LEDGER:
        raise RequestError(
            field="--ledger",
            message="must be none for collected stages: no ledger keeps account of what devices promise",
            hint="add --ledger none, and keep count of the questions that each person is asked",
        )
    request = collected_request.check(file)
    with Stoppable(to_the_end=given.as_command) as stoppable:
        stoppable.makes(given.output)
        done = collected_run.run(request, given.output, runner=given.runner, arguments=rest, run_id=given.run_id)
    with output.printing(f"published in {done.folder}; its summary could not be shown here"):
        if given.json:
            files = {name: str(done.folder / name) for name in done.manifest["files"]}
            told = {"output": str(done.folder), "run_id": done.manifest["run_id"], "promise": done.manifest["promise"]}
            print(as_json({**told, "files": files}))
        else:
            for line in [*done.manifest["guarantee"], f"estimates in {done.folder}, for readers in report.html"]:
                print(shown(line))
    return 0


def _refuse(given: argparse.Namespace, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(given, name):
            raise RequestError(field=f"--{name}", message="is not for jobs of collected stages", hint="drop it")
