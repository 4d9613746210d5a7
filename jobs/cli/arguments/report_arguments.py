"""The options of the command `report`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

from dp_pipelines.jobs.cli.command_parser import MakeParser

EPILOG = """examples:
  dp-pipelines report out/*/                           several runs of one job: trends.html
  dp-pipelines report out/2026-W01 --output w01.html   one run: its page, drawn anew
  dp-pipelines report out/2026-W01 --job weekly.yaml --output w01.html   with the titles and labels that the job file has now
  dp-pipelines report out/2026-W01 --job weekly.yaml --output w01        the same with the files of its outputs, in a new folder
  dp-pipelines report out/2026-W01 --csv w01           its tables as CSV, in a new folder

Several folders give one page: each number as a series over the runs with 95% error bars, the budget spent, and tables. Runs are
ordered by the window of event time, by a parameter that is a date, by a run id that is a date, or by their number in the plan.
Reads published files only, so it costs no budget. Folders of other plans, copies and damaged releases are refused.
"""


def add(make: MakeParser) -> None:
    """Add the parser of `report`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    parser = make("report", "make one page of published runs: trends and the budget spent", EPILOG)
    parser.add_argument(
        "folders", metavar="FOLDER", nargs="+", help="published folders, each of one run of the same job"
    )
    parser.add_argument(
        "--job",
        metavar="JOB",
        help="take titles, descriptions, labels, units of measure, formats, the order of rows, ratios and expressions from this "
        "job file; costs nothing",
    )
    parser.add_argument(
        "--output", metavar="FILE",
        help="the page to write (default: trends.html here; report.html for one folder); an existing page is replaced. With "
        "--job, a name that does not end in .html is that of a new folder for the page and the files that the job's outputs name",
    )  # fmt: skip
    parser.add_argument(
        "--csv", metavar="DIR",
        help="write the tables of one folder as CSV into this new folder, instead of a page; with --job also its ratios",
    )  # fmt: skip
