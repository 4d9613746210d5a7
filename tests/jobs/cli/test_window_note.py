"""`plan` says what a window of event time would save, where each of several runs reads another period by a date.

In: the shop's job. Out: notes. Holds: the factor is that of the planned noise of a job that has the window. Not covered: windows
themselves (`tests/jobs/run/test_ledger_account.py`).
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

DATED: dict[str, Any] = {"params": {"week": {"type": "date"}}, "where": "paid_at >= {week}"}
EIGHT = {"epsilon": 1.0, "delta": 1e-6, "runs": 8}
GIVEN = ("--param", "week=2025-01-06")


def notes(said: Said) -> list[str]:
    """Return the notes of the budget."""
    assert said.code == 0, said.err
    return [line for line in said.out.splitlines() if line.startswith("note:")]


def deviation(said: Said) -> float:
    """Return the planned noise of the orders of one run."""
    assert said.code == 0, said.err
    return float(json.loads(said.out)["stages"][0]["metrics"]["orders"]["stddev"])


def test_the_factor_is_that_of_the_noise_with_a_window(shop: Shop, call: Call) -> None:
    shop.write(budget=EIGHT, **DATED)
    (note,) = notes(call("plan", shop.job, *GIVEN))
    assert "`window: {column: ..., days: ..., param: week}`" in note
    assert "protects one customer within one period" in note
    told = re.search(r"the noise is ([0-9.]+) times", note)
    assert told is not None
    shared = deviation(call("plan", shop.job, *GIVEN, "--json"))
    window = {"column": "paid_at", "days": 7, "param": "week"}
    shop.write(budget={"epsilon": 1.0, "delta": 1e-6}, params=DATED["params"], window=window, dataset="weeks")
    alone = deviation(call("plan", shop.job, *GIVEN, "--json"))
    assert float(told[1]) == pytest.approx(shared / alone, abs=0.05)
    assert float(told[1]) == pytest.approx(8**0.5, rel=0.05)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": {"parquet": "data/part-{week}*.parquet"}, "where": None},
        {"where": None, "stages": {"weekly": stage(where="paid_at >= {week}")}},
    ],
    ids=["files of a day", "the condition of a stage"],
)
def test_a_date_counts_wherever_it_chooses_rows(shop: Shop, call: Call, changes: dict[str, Any]) -> None:
    (shop.folder / "data" / "part-0.parquet").rename(shop.folder / "data" / "part-2025-01-06.parquet")
    shop.write(budget=EIGHT, **DATED | changes)
    assert len(notes(call("plan", shop.job, *GIVEN))) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": {"epsilon": 1.0, "delta": 1e-6}},
        {"params": {"week": {"type": "string"}}, "where": "note = {week}"},
        {"where": "price > 1"},
    ],
    ids=["one run", "no date", "a date that chooses no rows"],
)
def test_nothing_is_said_where_a_window_changes_nothing(shop: Shop, call: Call, changes: dict[str, Any]) -> None:
    shop.write(**{"budget": EIGHT, **DATED, **changes})
    assert notes(call("plan", shop.job, *GIVEN)) == []


def test_json_has_no_notes_and_no_other_plan(shop: Shop, call: Call) -> None:
    shop.write(budget=EIGHT, **DATED)
    digest = json.loads(call("plan", shop.job, *GIVEN, "--json").out)["digest"]
    assert notes(call("plan", shop.job, *GIVEN))
    assert json.loads(call("plan", shop.job, *GIVEN, "--json").out)["digest"] == digest
