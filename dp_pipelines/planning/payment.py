"""Payment for a stage: each plan pays for one run of each stage, once in a process.

In: stages that are about to be drawn. Out: a note that they are paid for; or a refusal, before anything is drawn. How: every
`Plan` object has a name of its own, which its stages carry. Holds: of all stages that are drawn together either all are noted or
none; what was noted stays, also where the run that asked has failed, since nobody knows whether it had drawn. Not covered:
another process, or a plan that is made anew with the same numbers: those are further budgets, which add up (see the ledger).
"""

import dataclasses
import threading
from collections.abc import Iterable

from dp_pipelines.errors import RequestError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Payment:
    """The run of a plan that pays for a stage.

    Args:
        plan: names the plan object, in this process and in copies of it.
        run: its number from 1; 0 where the plan is for several runs and nobody has said which.
        stages: all that this run pays for, whether they are released or not.
    """

    plan: str
    run: int
    stages: tuple[str, ...] = ()


PaidKey = tuple[str, int, str]

_lock = threading.Lock()
_paid: set[PaidKey] = set()


def named_run(stage: str, payment: Payment | None) -> None:
    """Refuse a stage of which nobody has said in which run of its plan it is released.

    Raises:
        RequestError: its plan is for several runs.

    >>> named_run("weekly", Payment(plan="...", run=0))
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: stage 'weekly': belongs to a plan for several runs; name the run: plan['weekly', 1]
    """
    if payment is not None and payment.run == 0:
        raise RequestError(
            field=f"stage {stage!r}",
            message="belongs to a plan for several runs",
            hint=f"name the run: plan[{stage!r}, 1]",
        )


def refuse_paid(stage: str, payment: Payment | None) -> None:
    """Refuse a stage that was drawn before in this process.

    Raises:
        RequestError: it was.
    """
    if payment is not None and (payment.plan, payment.run, stage) in _paid:
        raise RequestError(
            field=f"stage {stage!r}",
            message="has already been released by another run, and its plan pays for it only once",
            hint="use the output of that run, or make a new plan: the two budgets add up",
        )


def unreleased(stages: Iterable[tuple[str, Payment | None]]) -> list[str]:
    """Return the stages that the runs of these stages pay for, and that nothing in this process has released.

    Args:
        stages: as for `pay`.

    >>> unreleased([("weekly", Payment(plan="...", run=1, stages=("weekly", "daily")))])
    ['weekly', 'daily']
    """
    paying = dict.fromkeys(payment for _, payment in stages if payment is not None)
    with _lock:
        return [name for p in paying for name in p.stages if (p.plan, p.run, name) not in _paid]


def pay(stages: Iterable[tuple[str, Payment | None]]) -> None:
    """Note that stages are drawn now.

    Args:
        stages: the name of each, and what pays for it; stages that no plan has made are not noted.

    Raises:
        RequestError: one of them was drawn before, or is drawn in an unnamed run; then none of them is noted.
    """
    together = list(stages)
    with _lock:
        for name, payment in together:
            named_run(name, payment)
            refuse_paid(name, payment)
        _paid.update((payment.plan, payment.run, name) for name, payment in together if payment is not None)
