"""The options of the command `init`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

from dp_pipelines.jobs.cli.command_parser import MakeParser
from dp_pipelines.jobs.spec import csv_arguments

EPILOG = """examples:
  dp-pipelines init data/*.parquet --unit customer_id
  dp-pipelines init 'sales/2026-*.csv' --unit customer_id --types price=double,sold_at=timestamp,region=string
  dp-pipelines init sales.tsv --unit customer_id --types price=double --delimiter tab --decimal ,
  dp-pipelines init 'sales/*.csv.gz' --unit customer_id --like made_up.csv
  dp-pipelines init sales.csv --unit customer_id --header-is-public
  dp-pipelines init survey.parquet --one-row-per-person

Writes a commented job file that `plan` takes as it stands. Reads names and types of columns, never a row, and opens no account.
CSV files and JSON lines have no types, and a first line that may be somebody's row. So their columns are declared with --types,
or taken from a sample whose rows are nobody's (--like), or, if the first line of CSV files is public, from that line: then all
columns are text until you fill in their types. Names of folders such as week=2026-01-05 become columns.
"""


def add(make: MakeParser) -> None:
    """Add the parser of `init`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    parser = make("init", "write a first job file from names and types of columns", EPILOG)
    parser.add_argument(
        "files",
        metavar="FILES",
        nargs="+",
        help="files of Parquet, CSV or JSON lines, a folder, or a pattern in quotes",
    )
    unit = parser.add_mutually_exclusive_group(required=True)
    unit.add_argument(
        "--unit", metavar="COLUMN", action="append", help="the column that says whose row it is; may be repeated"
    )
    unit.add_argument("--one-row-per-person", action="store_true", help="each row is a person, and no column says who")
    parser.add_argument("--output", metavar="JOB", default="job.yaml", help="the file to write (default: job.yaml)")
    parser.add_argument("--dataset", metavar="NAME", help="the account (default: from the names of files and folders)")
    parser.add_argument(
        "--types", metavar="NAME=TYPE,...", help="of CSV: the columns that are used; text unless declared"
    )
    parser.add_argument(
        "--like",
        metavar="SAMPLE",
        help="of CSV and JSON lines: a public file, written like the others, whose rows are nobody's",
    )
    parser.add_argument(
        "--header-is-public",
        action="store_true",
        help="of CSV: the first line names columns and is nobody's row; types are left to fill in",
    )
    csv_arguments.add(parser)
