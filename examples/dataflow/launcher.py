"""What the flex template calls: it hands over a job of one element, which runs `dp-pipelines run` on one worker, and ends.

In: the parameters of metadata.json, and the options that the template service adds (project, region, places, template). Out: a
job. Holds: the release is made by the command, with its ledger, not by this program, since a launcher must end as soon as its
job is handed over, and somebody must be there to charge before and to publish after. Never run on the service.
"""

import argparse
import sys
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, SetupOptions, WorkerOptions
from command import Command, Run

FORWARDED = {
    GoogleCloudOptions: ("project", "region", "temp_location", "service_account_email", "dataflow_kms_key"),
    WorkerOptions: ("sdk_container_image", "network", "subnetwork", "worker_region"),
}
"""Options of this job that the job of the run gets too."""


def parser() -> argparse.ArgumentParser:
    """The parameters of the template."""
    found = argparse.ArgumentParser(prog="launcher.py", allow_abbrev=False)
    found.add_argument("--job", required=True)
    found.add_argument("--run_id", required=True)
    found.add_argument("--output", required=True)
    found.add_argument("--ledger", required=True)
    found.add_argument("--ledger_password_secret", default="")
    found.add_argument("--params", default="")
    found.add_argument("--engine", default="dataflow", choices=["dataflow", "direct"])
    found.add_argument("--run_options", default="")
    return found


def forwarded(options: PipelineOptions) -> tuple[str, ...]:
    """Options of this job for the job of the run."""
    given = [(name, getattr(options.view_as(group), name)) for group, names in FORWARDED.items() for name in names]
    private = ["--no_use_public_ips"] if options.view_as(WorkerOptions).use_public_ips is False else []
    return (*(f"--{name}={value}" for name, value in given if value), *private)


def split(text: str) -> tuple[str, ...]:
    """The parts of a list that a parameter holds, between semicolons."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def main(arguments: Sequence[str]) -> None:
    """Hand the job over."""
    mine, rest = parser().parse_known_args(list(arguments))
    options = PipelineOptions(rest)
    options.view_as(SetupOptions).save_main_session = False
    run = Run(
        job=mine.job,
        run_id=mine.run_id,
        output=mine.output,
        ledger=mine.ledger,
        password_secret=mine.ledger_password_secret,
        params=split(mine.params),
        engine=mine.engine,
        options=(*forwarded(options), *split(mine.run_options)),
    )
    pipeline = beam.Pipeline(options=options)
    pipeline | "Run" >> beam.Create([run], reshuffle=False) | "Command" >> beam.ParDo(Command())
    pipeline.run()  # and not wait: the service takes the job when this program has ended


if __name__ == "__main__":
    main(sys.argv[1:])
