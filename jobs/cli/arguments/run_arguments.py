"""The options of the command `run`.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

from dp_pipelines.jobs.cli import job_runs, run_option
from dp_pipelines.jobs.cli.arguments import job_arguments, runner_arguments
from dp_pipelines.jobs.cli.arguments.ledger_arguments import add_anchor
from dp_pipelines.jobs.cli.command_parser import MakeParser

EPILOG = """examples:
  dp-pipelines run weekly.yaml --output out/2026-W01 --param week=2026-W01
  dp-pipelines run weekly.yaml --output 'out/{week}' --run-id 'week-{week}' --param week=2026-01-05 --latest out/latest
  dp-pipelines run weekly.yaml --output out/made-up --synthetic

a job file:
  dataset: grocery
  privacy_unit: CUSTOMER_ID
  budget: {epsilon: 1.0, delta: 1.0e-6}
  source: {parquet: "data/*.parquet"}
  stages:
    weekly:
      kind: aggregate
      partition_by: [PRODUCT]
      bounds: {max_partitions_contributed: 8, max_contributions_per_partition: 2}
      metrics:
        orders: {kind: count}
        revenue: {kind: sum, column: PRICE, min_value: 0, max_value: 100}

Any other option goes to Beam, with a runner of Beam; write it as --name=value, after the job file.
"""


def add(make: MakeParser, *, options: bool = True) -> None:
    """Add the parser of `run`.

    Args:
        make: adds a command: name, help text, epilog.
        options: whether they have the options that extensions add, which loads these.
    """
    run = make("run", "run a job: read, release and publish", EPILOG)
    run.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
    run.add_argument(
        "--output",
        metavar="DIR",
        required=True,
        help="the folder to publish, also s3://BUCKET/FOLDER; it must not exist; {NAME} is filled from --param",
    )
    job_arguments.add_parameters(run)
    for way in job_runs.installed().values() if options else ():
        way.add_options(run)
    run.add_argument(
        "--run-id",
        metavar="ID",
        help="name of this run; required if the budget covers several runs; {NAME} is filled from --param",
    )
    run.add_argument(
        "--spare", action="store_true", help="make this run one of the spare runs of the budget, for a correction"
    )
    run.add_argument(
        "--latest",
        metavar="LINK",
        help="have LINK lead to the release, unless it leads to a newer one; also s3://BUCKET/FOLDER/NAME.json",
    )
    run.add_argument(
        "--ledger",
        metavar="URL",
        help="the ledger (default: dp-ledger.sqlite beside JOB; none: no accounting across runs)",
    )
    add_anchor(run)
    for option in run_option.options():
        option.add(run)
    run.add_argument(
        "--synthetic", action="store_true", help="make the report of made-up rows: reads no row, costs nothing"
    )
    run.add_argument(
        "--yes", action="store_true", help="never ask whether to charge; without a terminal nobody is asked"
    )
    run.add_argument(
        "--as-new", action="store_true", help="charge a job that has only other names than one that has a release"
    )
    run.add_argument("--json", action="store_true", help="print JSON instead of the summary")
    runner_arguments.add(run)
