"""The command `describe` of the command line: its options, and how its result is shown.

In: the top of the command line; parsed arguments. Out: a parser below it; a line on standard output. Holds: nothing slow is
imported before the command runs, since `--help` needs nothing. Not covered: what the page says (`assessment`).
"""

import argparse

from dp_pipelines.jobs.cli.arguments import job_arguments
from dp_pipelines.jobs.cli.arguments.ledger_arguments import add_anchor
from dp_pipelines.jobs.cli.command_parser import MakeParser
from dp_pipelines.jobs.cli.extension_command import DONE, Command
from dp_pipelines.jobs.terminal import output

EPILOG = """examples:
  dp-pipelines describe weekly.yaml                          assessment.html, to print and to mail
  dp-pipelines describe weekly.yaml --output assessment.md   Markdown, to fill in
  dp-pipelines describe weekly.yaml --format registry        registry.yaml and registry.md: an entry for the public registry of
                                                             deployments (OpenDP), and a checklist after NIST SP 800-226

Says what the job reads, what it publishes and how often, who is protected from whom and by what, what that means in odds, and
what remains; what only you know, such as the legal basis, is asked there. Reads no rows and costs no budget; source files are
checked if they exist. The ledger is read, and nothing is written to it.
"""


PAGE, REGISTRY = "assessment", "registry"


class _Describe:
    """The command `describe`."""

    example = ("describe weekly.yaml", "a privacy impact assessment, to be filled in")
    takes_runner = False
    needs_arrow = True
    defers_collection = True

    def add(self, make: MakeParser) -> None:
        """Add the parser of `describe`."""
        parser = make("describe", "write a privacy impact assessment of a job, to be filled in", EPILOG)
        parser.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
        parser.add_argument(
            "--format",
            choices=(PAGE, REGISTRY),
            default=PAGE,
            help="what to write: an assessment, or an entry of a registry (default: %(default)s)",
        )
        parser.add_argument(
            "--output",
            metavar="FILE",
            help="the page to write, Markdown where its name ends with .md (default: assessment.html, or registry.yaml for a "
            "registry); an existing page is replaced, but not Markdown that somebody has written in, nor YAML",
        )
        parser.add_argument(
            "--ledger",
            metavar="URL",
            help="the ledger whose account is shown (default: dp-ledger.sqlite beside JOB; none: no ledger)",
        )
        add_anchor(parser)
        job_arguments.add_parameters(parser)

    def run(self, given: argparse.Namespace, rest: list[str]) -> int:
        """Write the page or the entry and print where it is."""
        from dp_pipelines.extensions.describe import write_page

        if given.format == REGISTRY:
            given.output = given.output or "registry.yaml"
            done = write_page.describe_for_registry(given)
        else:
            given.output = given.output or "assessment.html"
            done = write_page.describe(given)
        with output.printing(f"{done}; {output.LOST}"):
            print(done)
        return DONE


DESCRIBE: Command = _Describe()
