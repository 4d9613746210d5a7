"""What `ledger init`, `raise` and `show` offer for accounts of answers.

In: parsers, parsed arguments. Out: options; accounts. Holds: importing this module is quick; the rest is imported when a command
needs it. Not covered: what the options mean (`answers_commands`).
"""

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.job_kinds import OtherJobFile

if TYPE_CHECKING:
    from dp_pipelines.extensions.local_dp.answers_commands import AskedAccount
    from dp_pipelines.ledger.ledger import Ledger


class AnswersCommands:
    """Commands about accounts of answers, as `AccountCommands` asks for them."""

    kinds = ("local", "shuffled")
    kind_help = "open an account of answers: from devices themselves, or through a shuffler"
    init_help = """For answers that devices give at random (jobs of collected stages):
  dp-pipelines ledger init visits.yaml --questions 5 --epsilon 5
  dp-pipelines ledger init --kind local --dataset visits --questions 5 --epsilon 5 --question-epsilon 2 --answers 1
"""
    raise_help = "Accounts of answers also have\n--questions, --answers and --question-epsilon."

    def add_limits(self, parser: argparse.ArgumentParser, *, new: bool) -> None:
        """See `AccountCommands`."""
        answers, question_epsilon = ("1", "--epsilon") if new else ("unchanged", "unchanged")
        parser.add_argument(
            "--questions", metavar="N", type=int, help="of answers: how many questions a person may be asked"
        )
        parser.add_argument(
            "--answers",
            metavar="N",
            type=int,
            help="of answers: how many fresh ones a person may give to a question, or for how many distinct values devices may "
            f"remember one (default: {answers})",
        )
        parser.add_argument(
            "--question-epsilon",
            metavar="E",
            type=float,
            help=f"of answers: the largest local epsilon of one (default: {question_epsilon})",
        )

    def refuse_options(self, given: argparse.Namespace) -> None:
        """See `AccountCommands`."""
        from dp_pipelines.extensions.local_dp import answers_commands

        answers_commands.refuse_options(given)

    def is_charged_by(self, file: OtherJobFile) -> bool:
        """See `AccountCommands`."""
        from dp_pipelines.extensions.local_dp.collected_job import CollectedFile

        return isinstance(file, CollectedFile)

    def new_account(self, given: argparse.Namespace, file: OtherJobFile | None) -> "AskedAccount":
        """See `AccountCommands`."""
        from dp_pipelines.extensions.local_dp import answers_commands
        from dp_pipelines.extensions.local_dp.collected_job import CollectedFile

        if file is not None and not isinstance(file, CollectedFile):
            message = "is for jobs of collected stages, and this is none"
            raise RequestError(field="--kind", message=message, hint="drop it")
        return answers_commands.wanted(given, file)

    def owns(self, book: "Ledger", name: str) -> bool:
        """See `AccountCommands`."""
        from dp_pipelines.extensions.local_dp.answers import accounts_of

        return name in accounts_of(book.state)

    def raise_limits(self, given: argparse.Namespace, book: "Ledger", name: str) -> str:
        """See `AccountCommands`."""
        from dp_pipelines.extensions.local_dp import answers_commands

        return answers_commands.raise_limits(given, book, name)

    def lines(self, account: Mapping[str, Any]) -> Iterable[str]:
        """See `AccountCommands`."""
        from dp_pipelines.extensions.local_dp import answers_commands

        return answers_commands.lines_of(account)


ANSWERS = AnswersCommands()
