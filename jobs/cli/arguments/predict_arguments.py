"""The options of the command that applies a published model: `predict`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

from dp_pipelines.jobs.cli.command_parser import MakeParser

EPILOG = """examples:
  dp-pipelines predict out/2026-W01/returns 'data/*.parquet' --output scores.parquet
  dp-pipelines predict out/2026-W01 examples.csv --examples --output scores.parquet

INPUT has the columns of the job's source. Everything the job computes from them before training, except the label, is
computed again. The `where` of the job and of the stage select the rows (--every-row drops the latter). With --examples, INPUT
has the columns of the features themselves. The output has the columns of the privacy unit and the job's `row_id` where INPUT
has them. The guarantee of the release does not cover predictions about individuals.
"""


def add(make: MakeParser) -> None:
    """Add the parser of `predict`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    parser = make("predict", "apply a published model to new rows", EPILOG)
    parser.add_argument("model", metavar="MODEL", help="a model folder, or a release that contains one model")
    parser.add_argument("input", metavar="INPUT", help="Parquet or CSV files (a name or a glob)")
    parser.add_argument(
        "--output", metavar="FILE", required=True,
        help="the file to write: .parquet (or no ending), .csv, .tsv or .jsonl, of which texts may be compressed (.csv.gz); it "
        "must not exist",
    )  # fmt: skip
    parser.add_argument(
        "--examples", action="store_true", help="INPUT has the columns of the features, not source rows"
    )
    parser.add_argument(
        "--keep", metavar="COLUMN", action="append", default=[], help="also write this column; may be repeated"
    )
    parser.add_argument(
        "--every-row", action="store_true", help="also predict rows that the stage's `where` leaves out"
    )
    parser.add_argument(
        "--param", metavar="NAME=VALUE", action="append", default=[],
        help="a parameter of the job (default: as in training); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--type", metavar="COLUMN=TYPE", action="append", default=[],
        help="for CSV: type of a column (default: as in training); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--lookup", metavar="FILE", action="append", default=[],
        help="the public table that the job joins; repeated for several, in their order",
    )  # fmt: skip
    parser.add_argument(
        "--jax-model", metavar="NAME", help="for a model of your own: MODULE:ATTRIBUTE of the code that scores it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
