"""The options of the command `tune`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

import argparse
from collections.abc import Callable

from dp_pipelines.jobs.cli.ledger_arguments import add_anchor

MakeParser = Callable[[str, str, str], argparse.ArgumentParser]

EPILOG = """examples:
  dp-pipelines tune weekly.yaml --output tuning --grid "bounds.max_partitions_contributed=4,8,16,32" \\
      --grid "metrics.revenue.max_value,metrics.mean_price.max_value=100,200,400" --grid "budget.epsilon=0.5,1,2"
  dp-pipelines tune weekly.yaml --output tuning --grid grid.yaml --goal "relative_error(orders) <= 0.1"
  dp-pipelines tune weekly.yaml --output tuning --grid grid.yaml --sample public_sample.parquet
  dp-pipelines tune weekly.yaml --output tuning --grid grid.yaml --synthetic --users 50000 --value SALES_PRICE=30

Predicts, in one pass over the rows, how far each metric would be off in each partition under each configuration of the
grid, and why, and writes a job file with the one that comes nearest to the goal.

WHAT IT WRITES IS PRIVATE: it is computed from the raw rows without any privacy, into a folder that only you can read, and
the ledger notes that it happened. Nothing of it may be published, and no guarantee covers what is decided by it. With
--sample (rows that you declare public) the rows of the job are not read, and nothing is noted; nor with --synthetic (rows
that are made up from the job file, the schema of its files and what you assume).

goals: "MEASURE(METRIC) <= NUMBER", "minimize MEASURE"; may be repeated. Measures: error, relative_error, loss (default),
partition_loss, lost, lost_rows.
"""


def add(make: MakeParser) -> None:
    """Add the parser of `tune`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    parser = make("tune", "compare other bounds, clips and budgets; its output is PRIVATE", EPILOG)
    parser.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
    parser.add_argument(
        "--grid", metavar="GRID", action="append", default=[], help="a file, or PATH=VALUE,VALUE,...; may be repeated"
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="the private folder; it must not exist")
    parser.add_argument("--stage", metavar="NAME", help="which stage (default: the only aggregate stage)")
    parser.add_argument("--goal", metavar="GOAL", action="append", default=[], help="what is wanted; may be repeated")
    parser.add_argument(
        "--sample",
        metavar="FILES",
        help="public rows instead of the job's: a name or a glob, in the format of the source",
    )
    _add_synthetic(parser)
    parser.add_argument(
        "--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the job; may be repeated"
    )
    parser.add_argument(
        "--ledger", metavar="URL", help="where the look is noted (default: dp-ledger.sqlite beside JOB; none: nowhere)"
    )
    add_anchor(parser)
    parser.add_argument("--runner", metavar="NAME", default="direct", help="direct (default), portable, flink or spark")
    parser.add_argument(
        "--json", action="store_true", help="print JSON: where the folder is, and nothing else of the rows"
    )


def _add_synthetic(parser: argparse.ArgumentParser) -> None:
    made = parser.add_argument_group(
        "rows that are made up", "what is assumed stands on the page; docs/tune.md has the laws"
    )
    made.add_argument("--synthetic", action="store_true", help="make rows up; no row of the job is read")
    made.add_argument("--users", metavar="N", help="privacy units (default: from expect:, else 10000)")
    made.add_argument("--partitions", metavar="N", help="partitions, where they are selected (default: 1000)")
    made.add_argument("--partitions-of-user", metavar="X", help="median (default: half the bound of the job)")
    made.add_argument(
        "--rows-each",
        metavar="X",
        help="median of a user's rows in a partition (default: from expect:, else half the bound)",
    )
    made.add_argument(
        "--value", metavar="COLUMN=X", action="append", default=[],
        help="median of a column (default: the middle of its clips); may be repeated",
    )  # fmt: skip
