"""Any order of questions, runs, raised limits, crashes and two processes: a model keeps what was asked, the ledger keeps it too.

Holds after each step: no person is asked more than the limits allow, what is charged is the price of the most answers to each
question, nothing is given back, tables are not touched, and the events alone give the same state again.
"""

import dataclasses
import os
import pathlib
import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.extensions.local_dp import answers_ledger
from dp_pipelines.extensions.local_dp.answers import AnswerLimits, AskedQuestion, Asking, accounts_of
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.ledger.state import State
from tests.helpers import ledgers

QUESTIONS = {name: (price, 10**11 * price) for name, price in (("a", 5), ("b", 10), ("c", 20), ("d", 1))}
ASKED = st.lists(
    st.tuples(st.sampled_from(sorted(QUESTIONS)), st.booleans(), st.integers(1, 3)), min_size=1, max_size=3
)


def asking(name: str, memoised: bool, answers: int) -> Asking:
    epsilon = str(QUESTIONS[name][0] / 10)
    asked = AskedQuestion(name=name, document=name, mechanism="d_ary", epsilon=epsilon, memoised=memoised)
    return Asking(questions=(asked,), answers=answers)


class Asked(RuleBasedStateMachine):
    """One account of answers beside one of tables, and two processes that hold the ledger open."""

    @initialize()
    def begin(self) -> None:
        memory = pathlib.Path("/dev/shm")
        self.folder = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
        os.environ["XDG_STATE_HOME"] = self.folder
        self.url = f"{self.folder}/ledger.sqlite"
        ledger = ledgers.with_account(self.url)
        self.limits = AnswerLimits(epsilon=4.0, questions=3, answers=2, question_epsilon=1.0)
        answers_ledger.open_account(ledger, "v", kind="local", limits=self.limits)
        self.handles = [ledger, Ledger.open(self.url)]
        self.most: dict[tuple[str, bool], int] = {}
        self.admitted: dict[str, str] = {}

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def allowed(self, asked: dict[tuple[str, bool], int]) -> bool:
        """Whether the limits allow these beside what was asked."""
        most = {key: max(self.most.get(key, 0), asked.get(key, 0)) for key in self.most.keys() | asked.keys()}
        price = sum(QUESTIONS[name][1] * answers for (name, _), answers in most.items())
        return (
            price <= round(self.limits.epsilon * 10**12)
            and len(most) <= self.limits.questions
            and max(asked.values()) <= self.limits.answers
            and max(QUESTIONS[name][0] for name, _ in asked) <= 10 * self.limits.question_epsilon
        )

    @rule(who=st.integers(0, 1), run=st.sampled_from("rstu"), asked=ASKED)
    def admit(self, who: int, run: str, asked: list[tuple[str, bool, int]]) -> None:
        most: dict[tuple[str, bool], int] = {}
        for name, memoised, answers in asked:
            most[name, memoised] = max(most.get((name, memoised), 0), answers)
        digest = str(sorted(most.items()))
        try:
            answers_ledger.admit_estimate(
                self.handles[who],
                "v",
                run,
                askings=[asking(*one) for one in asked],
                asked=digest,
                content="c",
                params={},
            )
        except BudgetError:
            assert not self.allowed(most)
            return
        except RequestError:
            assert self.admitted[run] != digest
            return
        if run in self.admitted:
            assert self.admitted[run] == digest
        else:
            assert self.allowed(most)
            self.most |= {key: max(self.most.get(key, 0), answers) for key, answers in most.items()}
            self.admitted[run] = digest

    @rule(who=st.integers(0, 1), run=st.sampled_from("rstu"))
    def give_up(self, who: int, run: str) -> None:
        self.handles[who].refresh()
        known = self.handles[who].run("v", run)
        if known is not None and known.state == "reserved":
            assert self.handles[who].abandon(known).given_back is False
            del self.admitted[run]

    @rule(who=st.integers(0, 1), run=st.sampled_from("rstu"))
    def finish(self, who: int, run: str) -> None:
        self.handles[who].refresh()
        known = self.handles[who].run("v", run)
        if known is not None and known.state == "reserved":
            assert ledgers.finish(self.handles[who], known).committed

    @rule(
        who=st.integers(0, 1),
        name=st.sampled_from(["epsilon", "questions", "answers", "question_epsilon"]),
        up=st.booleans(),
    )
    def raise_a_limit(self, who: int, name: str, up: bool) -> None:
        now = getattr(self.limits, name)
        changed = dataclasses.replace(self.limits, **{name: now + 1 if up else now - (1 if now > 1 else 0)})
        try:
            answers_ledger.raise_limits(self.handles[who], "v", changed)
        except RequestError:
            assert not self.limits.within(changed)
            return
        self.limits = changed

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        self.handles[who] = Ledger.open(self.url)

    @invariant()
    def what_was_asked_is_what_is_charged(self) -> None:
        if not hasattr(self, "handles"):
            return
        ledger, again = Ledger.open(self.url), State()
        for event in ledger.history:
            again.apply(event)
        assert again == ledger.state
        account = accounts_of(ledger.state)["v"]
        held = {(q.name, q.memoised): asked.answers for asked in account.asked.values() for q in asked.questions}
        assert held == self.most
        assert account.spent.epsilon == sum(QUESTIONS[name][1] * n for (name, _), n in self.most.items())
        assert account.spent.within(account.limits.cap)
        assert account.limits == self.limits
        assert ledger.state.accounts[ledgers.ACCOUNT].spent == {}


TestAsked = Asked.TestCase
TestAsked.settings = settings(
    max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip
