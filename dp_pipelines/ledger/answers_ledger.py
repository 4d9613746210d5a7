"""Operations of a ledger on accounts of answers: open them, raise their limits, charge questions, admit estimates.

In: an open journal, questions to people. Out: accounts, admitted runs, refusals. Holds: one step charges all questions of a job
and admits its run, or does nothing; a name or a file is never an account's of rows and of answers; nothing is given back, since
people have answered. Not covered: the life of a run after it was admitted, which is that of all runs (`ledger`).
"""

from collections.abc import Iterable, Mapping, Sequence

from dp_pipelines import checks
from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.ledger import events, refusals, sources, units
from dp_pipelines.ledger.answers import KINDS, NEIGHBOURS, AnswerLimits, AnswersAccount, Asking
from dp_pipelines.ledger.entries import Account, Cost, Run
from dp_pipelines.ledger.journal import Adder, Journal
from dp_pipelines.ledger.rules import delta_text, epsilon_text


class AnswersLedger(Journal):
    """The operations of a ledger on accounts of answers.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> ledger = AnswersLedger.create(str(folder / "ledger.sqlite"), anchor=str(folder / "anchor"))
    >>> limits = AnswerLimits(epsilon=3.0, questions=2, question_epsilon=2.0)
    >>> ledger.open_answers("visits", kind="local", limits=limits).left == limits.cap
    True
    """

    def answers_account(self, name: str) -> AnswersAccount:
        """Return an account of answers.

        Raises:
            RequestError: there is none with that name, or it is one of rows.
        """
        self.refuse_rows(name)
        if name not in self.state.answers:
            known = ", ".join(self.state.answers) or "none"
            raise RequestError(
                field=f"dataset {name!r}",
                message=f"has no account of answers in the ledger {self.shown}",
                hint=f"open one with `dp-pipelines ledger init --kind local`; existing accounts of answers: {known}",
            )
        return self.state.answers[name]

    def refuse_answers(self, name: str) -> None:
        """Refuse an account of answers if one of rows is expected.

        Raises:
            RequestError: it is one.
        """
        account = self.state.answers.get(name)
        if account is not None:
            raise RequestError(
                field=f"dataset {name!r}",
                message=f"is an account of kind {account.kind} in the ledger {self.shown}, whose neighbours are {NEIGHBOURS}: "
                "its epsilon is never added to that of tables",
                hint="give this job another dataset; only stages of kind collected may name that account",
            )

    def refuse_rows(self, name: str) -> None:
        """Refuse an account of rows if one of answers is expected.

        Raises:
            RequestError: it is one.
        """
        account = self.state.accounts.get(name)
        if account is not None:
            raise RequestError(
                field=f"dataset {name!r}",
                message=f"is an account of tables in the ledger {self.shown}, which protects all rows of each {account.words}: "
                "the epsilon of answers is never added to it",
                hint="give this job another dataset; stages of kind collected need an account of kind local or shuffled",
            )

    def open_answers(
        self, name: str, *, kind: str, limits: AnswerLimits, patterns: Sequence[str] = (), files: Sequence[str] = ()
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
            self.refuse_rows(name)
            self._claim_new(name, patterns, files)
            body = {"account": name, "kind": kind, "limits": vars(limits), "sources": list(dict.fromkeys(patterns))}
            add(events.ANSWERS_OPENED, body)

        self._write(step)
        return self.state.answers[name]

    def raise_answers(self, name: str, limits: AnswerLimits) -> AnswersAccount:
        """Raise limits.

        Raises:
            RequestError: one would be lowered, or is wrong.
        """
        limits.check(self.answers_account(name).kind)

        def step(add: Adder) -> None:
            if not self.answers_account(name).limits.within(limits):
                raise RequestError(field=f"dataset {name!r}", message="its limits can only be raised")
            add(events.ANSWERS_RAISED, {"account": name, "limits": vars(limits)})

        self._write(step)
        return self.state.answers[name]

    def admit_estimate(
        self,
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
            owner = self.answers_account(account)
            refuse_kind(owner, askings)
            most = {each.key: each for each in sorted(askings, key=lambda each: each.answers)}
            known = self.state.runs.get((account, run_id))
            if known is not None and known.state != "abandoned":
                refusals.refuse_other(known, asked, content, "")
                return
            refuse_above(owner, list(most.values()))
            for asking in most.values():
                cost = self.answers_account(account).cost_of(asking)
                if cost != Cost():
                    body = {"account": account, "asking": asking.to_json(), "cost": cost.to_json(), "who": who}
                    add(events.PEOPLE_ASKED, body)
            answers = {key: asking.answers for key, asking in most.items()}
            body = {"account": account, "run_id": run_id, "asked": asked, "content": content, "params": dict(params)}
            add(events.ESTIMATE_ADMITTED, {**body, "askings": answers, "who": who})

        self._write(step)
        return self.state.runs[account, run_id]

    def claim_source(self, name: str, source: str, files: Sequence[str] = ()) -> None:
        """Register a pattern of files with an account of either sort, unless it already is.

        Args:
            name: the account's name.
            source: the pattern, as `sources.absolute` returns it.
            files: the files that match it now. For links, their targets are registered too.

        Raises:
            RequestError: the pattern, or one of the files, belongs to another account.
        """
        patterns = [source, *sources.behind_links(source, files)]
        self.refuse_foreign(name, source, files)
        if set(patterns) <= set(self._owner(name).sources):
            return

        def step(add: Adder) -> None:
            self.refuse_foreign(name, source, files)
            for one in patterns:
                if one not in self._owner(name).sources:
                    add(events.SOURCE_REGISTERED, {"account": name, "source": one})

        self._write(step)

    def refuse_foreign(self, name: str, source: str, files: Sequence[str] = ()) -> None:
        """Refuse a pattern of files, or files, that belong to another account than the named one.

        Raises:
            RequestError: they do.
        """
        refusals.foreign(self.state.owners, name, source, files)

    def _owner(self, name: str) -> Account | AnswersAccount:
        return self.state.answers[name] if name in self.state.answers else self.state.accounts[name]

    def _claim_new(self, name: str, patterns: Sequence[str], files: Sequence[str]) -> None:
        """Make sure that the name and files of a new account belong to no other one."""
        if name in [other.name for other in self.state.owners]:
            raise RequestError(
                field=f"dataset {name!r}",
                message=f"already has an account in the ledger {self.shown}",
                hint="raise its cap with `dp-pipelines ledger raise`",
            )
        for pattern in patterns:
            self.refuse_foreign(name, pattern, files)
        self._anchor.claim(name)


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
