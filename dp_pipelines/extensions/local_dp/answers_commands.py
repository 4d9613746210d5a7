"""What `ledger init`, `raise` and `show` do with accounts of answers.

In: parsed arguments, an open ledger. Out: accounts, text for people. Holds: an account is never shown without its neighbours;
options of tables are refused. Not covered: accounts of tables (`ledger_commands`).
"""

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.local_dp import answers_export, answers_ledger
from dp_pipelines.extensions.local_dp.answers import KINDS, NEIGHBOURS, AnswerLimits
from dp_pipelines.extensions.local_dp.collected_job import CollectedFile
from dp_pipelines.jobs.terminal.summary import left_number, spent_number
from dp_pipelines.ledger import sources
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.report.key_text import visible

OF_TABLES = ("unit", "unit_words", "window_column", "window_days")
"""Options that accounts of answers have no use for."""

OF_ANSWERS = ("kind", "questions", "answers", "question_epsilon")
"""Options that accounts of tables have no use for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AskedAccount:
    """An account of answers that somebody wants to open.

    Args:
        name: of the account.
        kind: `local` or `shuffled`.
        limits: what may ever be asked of a person.
        patterns: of its files.
    """

    name: str
    kind: str
    limits: AnswerLimits
    patterns: Sequence[str]

    def open(self, book: Ledger, files: Sequence[str]) -> str:
        """Open it; gives what to say. Errors as for `answers_ledger.open_account`."""
        answers_ledger.open_account(
            book, self.name, kind=self.kind, limits=self.limits, patterns=self.patterns, files=files
        )
        return f"opened the account {self.name!r} of kind {self.kind} (neighbours: {NEIGHBOURS}): {self._words}"

    @property
    def _words(self) -> str:
        return answers_export.limits_in_words(self.kind, self.limits)


def wanted(given: argparse.Namespace, file: CollectedFile | None) -> AskedAccount:
    """The account that `ledger init` is to open: what options say, else what the job needs.

    Raises:
        RequestError: something is missing or makes no sense.
    """
    for name in OF_TABLES:
        if getattr(given, name) is not None:
            raise _of_tables(name)
    if given.rule is not None:
        raise _of_tables("rule")
    said = {
        name: getattr(given, name, None) for name in ("epsilon", "delta", "questions", "answers", "question_epsilon")
    }
    said = {name: value for name, value in said.items() if value is not None}
    if file is None:
        missing = [name for name in ("dataset", "epsilon", "questions") if getattr(given, name, None) is None]
        if missing:
            raise RequestError(
                field=f"--{missing[0]}",
                message="is required to open an account of answers",
                hint="add it, or name a job file",
            )
        said = {"question_epsilon": given.epsilon, **said}
        kind, patterns = given.kind, []
    else:
        from dp_pipelines.extensions.local_dp import answers_book, collected_request  # load Arrow

        askings = collected_request.askings_of(file, collected_request.stages_of(file))
        kind = askings[0].kind
        if getattr(given, "kind", None) not in (None, kind):
            raise RequestError(
                field="--kind",
                message=f"must be {kind} for this job",
                hint="drop it: a job with shuffler: needs kind shuffled, others local",
            )
        said = vars(answers_book.limits_for(askings)) | said
        patterns = [sources.absolute(file.job.source.pattern, str(file.path.parent))]
    patterns = [sources.absolute(pattern, ".") for pattern in given.source] or patterns
    limits = AnswerLimits(**said)
    _check_options(limits, kind)
    name = given.dataset or (file.job.dataset if file is not None else "")
    if not name:
        raise RequestError(field="--dataset", message="must be a name", hint="write e.g. --dataset visits")
    return AskedAccount(
        name=checks.plain(name, "--dataset"),
        kind=kind,
        limits=limits,
        patterns=patterns,
    )


def _check_options(limits: AnswerLimits, kind: str) -> None:
    """Check limits; what is wrong is named as the option that says it."""
    try:
        limits.check(kind)
    except RequestError as error:
        option = "--" + error.field.replace("_", "-")
        raise RequestError(field=option, message=error.message, hint=error.hint) from None


def raise_limits(given: argparse.Namespace, book: Ledger, name: str) -> str:
    """Raise limits of an account; gives what to say.

    Raises:
        RequestError: none is named, one would be lowered, or is wrong.
    """
    now = answers_ledger.account_of(book, name)
    said: dict[str, Any] = {f.name: getattr(given, f.name, None) for f in dataclasses.fields(AnswerLimits)}
    said = {field: value for field, value in said.items() if value is not None}
    if not said:
        options = ", ".join("--" + field.name.replace("_", "-") for field in dataclasses.fields(AnswerLimits))
        raise RequestError(
            field="ledger raise", message=f"needs one of {options}", hint="add the new limit to the command"
        )
    limits = dataclasses.replace(now.limits, **said)
    _check_options(limits, now.kind)
    raised = answers_ledger.raise_limits(book, name, limits)
    return f"the limits of {name!r}, of kind {raised.kind}, are now: {answers_export.limits_in_words(raised.kind, raised.limits)}"


def refuse_options(given: argparse.Namespace) -> None:
    """Refuse options of accounts of answers for one of tables.

    Raises:
        RequestError: one is given.
    """
    for name in OF_ANSWERS:
        if getattr(given, name, None) is not None:
            raise RequestError(
                field="--" + name.replace("_", "-"),
                message="is for accounts of answers, whose neighbours are " + NEIGHBOURS,
                hint="drop it, or add --kind local",
            )


def lines_of(account: Mapping[str, Any]) -> Iterator[str]:
    """Yield an account for people to read: its heading, which follows the name, and its lines.

    Args:
        account: what `answers_export.account_to_json` gave.
    """
    yield f"kind {account['kind']} · neighbours: {account['neighbours']}"
    spent, cap, left = account["spent"], account["cap"], account["left"]
    has_delta = KINDS[account["kind"]].has_delta
    delta = f", delta {spent_number(spent['delta'])} of {spent_number(cap['delta'])}" if has_delta else ""
    rest = f", delta {left_number(left['delta'])}" if has_delta else ""
    yield f"kept {account['kept']}; never added to what tables cost"
    yield (
        f"asked of a person: epsilon {spent_number(spent['epsilon'])} of {spent_number(cap['epsilon'])}{delta}; left epsilon "
        f"{left_number(left['epsilon'])}{rest}"
    )
    yield (
        f"questions {account['questions']['asked']:,} of {account['questions']['limit']:,}; answers to each at most "
        f"{account['answers_limit']:,}, each of local epsilon at most {spent_number(account['question_epsilon_limit'])}"
    )
    for asking in account["asked"]:
        for question in asking["questions"]:
            how = "distinct values remembered" if question["memoised"] else "answers"
            yield (
                f"  {visible(question['name'])}: {visible(question['mechanism'])}, local epsilon {question['epsilon']}, {how}: "
                f"{asking['answers']:,}, document {visible(question['document'][:12])}"
            )
        cost, through = asking["cost"], asking["shuffling"]
        behind = (
            f", delta {spent_number(cost['delta'])} behind the shuffler, {through['honest_reports']:,} honest reports"
            if through
            else ""
        )
        yield f"    charged epsilon {spent_number(cost['epsilon'])}{behind}"
    yield f"estimates: {account['estimates']:,} · registered sources: {len(account['sources'])}"


def _of_tables(name: str) -> RequestError:
    return RequestError(
        field="--" + name.replace("_", "-"),
        message="is for accounts of tables; the neighbours of an account of answers are " + NEIGHBOURS,
        hint="drop it",
    )
