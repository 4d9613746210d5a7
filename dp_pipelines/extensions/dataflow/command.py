"""The command `dataflow` of the command line: the job that Dataflow would receive, without a network and without a charge.

In: the top of the command line; parsed arguments. Out: a parser below it; text; a JSON file. Holds: nothing slow
is imported before the command runs, since `--help` needs nothing. Not covered: what the job holds (`job_graph`).
"""

import argparse
import json
import pathlib

from dp_pipelines.jobs.cli.arguments import job_arguments
from dp_pipelines.jobs.cli.command_parser import MakeParser
from dp_pipelines.jobs.cli.extension_command import DONE, Command
from dp_pipelines.jobs.terminal import output

EPILOG = """example:
  dp-pipelines dataflow weekly.yaml --param week=2026-01-05 --write job.json --project=PROJECT --region=europe-west4 \\
    --temp_location=gs://BUCKET/tmp --sdk_container_image=europe-docker.pkg.dev/PROJECT/dp/dp-pipelines:2026-01

Reads no row, opens no ledger, needs no credentials and no network if the files are on this machine. Lines that begin with
`refused` say why a run would be refused. Any other option goes to Beam, as for `run --runner dataflow`; docs/dataflow.md.
"""


class _Dataflow:
    """The command `dataflow`."""

    example = ("dataflow weekly.yaml --project=...", "the job that Dataflow would receive, without running it")
    takes_runner = True  # options of Beam are passed on
    needs_arrow = True
    defers_collection = False

    def add(self, make: MakeParser) -> None:
        """Add the parser of `dataflow`."""
        parser = make("dataflow", "show the job that Dataflow would receive; nothing is run, read or charged", EPILOG)
        parser.add_argument("job", metavar="JOB", help="the job file")
        job_arguments.add_parameters(parser)
        parser.add_argument("--run-id", metavar="ID", help="name of the run (default: dry-run)")
        parser.add_argument("--write", metavar="FILE", help="write the job here, as JSON; an existing file is replaced")

    def run(self, given: argparse.Namespace, rest: list[str]) -> int:
        """Build the job and print what is in it."""
        from dp_pipelines.extensions.dataflow import job_graph
        from dp_pipelines.jobs.spec import job_file
        from dp_pipelines.jobs.terminal.silence import silence
        from dp_pipelines.release import staging

        file = job_file.load(given.job)
        with silence():
            produced = job_graph.produce(file, rest, given=given.param, run_id=given.run_id or job_graph.DRY)
        if given.write:
            staging.write_whole(pathlib.Path(given.write), (json.dumps(produced.job, indent=2) + "\n").encode())
        with output.printing(f"written to {given.write}; {output.LOST}" if given.write else ""):
            print(produced.text)
        return DONE


DATAFLOW_JOB: Command = _Dataflow()
