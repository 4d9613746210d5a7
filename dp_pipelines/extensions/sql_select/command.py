"""The command `sql` of the command line: its options, and how its result is shown.

In: the top of the command line; parsed arguments. Out: a parser below it; a plan or a published run on standard output. Holds:
nothing slow is imported before the command runs, since `--help` needs nothing. Not covered: the job (`statement_job`).
"""

import argparse

from dp_pipelines.jobs.cli.arguments import ledger_arguments, runner_arguments
from dp_pipelines.jobs.cli.command_parser import MakeParser
from dp_pipelines.jobs.cli.extension_command import DONE, Command
from dp_pipelines.jobs.cli.stoppable import Stoppable
from dp_pipelines.jobs.spec import csv_arguments

EPILOG = """examples:
  dp-pipelines sql "SELECT region, count(*) AS orders, avg(price) AS price FROM 'data/*.parquet' WHERE amount > 0
      GROUP BY ALL HAVING orders > 50 ORDER BY orders DESC LIMIT 20" \\
      --dataset shop --unit customer_id --epsilon 1 --delta 1e-6 --clip price=0:1000 \\
      --max-partitions-contributed 8 --max-contributions-per-partition 2 --output out/orders
  dp-pipelines sql @query.sql ... --plan             its noise, and the job file that it stands for; no row is read

Ranges and bounds are public: take them from what anybody knows of such rows, never from the rows. Any other option goes to Beam;
write it as --name=value.
"""


class _Sql:
    """The command `sql`."""

    example = ('sql "SELECT ..." --dataset shop ...', "a run for one statement, without a job file")
    takes_runner = True
    needs_arrow = True
    defers_collection = True

    def add(self, make: MakeParser) -> None:
        """Add the parser of `sql`."""
        parser = make("sql", "answer one SELECT statement with differential privacy", EPILOG)
        parser.add_argument(
            "statement", metavar="SQL", help="the statement; @FILE reads a file, - reads standard input"
        )
        parser.add_argument(
            "--dataset", metavar="NAME", required=True, help="the account that the answer is charged to"
        )
        parser.add_argument(
            "--unit", metavar="COLUMN", action="append", default=[],
            help="the column that identifies whom the guarantee protects; may be repeated",
        )  # fmt: skip
        parser.add_argument("--epsilon", metavar="NUMBER", help="what the answer may cost")
        parser.add_argument("--delta", metavar="NUMBER", help="what the answer may cost")
        parser.add_argument(
            "--runs",
            metavar="N",
            help="how often such an answer will be drawn under this budget, each time with its own --run-id (default: 1)",
        )
        parser.add_argument(
            "--clip", metavar="COLUMN=LOW:HIGH", action="append", default=[],
            help="the range of a column's values, or of a metric's by its name; COLUMN=auto:LOW:HIGH has the bounds chosen in "
            "that range, for a tenth of the budget; may be repeated",
        )  # fmt: skip
        parser.add_argument(
            "--max-partitions-contributed", metavar="N", help="groups of one unit that count (default: the run chooses)"
        )
        parser.add_argument(
            "--max-contributions-per-partition",
            metavar="N",
            help="rows of one unit in one group that count (default: the run chooses)",
        )
        parser.add_argument(
            "--max-contributions", metavar="N", help="rows of one unit that count, instead of the two above"
        )
        parser.add_argument(
            "--public-file", metavar="FILE", help="a Parquet or CSV file that lists the groups to publish"
        )
        parser.add_argument(
            "--other", action="store_true", help="one more group for all that --public-file does not list"
        )
        parser.add_argument("--source", metavar="PATTERN", help="the files of the rows, where FROM is a mere name")
        parser.add_argument(
            "--type", metavar="COLUMN=TYPE", action="append", default=[],
            help="for CSV files: type of a column that is used; may be repeated",
        )  # fmt: skip
        csv_arguments.add(parser)
        parser.add_argument("--name", metavar="NAME", default="result", help="of the published table (default: result)")
        parser.add_argument(
            "--output", metavar="DIR", help="the folder to publish; it must not exist (default: below dp-releases/)"
        )
        parser.add_argument(
            "--format", choices=["csv", "jsonl"], action="append", default=[],
            help="also publish the table in this format, beside the Parquet file; may be repeated",
        )  # fmt: skip
        parser.add_argument(
            "--ledger", metavar="URL", help="the ledger (default: dp-ledger.sqlite beside --output; none: none)"
        )
        ledger_arguments.add_anchor(parser)
        parser.add_argument("--run-id", metavar="ID", help="name of this run (default: made from all that is asked)")
        parser.add_argument(
            "--as-new",
            action="store_true",
            help="charge a statement that has only other names than one that has a release",
        )
        parser.add_argument(
            "--plan",
            action="store_true",
            help="print the plan and the job file that the statement stands for, and stop",
        )
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        runner_arguments.add(parser)

    def run(self, given: argparse.Namespace, rest: list[str]) -> int:
        """Run the job of the statement, or print its plan."""
        from dp_pipelines.extensions.sql_select import statement_job
        from dp_pipelines.jobs.cli import shown_plan, shown_run
        from dp_pipelines.jobs.runners import engines

        file = statement_job.job_of(given)
        if given.plan:
            engines.configured(given.runner, rest).close()  # refuses options that the run would refuse
            shown = shown_plan.planned(file, [])
            shown_plan.print_plan(shown, in_json=given.json, above=statement_job.as_yaml(file))
            return DONE
        shown_run.refuse_output(given.output or "")
        with Stoppable(to_the_end=given.as_command) as stoppable:
            published = statement_job.carry_out(file, given, rest, stoppable.makes)
            shown_run.print_run(published, file.job, in_json=given.json)
        return DONE


SQL: Command = _Sql()
