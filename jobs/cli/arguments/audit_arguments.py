"""The options of the command `audit`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

from dp_pipelines.jobs.cli.arguments import job_arguments
from dp_pipelines.jobs.cli.command_parser import MakeParser

EPILOG = """examples:
  dp-pipelines audit weekly.yaml                      seconds per stage, longer for many training steps
  dp-pipelines audit weekly.yaml --replays 1000000    detects smaller deviations

Compares every field of a plan's records with what runs. Trains the plan's models on made-up examples to see which units each
release reads. Replays noise, samples, clips and selections with and without one worst-case unit, and compares what an observer
learns with the accounting. Reads no rows and charges nothing. Exit code 0: everything agrees; 1: something does not.
"""


def add(make: MakeParser) -> None:
    """Add the parser of `audit`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    parser = make("audit", "test that the noise matches the accounting (simulated, no data)", EPILOG)
    parser.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
    parser.add_argument(
        "--replays", metavar="N", help="replays per stage (default: 200000, fewer if a replay takes many draws)"
    )
    parser.add_argument("--json", action="store_true", help="print every comparison as JSON")
    job_arguments.add_parameters(parser)
