"""What pays for a stage: one run of one plan, once, and of several stages either all are noted or none.

In: payments of made-up plans. Out: what is refused, what is still unreleased. Not covered: pipelines, threads and copies of plans
(tests/transforms/test_once.py).
"""

import contextlib
import itertools

import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.planning.payment import Payment, named_run, pay, refuse_paid, unreleased

_numbers = itertools.count()


def payment(run: int = 1, plan: str = "", stages: tuple[str, ...] = ("a", "b", "c")) -> Payment:
    """What pays for the stages of a plan, by default of one that nobody has seen before."""
    return Payment(plan=plan or f"{__name__} {next(_numbers)}", run=run, stages=stages)


def is_refused(stage: str, paying: Payment | None) -> bool:
    with contextlib.suppress(RequestError):
        refuse_paid(stage, paying)
        return False
    return True


def test_a_stage_of_a_run_of_a_plan_is_paid_for_once_and_no_other_one_with_it() -> None:
    first = payment()
    others = [("b", first), ("a", payment()), ("a", payment(2, plan=first.plan)), ("a", None)]
    assert not any(is_refused(*one) for one in [("a", first), *others])
    pay([("a", first)])
    assert is_refused("a", first)
    assert not any(is_refused(*one) for one in others)
    with pytest.raises(RequestError, match="stage 'a': has already been released"):
        pay([("a", first)])
    for one in others:
        pay([one])
    assert [is_refused(*one) for one in others] == [True, True, True, False]


def test_of_stages_that_are_drawn_together_none_is_noted_where_one_is_refused() -> None:
    first, unnamed = payment(), payment(0)
    pay([("b", first)])
    for refused in (("b", first), ("b", unnamed)):
        for together in ([("a", first), refused, ("c", first)], [refused, ("a", first), ("c", first)]):
            with pytest.raises(RequestError, match="stage 'b'"):
                pay(together)
    assert unreleased([("a", first)]) == ["a", "c"]
    pay([("a", first), ("c", first), ("made without a plan", None)])
    assert unreleased([("a", first)]) == []


def test_what_a_run_pays_for_and_does_not_release_is_listed_once_for_each_run() -> None:
    first = payment()
    second = payment(2, plan=first.plan)
    pay([("b", second)])
    assert unreleased([("a", first), ("b", first), ("b", second), ("other", None)]) == ["a", "b", "c", "a", "c"]


def test_a_run_that_nobody_has_named_is_refused_and_what_no_plan_has_made_is_not() -> None:
    with pytest.raises(
        RequestError, match=r"stage 'a': belongs to a plan for several runs; name the run: plan\['a', 1\]"
    ):
        named_run("a", payment(0))
    for fine in (payment(1), payment(7), None):
        named_run("a", fine)
