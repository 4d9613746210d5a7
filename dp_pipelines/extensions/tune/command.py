"""The command `tune` of the command line: its options, and how its result is shown.

In: the top of the command line; parsed arguments. Out: a parser below it; lines on standard output. Holds: nothing slow is
imported before the command runs, since `--help` needs nothing. Not covered: what the private folder holds (`tune`).
"""

import argparse

from dp_pipelines.jobs.cli.arguments import job_arguments
from dp_pipelines.jobs.cli.command_parser import MakeParser
from dp_pipelines.jobs.cli.extension_command import DONE, Command
from dp_pipelines.jobs.cli.stoppable import Stoppable

EPILOG = """examples:
  dp-pipelines tune weekly.yaml --output tuning --grid "bounds.max_partitions_contributed=4,8,16,32" \\
      --grid "metrics.revenue.max_value,metrics.mean_price.max_value=100,200,400" --grid "budget.epsilon=0.5,1,2"
  dp-pipelines tune weekly.yaml --output tuning --grid grid.yaml --goal "relative_error(orders) <= 0.1"
  dp-pipelines tune weekly.yaml --output tuning --grid grid.yaml --sample public_sample.parquet
  dp-pipelines tune weekly.yaml --output tuning --grid grid.yaml --synthetic --users 50000 --value SALES_PRICE=30

In one pass over the rows, predicts how far off each metric would be in each partition under each configuration of the grid,
and why. Writes a job file with the configuration that comes closest to the goal.

ITS OUTPUT IS PRIVATE: it is computed from the raw rows without any privacy protection, into a folder that only you can read,
and the ledger records that it happened. Do not publish any of it; no guarantee covers decisions based on it. With --sample
(rows that you declare public) or --synthetic (rows made up from the job file, the schema of its files and your assumptions),
the rows of the job are not read and the ledger records nothing.

goals: "MEASURE(METRIC) <= NUMBER", "minimize MEASURE"; may be repeated. Measures: error, relative_error, loss (default),
partition_loss, lost, lost_rows.
"""


class _Tune:
    """The command `tune`."""

    example = ("tune weekly.yaml --output tuned ...", "errors under other bounds, for your eyes only")
    takes_runner = True
    needs_arrow = True
    defers_collection = False

    def add(self, make: MakeParser) -> None:
        """Add the parser of `tune`."""
        parser = make("tune", "compare other bounds, clips and budgets; its output is PRIVATE", EPILOG)
        parser.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
        parser.add_argument(
            "--grid",
            metavar="GRID",
            action="append",
            default=[],
            help="a file, or PATH=VALUE,VALUE,...; may be repeated",
        )
        parser.add_argument("--output", metavar="DIR", required=True, help="the private folder; it must not exist")
        parser.add_argument("--stage", metavar="NAME", help="the stage to tune (default: the only aggregate stage)")
        parser.add_argument(
            "--goal",
            metavar="GOAL",
            action="append",
            default=[],
            help="a limit, or a measure to minimize; may be repeated",
        )
        parser.add_argument(
            "--sample",
            metavar="FILES",
            action="append",
            default=[],
            help="public rows to read instead of the job's: a name or a glob, in the format of the source; NAME=FILES for each "
            "of several tables",
        )
        _add_synthetic(parser)
        job_arguments.add_look(parser)

    def run(self, given: argparse.Namespace, rest: list[str]) -> int:
        """Predict errors and print where the private folder is."""
        from dp_pipelines.extensions.tune import tune
        from dp_pipelines.jobs.terminal import summary

        with Stoppable(to_the_end=given.as_command):
            done = tune.tune(given, rest)
        summary.print_result(done, in_json=given.json)
        return DONE


TUNE: Command = _Tune()


def _add_synthetic(parser: argparse.ArgumentParser) -> None:
    made = parser.add_argument_group(
        "synthetic rows", "the report lists all assumptions; docs/tune.md gives the distributions"
    )
    made.add_argument("--synthetic", action="store_true", help="make up rows; reads no row of the job")
    made.add_argument("--users", metavar="N", help="number of privacy units (default: from expect:, or 10000)")
    made.add_argument("--partitions", metavar="N", help="number of partitions, if they are private (default: 1000)")
    made.add_argument(
        "--partitions-of-user", metavar="X", help="median partitions per user (default: half the job's bound)"
    )
    made.add_argument(
        "--rows-each",
        metavar="X",
        help="median rows of a user in a partition (default: from expect:, or half the job's bound)",
    )
    made.add_argument(
        "--value", metavar="COLUMN=X", action="append", default=[],
        help="median of a column (default: the middle of its clips); may be repeated",
    )  # fmt: skip
