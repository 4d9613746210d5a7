"""The options of the command `plan`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

from dp_pipelines.jobs.cli.arguments import job_arguments
from dp_pipelines.jobs.cli.command_parser import MakeParser

EPILOG = """examples:
  dp-pipelines plan weekly.yaml --json | jq '.stages[0].metrics'
  dp-pipelines plan weekly.yaml --against released.yaml

Source files are checked if they exist, but a plan does not need them. Standard deviations cover only the noise.
"""


def add(make: MakeParser) -> None:
    """Add the parser of `plan`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    parser = make("plan", "print noise, thresholds and expected errors, before a row is read", EPILOG)
    parser.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also print every record, and the cost of all runs under four accounting methods",
    )
    parser.add_argument(
        "--group", metavar="N", type=int, help="also print what N units together are guaranteed, e.g. a household of 4"
    )
    parser.add_argument(
        "--against", metavar="OLD", help="also print what changed since this earlier job file, and what that costs"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, including every mechanism record")
    job_arguments.add_parameters(parser)
