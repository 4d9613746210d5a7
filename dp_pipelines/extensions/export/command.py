"""The command `export` of the command line: its options, and how its result is shown.

In: the top of the command line; parsed arguments. Out: a parser below it; lines on standard output. Holds: nothing slow is
imported before the command runs, since `--help` needs nothing. Not covered: what the file holds (`export_model`).
"""

import argparse

from dp_pipelines.jobs.cli.command_parser import MakeParser
from dp_pipelines.jobs.cli.extension_command import DONE, Command
from dp_pipelines.jobs.cli.stoppable import Stoppable
from dp_pipelines.jobs.terminal import output

EPILOG = """examples:
  dp-pipelines export out/2026-W01/returns --format sql --output returns.sql
  dp-pipelines export out/2026-W01/returns --format sql --dialect postgresql --output returns.sql
  dp-pipelines export out/2026-W01/returns --format onnx --output returns.onnx

SQL is one expression of a linear model: SELECT customer, (...) AS probability FROM examples. ONNX holds networks too.
Both read the columns of the features, as `predict --examples` does. The guarantee of the release does not cover predictions.
"""


class _Export:
    """The command `export`."""

    example = ("export out/model --format sql ...", "a published model for other programs")
    takes_runner = False
    needs_arrow = True
    defers_collection = False

    def add(self, make: MakeParser) -> None:
        """Add the parser of `export`."""
        parser = make("export", "write a published model as SQL or ONNX, for other programs", EPILOG)
        parser.add_argument("model", metavar="MODEL", help="a model folder, or a release that contains one model")
        parser.add_argument("--format", choices=("sql", "onnx"), required=True, help="what to write")
        parser.add_argument("--output", metavar="FILE", required=True, help="the file to write; it must not exist")
        parser.add_argument(
            "--dialect", choices=("duckdb", "postgresql"), help="for SQL: of which database (default: duckdb)"
        )
        parser.add_argument(
            "--result", choices=("probability", "prediction", "probabilities"),
            help="for SQL: which result (default: the probability of true, the predicted class or number)",
        )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")

    def run(self, given: argparse.Namespace, rest: list[str]) -> int:
        """Write the file and print what its reader has to know."""
        from dp_pipelines.extensions.export import export_model
        from dp_pipelines.jobs.predict import predict
        from dp_pipelines.jobs.terminal import summary

        output.note(predict.NOTE)
        with Stoppable(to_the_end=given.as_command):
            done = export_model.export(given)
        summary.print_result(done, in_json=given.json)
        return DONE


EXPORT: Command = _Export()
