"""The options of the command `doctor`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

from dp_pipelines.jobs.cli.arguments import runner_arguments
from dp_pipelines.jobs.cli.arguments.ledger_arguments import add_anchor
from dp_pipelines.jobs.cli.command_parser import MakeParser

EPILOG = """examples:
  dp-pipelines doctor
  dp-pipelines doctor weekly.yaml --output out/2026-W01 --runner flink --flink_master=localhost:8081

Give it the same options as `run`. It reads no rows and spends no budget. For any runner except `direct`, it runs a job of a few
elements, which makes a private folder beside the output and removes it again. It prints one line per check: `ok`, or `wrong` and
how to fix it. Exit code 0: everything is ok; 1: something is wrong.

Any other option goes to Beam; write it as --name=value.
"""


def add(make: MakeParser) -> None:
    """Add the parser of `doctor`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    parser = make(
        "doctor", "check that a runner, its workers and the disks are ready, before any budget is spent", EPILOG
    )
    parser.add_argument("job", metavar="JOB", nargs="?", help="the job file you want to run")
    parser.add_argument("--output", metavar="DIR", help="the folder you want to publish (default: here)")
    parser.add_argument("--ledger", metavar="URL", help="the ledger, as for run")
    add_anchor(parser)
    runner_arguments.add(parser, here=True)
    parser.add_argument("--no-probe", action="store_true", help="skip the small job on the runner")
