"""Accounts of answers: what a person may be asked, what is charged once, and that nothing of it meets an account of tables.

In: SQLite and PostgreSQL. Out: charges, refusals, states that events give back. Holds: each way to avoid a charge that was tried
stands here as a test. Not covered: jobs and commands (`tests/extensions/local_dp`).
"""

import dataclasses
import json
import shutil
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.errors import BudgetError, LedgerError, RequestError
from dp_pipelines.extensions.local_dp import answers_export, answers_ledger
from dp_pipelines.extensions.local_dp.answers import (
    ANSWERS_OPENED,
    ANSWERS_RAISED,
    ESTIMATE_ADMITTED,
    NEIGHBOURS,
    PEOPLE_ASKED,
    AnswerLimits,
    AnswersAccount,
    AskedQuestion,
    Asking,
    Shuffling,
    accounts_of,
)
from dp_pipelines.ledger import events, export, units
from dp_pipelines.ledger.entries import Cost, Run
from dp_pipelines.ledger.events import chained
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.ledger.state import State
from dp_pipelines.report import ledger_page
from tests.helpers import ledgers
from tests.helpers.source import ROOT

GOLDEN = ROOT / "tests" / "ledger" / "golden" / "ledger_0_1_0.sqlite"
"""A ledger that version 0.1.0 has written."""

LIMITS = AnswerLimits(epsilon=3.0, questions=2, answers=2, question_epsilon=2.0)
BEHIND = AnswerLimits(epsilon=1.0, delta=2e-6, questions=2, answers=2, question_epsilon=4.0)
SHUFFLING = Shuffling(honest_reports=100_000, epsilon=0.3, delta=1e-6)


def question(name: str = "visited", epsilon: str = "1", *, memoised: bool = False) -> AskedQuestion:
    return AskedQuestion(
        name=name, document=f"document of {name}, {epsilon}", mechanism="d_ary", epsilon=epsilon, memoised=memoised
    )


def local(*questions: AskedQuestion, answers: int = 1) -> list[Asking]:
    return [Asking(questions=(asked,), answers=answers) for asked in questions]


def shuffled(*questions: AskedQuestion, answers: int = 1, shuffling: Shuffling = SHUFFLING) -> list[Asking]:
    return [Asking(questions=questions, answers=answers, shuffling=shuffling)]


def opened(url: str, name: str = "visits", *, kind: str = "local", limits: AnswerLimits = LIMITS) -> Ledger:
    ledger = Ledger.open_or_create(url)
    answers_ledger.open_account(ledger, name, kind=kind, limits=limits, patterns=[f"/{name}/*.parquet"])
    return ledger


def admit(ledger: Ledger, run_id: str, askings: list[Asking], *, account: str = "visits", asked: str = "") -> Run:
    digest = asked or json.dumps([[asking.key, asking.answers] for asking in askings])
    return answers_ledger.admit_estimate(
        ledger, account, run_id, askings=askings, asked=digest, content="c", params={}, who="ann@host"
    )


def spent(ledger: Ledger, account: str = "visits") -> float:
    return units.epsilon_of(accounts_of(ledger.state)[account].spent.epsilon)


def test_a_question_is_charged_once_whatever_estimates_from_it_later(url: str) -> None:
    ledger = opened(url)
    admit(ledger, "monday", local(question()))
    assert spent(ledger) == 1
    admit(ledger, "tuesday", local(question()))
    admit(ledger, "tuesday", local(question()))
    assert spent(ledger) == 1
    admit(ledger, "wednesday", local(question(), question("age", "2")))
    assert spent(ledger) == 3
    assert accounts_of(ledger.state)["visits"].estimates == 3
    again = Ledger.open(url)
    assert again.state == ledger.state
    assert again.verify() == 2 + 2 + 3


def test_all_questions_of_a_job_are_charged_or_none_is(url: str) -> None:
    ledger = opened(url)
    with pytest.raises(
        BudgetError, match=r"costs a person local epsilon 3\.5, and only local epsilon 3 of local epsilon 3"
    ):
        admit(ledger, "r", local(question("a", "1.5"), question("b", "2")))
    assert spent(ledger) == 0
    assert ledger.run("visits", "r") is None
    assert len(ledger.history) == 2


def test_a_refusal_names_each_limit_and_the_command_that_would_allow_it(url: str) -> None:
    ledger = opened(url)
    admit(ledger, "r", local(question()))
    with pytest.raises(BudgetError) as refused:
        admit(ledger, "s", local(question("a", "2.5"), question("b", "0.1"), answers=3))
    for words in (
        "local epsilon 2.5, and the account allows 2",
        "3 fresh answers",
        "may be asked 2 questions, 1 were asked",
    ):
        assert words in refused.value.message
    assert "--question-epsilon 2.5 --answers 3 --questions 3 --epsilon 8.8" in refused.value.hint
    raised = dataclasses.replace(LIMITS, question_epsilon=2.5, answers=3, questions=3, epsilon=8.8)
    answers_ledger.raise_limits(ledger, "visits", raised)
    admit(ledger, "s", local(question("a", "2.5"), question("b", "0.1"), answers=3))
    assert accounts_of(ledger.state)["visits"].left == Cost()


def test_limits_can_only_be_raised_and_stay_those_of_the_kind(url: str) -> None:
    ledger = opened(url)
    for lower in ({"epsilon": 2.0}, {"questions": 1}, {"answers": 1}, {"question_epsilon": 1.0}):
        with pytest.raises(RequestError, match="can only be raised"):
            answers_ledger.raise_limits(ledger, "visits", dataclasses.replace(LIMITS, **lower))
    with pytest.raises(RequestError, match="delta: is 0 for accounts of kind local"):
        answers_ledger.raise_limits(ledger, "visits", dataclasses.replace(LIMITS, delta=1e-6))
    assert len(ledger.history) == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"delta": 1e-6}, "delta"),
        ({"questions": 0}, "questions"),
        ({"questions": True}, "questions"),
        ({"answers": 0}, "answers"),
        ({"question_epsilon": 0.0}, "question_epsilon"),
    ],
)
def test_limits_that_are_none_are_refused(sqlite: str, changes: dict[str, float], field: str) -> None:
    ledger = Ledger.create(sqlite)
    with pytest.raises(RequestError) as refused:
        answers_ledger.open_account(ledger, "visits", kind="local", limits=dataclasses.replace(LIMITS, **changes))
    assert refused.value.field == field
    with pytest.raises(RequestError, match="kind: must be one of local, shuffled"):
        answers_ledger.open_account(ledger, "visits", kind="reserved", limits=LIMITS)
    assert accounts_of(ledger.state) == {}


def test_more_answers_cost_what_was_not_charged_yet(url: str) -> None:
    ledger = opened(url)
    admit(ledger, "a", local(question()))
    admit(ledger, "b", local(question(), answers=2))
    assert spent(ledger) == 2
    admit(ledger, "c", local(question()))
    assert spent(ledger) == 2
    with pytest.raises(
        BudgetError, match="3 fresh answers of a person are declared for 'visited', and the account allows 2"
    ):
        admit(ledger, "d", local(question(), answers=3))


def test_remembered_answers_cost_epsilon_for_each_distinct_value(url: str) -> None:
    ledger = opened(url)
    admit(ledger, "a", local(question(memoised=True), answers=2))
    assert spent(ledger) == 2
    with pytest.raises(BudgetError, match="3 distinct values are declared"):
        admit(ledger, "b", local(question(memoised=True), answers=3))
    # Fresh answers to the same question are further answers: a remembered one says nothing of them.
    admit(ledger, "c", local(question()))
    assert spent(ledger) == 3
    assert len(accounts_of(ledger.state)["visits"].questions_with()) == 2


def test_a_question_that_is_renamed_or_changed_is_a_new_charge(url: str) -> None:
    ledger = opened(url, limits=dataclasses.replace(LIMITS, questions=9, epsilon=9.0))
    for number, asked in enumerate(
        [question(), question("visited too"), question(epsilon="0.5"), question(memoised=True)]
    ):
        before = spent(ledger)
        admit(ledger, f"r{number}", local(asked))
        assert spent(ledger) == before + float(asked.epsilon)


def test_a_run_id_stands_for_one_job(url: str) -> None:
    ledger = opened(url)
    admit(ledger, "r", local(question()))
    with pytest.raises(RequestError, match="was charged for another plan"):
        admit(ledger, "r", local(question("age")))
    assert spent(ledger) == 1


def test_an_abandoned_estimate_gives_nothing_back_since_people_have_answered(url: str) -> None:
    ledger = opened(url)
    run = admit(ledger, "r", local(question()))
    assert ledger.abandon(run).given_back is False
    assert spent(ledger) == 1
    again = admit(ledger, "r", local(question()))
    assert (again.state, again.round) == ("reserved", 2)
    assert spent(ledger) == 1
    assert ledgers.finish(ledger, again).state == "published"
    assert Ledger.open(url).state == ledger.state


def test_a_release_is_kept_and_given_back_as_of_tables(url: str) -> None:
    ledger = opened(url)
    run = ledgers.finish(
        ledger, admit(ledger, "r", local(question())), {"a.parquet": b"estimates", "manifest.json": b"{}"}
    )
    assert Ledger.open(url).release(run) == {"a.parquet": b"estimates", "manifest.json": b"{}"}


@pytest.mark.parametrize("kind", ["local", "shuffled"])
def test_accounts_of_answers_and_of_tables_never_stand_for_each_other(url: str, kind: str) -> None:
    ledger = opened(url, kind=kind, limits=LIMITS if kind == "local" else BEHIND)
    ledgers.open_account(ledger)
    before = len(ledger.history)
    tables, answers = ledgers.ACCOUNT, "visits"
    words = f"is an account of kind {kind} .* whose neighbours are {NEIGHBOURS}"
    for_answers, of_files = "is an account of tables .* which protects all rows of each customer", "reports of devices"
    attempts = [
        (lambda: ledger.account(answers), words),
        (lambda: ledgers.open_account(ledger, answers), words),
        (lambda: ledger.raise_cap(answers, epsilon=9.0, delta=1e-5), words),
        (lambda: ledgers.admit(ledger, "r", account=answers), words),
        (lambda: answers_ledger.account_of(ledger, tables), for_answers),
        (
            lambda: answers_ledger.open_account(
                ledger, tables, kind=kind, limits=LIMITS if kind == "local" else BEHIND
            ),
            for_answers,
        ),
        (lambda: answers_ledger.raise_limits(ledger, tables, LIMITS), for_answers),
        (lambda: admit(ledger, "r", local(question()), account=tables), for_answers),
        (lambda: ledger.claim_source(tables, "/visits/*.parquet"), of_files),
        (lambda: ledgers.open_account(ledger, "other", patterns=["/visits/*.parquet"]), of_files),
    ]
    for attempt, told in attempts:
        with pytest.raises(RequestError, match=told) as refused:
            attempt()
        assert not isinstance(refused.value, BudgetError)
    assert len(ledger.history) == before
    assert ledger.state.accounts[tables].spent == {}


def test_local_and_shuffled_accounts_never_stand_for_each_other(url: str) -> None:
    ledger = opened(url)
    answers_ledger.open_account(ledger, "mixed", kind="shuffled", limits=BEHIND)
    with pytest.raises(RequestError, match="this job needs one of kind shuffled"):
        admit(ledger, "r", shuffled(question()))
    with pytest.raises(RequestError, match="this job needs one of kind local"):
        admit(ledger, "r", local(question()), account="mixed")
    assert len(ledger.history) == 3


def test_behind_a_shuffler_a_row_is_charged_as_one_report(url: str) -> None:
    ledger = opened(url, kind="shuffled", limits=BEHIND)
    admit(ledger, "r", shuffled(question(), question("age")))
    admit(ledger, "s", shuffled(question("age"), question()))
    account = accounts_of(ledger.state)["visits"]
    assert account.spent == Cost(epsilon=300_000_000_000, delta=units.delta_charge(1e-6))
    assert len(account.questions_with()) == 2
    # Fewer honest people are another promise of what the shuffler has handed on, and so is each question alone.
    fewer = dataclasses.replace(SHUFFLING, honest_reports=50_000, epsilon=0.5)
    admit(ledger, "t", shuffled(question(), question("age"), shuffling=fewer))
    assert units.epsilon_of(accounts_of(ledger.state)["visits"].spent.epsilon) == 0.8
    with pytest.raises(
        BudgetError, match=r"epsilon 0\.3 and delta 1e-06 behind the shuffler, and only epsilon 0\.2 and delta 0"
    ):
        admit(ledger, "u", shuffled(question()))


def test_a_batch_more_is_charged_as_often_as_people_are_in_one(url: str) -> None:
    ledger = opened(url, kind="shuffled", limits=BEHIND)
    admit(ledger, "r", shuffled(question(), answers=2))
    account = accounts_of(ledger.state)["visits"]
    assert account.spent == Cost(epsilon=600_000_000_000, delta=2 * units.delta_charge(1e-6))


def test_another_declaration_or_row_does_not_pass_the_limit_of_answers(url: str) -> None:
    ledger = opened(url, kind="shuffled", limits=dataclasses.replace(BEHIND, answers=1))
    admit(ledger, "r", shuffled(question()))
    fewer = dataclasses.replace(SHUFFLING, honest_reports=99_999)
    for askings in (shuffled(question(), shuffling=fewer), shuffled(question(), question("age"))):
        with pytest.raises(
            BudgetError, match="^account 'visits': 2 fresh answers of a person are declared for 'visited'"
        ):
            admit(ledger, "s", askings)
    with pytest.raises(BudgetError, match="^account 'visits': 2 fresh answers of a person are declared for 'age'"):
        admit(ledger, "t", shuffled(question("age"), question("age")))
    admit(ledger, "u", shuffled(question("age")))


def test_two_processes_that_ask_at_once_never_ask_too_much(url: str) -> None:
    first, other = opened(url), Ledger.open(url)
    admit(first, "a", local(question("a", "2")))
    with pytest.raises(BudgetError, match="only local epsilon 1 of local epsilon 3 are left"):
        admit(other, "b", local(question("b", "2")))
    assert other.state == first.state


def test_a_ledger_without_such_accounts_has_no_trace_of_them(sqlite: str) -> None:
    ledger = ledgers.with_account(sqlite)
    ledgers.finish(ledger, ledgers.admit(ledger, "r"))
    new = {ANSWERS_OPENED, ANSWERS_RAISED, PEOPLE_ASKED, ESTIMATE_ADMITTED}
    assert not new & {event.kind for event in ledger.history}


def test_exports_keep_both_sorts_apart_and_state_the_neighbours(sqlite: str) -> None:
    ledger = opened(sqlite)
    ledgers.open_account(ledger)
    ledgers.admit(ledger, "t")
    admit(ledger, "r", local(question()))
    told = export.to_json(ledger)
    assert [account["account"] for account in told["accounts"]] == [ledgers.ACCOUNT]
    (account,) = told["answers_accounts"]
    assert (account["neighbours"], account["spent"]["epsilon"], account["left"]["epsilon"]) == (NEIGHBOURS, 1.0, 2.0)
    assert [run["runs"] for run in told["runs"]] == [1, None]
    lines = export.to_csv(ledger).splitlines()
    columns = lines[0].split(",")
    of_tables = [line.split(",")[columns.index("epsilon")] for line in lines if ",people_asked," in line]
    of_answers = [line.split(",")[columns.index("answers_epsilon")] for line in lines if ",people_asked," in line]
    assert (of_tables, of_answers) == ([""], ["1.0"])
    page = ledger_page.render(told)
    assert page.count("one person&#39;s report changed") == 1
    assert "visited (d_ary, local epsilon 1), answers: 1" in page
    assert "The chain breaks" not in page


def test_a_manifest_states_the_account_its_neighbours_and_the_head(sqlite: str) -> None:
    ledger = opened(sqlite)
    run = admit(ledger, "r", local(question()))
    told = answers_export.spent(ledger, run)
    assert (told["kind"], told["neighbours"], told["estimate"]) == ("local", NEIGHBOURS, 1)
    assert told["head"] == {"seq": ledger.head.seq, "hash": ledger.head.hash}


OPENED = {"account": "v", "kind": "local", "limits": vars(LIMITS), "sources": ["/v/*"]}
ASKED = {
    "account": "v",
    "asking": local(question())[0].to_json(),
    "cost": {"epsilon": str(10**12), "delta": "0"},
    "who": "",
}
KEY = local(question())[0].key
ADMITTED = {"account": "v", "run_id": "r", "asked": "x", "content": "c", "params": {}, "askings": {KEY: 1}, "who": ""}
TABLES = {
    "account": "a", "unit": ["u"], "words": "one u", "epsilon": 1.0, "delta": 1e-6, "cap": {"epsilon": "100", "delta": "10"},
    "rule": "reserved", "order": "", "window": None, "sources": ["/data/*.parquet"],
}  # fmt: skip
LIFE = [
    (events.LEDGER_CREATED, {"ledger": "l", "anchor": ""}),
    (events.ACCOUNT_OPENED, TABLES),
    (ANSWERS_OPENED, OPENED),
    (PEOPLE_ASKED, ASKED),
    (ESTIMATE_ADMITTED, ADMITTED),
]
OF_A_SHUFFLER = shuffled(question())[0].to_json()
REMEMBERED = shuffled(question(memoised=True))[0].to_json()
TWICE = local(question("b", "2"), answers=2)[0].to_json()
CHEAP = Asking(questions=(question("b", "0.1"), question("c", "0.1"))).to_json()
DEAR = local(question(epsilon="2.5"))[0].to_json()

IMPOSSIBLE = {
    "a name that an account of tables has": (3, ANSWERS_OPENED, {**OPENED, "account": "a", "sources": []}),
    "a name that an account of answers has": (3, ANSWERS_OPENED, {**OPENED, "sources": []}),
    "an account of tables of that name": (3, events.ACCOUNT_OPENED, {**TABLES, "account": "v", "sources": []}),
    "files of tables": (2, ANSWERS_OPENED, {**OPENED, "sources": ["/data/*.parquet"]}),
    "files of answers": (3, events.SOURCE_REGISTERED, {"account": "a", "source": "/v/*"}),
    "a kind that is none": (2, ANSWERS_OPENED, {**OPENED, "kind": "central"}),
    "a delta of devices": (2, ANSWERS_OPENED, {**OPENED, "limits": {**vars(LIMITS), "delta": 1e-6}}),
    "limits that fall": (3, ANSWERS_RAISED, {"account": "v", "limits": {**vars(LIMITS), "questions": 1}}),
    "limits of tables": (3, ANSWERS_RAISED, {"account": "a", "limits": vars(LIMITS)}),
    "a cap of answers": (3, events.CAP_RAISED, {**TABLES, "account": "v"}),
    "a charge that was made": (4, PEOPLE_ASKED, ASKED),
    "a charge of nothing": (3, PEOPLE_ASKED, {**ASKED, "cost": {"epsilon": "0", "delta": "0"}}),
    "a charge too small": (3, PEOPLE_ASKED, {**ASKED, "cost": {"epsilon": str(10**12 - 1), "delta": "0"}}),
    "a charge of tables": (3, PEOPLE_ASKED, {**ASKED, "account": "a"}),
    "a question to nobody": (3, PEOPLE_ASKED, {**ASKED, "asking": {**ASKED["asking"], "questions": []}}),
    "an answer too dear": (
        3,
        PEOPLE_ASKED,
        {**ASKED, "asking": DEAR, "cost": {"epsilon": "2500000000000", "delta": "0"}},
    ),
    "a charge above the cap": (
        4,
        PEOPLE_ASKED,
        {**ASKED, "asking": TWICE, "cost": {"epsilon": str(4 * 10**12), "delta": "0"}},
    ),
    "a question too many": (
        4,
        PEOPLE_ASKED,
        {**ASKED, "asking": CHEAP, "cost": {"epsilon": str(2 * 10**11), "delta": "0"}},
    ),
    "no answer": (3, PEOPLE_ASKED, {**ASKED, "asking": {**ASKED["asking"], "answers": 0}}),
    "a shuffler's charge to devices": (
        3,
        PEOPLE_ASKED,
        {**ASKED, "asking": OF_A_SHUFFLER, "cost": shuffled(question())[0].each.to_json()},
    ),
    "an epsilon that fills the memory": (
        3,
        PEOPLE_ASKED,
        {
            **ASKED,
            "asking": local(question(epsilon="1"))[0].to_json()
            | {"questions": [vars(question(epsilon="9e999999999"))]},
        },
    ),
    "an estimate of what nobody was asked": (3, ESTIMATE_ADMITTED, ADMITTED),
    "an estimate of more answers": (4, ESTIMATE_ADMITTED, {**ADMITTED, "askings": {KEY: 2}}),
    "an estimate of nothing": (4, ESTIMATE_ADMITTED, {**ADMITTED, "askings": {}}),
    "an estimate that is there": (5, ESTIMATE_ADMITTED, ADMITTED),
    "an estimate of tables": (4, ESTIMATE_ADMITTED, {**ADMITTED, "account": "a"}),
    "a plan of answers": (
        4,
        events.PLAN_FROZEN,
        {"account": "v", "window": "", "asked": "x", "plan": "p", "runs": 2, "cost": {"epsilon": "6", "delta": "5"}},
    ),
    "a budget given back": (5, events.RUN_ABANDONED, {"account": "v", "run_id": "r", "given_back": True}),
}


def after(steps: int, *more: tuple[str, dict[str, object]]) -> State:
    state, last = State(), None
    for number, (kind, body) in enumerate([*LIFE[:steps], *more]):
        last = chained(last, kind, body, f"t{number}")
        state.apply(last)
    return state


def test_the_life_that_impossible_events_interrupt_is_possible() -> None:
    assert after(5).runs["v", "r"].round == 1


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_is_impossible_is_refused_whoever_wrote_it(what: str) -> None:
    steps, kind, body = IMPOSSIBLE[what]
    with pytest.raises(LedgerError, match="is impossible here"):
        after(steps, (kind, body))


def test_remembered_answers_are_never_charged_behind_a_shuffler() -> None:
    of_mixed = {**OPENED, "kind": "shuffled", "limits": vars(BEHIND)}
    cost = shuffled(question())[0].each.to_json()
    fresh = {**ASKED, "asking": OF_A_SHUFFLER, "cost": cost}
    begin = [LIFE[0], LIFE[1], (ANSWERS_OPENED, of_mixed)]
    state, last = State(), None
    for kind, body in [*begin, (PEOPLE_ASKED, fresh)]:
        last = chained(last, kind, body, "")
        state.apply(last)
    with pytest.raises(LedgerError, match="is impossible here"):
        state.apply(chained(last, PEOPLE_ASKED, {**ASKED, "asking": REMEMBERED, "cost": cost}, ""))


@given(
    asked=st.lists(
        st.tuples(st.integers(0, 4), st.decimals("0.0000001", "12", places=13), st.booleans(), st.integers(1, 5)),
        max_size=12,
    )
)
def test_an_account_holds_the_exact_sum_of_the_most_answers_to_each_question(
    asked: list[tuple[int, Decimal, bool, int]],
) -> None:
    limits = AnswerLimits(epsilon=1e5, questions=100, answers=5, question_epsilon=12.0)
    account, most = AnswersAccount(name="v", kind="local", limits=limits), dict[tuple[object, ...], int]()
    for name, epsilon, memoised, answers in asked:
        (asking,) = local(question(str(name), f"{epsilon:f}", memoised=memoised), answers=answers)
        if account.cost_of(asking) != Cost():
            account = account.charged(asking)
        most[name, epsilon, memoised] = max(most.get((name, epsilon, memoised), 0), answers)
    exact = sum(epsilon * answers for (_, epsilon, _), answers in most.items())
    held = Decimal(account.spent.epsilon) / 10**12
    assert exact <= held <= exact + Decimal(60) / 10**12
    assert len(account.questions_with()) == len(most)


def test_a_ledger_of_version_0_1_0_takes_accounts_of_answers_and_nothing_else_in_it_changes(sqlite: str) -> None:
    shutil.copy(GOLDEN, sqlite)
    before = Ledger.open(sqlite)
    ledger = Ledger.open(sqlite)
    answers_ledger.open_account(
        ledger, "visits", kind="local", limits=AnswerLimits(epsilon=2.0, questions=1, question_epsilon=2.0)
    )
    age = AskedQuestion(name="age", document="7d1f", mechanism="unary", epsilon="2")
    asked = {"askings": [Asking(questions=(age,))], "asked": "x", "content": "c", "params": {}}
    assert (
        ledgers.finish(ledger, answers_ledger.admit_estimate(ledger, "visits", "monday", **asked)).state == "published"
    )
    again = Ledger.open(sqlite)
    assert again.verify() == 18 + 3 + 4
    assert again.history[:18] == before.history
    assert (again.state.accounts, again.state.plans) == (before.state.accounts, before.state.plans)
