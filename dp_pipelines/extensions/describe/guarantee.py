"""Who is protected from whom, and what that means in numbers: odds of an attacker, larger groups, the account so far.

In: a job, its plan, the guarantees of groups, a ledger where there is one. Out: blocks of a page. Holds: every number follows
from (epsilon, delta) and is rounded up; the ledger is only read.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dp_pipelines.accounting.group_privacy import GroupGuarantee
from dp_pipelines.extensions.describe.assessment_page import Block, Cells, Listed
from dp_pipelines.jobs.sources import event_window
from dp_pipelines.jobs.spec.job_file import Job
from dp_pipelines.ledger import export
from dp_pipelines.query.row_unit import is_row_unit
from dp_pipelines.release.manifest import unit_in_words
from dp_pipelines.report.attack_odds import example, factor, found_at_most, in_a_hundred, one_in
from dp_pipelines.report.numbers import cost_number, left_cost_number
from dp_pipelines.report.words.budget_notes import budget_notes

if TYPE_CHECKING:
    from dp_pipelines.ledger.ledger import Ledger

GROUPS = (2, 4, 10)
"""Sizes of groups whose guarantee is told: a couple, a household, a family."""

FALSE_ALARMS = (0.01, 0.1)
"""Shares of outsiders whom an attacker may wrongly accuse."""


def unit_of(job: Job) -> str:
    """The privacy unit in words."""
    return event_window.in_words(unit_in_words(job.unit), job)


def protected(job: Job, epsilon: float, delta: float) -> Iterator[Block]:
    """Who is protected, and from whom.

    Args:
        job: what it is about.
        epsilon, delta: of all runs together.
    """
    unit = unit_of(job)
    whole = "which is a person" if is_row_unit(job.unit) else "all of its rows together"
    yield (
        f"Protected is each {unit}: {whole}, in everything that all runs of this plan publish. Whatever "
        f"they publish would be nearly as likely without that unit: at most {factor(epsilon)} times as likely, or as "
        f"unlikely (e to the power of epsilon, {cost_number(epsilon)})."
    )
    if delta:
        yield (
            f"Delta, {cost_number(delta)}, is what may be missing from that statement: at most 1 in {one_in(delta)}, by "
            "which the probability of any outcome may differ beyond the factor."
        )
    for note in budget_notes(epsilon, delta, unit, None if job.expect is None else job.expect.units):
        yield f"{note[:1].upper()}{note[1:]}."
    yield "From whom, and from whom not:"
    between = () if job.parties is None else job.parties.build().words
    yield Listed(
        items=[
            *(f"between the parties: {words}" for words in between),
            "protected from everybody who sees what is published, whatever else they know, other people's rows among it, "
            "and whatever computers they will have",
            "not protected from those who can read the files of rows, the private staging folder of a run in progress, or "
            "the machines that it runs on: the rows are there in the clear (the central model: whoever runs the job is "
            "trusted)",
            "not protected from what dp-pipelines check and tune write, which look at raw rows: they are private, and stay "
            "with those who may see the rows",
        ]
    )


def in_plain_words(epsilon: float, delta: float, groups: Sequence[GroupGuarantee], unit: str) -> Iterator[Block]:
    """What an attacker may gain.

    Args:
        epsilon, delta: of all runs together.
        groups: the guarantees of larger groups.
        unit: in words.
    """
    yield (
        "Somebody wants to know whether a certain unit is in the rows, and sees everything that is published. How often can "
        "they be right? These are upper limits for the best of all attacks; real attackers know and can do less."
    )
    cells = [_odds("1", epsilon, delta)]
    unprotected = []
    for group in groups:
        if group.useful:
            cells.append(_odds(f"{group.units}", group.epsilon, group.delta))
        else:
            unprotected.append(f"{group.units:,}")
    heads = [f"found, of 100 who are in, if {share:.0%} of outsiders are accused" for share in FALSE_ALARMS]
    yield Cells(
        caption="Of units, alone and in groups whose rows are all added or removed together",
        head=("units", "epsilon", "delta", "right, of 100 guesses at fifty-fifty", *heads),
        rows=cells,
    )
    if unprotected:
        yield f"Groups of {' and of '.join(unprotected)} have no useful guarantee together under this plan."
    yield (
        f"Without any publication the figures would be 50, {', '.join(f'{100 * share:g}' for share in FALSE_ALARMS)}. What "
        f"is true of people in general, each {unit} or not, can still be learned: that is what statistics are for."
    )


def _odds(units: str, epsilon: float, delta: float) -> tuple[str, ...]:
    found = [in_a_hundred(found_at_most(epsilon, delta, share)) for share in FALSE_ALARMS]
    return units, cost_number(epsilon), cost_number(delta), example(epsilon, delta) or "100", *found


def budget(job: Job, plan: dict[str, Any]) -> Iterator[Block]:
    """The budget of the plan, and how its cost is computed."""
    asked, total, once = job.budget, plan["accounted"], plan["accounted_one_run"]
    rows = [("the job's budget, for all runs", cost_number(asked.epsilon), cost_number(asked.delta))]
    rows.append(("all runs together, as computed", cost_number(total["epsilon"]), cost_number(total["delta"])))
    if asked.runs > 1:
        rows.append(("the first run by itself", cost_number(once["epsilon"]), cost_number(once["delta"])))
    yield Cells(caption="Budget", head=("", "epsilon", "delta"), rows=rows)
    yield (
        "All noise is drawn from exact samplers fed by the operating system's generator, and the cost of everything in the "
        "plan together is computed from privacy loss distributions, rounded up. The plan is fixed before a row is read."
    )


def account(ledger: "Ledger | None", dataset: str, shown: str) -> Iterator[Block]:
    """What the ledger says of the account.

    Args:
        ledger: opened; None where there is none.
        dataset: the account.
        shown: where the ledger would be; empty: the page is to name none.
    """
    if not shown and ledger is None:
        yield "No ledger is shown here. Runs without one are not remembered: nobody adds up what they cost together."
        return
    if ledger is None:
        yield (
            f"There is no ledger at {shown} yet: the first run opens the account {dataset!r} with the job's budget as its "
            "cap. A run with --ledger none is not remembered, and nobody adds up what such runs cost together."
        )
        return
    if dataset not in ledger.state.accounts:
        yield (
            f"The ledger {ledger.shown} has no account {dataset!r} yet: the first run opens it with the job's budget as its "
            "cap."
        )
    else:
        told = export.account_to_json(ledger.state.accounts[dataset])
        rows = [
            (
                window or "all times",
                f"{cost_number(each['cap']['epsilon'])}, {cost_number(each['cap']['delta'])}",
                f"{cost_number(each['spent']['epsilon'])}, {cost_number(each['spent']['delta'])}",
                f"{left_cost_number(each['left']['epsilon'])}, {left_cost_number(each['left']['delta'])}",
            )
            for window, each in told["budgets"].items()
        ]
        yield Cells(
            caption=f"Account {dataset} in the ledger, which protects each {told['privacy_unit']} (epsilon, delta)",
            head=("window", "cap", "spent or reserved", "left"),
            rows=rows,
        )
    looks = export.tunings_to_json(ledger, dataset)
    if looks:
        yield "Raw rows were looked at, which no epsilon covers:"
        yield Listed(
            items=[f"{look['time'][:10]} with dp-pipelines {look['command']}, stage {look['stage']}" for look in looks]
        )
