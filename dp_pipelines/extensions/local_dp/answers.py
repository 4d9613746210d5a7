"""Accounts of randomized answers from devices: the most that one person's reports may cost, alone or behind a shuffler.

In: the content of events. Out: frozen values. Holds: neighbours are "one person's report changed", so these accounts are of
another type than those of rows, and no sum has both; the same question costs nothing more until more answers of a person are
declared. Not covered: whether devices use the document that was charged, and how often they are asked (docs/collect.md).
"""

import collections
import dataclasses
import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.ledger import events, refusals, units
from dp_pipelines.ledger.entries import Cost, Run

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger
    from dp_pipelines.ledger.state import State

ANSWERS_OPENED = "answers_account_opened"
ANSWERS_RAISED = "answers_limits_raised"
PEOPLE_ASKED = "people_asked"
ESTIMATE_ADMITTED = "estimate_admitted"

LOCAL, SHUFFLED = "local", "shuffled"

NEIGHBOURS = "one person's report changed"
"""The neighbours of such an account, on every page: tables of rows have other neighbours."""


@dataclasses.dataclass(frozen=True)
class AnswersKind:
    """A kind of account.

    Args:
        by: who keeps the promise, and at which point.
        has_delta: True if its promise has a delta.

    >>> [name for name, kind in KINDS.items() if kind.has_delta]
    ['shuffled']
    """

    by: str
    has_delta: bool


KINDS = {
    LOCAL: AnswersKind("by each device, before a report leaves it", False),
    SHUFFLED: AnswersKind("by devices and a shuffler together, of what the shuffler hands on", True),
}
"""The kinds of account."""

_PLAIN = re.compile(r"[0-9]{1,40}(\.[0-9]{1,1000})?", re.ASCII)

MOST = 10**6
"""The most questions, and answers to one, that an account may allow."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerLimits:
    """The most that may ever be asked of one person.

    Args:
        epsilon: of all answers of a person together: of the reports, or of what the shuffler hands on.
        delta: the same; 0 for an account of kind `local`.
        questions: how many different questions a person may be asked.
        answers: how many fresh answers a person may give to one question; of remembered (memoised) answers, for how many
            distinct values devices may keep one.
        question_epsilon: the largest local epsilon of one answer to one question.

    >>> limits = AnswerLimits(epsilon=4.0, questions=2, question_epsilon=2.0)
    >>> limits.check(LOCAL)
    >>> limits.within(dataclasses.replace(limits, questions=3)), limits.within(dataclasses.replace(limits, epsilon=3.0))
    (True, False)
    """

    epsilon: float
    delta: float = 0.0
    questions: int
    answers: int = 1
    question_epsilon: float

    @property
    def cap(self) -> Cost:
        """Return epsilon and delta in whole units, rounded down."""
        return Cost(epsilon=units.epsilon_cap(self.epsilon), delta=units.delta_cap(self.delta))

    def within(self, other: "AnswerLimits") -> bool:
        """Return True if no limit is above the other's."""
        mine, others = vars(self), vars(other)
        return all(mine[name] <= others[name] for name in mine)

    def check(self, kind: str) -> None:
        """Refuse limits that no account may have.

        Raises:
            RequestError: names the one that is wrong.
        """
        if kind not in KINDS:
            raise RequestError(field="kind", message="must be one of " + ", ".join(KINDS))
        refusals.above(self.epsilon, "epsilon")
        if KINDS[kind].has_delta:
            refusals.above(self.delta, "delta")
        elif self.delta != 0:
            raise RequestError(
                field="delta",
                message="is 0 for accounts of kind local: what a device promises has none",
                hint="drop it",
            )
        checks.whole(self.questions, "questions", low=1, high=MOST)
        checks.whole(self.answers, "answers", low=1, high=MOST)
        checks.number(self.question_epsilon, "question_epsilon", above=0, below=units.LARGEST_EPSILON)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AskedQuestion:
    """A question as an account knows it.

    Args:
        name: what its document calls it.
        document: SHA-256 of the document in the one spelling of `Question.to_json`.
        mechanism: how devices answer.
        epsilon: the local epsilon of one answer, as decimal text.
        memoised: whether devices remember their answers and repeat them.
    """

    name: str
    document: str
    mechanism: str
    epsilon: str
    memoised: bool = False

    @property
    def cost(self) -> int:
        """Return the epsilon of one answer in whole units, rounded up.

        >>> AskedQuestion(name="q", document="", mechanism="d_ary", epsilon="0.1000000000001").cost
        100000000001
        """
        if not _PLAIN.fullmatch(
            self.epsilon
        ):  # with an exponent, a short text could mean a number that fills the memory
            raise ValueError("epsilon is written without an exponent")
        return math.ceil(Fraction(Decimal(self.epsilon)) / units.EPSILON_UNIT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shuffling:
    """The guarantee of a shuffler for a person's report.

    Args:
        honest_reports: at least how many people answer honestly, as declared.
        epsilon, delta: of what it hands on.

    >>> Shuffling(honest_reports=1_000_000, epsilon=0.0195, delta=1e-6).honest_reports
    1000000
    """

    honest_reports: int
    epsilon: float
    delta: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asking:
    """A question that a person is asked, and how often; behind a shuffler all questions of one row.

    Args:
        questions: in any order.
        answers: see `AnswerLimits`.
        shuffling: None where reports come from the devices themselves.

    >>> age = AskedQuestion(name="age", document="7d1f", mechanism="unary", epsilon="1")
    >>> Asking(questions=(age,), answers=2).key == Asking(questions=(age,)).key
    True
    """

    questions: tuple[AskedQuestion, ...]
    answers: int = 1
    shuffling: Shuffling | None = None

    @property
    def kind(self) -> str:
        """Return the kind of account that it is charged to."""
        return LOCAL if self.shuffling is None else SHUFFLED

    @property
    def key(self) -> str:
        """Return its identity: a digest of the documents, whether answers are remembered, and the declared shuffler.

        Names of stages, jobs and files are no part of it; the name of a question is a part of its document.
        """
        asked = sorted([asked.document, asked.memoised] for asked in self.questions)
        through = self.shuffling and [self.shuffling.honest_reports, self.shuffling.delta]
        return hashlib.sha256(events.canonical({"questions": asked, "through": through}).encode()).hexdigest()

    @property
    def each(self) -> Cost:
        """Return the cost of one answer."""
        if self.shuffling is None:
            return Cost(epsilon=sum(question.cost for question in self.questions))
        return Cost(
            epsilon=units.charge(self.shuffling.epsilon, units.EPSILON_UNIT),
            delta=units.delta_charge(self.shuffling.delta),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values for events and exports."""
        return dataclasses.asdict(self) | {"questions": [vars(question) for question in self.questions]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Asking":
        """Return the asking that `to_json` wrote.

        Raises:
            LookupError, TypeError, ValueError: the values are not of this form.
        """
        questions = tuple(AskedQuestion(**one) for one in values["questions"])
        through = values["shuffling"]
        asking = cls(
            questions=questions,
            answers=int(values["answers"]),
            shuffling=None if through is None else Shuffling(**through),
        )
        if not questions or asking.answers < 1 or min(one.cost for one in questions) <= 0:
            raise ValueError("nobody is asked")
        return asking


def answers_by_question(askings: Iterable[Asking]) -> dict[tuple[str, bool], int]:
    """Count the answers that a person who is asked all of these gives to each question, remembered and fresh ones separately.

    >>> age = AskedQuestion(name="age", document="7d1f", mechanism="unary", epsilon="1")
    >>> answers_by_question([Asking(questions=(age, age)), Asking(questions=(age,), answers=3)])
    {('7d1f', False): 5}
    """
    counts = collections.Counter[tuple[str, bool]]()
    for asking in askings:
        for question in asking.questions:
            counts[question.document, question.memoised] += asking.answers
    return dict(counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswersAccount:
    """A group of people whose devices answer, and the most that may be asked of each.

    Args:
        name: the `dataset` of job files.
        kind: `local` or `shuffled`.
        limits: the most that may ever be asked.
        sources: patterns of files of reports that belong to this account.
        asked: what was asked, by `Asking.key`, with the most answers that were declared.
        spent: what that costs one person.
        estimates: how many runs were admitted; they cost nothing.

    >>> limits = AnswerLimits(epsilon=3.0, questions=2, question_epsilon=2.0)
    >>> age = AskedQuestion(name="age", document="7d1f", mechanism="unary", epsilon="1")
    >>> account = AnswersAccount(name="visits", kind=LOCAL, limits=limits).charged(Asking(questions=(age,)))
    >>> units.epsilon_of(account.left.epsilon), account.cost_of(Asking(questions=(age,))) == Cost()
    (2.0, True)
    """

    name: str
    kind: str
    limits: AnswerLimits
    sources: tuple[str, ...] = ()
    asked: dict[str, Asking] = dataclasses.field(default_factory=dict)
    spent: Cost = dataclasses.field(default_factory=Cost)
    estimates: int = 0

    file_hint: ClassVar[str] = "its rows are reports of devices, which only a job of collected stages reads"
    charge_stays: ClassVar[str] = "its questions stay charged, because people have answered them"

    def with_sources(self, sources: tuple[str, ...]) -> "AnswersAccount":
        """See `OtherAccount`."""
        return dataclasses.replace(self, sources=sources)

    def not_of_tables(self, shown: str) -> RequestError:
        """See `OtherAccount`."""
        return RequestError(
            field=f"dataset {self.name!r}",
            message=f"is an account of kind {self.kind} in the ledger {shown}, whose neighbours are {NEIGHBOURS}: "
            "its epsilon is never added to that of tables",
            hint="give this job another dataset; only stages of kind collected may name that account",
        )

    def to_json(self) -> dict[str, Any]:
        """See `OtherAccount`."""
        from dp_pipelines.extensions.local_dp import answers_export

        return answers_export.account_to_json(self)

    def run_to_json(self, run: Run) -> dict[str, Any]:
        """See `OtherAccount`."""
        from dp_pipelines.extensions.local_dp import answers_export

        return answers_export.run_to_json(run)

    def spent_json(self, ledger: "Ledger", run: Run) -> dict[str, Any]:
        """See `OtherAccount`."""
        from dp_pipelines.extensions.local_dp import answers_export

        return answers_export.spent(ledger, run)

    @property
    def left(self) -> Cost:
        """Return the budget that is left for questions to a person."""
        return self.limits.cap - self.spent

    def cost_of(self, asking: Asking) -> Cost:
        """Return the cost of asking now: answers that were charged before cost nothing."""
        known = self.asked.get(asking.key)
        more = max(asking.answers - (known.answers if known is not None else 0), 0)
        return Cost(epsilon=asking.each.epsilon * more, delta=asking.each.delta * more)

    def questions_with(self, askings: Iterable[Asking] = ()) -> set[tuple[str, bool]]:
        """Return the different questions of a person so far and with these: remembered and fresh answers to one are two."""
        return set(answers_by_question([*self.asked.values(), *askings]))

    def answers_with(self, askings: Iterable[Asking] = ()) -> dict[tuple[str, bool], int]:
        """Count the answers that a person may give to each question, so far and with these, in all rows of a shuffler."""
        everything = dict(self.asked)
        for asking in askings:
            known = everything.get(asking.key)
            everything[asking.key] = asking if known is None or known.answers < asking.answers else known
        return answers_by_question(everything.values())

    def charged(self, asking: Asking) -> "AnswersAccount":
        """Return the account after the questions were charged.

        Raises:
            ValueError: it costs nothing, is of another kind, or a limit does not allow it.
        """
        cost, limits = self.cost_of(asking), self.limits
        spent = self.spent + cost
        highest = units.epsilon_cap(limits.question_epsilon)
        allowed = (
            asking.kind == self.kind
            and cost != Cost()
            and spent.within(limits.cap)
            and len(self.questions_with([asking])) <= limits.questions
            and max(self.answers_with([asking]).values()) <= limits.answers
            and all(question.cost <= highest for question in asking.questions)
            and not (asking.shuffling is not None and any(question.memoised for question in asking.questions))
        )
        if not allowed:
            raise ValueError("an account is never above its limits")
        return dataclasses.replace(self, spent=spent, asked={**self.asked, asking.key: asking})


def accounts_of(state: "State") -> dict[str, AnswersAccount]:
    """Return the accounts of answers of a ledger by name."""
    return {name: account for name, account in state.others.items() if isinstance(account, AnswersAccount)}
