"""The release before, as a run in a ledger sees it: the last one of its plan that was committed, frozen in the manifest.

In: the shop, run several times. Out: manifests and pages. Holds: whatever is published later changes no page. Not covered: which
numbers are compared (`tests/report/test_previous_numbers.py`).
"""

import json
from collections.abc import Callable
from typing import Any

from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.ledger.release_list import entries
from tests.jobs.conftest import Said, Shop, stage
from tests.report.page import Page

Call = Callable[..., Said]


def run(shop: Shop, call: Call, run_id: str) -> dict[str, Any]:
    """The manifest of a run."""
    said = call("run", shop.job, "--output", shop.folder / run_id, "--run-id", run_id)
    assert said.code == 0, said.err
    content: dict[str, Any] = json.loads((shop.folder / run_id / "manifest.json").read_text())
    return content


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
