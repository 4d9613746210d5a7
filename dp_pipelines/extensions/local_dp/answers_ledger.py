"""Operations of a ledger on accounts of answers: open them, raise their limits, charge questions, admit estimates.

In: an open ledger, questions to people. Out: accounts, admitted runs, refusals. Holds: one step charges all questions of a job
and admits its run, or does nothing; a name or a file is never an account's of rows and of answers; nothing is given back, since
people have answered. Not covered: the life of a run after it was admitted, which is that of all runs (`ledger`).
"""

from collections.abc import Iterable, Mapping, Sequence

from dp_pipelines import checks
from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.extensions.local_dp.answers import (
    ANSWERS_OPENED,
    ANSWERS_RAISED,
    ESTIMATE_ADMITTED,
    KINDS,
    PEOPLE_ASKED,
    AnswerLimits,
    AnswersAccount,
    Asking,
    accounts_of,
)
from dp_pipelines.ledger import refusals, units
from dp_pipelines.ledger.entries import Cost, Run
from dp_pipelines.ledger.journal import Adder
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.ledger.rules import delta_text, epsilon_text


def account_of(ledger: Ledger, name: str) -> AnswersAccount:
    """Return an account of answers.

    Raises:
        RequestError: there is none with that name, or it is one of rows.
    """
    refuse_rows(ledger, name)
    if name not in accounts_of(ledger.state):
        known = ", ".join(accounts_of(ledger.state)) or "none"
        raise RequestError(
            field=f"dataset {name!r}",
            message=f"has no account of answers in the ledger {ledger.shown}",
            hint=f"open one with `dp-pipelines ledger init --kind local`; existing accounts of answers: {known}",
        )
    return accounts_of(ledger.state)[name]


def refuse_rows(ledger: Ledger, name: str) -> None:
    """Refuse an account of rows if one of answers is expected.

    Raises:
        RequestError: it is one.
    """
    account = ledger.state.accounts.get(name)
    if account is not None:
        raise RequestError(
            field=f"dataset {name!r}",
            message=f"is an account of tables in the ledger {ledger.shown}, which protects all rows of each {account.words}: "
            "the epsilon of answers is never added to it",
            hint="give this job another dataset; stages of kind collected need an account of kind local or shuffled",
        )


def open_account(
    ledger: Ledger,
    name: str,
    *,
    kind: str,
    limits: AnswerLimits,
    patterns: Sequence[str] = (),
    files: Sequence[str] = (),
) -> AnswersAccount:
    """Open an account of answers. Its kind never changes.

    Args:
        name: the `dataset` of jobs.
        kind: `local` or `shuffled`.
        limits: what may ever be asked of one person.
        patterns: of files of reports, as `sources.absolute` returns them.
        files: the files that match them now.

    Raises:
        RequestError: an argument is wrong, the account exists, or a source belongs to another one.
    """
    if not isinstance(name, str) or not name:
        raise RequestError(field="dataset", message="must be a name", hint="write e.g. --dataset visits")
    checks.plain(name, "dataset")
    limits.check(kind)

    def step(add: Adder) -> None:
        refuse_rows(ledger, name)
        ledger.claim_new(name, patterns, files)
        body = {"account": name, "kind": kind, "limits": vars(limits), "sources": list(dict.fromkeys(patterns))}
        add(ANSWERS_OPENED, body)

    ledger.write(step)
    return accounts_of(ledger.state)[name]


def raise_limits(ledger: Ledger, name: str, limits: AnswerLimits) -> AnswersAccount:
    """Raise limits.

    Raises:
        RequestError: one would be lowered, or is wrong.
    """
    limits.check(account_of(ledger, name).kind)

    def step(add: Adder) -> None:
        if not account_of(ledger, name).limits.within(limits):
            raise RequestError(field=f"dataset {name!r}", message="its limits can only be raised")
        add(ANSWERS_RAISED, {"account": name, "limits": vars(limits)})

    ledger.write(step)
    return accounts_of(ledger.state)[name]


def admit_estimate(
    ledger: Ledger,
    account: str,
    run_id: str,
    *,
    askings: Sequence[Asking],
    asked: str,
    content: str,
    params: Mapping[str, str],
    who: str = "",
) -> Run:
    """Charge the questions that were not charged yet, and admit a run that estimates from the answers.

    Args:
        account, run_id: the name of the run.
        askings: the questions; the run estimates from their answers.
        asked: digest of the questions.
        content: digest of the job and the parameters.
        params: the parameters, as text.
        who: for the auditor.

    Returns:
        the run; one that was admitted before charges nothing more.

    Raises:
        RequestError: the account is of another kind; the run id belongs to another job or other parameters.
        BudgetError: people may not be asked this.
    """

    def step(add: Adder) -> None:
        owner = account_of(ledger, account)
        refuse_kind(owner, askings)
        most = {each.key: each for each in sorted(askings, key=lambda each: each.answers)}
        known = ledger.state.runs.get((account, run_id))
        if known is not None and known.state != "abandoned":
            refusals.refuse_other(known, asked, content, "")
            return
        refuse_above(owner, list(most.values()))
        for asking in most.values():
            cost = account_of(ledger, account).cost_of(asking)
            if cost != Cost():
                body = {"account": account, "asking": asking.to_json(), "cost": cost.to_json(), "who": who}
                add(PEOPLE_ASKED, body)
        answers = {key: asking.answers for key, asking in most.items()}
        body = {"account": account, "run_id": run_id, "asked": asked, "content": content, "params": dict(params)}
        add(ESTIMATE_ADMITTED, {**body, "askings": answers, "who": who})

    ledger.write(step)
    return ledger.state.runs[account, run_id]


def refuse_kind(account: AnswersAccount, askings: Iterable[Asking]) -> None:
    """Refuse to charge answers to an account of another kind: with a shuffler or without.

    Raises:
        RequestError: as said.
    """
    for asking in askings:
        if asking.kind != account.kind:
            raise RequestError(
                field=f"dataset {account.name!r}",
                message=f"is an account of kind {account.kind}, whose promise is kept {KINDS[account.kind].by}, and this "
                f"job needs one of kind {asking.kind}",
                hint="give this job another dataset: the two epsilons are never added",
            )


def refuse_above(account: AnswersAccount, askings: Sequence[Asking]) -> None:
    """Refuse questions that exceed a limit of an account.

    Args:
        account: whose.
        askings: all questions of a job, each once.

    Raises:
        BudgetError: names every limit that is in the way, and what would fit.
    """
    limits, reasons, fits = account.limits, [], dict[str, str]()
    highest = units.epsilon_cap(limits.question_epsilon)
    dearest = max((asked for asking in askings for asked in asking.questions), key=lambda asked: asked.cost)
    if dearest.cost > highest:
        reasons.append(
            f"an answer to {dearest.name!r} has local epsilon {dearest.epsilon}, and the account allows "
            f"{epsilon_text(highest)} for one"
        )
        fits["--question-epsilon"] = dearest.epsilon
    total = account.answers_with(askings)
    often = max(
        (asked for asking in askings for asked in asking.questions),
        key=lambda asked: total[asked.document, asked.memoised],
    )
    answers = total[often.document, often.memoised]
    if answers > limits.answers:
        what = "distinct values" if often.memoised else "fresh answers of a person"
        reasons.append(f"{answers} {what} are declared for {often.name!r}, and the account allows {limits.answers}")
        fits["--answers"] = str(answers)
    before, after = account.questions_with(), account.questions_with(askings)
    if len(after) > limits.questions:
        everything = [asked for asking in askings for asked in asking.questions]
        new = dict.fromkeys(repr(asked.name) for asked in everything if (asked.document, asked.memoised) not in before)
        reasons.append(
            f"a person may be asked {limits.questions} questions, {len(before)} were asked, and this asks "
            f"{', '.join(new)} too, which no document that was charged before is"
        )
        fits["--questions"] = str(len(after))
    cost = sum((account.cost_of(asking) for asking in askings), Cost())
    if not cost.within(account.left):
        reasons.append(
            f"this costs a person {_amount(account, cost, up=True)}, and only {_amount(account, account.left)} of "
            f"{_amount(account, limits.cap)} are left"
        )
        needed = account.spent + cost
        fits["--epsilon"] = epsilon_text(max(needed.epsilon, limits.cap.epsilon), up=True)
        if needed.delta > limits.cap.delta:
            fits["--delta"] = delta_text(needed.delta, up=True)
    if reasons:
        options = " ".join(f"{option} {value}" for option, value in fits.items())
        raise BudgetError(
            field=f"account {account.name!r}",
            message="; ".join(reasons),
            hint="`dp-pipelines ledger show` lists what was asked, which costs nothing more; to promise people less, on the "
            f"record: `dp-pipelines ledger raise ... {options}`",
        )


def _amount(account: AnswersAccount, cost: Cost, *, up: bool = False) -> str:
    if not KINDS[account.kind].has_delta:
        return f"local epsilon {epsilon_text(cost.epsilon, up=up)}"
    return f"epsilon {epsilon_text(cost.epsilon, up=up)} and delta {delta_text(cost.delta, up=up)} behind the shuffler"
