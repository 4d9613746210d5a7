"""`plan` says in one sentence what a large delta or epsilon means, and refuses neither.

Not covered: the sentences themselves (doctests of `report.words.budget_notes`).
"""

from collections.abc import Callable

import pytest

from tests.jobs.conftest import Said, Shop

Call = Callable[..., Said]


def notes(said: Said) -> list[str]:
    assert said.code == 0
    return [line for line in said.out.splitlines() if line.startswith("note:")]


def test_a_large_delta_and_a_large_epsilon_are_noted(shop: Shop, call: Call) -> None:
    shop.write(budget={"epsilon": 12.0, "delta": 1e-3})
    delta, epsilon = notes(call("plan", shop.job))
    assert "delta 0.001 is large: it would allow to publish all rows of 1 in 1,000 customers" in delta
    assert (
        "epsilon 12 is large: what is published may be 162,755 times as likely with one customer as without" in epsilon
    )


@pytest.mark.parametrize(("units", "noted"), [(None, False), (100_000, False), (100_001, True)])
def test_a_delta_above_one_over_the_expected_customers_is_noted(
    shop: Shop, call: Call, units: int | None, noted: bool
) -> None:
    shop.write(budget={"epsilon": 10.0, "delta": 1e-5}, expect=None if units is None else {"units": units})
    found = notes(call("plan", shop.job))
    assert len(found) == noted
    assert all("delta 1e-05 is large for 100,001 customers (expect)" in note for note in found)


def test_describe_says_the_same(shop: Shop, call: Call) -> None:
    shop.write(budget={"epsilon": 12.0, "delta": 1e-3})
    page = shop.folder / "page.md"
    assert call("describe", shop.job, "--output", page).code == 0
    text = page.read_text()
    assert " is large: it would allow to publish all rows of 1 in " in text
    assert " times as likely with one customer as without, which hides little." in text
