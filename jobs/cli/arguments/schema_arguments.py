"""The options of the command `schema`: none.

In: the top of the command line. Out: a parser below it. Holds: nothing slow is imported, since `--help` needs nothing.
"""

from dp_pipelines.jobs.cli.command_parser import MakeParser

EPILOG = "example:\n  dp-pipelines schema > job.schema.json\n"


def add(make: MakeParser) -> None:
    """Add the parser of `schema`.

    Args:
        make: adds a command: name, help text, epilog.
    """
    make("schema", "print the JSON schema of job files, for editors", EPILOG)
