"""The options of the command `init`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

from dp_pipelines.jobs.cli.command_parser import MakeParser
from dp_pipelines.jobs.spec import csv_arguments

EPILOG = """examples:
  dp-pipelines init data/*.parquet --unit customer_id
  dp-pipelines init 'sales/2026-*.csv' --unit customer_id --types price=double,sold_at=timestamp,region=string
  dp-pipelines init sales.tsv --unit customer_id --types price=double --delimiter tab --decimal ,

Writes a commented job file that `plan` takes as it stands. Reads names and types of columns, never a row, and opens no account.
CSV files have no types, and a first line that may be somebody's row: so their columns are declared with --types.
"""


def add(make: MakeParser) -> None:
    """Add the parser of `init`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    parser = make("init", "write a first job file from names and types of columns", EPILOG)
    parser.add_argument(
        "files", metavar="FILES", nargs="+", help="Parquet or CSV files, a folder, or a pattern in quotes"
    )
    parser.add_argument(
        "--unit", metavar="COLUMN", action="append", required=True,
        help="the column that says whose row it is; may be repeated",
    )  # fmt: skip
    parser.add_argument("--output", metavar="JOB", default="job.yaml", help="the file to write (default: job.yaml)")
    parser.add_argument("--dataset", metavar="NAME", help="the account (default: from the names of files and folders)")
    parser.add_argument(
        "--types", metavar="NAME=TYPE,...", help="of CSV: the columns that are used; text unless declared"
    )
    csv_arguments.add(parser)
