"""The options of the command `audit`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

import argparse
from collections.abc import Callable

MakeParser = Callable[[str, str, str], argparse.ArgumentParser]

EPILOG = """examples:
  dp-pipelines audit weekly.yaml                      some seconds for a stage, more for many training steps
  dp-pipelines audit weekly.yaml --replays 1000000    sees smaller deviations

Compares every field of a plan's records with what runs, trains its models on made-up examples to see which units each release
reads, and replays noise, samples, clips and choices with and without one worst-case unit, to compare what an observer learns with
what was accounted. It reads no rows and charges nothing. Exit code 0: it agrees; 1: it does not.
"""


def add(make: MakeParser) -> None:
    """Add the parser of `audit`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    parser = make("audit", "test that the noise matches the accounting (simulated, no data)", EPILOG)
    parser.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
    parser.add_argument(
        "--replays", metavar="N", help="of each stage (default: 200000, fewer where a replay takes many draws)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with every comparison")
    parser.add_argument(
        "--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the job; may be repeated"
    )
