"""The release before, as a run in a ledger sees it: the nearest earlier one of its job, frozen in the manifest.

In: the shop, run several times. Out: manifests and pages. Holds: whatever is published later changes no page. Not covered: which
numbers are compared (`tests/report/test_previous_numbers.py`).
"""

import json
import shutil
from collections.abc import Callable
from typing import Any

from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.ledger.release_list import entries
from tests.jobs.conftest import Said, Shop, stage
from tests.report.page import Page

Call = Callable[..., Said]


def run(shop: Shop, call: Call, run_id: str, *options: object) -> dict[str, Any]:
    """The manifest of a run."""
    said = call("run", shop.job, "--output", shop.folder / run_id, "--run-id", run_id, *options)
    assert said.code == 0, said.err
    content: dict[str, Any] = json.loads((shop.folder / run_id / "manifest.json").read_text())
    return content


def before(content: dict[str, Any]) -> str | None:
    """The run that a run is compared with."""
    said = content["ledger"].get("before")
    return None if said is None else str(said["run_id"])


def write_daily(shop: Shop, **changes: Any) -> None:
    """Write a job with a day and a product as parameters, and one run for corrections."""
    total = stage(partition_by=[], bounds={"max_contributions_per_partition": 2})
    shop.write(
        params={"day": {"type": "date"}, "product": {"type": "string"}}, stages={"total": total},
        budget={"epsilon": 8.0, "delta": 1e-5, "runs": 5, "spare": 1},
        **{"where": "paid_at >= {day} AND product = {product}", **changes},
    )  # fmt: skip


def run_of(shop: Shop, call: Call, day: int, *options: object, product: str = "p1") -> dict[str, Any]:
    """The manifest of the run of a day in January; its id tells no day."""
    params = ("--param", f"day=2025-01-{day:02}", "--param", f"product={product}")
    return run(shop, call, f"{product}-{day:02}", *params, *options)


def test_a_run_is_compared_with_the_one_that_was_committed_before_it(shop: Shop, call: Call) -> None:
    total = stage(partition_by=[], bounds={"max_contributions_per_partition": 2})
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 3}, stages={"total": total})
    first, second = run(shop, call, "first"), run(shop, call, "second")
    page = shop.folder / "second" / "report.html"
    written, alone = page.read_bytes(), Page((shop.folder / "first" / "report.html").read_text()).words
    third = run(shop, call, "third")
    assert "before" not in first["ledger"]
    assert [content["ledger"]["before"]["run_id"] for content in (second, third)] == ["first", "second"]
    assert set(second["ledger"]["before"]["numbers"]["total"]) == {"orders", "revenue"}
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    days = {entry.day for entry in entries(ledger.state, ledger.account("shop"))}
    ledger.close()
    assert {content["ledger"]["drawn"] for content in (first, second, third)} <= days
    assert f"drawn on {first['ledger']['drawn']}" in alone
    assert " run first, drawn on " not in alone
    assert " run first, drawn on " in Page(written.decode()).words
    assert run(shop, call, "second") == second
    assert page.read_bytes() == written


def test_the_run_before_is_the_nearest_earlier_one_whichever_was_committed_last(shop: Shop, call: Call) -> None:
    write_daily(shop)
    assert before(run_of(shop, call, 6)) is None
    assert before(run_of(shop, call, 5)) is None, "it was finished late, and day 6 is after it"
    assert before(run_of(shop, call, 9, "--spare")) is None, "a correction is about a day that had a run"
    assert before(run_of(shop, call, 10)) == "p1-06", "the day of a correction has another run"


def test_runs_with_another_source_where_or_parameter_are_not_compared(shop: Shop, call: Call) -> None:
    write_daily(shop)
    run_of(shop, call, 5)
    assert before(run_of(shop, call, 6, product="p2")) is None
    write_daily(shop, source={"parquet": "data/part-0.parquet"})
    assert before(run_of(shop, call, 7)) is None
    write_daily(shop, where="paid_at >= {day} AND product <> {product}")
    assert before(run_of(shop, call, 8)) is None
    write_daily(shop)
    assert before(run_of(shop, call, 9)) == "p1-05", "the job file is again as it was"


def test_runs_of_the_same_words_beside_other_files_are_not_compared(shop: Shop, call: Call) -> None:
    write_daily(shop)
    run_of(shop, call, 5)
    other = Shop(shop.folder / "other")
    shutil.copytree(shop.folder / "data", other.folder / "data")
    shutil.copy(shop.job, other.job)
    assert before(run_of(other, call, 6, "--ledger", shop.folder / DEFAULT_NAME)) is None
